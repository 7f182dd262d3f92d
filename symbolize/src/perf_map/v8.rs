//! What V8 calls a function in its maps: the kind of code, how it was compiled, the name and the place, as in
//! `JS:*render /shop/page.js:12:3` (`V8_OBJECT_LOG` of src/logging/log.cc, Node.js 12 to 24). A function that
//! is compiled better and better is one function all the same.

use stackbeat_proto::v1::methods::Runtime;

use super::Method;

/// Kinds of code that are made of JavaScript. Of others, as `Builtin:ArrayMap`, the name stays as it is.
const KINDS: [&str; 5] = ["JS:", "LazyCompile:", "Function:", "Script:", "Eval:"];
/// Interpreted, baseline, mid-tier and optimized code (`CodeKindToMarker` of src/objects/code-kind.cc).
const TIERS: [char; 5] = ['~', '^', '+', '*', '\''];
/// What places begin with.
const PLACES: [&str; 4] = [" /", " file:", " node:", " evalmachine."];
/// What has no name.
pub(crate) const NAMELESS: &str = "(anonymous)";

/// The function that a line of a map names, and where it is defined. `None`: it is no code of JavaScript.
pub(crate) fn method(text: &str) -> Option<Method> {
    let rest = KINDS.iter().find_map(|kind| text.strip_prefix(kind))?;
    let rest = rest.strip_prefix(TIERS).unwrap_or(rest);
    let at = (PLACES.iter().filter_map(|place| rest.find(place)).min()).or_else(|| rest.rfind(' '));
    let (name, place) = match at {
        Some(at) => (&rest[..at], &rest[at + 1..]),
        None => (rest, ""),
    };
    let (file, line, column) = file_and_line(place);
    Some(Method {
        runtime: Some(Runtime::V8),
        name: match name.is_empty() {
            true => NAMELESS.to_owned(),
            false => name.to_owned(),
        },
        file: file.to_owned(),
        line,
        column,
    })
}

/// `/shop/page.js:12:3`, where older versions leave the column out: file, line and column, 0 not known.
fn file_and_line(place: &str) -> (&str, u32, u32) {
    let number = |text: &str| text.parse().ok();
    let Some((rest, last)) = place.rsplit_once(':') else {
        return (place, 0, 0);
    };
    let Some(last) = number(last) else {
        return (place, 0, 0);
    };
    let before = rest.rsplit_once(':');
    let before = before.and_then(|(file, line)| Some((file, number(line)?)));
    let (file, line, column) = match before {
        Some((file, line)) => (file, line, last),
        None => (rest, last, 0),
    };
    (file.strip_prefix("file://").unwrap_or(file), line, column)
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
            let method = method(text).expect("V8's");
            let found = (&*method.name, &*method.file, method.line);
            assert_eq!(found, (name, file, line), "{text}");
        }
        for text in ["Builtin:ArrayMap", "py::work:/app/w.py", ""] {
            assert!(method(text).is_none(), "{text}");
        }
    }
}
