//! The session's shared memory: where it lies, how big it is, and its removal.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::process::{Resource, getrlimit};
use stackbeat_core::cycles::Cycles;
use stackbeat_core::platform;
use stackbeat_core::shm::layout::{Capacity, ClockSource, Layout, Mode};
use stackbeat_core::shm::mapping::{Mapping, MappingError};
use stackbeat_core::sync::Ordering;

use super::error::{RecordError, Warning};
use super::options::Options;

/// Where shared memory is by default.
pub(crate) const SHARED_MEMORY: &str = "/dev/shm";
/// What the names of our files there begin with.
pub(crate) const PREFIX: &str = "stackbeat.";
/// Sub-buffers get bigger in big pools, so that there are not too many to look at.
const BUFFER_BYTES: u32 = 4096;
const MAX_BUFFERS: u64 = 16_384;
/// Thread entries in reserve, so that threads started until the next tick find one.
const SPARE_THREADS: u32 = 1024;
/// Threads with counts of their own, where calls are counted: 4 KiB each.
const CALL_ROWS: u32 = 4096;

/// A mapping with its file, which is removed when this is dropped unless it was kept.
#[derive(Debug)]
pub(crate) struct Storage {
    /// Empty: there is no file.
    pub path: PathBuf,
    keep: bool,
}

/// What /proc/PID/maps calls shared memory without a file (shmem_zero_setup, mm/shmem.c).
const IN_MEMORY: &[u8] = b"/dev/zero (deleted)";

impl Storage {
    /// How lines of /proc/PID/maps end that are of the mapping.
    pub(crate) fn mapping_name(&self) -> Vec<u8> {
        let name = self.path.file_name();
        name.map_or(IN_MEMORY, |name| name.as_encoded_bytes())
            .to_vec()
    }

    /// There is no file, so there is nothing to find when the process is gone.
    pub(crate) fn is_in_memory(&self) -> bool {
        self.path.as_os_str().is_empty()
    }

    /// Leaves the file for `recover`.
    pub(crate) fn keep(&mut self) {
        self.keep = true;
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        if !self.keep && !self.is_in_memory() {
            // Somebody else may have removed it already.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The capacities for these options.
pub(crate) fn capacity(options: &Options) -> Capacity {
    let bytes = options.buffer_bytes;
    let mut buffer_bytes = BUFFER_BYTES;
    while bytes / u64::from(buffer_bytes) > MAX_BUFFERS && buffer_bytes < 1 << 20 {
        buffer_bytes *= 2;
    }
    let first = buffers_asked_for(options, buffer_bytes);
    Capacity {
        // What is more than asked for serves programs with thousands of threads, and has no storage yet. Who
        // asks for less than the default means it.
        buffers: match options.mode {
            Mode::Endless if first >= Capacity::default().buffers => first.max(MAX_BUFFERS as u32),
            _ => first,
        },
        buffer_bytes,
        threads: 65_536,
        call_rows: if options.count_calls { CALL_ROWS } else { 0 },
        ..Capacity::default()
    }
}

fn buffers_asked_for(options: &Options, buffer_bytes: u32) -> u32 {
    (options.buffer_bytes / u64::from(buffer_bytes)).max(8) as u32
}

/// Address space of the recorder besides the mapping, bytes: the stacks of its threads, records on their way,
/// and names of a program with small debug information. An allocation that fails would end it and lose the
/// program's exit status.
const OWN_SPACE: u64 = 128 << 20;

/// Makes the mapping, in /dev/shm or in what can take its place.
pub(crate) fn create(
    options: &Options,
    session_id: [u8; 16],
) -> Result<(Mapping, Storage, Option<Warning>), RecordError> {
    let capacity = capacity(options);
    let bytes = Layout::new(capacity).map_or(0, |l| l.total as u64);
    let needed = bytes + OWN_SPACE;
    if let Some(left) = platform::address_space_left().filter(|left| *left < needed) {
        return Err(RecordError::AddressSpace { left, needed });
    }
    let first = buffers_asked_for(options, capacity.buffer_bytes);
    if options.in_memory {
        let mapping =
            Mapping::create_in_memory(capacity, first).map_err(|error| of_memory(bytes, error))?;
        fill_in(&mapping, options, session_id);
        let storage = Storage {
            path: PathBuf::new(),
            keep: false,
        };
        return Ok((mapping, storage, None));
    }
    let folders: Vec<PathBuf> = match &options.mapping_folder {
        Some(folder) => vec![folder.clone()],
        None => default_folders(),
    };
    let mut failure = None;
    for (i, folder) in folders.iter().enumerate() {
        let id = session_id[..4]
            .iter()
            .fold(0u32, |n, b| n << 8 | u32::from(*b));
        let name = format!("{PREFIX}{}.{id:08x}", std::process::id());
        let path = folder.join(name);
        match create_at(&path, capacity, first) {
            Ok(mapping) => {
                fill_in(&mapping, options, session_id);
                let storage = Storage { path, keep: false };
                let warning = (i > 0).then(|| Warning::MappingElsewhere(folder.clone()));
                return Ok((mapping, storage, warning));
            }
            Err(error) => {
                failure.get_or_insert(error);
            }
        }
    }
    let tried: Vec<_> = folders.iter().map(|f| f.display().to_string()).collect();
    Err(RecordError::SharedMemory {
        tried: tried.join(", "),
        bytes,
        source: failure.unwrap_or_else(|| io::ErrorKind::NotFound.into()),
    })
}

/// /dev/shm, then folders of our own that are tmpfs on most systems, then any writable one: slower
/// under load (stalls when the disk is written), but it works.
pub(crate) fn default_folders() -> Vec<PathBuf> {
    let mut folders = vec![PathBuf::from(SHARED_MEMORY)];
    folders.extend(std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from));
    folders.push(std::env::temp_dir());
    folders
}

/// The limit on the size of files that this process writes, bytes.
fn most_file_bytes() -> u64 {
    getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX)
}

fn create_at(path: &Path, capacity: Capacity, buffers: u32) -> io::Result<Mapping> {
    let c_path = CString::new(path.as_os_str().as_bytes())?;
    if path.as_os_str().as_bytes().contains(&b':') {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // Beyond it the kernel would end us with SIGXFSZ.
    let (most, least) = (
        most_file_bytes(),
        Layout::new(capacity).map_or(0, |l| l.total as u64),
    );
    if most < least {
        return Err(io::Error::other(format!(
            "files may have {most} bytes only; raise the limit (ulimit -f)"
        )));
    }
    Mapping::create_sparse(&c_path, capacity, buffers).map_err(io_error)
}

fn io_error(error: MappingError) -> io::Error {
    match error {
        MappingError::System(_, errno) => io::Error::from_raw_os_error(errno.0),
        other => io::Error::other(other.to_string()),
    }
}

/// The process' own share of a mapping without a file, for the agent.
pub(crate) fn join_here(mapping: &Mapping) -> Result<Mapping, RecordError> {
    let bytes = mapping.layout().total as u64;
    mapping.join_here().map_err(|error| of_memory(bytes, error))
}

/// There is no mapping without a file.
fn of_memory(bytes: u64, error: MappingError) -> RecordError {
    RecordError::SharedMemory {
        tried: "the program's memory".to_owned(),
        bytes,
        source: io_error(error),
    }
}

fn fill_in(mapping: &Mapping, options: &Options, session_id: [u8; 16]) {
    for (word, bytes) in mapping
        .header()
        .session_id
        .iter()
        .zip(session_id.chunks_exact(8))
    {
        let mut id = [0; 8];
        id.copy_from_slice(bytes);
        word.store(u64::from_le_bytes(id), Ordering::Relaxed);
    }
    let path = std::path::absolute(&options.output).unwrap_or_else(|_| options.output.clone());
    // Too long a path only costs `recover` the partial trace, which can be named to it.
    mapping.set_trace_path(path.as_os_str().as_bytes());
    let control = mapping.control();
    control.mode.store(options.mode as u32, Ordering::Relaxed);
    control
        .depth_limit
        .store(options.depth_limit, Ordering::Relaxed);
    control
        .await_chains
        .store(u32::from(options.await_chains), Ordering::Relaxed);
    control.probe_mask.store(options.probes, Ordering::Relaxed);
    control.forced_per_second.store(2000, Ordering::Relaxed);
    control
        .follow_children
        .store(u32::from(options.follow_children), Ordering::Relaxed);
    control
        .watch_crashes
        .store(u32::from(options.dumps.crash), Ordering::Relaxed);
    let filters = stackbeat_core::platform::sandbox::baseline();
    control.filters.store(filters, Ordering::Relaxed);
    control.signal.store(
        if options.interrupt_running {
            libc::SIGURG as u32
        } else {
            0
        },
        Ordering::Relaxed,
    );
    let clamp = |ns: u64| u32::try_from(ns).unwrap_or(u32::MAX);
    // By `ThreadClass`.
    let intervals = [options.interval_ns, options.main_interval_ns];
    for (word, ns) in control.interval_ns.iter().zip(intervals) {
        word.store(clamp(ns), Ordering::Relaxed);
    }
}

/// Says what dates records, and how many cycles the intervals and a long wait have.
pub(crate) fn set_clock(
    mapping: &Mapping,
    source: ClockSource,
    long_wait_ns: Option<u64>,
    cycles_in: impl Fn(u64) -> Cycles,
) {
    let control = mapping.control();
    control.clock_source.store(source as u32, Ordering::Relaxed);
    for (cycles, ns) in control.interval_cycles.iter().zip(&control.interval_ns) {
        let ns = ns.load(Ordering::Relaxed);
        cycles.store(cycles_in(ns.into()), Ordering::Relaxed);
    }
    control
        .long_wait_cycles
        .store(long_wait_ns.map_or(Cycles(0), cycles_in), Ordering::Relaxed);
}

/// Gives more thread entries and sub-buffers their storage before agents need them.
pub(crate) fn reserve_threads(mapping: &Mapping) {
    let control = mapping.control();
    let capacity = mapping.layout().capacity.threads;
    let used = control.threads_used.load(Ordering::Relaxed).min(capacity);
    let limit = control.threads_limit.load(Ordering::Relaxed);
    if used.saturating_add(SPARE_THREADS) > limit && limit < capacity {
        // Without room threads stay unregistered, and agents count them.
        let _ = mapping.extend_threads(limit.saturating_mul(2));
    }
    // A thread holds one sub-buffer at a time. What is there now has room for those of usual programs.
    let buffers = used.saturating_add(SPARE_THREADS);
    if buffers > mapping.buffers() && control.mode.load(Ordering::Relaxed) == Mode::Endless as u32 {
        // Without room records are lost, and agents count them.
        let _ = mapping.extend_buffers(buffers.next_multiple_of(SPARE_THREADS));
    }
}
