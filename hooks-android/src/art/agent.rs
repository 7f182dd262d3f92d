//! The agent's table of functions: `stackbeat_runtime.h`, which says what each does.

use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;

use stackbeat_core::agent::{RUNTIME_TABLE_BYTES, RUNTIME_VERSION, RuntimeMethod, RuntimeSource};

/// What waits and hits are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Probe {
    MonitorEnter = 150,
    MonitorExit = 151,
    MonitorWait = 152,
    MonitorNotify = 153,
    Park = 154,
    Unpark = 155,
    GcWait = 156,
    Safepoint = 157,
    NativeCall = 158,
    GcEnd = 161,
    ClassLoad = 162,
}

/// A number and a line.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    pub(crate) position: u32,
    pub(crate) line: u32,
}

/// `struct stackbeat_wait`, `struct stackbeat_wake`.
#[repr(C)]
pub(crate) struct Words([MaybeUninit<u64>; 16]);

impl Words {
    pub(crate) const fn new() -> Words {
        Words([MaybeUninit::uninit(); 16])
    }
}

/// `struct stackbeat_runtime`.
#[repr(C)]
pub(crate) struct Agent {
    version: u32,
    bytes: u32,
    add_method: unsafe extern "C" fn(*const RuntimeMethod) -> u32,
    add_code: usize,
    remove_code: usize,
    add_source: unsafe extern "C" fn(*const RuntimeSource) -> c_int,
    read: unsafe extern "C" fn(*mut c_void, u64, *mut c_void, usize) -> c_int,
    begin_run: unsafe extern "C" fn(*mut c_void, u64) -> c_int,
    add_frame: unsafe extern "C" fn(*mut c_void, u32, u32) -> c_int,
    hit: extern "C" fn(u32, u64),
    pub(crate) begin_wait: unsafe extern "C" fn(*mut Words, Probe, u64, u32),
    end_wait: unsafe extern "C" fn(*mut Words, i64),
    begin_wake: unsafe extern "C" fn(*mut Words, u64, u32),
    end_wake: unsafe extern "C" fn(*mut Words, Probe, u64),
    allocated: extern "C" fn(u64),
    native_frame: unsafe extern "C" fn(*mut c_void, u32, *mut u64, *mut u64) -> c_int,
    add_better_moments: extern "C" fn(Option<Comes>) -> c_int,
    better_moment: extern "C" fn(u32, u64),
}

const _: () = assert!(size_of::<Agent>() == RUNTIME_TABLE_BYTES);

/// The table of the agent that stands beside this library in the process; `None`: there is none.
pub fn of_process() -> Option<*const c_void> {
    // SAFETY: a name; the function of this name takes a version and gives a table that is never unloaded.
    unsafe {
        let found = libc::dlsym(libc::RTLD_DEFAULT, c"stackbeat_runtime".as_ptr());
        if found.is_null() {
            return None;
        }
        let table: extern "C" fn(u32) -> *const c_void = core::mem::transmute(found);
        Some(table(RUNTIME_VERSION)).filter(|table| !table.is_null())
    }
}

/// Whether the calling thread is about to come to a better moment.
pub(crate) type Comes = unsafe extern "C-unwind" fn() -> c_int;

/// A function's interpreted frames may be found by this.
pub(crate) type Find = unsafe extern "C-unwind" fn(*mut c_void, *mut c_void);

impl Agent {
    /// `None`: the table is of another version.
    ///
    /// # Safety
    /// Null, or a table of [`RUNTIME_VERSION`] that stays.
    pub(crate) unsafe fn of_table(table: *const c_void) -> Option<&'static Agent> {
        // SAFETY: by contract.
        let agent = unsafe { table.cast::<Agent>().as_ref() }?;
        // Released together: an older agent has less, and is not asked.
        (agent.bytes as usize >= size_of::<Agent>()).then_some(agent)
    }

    pub(crate) fn add_method(&self, name: &[u8], file: &[u8], lines: &[Line]) -> u32 {
        let method = RuntimeMethod {
            runtime: 0,
            first_line: lines.first().map_or(0, |line| line.line),
            name: name.as_ptr().cast(),
            name_bytes: name.len(),
            file: file.as_ptr().cast(),
            file_bytes: file.len(),
            lines: lines.as_ptr().cast(),
            line_count: lines.len(),
        };
        // SAFETY: all of it lives during the call, and is copied.
        unsafe { (self.add_method)(&raw const method) }
    }

    /// False: there are too many sources.
    pub(crate) fn add_source(&self, code: (u64, u64), find: Find) -> bool {
        let source = RuntimeSource {
            code_start: code.0,
            code_end: code.1,
            find: Some(find),
            argument: core::ptr::null_mut(),
        };
        // SAFETY: it is copied; `find` stays.
        unsafe { (self.add_source)(&raw const source) != 0 }
    }

    pub(crate) fn hit(&self, probe: Probe, argument: u64) {
        (self.hit)(probe as u32, argument);
    }

    /// False: somebody else's is asked.
    pub(crate) fn add_better_moments(&self, comes: Comes) -> bool {
        (self.add_better_moments)(Some(comes)) != 0
    }

    /// Captures, if an interruption was left to this moment.
    pub(crate) fn better_moment(&self, probe: Probe) {
        (self.better_moment)(probe as u32, 0);
    }

    pub(crate) fn end_wait(&self, wait: &mut Words, result: i64) {
        // SAFETY: `begin_wait` has filled it.
        unsafe { (self.end_wait)(wait, result) };
    }

    pub(crate) fn begin_wake(&self, wake: &mut Words, object: u64, count: u32) {
        // SAFETY: it can be written.
        unsafe { (self.begin_wake)(wake, object, count) };
    }

    pub(crate) fn end_wake(&self, wake: &mut Words, probe: Probe, object: u64) {
        // SAFETY: `begin_wake` has filled it.
        unsafe { (self.end_wake)(wake, probe, object) };
    }

    /// Tells of an object that was made.
    pub(crate) fn allocated(&self, bytes: u64) {
        (self.allocated)(bytes);
    }
}

/// One search for frames: the agent asks, in a capture.
pub(crate) struct Search {
    pub(crate) agent: &'static Agent,
    search: *mut c_void,
}

impl Search {
    /// # Safety
    /// `search` is what the agent gave, and the capture is not over.
    pub(crate) unsafe fn new(agent: &'static Agent, search: *mut c_void) -> Search {
        Search { agent, search }
    }

    /// So many words from an address on; `None`: they cannot be read.
    pub(crate) fn words<const N: usize>(&self, address: u64) -> Option<[u64; N]> {
        let mut words = [0u64; N];
        // SAFETY: room for so many words; the agent's read may fail, but faults nowhere.
        let is_read = unsafe {
            (self.agent.read)(
                self.search,
                address,
                words.as_mut_ptr().cast(),
                size_of_val(&words),
            )
        };
        (is_read != 0).then_some(words)
    }

    /// Pc and stack pointer of a native frame, counted from the leaf; `None`: there are no more.
    pub(crate) fn native_frame(&self, index: u32) -> Option<[u64; 2]> {
        let (mut pc, mut sp) = (0, 0);
        // SAFETY: by the contract of `new`; both can be written.
        let found =
            unsafe { (self.agent.native_frame)(self.search, index, &raw mut pc, &raw mut sp) };
        (found != 0).then_some([pc, sp])
    }

    /// False: there is no room for more runs.
    pub(crate) fn begin_run(&self, anchor: u64) -> bool {
        // SAFETY: by the contract of `new`.
        unsafe { (self.agent.begin_run)(self.search, anchor) != 0 }
    }

    /// False: there is no room for more frames.
    pub(crate) fn add_frame(&self, method: u32, position: u32) -> bool {
        // SAFETY: as above.
        unsafe { (self.agent.add_frame)(self.search, method, position) != 0 }
    }
}
