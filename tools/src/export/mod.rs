//! Traces in the formats of other tools.
//!
//! Every exporter reads the model's segments (a stretch of one thread's time with one stack) and
//! writes to one stream. Formats that show time (`perfetto`, `chrome`, `speedscope`, `firefox`) keep
//! when things happened; formats that show shares (`pprof`, `folded`, `flamegraph-svg`) add up what
//! has the same stack. Whatever the format, the amounts of a function add up to the same totals:
//! nothing is rounded away, scaled or left out. `docs/exports.md` says where each amount ends up.

mod arrows;
mod chrome;
mod drops;
mod export_names;
mod feed;
mod firefox;
mod folded;
mod json_writer;
mod nesting;
mod perfetto;
mod pprof;
mod profile;
mod selection;
mod speedscope;
mod spool;
mod svg;
mod viewer_ids;

use std::fmt;
use std::io::{BufWriter, Write};
use std::ops::Range;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context, Result};
use stackbeat_model::metric::{Metric, Unit};
use stackbeat_model::{Spent, Trace};

pub use export_names::{GAP_NAME, UNKNOWN_NAME, blocking_name};
use selection::Selection;

/// A format that a trace can be written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// A protobuf trace of the Perfetto viewer.
    Perfetto,
    /// A profile for `go tool pprof`.
    Pprof,
    /// Trace events as JSON.
    Chrome,
    /// A flame chart for each thread.
    Speedscope,
    /// A line for each stack.
    Folded,
    /// A picture with a script in it.
    FlamegraphSvg,
    /// A profile for the Firefox Profiler.
    Firefox,
}

impl Format {
    /// Every format, in the order of the documentation.
    pub const ALL: [Format; 7] = [
        Format::Perfetto,
        Format::Pprof,
        Format::Chrome,
        Format::Speedscope,
        Format::Folded,
        Format::FlamegraphSvg,
        Format::Firefox,
    ];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Format::Perfetto => "perfetto",
            Format::Pprof => "pprof",
            Format::Chrome => "chrome",
            Format::Speedscope => "speedscope",
            Format::Folded => "folded",
            Format::FlamegraphSvg => "flamegraph-svg",
            Format::Firefox => "firefox",
        }
    }

    /// Another name on the command line.
    const fn short_name(self) -> Option<&'static str> {
        match self {
            Format::FlamegraphSvg => Some("svg"),
            _ => None,
        }
    }

    /// What it is and what opens it, in a line.
    pub const fn description(self) -> &'static str {
        match self {
            Format::Perfetto => {
                "Perfetto protobuf trace: slices, counters, callstack samples (ui.perfetto.dev, trace_processor)"
            }
            Format::Pprof => {
                "gzipped pprof profile: wall, CPU, blocked time, allocations (go tool pprof)"
            }
            Format::Chrome => "Chrome JSON trace events (chrome://tracing, Perfetto, speedscope)",
            Format::Speedscope => "speedscope JSON: a time-ordered flame chart for each thread",
            Format::Folded => "folded stacks, a line for each stack (flamegraph.pl, inferno)",
            Format::FlamegraphSvg => "self-contained interactive flame graph (any browser)",
            Format::Firefox => {
                "Firefox Profiler processed profile (profiler.firefox.com, open from file)"
            }
        }
    }

    /// The usual end of a file's name in this format.
    pub const fn extension(self) -> &'static str {
        match self {
            Format::Perfetto => "pftrace",
            Format::Pprof => "pb.gz",
            Format::Chrome => "json",
            Format::Speedscope => "speedscope.json",
            Format::Folded => "folded",
            Format::FlamegraphSvg => "svg",
            Format::Firefox => "profile.json",
        }
    }

    /// Whether [`Options::weight`] changes what is written.
    pub const fn uses_weight(self) -> bool {
        matches!(
            self,
            Format::Pprof | Format::Speedscope | Format::Folded | Format::FlamegraphSvg
        )
    }
}

/// What the width of a frame stands for in formats that know one amount only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Weight {
    /// Time that passed, running or not.
    #[default]
    Wall,
    /// CPU time of the thread.
    Cpu,
    /// Time inside blocking calls.
    Blocked,
    /// Bytes allocated.
    AllocBytes,
    /// Allocation calls.
    Allocations,
    /// Samples.
    Samples,
}

impl Weight {
    /// Every weight, in the order of the documentation.
    pub const ALL: [Weight; 6] = [
        Weight::Wall,
        Weight::Cpu,
        Weight::Blocked,
        Weight::AllocBytes,
        Weight::Allocations,
        Weight::Samples,
    ];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Weight::Wall => "wall",
            Weight::Cpu => "cpu",
            Weight::Blocked => "blocked",
            Weight::AllocBytes => "alloc-bytes",
            Weight::Allocations => "allocations",
            Weight::Samples => "samples",
        }
    }

    /// Another name on the command line: there is none.
    const fn short_name(self) -> Option<&'static str> {
        None
    }

    /// What it adds up, in a line.
    pub const fn description(self) -> &'static str {
        match self {
            Weight::Wall => "time that passed, running or not",
            Weight::Cpu => "CPU time of the thread",
            Weight::Blocked => "time inside blocking calls",
            Weight::AllocBytes => "bytes allocated",
            Weight::Allocations => "allocation calls",
            Weight::Samples => "samples",
        }
    }

    /// What it names.
    pub const fn metric(self) -> Metric {
        match self {
            Weight::Wall => Metric::Wall,
            Weight::Cpu => Metric::Cpu,
            Weight::Blocked => Metric::Blocked,
            Weight::AllocBytes => Metric::AllocatedBytes,
            Weight::Allocations => Metric::Allocations,
            Weight::Samples => Metric::Samples,
        }
    }

    /// The unit, by the names that pprof and speedscope use.
    pub fn unit(self) -> &'static str {
        match self.metric().unit() {
            Unit::Nanoseconds => "nanoseconds",
            Unit::Bytes => "bytes",
            Unit::Count => "count",
        }
    }
}

/// A name that is not one of those that are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownName {
    what: &'static str,
    name: String,
    known: Vec<&'static str>,
}

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, name, known } = self;
        write!(f, "unknown {what} `{name}`; known: {}", known.join(", "))
    }
}

impl std::error::Error for UnknownName {}

macro_rules! named {
    ($type:ident, $what:literal, $short:path) => {
        impl FromStr for $type {
            type Err = UnknownName;

            fn from_str(name: &str) -> Result<Self, UnknownName> {
                Self::ALL
                    .into_iter()
                    .find(|value| value.name() == name || $short(*value) == Some(name))
                    .ok_or_else(|| UnknownName {
                        what: $what,
                        name: name.to_owned(),
                        known: Self::ALL.map($type::name).to_vec(),
                    })
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }

        impl clap::ValueEnum for $type {
            fn value_variants<'a>() -> &'a [Self] {
                &Self::ALL
            }

            fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
                let value = clap::builder::PossibleValue::new(self.name());
                Some(value.help(self.description()).aliases($short(*self)))
            }
        }
    };
}

named!(Format, "format", Format::short_name);
named!(Weight, "weight", Weight::short_name);

/// What to write of a trace.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// What a frame's width stands for, in formats that know one amount only.
    pub weight: Weight,
    /// Threads to keep, each given by its id or a part of its name; empty keeps all.
    pub threads: Vec<String>,
    /// Nanoseconds since the recording began; `None` keeps all. What reaches over the edge is cut
    /// there, its amounts in proportion.
    pub range_ns: Option<Range<u64>>,
    /// Headline for formats that have one; the command line of the recording otherwise.
    pub title: Option<String>,
    /// Where formats that go thread by thread put their temporary file; the system's folder
    /// otherwise. The file has no name and is gone when the export ends.
    pub scratch_folder: Option<PathBuf>,
}

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    /// Threads that passed the filter.
    pub threads: u64,
    /// Stretches of one thread's time with one stack.
    pub segments: u64,
    /// Samples in these segments.
    pub samples: u64,
    /// Slices, for formats that have them.
    pub slices: u64,
    /// Length of what was written.
    pub bytes: u64,
    /// Sums over all segments that were written.
    pub totals: Spent,
}

/// Writes `trace` to `out` in `format`.
///
/// Memory follows the number of threads and distinct stacks, not the length of the recording.
///
/// # Errors
///
/// No thread matches the filter, the time range is empty or outside the recording, the trace is
/// damaged, or `out` fails.
pub fn export(
    trace: &Trace,
    format: Format,
    options: &Options,
    out: &mut dyn Write,
) -> Result<Exported> {
    let selection = Selection::new(trace, options)?;
    let mut counted = Counted {
        inner: BufWriter::with_capacity(1 << 18, out),
        bytes: 0,
    };
    let write = match format {
        Format::Perfetto => perfetto::write,
        Format::Pprof => pprof::write,
        Format::Chrome => chrome::write,
        Format::Speedscope => speedscope::write,
        Format::Folded => folded::write,
        Format::FlamegraphSvg => svg::write,
        Format::Firefox => firefox::write,
    };
    let mut exported = write(trace, &selection, options, &mut counted)
        .and_then(|exported| Ok(counted.flush().map(|()| exported)?))
        .with_context(|| format!("cannot write the {format} export"))?;
    exported.bytes = counted.bytes;
    Ok(exported)
}

/// Counts what goes through.
struct Counted<W> {
    inner: W,
    bytes: u64,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, data: &[u8]) -> std::io::Result<usize> {
        let written = self.inner.write(data)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn write_all(&mut self, data: &[u8]) -> std::io::Result<()> {
        self.inner.write_all(data)?;
        self.bytes += data.len() as u64;
        Ok(())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.inner.flush()
    }
}
