//! Names that became one by being cut: what they differ in stays visible.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::brackets;
use super::fit::{fit, without_module};
use super::shape::{Group, Kind, Shape};
use super::width::{beginning, ending, text_width, without_middle};

/// Forms of different names that all became the same for a room. Each has at most `room` characters. They
/// show their last component and what tells one from the others, as far as there is room:
/// `Tree<…int>::find(…)`. `…` stands for what is left out.
pub fn fit_apart(names: &[&str], room: usize) -> Vec<String> {
    let shapes: Option<Vec<Parts<'_>>> = names.iter().map(|name| Parts::of(name)).collect();
    let Some(all) = shapes else {
        return around(names, room);
    };
    let ends: Vec<&str> = all.iter().map(|parts| parts.end()).collect();
    if ends.iter().any(|end| *end != ends[0]) {
        return around(&ends, room);
    }
    let mut forms: Vec<String> = Vec::new();
    let different = |forms: &[String]| BTreeSet::from_iter(forms).len();
    for chosen in differences(&all) {
        let these: Vec<String> = all.iter().map(|parts| parts.fit(&chosen, room)).collect();
        if different(&these) > different(&forms) {
            forms = these;
        }
        if different(&forms) == names.len() {
            return forms;
        }
    }
    match different(&forms) {
        0 => return around(names, room),
        // There is no room.
        1 => return forms,
        _ => {}
    }
    // Those that are still one have fewer differences among themselves.
    let found = forms.clone();
    for (first, form) in found.iter().enumerate() {
        if found[..first].contains(form) {
            continue;
        }
        let places: Vec<usize> = (0..names.len()).filter(|i| found[*i] == *form).collect();
        if places.len() > 1 {
            let same: Vec<&str> = places.iter().map(|i| names[*i]).collect();
            let mut these = forms.clone();
            for (place, form) in places.into_iter().zip(fit_apart(&same, room)) {
                these[place] = form;
            }
            if different(&these) > different(&forms) {
                forms = these;
            }
        }
    }
    forms
}

/// Which part of a name: of which component, counted from the end, and the how-manieth of its kind there.
type Key = (usize, Kind, usize);

/// What must be left of a difference that is cut so that the names of its components stay.
const FAIR_DIFFERENCE: usize = 12;
/// `<…a…>`
const LEAST_DIFFERENCE: usize = 5;

/// What stands for a part of a name, if anything.
type Shown<'a> = &'a dyn Fn(&Key) -> Option<String>;

/// By part of the name: the text of each name there, as short as tells it from the others.
type Chosen = BTreeMap<Key, BTreeMap<String, String>>;

struct Parts<'a> {
    name: &'a str,
    module: &'a str,
    shape: Shape,
    texts: BTreeMap<Key, String>,
    /// Of each group.
    keys: Vec<Key>,
}

impl Parts<'_> {
    fn of(name: &str) -> Option<Parts<'_>> {
        let (name, module) = without_module(name);
        let shape = Shape::of(name)?;
        let (mut texts, mut keys) = (BTreeMap::new(), Vec::new());
        let from_end = |number: usize| shape.components.len() - 1 - number;
        for group in &shape.groups {
            let component = from_end(shape.component_of(group));
            let is_free = |n: &usize| !texts.contains_key(&(component, group.kind, *n));
            let key = (component, group.kind, (0..).find(is_free).unwrap_or(0));
            texts.insert(key, group.text.clone());
            keys.push(key);
        }
        for number in 0..shape.last {
            let key = (from_end(number), Kind::Component, 0);
            texts.insert(key, shape.component(number).to_owned());
        }
        texts.insert((0, Kind::Module, 0), module.to_owned());
        Some(Parts {
            name,
            module,
            shape,
            texts,
            keys,
        })
    }

    /// The components that stay.
    fn end(&self) -> &str {
        &self.shape.plain[self.shape.components[self.shape.last]..]
    }

    fn text(&self, key: &Key) -> &str {
        self.texts.get(key).map_or("", String::as_str)
    }

    /// The longest form that has room and shows what is chosen.
    fn fit(&self, chosen: &Chosen, room: usize) -> String {
        let shape = &self.shape;
        let count = shape.components.len();
        let has_module = chosen.keys().any(|(_, kind, _)| *kind == Kind::Module);
        let fits = |form: String| -> Option<String> {
            let with_module = format!("{form}{}", self.module);
            if text_width(&with_module) <= room {
                return Some(with_module);
            }
            (!has_module && text_width(&form) <= room).then_some(form)
        };
        let whole = |key: &Key| chosen.get(key).map(|_| self.text(key).to_owned());
        let short = |key: &Key| chosen.get(key)?.get(self.text(key)).cloned();
        let number = |key: &Key| (count - 1).checked_sub(key.0);
        let first = chosen.keys().filter_map(number).min().unwrap_or(0);
        let first = first.min(shape.last);
        let found = fits(self.name.to_owned())
            .or_else(|| fits(self.render(0..count, &whole, true)))
            .or_else(|| fits(self.render(0..count, &whole, false)))
            .or_else(|| fits(self.render(0..count, &short, true)))
            .or_else(|| (0..=first).find_map(|from| fits(self.render(from..count, &short, false))));
        if let Some(form) = found {
            return form;
        }
        // What differs is cut itself.
        let module = if has_module {
            text_width(self.module)
        } else {
            0
        };
        let excess = |form: &str| (text_width(form) + module).saturating_sub(room);
        let named = excess(&self.render(first..count, &short, false));
        let named = |key: &Key| Some(cut_group(&short(key)?, named, FAIR_DIFFERENCE));
        let without = self.without_middle(first, &short);
        let least = excess(&without);
        let least = |key: &Key| Some(cut_group(&short(key)?, least, LEAST_DIFFERENCE));
        fits(self.render(first..count, &named, false))
            .or_else(|| fits(without))
            .or_else(|| fits(self.without_middle(first, &least)))
            .unwrap_or_else(|| fit(self.name, room).into_owned())
    }

    /// Some components with groups, of which all others are `<…>` and `(…)` where marked.
    fn render(&self, components: Range<usize>, shown: Shown<'_>, is_marked: bool) -> String {
        // `const` alone would be read as a name.
        let is_behind = shown(&(0, Kind::Tail, 0)).is_some();
        self.shape.render(components, &|number| {
            let group = &self.shape.groups[number];
            let is_marked = is_marked || is_behind && group.kind == Kind::Parameters;
            let mark = || mark(group).filter(|_| is_marked);
            shown(&self.keys[number]).or_else(mark)
        })
    }

    /// Components without a difference are left out between `first` and those that stay.
    fn without_middle(&self, first: usize, shown: Shown<'_>) -> String {
        let shape = &self.shape;
        let mut out = String::new();
        for number in first..shape.last {
            let key = (shape.components.len() - 1 - number, Kind::Component, 0);
            let name = shape.component(number);
            let rest = self.render(number..number + 1, shown, false);
            let piece = match shown(&key) {
                Some(text) => rest.replacen(name, &text, 1),
                None => rest.replacen(name, "…", 1),
            };
            if piece != "…" || !out.ends_with("…::") {
                out += &format!("{piece}::");
            }
        }
        out + &self.render(shape.last..shape.components.len(), shown, false)
    }
}

/// The parts that may tell names apart: each that does so alone, the shortest first, and all that differ.
fn differences(all: &[Parts<'_>]) -> Vec<Chosen> {
    let keys: BTreeSet<&Key> = all.iter().flat_map(|parts| parts.texts.keys()).collect();
    let mut differing = Chosen::new();
    for key in keys {
        let texts: BTreeSet<&str> = all.iter().map(|parts| parts.text(key)).collect();
        if texts.len() > 1 {
            differing.insert(*key, short_texts(key.1, &texts));
        }
    }
    let alone = differing
        .iter()
        .filter(|(_, texts)| texts.len() == all.len());
    let mut alone: Vec<_> = alone.collect();
    let longest = |texts: &BTreeMap<_, String>| texts.values().map(|text| text_width(text)).max();
    alone.sort_by_key(|(key, texts)| (key.1 == Kind::Module, longest(texts)));
    let alone = alone
        .into_iter()
        .map(|(key, texts)| Chosen::from([(*key, texts.clone())]));
    let mut found: Vec<Chosen> = alone.collect();
    if !differing.is_empty() {
        found.push(differing);
    }
    found
}

/// Without what all begin and end with: `<…int>` and `<…long>`.
fn short_texts(kind: Kind, texts: &BTreeSet<&str>) -> BTreeMap<String, String> {
    let opener = |text: &str| match kind {
        Kind::Arguments | Kind::Inner | Kind::Parameters => {
            text.find(['<', '(', '[']).map(|at| at + 1)
        }
        Kind::Trait => Some(" as ".len()),
        Kind::Tail | Kind::Module | Kind::Component => None,
    };
    let inner = |text: &str| -> Option<Vec<char>> {
        let inside = text.get(opener(text)?..text.len().checked_sub(1)?)?;
        Some(inside.chars().collect())
    };
    let inners: Vec<Vec<char>> = texts.iter().filter_map(|text| inner(text)).collect();
    let (before, behind) = match inners.len() == texts.len() {
        true => common(&inners, true),
        false => (0, 0),
    };
    let short = |text: &str| -> Option<String> {
        let (inner, opener) = (inner(text)?, opener(text)?);
        let mut out = text[..opener].to_owned();
        let (begin, mut end) = (before, inner.len() - behind);
        let count = |letters: &[char], which: [char; 2]| {
            letters.iter().filter(|c| which.contains(c)).count()
        };
        let is_open = |end: usize| {
            count(&inner[begin..end], ['<', '(']) > count(&inner[begin..end], ['>', ')'])
        };
        while end < inner.len() && is_open(end) {
            end += 1;
        }
        match begin {
            0 | 1 => out.extend(&inner[..begin]),
            _ => out.push('…'),
        }
        out.extend(&inner[begin..end]);
        if inner[end..]
            .iter()
            .any(|c| !matches!(c, '>' | ')' | ']' | ' '))
        {
            out.push('…');
        }
        out.push_str(&text[text.len() - 1..]);
        Some(out)
    };
    let both = |text: &&str| {
        let whole = (*text).to_owned();
        (whole.clone(), short(text).unwrap_or(whole))
    };
    texts.iter().map(both).collect()
}

/// How many characters are the same at the begin and at the end of all; whole words where wished.
fn common(texts: &[Vec<char>], is_by_word: bool) -> (usize, usize) {
    let Some(first) = texts.first() else {
        return (0, 0);
    };
    let shortest = texts.iter().map(Vec::len).min().unwrap_or(0);
    let is_word = |c: Option<&char>| {
        is_by_word && c.is_some_and(|c| brackets::is_word(u8::try_from(*c).unwrap_or(u8::MAX)))
    };
    let same = |at: &usize| texts.iter().all(|text| text[*at] == first[*at]);
    let mut before = (0..shortest).find(|at| !same(at)).unwrap_or(shortest);
    let goes_on = |at: usize| texts.iter().any(|text| is_word(text.get(at)));
    if goes_on(before) {
        while before > 0 && is_word(first.get(before - 1)) {
            before -= 1;
        }
    }
    let from_end = |text: &[char], at: usize| text.len().checked_sub(at + 1).map(|at| text[at]);
    let same = |at: &usize| {
        texts
            .iter()
            .all(|text| from_end(text, *at) == from_end(first, *at))
    };
    let most = shortest - before;
    let mut behind = (0..most).find(|at| !same(at)).unwrap_or(most);
    if texts
        .iter()
        .any(|text| is_word(from_end(text, behind).as_ref()))
    {
        while behind > 0 && is_word(from_end(first, behind - 1).as_ref()) {
            behind -= 1;
        }
    }
    (before, behind)
}

/// Stands for a group that is left out where that is shorter.
fn mark(group: &Group) -> Option<String> {
    let mark = match group.kind {
        Kind::Arguments if group.text.starts_with('<') => "<…>",
        Kind::Parameters => "(…)",
        _ => return None,
    };
    let is_short = text_width(&group.text) <= text_width(mark);
    Some(if is_short {
        group.text.clone()
    } else {
        mark.to_owned()
    })
}

/// What differs, shorter by `excess` where `least` is left of it: its begin stays, and the brackets.
fn cut_group(text: &str, excess: usize, least: usize) -> String {
    let keep = text_width(text).saturating_sub(excess);
    if excess == 0 || keep < least {
        return text.to_owned();
    }
    let closer = text
        .chars()
        .next_back()
        .filter(|c| matches!(c, '>' | ')' | ']'));
    let closers = usize::from(closer.is_some());
    let mut short = beginning(text, keep.saturating_sub(1 + closers)).to_owned();
    short.push('…');
    short.extend(closer);
    short
}

/// Texts that differ somewhere, cut around that.
fn around(texts: &[&str], room: usize) -> Vec<String> {
    let letters: Vec<Vec<char>> = texts.iter().map(|text| text.chars().collect()).collect();
    let (before, behind) = common(&letters, false);
    let part = |letters: &[char]| letters.iter().collect::<String>();
    let one = |text: &Vec<char>| -> String {
        let whole = part(text);
        if text_width(&whole) <= room {
            return whole;
        }
        let end = text.len() - behind;
        let [before, differs, behind] =
            [&text[..before], &text[before..end], &text[end..]].map(part);
        let Some(rest) = room.checked_sub(text_width(&differs) + 2) else {
            return without_middle(&whole, room);
        };
        let head = beginning(&before, rest * 2 / 3);
        let tail = ending(&behind, rest - text_width(head));
        let dots = |is_cut| if is_cut { "…" } else { "" };
        let (cut_before, cut_behind) = (head.len() < before.len(), tail.len() < behind.len());
        format!(
            "{head}{}{differs}{}{tail}",
            dots(cut_before),
            dots(cut_behind)
        )
    };
    letters.iter().map(one).collect()
}
