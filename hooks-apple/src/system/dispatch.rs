//! libdispatch: semaphores, groups, and work that is handed to queues.
//!
//! Source: libdispatch's dispatch/queue.h, semaphore.h, group.h, time.h. A function for a block and its twin
//! for a function (`…_f`) do the same with their work.
//!
//! # Work that is handed over
//!
//! The hook hands over a function of its own with the work in a record of [`POOL`]. So it is seen when the
//! work begins, and on which thread: an event of a flow where it was handed over, with a capture of that
//! stack, and one where it begins. When all records are in use, and for blocks that are more than code, the
//! work is handed over as it is.
//!
//! # Work that is waited for
//!
//! Until work of `dispatch_sync` begins on the calling thread, that thread waits. If another thread runs it,
//! as the main thread does for its queue, the caller waits until its end, and that thread is who ends the
//! wait.

use super::*;
use core::cell::Cell;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};
use stackbeat_core::agent::WaitFor;
use stackbeat_core::posix::function_table::errno;
use stackbeat_core::{function_of_table, platform};

use super::blocks;

/// `dispatch_function_t`.
type Work = unsafe extern "C-unwind" fn(*mut c_void);
/// dispatch/time.h, `DISPATCH_TIME_NOW` and `DISPATCH_TIME_FOREVER`.
const NOW: u64 = 0;
const FOREVER: u64 = u64::MAX;

/// Numbers of `stackbeat.v1.Event.Kind`.
const FLOW_BEGIN: u8 = 7;
const FLOW_END: u8 = 9;

static IS_ON: AtomicBool = AtomicBool::new(false);

/// From here on work is followed.
pub(super) fn begin() {
    IS_ON.store(true, Ordering::Release);
}

/// Work that is under way comes to its end as it was handed over.
pub(super) fn end() {
    IS_ON.store(false, Ordering::Release);
}

/// Waits for something that may be there already: tried first.
///
/// # Safety
/// `call` calls the original with this timeout.
#[inline(always)]
unsafe fn timed(
    probe: Probe,
    object: *mut c_void,
    how: How,
    timeout: u64,
    call: impl Fn(u64) -> isize,
) -> isize {
    agent::hit(probe, object as u64);
    if timeout == NOW {
        return call(NOW);
    }
    // A try whose time is over says so in errno, which a wait that succeeds leaves alone.
    let error = errno();
    // SAFETY: the calling thread's.
    let before = unsafe { *error };
    if call(NOW) == 0 {
        return 0;
    }
    // SAFETY: the same.
    unsafe { *error = before };
    let awaited = at(object as u64, Tid(0), how);
    let wait = agent::begin_wait_for(probe, object as u64, awaited);
    let result = call(timeout);
    // Not 0: the time is over.
    wait.end(if result == 0 { 0 } else { -1 });
    result
}

function_of_table! { @ dispatch_semaphore_wait(semaphore: *mut c_void, timeout: u64) -> isize {
    timed(Probe::DispatchSemaphoreWait, semaphore, How::Wake(1), timeout, |timeout| call(semaphore, timeout))
} }

function_of_table! { @ dispatch_semaphore_signal(semaphore: *mut c_void) -> isize {
    release(Probe::DispatchSemaphoreSignal, semaphore as u64, How::Wake(1), || call(semaphore))
} }

function_of_table! { @ dispatch_group_wait(group: *mut c_void, timeout: u64) -> isize {
    timed(Probe::DispatchGroupWait, group, How::Release, timeout, |timeout| call(group, timeout))
} }

// The last that leaves a group ends the waits for it, as the last that lets go of a lock does.
function_of_table! { @ dispatch_group_leave(group: *mut c_void) -> () {
    release(Probe::DispatchGroupLeave, group as u64, How::Release, || call(group))
} }

/// What is to be done.
#[derive(Clone, Copy)]
enum Job {
    Function(Work, *mut c_void),
    /// A copy of the caller's.
    Block(*mut c_void),
}

/// Records of work that was handed over and has not begun.
const RECORDS: usize = 4096;

/// Work that was handed over.
struct Record {
    /// The number of the next free record, plus 1; 0: none.
    next: AtomicU32,
    /// The function; 0: the context is a block.
    function: AtomicUsize,
    context: AtomicUsize,
    /// Whose end is waited for; 0: none's.
    group: AtomicUsize,
    /// Which of [`NAMES`] it is, and the flow's number.
    name: AtomicU32,
    flow: AtomicU64,
}

/// Records, and the list of free ones: the number of the first plus 1 in the lower half, and a count of
/// changes in the upper one, so that one which went and came back is not taken for the same list.
struct Pool {
    records: [Record; RECORDS],
    free: AtomicU64,
    /// Records that were never used begin here.
    fresh: AtomicU32,
}

static POOL: Pool = Pool {
    records: [const {
        Record {
            next: AtomicU32::new(0),
            function: AtomicUsize::new(0),
            context: AtomicUsize::new(0),
            group: AtomicUsize::new(0),
            name: AtomicU32::new(0),
            flow: AtomicU64::new(0),
        }
    }; RECORDS],
    free: AtomicU64::new(0),
    fresh: AtomicU32::new(0),
};

impl Pool {
    fn take(&'static self) -> Option<&'static Record> {
        let mut head = self.free.load(Ordering::Acquire);
        while let Some(number) = (head as u32).checked_sub(1) {
            let record = self.records.get(number as usize)?;
            let next = u64::from(record.next.load(Ordering::Relaxed));
            let new = (head >> 32).wrapping_add(1) << 32 | next;
            let changed =
                self.free
                    .compare_exchange_weak(head, new, Ordering::AcqRel, Ordering::Acquire);
            match changed {
                Ok(_) => return Some(record),
                Err(now) => head = now,
            }
        }
        let one_more = |fresh| ((fresh as usize) < RECORDS).then_some(fresh + 1);
        let number = self
            .fresh
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        self.records.get(number.ok()? as usize)
    }

    fn give_back(&self, record: &Record) {
        let offset = (&raw const *record).addr() - self.records.as_ptr().addr();
        let number = (offset / size_of::<Record>()) as u64;
        let mut head = self.free.load(Ordering::Relaxed);
        loop {
            record.next.store(head as u32, Ordering::Relaxed);
            let new = (head >> 32).wrapping_add(1) << 32 | (number + 1);
            let changed =
                self.free
                    .compare_exchange_weak(head, new, Ordering::AcqRel, Ordering::Relaxed);
            match changed {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }
}

/// What flows are called.
const NAMES: [&str; 5] = [
    "dispatch_async",
    "dispatch_barrier_async",
    "dispatch_after",
    "dispatch_group_async",
    "dispatch_group_notify",
];

/// Hands work over with a record. False: it is to be handed over as it is, and nothing is taken.
///
/// # Safety
/// `original` hands over a function with its context. The job's block, if it is one, is the caller's.
unsafe fn hand_over(
    name: usize,
    group: *mut c_void,
    job: Job,
    original: &AtomicPtr<c_void>,
    call: impl FnOnce(*mut c_void, Work),
) -> bool {
    if !IS_ON.load(Ordering::Acquire) || !is_there(original) {
        return false;
    }
    let Some(record) = POOL.take() else {
        return false;
    };
    let (function, context) = match job {
        Job::Function(function, context) => (function as usize, context),
        // SAFETY: by contract. The function would copy it as well.
        Job::Block(block) => (0, unsafe { blocks::copy(block) }),
    };
    if function == 0 && context.is_null() {
        POOL.give_back(record);
        return false;
    }
    static FLOWS: AtomicU64 = AtomicU64::new(1);
    let flow = FLOWS.fetch_add(1, Ordering::Relaxed);
    record.function.store(function, Ordering::Relaxed);
    record
        .context
        .store(context.expose_provenance(), Ordering::Relaxed);
    record.group.store(group.addr(), Ordering::Relaxed);
    record.name.store(name as u32, Ordering::Relaxed);
    record.flow.store(flow, Ordering::Relaxed);
    agent::force(Probe::DispatchAsync, flow);
    agent::event(FLOW_BEGIN, NAMES[name].as_bytes(), flow as i64);
    call((&raw const *record).cast_mut().cast(), begin_work);
    true
}

/// The work of a record begins.
///
/// # Safety
/// `record` is one of the pool that was handed over, once.
unsafe extern "C-unwind" fn begin_work(record: *mut c_void) {
    // SAFETY: by contract; records are never freed.
    let record = unsafe { &*record.cast::<Record>() };
    let function = record.function.load(Ordering::Relaxed);
    let context =
        core::ptr::with_exposed_provenance_mut::<c_void>(record.context.load(Ordering::Relaxed));
    let group = record.group.load(Ordering::Relaxed) as u64;
    let name = NAMES.get(record.name.load(Ordering::Relaxed) as usize);
    let flow = record.flow.load(Ordering::Relaxed);
    // The work may never return.
    POOL.give_back(record);
    agent::event(FLOW_END, name.unwrap_or(&NAMES[0]).as_bytes(), flow as i64);
    // SAFETY: what was handed over, with its type; the block is a copy of our own.
    unsafe {
        if function == 0 {
            blocks::run(context);
            blocks::release(context);
        } else {
            core::mem::transmute::<usize, Work>(function)(context);
        }
    }
    if group != 0 && agent::is_awaited(group) {
        // libdispatch leaves the group right after.
        agent::announce(&[group], false, How::Release).end(Probe::DispatchGroupLeave, group);
    }
}

/// Hooks of functions that hand work over: one for a block, and its twin for a function. `unless`: the work
/// is never done then, and nobody would give its record back.
macro_rules! hands_over {
    ($($name:ident, $twin:ident($($arg:ident: $type:ty),*) named $number:literal, group $group:expr $(, unless $never:expr)?;)*) => {$(
        function_of_table! { @ $name($($arg: $type,)* block: *mut c_void) -> () {
            let is_plain = blocks::is_plain(block) $(&& !$never)?;
            let twin = |record, work| $twin::call($($arg,)* record, work);
            if !(is_plain && hand_over($number, $group, Job::Block(block), &$twin::ORIGINAL, twin)) {
                agent::hit(Probe::DispatchAsync, 0);
                call($($arg,)* block)
            }
        } }
        function_of_table! { @ $twin($($arg: $type,)* context: *mut c_void, work: Work) -> () {
            let twin = |record, work| call($($arg,)* record, work);
            let is_done = true $(&& !$never)?;
            if !(is_done && hand_over($number, $group, Job::Function(work, context), &$twin::ORIGINAL, twin)) {
                agent::hit(Probe::DispatchAsync, 0);
                call($($arg,)* context, work)
            }
        } }
    )*};
}
hands_over! {
    dispatch_async, dispatch_async_f(queue: *mut c_void) named 0, group null_mut();
    dispatch_barrier_async, dispatch_barrier_async_f(queue: *mut c_void) named 1, group null_mut();
    dispatch_after, dispatch_after_f(when: u64, queue: *mut c_void) named 2, group null_mut(), unless when == FOREVER;
    dispatch_group_async, dispatch_group_async_f(group: *mut c_void, queue: *mut c_void) named 3, group group;
    dispatch_group_notify, dispatch_group_notify_f(group: *mut c_void, queue: *mut c_void) named 4, group null_mut();
}

/// Work that its caller waits for, on the caller's stack.
struct Synchronous {
    job: Job,
    caller: u32,
    /// The caller's wait; taken when the work begins on its thread.
    wait: Cell<Option<WaitFor>>,
}

/// Hands over work and waits for it.
///
/// # Safety
/// `call` returns when the work was done.
#[inline(always)]
unsafe fn wait_for_work(queue: *mut c_void, job: Job, call: impl FnOnce(*mut c_void, Work)) {
    let work = Synchronous {
        job,
        caller: platform::thread_id(),
        wait: Cell::new(None),
    };
    let address = (&raw const work) as u64;
    let awaited = at(address, Tid(0), How::Wake(1));
    let wait = agent::begin_wait_for(Probe::DispatchSync, queue as u64, awaited);
    work.wait.set(Some(wait));
    call((&raw const work).cast_mut().cast(), do_work);
    if let Some(wait) = work.wait.take() {
        wait.end(0);
    }
}

/// # Safety
/// `work` is a [`Synchronous`] whose caller waits for it.
unsafe extern "C-unwind" fn do_work(work: *mut c_void) {
    // SAFETY: by contract.
    let work = unsafe { &*work.cast::<Synchronous>() };
    let is_callers = work.caller == platform::thread_id();
    if is_callers && let Some(wait) = work.wait.take() {
        wait.end(0);
    }
    // SAFETY: what was handed over, with its type; its caller keeps it meanwhile.
    unsafe {
        match work.job {
            Job::Function(function, context) => function(context),
            Job::Block(block) => blocks::run(block),
        }
    }
    if !is_callers {
        let address = (&raw const *work) as u64;
        if agent::is_awaited(address) {
            agent::announce(&[address], false, How::Wake(1)).end(Probe::DispatchSync, address);
        }
    }
}

macro_rules! waits_for_work {
    ($($name:ident, $twin:ident;)*) => {$(
        function_of_table! { @ $name(queue: *mut c_void, block: *mut c_void) -> () {
            if IS_ON.load(Ordering::Acquire) && is_there(&$twin::ORIGINAL) && blocks::is_plain(block) {
                wait_for_work(queue, Job::Block(block), |work, function| $twin::call(queue, work, function));
            } else {
                call(queue, block)
            }
        } }
        function_of_table! { @ $twin(queue: *mut c_void, context: *mut c_void, work: Work) -> () {
            if IS_ON.load(Ordering::Acquire) {
                wait_for_work(queue, Job::Function(work, context), |work, function| call(queue, work, function));
            } else {
                call(queue, context, work)
            }
        } }
    )*};
}
waits_for_work! {
    dispatch_sync, dispatch_sync_f;
    dispatch_barrier_sync, dispatch_barrier_sync_f;
    dispatch_async_and_wait, dispatch_async_and_wait_f;
    dispatch_barrier_async_and_wait, dispatch_barrier_async_and_wait_f;
}

table! {
    dispatch_semaphore_wait dispatch_semaphore_signal dispatch_group_wait dispatch_group_leave
    dispatch_async dispatch_async_f dispatch_barrier_async dispatch_barrier_async_f dispatch_after dispatch_after_f
    dispatch_group_async dispatch_group_async_f dispatch_group_notify dispatch_group_notify_f
    dispatch_sync dispatch_sync_f dispatch_barrier_sync dispatch_barrier_sync_f
    dispatch_async_and_wait dispatch_async_and_wait_f dispatch_barrier_async_and_wait dispatch_barrier_async_and_wait_f
}
