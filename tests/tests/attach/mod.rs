//! `stackbeat attach`: programs that were running before are recorded, notice nothing, and are left as they were.

mod family;
mod faults;
mod process;
mod servers;
mod starved;
mod waiting;
