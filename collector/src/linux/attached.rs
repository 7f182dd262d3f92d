//! Recording a program that runs already: the agent is brought in at the beginning and sent away at the
//! end, or when the program ends by itself.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, getpid, kill_process};
use stackbeat_core::ids::Pid;
use stackbeat_core::shm::layout::entry_state;
use stackbeat_core::shm::mapping::Mapping;
use stackbeat_core::shm::{registry, signal_gate};
use stackbeat_core::sync::Ordering;

use super::attach::{self, Target};
use super::procfs::{self, Watch};
use super::record::{Subject, Teller, begin};
use super::sharing::{Place, give};
use super::systrace::KeptPipe;
use super::transfers::Transfers;
use super::{descendants, find_program};
use crate::host::Whose;
use crate::session::attach_error::AttachError;
use crate::session::clocks::now_ns;
use crate::session::error::{RecordError, Warning};
use crate::session::finish::{self, Ended};
use crate::session::options::{AttachSession, AttachStep, Attachment, Options, Outcome, Progress};
use crate::session::shared::Shared;
use crate::session::storage;

/// Distance between two moments at which the program's CPU time is read and progress told. Its end and a
/// signal are told at once.
const POLL: Duration = Duration::from_millis(250);
/// How long captures and signals under way are waited for before the agent leaves.
const SETTLE: Duration = Duration::from_millis(500);

/// Records a process that runs already, until the time is over, SIGINT, SIGTERM or SIGHUP arrives, or it
/// ends. `options.command` only names it.
///
/// # Errors
///
/// When the recording could not begin: the process is as it was.
pub fn attach(
    options: &Options,
    target: &Target,
    attachment: &Attachment,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Outcome, RecordError> {
    options.validate()?;
    find_program::check_agent(&options.agent)?;
    let mut options = options.clone();
    let place = Place::choose(target, &mut options)?;
    let options = &options;
    let pid = target.pid;
    let subject = Subject {
        first_pid: pid.min(Pid(std::process::id())),
        working_directory: std::fs::read_link(format!("/proc/{pid}/cwd"))
            .ok()
            .map(|path| path.to_string_lossy().into_owned()),
        started: None,
        began_at: procfs::started_at(pid),
    };
    let watch = Watch::open(pid).ok_or(AttachError::NoSuchProcess { pid })?;
    let mut warnings = Vec::new();
    let setup = begin(options, &subject, &mut warnings, progress)?;
    let shared = &*Arc::clone(&setup.shared);
    let session = Arc::clone(&setup.session);
    session.program_pid.store(pid.0, Ordering::Relaxed);
    let cpu_before = cpu_ns(pid);
    let attached = give(&setup.storage, target).and_then(|()| {
        let session = place.inside(&setup.storage);
        attach::attach(target, &options.agent, &session)
    });
    let arrival = match attached {
        Ok(attach_step) => attach_step,
        Err(error) => {
            setup.give_up(options);
            return Err(error.into());
        }
    };
    note(shared, &arrival, true);
    let mut warn = |warning: Warning| {
        progress(&Progress::Warning(warning.clone()));
        warnings.push(warning);
    };
    let descendants = attachment.descendants.then(|| {
        let session = place.inside(&setup.storage);
        descendants::attach(
            target,
            attachment.allow_seccomp,
            &options.agent,
            &setup.storage,
            &session,
            &mut warn,
        )
    });
    let left_out = descendants::of(pid).len();
    if !attachment.descendants && options.follow_children && left_out > 0 {
        warn(Warning::DescendantsLeftOut { count: left_out });
    }
    progress(&Progress::Started { pid: pid.0 });

    let transfers_before = Transfers::of_process(pid);
    let began = Instant::now();
    let mut teller = Teller::new(began);
    let mut cpu_after = cpu_before;
    let end = attachment.duration.map(|d| began + d);
    while !watch.has_ended() && end.is_none_or(|end| Instant::now() < end) {
        let left = end.map_or(POLL, |end| end.saturating_duration_since(Instant::now()));
        if is_asked_to_detach(&setup.signal_descriptor, &watch, left.min(POLL)) {
            break;
        }
        cpu_after = cpu_ns(pid).max(cpu_after);
        teller.tell(shared, progress);
    }
    // Of a program that has ended, its parent only could tell.
    let transfers = Transfers::of_process(pid).filter(|_| !watch.has_ended());
    let transfers = transfers.zip(transfers_before);
    setup.besides.stop(None);

    shared.mapping.control().switch.store(0, Ordering::SeqCst);
    let drain_thread = setup.threads.join(shared);
    settle(&shared.mapping);
    let departure = leave(&shared.mapping, pid, &setup.storage, &mut |warning| {
        progress(&Progress::Warning(warning.clone()));
        warnings.push(warning);
    });
    if let Some(attach_step) = &departure {
        note(shared, attach_step, false);
    }
    if let Some(warning) = setup.marker_pipe.as_ref().and_then(KeptPipe::settle) {
        progress(&Progress::Warning(warning.clone()));
        warnings.push(warning);
    }
    let finisher = finish::Finisher {
        removes_jit_maps: false,
        options,
        shared,
        storage: setup.storage,
        warnings,
        start_ns: session.start.monotonic_ns,
        cpu_before: setup.cpu_before,
        preloaded: false,
    };
    let ended = Ended {
        pid,
        wait_status: None,
        cpu: Duration::from_nanos(cpu_after.saturating_sub(cpu_before)),
        transfers: transfers
            .map(|(after, before)| after.since(before).counters(now_ns()).collect()),
    };
    let mut outcome = finisher.finish(drain_thread, ended, progress, &mut || {
        is_asked_to_detach(&setup.signal_descriptor, &watch, Duration::ZERO)
    });
    outcome.attach_session = Some(AttachSession {
        attach: arrival,
        detach: departure,
        descendants,
    });
    drop(setup.signals);
    Ok(outcome)
}

fn note(shared: &Shared, attach_step: &AttachStep, arrival: bool) {
    let figures = &shared.figures;
    let (pause, total) = if arrival {
        (&figures.attach_pause_ns, &figures.attach_ns)
    } else {
        (&figures.detach_pause_ns, &figures.detach_ns)
    };
    pause.store(
        attach_step.pause.as_nanos() as u64,
        std::sync::atomic::Ordering::Relaxed,
    );
    total.store(
        attach_step.total.as_nanos() as u64,
        std::sync::atomic::Ordering::Relaxed,
    );
}

/// CPU time of a process so far; 0 when it is gone.
fn cpu_ns(pid: Pid) -> u64 {
    procfs::process_cpu_ns(pid).unwrap_or(0)
}

/// Waits for a signal that asks us to end, no longer than until the program has ended.
fn is_asked_to_detach(signals: &OwnedFd, watch: &procfs::Watch, timeout: Duration) -> bool {
    let mut polled = [
        PollFd::new(signals, PollFlags::IN),
        PollFd::new(watch, PollFlags::IN),
    ];
    let polls = poll(&mut polled, Timespec::try_from(timeout).ok().as_ref());
    if polls.is_err() || polled[0].revents().is_empty() {
        return false;
    }
    // A `signalfd_siginfo`, which begins with the signal's number.
    let mut info = [0; size_of::<libc::signalfd_siginfo>()];
    if rustix::io::read(signals, &mut info) != Ok(info.len()) {
        return false;
    }
    let signal = u32::from_ne_bytes([info[0], info[1], info[2], info[3]]);
    match signal.cast_signed() {
        libc::SIGINT | libc::SIGTERM | libc::SIGHUP | libc::SIGQUIT => true,
        libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU => {
            // Stops this process, as the terminal wants; the program is not its job.
            let _ = kill_process(getpid(), Signal::STOP);
            false
        }
        _ => false,
    }
}

/// Waits until no capture is under way and no signal of ours is.
fn settle(mapping: &Mapping) {
    let deadline = Instant::now() + SETTLE;
    let is_busy = || {
        registry::processes(mapping).any(|(_, e)| signal_gate::is_announced(&e.unregistered))
            || registry::threads(mapping).any(|(_, e)| {
                e.state.load(Ordering::Acquire) == entry_state::LIVE
                    && (e.capturing.load(Ordering::SeqCst) != 0
                        || e.in_flight.load(Ordering::SeqCst) != 0)
            })
    };
    while is_busy() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Detaches the agent from the process and from the children that it has started meanwhile. Gives what that
/// cost the process itself.
fn leave(
    mapping: &Mapping,
    pid: Pid,
    storage: &storage::Storage,
    warn: &mut dyn FnMut(Warning),
) -> Option<AttachStep> {
    let name = storage.path.file_name().unwrap_or_default();
    let name = name.as_encoded_bytes();
    let mut own = None;
    for (_, entry) in registry::processes(mapping) {
        let process = entry.pid();
        if entry.state.load(Ordering::Acquire) != entry_state::LIVE
            || procfs::identify(process, name, Pid(0)) != Whose::Ours
        {
            continue;
        }
        let takes_part = || procfs::identify(process, name, Pid(0)) == Whose::Ours;
        let mut attempt = attach::detach(process);
        if matches!(attempt, Err(AttachError::Executed { .. })) && takes_part() {
            // So does the program that took its place.
            attempt = attach::detach(process);
        }
        match attempt {
            Ok(attach_step) if process == pid => own = Some(attach_step),
            Ok(_) | Err(AttachError::Ended { .. }) => {}
            Err(AttachError::Executed { .. }) if !takes_part() => {}
            Err(error) => warn(Warning::NotDetached {
                pid: process,
                reason: error.to_string(),
            }),
        }
    }
    own
}
