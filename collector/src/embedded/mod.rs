//! A session inside the program: ticker, sampler and drain are threads of the recorded process, for embedded
//! use and where there can be no process beside it. Nothing here knows how the library with it was loaded.
//!
//! - here: the session from its begin to its end
//! - `system`: its surroundings, and what differs between systems
//! - `threads`: threads that are none of the program's
//! - `wanted`: what to record and how, as it is handed over
//! - [`leftovers`]: what a killed one has left
//! - [`heap`]: the memory of the library with it
//!
//! The parts are those of a session outside; [`Place::Inside`](crate::session) is where they differ. What is
//! left out: the off-CPU sampler (waits are known when they end, or by one look at the session's end), and
//! the search for processes without an agent.
//!
//! A session thread never waits for a thread of the program. It has descriptors of its own, so that the
//! program neither sees nor closes them, and it allocates from memory of its own (the library's global
//! allocator).

mod begin_error;
pub mod heap;
pub mod leftovers;
#[cfg_attr(any(target_os = "linux", target_os = "android"), path = "on_linux.rs")]
#[cfg_attr(
    not(any(target_os = "linux", target_os = "android")),
    path = "on_apple.rs"
)]
mod system;
mod threads;
mod wanted;

use std::io;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use stackbeat_core::ids::Pid;
use stackbeat_core::platform;
use stackbeat_core::shm::mapping::Mapping;
use stackbeat_symbolize::NameSources;

use crate::sampler::{Sampler, ticker};
use crate::session::clocks::{now_ns, own_cpu};
use crate::session::control::{self, Server, Session};
use crate::session::error::RecordError;
use crate::session::finish::{Ended, Finisher};
use crate::session::meter;
use crate::session::open::{Opened, Opening};
use crate::session::options::Outcome;
use crate::session::protocol::{Reply, Request};
use crate::session::shared::Place;
use crate::session::{storage, trace_header};
use threads::Waiting;

pub use begin_error::{BeginError, error_text};
pub use wanted::Wanted;

/// How long the program's end waits for the trace, at most.
const LONGEST_END: Duration = Duration::from_secs(60);

/// States of the process' session.
mod state {
    pub(super) const NONE: u32 = 0;
    pub(super) const BEGINNING: u32 = 1;
    pub(super) const RECORDING: u32 = 2;
    pub(super) const ENDED: u32 = 3;
    pub(super) const REFUSED: u32 = 4;
}

/// A [`state`]; a futex word.
static STATE: AtomicU32 = AtomicU32::new(state::NONE);
/// The process that began the session: forked children inherit this memory, but none of its threads.
static OWNER: AtomicU32 = AtomicU32::new(0);
static SESSION: Mutex<Option<Arc<Session>>> = Mutex::new(None);
/// What came of the last attempt, for who waits for it.
static START_RESULT: Mutex<Option<Result<Begun, BeginError>>> = Mutex::new(None);

/// A session that records.
struct Begun {
    /// The mapping's file.
    path: PathBuf,
    /// Where it has none: the agent's share of it.
    mapping: Option<Mapping>,
}

/// What the threads of the session call first.
pub type OwnThread = extern "C" fn();

/// Begins the session of this process, and returns when it records. Gives the path of its mapping.
/// `previous`: the mapping of the session that the image before this one began.
///
/// # Errors
/// Why there is none.
pub fn begin(
    wanted: Wanted,
    previous: Option<PathBuf>,
    own_thread: OwnThread,
) -> Result<PathBuf, BeginError> {
    begin_anywhere(wanted, previous, false, own_thread).map(|begun| begun.path)
}

/// The same with a mapping that has no file: no write into it waits for a disk, and nothing of it outlives
/// the process. Gives the agent's share of it. Child processes are left out.
///
/// # Errors
/// Why there is none.
pub fn begin_in_memory(wanted: Wanted, own_thread: OwnThread) -> Result<Mapping, BeginError> {
    let wanted = Wanted {
        no_children: true,
        ..wanted
    };
    let begun = begin_anywhere(wanted, None, true, own_thread)?;
    begun.mapping.ok_or(BeginError::Panicked)
}

fn begin_anywhere(
    wanted: Wanted,
    previous: Option<PathBuf>,
    in_memory: bool,
    own_thread: OwnThread,
) -> Result<Begun, BeginError> {
    let may_begin = |from| {
        let to = state::BEGINNING;
        let changed = STATE.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
        changed.is_ok()
    };
    if ![state::NONE, state::ENDED, state::REFUSED]
        .into_iter()
        .any(may_begin)
    {
        return Err(BeginError::Present);
    }
    OWNER.store(std::process::id(), Ordering::Release);
    let helpers = ["ticker", "saver", "control", "meter"]
        .map(|name| Waiting::start(&format!("stackbeat {name}"), own_thread));
    let run = move || {
        let ran = AssertUnwindSafe(|| {
            let [ticker, saver, control, meter] = helpers;
            let ticker = ticker.map_err(RecordError::Thread)?;
            let besides = Besides {
                saver: saver.ok(),
                control: control.ok(),
                meter: meter.ok(),
            };
            run(&wanted, previous.as_deref(), in_memory, ticker, besides)
        });
        let ran = std::panic::catch_unwind(ran);
        let refused = match ran {
            Ok(Ok(_)) => None,
            Ok(Err(error)) => Some(BeginError::Record(error)),
            Err(_) => Some(BeginError::Panicked),
        };
        *SESSION.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let end = match refused {
            Some(error) if STATE.load(Ordering::Acquire) == state::BEGINNING => {
                *START_RESULT.lock().unwrap_or_else(PoisonError::into_inner) = Some(Err(error));
                state::REFUSED
            }
            _ => state::ENDED,
        };
        advance(end);
    };
    if let Err(error) = threads::start("stackbeat drain", own_thread, run) {
        STATE.store(state::NONE, Ordering::Release);
        return Err(BeginError::Thread(error));
    }
    while STATE.load(Ordering::Acquire) == state::BEGINNING {
        platform::wait(&STATE, state::BEGINNING, None);
    }
    let result = START_RESULT
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    result.unwrap_or(Err(BeginError::Panicked))
}

/// Ends the session of this process. Returns when its trace is complete, or cannot be completed in time; then
/// `recover` can.
pub fn end() {
    if OWNER.load(Ordering::Acquire) != std::process::id() {
        return;
    }
    {
        let session = SESSION.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(session) = session.as_ref() else {
            return;
        };
        session.shared.stop();
    }
    let until_ns = now_ns() + LONGEST_END.as_nanos() as u64;
    while STATE.load(Ordering::Acquire) == state::RECORDING {
        let left_ns = until_ns.saturating_sub(now_ns());
        if left_ns == 0 {
            return;
        }
        platform::wait(&STATE, state::RECORDING, Some(left_ns));
    }
}

/// Whether this process has a session that records.
pub fn is_recording() -> bool {
    OWNER.load(Ordering::Acquire) == std::process::id()
        && STATE.load(Ordering::Acquire) == state::RECORDING
}

/// Asks the session of this process for something, as a client of its socket does. `None`: there is none.
/// Only for a library in which the session's threads never wait for the program: the calling thread may hold
/// a lock of the session's meanwhile.
pub fn ask(request: &Request) -> Option<Reply> {
    if !is_recording() {
        return None;
    }
    let session = SESSION
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone();
    Some(session?.handle(request))
}

/// Starts a thread that is the session's own: it is not recorded.
///
/// # Errors
/// The system has none.
pub fn start_thread(
    name: &str,
    own_thread: OwnThread,
    run: impl FnOnce() + Send + 'static,
) -> io::Result<()> {
    threads::start(name, own_thread, run).map(drop)
}

fn advance(to: u32) {
    STATE.store(to, Ordering::Release);
    platform::wake(&STATE, u32::MAX >> 1);
}

/// Threads that a session can do without.
struct Besides {
    saver: Option<Waiting>,
    control: Option<Waiting>,
    meter: Option<Waiting>,
}

/// What the session's first thread does.
fn run(
    wanted: &Wanted,
    previous: Option<&Path>,
    in_memory: bool,
    ticker: Waiting,
    besides: Besides,
) -> Result<Outcome, RecordError> {
    let mut options = wanted.options(system::command_line())?;
    options.in_memory = in_memory;
    if let Some(previous) = previous {
        leftovers::number_output(&mut options.output, previous);
    }
    let chosen = system::choose_clock(&mut options)?;
    let cpu_before = own_cpu();
    let own_pid = Pid(std::process::id());
    let mut warnings = Vec::new();
    let opening = Opening {
        options: &options,
        chosen: &chosen,
        place: Place::Inside,
        program_began_at: system::began_at(own_pid),
        working_directory: None,
    };
    let Opened {
        shared,
        storage,
        drain_thread,
        source,
        start,
        session_id,
        mapping_name,
        host,
    } = opening.open(
        |_| None,
        |mapping_name| system::host(mapping_name, own_pid),
        &mut warnings,
        &mut |_| {},
    )?;
    let begun = Begun {
        path: storage.path.clone(),
        mapping: match in_memory {
            true => Some(storage::join_here(&shared.mapping)?),
            false => None,
        },
    };
    let transfers_before = system::transfers();
    let of_meter = Arc::clone(&host);
    let sampler = Sampler::new(true, host).map_err(RecordError::Thread)?;
    let of_ticker = Arc::clone(&shared);
    let budget = options.budget();
    let has_counters = options.counters_ns.is_some();
    let ticker =
        ticker.run(move || ticker::run(&of_ticker, sampler, budget, has_counters, cpu_before));
    let session = Arc::new(Session {
        shared: Arc::clone(&shared),
        mapping_name: mapping_name.to_vec(),
        name: control::session_name(session_id),
        command: trace_header::command_line(&options),
        trace: options.output.clone(),
        program_pid: AtomicU32::new(own_pid.0),
        began: Instant::now(),
        names: NameSources {
            debug: None,
            ..options.names.clone()
        },
        source,
        start,
        locks: system::locks,
    });
    session.begin(!wanted.start_disabled);
    *SESSION.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&session));
    *START_RESULT.lock().unwrap_or_else(PoisonError::into_inner) = Some(Ok(begun));
    advance(state::RECORDING);

    let symbolize = wanted.symbolize;
    let folder = wanted.mapping_folder.clone();
    let save = move || _ = leftovers::complete(folder.as_deref(), symbolize);
    let saver = besides.saver.filter(|_| !wanted.keeps_leftovers);
    let saver = saver.and_then(|saver| saver.run(save));
    let of_control = Arc::clone(&session);
    let is_served = move || {
        // Without it the session goes on; it has no place for warnings once it is open.
        let _ = Server::serve_here(of_control);
    };
    let control = (besides.control).and_then(|control| control.run(is_served));
    // Where the system counts nothing of a process, nobody reads.
    let period = options.counters_ns.map(Duration::from_nanos);
    let period = period.filter(|_| of_meter.resources(own_pid).is_some());
    let shared_with_meter = Arc::clone(&shared);
    let meter = besides.meter.zip(period).and_then(|(meter, period)| {
        meter.run(move || meter::run(shared_with_meter, of_meter, period))
    });
    let drain_thread = drain_thread.run();
    for thread in [ticker, saver].into_iter().flatten() {
        thread.join();
    }
    shared.meter.end();
    if let Some(meter) = meter {
        meter.join();
    }
    system::look_at_waits(&shared, &mapping_name);
    let cpu = Duration::from_nanos(platform::clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID));
    let ended = Ended {
        pid: own_pid,
        wait_status: None,
        cpu: cpu.saturating_sub(own_cpu()),
        transfers: system::transfers_since(transfers_before, &shared),
    };
    let finisher = Finisher {
        options: &options,
        shared: &shared,
        storage,
        warnings,
        start_ns: start.monotonic_ns,
        cpu_before,
        preloaded: true,
        removes_jit_maps: false,
    };
    let outcome = finisher.finish(drain_thread, ended, &mut |_| {}, &mut || false);
    // A dump that somebody has asked for just before gets what the last pass gives.
    Server::call(&session.name);
    if let Some(control) = control {
        control.join();
    }
    Ok(outcome)
}
