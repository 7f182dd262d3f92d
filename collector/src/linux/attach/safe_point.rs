//! Whether a stopped thread is at a place where it may call `dlopen` for us.
//!
//! `dlopen` allocates and takes the dynamic linker's locks. A thread that is inside malloc or the dynamic
//! linker holds a lock or has a structure half changed, so its stack is unwound and checked frame by
//! frame. A thread inside a blocking system call is best: nothing of its own is half done. One that is
//! running is good when it is in code of the program, with nothing of libc under way but what calls back.
//! All other threads go on: a lock that one of them holds is waited for as ever.

use stackbeat_core::ids::{Pid, Tid};
use stackbeat_core::unwind::walk::Stack;
use stackbeat_core::unwind::{self, Start, WalkEnd};

use super::image::{Functions, Images};
use super::tracee::Tracee;
use super::way_back::Registers;
use crate::linux::procfs::{self, InCall};
use crate::linux::remote_unwind::Module;

/// Frames that are checked.
const DEPTH: usize = 512;

/// What a thread does, by /proc, before it is stopped. In the order of preference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Doing {
    /// Waits in a call that goes on as if nothing had happened.
    Waiting,
    /// Waits in a call that begins anew, with the whole of its timeout.
    WaitingAnew,
    Running,
    /// In a call that would come back short, or cannot be interrupted.
    Else,
}

/// Calls that the kernel continues or restarts, with what is left of their timeouts.
const CONTINUED: [i64; 24] = [
    libc::SYS_futex,
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_select,
    libc::SYS_pselect6,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_restart_syscall,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_pause,
    libc::SYS_rt_sigsuspend,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_recvmsg,
    libc::SYS_recvfrom,
    libc::SYS_flock,
    libc::SYS_fcntl,
    libc::SYS_msgrcv,
    libc::SYS_mq_timedreceive,
    libc::SYS_openat,
    libc::SYS_semop,
];

/// Calls that begin anew (`tracee::GIVES_EINTR`).
const ANEW: [i64; 5] = [
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_semtimedop,
    libc::SYS_rt_sigtimedwait,
];

/// What a thread does at the moment.
pub(super) fn doing(pid: Pid, tid: Tid) -> Doing {
    let (call, arguments) = match procfs::in_call(pid, tid) {
        Ok(InCall::Running) => return Doing::Running,
        Ok(InCall::Call {
            number, arguments, ..
        }) => (number, arguments),
        Ok(InCall::Elsewhere { .. }) | Err(_) => return Doing::Else,
    };
    if matches!(call, libc::SYS_recvfrom | libc::SYS_recvmsg) {
        let flags = arguments[if call == libc::SYS_recvfrom { 3 } else { 2 }];
        if flags & libc::MSG_WAITALL as u64 != 0 {
            return Doing::Else;
        }
    }
    if CONTINUED.contains(&call) {
        Doing::Waiting
    } else if matches!(call, libc::SYS_epoll_wait | libc::SYS_epoll_pwait)
        && arguments[3] as i32 == -1
    {
        // Without a timeout there is nothing to lose.
        Doing::Waiting
    } else if ANEW.contains(&call) {
        Doing::WaitingAnew
    } else {
        Doing::Else
    }
}

/// Whether a thread has started processes that are not waited for yet (proc(5), `children`); false where the
/// kernel does not say.
pub(super) fn has_children(pid: Pid, tid: Tid) -> bool {
    let children = std::fs::read(format!("/proc/{pid}/task/{tid}/children"));
    children.is_ok_and(|children| !children.is_empty())
}

/// Functions of libc in which a thread may hold locks that `dlopen` needs, or leave a structure half
/// changed that it uses.
const UNSAFE: &[&str] = &[
    "malloc",
    "calloc",
    "realloc",
    "reallocarray",
    "free",
    "cfree",
    "memalign",
    "aligned_alloc",
    "posix_memalign",
    "valloc",
    "pvalloc",
    "malloc_trim",
    "malloc_stats",
    "malloc_info",
    "mallinfo",
    "mallinfo2",
    "mallopt",
    "fork",
    "_Fork",
    "vfork",
    "daemon",
    "forkpty",
    "pthread_create",
    "thrd_create",
    "pthread_exit",
    "thrd_exit",
    "pthread_atfork",
    "pthread_key_create",
    "dlopen",
    "dlmopen",
    "dlclose",
    "dlsym",
    "dlvsym",
    "dlerror",
    "dladdr",
    "dladdr1",
    "dlinfo",
    "dl_iterate_phdr",
    "exit",
    "quick_exit",
    "_exit",
    "_Exit",
    "__cxa_atexit",
    "__cxa_finalize",
    "on_exit",
    "at_quick_exit",
    "sigaction",
    "signal",
    "iconv_open",
    "iconv_close",
    "getaddrinfo",
    "setlocale",
];

/// Judges stopped threads of one process.
pub(super) struct Judge<'a> {
    images: &'a Images,
    libc: &'a Module,
    functions: &'a Functions,
    /// Those of the agent.
    hooks: &'a Functions,
    stack: Box<Stack>,
    /// The program brings its own malloc: where it is inside that is not known.
    own_malloc: bool,
    /// The dynamic linker and allocators.
    forbidden: Vec<(u64, u64)>,
    /// The agent, when it is loaded already.
    agent: (u64, u64),
}

/// What a frame is in.
enum Frame<'a> {
    Program,
    /// Of libc, with its exported names.
    Libc(Vec<&'a str>),
    Forbidden,
}

impl<'a> Judge<'a> {
    pub(super) fn new(
        images: &'a Images,
        libc: &'a Module,
        functions: &'a Functions,
        hooks: &'a Functions,
    ) -> Judge<'a> {
        let executable = images.modules.first();
        let agent = images.agent();
        let own_malloc = executable.is_some_and(|m| images.symbol(m, "malloc").is_some());
        Judge {
            images,
            libc,
            functions,
            hooks,
            stack: Stack::boxed(),
            own_malloc,
            agent: agent.map_or((0, 0), |m| (m.start, m.end)),
            forbidden: images
                .modules
                .iter()
                .skip(1)
                .filter(|m| {
                    !std::ptr::eq(*m, libc)
                        && !agent.is_some_and(|agent| std::ptr::eq(*m, agent))
                        && (images.is_loader(m) || images.symbol(m, "malloc").is_some())
                })
                .map(|m| (m.start, m.end))
                .collect(),
        }
    }

    /// Why the thread must not call `dlopen` where it is; `None`: it may.
    pub(super) fn objection(
        &mut self,
        tracee: &Tracee,
        registers: &Registers,
    ) -> Option<&'static str> {
        let call = registers.orig_rax as i64;
        let in_call = CONTINUED.contains(&call) || ANEW.contains(&call);
        if !in_call && tracee.is_in_restartable_sequence(registers) {
            return Some("inside a restartable sequence");
        }
        if tracee.has_faulted() {
            return Some("about to handle a fault");
        }
        let from = unwind::Registers {
            pc: registers.rip,
            sp: registers.rsp,
            fp: registers.rbp,
            lr: 0,
            saved: [
                registers.rbx,
                registers.r12,
                registers.r13,
                registers.r14,
                registers.r15,
            ],
            is_wild: false,
        };
        self.stack.forget();
        let start = Start {
            registers: &from,
            exact: true,
            high: 0,
            skip: (0, 0),
        };
        let images = self.images;
        let end = self.stack.walk(&start, DEPTH, &images, &mut { images });
        if end == WalkEnd::BadStack {
            return Some("on a stack that cannot be followed");
        }
        // Leaf first.
        let frames: Vec<Frame> = self
            .stack
            .frames()
            .iter()
            .rev()
            .map(|f| self.frame(if f.is_exact() { f.pc } else { f.pc - 1 }))
            .collect();
        if frames.iter().any(|f| matches!(f, Frame::Forbidden)) {
            return Some("inside the dynamic linker or an allocator");
        }
        // Between a hook and its original nothing of the agent is under way.
        if (self.agent.0..self.agent.1).contains(&registers.rip) {
            return Some("inside the agent");
        }
        let is_unsafe = |f: &Frame| match f {
            Frame::Libc(names) => names.iter().any(|n| UNSAFE.contains(n)),
            _ => false,
        };
        if frames.iter().any(is_unsafe) {
            return Some("inside malloc or the like");
        }
        let leaf_run = frames.iter().take_while(|f| matches!(f, Frame::Libc(_)));
        let depth = leaf_run.count();
        match (in_call, depth) {
            (true, 0) => None,
            (true, _) => {
                let named = match &frames[depth - 1] {
                    Frame::Libc(names) if !names.is_empty() => names.clone(),
                    // An exported function has left for one that has no name by a jump: sem_wait does so, and
                    // malloc.
                    _ => self.called_names(depth),
                };
                if named.is_empty() {
                    Some("in a function of libc that is not known")
                } else if named.iter().any(|name| UNSAFE.contains(name)) {
                    Some("inside malloc or the like")
                } else {
                    None
                }
            }
            (false, 0) if self.own_malloc => Some("perhaps inside the program's own malloc"),
            (false, 0) => None,
            (false, _) => Some("inside libc"),
        }
    }

    /// The names of the function of libc, or of the hook in its place, that the frame at this depth from the
    /// leaf has called; none: that is not to be seen.
    fn called_names(&self, depth: usize) -> Vec<&'a str> {
        let frames = self.stack.frames();
        let Some(caller) = frames.len().checked_sub(depth + 1).map(|at| frames[at].pc) else {
            return Vec::new();
        };
        let names = |function| -> Vec<&'a str> {
            if self.libc.contains(function) {
                self.functions.at(function).collect()
            } else if (self.agent.0..self.agent.1).contains(&function) {
                self.hooks.at(function).collect()
            } else {
                Vec::new()
            }
        };
        let called = self.images.called_before(caller).map(names);
        // A hook calls the original by its address.
        called
            .filter(|names| !names.is_empty())
            .unwrap_or_else(|| names(caller - 1))
    }

    fn frame(&self, address: u64) -> Frame<'a> {
        let is_forbidden = self
            .forbidden
            .iter()
            .any(|(start, end)| (*start..*end).contains(&address));
        if self.libc.contains(address) {
            Frame::Libc(self.functions.at(address).collect())
        } else if is_forbidden {
            Frame::Forbidden
        } else {
            Frame::Program
        }
    }
}
