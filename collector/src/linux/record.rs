//! A recording from its begin to its end: makes the mapping, starts the program, keeps the clock of the tick,
//! drains the sub-buffers into the trace and finishes it when the program has ended.
//!
//! Several threads share the work, all in the process that called [`record`]: the calling thread waits for
//! the program and for signals, one advances the ticks and interrupts running threads, one drains and writes.
//! What a session can do without has two more ([`Besides`]): control; and counters, the off-CPU sampler, and
//! the search for processes without an agent.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use stackbeat_core::ids::Pid;
use stackbeat_core::shm::layout::{SESSION_VARIABLE, SamplingClock};
use stackbeat_core::sync::Ordering;
use stackbeat_symbolize::NameSources;

use super::find_program::{self, Program};
use super::group_sentinel::GroupSentinel;
use super::host::Linux;
use super::lock_waits::LockWaits;
use super::off_cpu::{self, OffCpuSampler};
use super::polls::{Poll, Polls};
use super::runtime_options::{self, Extension};
use super::spawn::{self, SignalState, Start};
use super::supervise::{self, Supervisor, Wake};
use super::systrace::{self, KeptPipe};
use super::thread_clock;
use super::ticking;
use super::transfers::Transfers;
use super::unrecorded::{self, Started, TreeWatch};
use crate::sampler::{Sampler, ticker};
use crate::session::auto_dump::AutoDump;
use crate::session::clocks::{self, now_ns};
use crate::session::control::{self, Server, Session};
use crate::session::drainer::DrainThread;
use crate::session::error::{RecordError, Warning, WhyNot};
use crate::session::finish::{self, Ended};
use crate::session::meter::Meter;
use crate::session::open::{Opened, Opening};
use crate::session::options::{Chosen, Options, Outcome, Progress};
use crate::session::shared::{Place, Shared};
use crate::session::storage;
use crate::session::trace_header;

/// Distance between two reports of progress, and the least: wake-ups come at common moments, not at equal
/// distances to the microsecond.
const PROGRESS: Duration = Duration::from_millis(250);
const PROGRESS_LEAST: Duration = Duration::from_millis(240);

/// How the program ended, as its parent knows it.
#[derive(Clone, Copy, Debug)]
struct Exit {
    pid: Pid,
    wait_status: i32,
    cpu: Duration,
    /// Of it, that of the program's own process, where it is known.
    own_cpu: Option<Duration>,
    /// What it has read and written.
    transfers: Option<Transfers>,
}

/// Whether the kernel would sample threads by its own clock (`ClockChoice::Auto`).
///
/// # Errors
/// Why not, and what to do about it.
pub fn probe_kernel_clock() -> Result<(), WhyNot> {
    thread_clock::probe()
}

/// Whether threads can have timers that sample them (`ClockChoice::Timer`). Gives the shortest time between
/// two samples, ns.
///
/// # Errors
/// Why not.
pub fn probe_cpu_timers() -> Result<u64, WhyNot> {
    thread_clock::probe_timers()
}

/// Records one run of a program. Returns when the program has ended and the trace is complete.
///
/// While it runs, the calling thread's signals are taken over; everything the program inherits is as
/// if the caller had started it.
///
/// # Errors
///
/// When the recording could not begin: the program then did not run. What goes wrong later (a full
/// disk) is said in the [`Outcome`], because the program's end is the caller's business too.
pub fn record(
    options: &Options,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Outcome, RecordError> {
    options.validate()?;
    let program = find_program::resolve(options)?;
    find_program::check_agent(&options.agent)?;
    let mut warnings = program.warnings().to_vec();

    let started = Started::new(&program, &options.command);
    let subject = Subject::of_command(started);
    let setup = begin(options, &subject, &mut warnings, progress)?;
    let shared = &*Arc::clone(&setup.shared);
    let session = Arc::clone(&setup.session);
    let sentinel = GroupSentinel::post().ok();
    let of_runtime = options
        .runtime_options
        .then(|| runtime_options::extension(program.path(), &options.command))
        .flatten();
    let removes_jit_maps = of_runtime.as_ref().is_some_and(|added| added.brings_maps);
    let child = match start_program(
        options,
        of_runtime,
        &program,
        &setup.storage,
        &setup.signals,
    ) {
        Ok(child) => child,
        Err(source) => {
            setup.give_up(options);
            return Err(RecordError::Start {
                program: program.path().to_path_buf(),
                source,
            });
        }
    };
    let mut supervisor = Supervisor::new(
        child,
        setup.signal_descriptor,
        sentinel,
        options.dumps.signal,
    );
    let mut dump = AutoDump::new(
        Arc::clone(&session),
        options.dumps.clone(),
        options.symbolize,
    );
    let pid = supervisor.pid() as u32;
    session.program_pid.store(pid, Ordering::Relaxed);
    progress(&Progress::Started { pid });
    let exit = supervise(&mut supervisor, shared, &mut dump, session.began, progress);
    dump.program_ended(exit.wait_status);
    if options.wait_children {
        let tree = &setup.besides.tree;
        wait_for_children(&mut supervisor, shared, tree, &mut dump, progress);
    }
    for (reason, result) in dump.finish() {
        progress(&Progress::Dumped { reason, result });
    }
    setup.besides.stop(exit.own_cpu);
    // The key that ended the program reached us too, and does not mean what follows.
    supervisor.leave_wanted();
    let drain_thread = setup.threads.join(shared);
    if let Some(warning) = setup.marker_pipe.as_ref().and_then(KeptPipe::settle) {
        progress(&Progress::Warning(warning.clone()));
        warnings.push(warning);
    }
    let finisher = finish::Finisher {
        options,
        shared,
        storage: setup.storage,
        warnings,
        start_ns: session.start.monotonic_ns,
        cpu_before: setup.cpu_before,
        preloaded: program.preload(),
        removes_jit_maps,
    };
    let ended = Ended {
        pid: exit.pid,
        wait_status: Some(exit.wait_status),
        cpu: exit.cpu,
        transfers: exit.transfers.map(|t| t.counters(now_ns()).collect()),
    };
    let outcome = finisher.finish(drain_thread, ended, progress, &mut || {
        supervisor.leave_wanted()
    });
    drop(setup.signals);
    Ok(outcome)
}

/// Whom a session is about.
pub(super) struct Subject {
    /// Pids from here on are the program's.
    pub(super) first_pid: Pid,
    pub(super) working_directory: Option<String>,
    /// What is started; `None`: it runs already.
    pub(super) started: Option<Started>,
    /// When it was started, if it runs already: files that are older are not its own.
    pub(super) began_at: Option<SystemTime>,
}

impl Subject {
    /// A program that is about to be started.
    fn of_command(started: Started) -> Subject {
        Subject {
            first_pid: Pid(std::process::id()),
            working_directory: None,
            started: Some(started),
            began_at: None,
        }
    }
}

/// A session that is ready: its threads work, and wait for somebody to record.
pub(super) struct Setup {
    pub(super) session: Arc<Session>,
    pub(super) shared: Arc<Shared>,
    pub(super) storage: storage::Storage,
    pub(super) signals: SignalState,
    pub(super) signal_descriptor: OwnedFd,
    pub(super) threads: Threads,
    pub(super) besides: Besides,
    /// Where the program's events go besides, if that is a pipe.
    pub(super) marker_pipe: Option<KeptPipe>,
    pub(super) cpu_before: Duration,
}

/// What a session can do without.
pub(super) struct Besides {
    server: Option<Server>,
    polls: Option<Polls>,
    tree: TreeWatch,
}

impl Besides {
    /// `program_cpu`: CPU time of the program's own process, where it is known.
    pub(super) fn stop(self, program_cpu: Option<Duration>) {
        if let Some(cpu) = program_cpu {
            self.tree.note_program_cpu(cpu);
        }
        if let Some(polls) = self.polls {
            polls.stop();
        }
        if let Some(server) = self.server {
            server.stop();
        }
    }
}

impl Setup {
    /// Nobody was recorded: leaves nothing behind.
    pub(super) fn give_up(self, options: &Options) {
        self.besides.stop(None);
        self.threads.join(&self.shared);
        finish::remove_output(&options.output);
    }
}

/// Whether to behave like a system without signals to threads, CPU timers, and looks at other processes'
/// calls. For tests.
fn suspends() -> bool {
    cfg!(target_arch = "x86_64") && std::env::var_os("STACKBEAT_SUSPEND").is_some_and(|v| v == "1")
}

/// Makes the mapping and the output, and starts the session's threads.
pub(super) fn begin(
    options: &Options,
    subject: &Subject,
    warnings: &mut Vec<Warning>,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Setup, RecordError> {
    let cpu_before = clocks::own_cpu();
    let suspends = suspends();
    let chosen = match suspends {
        true => Chosen {
            by_suspension: true,
            ..Chosen::of(SamplingClock::Tick)
        },
        false => thread_clock::choose(options)?,
    };
    let mut marker_pipe = None;
    let opening = Opening {
        options,
        chosen: &chosen,
        place: Place::Outside,
        program_began_at: subject.began_at,
        working_directory: subject.working_directory.as_ref(),
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
        |mapping| systrace::prepare(options, mapping, &mut marker_pipe),
        |mapping_name| {
            let host = Linux::of_session(mapping_name, subject.first_pid);
            Arc::new(if suspends { host.suspending() } else { host })
        },
        warnings,
        progress,
    )?;
    let mapping_name = &*mapping_name;
    let of_meter = Arc::clone(&host);

    let signals = SignalState::take_over(&supervise::HANDLED).map_err(RecordError::Thread)?;
    let signal_descriptor = Supervisor::signal_descriptor().map_err(RecordError::Thread)?;
    let sampler = Sampler::new(options.interrupt_running, host).map_err(RecordError::Thread)?;
    if options.count_calls {
        ticker::count_all_calls(&shared);
    }
    let threads = Threads::start(&shared, drain_thread, sampler, options, cpu_before)
        .map_err(RecordError::Thread)?;

    let session = Arc::new(Session {
        shared: Arc::clone(&shared),
        mapping_name: mapping_name.to_vec(),
        name: control::session_name(session_id),
        command: trace_header::command_line(options),
        trace: std::path::absolute(&options.output).unwrap_or_else(|_| options.output.clone()),
        program_pid: AtomicU32::new(0),
        began: Instant::now(),
        names: NameSources {
            debug: None,
            ..options.names.clone()
        },
        source,
        start,
        locks: |shared, mapping_name| LockWaits::new(Arc::clone(shared), mapping_name).reply(),
    });
    session.begin(!options.start_disabled);
    let server = match Server::start(Arc::clone(&session)) {
        Ok(server) => Some(server),
        Err(error) => {
            let warning = Warning::NoControl(error.to_string());
            progress(&Progress::Warning(warning.clone()));
            warnings.push(warning);
            None
        }
    };
    let (tree, search) =
        TreeWatch::new(Arc::clone(&session), &storage.path, subject.started.clone());
    let mut all: Vec<(Box<dyn Poll>, Duration)> = vec![(Box::new(search), unrecorded::FIRST_POLL)];
    if !options.count_calls && !suspends {
        let sampler = OffCpuSampler::new(Arc::clone(&shared), mapping_name, &options.dumps);
        all.push((Box::new(sampler), off_cpu::SHORTEST));
    }
    if let Some(period) = options.counters_ns.map(Duration::from_nanos) {
        let meter = Meter::new(Arc::clone(&shared), of_meter, period);
        all.push((Box::new(meter), period));
    }
    // Without the thread the trace has no counters, waits are seen when they have ended, and what runs
    // without an agent has no name: no reason not to record.
    let polls = Polls::start(all, Arc::clone(&shared.polls)).ok();
    Ok(Setup {
        session,
        shared,
        storage,
        signals,
        signal_descriptor,
        threads,
        besides: Besides {
            server,
            polls,
            tree,
        },
        marker_pipe,
        cpu_before,
    })
}

fn start_program(
    options: &Options,
    of_runtime: Option<Extension>,
    program: &Program,
    storage: &storage::Storage,
    signals: &SignalState,
) -> std::io::Result<spawn::Child> {
    let session: &OsStr = storage.path.as_os_str();
    let mut variables = vec![(SESSION_VARIABLE, session)];
    variables.extend(of_runtime.iter().map(|added| (added.name, &*added.value)));
    let start = Start {
        path: program.path(),
        command: &options.command,
        preload: program.preload().then_some(options.agent.as_path()),
        variables: &variables,
    };
    match &options.cpus {
        Some(cpus) => cpus.run(|| spawn::spawn(&start, signals))?,
        None => spawn::spawn(&start, signals),
    }
}

/// Waits for the program's end.
fn supervise(
    supervisor: &mut Supervisor,
    shared: &Shared,
    dump: &mut AutoDump,
    began: Instant,
    progress: &mut dyn FnMut(&Progress),
) -> Exit {
    let mut teller = Teller::new(began);
    loop {
        match supervisor.wait(PROGRESS) {
            Wake::Ended {
                wait_status,
                user,
                system,
                own_cpu,
                transfers,
            } => {
                return Exit {
                    pid: Pid(supervisor.pid() as u32),
                    wait_status,
                    cpu: user + system,
                    own_cpu,
                    transfers: transfers.map(|t| t.without_agents(shared.mapping.control())),
                };
            }
            Wake::Timeout | Wake::Signal | Wake::Leave => {}
        }
        if supervisor.take_dump_wanted() {
            dump.want();
        }
        dump.attend(progress);
        teller.tell(shared, progress);
    }
}

/// Tells now and then where the recording stands.
pub(super) struct Teller {
    began: Instant,
    last_report: Instant,
    write_error: Option<String>,
    /// Deadlocks that were told.
    deadlocks: u64,
}

impl Teller {
    pub(super) fn new(began: Instant) -> Teller {
        Teller {
            began,
            last_report: Instant::now(),
            write_error: None,
            deadlocks: 0,
        }
    }

    pub(super) fn tell(&mut self, shared: &Shared, progress: &mut dyn FnMut(&Progress)) {
        if self.last_report.elapsed() < PROGRESS_LEAST {
            return;
        }
        self.last_report = Instant::now();
        let (mut status, error) = {
            let state = shared.state();
            (state.status, state.write_error.clone())
        };
        status.elapsed = self.began.elapsed();
        if error != self.write_error {
            if let Some(error) = &error {
                progress(&Progress::Warning(Warning::WriteFailed(error.clone())));
            }
            self.write_error = error;
        }
        let deadlocks = shared.figures.deadlocks.load(Ordering::Relaxed);
        if deadlocks > self.deadlocks {
            self.deadlocks = deadlocks;
            progress(&Progress::Warning(Warning::Deadlock { count: deadlocks }));
        }
        progress(&Progress::Recording(status));
    }
}

/// Goes on until the program's children have ended, or somebody wants us to leave.
fn wait_for_children(
    supervisor: &mut Supervisor,
    shared: &Shared,
    tree: &TreeWatch,
    dump: &mut AutoDump,
    progress: &mut dyn FnMut(&Progress),
) {
    // The drain has to see the end of the program before its count means the others.
    let mut polled = 0;
    loop {
        shared.want_drain();
        let leave = matches!(supervisor.wait(PROGRESS), Wake::Leave);
        let processes = shared.state().status.live_processes + tree.living();
        polled += 1;
        dump.attend(progress);
        if leave || (processes == 0 && polled > 1) {
            return;
        }
        progress(&Progress::WaitingForChildren { processes });
    }
}

/// The session's two threads.
pub(super) struct Threads {
    ticker: JoinHandle<()>,
    drain: JoinHandle<DrainThread>,
}

impl Threads {
    fn start(
        shared: &Arc<Shared>,
        drain_thread: DrainThread,
        sampler: Sampler,
        options: &Options,
        cpu_before: Duration,
    ) -> std::io::Result<Threads> {
        let drain = thread::Builder::new()
            .name("stackbeat drain".to_owned())
            .spawn(move || {
                ticking::be_less_nice();
                drain_thread.run()
            })?;
        let of_ticker = Arc::clone(shared);
        let (budget, has_counters) = (options.budget(), options.counters_ns.is_some());
        let ticker = thread::Builder::new()
            .name("stackbeat ticker".to_owned())
            .spawn(move || {
                ticking::be_less_nice();
                ticker::run(&of_ticker, sampler, budget, has_counters, cpu_before);
            })?;
        Ok(Threads { ticker, drain })
    }

    /// Ends both and gives the drain's state back.
    pub(super) fn join(self, shared: &Shared) -> DrainThread {
        shared.stop();
        if let Err(panic) = self.ticker.join() {
            std::panic::resume_unwind(panic);
        }
        self.drain
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}
