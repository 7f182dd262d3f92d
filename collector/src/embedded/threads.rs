//! Threads of the session inside the program: no hook knows them, no signal of the program's reaches them,
//! and its descriptors are not theirs.

use std::ffi::{CString, c_int, c_void};
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use stackbeat_core::platform;

use super::{OwnThread, system};
use crate::session::own_threads;

/// Drains decode and encode in their own memory; names of functions take the deepest calls.
const STACK_BYTES: usize = 1 << 20;

/// A thread that was started.
pub(super) struct Thread {
    /// 1 once it is over; a futex word.
    is_over: Arc<AtomicU32>,
}

impl Thread {
    /// Waits for its end.
    pub(super) fn join(self) {
        while self.is_over.load(Ordering::Acquire) == 0 {
            platform::wait(&self.is_over, 0, None);
        }
    }
}

type Job = Box<dyn FnOnce() + Send>;

/// A thread that waits for what it is to do. Threads are started by the program's own thread:
/// `pthread_create` takes memory of the program's malloc, and an allocator may keep books on each thread that
/// comes there.
pub(super) struct Waiting {
    thread: Option<Thread>,
    job: Arc<(Mutex<Option<Job>>, AtomicU32)>,
}

impl Waiting {
    /// Starts one.
    pub(super) fn start(name: &str, own_thread: OwnThread) -> io::Result<Waiting> {
        let job: Arc<(Mutex<Option<Job>>, AtomicU32)> = Arc::default();
        let of_thread = Arc::clone(&job);
        let thread = start(name, own_thread, move || {
            let (job, is_given) = &*of_thread;
            while is_given.load(Ordering::Acquire) == 0 {
                platform::wait(is_given, 0, None);
            }
            let job = job.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(job) = job {
                job();
            }
        })?;
        Ok(Waiting {
            thread: Some(thread),
            job,
        })
    }

    /// Gives it something to do. What is dropped has nothing to do, and ends.
    pub(super) fn run(mut self, job: impl FnOnce() + Send + 'static) -> Option<Thread> {
        let (slot, _) = &*self.job;
        *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(job));
        self.thread.take()
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let (_, is_given) = &*self.job;
        is_given.store(1, Ordering::Release);
        platform::wake(is_given, 1);
    }
}

struct Begin {
    own_thread: OwnThread,
    name: CString,
    run: Box<dyn FnOnce() + Send>,
    is_over: Arc<AtomicU32>,
}

/// Starts a thread. Not by the standard library's means: what these do first would be seen by hooks.
pub(super) fn start(
    name: &str,
    own_thread: OwnThread,
    run: impl FnOnce() + Send + 'static,
) -> io::Result<Thread> {
    let is_over = Arc::new(AtomicU32::new(0));
    let begin = Box::new(Begin {
        own_thread,
        name: CString::new(name)?,
        run: Box::new(run),
        is_over: Arc::clone(&is_over),
    });
    let begin = Box::into_raw(begin);
    // A new thread begins with the mask of its creator. No signal of the program's may find it: the handler
    // would run where no hook knows it, and the program would wait for an answer.
    let before = system::block_signals();
    // SAFETY: the attributes are initialized before their use; the thread takes over what `begin` points to.
    let error = unsafe {
        let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
        let mut thread: libc::pthread_t = 0;
        libc::pthread_attr_init(&raw mut attributes);
        libc::pthread_attr_setstacksize(&raw mut attributes, STACK_BYTES);
        libc::pthread_attr_setdetachstate(&raw mut attributes, libc::PTHREAD_CREATE_DETACHED);
        let error =
            libc::pthread_create(&raw mut thread, &raw const attributes, enter, begin.cast());
        libc::pthread_attr_destroy(&raw mut attributes);
        error
    };
    system::restore_signals(before);
    if error != 0 {
        // SAFETY: nobody has taken it over.
        drop(unsafe { Box::from_raw(begin) });
        return Err(io::Error::from_raw_os_error(error));
    }
    Ok(Thread { is_over })
}

extern "C" fn enter(begin: *mut c_void) -> *mut c_void {
    // SAFETY: `start` has handed it over.
    let begin = unsafe { Box::from_raw(begin.cast::<Begin>()) };
    (begin.own_thread)();
    own_threads::enter();
    system::enter_thread(&begin.name);
    let run = begin.run;
    // What panics has said so; the session ends without it.
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
    system::leave_thread();
    own_threads::leave();
    begin.is_over.store(1, Ordering::Release);
    platform::wake(&begin.is_over, c_int::MAX as u32);
    std::ptr::null_mut()
}
