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

/// A time or length in parts of a microsecond that floating-point numbers hold exactly, so that sums and
/// differences of them are exact, too, whatever a reader subtracts first: up to nine hours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BinaryMicros(u64);

impl BinaryMicros {
    const PER_MICRO: u64 = 1 << 18;
    /// A reader that rounds to nanoseconds finds the same one up to so many steps later.
    pub(super) const LAST_STEP: u64 = 127;
    /// The shortest length that such a reader rounds up to a nanosecond. From the last step on it ends before
    /// the next nanosecond.
    pub(super) const SHORTEST: BinaryMicros = BinaryMicros(132);

    /// The step after the nearest one to `ns`.
    pub(super) fn new(ns: u64, step: u64) -> BinaryMicros {
        let parts = (u128::from(ns) * u128::from(Self::PER_MICRO) + 500) / 1_000;
        BinaryMicros(parts as u64 + step.min(Self::LAST_STEP))
    }

    pub(super) fn since(self, begin: BinaryMicros) -> BinaryMicros {
        BinaryMicros(self.0.saturating_sub(begin.0))
    }

    pub(super) fn write(self, out: &mut dyn Write) -> io::Result<()> {
        write!(out, "{}", self.0 as f64 / Self::PER_MICRO as f64)
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
    fn binary_times_add_up_and_keep_their_nanoseconds() {
        let number = |time: BinaryMicros| -> f64 {
            let mut out = Vec::new();
            time.write(&mut out).unwrap();
            String::from_utf8(out).unwrap().parse().unwrap()
        };
        let in_ns = |micros: f64| (micros * 1_000.0).round() as u64;
        // Weyl's sequence: begins up to five hours, lengths from some ns to minutes.
        for i in 1..100_000u64 {
            let mixed = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let (begin_ns, length_ns) = (mixed >> 20, (mixed & 0xfff_ffff) >> (i % 28));
            let first = number(BinaryMicros::new(begin_ns / 3, 0));
            let begin = BinaryMicros::new(begin_ns, i % 128);
            let end = BinaryMicros::new(begin_ns + length_ns, 127);
            let (from, to, length) = (number(begin), number(end), number(end.since(begin)));
            assert_eq!(
                (from - first) + length,
                to - first,
                "{begin_ns} {length_ns}"
            );
            assert_eq!(
                [from, to, length].map(in_ns),
                [begin_ns, begin_ns + length_ns, length_ns]
            );
            let (last, next) = (
                BinaryMicros::new(begin_ns, 127),
                BinaryMicros::new(begin_ns + 1, 0),
            );
            assert!(number(last) + number(BinaryMicros::SHORTEST) < number(next));
        }
        assert_eq!(in_ns(number(BinaryMicros::SHORTEST)), 1);
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
