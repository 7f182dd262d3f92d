//! `libstackbeat_apple_app`: agent, hooks and a session in one library, for an app on iOS or macOS.
//!
//! - [`api`]: what the app calls, `include/stackbeat_app.h`
//! - [`own_session`]: the session from its start to its stop
//! - [`switch`]: whether the app is to be recorded though it has not asked for it
//! - `constructor`: looks at the switch before `main`
//!
//! It must be a library of its own, not a part of the app's executable: the rebinder leaves the calls of the
//! image alone that it is in (`stackbeat_apple::rebind::loader`). So the session's own calls pass no hook.
//!
//! On Linux the same code runs in tests. What dyld would announce they hand to the rebinder themselves.

pub mod api;
mod constructor;
pub mod own_session;
pub mod switch;
