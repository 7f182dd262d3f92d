//! Recovery of a recording whose program, collector or both were killed: joins the partial trace and
//! what the shared mapping still holds.

mod last_waits;
pub mod leftovers;
mod partial;

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use rustix::fs::SeekFrom;
use stackbeat_core::clock::{Converter, Snapshot};
use stackbeat_core::cycles::Cycles;
use stackbeat_core::shm::layout::{ClockSource, MAGIC, drops, entry_state};
use stackbeat_core::shm::mapping::{Mapping, MappingError};
use stackbeat_core::shm::registry;
use stackbeat_core::sync::Ordering;
use stackbeat_proto::columns;
use stackbeat_proto::stream::{FORMAT_VERSION, PacketReader};
use stackbeat_proto::v1::{self, Summary, packet, summary};
use stackbeat_symbolize::python::program_began_at;

use crate::drain::{Drainer, Keep};
#[cfg(not(any(target_os = "linux", target_os = "android")))]
use crate::host::nobody::Nobody as Dead;
#[cfg(any(target_os = "linux", target_os = "android"))]
use crate::linux::host::Linux as Dead;
use crate::session::finish;
use crate::session::storage::{self, PREFIX};
use crate::writer::Writer;
pub use last_waits::LastWait;
use partial::Partial;
use stackbeat_symbolize::{NameSources, paths};

/// Real time and monotonic time may drift apart that much within one run of a machine.
const SAME_BOOT_NS: u64 = 600 * 1_000_000_000;

/// What the names of copies begin with.
const COPY_PREFIX: &str = "stackbeat-copy.";

/// Makes names of copies unique.
static COPIES: AtomicU32 = AtomicU32::new(0);

/// What a recovery found.
#[derive(Clone, Debug, Default)]
pub struct RecoverySummary {
    /// The trace that was written.
    pub output: PathBuf,
    /// The mapping that was read, if one was found.
    pub mapping: Option<PathBuf>,
    /// The partial trace that was read, if one was found.
    pub partial: Option<PathBuf>,
    /// Records that the program's threads committed: stored + lost.
    pub records_written: u64,
    /// Of these, from the partial trace.
    pub records_from_trace: u64,
    /// Of these, from the mapping.
    pub records_from_mapping: u64,
    /// Records that were committed and are in neither.
    pub records_lost: u64,
    /// Of these, what newer ones have overwritten in a ring: it was not to be kept.
    pub records_overwritten: u64,
    /// Entries of the mapping or the file that could not be trusted.
    pub damaged: u64,
    /// Processes in the trace that was written, each once however often it executed another program.
    pub processes: u32,
    /// Threads in it.
    pub threads: u32,
    /// Some of the program's processes still run: the result ends here, the mapping was left.
    pub still_running: bool,
    /// Threads that waited when their process died.
    pub last_waits: Vec<LastWait>,
}

/// Why nothing could be recovered.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    /// A file or folder cannot be opened or read.
    #[error("{}: cannot be read", path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// The file is of another kind, of another version or too damaged.
    #[error("{}: neither a trace nor a session's shared memory: {reason}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What does not fit.
        reason: String,
    },
    /// The recording has not come to its end.
    #[error("{}: its collector (pid {pid}) still runs; end the recording first", path.display())]
    CollectorAlive {
        /// The mapping.
        path: PathBuf,
        /// Who holds it.
        pid: u32,
    },
    /// The output is there, and [`RecoverOptions::overwrite`] is not set.
    #[error("{}: exists already; choose another output or allow to replace it", path.display())]
    OutputExists {
        /// The output.
        path: PathBuf,
    },
    /// The output would replace the trace or the mapping.
    #[error("{}: is what the recovery reads; choose another output", path.display())]
    OutputIsInput {
        /// The output.
        path: PathBuf,
    },
    /// The recovered trace cannot be written.
    #[error("{}: cannot be written", path.display())]
    Write {
        /// The output.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
}

/// A mapping that a dead collector left.
#[derive(Clone, Debug)]
pub struct Orphan {
    /// File of the mapping.
    pub mapping: PathBuf,
    /// Pid that the collector had, in its own pid namespace.
    pub collector_pid: u32,
    /// The trace that the session wrote, as the mapping names it; empty: it does not.
    pub trace: PathBuf,
    /// Memory that the mapping takes.
    pub bytes: u64,
    /// Some process of the program still has it mapped.
    pub still_running: bool,
}

/// Options of a recovery.
#[derive(Clone, Debug, Default)]
pub struct RecoverOptions {
    /// Replace an output that exists.
    pub overwrite: bool,
    /// Leave the mapping in place afterwards.
    pub keep_mapping: bool,
    /// Write names of functions into the trace.
    pub symbolize: bool,
    /// Where else than on this system names come from.
    pub names: NameSources,
}

/// Mappings in `folder` (/dev/shm) whose collector does not live any more.
///
/// # Errors
///
/// When the folder cannot be listed.
pub fn orphans(folder: &Path) -> Result<Vec<Orphan>, RecoverError> {
    let read = |source| RecoverError::Read {
        path: folder.to_path_buf(),
        source,
    };
    let mut found = Vec::new();
    for item in fs::read_dir(folder).map_err(read)?.flatten() {
        let is_ours = item.file_name().as_bytes().starts_with(PREFIX.as_bytes());
        if let (true, Some(mapping)) = (is_ours, open_read_only(&item.path())) {
            let collector_pid = mapping.header().collector_pid.load(Ordering::Relaxed);
            if !is_user_of(collector_pid, &item.path()) {
                found.push(Orphan {
                    trace: trace_of(&mapping),
                    collector_pid,
                    bytes: item.metadata().map_or(0, |m| m.blocks() * 512),
                    still_running: leftovers::is_mapped_by_anybody(&item.path()),
                    mapping: item.path(),
                });
            }
        }
    }
    found.sort_by(|a, b| a.mapping.cmp(&b.mapping));
    Ok(found)
}

/// Writes `output` from `source`, which is a session's mapping, the partial trace itself, or a folder
/// with exactly one mapping whose collector is dead.
///
/// # Errors
///
/// When there is nothing to read, the collector still lives, or the output cannot be written.
pub fn recover(
    source: &Path,
    output: &Path,
    options: &RecoverOptions,
) -> Result<RecoverySummary, RecoverError> {
    let found = find(source)?;
    if let Some(path) = &found.mapping {
        let pid =
            open_read_only(path).map_or(0, |m| m.header().collector_pid.load(Ordering::Relaxed));
        if is_user_of(pid, path) {
            return Err(RecoverError::CollectorAlive {
                path: path.clone(),
                pid,
            });
        }
    }
    let same = |path: &Option<PathBuf>| {
        let canonical = |p: &Path| paths::real(p);
        path.as_deref()
            .is_some_and(|p| canonical(p).is_some() && canonical(p) == canonical(output))
    };
    if same(&found.partial) || same(&found.mapping) {
        return Err(RecoverError::OutputIsInput {
            path: output.to_path_buf(),
        });
    }
    if output.exists() && !options.overwrite {
        return Err(RecoverError::OutputExists {
            path: output.to_path_buf(),
        });
    }
    let write = |source| RecoverError::Write {
        path: output.to_path_buf(),
        source,
    };
    let writer = Writer::create(output, options.overwrite).map_err(write)?;
    let joined = join(&found, writer, options).map_err(write)?;
    if let Some(path) = &found.mapping
        && !options.keep_mapping
        && !joined.still_running
    {
        // It only holds what the output holds now.
        let _ = fs::remove_file(path);
    }
    Ok(RecoverySummary {
        output: output.to_path_buf(),
        mapping: found.mapping,
        partial: found.partial,
        ..joined
    })
}

/// What there is to recover from.
#[derive(Debug, Default)]
struct Found {
    mapping: Option<PathBuf>,
    partial: Option<PathBuf>,
}

fn find(source: &Path) -> Result<Found, RecoverError> {
    let read = |error| RecoverError::Read {
        path: source.to_path_buf(),
        source: error,
    };
    let foreign = |reason: &str| RecoverError::Foreign {
        path: source.to_path_buf(),
        reason: reason.to_owned(),
    };
    if fs::metadata(source).map_err(read)?.is_dir() {
        return match orphans(source)?.as_slice() {
            [one] => find(&one.mapping),
            [] => Err(foreign("no session there was left by a dead collector")),
            many => Err(foreign(&format!(
                "{} sessions there were left by dead collectors; name one: {}",
                many.len(),
                many.iter()
                    .map(|o| o.mapping.display().to_string())
                    .collect::<Vec<_>>()
                    .join(" ")
            ))),
        };
    }
    let mut magic = [0u8; 8];
    let is_mapping = File::open(source)
        .and_then(|mut file| file.read_exact(&mut magic))
        .is_ok()
        && u64::from_le_bytes(magic) == MAGIC;
    if is_mapping {
        let mapping = checked_open(source).map_err(|e| foreign(&e.to_string()))?;
        let trace = trace_of(&mapping);
        let same = header_of(&trace).is_some_and(|h| h.session_id == session_id(&mapping));
        return Ok(Found {
            mapping: Some(source.to_path_buf()),
            partial: same.then_some(trace),
        });
    }
    let header = header_of(source).ok_or_else(|| foreign("it begins with no session header"))?;
    Ok(Found {
        mapping: mapping_of(&header.session_id),
        partial: Some(source.to_path_buf()),
    })
}

/// The mapping of a session, where mappings are made.
fn mapping_of(id: &[u8]) -> Option<PathBuf> {
    let folders = storage::default_folders();
    let items = folders.iter().flat_map(|folder| paths::files_of(folder));
    let is_ours = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default();
        name.as_bytes().starts_with(PREFIX.as_bytes())
    };
    items
        .filter(is_ours)
        .find(|path| open_read_only(path).is_some_and(|m| session_id(&m) == id))
}

fn checked_open(path: &Path) -> Result<Mapping, MappingError> {
    let path = CString::new(path.as_os_str().as_bytes()).map_err(|_| MappingError::NotOurs)?;
    Mapping::open_read_only(&path)
}

pub(crate) fn open_read_only(path: &Path) -> Option<Mapping> {
    checked_open(path).ok()
}

fn session_id(mapping: &Mapping) -> Vec<u8> {
    let words = mapping.header().session_id.iter();
    words
        .flat_map(|w| w.load(Ordering::Relaxed).to_le_bytes())
        .collect()
}

fn trace_of(mapping: &Mapping) -> PathBuf {
    PathBuf::from(std::ffi::OsString::from_vec(mapping.trace_path()))
}

fn header_of(trace: &Path) -> Option<v1::SessionHeader> {
    let file = File::open(trace)
        .ok()
        .filter(|f| f.metadata().is_ok_and(|m| m.is_file()))?;
    match PacketReader::new(file).next()?.ok()?.1.body? {
        packet::Body::Header(header) => Some(header),
        _ => None,
    }
}

/// Whether this process has this mapping mapped: a pid alone may be somebody else's by now.
fn is_user_of(pid: u32, mapping: &Path) -> bool {
    let maps = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    let Some(name) = mapping.file_name() else {
        return false;
    };
    pid != 0
        && maps
            .split(|b| *b == b'\n')
            .any(|line| line.ends_with(name.as_bytes()))
}

/// Joins both into the output.
fn join(
    found: &Found,
    mut writer: Writer,
    options: &RecoverOptions,
) -> io::Result<RecoverySummary> {
    let partial = match &found.partial {
        Some(path) => Some(Partial::read(path)?),
        None => None,
    };
    let copy = match &found.mapping {
        Some(path) => Some(PrivateCopy::of(path)?),
        None => None,
    };
    let mut result = RecoverySummary::default();
    if let (Some(path), Some(copy)) = (&found.mapping, &copy) {
        result.still_running = registry::processes(&copy.mapping).any(|(_, entry)| {
            entry.state.load(Ordering::Relaxed) == entry_state::LIVE
                && is_user_of(entry.pid().0, path)
        });
    }
    writer.write_header(header(partial.as_ref(), copy.as_ref()))?;
    let mut partial = partial.unwrap_or_default();
    if let Some(path) = &found.partial {
        let mut packets = Vec::new();
        // In pieces: a partial trace may be large.
        partial.copy_packets(
            path,
            &mut Appender {
                writer: &mut writer,
                pending: &mut packets,
            },
        )?;
        writer.append(&packets, partial.packets.saturating_sub(1))?;
    }
    let (source, converter) = clocks(&partial, copy.as_ref());
    let config = partial.header.as_ref().and_then(|h| h.config.as_ref());
    if let Some(copy) = copy.as_ref().filter(|_| !result.still_running) {
        result.last_waits = last_waits::of(&copy.mapping, &partial, &converter);
    }
    let unit_ns = config.map_or(1, |c| {
        columns::time_unit_ns(c.interval_ns.min(c.main_interval_ns))
    });
    let seed = std::mem::take(&mut partial.seed);
    let mut drainer = Drainer::after(
        Arc::new(Dead::of_the_dead()),
        source,
        converter,
        seed,
        unit_ns,
    );
    drainer.nodes.seed(&partial.nodes);
    drainer.methods.seed(std::mem::take(&mut partial.methods));
    drainer.methods.unqualified = std::mem::take(&mut partial.unqualified);
    let header = partial.header.as_ref();
    drainer.methods.unqualified.not_after = header.and_then(program_began_at);
    let named = std::mem::take(&mut partial.named);
    let described = std::mem::take(&mut partial.described);
    drainer.generated.seed(described, named);
    let sums = match &copy {
        Some(copy) => {
            // Twice: an image that exec replaced is over only when all others were read.
            drainer.pass(&copy.mapping, &mut writer, Keep::Nothing)?;
            drainer.pass(&copy.mapping, &mut writer, Keep::Nothing)?;
            drainer.conclude_living(&copy.mapping);
            drainer.lifecycle.conclude_unmet();
            drainer.flush_queue(&copy.mapping, &mut writer)?;
            if options.symbolize {
                drainer.name_by_maps_left(None);
                drainer.flush_queue(&copy.mapping, &mut writer)?;
            }
            drainer.lifecycle.sums(&copy.mapping)
        }
        None => {
            drainer.lifecycle.conclude_unmet();
            if options.symbolize {
                drainer.name_by_maps_left(None);
            }
            let (bytes, packets) = drainer.lifecycle.said();
            writer.append(&bytes, packets)?;
            drainer.lifecycle.heard();
            drainer.lifecycle.past().clone()
        }
    };
    let mut without_names = Vec::new();
    if options.symbolize {
        let mut leave = || false;
        (_, without_names) = finish::add_names(
            &mut drainer,
            &mut writer,
            options.names.clone(),
            false,
            &mut |_| {},
            &mut leave,
        )?;
    }
    result.records_from_trace = sums.seeded;
    result.records_from_mapping = drainer.totals.stored;
    let stored = sums.seeded + drainer.totals.stored;
    result.records_written = sums.written.max(stored);
    result.records_lost = result.records_written - stored;
    result.records_overwritten = sums.drops[drops::OVERWRITTEN].min(result.records_lost);
    result.damaged = partial.damaged + drainer.totals.damaged;
    result.processes = drainer.lifecycle.processes_seen;
    result.threads = drainer.lifecycle.threads_seen;
    drainer.totals.samples += partial.samples;
    // The recording ended with the last activity that was found.
    let end_ns = drainer.lifecycle.last_ns;
    let clocks = Snapshot::take(source);
    let summary = Summary {
        outcome: summary::Outcome::Recovered.into(),
        records_written: result.records_written,
        records_stored: stored,
        records_lost: result.records_lost,
        padding: Vec::new(),
    };
    finish::add_footer(
        &drainer,
        &mut writer,
        end_ns,
        &clocks,
        Vec::new(),
        summary.clone(),
        without_names,
    )?;
    writer.update_summary(&summary)?;
    Ok(result)
}

/// The header of the partial trace, or what the mapping says of the session.
fn header(partial: Option<&Partial>, copy: Option<&PrivateCopy>) -> v1::SessionHeader {
    if let Some(header) = partial.and_then(|p| p.header.clone()) {
        return header;
    }
    let mut header = v1::SessionHeader {
        format_version: FORMAT_VERSION,
        stackbeat_version: env!("CARGO_PKG_VERSION").to_owned(),
        ..Default::default()
    };
    if let Some(PrivateCopy { mapping, .. }) = copy {
        let control = mapping.control();
        let capacity = mapping.layout().capacity;
        header.session_id = session_id(mapping);
        header.config = Some(v1::Config {
            interval_ns: control.interval_ns[0].load(Ordering::Relaxed).into(),
            main_interval_ns: control.interval_ns[1].load(Ordering::Relaxed).into(),
            depth_limit: control.depth_limit.load(Ordering::Relaxed),
            await_chains: control.await_chains.load(Ordering::Relaxed) != 0,
            buffer_bytes: u64::from(mapping.buffers()) * u64::from(capacity.buffer_bytes),
            mode: control.mode.load(Ordering::Relaxed) as i32,
            follow_children: control.follow_children.load(Ordering::Relaxed) != 0,
            ..Default::default()
        });
    }
    header
}

/// How to date the mapping's records: by the clocks of the partial trace, and by the clocks of now if
/// this is still the same run of the same machine.
fn clocks(partial: &Partial, copy: Option<&PrivateCopy>) -> (ClockSource, Converter) {
    let mut converter = Converter::new();
    partial.add_clocks(&mut converter);
    let Some(PrivateCopy { mapping, .. }) = copy else {
        return (ClockSource::Monotonic, converter);
    };
    let control = mapping.control();
    let source = match control.clock_source.load(Ordering::Relaxed) {
        0 => ClockSource::Cycles,
        _ => ClockSource::Monotonic,
    };
    let now = Snapshot::take(source);
    match partial.clocks.last() {
        Some(last) => {
            let offset = |real: u64, mono: u64| real.wrapping_sub(mono) as i64;
            let then = offset(last.realtime_ns, last.monotonic_ns);
            let drift = offset(now.realtime_ns, now.monotonic_ns).abs_diff(then);
            if drift < SAME_BOOT_NS && now.cycles > Cycles(last.cycles) {
                converter.add(now.cycles, now.monotonic_ns);
            }
        }
        None => {
            // The intervals in both units tell the rate.
            let Cycles(cycles) = control.interval_cycles[0].load(Ordering::Relaxed);
            let ns = u64::from(control.interval_ns[0].load(Ordering::Relaxed));
            let back_ns = now.monotonic_ns / 2;
            if let (1.., 1..) = (cycles, ns) {
                let back = u128::from(back_ns) * u128::from(cycles) / u128::from(ns);
                let back = Cycles(u64::try_from(back).unwrap_or(u64::MAX)).min(now.cycles);
                converter.add(now.cycles - back, now.monotonic_ns - back_ns);
            }
            converter.add(now.cycles, now.monotonic_ns);
        }
    }
    (source, converter)
}

/// Copies through a writer in pieces of whole megabytes; what is left over is the caller's.
struct Appender<'a> {
    writer: &'a mut Writer,
    pending: &'a mut Vec<u8>,
}

impl io::Write for Appender<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.pending.extend_from_slice(bytes);
        if self.pending.len() > 1 << 20 {
            self.writer.append(self.pending, 0)?;
            self.pending.clear();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A copy of a mapping that draining may mark up.
struct PrivateCopy {
    mapping: Mapping,
}

impl PrivateCopy {
    fn of(path: &Path) -> io::Result<PrivateCopy> {
        let folder = path.parent().unwrap_or(Path::new("."));
        let copy_in = |folder: &Path| {
            let id = COPIES.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let copy = folder.join(format!("{COPY_PREFIX}{}.{id}", std::process::id()));
            let mapping = copy_sparse(path, &copy).and_then(|()| {
                let c_path = CString::new(copy.as_os_str().as_bytes())?;
                Mapping::open(&c_path).map_err(|e| io::Error::other(e.to_string()))
            });
            // The mapping lives on without a name.
            let _ = fs::remove_file(&copy);
            mapping
        };
        let mapping = copy_in(folder).or_else(|_| copy_in(&std::env::temp_dir()))?;
        Ok(PrivateCopy { mapping })
    }
}

/// Copies the parts of a file that have storage.
fn copy_sparse(from: &Path, to: &Path) -> io::Result<()> {
    let source = File::open(from)?;
    let target = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(to)?;
    let length = source.metadata()?.len();
    target.set_len(length)?;
    let seek = |to| rustix::fs::seek(&source, to).ok();
    let mut buffer = vec![0u8; 1 << 20];
    let mut end = 0;
    // Without data beyond `end` (ENXIO) everything is copied.
    while let Some(mut at) = seek(SeekFrom::Data(end)) {
        end = seek(SeekFrom::Hole(at)).unwrap_or(length);
        while at < end {
            let want = buffer.len().min((end - at) as usize);
            let got = source.read_at(&mut buffer[..want], at)?;
            if got == 0 {
                return Ok(());
            }
            target.write_all_at(&buffer[..got], at)?;
            at += got as u64;
        }
    }
    Ok(())
}
