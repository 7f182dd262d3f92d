//! Programs with thousands of threads.

mod idle;
mod many;
