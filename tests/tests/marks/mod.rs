//! What programs say about themselves: marks, scopes, counters and flows.

mod c_extension;
mod events;
mod scopes;
mod systrace;
