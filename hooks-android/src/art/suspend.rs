//! ART's own way to suspend one thread: by its number in ART, until it is resumed.
//!
//! Whoever is suspended may hold any lock, malloc's above all. So between `suspend` and `resume` the caller
//! allocates nothing, takes no lock, and writes nothing. Only threads of the machine may call these two, from
//! native code.

use core::ffi::c_void;
use core::sync::atomic::{AtomicPtr, Ordering};

use super::library::Art;
use super::versions::Function;

static LIST: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// A hook has seen ART's list of threads.
pub(crate) fn found(list: *mut c_void) {
    LIST.store(list, Ordering::Release);
}

/// ART's list of threads, once a hook has seen it.
pub(crate) fn list() -> Option<*mut c_void> {
    Some(LIST.load(Ordering::Acquire)).filter(|list| !list.is_null())
}

/// `SuspendReason::kInternal`.
const INTERNAL: u8 = 0;
/// Versions whose function is of this type.
const VERSIONS: core::ops::RangeInclusive<u8> = 9..=14;

type SuspendThread = unsafe extern "C" fn(*mut c_void, u32, u8, *mut bool) -> *mut c_void;
type ResumeThread = unsafe extern "C" fn(*mut c_void, *mut c_void, u8) -> bool;

/// ART's functions, and its list of threads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Suspension {
    suspend: SuspendThread,
    resume: ResumeThread,
    list: usize,
}

/// What came of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Suspended {
    /// It stands still. ART's `Thread*`.
    Yes(*mut c_void),
    /// There is no such thread any more.
    Gone,
    /// It did not come to a place where it could be suspended, for seconds.
    GivenUp,
}

impl Suspension {
    /// ART's functions for it.
    ///
    /// # Errors
    /// Why single threads cannot be suspended.
    pub(crate) fn find(art: &Art) -> Result<Suspension, &'static str> {
        let (Some(suspend), Some(resume)) = (
            art.address(Function::SuspendThread),
            art.address(Function::ResumeThread),
        ) else {
            return Err("this ART does not have it");
        };
        if !VERSIONS.contains(&art.version) {
            return Err("this version's way to suspend one thread is not known");
        }
        let list = list().ok_or("ART's list of threads was not found")?;
        // SAFETY: functions of these types, as the table of versions has them.
        let (suspend, resume) = unsafe {
            (
                core::mem::transmute::<*mut c_void, SuspendThread>(suspend),
                core::mem::transmute::<*mut c_void, ResumeThread>(resume),
            )
        };
        Ok(Suspension {
            suspend,
            resume,
            list: list.expose_provenance(),
        })
    }

    fn list(&self) -> *mut c_void {
        core::ptr::with_exposed_provenance_mut(self.list)
    }

    /// Suspends the thread with this number, which is another one.
    ///
    /// # Safety
    /// The calling thread is the machine's, and runs native code. [`Suspended::Yes`] is resumed.
    pub(crate) unsafe fn suspend(&self, id: u32) -> Suspended {
        let mut timed_out = false;
        // SAFETY: by contract.
        let thread = unsafe { (self.suspend)(self.list(), id, INTERNAL, &raw mut timed_out) };
        match (thread.is_null(), timed_out) {
            (false, _) => Suspended::Yes(thread),
            (true, false) => Suspended::Gone,
            (true, true) => Suspended::GivenUp,
        }
    }

    /// # Safety
    /// `suspend` gave it, once.
    pub(crate) unsafe fn resume(&self, thread: *mut c_void) {
        // SAFETY: by contract.
        unsafe { (self.resume)(self.list(), thread, INTERNAL) };
    }
}
