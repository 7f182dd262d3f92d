//! The table by which a library that knows a runtime of managed code joins this agent, instead of bringing
//! one of its own: `stackbeat_runtime.h`, which says what each function does. One agent of a process, one
//! entry a thread.
//!
//! A version never changes: what is added comes at the end, and `bytes` says how much of it there is. The
//! library with the agent exports a function `stackbeat_runtime` that gives it.

use core::ffi::{c_char, c_int, c_void};
use core::mem::MaybeUninit;
use core::slice::from_raw_parts;

use std::boxed::Box;
use std::vec::Vec;

use super::better_moment::Comes;
use super::runtime;
use super::wake::{Awaited, WaitFor, Wake};
use crate::agent;
use crate::ids::Tid;
use crate::managed::Frame;
use crate::managed::frame_sources::{FrameSource, Search};
use crate::managed::lines::format;
use crate::native::generated_code::{CodeRow, Handle, Piece, UnwindRow};
use crate::probe::{Category, Probe};
use crate::shm::methods::{Description, LINES_BYTES, Runtime};
use crate::shm::waiters::How;
use crate::unwind::rule::{Kind, Rule};

/// The version of the table.
pub const VERSION: u32 = 1;

/// `struct stackbeat_runtime`.
#[repr(C)]
struct Table {
    version: u32,
    bytes: u32,
    add_method: unsafe extern "C" fn(*const Method) -> u32,
    add_code: unsafe extern "C" fn(*const Code) -> u64,
    remove_code: extern "C" fn(u64),
    add_source: unsafe extern "C" fn(*const Source) -> c_int,
    read: unsafe extern "C" fn(*mut c_void, u64, *mut c_void, usize) -> c_int,
    begin_run: unsafe extern "C" fn(*mut c_void, u64) -> c_int,
    add_frame: unsafe extern "C" fn(*mut c_void, u32, u32) -> c_int,
    hit: extern "C" fn(u32, u64),
    begin_wait: unsafe extern "C" fn(*mut Opaque<WAIT_WORDS>, u32, u64, u32),
    end_wait: unsafe extern "C" fn(*mut Opaque<WAIT_WORDS>, i64),
    begin_wake: unsafe extern "C" fn(*mut Opaque<WAKE_WORDS>, u64, u32),
    end_wake: unsafe extern "C" fn(*mut Opaque<WAKE_WORDS>, u32, u64),
    allocated: extern "C" fn(u64),
    native_frame: unsafe extern "C" fn(*mut c_void, u32, *mut u64, *mut u64) -> c_int,
    add_better_moments: extern "C" fn(Option<Comes>) -> c_int,
    better_moment: extern "C" fn(u32, u64),
}

static TABLE: Table = Table {
    version: VERSION,
    bytes: size_of::<Table>() as u32,
    add_method,
    add_code,
    remove_code,
    add_source,
    read,
    begin_run,
    add_frame,
    hit,
    begin_wait,
    end_wait,
    begin_wake,
    end_wake,
    allocated,
    native_frame,
    add_better_moments,
    better_moment,
};

/// The table of a version; null: it is not known here.
pub fn runtime_table(version: u32) -> *const c_void {
    match version {
        VERSION => (&raw const TABLE).cast(),
        _ => core::ptr::null(),
    }
}

/// Bytes of the table.
pub const BYTES: usize = size_of::<Table>();

/// `struct stackbeat_method`: the header says what each field is.
#[repr(C)]
#[derive(Debug)]
#[expect(missing_docs)]
pub struct Method {
    pub runtime: u32,
    pub first_line: u32,
    pub name: *const c_char,
    pub name_bytes: usize,
    pub file: *const c_char,
    pub file_bytes: usize,
    pub lines: *const [u32; 2],
    pub line_count: usize,
}

/// Elements at a place; none where it is null.
///
/// # Safety
/// Null, or so many elements that live as long as they are used.
unsafe fn elements<'a, T>(at: *const T, count: usize) -> &'a [T] {
    match at.is_null() {
        true => &[],
        // SAFETY: by contract.
        false => unsafe { from_raw_parts(at, count) },
    }
}

unsafe extern "C" fn add_method(method: *const Method) -> u32 {
    // SAFETY: as the header says; pairs of words are words.
    let (method, name, file, lines) = unsafe {
        let Some(method) = method.as_ref() else {
            return 0;
        };
        let name = elements(method.name.cast::<u8>(), method.name_bytes);
        let file = elements(method.file.cast::<u8>(), method.file_bytes);
        let bytes = method.line_count.saturating_mul(size_of::<[u32; 2]>());
        let lines = match bytes <= LINES_BYTES {
            true => elements(method.lines.cast::<u8>(), bytes),
            false => &[],
        };
        (method, name, file, lines)
    };
    runtime::add_method(&Description {
        runtime: u8::try_from(method.runtime).map_or(Runtime::Other, Runtime::from_number),
        first_line: method.first_line,
        line_format: match lines {
            [] => format::NONE,
            _ => format::PLAIN,
        },
        name,
        file,
        lines,
    })
}

/// `struct stackbeat_unwind_row`.
#[repr(C)]
struct CUnwindRow {
    offset: u32,
    base: u32,
    cfa: i32,
    saved_fp: i32,
}

/// `struct stackbeat_code`.
#[repr(C)]
struct Code {
    start: u64,
    bytes: u64,
    unwind: *const CUnwindRow,
    unwind_count: usize,
    rows: *const [u32; 3],
    row_count: usize,
    frames: *const [u32; 2],
    frame_count: usize,
}

const FROM_SP: u32 = 0;
const FROM_FP: u32 = 1;
const OUTERMOST: u32 = 2;
/// Most rows of one kind that a piece may have here.
const MOST_ROWS: usize = 1 << 16;

impl CUnwindRow {
    fn rule(&self) -> Option<Rule> {
        let kind = match self.base {
            FROM_SP => Kind::Sp,
            FROM_FP => Kind::Fp,
            OUTERMOST => return Some(Rule::END),
            _ => return None,
        };
        let saved = (self.saved_fp != 0).then_some(i64::from(self.saved_fp));
        Rule::new(kind, self.cfa.into(), saved, Some(-8))
    }
}

unsafe extern "C" fn add_code(code: *const Code) -> u64 {
    // SAFETY: as the header says.
    let (code, unwind, rows, frames) = unsafe {
        let Some(code) = code.as_ref() else { return 0 };
        (
            code,
            elements(code.unwind, code.unwind_count),
            elements(code.rows, code.row_count),
            elements(code.frames, code.frame_count),
        )
    };
    if [unwind.len(), rows.len(), frames.len()]
        .into_iter()
        .any(|rows| rows > MOST_ROWS)
    {
        return 0;
    }
    let unwind = unwind.iter().map(|row| {
        let (offset, rule) = (row.offset, row.rule()?);
        Some(UnwindRow { offset, rule })
    });
    let Some(unwind) = unwind.collect::<Option<Vec<UnwindRow>>>() else {
        return 0;
    };
    let rows: Vec<CodeRow> = rows
        .iter()
        .map(|&[offset, first, count]| CodeRow {
            offset,
            first,
            count,
        })
        .collect();
    let frames: Vec<Frame> = frames
        .iter()
        .map(|&[method, position]| Frame::new(method, position))
        .collect();
    let Ok(bytes) = u32::try_from(code.bytes) else {
        return 0;
    };
    let piece = Piece {
        start: code.start,
        bytes,
        unwind: &unwind,
        code: &rows,
        frames: &frames,
    };
    runtime::add_code(&piece).map_or(0, Handle::to_word)
}

extern "C" fn remove_code(handle: u64) {
    runtime::remove_code(Handle::from_word(handle));
}

/// `struct stackbeat_source`: the header says what each field is.
#[repr(C)]
#[derive(Debug)]
#[expect(missing_docs)]
pub struct Source {
    pub code_start: u64,
    pub code_end: u64,
    pub find: Option<unsafe extern "C-unwind" fn(*mut c_void, *mut c_void)>,
    pub argument: *mut c_void,
}

/// What is kept of a source.
struct Kept {
    source: FrameSource,
    find: unsafe extern "C-unwind" fn(*mut c_void, *mut c_void),
    argument: *mut c_void,
}

unsafe extern "C" fn add_source(source: *const Source) -> c_int {
    // SAFETY: as the header says.
    let Some((source, find)) = (unsafe { source.as_ref() }).and_then(|s| Some((s, s.find?))) else {
        return 0;
    };
    let kept = Box::leak(Box::new(Kept {
        source: FrameSource {
            code: (source.code_start, source.code_end),
            find: find_frames,
            argument: core::ptr::null_mut(),
        },
        find,
        argument: source.argument,
    }));
    kept.source.argument = (&raw mut *kept).cast();
    runtime::add_source(&kept.source).into()
}

/// # Safety
/// `kept` is a [`Kept`].
unsafe extern "C-unwind" fn find_frames(kept: *mut c_void, search: &mut Search) {
    // SAFETY: by contract; never written again, and its function takes these.
    unsafe {
        let kept = &*kept.cast::<Kept>();
        (kept.find)(kept.argument, (&raw mut *search).cast());
    }
}

/// # Safety
/// `search` is what the source's function got.
unsafe fn search<'a>(search: *mut c_void) -> &'a mut Search<'a, 'a, 'a> {
    // SAFETY: by contract.
    unsafe { &mut *search.cast() }
}

unsafe extern "C" fn read(at: *mut c_void, address: u64, to: *mut c_void, bytes: usize) -> c_int {
    if to.is_null() {
        return 0;
    }
    // SAFETY: as the header says.
    unsafe {
        let buffer = core::slice::from_raw_parts_mut(to.cast::<u8>(), bytes);
        search(at).read(address, buffer).into()
    }
}

unsafe extern "C" fn begin_run(at: *mut c_void, anchor: u64) -> c_int {
    // SAFETY: as the header says.
    unsafe { search(at).begin_run(anchor).into() }
}

unsafe extern "C" fn add_frame(at: *mut c_void, method: u32, position: u32) -> c_int {
    // SAFETY: as the header says.
    unsafe { search(at).add(method, position).into() }
}

/// The probe with a number, if it is one of runtimes.
fn probe(number: u32) -> Option<Probe> {
    let probe = Probe::from_number(u8::try_from(number).ok()?);
    probe.filter(|probe| probe.category() == Category::Runtime)
}

unsafe extern "C" fn native_frame(
    at: *mut c_void,
    index: u32,
    pc: *mut u64,
    sp: *mut u64,
) -> c_int {
    // SAFETY: as the header says.
    unsafe {
        match search(at).native_frame(index as usize) {
            Some(frame) => {
                [*pc, *sp] = frame;
                1
            }
            None => 0,
        }
    }
}

extern "C" fn add_better_moments(comes: Option<Comes>) -> c_int {
    comes.is_some_and(agent::add_better_moments).into()
}

extern "C" fn better_moment(number: u32, argument: u64) {
    if let Some(probe) = probe(number) {
        agent::at_better_moment(probe, argument);
    }
}

extern "C" fn hit(number: u32, argument: u64) {
    if let Some(probe) = probe(number) {
        agent::hit(probe, argument);
    }
}

extern "C" fn allocated(bytes: u64) {
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    if !agent::allocated_quietly(bytes) {
        agent::allocated(Probe::ObjectAllocation, bytes);
    }
}

/// What a caller keeps for us.
#[repr(C)]
struct Opaque<const WORDS: usize> {
    is_filled: u64,
    words: [MaybeUninit<u64>; WORDS],
}

const WAIT_WORDS: usize = 15;
const WAKE_WORDS: usize = 15;
const _: () = assert!(size_of::<WaitFor>() <= 8 * WAIT_WORDS && align_of::<WaitFor>() <= 8);
const _: () = assert!(size_of::<Wake>() <= 8 * WAKE_WORDS && align_of::<Wake>() <= 8);

impl<const WORDS: usize> Opaque<WORDS> {
    /// # Safety
    /// `place` can be written. `T` fits.
    unsafe fn fill<T>(place: *mut Self, value: Option<T>) {
        // SAFETY: by contract.
        unsafe {
            (*place).is_filled = u64::from(value.is_some());
            if let Some(value) = value {
                (&raw mut (*place).words).cast::<T>().write(value);
            }
        }
    }

    /// # Safety
    /// `place` was filled with a `T`.
    unsafe fn take<T>(place: *mut Self) -> Option<T> {
        // SAFETY: by contract.
        unsafe {
            let is_filled = core::mem::take(&mut (*place).is_filled) != 0;
            is_filled.then(|| (&raw const (*place).words).cast::<T>().read())
        }
    }
}

/// As `struct stackbeat_runtime` has it: seen from outside, the thread stands in the caller's frame, which
/// stays.
#[unsafe(naked)]
unsafe extern "C" fn begin_wait(_: *mut Opaque<WAIT_WORDS>, _: u32, _: u64, _: u32) {
    #[cfg(target_arch = "x86_64")]
    core::arch::naked_asm!(
        ".cfi_startproc",
        "mov r8, [rsp]",
        "lea r9, [rsp + 8]",
        "push rbp",
        ".cfi_adjust_cfa_offset 8",
        "call {begin}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "ret",
        ".cfi_endproc",
        begin = sym begin_wait_at,
    );
    #[cfg(target_arch = "aarch64")]
    core::arch::naked_asm!(
        "mov x4, x30",
        "mov x5, sp",
        "mov x6, x29",
        "b {begin}",
        begin = sym begin_wait_at,
    );
}

unsafe extern "C" fn begin_wait_at(
    wait: *mut Opaque<WAIT_WORDS>,
    number: u32,
    object: u64,
    owner_tid: u32,
    pc: u64,
    sp: u64,
    fp: u64,
) {
    let awaited = Awaited {
        id: object,
        is_shared: false,
        owner_tid: Tid(owner_tid),
        how: How::Wake(1),
    };
    let awaited = (object != 0).then_some(awaited);
    let wait_state = probe(number)
        .and_then(|probe| runtime::begin_wait_at(probe, object, awaited, [pc, sp, fp]));
    // SAFETY: as the header says.
    unsafe { Opaque::fill(wait, wait_state) };
}

unsafe extern "C" fn end_wait(wait: *mut Opaque<WAIT_WORDS>, result: i64) {
    // SAFETY: as the header says: what `begin_wait` filled.
    if let Some(wait) = unsafe { Opaque::take::<WaitFor>(wait) } {
        wait.end(result);
    }
}

unsafe extern "C" fn begin_wake(wake: *mut Opaque<WAKE_WORDS>, object: u64, count: u32) {
    let announced = (object != 0 && agent::is_awaited(object))
        .then(|| agent::announce(&[object], false, How::Wake(count)));
    // SAFETY: as the header says.
    unsafe { Opaque::fill(wake, announced) };
}

unsafe extern "C" fn end_wake(wake: *mut Opaque<WAKE_WORDS>, number: u32, object: u64) {
    // SAFETY: as the header says: what `begin_wake` filled.
    let announced = unsafe { Opaque::take::<Wake>(wake) };
    match (announced, probe(number)) {
        (Some(wake), Some(probe)) => wake.end(probe, object),
        (None, Some(probe)) => agent::hit(probe, object),
        (_, None) => {}
    }
}
