//! What keeps the recorder alive when somebody cuts the mapping's file off: the program may, as anybody with
//! its rights who opens the file. Touching what was cut off raises SIGBUS.
//!
//! The handler gives the file its length back, so what was cut off reads as zeros, here and in the program,
//! and notes it. The session then captures no more and ends with what is in the trace.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicUsize, Ordering};

use stackbeat_core::platform;
use stackbeat_core::shm::mapping::Mapping;

/// Sessions of one process at a time; those beyond are not guarded.
const SLOTS: usize = 64;

/// A guarded mapping.
struct Slot {
    is_taken: AtomicBool,
    base: AtomicPtr<u8>,
    bytes: AtomicUsize,
    fd: AtomicI32,
    was_cut: AtomicBool,
}

static GUARDED: [Slot; SLOTS] = [const {
    Slot {
        is_taken: AtomicBool::new(false),
        base: AtomicPtr::new(std::ptr::null_mut()),
        bytes: AtomicUsize::new(0),
        fd: AtomicI32::new(-1),
        was_cut: AtomicBool::new(false),
    }
}; SLOTS];

/// Guards a mapping until it is dropped, which must be before the mapping is.
#[derive(Debug)]
pub(super) struct Guard {
    slot: Option<usize>,
}

impl Guard {
    /// Guards this mapping.
    pub(super) fn new(mapping: &Mapping) -> Guard {
        static INSTALL: Once = Once::new();
        INSTALL.call_once(install);
        let free = |slot: &Slot| !slot.is_taken.swap(true, Ordering::AcqRel);
        let slot = GUARDED.iter().position(free);
        if let Some(slot) = slot.and_then(|i| GUARDED.get(i)) {
            let (base, bytes, fd) = mapping.file();
            slot.base.store(base, Ordering::Relaxed);
            slot.fd.store(fd, Ordering::Relaxed);
            slot.was_cut.store(false, Ordering::Relaxed);
            slot.bytes.store(bytes, Ordering::Release);
        }
        Guard { slot }
    }

    /// Whether the file has been cut off so far; gives it its length back if it is too short now.
    pub(super) fn was_cut(&self) -> bool {
        let Some(slot) = self.slot.and_then(|i| GUARDED.get(i)) else {
            return false;
        };
        slot.restore();
        slot.was_cut.load(Ordering::Acquire)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.and_then(|i| GUARDED.get(i)) {
            slot.bytes.store(0, Ordering::Release);
            slot.is_taken.store(false, Ordering::Release);
        }
    }
}

impl Slot {
    /// Gives the file its length back. True: it was too short, and has it now.
    fn restore(&self) -> bool {
        let (bytes, fd) = (
            self.bytes.load(Ordering::Acquire) as u64,
            self.fd.load(Ordering::Relaxed),
        );
        let is_short = platform::file_size_and_owner(fd).is_ok_and(|(size, _)| size < bytes);
        if is_short {
            self.was_cut.store(true, Ordering::Release);
        }
        is_short && platform::set_length(fd, bytes).is_ok()
    }

    /// Whether an address that faulted is readable now.
    fn mend(&self, address: usize) -> bool {
        let base = self.base.load(Ordering::Relaxed);
        let offset = address.wrapping_sub(base.addr());
        if offset >= self.bytes.load(Ordering::Acquire) {
            return false;
        }
        if self.restore() {
            return true;
        }
        self.was_cut.store(true, Ordering::Release);
        // No storage can be had for the page: zeros of our own.
        let bytes = platform::page_bytes();
        let page = base.wrapping_add(offset / bytes * bytes);
        // SAFETY: a page of the mapping, where everything is atomics for which zeros are valid.
        unsafe { platform::map_zeros_over(page, bytes) }.is_ok()
    }
}

/// Installs the handler, in front of the default.
fn install() {
    // SAFETY: plain data for which all zeros is valid.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_fault as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: the handler makes system calls and touches atomics only.
    unsafe { libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut()) };
}

extern "C" fn on_fault(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    _context: *mut libc::c_void,
) {
    // SAFETY: the kernel gives a valid siginfo, and of a fault its address.
    let address = unsafe { (*info).si_addr() }.addr();
    if !GUARDED.iter().any(|slot| slot.mend(address)) {
        // SAFETY: sets the default, which takes the fault when the instruction runs again.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stackbeat_core::shm::layout::Capacity;
    use std::ffi::CString;
    use std::path::PathBuf;

    fn mapping(name: &str) -> (PathBuf, Mapping) {
        let path = PathBuf::from(format!(
            "/dev/shm/stackbeat-test.{name}.{}",
            std::process::id()
        ));
        let c_path = CString::new(path.to_string_lossy().into_owned()).expect("no NUL");
        let mapping = Mapping::create(&c_path, Capacity::default()).expect("made");
        (path, mapping)
    }

    #[test]
    fn a_file_that_was_cut_off_reads_as_zeros() {
        let (path, mapping) = mapping("cut");
        let guard = Guard::new(&mapping);
        assert!(!guard.was_cut());
        let file = std::fs::OpenOptions::new().write(true).open(&path);
        let file = file.expect("opened");
        for length in [0, 4096, 100_000] {
            file.set_len(length).expect("cut");
            let last = mapping.layout().capacity.buffers - 1;
            let words = mapping.buffer_words(last).expect("there");
            assert_eq!(words[1].load(Ordering::Relaxed), 0);
            words[1].store(7, Ordering::Relaxed);
            assert_eq!(words[1].load(Ordering::Relaxed), 7);
            assert!(guard.was_cut());
            let whole = file.metadata().expect("there").len();
            assert_eq!(whole, mapping.layout().total as u64);
        }
        std::fs::remove_file(&path).expect("removed");
    }
}
