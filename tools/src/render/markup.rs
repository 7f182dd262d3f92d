//! Text as content of HTML and XML.

use crate::terminal::steers;

/// Text in HTML or XML, lines kept: names come from recorded programs, what would steer a terminal or change
/// the direction of text has no place in it, and XML 1.0 (2.2) has no U+FFFE and U+FFFF.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\n' | '\t' => out.push(c),
            c if steers(c) || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_no_markup() {
        assert_eq!(escape("a<b>&\"\u{1}"), "a&lt;b&gt;&amp;&quot;\u{fffd}");
        assert_eq!(escape("two\nlines\u{ffff}"), "two\nlines\u{fffd}");
        assert_eq!(escape("\u{9b}\u{202e}txt"), "\u{fffd}\u{fffd}txt");
    }
}
