//! Programs that a newcomer traces first. Each does a fixed amount of work and prints a result that
//! does not depend on timing.

#![forbid(unsafe_code)]

pub mod kitchen;
