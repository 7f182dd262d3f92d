//! How wide a text is on a terminal, and how it is cut: by cells. A letter of Chinese or an emoji takes two,
//! an accent that is combined with the letter before it takes none.

use unicode_width::UnicodeWidthStr;

/// The cells that a text takes.
pub fn text_width(text: &str) -> usize {
    text.width()
}

/// The longest beginning of a text that fits.
pub fn beginning(text: &str, room: usize) -> &str {
    let ends = text.char_indices().map(|(at, c)| at + c.len_utf8());
    let end = ends
        .take_while(|end| text_width(&text[..*end]) <= room)
        .last();
    &text[..end.unwrap_or(0)]
}

/// The longest end of a text that fits.
pub fn ending(text: &str, room: usize) -> &str {
    let begins = text.char_indices().rev().map(|(at, _)| at);
    let begin = begins
        .take_while(|at| text_width(&text[*at..]) <= room)
        .last();
    &text[begin.unwrap_or(text.len())..]
}

/// A text that is too long without its middle: both ends tell something.
pub fn without_middle(text: &str, room: usize) -> String {
    if text_width(text) <= room {
        return text.to_owned();
    }
    let keep = room.saturating_sub(1);
    let head = keep * 2 / 3;
    let dots = if room > 0 { "…" } else { "" };
    let (begin, end) = (beginning(text, head), ending(text, keep - head));
    format!("{begin}{dots}{end}")
}
