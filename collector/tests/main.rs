//! Sessions over real programs without an agent, and what is left of them when somebody is killed.

mod crash;
mod record;
mod recover;
