//! What programs, users and files do that breaks tracers.

mod bad_input;
mod overwritten;
mod programs;
