//! Small C and C++ programs, and real ones, with and without the agent alone: the harness stands in for the
//! collector.

mod musl;
mod real_programs;
mod sandbox;
mod stack_use;
mod storm;
mod transparent;
