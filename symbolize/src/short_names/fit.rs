//! A name for little room. Parameters go first, then template arguments, then namespaces from the outside;
//! the last component stays. The page's script does the same (`fitName` in `format.js`), and the same table
//! of names tests both.

use std::borrow::Cow;

use super::brackets::{Brackets, is_word};
use super::width::{text_width, without_middle};
use super::{LONGEST, MOST_NESTING};

/// The longest form of a name that takes no more than `room` cells. A module behind it (`name [module]`)
/// goes before the first namespace does. Only where the last component alone is too long its middle is cut
/// out.
pub fn fit(name: &str, room: usize) -> Cow<'_, str> {
    if text_width(name) <= room {
        return Cow::Borrowed(name);
    }
    let (name, module) = without_module(name);
    let forms = Forms::of(name);
    let mut qualified = forms.all.iter().take(forms.qualified);
    if let Some(form) = qualified.find(|form| text_width(form) + text_width(module) <= room) {
        return Cow::Owned(format!("{form}{module}"));
    }
    let fitting = forms.all.iter().find(|form| text_width(form) <= room);
    match (fitting, forms.all.last()) {
        (Some(form), _) => Cow::Owned(form.clone()),
        (None, shortest) => Cow::Owned(without_middle(shortest.map_or(name, String::as_str), room)),
    }
}

fn without_module(text: &str) -> (&str, &str) {
    match text.rfind("  [") {
        Some(at) if at > 0 && text.ends_with(']') => text.split_at(at),
        _ => (text, ""),
    }
}

/// All forms of a name, each shorter than the one before.
struct Forms {
    all: Vec<String>,
    /// How many of them have all namespaces.
    qualified: usize,
}

impl Forms {
    fn of(name: &str) -> Forms {
        let mut forms = Forms {
            all: vec![name.to_owned()],
            qualified: 1,
        };
        if name.len() > LONGEST {
            return forms;
        }
        let brackets = Brackets::of(name);
        if brackets.depth() > MOST_NESTING {
            return forms;
        }
        let (body, stub) = match name.strip_suffix("@plt") {
            Some(body) => (body, "@plt"),
            None => (name, ""),
        };
        let body = &body[..without_parameters(body, &brackets)];
        forms.add(format!("{body}{stub}"));
        let plain = Plain {
            name,
            brackets: &brackets,
        };
        let plain = plain.text(0, body.len());
        forms.add(format!("{plain}{stub}"));
        forms.qualified = forms.all.len();
        let components = components(&plain);
        let last = last_component(&components);
        for from in 1..=last {
            forms.add(format!("{}{stub}", components[from..].join("::")));
        }
        // Which closure of a function it is matters less than the function.
        let closures =
            components[last..]
                .iter()
                .map(|component| match component.starts_with('{') {
                    true => "{…}",
                    false => component,
                });
        forms.add(format!("{}{stub}", closures.collect::<Vec<_>>().join("::")));
        forms
    }

    fn add(&mut self, form: String) {
        if text_width(&form) < self.all.last().map_or(0, |last| text_width(last)) {
            self.all.push(form);
        }
    }
}

/// Where the parameters begin at the end of a name, with what stands behind them (`const`, `[clone
/// .isra.0]`).
fn without_parameters(name: &str, brackets: &Brackets) -> usize {
    let mut end = name.len();
    while let Some(at) = name[..end].rfind(" [clone ") {
        if !name[..end].ends_with(']') {
            break;
        }
        end = at;
    }
    let mut before = end;
    loop {
        let text = name[..before].trim_end();
        let qualifier = [" const", " volatile", " noexcept", "&"]
            .iter()
            .find_map(|word| text.strip_suffix(word));
        match qualifier {
            Some(rest) => before = rest.len(),
            None => {
                before = text.len();
                break;
            }
        }
    }
    let opener = name[..before]
        .ends_with(')')
        .then(|| brackets.partner(before - 1))
        .flatten();
    match opener {
        Some(at) if at > 0 && is_parameters(name, at, brackets) => name[..at].trim_end().len(),
        _ => end,
    }
}

/// Whether the parentheses that begin here hold parameters: they stand behind a name.
fn is_parameters(name: &str, at: usize, brackets: &Brackets) -> bool {
    let before = name[..at].trim_end();
    // `operator()`, `operator int*`.
    let is_operator = || {
        let begin = before.rfind("operator");
        begin.is_some_and(|begin| brackets.operator_end(begin).is_some())
    };
    before
        .bytes()
        .next_back()
        .is_some_and(|byte| is_word(byte) || matches!(byte, b'>' | b'}' | b']' | b'\''))
        || is_operator()
}

/// Takes template arguments and the parameters of outer functions out of a name.
struct Plain<'a> {
    name: &'a str,
    brackets: &'a Brackets,
}

impl Plain<'_> {
    fn text(&self, begin: usize, end: usize) -> String {
        let text = self.name.as_bytes();
        let mut out = String::new();
        let mut at = begin;
        while at < end {
            if let Some(after) = self.brackets.operator_end(at) {
                let after = after.min(end);
                out.push_str(&self.name[at..after]);
                at = after;
                // `operator< <int>`
                if text.get(at) == Some(&b' ') && text.get(at + 1) == Some(&b'<') && at + 1 < end {
                    at += 1;
                }
                if text.get(at) == Some(&b'<')
                    && let Some(close) = self.brackets.partner(at).filter(|close| *close < end)
                {
                    at = close + 1;
                }
                continue;
            }
            let close = self
                .brackets
                .partner(at)
                .filter(|close| (at + 1..end).contains(close));
            let is_behind = out
                .bytes()
                .next_back()
                .is_some_and(|byte| is_word(byte) || matches!(byte, b')' | b'}' | b'>'));
            match (text[at], close) {
                (b'<', Some(close)) if is_behind => at = close + 1,
                // Rust: `<A as B>::f` is A's, `f::<A>` has arguments.
                (b'<', Some(close)) if out.ends_with("::") => {
                    out.truncate(out.len() - 2);
                    at = close + 1;
                }
                (b'<', Some(close)) if self.name[close + 1..end].starts_with("::") => {
                    out.push_str(&self.owner(at + 1, close));
                    at = close + 1;
                }
                (b'(', Some(close)) if is_behind => at = self.after_qualifiers(close + 1, end),
                (b'[', Some(close)) if is_behind => at = close + 1,
                (b'{', Some(close)) if text[at + 1] == b'{' && close > at + 3 => {
                    // `{{closure}}`
                    out.push_str(&self.text(at + 1, close));
                    at = close + 1;
                }
                (b'{', Some(close)) => {
                    out.push('{');
                    out.push_str(&self.text(at + 1, close));
                    out.push('}');
                    at = close + 1;
                }
                (_, Some(close)) => {
                    out.push_str(&self.name[at..=close]);
                    at = close + 1;
                }
                (byte, None) if byte < 0x80 => {
                    out.push(char::from(byte));
                    at += 1;
                }
                _ => {
                    let word_end = (at..end).find(|i| text[*i] < 0x80).unwrap_or(end);
                    out.push_str(&self.name[at..word_end]);
                    at = word_end;
                }
            }
        }
        out
    }

    /// The type in `<Type as Trait>`.
    fn owner(&self, begin: usize, end: usize) -> String {
        let mut at = begin;
        let mut as_at = end;
        while at < end {
            match self
                .brackets
                .partner(at)
                .filter(|close| (at + 1..end).contains(close))
            {
                Some(close) => at = close + 1,
                None if self.name.as_bytes()[at] == b' '
                    && self.name[at..end].starts_with(" as ") =>
                {
                    as_at = at;
                    break;
                }
                None => at += 1,
            }
        }
        let mut from = begin;
        for prefix in ["&", "mut ", "dyn "] {
            if self.name[from..as_at].starts_with(prefix) {
                from += prefix.len();
            }
        }
        self.text(from, as_at)
    }

    /// Behind ` const` of an outer function: `f() const::{lambda()#1}`.
    fn after_qualifiers(&self, at: usize, end: usize) -> usize {
        let rest = &self.name[at..end];
        let next = rest.find("::").unwrap_or(rest.len());
        match rest[..next].trim() {
            "const" | "volatile" | "const volatile" | "&" | "&&" | "const&" | "const &"
            | "const&&" => at + next,
            _ => at,
        }
    }
}

/// The parts between `::`.
fn components(name: &str) -> Vec<&str> {
    let text = name.as_bytes();
    let brackets = Brackets::of(name);
    let mut parts = Vec::new();
    let (mut from, mut at) = (0, 0);
    while at < text.len() {
        if let Some(end) = brackets.operator_end(at) {
            at = end;
            // Behind `operator` alone stands the type of a conversion.
            if text.get(at) == Some(&b' ') {
                break;
            }
            continue;
        }
        if let Some(close) = brackets.partner(at).filter(|close| *close > at) {
            at = close + 1;
            continue;
        }
        if name.as_bytes()[at..].starts_with(b"::") {
            if at > from {
                parts.push(&name[from..at]);
            }
            at += 2;
            from = at;
            continue;
        }
        at += 1;
    }
    if from < name.len() || parts.is_empty() {
        parts.push(&name[from..]);
    }
    parts
}

/// The first of the components that stay: a closure and an `operator()` are nothing without the function that
/// they are in.
fn last_component(components: &[&str]) -> usize {
    let says_something = |part: &&str| {
        !part.starts_with('{') && !part.starts_with("'lambda") && *part != "operator()"
    };
    components.iter().rposition(says_something).unwrap_or(0)
}
