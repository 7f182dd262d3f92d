//! What a program can ask for by itself, through `stackbeat.h` or the crate `stackbeat-api`, which look
//! these functions up by name. Their names and types never change; a change gets another version.

use crate::{attach, env, own_session};
use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};
use std::ffi::CString;

use stackbeat_core::agent;
use stackbeat_core::probe::Probe;

/// A mark, the begin or end of a scope or of asynchronous work, a counter or a station of a flow: `kind` is a
/// number of `stackbeat.v1.Event.Kind`, 10 for a counter.
///
/// # Safety
/// `name` is readable for `length` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn stackbeat_v1_event(kind: u32, name: *const c_char, length: usize, value: i64) {
    // SAFETY: by contract.
    unsafe { agent::event_of_c(kind, name, length, value) }
}

/// The calling thread's stack, now.
#[unsafe(no_mangle)]
extern "C" fn stackbeat_v1_capture() {
    agent::force(Probe::Mark, 0);
}

/// Begins a session inside the program, recorded from here on into `output`. `library`: the path of the
/// library with its threads. 0: it records. Otherwise it does not: the program is recorded already, or
/// standard error says why.
///
/// # Safety
/// Both are C strings, and the thread may call `dlopen` here.
#[unsafe(no_mangle)]
unsafe extern "C" fn stackbeat_v1_session_start(
    library: *const c_char,
    output: *const c_char,
) -> c_int {
    let start = || {
        // SAFETY: by contract.
        let (library, output) = unsafe { (CStr::from_ptr(library), CStr::from_ptr(output)) };
        let options = options(&output.to_string_lossy());
        let options = CString::new(options).ok()?;
        // Before originals are looked for.
        attach::come();
        let wanted = own_session::Wanted {
            library,
            options: &options,
        };
        let path = own_session::begin(&wanted, None)?;
        // SAFETY: the address is to be looked for; the thread may call `dlopen` by contract.
        let joined = unsafe { attach::stackbeat_attach(path.as_ptr(), 0) };
        if joined < 0 {
            own_session::end();
            return None;
        }
        Some(())
    };
    match std::panic::catch_unwind(start) {
        Ok(Some(())) => 0,
        _ => -1,
    }
}

/// Ends it. Returns when the trace is complete; the program goes on without hooks. 0: there was one.
#[unsafe(no_mangle)]
extern "C" fn stackbeat_v1_session_stop() -> c_int {
    if env::was_preloaded() || !own_session::is_there() {
        return -1;
    }
    attach::stackbeat_detach(0);
    own_session::end();
    0
}

/// As `stackbeat_collector::embedded::Wanted` reads them.
fn options(output: &str) -> String {
    let mut text = String::from("{\"symbolize\":true,\"output\":\"");
    for character in output.chars() {
        match character {
            '"' | '\\' => text.extend(['\\', character]),
            ' '.. => text.push(character),
            control => text += &format!("\\u{:04x}", u32::from(control)),
        }
    }
    text + "\"}"
}

/// The values of a slot before its first use, and after one that found no agent.
const NOT_ASKED: usize = 0;
const NO_AGENT: usize = 1;

/// What [`stackbeat_fill_slots`] is given.
#[repr(C)]
struct Slots {
    /// 1: the program shall find the agent; 0: it shall look by itself again.
    connect: u64,
    /// Number of slots for events; others, for captures, follow these.
    events: u64,
    captures: u64,
    // Then their addresses.
}

impl Slots {
    /// The slots, each with the address of its function.
    ///
    /// # Safety
    /// As many addresses follow `slots` as it says.
    unsafe fn each(slots: *const Slots) -> impl Iterator<Item = (usize, usize)> {
        // SAFETY: by contract.
        let (head, addresses) = unsafe { (slots.read(), slots.add(1).cast::<u64>()) };
        (0..(head.events + head.captures) as usize).map(move |i| {
            // SAFETY: by contract.
            let address = unsafe { addresses.add(i).read() } as usize;
            let function = match i < head.events as usize {
                true => stackbeat_v1_event as *const () as usize,
                false => stackbeat_v1_capture as *const () as usize,
            };
            (address, function)
        })
    }
}

/// Fills in the slots in which a program keeps where these functions are, or empties them. For the collector,
/// while it attaches and detaches: it knows from the modules' files where they lie. Only memory that a loaded
/// module can write is touched, and only words with values that a slot can have.
///
/// # Safety
/// `slots` is a [`Slots`] with its addresses behind it; the thread is at a place where it may call `dlopen`.
#[unsafe(no_mangle)]
unsafe extern "C" fn stackbeat_fill_slots(slots: *const c_void, _: usize) -> i64 {
    // SAFETY: the callback has the right type and does not unwind; it gets the pointer as it is.
    unsafe { libc::dl_iterate_phdr(Some(fill_slots), slots.cast_mut()) };
    0
}

/// The dynamic linker's lock is held: the module stays.
unsafe extern "C" fn fill_slots(
    info: *mut libc::dl_phdr_info,
    _size: libc::size_t,
    slots: *mut c_void,
) -> c_int {
    let slots = slots.cast_const().cast::<Slots>();
    // SAFETY: the dynamic linker's description of a loaded module.
    let (info, connect) = unsafe { (&*info, (*slots).connect != 0) };
    // SAFETY: its program headers.
    let headers = unsafe { core::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let is_writable = |address: usize| {
        headers.iter().any(|h| {
            let start = (info.dlpi_addr as usize).wrapping_add(h.p_vaddr as usize);
            let end = start.wrapping_add(h.p_memsz as usize);
            h.p_type == libc::PT_LOAD
                && h.p_flags & libc::PF_W != 0
                && start <= address
                && address.wrapping_add(size_of::<usize>()) <= end
        })
    };
    // SAFETY: by the contract of `stackbeat_fill_slots`.
    for (address, function) in unsafe { Slots::each(slots) } {
        if !address.is_multiple_of(align_of::<AtomicUsize>()) || !is_writable(address) {
            continue;
        }
        // SAFETY: an aligned word of a module's data, which the program reads atomically, too.
        let slot = unsafe { AtomicUsize::from_ptr(address as *mut usize) };
        let replace = |old, new| {
            let _ = slot.compare_exchange(old, new, Ordering::Release, Ordering::Relaxed);
        };
        if connect {
            replace(NOT_ASKED, function);
            replace(NO_AGENT, function);
        } else {
            replace(function, NOT_ASKED);
        }
    }
    0
}
