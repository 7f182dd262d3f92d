//! Starts the program as the shell would have without us: same descriptors, signal mask and
//! dispositions, process group, terminal, niceness and limits. The only differences are two variables
//! in its environment.
//!
//! `std::process::Command` is not used because it resets SIGPIPE, and because the Rust runtime has
//! already changed SIGPIPE and opened closed standard descriptors before `main`.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

/// What the process was given before the Rust runtime changed it: bit 0–2: that standard descriptor
/// was closed; bit 3: SIGPIPE was ignored; bit 4: the others are known.
static INHERITED: AtomicU32 = AtomicU32::new(0);
const SIGPIPE_IGNORED: u32 = 8;
const KNOWN: u32 = 16;

extern "C" fn note_inherited() {
    let mut found = KNOWN;
    for fd in 0..3 {
        // SAFETY: F_GETFD on any number is harmless.
        if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
            found |= 1 << fd;
        }
    }
    // SAFETY: an all-zero sigaction is valid, and the call only reads the disposition into it.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGPIPE, std::ptr::null(), &raw mut action);
        if action.sa_sigaction == libc::SIG_IGN {
            found |= SIGPIPE_IGNORED;
        }
    }
    INHERITED.store(found, Ordering::Relaxed);
}

/// The calling thread's errno. Also in a child of fork: it only reads.
fn last_errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// Runs before the Rust runtime does.
#[used]
// SAFETY: `.init_array` holds pointers to functions of this signature (gabi, "Initialization and
// Termination Functions"); extra arguments that glibc passes are ignored by the C ABI.
#[unsafe(link_section = ".init_array")]
static NOTE_INHERITED: extern "C" fn() = note_inherited;

/// The calling thread's signal state while the collector works: everything that it wants to hear of
/// is blocked and read from a descriptor; the program gets what was there before.
#[derive(Debug)]
pub(crate) struct SignalState {
    taken: libc::sigset_t,
    mask: libc::sigset_t,
    sigchld: libc::sigaction,
}

impl SignalState {
    /// Blocks `signals` in this thread, and sees to it that ended children can be waited for.
    pub(crate) fn take_over(signals: &[libc::c_int]) -> io::Result<SignalState> {
        let mut state = SignalState {
            taken: signal_set(signals),
            // SAFETY: both are plain data for which all zeros is valid.
            mask: unsafe { std::mem::zeroed() },
            // SAFETY: as above.
            sigchld: unsafe { std::mem::zeroed() },
        };
        // SAFETY: all pointers are to valid, distinct objects; SIG_DFL is a valid disposition.
        unsafe {
            if libc::pthread_sigmask(libc::SIG_BLOCK, &raw const state.taken, &raw mut state.mask)
                != 0
            {
                return Err(io::Error::last_os_error());
            }
            let mut default: libc::sigaction = std::mem::zeroed();
            default.sa_sigaction = libc::SIG_DFL;
            libc::sigaction(libc::SIGCHLD, &raw const default, &raw mut state.sigchld);
        }
        Ok(state)
    }
}

impl Drop for SignalState {
    fn drop(&mut self) {
        // What came too late to be handed on must not end us now that the trace is complete: a key
        // pressed twice, or the signal of a write beyond a limit.
        let at_once = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: both pointers are to valid objects, and no information is wanted.
        while unsafe {
            libc::sigtimedwait(
                &raw const self.taken,
                std::ptr::null_mut(),
                &raw const at_once,
            )
        } > 0
        {}
        // SAFETY: restores what `take_over` was given by the kernel.
        unsafe {
            libc::sigaction(libc::SIGCHLD, &raw const self.sigchld, std::ptr::null_mut());
            libc::pthread_sigmask(
                libc::SIG_SETMASK,
                &raw const self.mask,
                std::ptr::null_mut(),
            );
        }
    }
}

/// A set of these signals.
pub(crate) fn signal_set(signals: &[libc::c_int]) -> libc::sigset_t {
    // SAFETY: the set is initialized by sigemptyset; sigaddset refuses bad numbers.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in signals {
            libc::sigaddset(&raw mut set, *signal);
        }
        set
    }
}

/// What to start.
#[derive(Debug)]
pub(crate) struct Start<'a> {
    pub path: &'a Path,
    pub command: &'a [OsString],
    /// Added to LD_PRELOAD, in front.
    pub preload: Option<&'a Path>,
    /// Further variables.
    pub variables: &'a [(&'a str, &'a OsStr)],
}

/// A child of ours that has not been waited for yet.
#[derive(Debug)]
pub(crate) struct Child {
    pub pid: libc::pid_t,
    /// `None` on kernels before 5.3.
    pub pidfd: Option<OwnedFd>,
}

/// Everything the child needs, made before the fork: it may not allocate.
struct Image {
    path: CString,
    // Own the strings that the pointer arrays point into.
    _strings: Vec<CString>,
    argv: Vec<*const libc::c_char>,
    shell_argv: Vec<*const libc::c_char>,
    envp: Vec<*const libc::c_char>,
}

impl Image {
    fn new(start: &Start) -> io::Result<Image> {
        let c_string = |s: &OsStr| {
            CString::new(s.as_bytes()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))
        };
        let path = c_string(start.path.as_os_str())?;
        let mut strings = Vec::new();
        for argument in start.command {
            strings.push(c_string(argument)?);
        }
        let arguments = strings.len();
        for (name, value) in environment(start) {
            let mut both = name.into_vec();
            both.push(b'=');
            both.extend_from_slice(value.as_bytes());
            strings.push(c_string(OsStr::from_bytes(&both))?);
        }
        let pointers = |list: &[CString]| -> Vec<*const libc::c_char> {
            list.iter().map(|s| s.as_ptr()).collect()
        };
        let end = std::iter::once(std::ptr::null());
        let argv: Vec<_> = pointers(&strings[..arguments])
            .into_iter()
            .chain(end.clone())
            .collect();
        let envp = pointers(&strings[arguments..])
            .into_iter()
            .chain(end)
            .collect();
        const SHELL: &CStr = c"/bin/sh";
        let mut shell_argv = vec![SHELL.as_ptr(), path.as_ptr()];
        shell_argv.extend_from_slice(&argv[1..]);
        Ok(Image {
            path,
            _strings: strings,
            argv,
            shell_argv,
            envp,
        })
    }
}

/// The program's environment: ours, in the same order, with the preload and the variables.
fn environment(start: &Start) -> Vec<(OsString, OsString)> {
    const PRELOAD: &str = "LD_PRELOAD";
    let mut all: Vec<_> = std::env::vars_os()
        .filter(|(name, _)| start.variables.iter().all(|(own, _)| name != own))
        .collect();
    if let Some(agent) = start.preload {
        let mut value = agent.as_os_str().to_owned();
        match all.iter_mut().find(|(name, _)| name == PRELOAD) {
            Some((_, existing)) => {
                if !existing.is_empty() {
                    value.push(":");
                    value.push(&*existing);
                }
                *existing = value;
            }
            None => all.push((PRELOAD.into(), value)),
        }
    }
    for (name, value) in start.variables {
        all.push(((*name).into(), (*value).to_owned()));
    }
    all
}

/// Starts the program. When `exec` fails, its error is returned and no child is left.
pub(crate) fn spawn(start: &Start, state: &SignalState) -> io::Result<Child> {
    let image = Image::new(start)?;
    let (report_read, report_write) = pipe()?;
    let inherited = INHERITED.load(Ordering::Relaxed);
    // SAFETY: the child calls only async-signal-safe functions, allocates nothing, and ends in exec
    // or _exit.
    let pid = unsafe { libc::fork() };
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    if pid == 0 {
        // SAFETY: we are the child of the fork above.
        unsafe { become_program(&image, state, inherited, report_write.as_raw_fd()) }
    }
    drop(report_write);
    let mut code = [0u8; 4];
    // SAFETY: reads at most four bytes into the array.
    let got = unsafe { libc::read(report_read.as_raw_fd(), code.as_mut_ptr().cast(), 4) };
    if got == 4 {
        // SAFETY: waits for the child that has reported its failure and is about to end.
        unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
        return Err(io::Error::from_raw_os_error(i32::from_ne_bytes(code)));
    }
    // SAFETY: pidfd_open takes a pid and flags and returns a new descriptor or an error.
    let pidfd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let pidfd = i32::try_from(pidfd).ok().filter(|fd| *fd >= 0);
    Ok(Child {
        pid,
        // SAFETY: the descriptor is new and nobody else's.
        pidfd: pidfd.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }),
    })
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: the array has room for two descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: both descriptors are new and nobody else's.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}

/// The child's part: puts back what the collector and the Rust runtime changed, then execs.
///
/// # Safety
///
/// Only in a forked child.
unsafe fn become_program(
    image: &Image,
    state: &SignalState,
    inherited: u32,
    report: libc::c_int,
) -> ! {
    // SAFETY: async-signal-safe calls on objects that outlive them; the arrays end with a null.
    unsafe {
        if inherited & KNOWN != 0 {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = if inherited & SIGPIPE_IGNORED != 0 {
                libc::SIG_IGN
            } else {
                libc::SIG_DFL
            };
            libc::sigaction(libc::SIGPIPE, &raw const action, std::ptr::null_mut());
            for fd in 0..3 {
                if inherited & 1 << fd != 0 && fd != report {
                    libc::close(fd);
                }
            }
        }
        libc::sigaction(
            libc::SIGCHLD,
            &raw const state.sigchld,
            std::ptr::null_mut(),
        );
        libc::pthread_sigmask(
            libc::SIG_SETMASK,
            &raw const state.mask,
            std::ptr::null_mut(),
        );
        libc::execve(
            image.path.as_ptr(),
            image.argv.as_ptr(),
            image.envp.as_ptr(),
        );
        let mut error = last_errno();
        if error == libc::ENOEXEC {
            // execvp gives what the kernel does not know to the shell.
            libc::execve(
                image.shell_argv[0],
                image.shell_argv.as_ptr(),
                image.envp.as_ptr(),
            );
            error = last_errno();
        }
        libc::write(report, (&raw const error).cast(), 4);
        libc::_exit(127)
    }
}
