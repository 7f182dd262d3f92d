//! The code of the own process: what may be read and executed at an address.

use core::ptr;
use core::slice;

/// A range of memory with one protection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Region {
    pub(super) begin: usize,
    pub(super) end: usize,
    pub(super) protection: i32,
}

impl Region {
    pub(super) fn is_code(&self) -> bool {
        self.protection & libc::PROT_EXEC != 0
    }
}

/// The regions that overlap a range, by `/proc/self/maps`.
pub(super) fn regions(begin: usize, bytes: usize) -> Vec<Region> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let overlaps = |r: &Region| r.begin < begin + bytes && begin < r.end;
    maps.lines().filter_map(region).filter(overlaps).collect()
}

/// `BEGIN-END rwxp …`.
fn region(line: &str) -> Option<Region> {
    let (range, rest) = line.split_once(' ')?;
    let (begin, end) = range.split_once('-')?;
    let letters = [
        ('r', libc::PROT_READ),
        ('w', libc::PROT_WRITE),
        ('x', libc::PROT_EXEC),
    ];
    let protection = rest.chars().take(3).zip(letters);
    Some(Region {
        begin: usize::from_str_radix(begin, 16).ok()?,
        end: usize::from_str_radix(end, 16).ok()?,
        protection: protection
            .filter(|(found, (letter, _))| found == letter)
            .fold(0, |all, (_, (_, bit))| all | bit),
    })
}

/// The bytes of code at an address, as many of `most` as are mapped.
///
/// # Safety
///
/// Nobody unmaps them meanwhile.
pub(super) unsafe fn read(address: usize, most: usize) -> Vec<u8> {
    let mut end = address;
    for region in regions(address, most) {
        let is_next = region.begin <= end && region.protection & libc::PROT_READ != 0;
        end = if is_next { region.end } else { end };
    }
    let bytes = end.saturating_sub(address).min(most);
    // SAFETY: mapped and readable.
    unsafe { slice::from_raw_parts(ptr::with_exposed_provenance(address), bytes) }.to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_maps() {
        let read = region("7f00-8000 r-xp 00000000 fe:00 12 /lib/libz.so.1").unwrap();
        let expected = Region {
            begin: 0x7f00,
            end: 0x8000,
            protection: libc::PROT_READ | libc::PROT_EXEC,
        };
        assert_eq!(read, expected);
        assert!(region("nothing").is_none());
    }
}
