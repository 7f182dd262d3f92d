//! Placing hooks: inline by ShadowHook or Dobby, else in the tables of imported functions.
