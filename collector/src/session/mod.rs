//! A recording session: makes the mapping, starts the program, keeps the clock of the tick, drains the
//! sub-buffers into the trace and finishes it when the program has ended.
//!
//! Three threads share the work, all in the process that called [`record`]: the calling thread waits
//! for the program and for signals, one advances the ticks and interrupts running threads, one drains
//! and writes.

mod error;
mod options;
mod program;

pub use error::{RecordError, Warning};
pub use options::{Options, Outcome, Progress, Status};

/// Records one run of a program. Returns when the program has ended and the trace is complete.
///
/// # Errors
///
/// When the recording could not begin: the program then did not run. What goes wrong later (a full
/// disk) is said in the [`Outcome`], because the program's end is the caller's business too.
pub fn record(
    options: &Options,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Outcome, RecordError> {
    let program = program::resolve(options)?;
    for warning in program.warnings() {
        progress(&Progress::Warning(warning.clone()));
    }
    Err(RecordError::Start {
        program: program.path().to_path_buf(),
        source: std::io::ErrorKind::Unsupported.into(),
    })
}
