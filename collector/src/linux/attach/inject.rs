//! Finds a thread at a good place, has it load and call the agent, lets it go on.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use stackbeat_core::attach_status::{Refused, decode};
use stackbeat_core::ids::{Pid, Tid};

use super::api_slots::Slots;
use super::exec::{self, Program};
use super::image::{Functions, Images};
use super::safe_point::{self, Doing, Judge};
use super::target::{self, Sessions, Target};
use super::tracee::{Borrowed, Stop, Tracee};
use crate::linux::remote_unwind::Module;
use crate::session::attach_error::AttachError;
use crate::session::options::AttachStep;

/// How long a good place is looked for.
const TIMEOUT: Duration = Duration::from_secs(10);
/// So long threads with children are taken only where no other is of use in the same round.
const PARENTS_AFTER: Duration = Duration::from_secs(2);
/// Distance between two rounds over the threads, growing.
const ROUND: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(20));
/// A thread that does not stop within this time is in a call that cannot be interrupted, or has no processor.
/// One that was waiting comes back from its call with EINTR then, if the call is one of
/// `tracee::GIVES_EINTR`.
const STOP_TIME: Duration = Duration::from_secs(1);
/// So long after a process says that it takes part in a session that session's mapping may not be seen in it
/// yet.
const JOIN_TIME: Duration = Duration::from_secs(1);
/// How long a program may take from its exec until the dynamic linker has loaded libc.
const START_TIME: Duration = Duration::from_secs(1);
/// Threads tried in one round: those that wait come first, and one of them nearly always will do.
const TRIES: usize = 16;
/// Room for the calls: the dynamic linker's own needs are some 10 KiB, the agent's less.
const STACK_BYTES: u64 = 1 << 20;
/// Names lie at the beginning of that memory.
const AGENT_AT: u64 = 0;
const SESSION_AT: u64 = 4096;
const NAME_BYTES: usize = 4095;
/// And a list of addresses behind them.
const LIST_AT: u64 = 8192;

/// Brings the agent in, or finds it there, and has it join the session. `session` is the mapping's path as
/// the process sees it.
pub(crate) fn attach(
    target: &Target,
    agent: &Path,
    session: &Path,
) -> Result<AttachStep, AttachError> {
    let pid = target.pid;
    attach_step(pid, |images, slots, borrowed, stack| {
        write_name(borrowed, stack + SESSION_AT, session)?;
        let entrances = match images.agent() {
            Some(module) => Entrances::of(pid, images, module)?,
            None => load(target, images, agent, borrowed, stack)?,
        };
        // In the dynamic linker since glibc 2.35.
        let mut loaded = images.modules.iter();
        let find_object = loaded.find_map(|m| images.symbol(m, "_dl_find_object"));
        let join = |borrowed: &mut Borrowed| {
            let arguments = [stack + SESSION_AT, find_object.unwrap_or(0)];
            let answer = borrowed.call(entrances.attach, arguments)?;
            Ok(decode(answer as i64))
        };
        let mut answer = join(borrowed)?;
        if answer == Err(Refused::Busy) {
            // Somebody else may have attached meanwhile, or be about to, by another thread.
            let until = Instant::now() + JOIN_TIME;
            let sessions = loop {
                match Sessions::of(pid) {
                    Sessions::None if Instant::now() < until => {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    sessions => break sessions,
                }
            };
            if let Sessions::Of(collector) = sessions {
                return Err(AttachError::Recorded { pid, collector });
            }
            // In the session of a collector that was killed: nobody reads it any more.
            borrowed.call(entrances.detach, [1, 0])?;
            answer = join(borrowed)?;
        }
        let patched = understand(pid, answer)?;
        // What goes wrong here costs marks, and is no reason to leave a process that takes part.
        if let Some(fill) = entrances.fill_slots {
            let _ = slots.tell(borrowed, fill, true, stack + LIST_AT);
        }
        Ok(patched)
    })
}

/// Has the agent leave.
pub(crate) fn detach(pid: Pid) -> Result<AttachStep, AttachError> {
    attach_step(pid, |images, slots, borrowed, stack| {
        let Some(agent) = images.agent() else {
            return Ok(0);
        };
        let entrances = Entrances::of(pid, images, agent)?;
        // The agent's functions stay where they are, and do nothing.
        if let Some(fill) = entrances.fill_slots {
            let _ = slots.tell(borrowed, fill, false, stack + LIST_AT);
        }
        let answer = borrowed.call(entrances.detach, [0, 0])?;
        understand(pid, decode(answer as i64))
    })
}

/// The agent's functions.
struct Entrances {
    attach: u64,
    detach: u64,
    fill_slots: Option<u64>,
}

impl Entrances {
    /// Those that a module has.
    fn of(pid: Pid, images: &Images, module: &Module) -> Result<Entrances, AttachError> {
        let find = |name| images.symbol(module, name);
        match (find("stackbeat_attach"), find("stackbeat_detach")) {
            (Some(attach), Some(detach)) => Ok(Entrances {
                attach,
                detach,
                fill_slots: find("stackbeat_fill_slots"),
            }),
            _ => Err(AttachError::Refused {
                pid,
                reason: "it is of a version that cannot be attached to".to_owned(),
            }),
        }
    }
}

fn understand(pid: Pid, answer: Result<u64, Refused>) -> Result<u64, AttachError> {
    answer.map_err(|refused| AttachError::Refused {
        pid,
        reason: match refused {
            Refused::Busy => "it takes part in another one".to_owned(),
            Refused::Disabled => "it has switched itself off after an error of its own".to_owned(),
            Refused::Full => "the session has no room for another process".to_owned(),
            Refused::Sanitizer => {
                "the program was built with a sanitizer that holds signals back".to_owned()
            }
            Refused::Panicked => "an error of its own".to_owned(),
            Refused::OtherVersion => {
                "it is of another version of stackbeat, loaded before; start the program anew"
                    .to_owned()
            }
            Refused::NotOurs => "the session's shared memory is not what it expects".to_owned(),
            Refused::OtherOwner => {
                "the session's shared memory belongs to another user; attach as the user that the program runs as"
                    .to_owned()
            }
            Refused::AddressSpace => format!(
                "it would take more than a sixteenth of what the program's address space is limited to (RLIMIT_AS); \
                 raise that with `prlimit --pid {pid} --as=unlimited`"
            ),
            Refused::System(errno) => format!(
                "the session's shared memory cannot be opened: {}",
                std::io::Error::from_raw_os_error(errno)
            ),
            Refused::Unknown(number) => format!(
                "it is of another version of stackbeat, and said {number}; start the program anew"
            ),
        },
    })
}

/// [`use_a_thread`], where an exec of the program meanwhile is said whatever it made fail.
fn attach_step(
    pid: Pid,
    work: impl Fn(&Images, &Slots, &mut Borrowed, u64) -> Result<u64, AttachError> + Sync,
) -> Result<AttachStep, AttachError> {
    let program = Program::of(pid);
    use_a_thread(pid, work).map_err(|error| match error {
        AttachError::Recorded { .. } => error,
        _ if program.was_replaced() => AttachError::Executed { pid },
        AttachError::NoLoader { .. } if exec::has_ended(pid) => AttachError::Ended { pid },
        error => error,
    })
}

/// What is loaded in a process: with the whole of libc, for which one that has just begun needs a moment.
fn images(pid: Pid) -> Result<Images, AttachError> {
    let until = Instant::now() + START_TIME;
    loop {
        let images = Images::read(pid).map_err(|source| match source.raw_os_error() {
            Some(libc::EACCES | libc::EPERM) => target::forbidden(pid),
            Some(libc::ENOENT | libc::ESRCH) => AttachError::Ended { pid },
            _ => AttachError::System {
                pid,
                step: "its memory cannot be read",
                source,
            },
        })?;
        let may_begin = images.modules.iter().any(|m| images.is_loader(m));
        let is_complete = images.libc().is_some() && images.room_for_code().is_some();
        if is_complete || !may_begin || Instant::now() > until {
            return Ok(images);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Stops a thread at a good place, lets `work` use it with some memory for names and a stack, and lets it go
/// on.
fn use_a_thread(
    pid: Pid,
    work: impl Fn(&Images, &Slots, &mut Borrowed, u64) -> Result<u64, AttachError> + Sync,
) -> Result<AttachStep, AttachError> {
    let began = Instant::now();
    let system = |step| move |source| AttachError::System { pid, step, source };
    let images = images(pid)?;
    let slots = Slots::find(pid, &images);
    let libc = images.libc().ok_or(AttachError::NoLoader { pid })?;
    let functions = Functions::of(pid, libc).ok_or(AttachError::NoLoader { pid })?;
    let code = images
        .room_for_code()
        .ok_or(AttachError::NoLoader { pid })?;
    let agent = images.agent();
    let hooks = agent
        .and_then(|agent| Functions::of(pid, agent))
        .unwrap_or_default();
    let mut judge = Judge::new(&images, libc, &functions, &hooks);
    let mut refused = 0;
    let mut attempt = |tid, try_how: Try| {
        let (mut tracee, stopped) = match try_thread(pid, tid, &mut judge, try_how)? {
            Ok(found) => found,
            Err(objection) => return Ok(Err(objection)),
        };
        let mut borrowed = tracee
            .borrow(code)
            .map_err(system("its registers cannot be read"))?;
        let result = use_thread(&images, &mut borrowed, |images, borrowed, memory| {
            work(images, &slots, borrowed, memory)
        });
        let given_back = borrowed.give_back();
        let pause = stopped.elapsed();
        let slots = result?;
        given_back?;
        Ok(Ok((slots, pause)))
    };
    let (slots, pause) = find_place(pid, &mut refused, |tid, try_how| {
        on_thread_of_its_own(pid, || attempt(tid, try_how))
    })?;
    Ok(AttachStep {
        pause,
        total: began.elapsed(),
        refused,
        slots,
    })
}

/// Runs what traces. A thread of the program that has been asked to stop and does not, because it has no
/// processor or is in a call that cannot be interrupted, would stop later, for as long as it is traced. Only
/// the end of the thread that traces takes the request back.
fn on_thread_of_its_own<T: Send>(
    pid: Pid,
    work: impl FnOnce() -> Result<T, AttachError> + Send,
) -> Result<T, AttachError> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("stackbeat attach".to_owned());
        let thread = thread.spawn_scoped(scope, work);
        let thread = thread.map_err(|source| AttachError::System {
            pid,
            step: "no thread can be started to trace it with",
            source,
        })?;
        thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Gives `work` some memory in the process and takes it back; errno stays what it was.
fn use_thread(
    images: &Images,
    borrowed: &mut Borrowed,
    work: impl FnOnce(&Images, &mut Borrowed, u64) -> Result<u64, AttachError>,
) -> Result<u64, AttachError> {
    borrowed.return_by_own_stack()?;
    let memory = borrowed.system_call(
        libc::SYS_mmap,
        [
            0,
            STACK_BYTES,
            (libc::PROT_READ | libc::PROT_WRITE) as u64,
            (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE) as u64,
            u64::MAX,
            0,
        ],
    )?;
    if memory < 0 {
        let error = std::io::Error::from_raw_os_error(-memory as i32);
        return Err(borrowed.failed("no memory for a stack in it", error));
    }
    let memory = memory as u64;
    borrowed.return_by(memory..memory + STACK_BYTES)?;
    let result = errno_of(images, borrowed).and_then(|errno| {
        let result = work(images, borrowed, memory);
        let written = match errno {
            Some((address, value)) if borrowed.is_stopped() => borrowed.write(address, &value),
            _ => Ok(()),
        };
        result.and_then(|slots| written.map(|()| slots))
    });
    // One that runs on in a call of ours needs its stack, and what that call has left of itself may point
    // there.
    if !borrowed.is_stopped() {
        return result;
    }
    // Not by a frame in there.
    let unmapped = borrowed
        .return_by_own_stack()
        .and_then(|()| borrowed.system_call(libc::SYS_munmap, [memory, STACK_BYTES, 0, 0, 0, 0]));
    // What went wrong first is what is to be reported.
    result.and_then(|slots| unmapped.map(|_| slots))
}

/// Where the thread's errno lies, and what it is.
fn errno_of(
    images: &Images,
    borrowed: &mut Borrowed,
) -> Result<Option<(u64, [u8; 4])>, AttachError> {
    let function = images
        .libc()
        .and_then(|m| images.symbol(m, "__errno_location"));
    let Some(function) = function else {
        return Ok(None);
    };
    let address = borrowed.call(function, [0, 0])?;
    let mut value = [0; 4];
    borrowed.read(address, &mut value)?;
    Ok(Some((address, value)))
}

/// How a thread is tried.
#[derive(Clone, Copy, Debug)]
struct Try {
    /// It was tried before.
    again: bool,
    /// Not if it has children.
    spares_parents: bool,
}

/// What came of an attempt with one thread: what was wanted of it, or why it is of no use.
type Attempt<T> = Result<Result<T, &'static str>, AttachError>;

/// Makes attempts until a thread is of use.
fn find_place<T>(
    pid: Pid,
    refused: &mut u32,
    mut attempt: impl FnMut(Tid, Try) -> Attempt<T>,
) -> Result<T, AttachError> {
    let began = Instant::now();
    let mut state = String::new();
    let mut pause = ROUND.0;
    let mut tried = HashSet::new();
    while began.elapsed() < TIMEOUT {
        let spares_parents = began.elapsed() < PARENTS_AFTER;
        let threads = threads_by_preference(pid, spares_parents);
        let threads = threads.ok_or(AttachError::Ended { pid })?;
        if threads.is_empty() {
            if exec::has_ended(pid) {
                return Err(AttachError::Ended { pid });
            }
            state = "all are in calls that cannot be interrupted unnoticed".to_owned();
        }
        for tid in threads.into_iter().take(TRIES) {
            let try_how = Try {
                again: !tried.insert(tid),
                spares_parents,
            };
            match attempt(tid, try_how)? {
                Ok(found) => return Ok(found),
                Err(objection) => {
                    *refused += 1;
                    state = format!("thread {tid}: {objection}");
                }
            }
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(ROUND.1);
    }
    Err(AttachError::NoPlace {
        pid,
        seconds: TIMEOUT.as_secs(),
        state,
    })
}

/// The threads that may be interrupted at all, best first. `spares_parents`: those that have children come
/// last. While a thread is traced, or blocks SIGCHLD, the end of a child of it is a signal to the others also
/// where it is ignored, by which calls of theirs come back with EINTR (`sig_ignored` of kernel/signal.c).
fn threads_by_preference(pid: Pid, spares_parents: bool) -> Option<Vec<Tid>> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let mut threads: Vec<_> = tasks
        .filter_map(|task| task.ok()?.file_name().to_str()?.parse().ok().map(Tid))
        .map(|tid| (safe_point::doing(pid, tid), tid))
        .filter(|(doing, _)| *doing != Doing::Else)
        .map(|(doing, tid)| {
            (
                spares_parents && safe_point::has_children(pid, tid),
                doing,
                tid,
            )
        })
        .collect();
    threads.sort_unstable();
    Some(threads.into_iter().map(|(.., tid)| tid).collect())
}

/// Stops one thread and keeps it if it is at a good place; gives since when it stands.
fn try_thread(pid: Pid, tid: Tid, judge: &mut Judge, try_how: Try) -> Attempt<(Tracee, Instant)> {
    const DOES_NOT_STOP: &str =
        "does not stop (in a call that cannot be interrupted, or without a processor)";
    const HAS_CHILDREN: &str = "has started processes, whose end would be a signal to others";
    let system = |source| AttachError::System {
        pid,
        step: "a thread of it cannot be stopped",
        source,
    };
    // It may have started one since the threads were put in order, and until it has stopped.
    let has_children = || try_how.spares_parents && safe_point::has_children(pid, tid);
    if has_children() {
        return Ok(Err(HAS_CHILDREN));
    }
    let mut tracee = match Tracee::seize(pid, tid) {
        Ok(tracee) => tracee,
        Err(e) => match e.raw_os_error() {
            // Threads come and go.
            Some(libc::ESRCH | libc::ENOENT) => return Ok(Err("has ended")),
            // The kernel has not let it go yet.
            Some(libc::EPERM) if try_how.again => return Ok(Err(DOES_NOT_STOP)),
            Some(libc::EPERM | libc::EACCES) => {
                return Err(target::traced(pid, tid).unwrap_or_else(|| target::forbidden(pid)));
            }
            _ => return Err(system(e)),
        },
    };
    let asked = Instant::now();
    match tracee.interrupt(STOP_TIME).map_err(system)? {
        Some(Stop::Interrupted) => {}
        Some(Stop::Group) => return Err(AttachError::Stopped { pid }),
        Some(_) => return Ok(Err("has ended")),
        None => return Ok(Err(DOES_NOT_STOP)),
    }
    let registers = tracee.registers().map_err(system)?;
    let objection = match has_children() {
        true => Some(HAS_CHILDREN),
        false => judge.objection(&tracee, &registers),
    };
    match objection {
        None => Ok(Ok((tracee, asked))),
        Some(objection) => {
            tracee.release().map_err(system)?;
            Ok(Err(objection))
        }
    }
}

/// Writes a path as a C string.
fn write_name(borrowed: &Borrowed, address: u64, path: &Path) -> Result<(), AttachError> {
    let mut bytes = path.as_os_str().as_bytes().to_vec();
    if bytes.len() > NAME_BYTES {
        let error = std::io::Error::from_raw_os_error(libc::ENAMETOOLONG);
        return Err(borrowed.failed("a path is too long for it", error));
    }
    bytes.push(0);
    borrowed.write(address, &bytes)
}

/// Has the dynamic linker load the agent. Gives its entrances.
fn load(
    target: &Target,
    images: &Images,
    agent: &Path,
    borrowed: &mut Borrowed,
    memory: u64,
) -> Result<Entrances, AttachError> {
    let pid = target.pid;
    let everywhere = |name| images.modules.iter().find_map(|m| images.symbol(m, name));
    // glibc before 2.34 has dlopen in a library that need not be loaded; libc's own is there.
    let dlopen = everywhere("dlopen")
        .or_else(|| everywhere("__libc_dlopen_mode"))
        .ok_or(AttachError::NoLoader { pid })?;
    let file = if target.sees(agent) {
        write_name(borrowed, memory + AGENT_AT, agent)?;
        None
    } else {
        Some(carry(pid, agent, borrowed, memory)?)
    };
    let flags = libc::RTLD_NOW as u64;
    let loaded = borrowed.call(dlopen, [memory + AGENT_AT, flags]);
    let reason = match everywhere("dlerror") {
        Some(dlerror) if matches!(loaded, Ok(0)) => {
            let text = borrowed.call(dlerror, [0, 0]);
            text.ok().and_then(|text| read_text(borrowed, text))
        }
        _ => None,
    };
    let closed = match file {
        Some(fd) if borrowed.is_stopped() => {
            borrowed.system_call(libc::SYS_close, [fd, 0, 0, 0, 0, 0])
        }
        _ => Ok(0),
    };
    let handle = loaded?;
    closed?;
    if handle == 0 {
        let reason = reason.unwrap_or_else(|| "it did not say why".to_owned());
        return Err(AttachError::Load { pid, reason });
    }
    let now = Images::read_besides(pid, &images.modules)
        .map_err(|e| borrowed.failed("its memory cannot be read", e))?;
    let module = now.agent().ok_or_else(|| AttachError::Load {
        pid,
        reason: "the library is not the agent".to_owned(),
    })?;
    Entrances::of(pid, &now, module)
}

/// A process that does not see the agent's file gets its content, in a file without a name. Gives its
/// descriptor in the process, and writes the path by which the dynamic linker finds it.
fn carry(pid: Pid, agent: &Path, borrowed: &mut Borrowed, memory: u64) -> Result<u64, AttachError> {
    borrowed.write(memory + AGENT_AT, b"libstackbeat.so\0")?;
    let arguments = [memory + AGENT_AT, libc::MFD_CLOEXEC.into(), 0, 0, 0, 0];
    let fd = borrowed.system_call(libc::SYS_memfd_create, arguments)?;
    if fd < 0 {
        let error = std::io::Error::from_raw_os_error(-fd as i32);
        return Err(borrowed.failed("no file for the agent can be made in it", error));
    }
    let copied = fs::read(agent).and_then(|content| {
        let path = format!("/proc/{pid}/fd/{fd}");
        File::options().write(true).open(path)?.write_all(&content)
    });
    copied.map_err(|e| borrowed.failed("the agent cannot be copied into it", e))?;
    let path = format!("/proc/self/fd/{fd}\0");
    borrowed.write(memory + AGENT_AT, path.as_bytes())?;
    Ok(fd as u64)
}

fn read_text(borrowed: &Borrowed, address: u64) -> Option<String> {
    let mut bytes = [0u8; 512];
    // The text may end just before memory that is not there.
    let length = (0..bytes.len())
        .take_while(|i| {
            let at = address + *i as u64;
            let byte = &mut bytes[*i..=*i];
            borrowed.read(at, byte).is_ok() && byte[0] != 0
        })
        .count();
    (length > 0).then(|| String::from_utf8_lossy(&bytes[..length]).into_owned())
}
