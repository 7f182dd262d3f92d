//! Finds the agent's functions in the process, once.

use core::ffi::{CStr, c_char, c_void};
use core::mem::transmute;
use core::sync::atomic::{AtomicUsize, Ordering};

type Event = unsafe extern "C" fn(kind: u32, name: *const c_char, length: usize, value: i64);
type Capture = unsafe extern "C" fn();

unsafe extern "C" {
    pub(crate) fn dlsym(handle: *mut c_void, symbol: *const c_char) -> *mut c_void;
}

/// Every library of the process. glibc, musl, bionic: `dlfcn.h`; Apple has another value.
#[cfg(not(target_vendor = "apple"))]
pub(crate) const RTLD_DEFAULT: *mut c_void = core::ptr::null_mut();
#[cfg(target_vendor = "apple")]
pub(crate) const RTLD_DEFAULT: *mut c_void = core::ptr::without_provenance_mut(-2isize as usize);

/// There is no agent.
const NONE: usize = 1;

/// A function that is looked for on first use: 0 before, `NONE`, or its address.
struct Slot(AtomicUsize);

// Whoever attaches to the program finds these slots by their section.
// SAFETY: sections of their own, of the kind that the statics need.
#[cfg_attr(
    any(target_os = "linux", target_os = "android"),
    unsafe(link_section = "stackbeat_v1_event")
)]
static EVENT: Slot = Slot(AtomicUsize::new(0));
// SAFETY: as above.
#[cfg_attr(
    any(target_os = "linux", target_os = "android"),
    unsafe(link_section = "stackbeat_v1_capture")
)]
static CAPTURE: Slot = Slot(AtomicUsize::new(0));

impl Slot {
    #[inline]
    fn find(&self, symbol: &CStr) -> Option<usize> {
        match self.0.load(Ordering::Relaxed) {
            0 => self.look(symbol),
            NONE => None,
            address => Some(address),
        }
    }

    #[cold]
    fn look(&self, symbol: &CStr) -> Option<usize> {
        // SAFETY: the symbol is a C string; a missing one gives null.
        let found = unsafe { dlsym(RTLD_DEFAULT, symbol.as_ptr()) } as usize;
        let found = if found == 0 { NONE } else { found };
        // An agent that came meanwhile has filled it in.
        let kept = self
            .0
            .compare_exchange(0, found, Ordering::Relaxed, Ordering::Relaxed)
            .map_or_else(|other| other, |_| found);
        (kept != NONE).then_some(kept)
    }
}

pub(crate) fn is_active() -> bool {
    EVENT.find(c"stackbeat_v1_event").is_some()
}

#[inline]
pub(crate) fn event(kind: u32, name: &str, value: i64) {
    if let Some(address) = EVENT.find(c"stackbeat_v1_event") {
        // SAFETY: the agent's function of this name has this type in every version (v1), and reads
        // `length` bytes at `name`.
        unsafe {
            transmute::<usize, Event>(address)(kind, name.as_ptr().cast(), name.len(), value);
        }
    }
}

#[inline]
pub(crate) fn capture() {
    if let Some(address) = CAPTURE.find(c"stackbeat_v1_capture") {
        // SAFETY: as above; it takes no arguments.
        unsafe { transmute::<usize, Capture>(address)() };
    }
}
