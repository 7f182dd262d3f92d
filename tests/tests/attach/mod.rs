//! `stackbeat attach`: programs that were running before are recorded, notice nothing, and are left as they
//! were.

mod attached_servers;
mod descendants;
mod executes;
mod faults;
mod other_files;
mod running_program;
mod starved;
mod waiting;
