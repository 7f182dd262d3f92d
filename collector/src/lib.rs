//! Recording sessions, draining, symbolization and the trace model.

pub mod model;
