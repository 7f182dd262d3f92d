//! What a session inside the program is asked for, as text in the environment.

use std::ffi::OsString;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use stackbeat_core::shm::layout::Mode;
use stackbeat_symbolize::SymbolCache;

use super::BeginError;
use crate::session::error::RecordError;
use crate::session::options::Options;

/// How a mode is written.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Mode", rename_all = "lowercase")]
enum ModeText {
    Endless,
    Ring,
    Startup,
}

/// What to record and how. What is left out is as in [`Options::new`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    /// Where the trace goes: an absolute path.
    pub output: PathBuf,
    /// Replace an output that exists.
    #[serde(default)]
    pub overwrite: bool,
    /// Intervals, ns, as in [`Options`].
    #[serde(default)]
    pub interval_ns: Option<u64>,
    /// That of main threads.
    #[serde(default)]
    pub main_interval_ns: Option<u64>,
    /// Part of the program's CPU time that the recording may cost, percent.
    #[serde(default)]
    pub budget_percent: Option<f64>,
    /// Bits of the categories whose probes capture.
    #[serde(default)]
    pub probes: Option<u64>,
    /// Most frames of a stack.
    #[serde(default)]
    pub depth_limit: Option<u32>,
    /// Put what awaits a task into its stacks.
    #[serde(default)]
    pub await_chains: bool,
    /// Bytes of the pool of sub-buffers.
    #[serde(default)]
    pub buffer_bytes: Option<u64>,
    /// What becomes of samples that do not fit: `endless`, `ring` or `startup`.
    #[serde(default, with = "ModeText")]
    pub mode: Mode,
    /// Where the mapping's file lies; `None`: where shared memory is.
    #[serde(default)]
    pub mapping_folder: Option<PathBuf>,
    /// Do not complete what killed sessions have left: the program does that by
    /// [`leftovers`](super::leftovers).
    #[serde(default)]
    pub keeps_leftovers: bool,
    /// Leave child processes out.
    #[serde(default)]
    pub no_children: bool,
    /// Compress the packets of the trace.
    #[serde(default)]
    pub compress: bool,
    /// Longest wait that keeps nobody who ended it, ns; 0: none is kept.
    #[serde(default)]
    pub long_wait_ns: Option<u64>,
    /// Distance of two readings of counters, ns; 0: none are read.
    #[serde(default)]
    pub counters_ns: Option<u64>,
    /// Capture nothing until it is asked for.
    #[serde(default)]
    pub start_disabled: bool,
    /// Write names of functions into the trace at its end.
    #[serde(default)]
    pub symbolize: bool,
    /// What is measured, for series of recordings.
    #[serde(default)]
    pub label: String,
    /// The commit that the program was built of.
    #[serde(default)]
    pub commit: String,
}

impl Wanted {
    /// All defaults, into this file: an absolute path.
    pub fn to(output: PathBuf) -> Wanted {
        Wanted {
            output,
            ..Wanted::default()
        }
    }

    /// Reads what [`Wanted::to_text`] wrote.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn from_text(text: &str) -> Result<Wanted, BeginError> {
        serde_json::from_str(text).map_err(BeginError::Wanted)
    }

    /// For the environment of the program.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Of what was asked of a session outside, what one inside can do.
    pub fn of(options: &Options) -> Wanted {
        Wanted {
            output: std::path::absolute(&options.output).unwrap_or_else(|_| options.output.clone()),
            overwrite: options.overwrite,
            interval_ns: Some(options.interval_ns),
            main_interval_ns: Some(options.main_interval_ns),
            budget_percent: options.budget_percent,
            probes: Some(options.probes),
            depth_limit: Some(options.depth_limit),
            await_chains: options.await_chains,
            buffer_bytes: Some(options.buffer_bytes),
            mode: options.mode,
            mapping_folder: options.mapping_folder.clone(),
            keeps_leftovers: false,
            no_children: !options.follow_children,
            compress: options.compress,
            long_wait_ns: Some(options.long_wait_ns.unwrap_or(0)),
            counters_ns: Some(options.counters_ns.unwrap_or(0)),
            start_disabled: options.start_disabled,
            symbolize: options.symbolize,
            label: options.label.clone(),
            commit: options.commit.clone(),
        }
    }

    /// The same for the session's parts. `command`: the program's arguments.
    pub(super) fn options(&self, command: Vec<OsString>) -> Result<Options, RecordError> {
        let mut options = Options::new(command, PathBuf::new(), self.output.clone());
        options.overwrite = self.overwrite;
        options.interval_ns = self.interval_ns.unwrap_or(options.interval_ns);
        options.main_interval_ns = self.main_interval_ns.unwrap_or(options.interval_ns);
        options.budget_percent = self.budget_percent;
        options.probes = self.probes.unwrap_or(options.probes);
        options.depth_limit = self.depth_limit.unwrap_or(options.depth_limit);
        options.await_chains = self.await_chains;
        options.buffer_bytes = self.buffer_bytes.unwrap_or(options.buffer_bytes);
        options.mode = self.mode;
        options.mapping_folder.clone_from(&self.mapping_folder);
        options.follow_children = !self.no_children;
        options.compress = self.compress;
        options.long_wait_ns = match self.long_wait_ns {
            None => options.long_wait_ns,
            Some(0) => None,
            Some(ns) => Some(ns),
        };
        options.counters_ns = match self.counters_ns {
            None => options.counters_ns,
            Some(0) => None,
            Some(ns) => Some(ns),
        };
        options.symbolize = self.symbolize;
        options.names.cache = match self.symbolize {
            true => SymbolCache::of_user(),
            false => None,
        };
        options.label.clone_from(&self.label);
        options.commit.clone_from(&self.commit);
        options.validate()?;
        Ok(options)
    }
}
