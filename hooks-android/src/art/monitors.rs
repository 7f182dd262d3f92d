//! Who holds a monitor. Where it says so differs from version to version; both places are found by looking: a
//! thread that has just entered a monitor is its owner, and a thread's number stands in its `Thread`.

use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use stackbeat_core::platform;

/// Words of a `Monitor`, from its begin, that are looked at; it has more.
const MONITOR_WORDS: u32 = 20;
/// Half words of a `Thread` that are looked at.
const THREAD_HALVES: u32 = 32;

/// Bits of the places that are still possible.
static OWNER: AtomicU32 = AtomicU32::new((1 << MONITOR_WORDS) - 1);
static TID: AtomicU32 = AtomicU32::new(u32::MAX);

/// The only one of these bits; `None`: there are several, or none.
fn only(bits: u32) -> Option<u32> {
    (bits.count_ones() == 1).then(|| bits.trailing_zeros())
}

/// The calling thread has entered this monitor.
pub(crate) fn learn(monitor: *mut c_void, thread: *mut c_void) {
    let places = OWNER.load(Ordering::Relaxed);
    if only(places).is_none() {
        let is_owner = |place: &u32| {
            // SAFETY: inside the monitor, which is the calling thread's.
            let word = unsafe { monitor.cast::<u64>().add(*place as usize).read_volatile() };
            places & 1 << place != 0 && word == thread.addr() as u64
        };
        let found = (0..MONITOR_WORDS)
            .filter(is_owner)
            .fold(0, |bits, place| bits | 1 << place);
        OWNER.fetch_and(found, Ordering::Relaxed);
    }
    learn_thread(thread);
}

/// The calling thread is this one.
pub(crate) fn learn_thread(thread: *mut c_void) {
    if thread.is_null() {
        return;
    }
    let places = TID.load(Ordering::Relaxed);
    if only(places).is_none() {
        // SAFETY: no arguments.
        let tid = unsafe { libc::gettid() }.cast_unsigned();
        let is_tid = |place: &u32| {
            // SAFETY: inside the calling thread's own.
            let half = unsafe { thread.cast::<u32>().add(*place as usize).read_volatile() };
            places & 1 << place != 0 && half == tid
        };
        let found = (0..THREAD_HALVES)
            .filter(is_tid)
            .fold(0, |bits, place| bits | 1 << place);
        TID.fetch_and(found, Ordering::Relaxed);
    }
}

/// Half words of a `Monitor` that may have its number.
static ID: AtomicU64 = AtomicU64::new((1 << (2 * MONITOR_WORDS)) - 1);

/// The number of an object's monitor; 0: it has none.
///
/// mirror/object.h: a compressed class and the lock word, of 32 bits each. lock_word.h: the two highest bits
/// are 1 for a monitor, whose number the lowest 28 bits are.
pub(crate) fn id_of(object: *mut c_void) -> u32 {
    if object.is_null() {
        return 0;
    }
    // SAFETY: an object that the caller has from ART in this moment, and may look at.
    let word = unsafe { object.cast::<u32>().add(1).read_volatile() };
    match word >> 30 {
        1 => word & 0x0fff_ffff,
        _ => 0,
    }
}

/// The monitor has this number (0: not known).
pub(crate) fn learn_id(monitor: *mut c_void, id: u32) {
    let places = ID.load(Ordering::Relaxed);
    if id == 0 || places.count_ones() == 1 {
        return;
    }
    let is_id = |place: &u32| {
        // SAFETY: inside the monitor, which the calling thread holds.
        let half = unsafe { monitor.cast::<u32>().add(*place as usize).read_volatile() };
        half == id
    };
    let found = (0..2 * MONITOR_WORDS)
        .filter(is_id)
        .fold(0, |bits, place| bits | 1 << place);
    ID.fetch_and(found, Ordering::Relaxed);
}

/// A monitor's number; 0: it is not known where that stands.
pub(crate) fn id(monitor: *mut c_void) -> u32 {
    let places = ID.load(Ordering::Relaxed);
    if places.count_ones() != 1 {
        return 0;
    }
    // SAFETY: inside the monitor, which the calling thread holds.
    unsafe {
        monitor
            .cast::<u32>()
            .add(places.trailing_zeros() as usize)
            .read_volatile()
    }
}

/// What stands for the waiters of the monitor with this number, which are not those of its lock; 0: not
/// known.
pub(crate) fn waiters(id: u32) -> u64 {
    match id {
        0 => 0,
        id => u64::from(id) << 1 | 1,
    }
}

/// The number of the thread that holds this monitor; 0: nobody, the calling thread, or it is not known.
pub(crate) fn owner_tid(monitor: *mut c_void, thread: *mut c_void) -> u32 {
    let (owner_place, tid_place) = (
        only(OWNER.load(Ordering::Relaxed)),
        only(TID.load(Ordering::Relaxed)),
    );
    let (Some(owner_place), Some(tid_place)) = (owner_place, tid_place) else {
        return 0;
    };
    // SAFETY: inside the monitor, which the caller enters.
    let owner = unsafe {
        monitor
            .cast::<u64>()
            .add(owner_place as usize)
            .read_volatile()
    };
    if owner == 0 || owner == thread.addr() as u64 {
        return 0;
    }
    // The owner may end in this moment, so the kernel reads.
    let mut tid = [0; 4];
    let at = owner + 4 * u64::from(tid_place);
    match platform::read_memory(platform::process_id(), at, &mut tid) {
        Ok(4) => u32::from_ne_bytes(tid),
        _ => 0,
    }
}

/// ART's own number of a thread, which stands before the kernel's (runtime/thread.h, `tls32_`, until Android
/// 14); `None`: it is not known where.
pub(crate) fn thin_lock_id(thread: *mut c_void) -> Option<u32> {
    let place = only(TID.load(Ordering::Relaxed))?.checked_sub(1)?;
    // SAFETY: inside the calling thread's own.
    Some(unsafe { thread.cast::<u32>().add(place as usize).read_volatile() })
}

/// Where a monitor has its owner (words) and its number (half words), and a thread the kernel's number (half
/// words); -1: not known.
#[cfg(feature = "rig")]
pub(crate) fn places() -> [(&'static str, i64); 3] {
    let [owner, tid] = [&OWNER, &TID].map(|bits| u64::from(bits.load(Ordering::Relaxed)));
    let place = |bits: u64| match bits.count_ones() {
        1 => bits.trailing_zeros().into(),
        _ => -1,
    };
    [
        ("owner-at", place(owner)),
        ("tid-at", place(tid)),
        ("id-at", place(ID.load(Ordering::Relaxed))),
    ]
}
