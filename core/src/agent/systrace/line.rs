//! A line for the trace_marker.

use super::LINE_BYTES;
use crate::shm::record_format::event_kind as kinds;

/// A sign and the digits of 2^63.
const NUMBER_BYTES: usize = 20;

/// A line as Android's atrace writes it (system/core/libcutils/trace-dev.inc) and Perfetto reads it
/// (src/trace_processor/importers/systrace/systrace_parser.h); its length. A step of a flow has no letter
/// there and becomes an instant.
pub(super) fn format(
    kind: u8,
    pid: u32,
    name: &[u8],
    value: i64,
    to: &mut [u8; LINE_BYTES],
) -> usize {
    let letter = match kind {
        kinds::SCOPE_BEGIN => b'B',
        kinds::SCOPE_END => b'E',
        kinds::FLOW_BEGIN | kinds::ASYNC_BEGIN => b'S',
        kinds::FLOW_END | kinds::ASYNC_END => b'F',
        kinds::COUNTER => b'C',
        _ => b'I',
    };
    let mut line = Line { to, used: 0 };
    line.push(letter);
    line.push(b'|');
    line.push_number(pid.into());
    if letter != b'E' {
        line.push(b'|');
        line.push_name(name);
    }
    match letter {
        b'S' | b'F' | b'C' => {
            line.push(b'|');
            line.push_number(value);
        }
        b'I' if value != 0 => {
            line.push(b' ');
            line.push_number(value);
        }
        _ => {}
    }
    line.push(b'\n');
    line.used
}

struct Line<'a> {
    to: &'a mut [u8; LINE_BYTES],
    used: usize,
}

impl Line<'_> {
    /// What may follow a name: a separator, a number and the newline.
    const AFTER_NAME: usize = 1 + NUMBER_BYTES + 1;

    fn push(&mut self, byte: u8) {
        if let Some(to) = self.to.get_mut(self.used) {
            *to = byte;
            self.used += 1;
        }
    }

    fn push_number(&mut self, number: i64) {
        let mut digits = [0u8; NUMBER_BYTES];
        let mut rest = number.unsigned_abs();
        let mut count = 0;
        for digit in &mut digits {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
            count += 1;
            if rest == 0 {
                break;
            }
        }
        if number < 0 {
            self.push(b'-');
        }
        for digit in digits.iter().take(count).rev() {
            self.push(*digit);
        }
    }

    /// What would separate fields, lines or texts becomes a space (`sanitizeString` of Android's
    /// `android_os_Trace.cpp`). A name that does not fit is cut between characters; none at all would be no
    /// field.
    fn push_name(&mut self, name: &[u8]) {
        let room = LINE_BYTES.saturating_sub(self.used + Self::AFTER_NAME);
        let mut length = name.len().min(room);
        if length < name.len() {
            while length > 0 && name.get(length).is_some_and(|b| b & 0xc0 == 0x80) {
                length -= 1;
            }
        }
        let name = match name.get(..length) {
            None | Some([]) => b"(no name)",
            Some(name) => name,
        };
        for byte in name {
            self.push(match byte {
                b'|' | b'\n' | b'\r' | 0 => b' ',
                byte => *byte,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::String;

    fn line(kind: u8, name: &[u8], value: i64) -> String {
        let mut to = [0xff; LINE_BYTES];
        let length = format(kind, 17, name, value, &mut to);
        String::from_utf8(to[..length].to_vec()).expect("is text")
    }

    #[test]
    fn lines_are_those_of_atrace() {
        for (kind, value, expected) in [
            (kinds::SCOPE_BEGIN, 0, "B|17|a b\n"),
            (kinds::SCOPE_END, 0, "E|17\n"),
            (kinds::COUNTER, -3, "C|17|a b|-3\n"),
            (kinds::COUNTER, i64::MIN, "C|17|a b|-9223372036854775808\n"),
            (kinds::FLOW_BEGIN, 42, "S|17|a b|42\n"),
            (kinds::FLOW_END, -1, "F|17|a b|-1\n"),
            (kinds::ASYNC_BEGIN, 8, "S|17|a b|8\n"),
            (kinds::ASYNC_END, 8, "F|17|a b|8\n"),
            (kinds::FLOW_STEP, 42, "I|17|a b 42\n"),
            (kinds::MARK, 0, "I|17|a b\n"),
            (kinds::MARK, 9, "I|17|a b 9\n"),
        ] {
            assert_eq!(line(kind, b"a b", value), expected);
        }
        assert_eq!(line(kinds::COUNTER, b"", 1), "C|17|(no name)|1\n");
    }

    #[test]
    fn a_name_cannot_forge_a_field_or_a_line() {
        assert_eq!(
            line(kinds::SCOPE_BEGIN, b"a|b\nE|1\r\0c", 0),
            "B|17|a b E 1  c\n"
        );
    }

    #[test]
    fn a_long_name_is_cut_between_characters_and_leaves_room_for_the_number() {
        let name = "\u{20ac}".repeat(LINE_BYTES);
        let text = line(kinds::COUNTER, name.as_bytes(), i64::MIN);
        assert!(
            text.len() <= LINE_BYTES && text.len() > LINE_BYTES - 4,
            "{}",
            text.len()
        );
        assert!(text.ends_with("\u{20ac}|-9223372036854775808\n"), "{text}");
    }
}
