//! What programs, users and files do that breaks tracers.

mod bad_input;
mod hostile_programs;
mod overwritten;
