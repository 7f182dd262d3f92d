//! Recordings of real programs, compared with runs without a recorder or with other tools. A module for each topic.

mod allocations;
mod attach;
mod circles;
mod control;
mod crashes;
mod evidence;
mod gate;
mod hostile;
mod independent;
mod interpreter;
mod interruptions;
mod jit;
mod kernel_clock;
mod lengths;
mod marks;
mod papers;
mod probes;
mod programs;
mod python;
mod recording;
mod runtimes;
mod servers;
mod system_calls;
mod threads;
mod unrecorded;
mod waits;
