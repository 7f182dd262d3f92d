//! What a name consists of: components between `::`, and what may be left out between them.

use std::ops::Range;

use super::brackets::{Brackets, is_word};
use super::{LONGEST, MOST_NESTING};

/// What may be left out of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// `<int>`, `::<u8>`.
    Arguments,
    /// ` as Trait>` of Rust's `<Type as Trait>`.
    Trait,
    /// Parameters of an outer function or of a lambda.
    Inner,
    /// Those of the function itself.
    Parameters,
    /// ` const`, ` [clone .cold]`.
    Tail,
    /// `  [libc.so.6]`
    Module,
    /// No group but a component of its own.
    Component,
}

#[derive(Debug)]
pub(super) struct Group {
    /// Where it stands in the plain name.
    pub(super) at: usize,
    /// Where in the plain name the `<` stands that it closes.
    pub(super) opens: Option<usize>,
    pub(super) kind: Kind,
    pub(super) text: String,
}

#[derive(Debug)]
pub(super) struct Shape {
    /// The name without its groups.
    pub(super) plain: String,
    pub(super) groups: Vec<Group>,
    /// Where the components of the plain name begin.
    pub(super) components: Vec<usize>,
    /// The first of the components that stay: a closure and an `operator()` are nothing without the function
    /// that they are in.
    pub(super) last: usize,
    /// Length of the name without its parameters and what stands behind them.
    pub(super) body: usize,
    /// Length of `@plt` at its end.
    pub(super) stub: usize,
}

impl Shape {
    /// `None`: the name is too long or too nested to be looked at.
    pub(super) fn of(name: &str) -> Option<Shape> {
        if name.len() > LONGEST {
            return None;
        }
        let brackets = Brackets::of(name);
        if brackets.depth() > MOST_NESTING {
            return None;
        }
        let (before, stub) = match name.strip_suffix("@plt") {
            Some(before) => (before, "@plt"),
            None => (name, ""),
        };
        let (body, end) = parameters(before, &brackets);
        let mut plain = Plain {
            name,
            brackets: &brackets,
            out: String::new(),
            groups: Vec::new(),
        };
        plain.text(0, body);
        plain.leave_out(Kind::Parameters, body, end);
        plain.leave_out(Kind::Tail, end, before.len());
        plain.out.push_str(stub);
        let (plain, groups) = (plain.out, plain.groups);
        let mut shape = Shape {
            components: components(&plain),
            plain,
            groups,
            last: 0,
            body,
            stub: stub.len(),
        };
        let says_something = |part: &str| {
            !part.starts_with('{') && !part.starts_with("'lambda") && part != "operator()"
        };
        let last = (0..shape.components.len()).rfind(|i| says_something(shape.component(*i)));
        shape.last = last.unwrap_or(0);
        Some(shape)
    }

    pub(super) fn component(&self, number: usize) -> &str {
        let begin = self.components[number];
        match self.components.get(number + 1) {
            Some(next) => self.plain[begin..*next].trim_end_matches(':'),
            None => &self.plain[begin..],
        }
    }

    /// The component that a group is of.
    pub(super) fn component_of(&self, group: &Group) -> usize {
        let following = self.components.partition_point(|begin| *begin <= group.at);
        following.saturating_sub(1)
    }

    /// The components that stay; of closures the number alone.
    pub(super) fn with_short_closures(&self) -> String {
        let parts = (self.last..self.components.len()).map(|i| {
            let part = self.component(i);
            match (part.starts_with('{'), part.rfind('#')) {
                (true, Some(number)) => format!("{{{}", &part[number..]),
                (true, None) => "{…}".to_owned(),
                (false, _) => part.to_owned(),
            }
        });
        parts.collect::<Vec<_>>().join("::")
    }

    /// Some components, with what `shown` makes of each group by its number.
    pub(super) fn render(
        &self,
        components: Range<usize>,
        shown: &dyn Fn(usize) -> Option<String>,
    ) -> String {
        let Some(last) = components.end.checked_sub(1) else {
            return String::new();
        };
        let begin = self.components[components.start];
        let end = self.components[last] + self.component(last).len();
        let mut added: Vec<(usize, String)> = Vec::new();
        for (number, group) in self.groups.iter().enumerate() {
            if !(begin..=end).contains(&group.at) {
                continue;
            }
            let Some(text) = shown(number) else {
                continue;
            };
            if let Some(opens) = group.opens {
                added.push((opens.max(begin), "<".to_owned()));
            }
            added.push((group.at, text));
        }
        added.sort_by_key(|(at, _)| *at);
        let (mut out, mut at) = (String::new(), begin);
        for (place, text) in added {
            out.push_str(&self.plain[at..place]);
            out.push_str(&text);
            at = place;
        }
        out + &self.plain[at..end]
    }
}

/// Where the parameters at the end of a name begin and end. Behind them may stand `const` and
/// `[clone .isra.0]`, or ` (.isra.0)` as LLVM writes it.
fn parameters(name: &str, brackets: &Brackets) -> (usize, usize) {
    let mut end = name.len();
    let clones = [(" [clone ", ']'), (" (.", ')')];
    while let Some(at) = clones.iter().find_map(|(open, close)| {
        let body = name[..end].strip_suffix(*close)?;
        body.rfind(open).filter(|at| !body[*at..].contains(*close))
    }) {
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
        Some(at) if at > 0 && is_parameters(name, at, brackets) => {
            (name[..at].trim_end().len(), before)
        }
        _ => (end, end),
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
    out: String,
    groups: Vec<Group>,
}

impl Plain<'_> {
    fn leave_out(&mut self, kind: Kind, begin: usize, end: usize) {
        if begin < end {
            self.groups.push(Group {
                at: self.out.len(),
                opens: None,
                kind,
                text: self.name[begin..end].to_owned(),
            });
        }
    }

    fn text(&mut self, begin: usize, end: usize) {
        let name = self.name;
        let text = name.as_bytes();
        let base = self.out.len();
        let mut at = begin;
        while at < end {
            if let Some(after) = self.brackets.operator_end(at) {
                let after = after.min(end);
                self.out.push_str(&name[at..after]);
                at = after;
                // `operator< <int>`
                let mut open = at;
                if text.get(at) == Some(&b' ') && text.get(at + 1) == Some(&b'<') && at + 1 < end {
                    open += 1;
                }
                if text.get(open) == Some(&b'<')
                    && let Some(close) = self.brackets.partner(open).filter(|close| *close < end)
                {
                    self.leave_out(Kind::Arguments, at, close + 1);
                    at = close + 1;
                } else {
                    at = open;
                }
                continue;
            }
            let close = self
                .brackets
                .partner(at)
                .filter(|close| (at + 1..end).contains(close));
            let is_behind = self.out[base..]
                .bytes()
                .next_back()
                .is_some_and(|byte| is_word(byte) || matches!(byte, b')' | b'}' | b'>'));
            match (text[at], close) {
                (b'<', Some(close)) if is_behind => {
                    self.leave_out(Kind::Arguments, at, close + 1);
                    at = close + 1;
                }
                // Rust: `<A as B>::f` is A's, `f::<A>` has arguments.
                (b'<', Some(close)) if self.out[base..].ends_with("::") => {
                    self.out.truncate(self.out.len() - 2);
                    self.leave_out(Kind::Arguments, at - 2, close + 1);
                    at = close + 1;
                }
                (b'<', Some(close)) if name[close + 1..end].starts_with("::") => {
                    self.owner(at + 1, close);
                    at = close + 1;
                }
                (b'(', Some(close)) if is_behind => {
                    let after = self.after_qualifiers(close + 1, end);
                    self.leave_out(Kind::Inner, at, close + 1);
                    self.leave_out(Kind::Tail, close + 1, after);
                    at = after;
                }
                (b'[', Some(close)) if is_behind => {
                    self.leave_out(Kind::Arguments, at, close + 1);
                    at = close + 1;
                }
                (b'{', Some(close)) if text[at + 1] == b'{' && close > at + 3 => {
                    // `{{closure}}`
                    self.text(at + 1, close);
                    at = close + 1;
                }
                (b'{', Some(close)) => {
                    self.out.push('{');
                    self.text(at + 1, close);
                    self.out.push('}');
                    at = close + 1;
                }
                (_, Some(close)) => {
                    self.out.push_str(&name[at..=close]);
                    at = close + 1;
                }
                (byte, None) if byte < 0x80 => {
                    self.out.push(char::from(byte));
                    at += 1;
                }
                _ => {
                    let word_end = (at..end).find(|i| text[*i] < 0x80).unwrap_or(end);
                    self.out.push_str(&name[at..word_end]);
                    at = word_end;
                }
            }
        }
    }

    /// The type in `<Type as Trait>`.
    fn owner(&mut self, begin: usize, end: usize) {
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
        let opens = self.out.len();
        self.text(from, as_at);
        if as_at < end {
            self.leave_out(Kind::Trait, as_at, end + 1);
            if let Some(group) = self.groups.last_mut() {
                group.opens = Some(opens);
            }
        }
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

/// Where the parts between `::` begin.
fn components(name: &str) -> Vec<usize> {
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
                parts.push(from);
            }
            at += 2;
            from = at;
            continue;
        }
        at += 1;
    }
    if from < name.len() || parts.is_empty() {
        parts.push(from);
    }
    parts
}
