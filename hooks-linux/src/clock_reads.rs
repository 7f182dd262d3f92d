//! Clock reads.

use core::ffi::{c_int, c_void};
use libc::{clockid_t, time_t, timespec, timeval};
use stackbeat_core::agent;
use stackbeat_core::probe::Probe;

stackbeat_core::posix_clocks! { hooks }
