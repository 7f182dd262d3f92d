//! Where stacks lie that nobody announced: the main thread's, read once, at the start, and in a process
//! that was attached to, each thread's at its first capture.

#[cfg(target_os = "linux")]
use super::tls;
use crate::platform;

/// The main thread's stack: below its top the kernel keeps at least 128 MB free of other mappings
/// (MIN_GAP in Linux `mm/util.c`), so what lies between the stack pointer and the top is stack.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn find() -> (u64, u64) {
    const RESERVED: u64 = 128 << 20;
    let is_stack = |line: &[u8]| line.ends_with(b"[stack]").then(|| parse_range(line))?;
    match find_in_maps(is_stack) {
        Some((_, high)) => (high.saturating_sub(RESERVED), high),
        None => (0, 0),
    }
}

/// The calling thread's stack, when it is not the main thread: glibc puts the thread's own block, to which
/// the thread pointer points, at the top of its stack, so what is walked lies between the start of that
/// mapping (guards are mappings of their own) and the block. 0, 0: somewhere else.
#[cfg(target_os = "linux")]
pub(super) fn of_other_thread() -> (u64, u64) {
    /// Larger than any stack: a mapping that holds other things besides.
    const TOO_LARGE: u64 = 1 << 30;
    let high = tls::thread_pointer() as u64;
    let holds_it = |line: &[u8]| {
        let range = parse_range(line)?;
        let is_writable = line.split(|b| *b == b' ').nth(1) == Some(b"rw-p");
        (range.0 <= high && high < range.1 && is_writable).then_some(range)
    };
    match find_in_maps(holds_it) {
        Some((low, _)) if high - low < TOO_LARGE => (low, high),
        _ => (0, 0),
    }
}

/// The calling thread's stack, when it is not the main thread: bionic copies what it has noted when the
/// thread began (libc/bionic/pthread_attr.cpp: `pthread_getattr_np`), without a lock and without memory.
#[cfg(target_os = "android")]
pub(super) fn of_other_thread() -> (u64, u64) {
    let (mut low, mut bytes) = (core::ptr::null_mut(), 0);
    let mut attributes = core::mem::MaybeUninit::<libc::pthread_attr_t>::zeroed();
    // SAFETY: plain queries about the calling thread.
    unsafe {
        if libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) != 0
            || libc::pthread_attr_getstack(attributes.as_ptr(), &mut low, &mut bytes) != 0
        {
            return (0, 0);
        }
    }
    (low.addr() as u64, low.addr() as u64 + bytes as u64)
}

/// The calling thread's stack, as libc has noted it.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) fn find() -> (u64, u64) {
    platform::thread_stack()
}

/// The same.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) fn of_other_thread() -> (u64, u64) {
    platform::thread_stack()
}

/// Calls `f` with the start of each mapping that holds code of a file.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn for_each_code_mapping(mut f: impl FnMut(u64)) {
    find_in_maps(|line| {
        let mut fields = line.split(|b| *b == b' ');
        if fields.nth(1) == Some(b"r-xp") && line.contains(&b'/') {
            f(parse_range(line)?.0);
        }
        None
    });
}

/// The range of the first line of /proc/self/maps that is accepted; the file is read in pieces.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn find_in_maps(mut accept: impl FnMut(&[u8]) -> Option<(u64, u64)>) -> Option<(u64, u64)> {
    let fd = platform::open(c"/proc/self/maps", libc::O_RDONLY, 0).ok()?;
    let mut line = [0u8; 512];
    let mut length = 0;
    let mut found = None;
    let mut piece = [0u8; 4096];
    'reading: while let Ok(n) = platform::read(fd, &mut piece) {
        super::session::count_own_read(n);
        if n == 0 {
            break;
        }
        for &byte in piece.get(..n).unwrap_or(&[]) {
            if byte != b'\n' {
                if let Some(place) = line.get_mut(length) {
                    *place = byte;
                    length += 1;
                }
                continue;
            }
            let text = line.get(..length).unwrap_or(&[]);
            found = accept(text);
            if found.is_some() {
                break 'reading;
            }
            length = 0;
        }
    }
    platform::close(fd);
    found
}

/// `7ffc00000000-7ffc00021000 …`
#[cfg(any(target_os = "linux", target_os = "android"))]
fn parse_range(line: &[u8]) -> Option<(u64, u64)> {
    let text = core::str::from_utf8(line).ok()?;
    let (range, _) = text.split_once(' ')?;
    let (low, high) = range.split_once('-')?;
    Some((
        u64::from_str_radix(low, 16).ok()?,
        u64::from_str_radix(high, 16).ok()?,
    ))
}

#[cfg(all(test, any(target_os = "linux", target_os = "android")))]
mod tests {
    use super::*;

    #[test]
    fn lines_of_maps_are_understood() {
        let line = b"7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0    [stack]";
        assert_eq!(
            parse_range(line),
            Some((0x7ffc_0000_0000, 0x7ffc_0002_1000))
        );
        assert_eq!(parse_range(b""), None);
        assert_eq!(parse_range(b"xyz-1 r"), None);
        assert_eq!(parse_range(b"\xff\xfe-1 r"), None);
    }

    #[cfg(all(target_os = "linux", not(miri)))]
    #[test]
    fn its_bottom_lies_in_the_main_stack() {
        let (low, high) = find();
        let stat = std::fs::read_to_string("/proc/self/stat").expect("readable");
        // Field 28 of proc(5): the bottom of the stack, which is its highest address.
        let top: u64 = stat
            .rsplit(") ")
            .next()
            .and_then(|fields| fields.split(' ').nth(25))
            .and_then(|field| field.parse().ok())
            .expect("a number");
        assert!((low..high).contains(&top), "{low:x} {high:x} {top:x}");
    }
}
