//! Where the main thread's stack lies. Read once, at the start.

use crate::sys;

/// The main thread's stack: below its top the kernel keeps at least 128 MB free of other mappings
/// (MIN_GAP in Linux `mm/util.c`), so what lies between the stack pointer and the top is stack.
pub(super) fn find() -> (u64, u64) {
    const RESERVED: u64 = 128 << 20;
    match read_main_stack() {
        Some((_, high)) => (high.saturating_sub(RESERVED), high),
        None => (0, 0),
    }
}

/// The line `LOW-HIGH … [stack]` of /proc/self/maps, read in pieces.
fn read_main_stack() -> Option<(u64, u64)> {
    let fd = sys::open(c"/proc/self/maps", libc::O_RDONLY, 0).ok()?;
    let mut line = [0u8; 512];
    let mut length = 0;
    let mut found = None;
    let mut piece = [0u8; 4096];
    'reading: while let Ok(n) = sys::read(fd, &mut piece) {
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
            if text.ends_with(b"[stack]") {
                found = parse_range(text);
                break 'reading;
            }
            length = 0;
        }
    }
    sys::close(fd);
    found
}

/// `7ffc00000000-7ffc00021000 …`
fn parse_range(line: &[u8]) -> Option<(u64, u64)> {
    let text = core::str::from_utf8(line).ok()?;
    let (range, _) = text.split_once(' ')?;
    let (low, high) = range.split_once('-')?;
    Some((
        u64::from_str_radix(low, 16).ok()?,
        u64::from_str_radix(high, 16).ok()?,
    ))
}

#[cfg(test)]
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
