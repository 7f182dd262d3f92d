//! What the bytes of a terminal say about keys.

/// What a view understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Char(char),
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    Tab,
    Escape,
    /// Ctrl-C
    Interrupt,
    /// Ctrl-Z
    Suspend,
    /// Ctrl-L
    Redraw,
}

/// Sequences of keys that have no character of their own, in the two forms that terminals send (xterm's
/// control sequences, "PC-Style Function Keys").
const SEQUENCES: [(&[u8], Key); 10] = [
    (b"\x1b[A", Key::Up),
    (b"\x1bOA", Key::Up),
    (b"\x1b[B", Key::Down),
    (b"\x1bOB", Key::Down),
    (b"\x1b[5~", Key::PageUp),
    (b"\x1b[6~", Key::PageDown),
    (b"\x1b[H", Key::Home),
    (b"\x1bOH", Key::Home),
    (b"\x1b[1~", Key::Home),
    (b"\x1b[Z", Key::Tab),
];

/// The keys in what was read at once. What is not understood is left out.
pub(super) fn keys(mut bytes: &[u8]) -> Vec<Key> {
    let mut keys = Vec::new();
    while let [first, rest @ ..] = bytes {
        if let Some((sequence, key)) = SEQUENCES.iter().find(|(s, _)| bytes.starts_with(s)) {
            keys.push(*key);
            bytes = &bytes[sequence.len()..];
            continue;
        }
        bytes = rest;
        match first {
            0x1b => match rest {
                [b'[' | b'O', rest @ ..] => bytes = behind_sequence(rest),
                _ => keys.push(Key::Escape),
            },
            0x03 => keys.push(Key::Interrupt),
            0x1a => keys.push(Key::Suspend),
            0x0c => keys.push(Key::Redraw),
            b'\t' => keys.push(Key::Tab),
            b' '..=b'~' => keys.push(Key::Char(char::from(*first))),
            _ => {}
        }
    }
    keys
}

/// What stands behind a control sequence, whose last byte is its first of `@` to `~` (ECMA-48, 5.4).
fn behind_sequence(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().position(|byte| (b'@'..=b'~').contains(byte));
    end.map_or(&[], |end| &bytes[end + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_told_apart_and_unknown_sequences_left_out() {
        let bytes = b"q\x1b[A\x1bOB\x1b[1;5Cs\x1b[15~\t\x1b[6~\xc3\xa9?\x03\x1b";
        let expected = [
            Key::Char('q'),
            Key::Up,
            Key::Down,
            Key::Char('s'),
            Key::Tab,
            Key::PageDown,
            Key::Char('?'),
            Key::Interrupt,
            Key::Escape,
        ];
        assert_eq!(keys(bytes), expected);
        assert_eq!(keys(b"\x1b["), []);
    }
}
