//! Line tables of runtimes, as they hold them: which line of the source stands at a position in a method's
//! code.

use std::vec::Vec;

/// How a line table is encoded: the number beside a method's line table in the shared mapping.
pub mod format {
    /// There is none.
    pub const NONE: u8 = 0;
    /// CPython 3.10, `co_linetable`: pairs of a length in bytes and a signed line difference
    /// (Objects/lnotab_notes.txt of 3.10).
    pub const CPYTHON_PAIRS: u8 = 1;
    /// CPython 3.11 and later, `co_linetable`: the location table (InternalDocs/code_objects.md,
    /// Objects/locations.md of 3.11).
    pub const CPYTHON_LOCATIONS: u8 = 2;
    /// Pairs of a position and a line, 32 bits each, little endian, by position: what a runtime says by
    /// itself.
    pub const PLAIN: u8 = 3;
    /// CPython 3.9, `co_lnotab`: pairs of a distance in bytes and a signed line difference
    /// (Objects/lnotab_notes.txt of 3.9).
    pub const CPYTHON_LNOTAB: u8 = 4;
}

/// Bytes of a code unit of CPython.
const UNIT: u32 = 2;

/// Position and line, by position; line 0: no line. `first_line` is the one where the method is defined. What
/// cannot be decoded is left out.
pub fn decode(format: u8, first_line: u32, bytes: &[u8]) -> Vec<(u32, u32)> {
    match format {
        format::CPYTHON_PAIRS => pairs(first_line, bytes),
        format::CPYTHON_LOCATIONS => locations(first_line, bytes),
        format::PLAIN => plain(bytes),
        format::CPYTHON_LNOTAB => lnotab(first_line, bytes),
        _ => Vec::new(),
    }
}

fn push(lines: &mut Vec<(u32, u32)>, position: u32, line: u32) {
    if lines.last().is_none_or(|last| last.1 != line) {
        lines.push((position, line));
    }
}

fn plain(bytes: &[u8]) -> Vec<(u32, u32)> {
    let mut lines = Vec::new();
    let (words, _) = bytes.as_chunks::<4>();
    for pair in words.chunks_exact(2) {
        push(
            &mut lines,
            u32::from_le_bytes(pair[0]),
            u32::from_le_bytes(pair[1]),
        );
    }
    lines
}

fn pairs(first_line: u32, bytes: &[u8]) -> Vec<(u32, u32)> {
    const NO_LINE: u8 = 0x80;

    let mut lines = Vec::new();
    let (mut position, mut line) = (0u32, first_line);
    for pair in bytes.chunks_exact(2) {
        let (length, delta) = (u32::from(pair[0]), pair[1]);
        let shown = match delta {
            NO_LINE => 0,
            delta => {
                line = line.wrapping_add_signed(i32::from(delta as i8));
                line
            }
        };
        // Differences that do not fit come in several pairs, of which the first have no length.
        if length != 0 {
            push(&mut lines, position, shown);
        }
        position = position.saturating_add(length);
    }
    lines
}

fn lnotab(first_line: u32, bytes: &[u8]) -> Vec<(u32, u32)> {
    let mut lines = Vec::new();
    let (mut position, mut line) = (0u32, first_line);
    for pair in bytes.chunks_exact(2) {
        let (distance, delta) = (u32::from(pair[0]), pair[1] as i8);
        // Differences that do not fit come in several pairs, of which the last have no distance.
        if distance != 0 {
            push(&mut lines, position, line);
        }
        position = position.saturating_add(distance);
        line = line.wrapping_add_signed(delta.into());
    }
    push(&mut lines, position, line);
    lines
}

fn locations(first_line: u32, bytes: &[u8]) -> Vec<(u32, u32)> {
    /// Entries with these codes have a line difference of code − 10, or one that follows, or no line.
    const ONE_LINE: std::ops::RangeInclusive<u8> = 10..=12;
    const NO_COLUMNS: u8 = 13;
    const LONG: u8 = 14;
    const NO_LINE: u8 = 15;

    let mut lines = Vec::new();
    let (mut position, mut line) = (0u32, first_line);
    let mut rest = bytes;
    while let [first, tail @ ..] = rest {
        // Each entry begins with a byte whose highest bit is set.
        if first & 0x80 == 0 {
            break;
        }
        let (code, length) = (first >> 3 & 15, u32::from(first & 7) + 1);
        let mut of_entry = tail;
        let delta = match code {
            code if ONE_LINE.contains(&code) => i32::from(code) - 10,
            NO_COLUMNS | LONG => match signed_varint(&mut of_entry) {
                Some(delta) => delta,
                None => break,
            },
            _ => 0,
        };
        line = line.wrapping_add_signed(delta);
        push(&mut lines, position, if code == NO_LINE { 0 } else { line });
        position = position.saturating_add(length * UNIT);
        let next = of_entry.iter().position(|byte| byte & 0x80 != 0);
        rest = next.map_or(&[], |next| &of_entry[next..]);
    }
    lines
}

/// Six bits a byte, the lowest first; bit 6: another byte follows. The lowest bit of the value is its sign.
fn signed_varint(bytes: &mut &[u8]) -> Option<i32> {
    let (mut value, mut shift) = (0u32, 0);
    loop {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u32::from(byte & 0x3f).checked_shl(shift)?;
        shift += 6;
        if byte & 0x40 == 0 {
            break;
        }
    }
    let magnitude = (value >> 1) as i32;
    Some(if value & 1 == 0 {
        magnitude
    } else {
        -magnitude
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_of_3_10() {
        // Lines 1, then 3 after 4 bytes, none after 6, 300 lines on after 10: two pairs.
        let bytes = [4, 0, 2, 2, 4, 0x80, 0, 127, 2, 127];
        assert_eq!(
            decode(format::CPYTHON_PAIRS, 1, &bytes),
            [(0, 1), (4, 3), (6, 0), (10, 257)]
        );
        assert_eq!(decode(format::CPYTHON_PAIRS, 1, &[7]), []);
    }

    #[test]
    fn distances_of_3_9() {
        // Two lines on after 4 bytes, 300 on after 300 more, one back at once, and one on after 2.
        let bytes = [4, 2, 255, 0, 45, 127, 0, 127, 0, 46, 0, 255, 2, 1];
        assert_eq!(
            decode(format::CPYTHON_LNOTAB, 1, &bytes),
            [(0, 1), (4, 3), (304, 302), (306, 303)]
        );
        assert_eq!(decode(format::CPYTHON_LNOTAB, 7, &[]), [(0, 7)]);
    }

    #[test]
    fn locations_of_3_11() {
        // Short form (columns follow in one byte), one line on, a long one of −2, and none.
        let bytes = [
            &[0x80 | 1, 0x21][..],
            &[0x80 | 11 << 3, 4, 9],
            &[0x80 | 14 << 3 | 7, 5, 0, 1, 1],
            &[0x80 | 15 << 3],
        ]
        .concat();
        let lines = decode(format::CPYTHON_LOCATIONS, 10, &bytes);
        assert_eq!(lines, [(0, 10), (4, 11), (6, 9), (22, 0)]);
        // Cut off anywhere it ends, and does not panic.
        for length in 0..bytes.len() {
            decode(format::CPYTHON_LOCATIONS, 10, &bytes[..length]);
        }
    }
}
