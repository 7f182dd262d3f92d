//! The little JSON that exporters write by hand, because documents must be streamed.

use std::io::{self, Write};

use crate::terminal::escaped;

/// Writes a string with quotes and escapes, and nothing in it that would steer a terminal.
pub(super) fn string(out: &mut dyn Write, text: &str) -> io::Result<()> {
    out.write_all(escaped(&serde_json::to_string(text)?).as_bytes())
}

/// Writes nanoseconds as microseconds without losing a digit: `12.345`.
pub(super) fn micros(out: &mut dyn Write, ns: u64) -> io::Result<()> {
    thousandths(out, ns, 1_000, 3)
}

/// Writes how long after its begin something ends, in microseconds, so that begin and length as
/// floating-point numbers add up to the very number that the end is when it is written. Most lengths do so in
/// their own digits; others get more, which name the neighbouring number. speedscope adds them, and takes
/// slices for overlapping whose sums differ in the last bit. Few have no such number: those longer than their
/// begin, of which half the sums lie in the middle of two numbers.
pub(super) fn micros_until(out: &mut dyn Write, begin_ns: u64, end_ns: u64) -> io::Result<()> {
    // Both are divided with the rounding that reading their digits has.
    let in_micros = |ns: u64| ns as f64 / 1_000.0;
    let (begin, end) = (in_micros(begin_ns), in_micros(end_ns));
    let length = in_micros(end_ns.saturating_sub(begin_ns));
    if begin + length == end {
        return micros(out, end_ns.saturating_sub(begin_ns));
    }
    let rest = end - begin;
    let near = [rest, rest.next_up(), rest.next_down()];
    match near.into_iter().find(|length| begin + length == end) {
        Some(length) => write!(out, "{length}"),
        None => micros(out, end_ns.saturating_sub(begin_ns)),
    }
}

/// Writes nanoseconds as milliseconds without losing a digit: `1.234567`.
pub(super) fn millis(out: &mut dyn Write, ns: u64) -> io::Result<()> {
    thousandths(out, ns, 1_000_000, 6)
}

fn thousandths(out: &mut dyn Write, ns: u64, unit: u64, digits: usize) -> io::Result<()> {
    let (whole, part) = (ns / unit, ns % unit);
    number(out, whole)?;
    if part == 0 {
        return Ok(());
    }
    // The digit in front becomes the point.
    let mut text = [0; 20];
    let length = decimal(&mut text, unit + part).len();
    let at = text.len() - length;
    debug_assert_eq!(length, digits + 1);
    text[at] = b'.';
    out.write_all(&text[at..])
}

/// Writes a number; far faster than formatting.
pub(super) fn number(out: &mut dyn Write, value: u64) -> io::Result<()> {
    out.write_all(decimal(&mut [0; 20], value))
}

/// The digits of a number, at the end of `text`.
fn decimal(text: &mut [u8; 20], value: u64) -> &[u8] {
    let (mut at, mut rest) = (text.len(), value);
    loop {
        at -= 1;
        text[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            return &text[at..];
        }
    }
}

/// Writes a signed number.
pub(super) fn integer(out: &mut dyn Write, value: i64) -> io::Result<()> {
    if value < 0 {
        out.write_all(b"-")?;
    }
    number(out, value.unsigned_abs())
}

/// Puts commas between the elements of an array or object.
#[derive(Debug, Default)]
pub(super) struct Separator {
    started: bool,
}

impl Separator {
    /// Call before each element.
    pub(super) fn next(&mut self, out: &mut dyn Write) -> io::Result<()> {
        if self.started {
            out.write_all(b",")?;
        }
        self.started = true;
        Ok(())
    }
}

/// Writes an array, an element at a time.
pub(super) fn array<T>(
    out: &mut dyn Write,
    items: impl IntoIterator<Item = T>,
    mut element: impl FnMut(&mut dyn Write, T) -> io::Result<()>,
) -> io::Result<()> {
    out.write_all(b"[")?;
    let mut separator = Separator::default();
    for item in items {
        separator.next(out)?;
        element(out, item)?;
    }
    out.write_all(b"]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_string_steers_a_terminal() {
        let mut out = Vec::new();
        string(&mut out, "a\u{9b}2J\u{1b}]0;\u{7}\u{202e}\"b").unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, r#""a\u009b2J\u001b]0;\u0007\u202e\"b""#);
    }

    #[test]
    fn begin_and_length_add_up_to_the_end() {
        let written = |begin_ns, end_ns| {
            let mut out = Vec::new();
            micros_until(&mut out, begin_ns, end_ns).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(written(1_000, 4_000), "3");
        // Weyl's sequence: begins up to some hours, lengths from some ns to minutes.
        let mut longer = 0;
        for i in 1..100_000u64 {
            let mixed = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let (begin_ns, length_ns) = (mixed >> 20, (mixed & 0xfff_ffff) >> (i % 28));
            let mut end = Vec::new();
            micros(&mut end, begin_ns + length_ns).unwrap();
            let end: f64 = String::from_utf8(end).unwrap().parse().unwrap();
            let mut begin = Vec::new();
            micros(&mut begin, begin_ns).unwrap();
            let begin: f64 = String::from_utf8(begin).unwrap().parse().unwrap();
            let text = written(begin_ns, begin_ns + length_ns);
            let length: f64 = text.parse().unwrap();
            assert_eq!(begin + length, end, "{begin_ns} {length_ns}");
            assert!((length * 1_000.0 - length_ns as f64).abs() < 0.01);
            longer += u32::from(text.len() > 10);
        }
        assert!(longer > 1_000, "{longer}");
    }

    #[test]
    fn times_keep_their_nanoseconds() {
        let mut out = Vec::new();
        for ns in [0, 999, 1_000, 1_001, 123_456_789] {
            micros(&mut out, ns).unwrap();
            out.push(b' ');
            millis(&mut out, ns).unwrap();
            out.push(b' ');
        }
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "0 0 0.999 0.000999 1 0.001000 1.001 0.001001 123456.789 123.456789 "
        );
    }
}
