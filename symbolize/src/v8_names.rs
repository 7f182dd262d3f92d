//! What V8 calls a function in its maps: the kind of code, how it was compiled, the name and the place, as in
//! `JS:*render /shop/page.js:12:3` (`V8_OBJECT_LOG` of src/logging/log.cc, Node.js 12 to 24). A function that
//! is compiled better and better is one function all the same.

use super::NamedFrame;

/// Kinds of code that are made of JavaScript. Of others, as `Builtin:ArrayMap`, the name stays as it is.
const KINDS: [&str; 5] = ["JS:", "LazyCompile:", "Function:", "Script:", "Eval:"];
/// Interpreted, baseline, mid-tier and optimized code (`CodeKindToMarker` of src/objects/code-kind.cc).
const TIERS: [char; 5] = ['~', '^', '+', '*', '\''];
/// What places begin with.
const PLACES: [&str; 4] = [" /", " file:", " node:", " evalmachine."];
/// What has no name.
const NAMELESS: &str = "(anonymous)";

/// The function that a line of a map names, and where it is defined. `None`: it is no code of JavaScript.
pub(crate) fn frame(text: &str) -> Option<NamedFrame> {
    let rest = KINDS.iter().find_map(|kind| text.strip_prefix(kind))?;
    let rest = rest.strip_prefix(TIERS).unwrap_or(rest);
    let at = (PLACES.iter().filter_map(|place| rest.find(place)).min()).or_else(|| rest.rfind(' '));
    let (name, place) = match at {
        Some(at) => (&rest[..at], &rest[at + 1..]),
        None => (rest, ""),
    };
    let (file, line) = file_and_line(place);
    Some(NamedFrame {
        name: match name.is_empty() {
            true => NAMELESS.to_owned(),
            false => name.to_owned(),
        },
        // Functions without a name are told apart by their places.
        mangled: rest.to_owned(),
        definition_file: file.to_owned(),
        definition_line: line,
        file: file.to_owned(),
        ..NamedFrame::default()
    })
}

/// `/shop/page.js:12:3`, where older versions leave the column out.
fn file_and_line(place: &str) -> (&str, u32) {
    let number = |text: &str| text.parse().ok();
    let Some((rest, last)) = place.rsplit_once(':') else {
        return (place, 0);
    };
    let Some(last) = number(last) else {
        return (place, 0);
    };
    let (file, line) = match rest.rsplit_once(':') {
        Some((file, line)) => match number(line) {
            Some(line) => (file, line),
            None => (rest, last),
        },
        None => (rest, last),
    };
    (file.strip_prefix("file://").unwrap_or(file), line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_places_are_told_from_what_v8_says_besides() {
        for (text, name, file, line) in [
            (
                "JS:*render /shop/page.js:12:3",
                "render",
                "/shop/page.js",
                12,
            ),
            (
                "JS:~render /shop/page.js:12:3",
                "render",
                "/shop/page.js",
                12,
            ),
            (
                "LazyCompile:*sum /shop/basket.js:7",
                "sum",
                "/shop/basket.js",
                7,
            ),
            (
                "JS:^get total /my shop/a.js:5:9",
                "get total",
                "/my shop/a.js",
                5,
            ),
            (
                "JS:+ file:///shop/a.mjs:1:1",
                "(anonymous)",
                "/shop/a.mjs",
                1,
            ),
            (
                "JS:~ node:internal/main:1:1",
                "(anonymous)",
                "node:internal/main",
                1,
            ),
            ("JS:*emit node:events:466:44", "emit", "node:events", 466),
            ("Script:~ [eval]:1:1", "(anonymous)", "[eval]", 1),
            ("JS:*alone", "alone", "", 0),
        ] {
            let frame = frame(text).expect("V8's");
            let found = (&*frame.name, &*frame.definition_file, frame.definition_line);
            assert_eq!(found, (name, file, line), "{text}");
        }
        for text in ["Builtin:ArrayMap", "py::work:/app/w.py", ""] {
            assert!(frame(text).is_none(), "{text}");
        }
    }
}
