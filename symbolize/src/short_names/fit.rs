//! A name for little room. Parameters go first, then template arguments, then namespaces from the outside;
//! the last component stays. The page's script does the same (`fitName` in `names.js`), and a test compares
//! both.

use std::borrow::Cow;

use super::shape::Shape;
use super::width::{text_width, without_middle};

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

pub(super) fn without_module(text: &str) -> (&str, &str) {
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
        let Some(shape) = Shape::of(name) else {
            return forms;
        };
        let (body, stub) = (&name[..shape.body], &name[name.len() - shape.stub..]);
        forms.add(format!("{body}{stub}"));
        forms.add(shape.plain.clone());
        forms.qualified = forms.all.len();
        for from in &shape.components[1..=shape.last] {
            forms.add(shape.plain[*from..].to_owned());
        }
        // Which closure of a function it is takes its number alone.
        forms.add(shape.with_short_closures());
        forms
    }

    fn add(&mut self, form: String) {
        if text_width(&form) < self.all.last().map_or(0, |last| text_width(last)) {
            self.all.push(form);
        }
    }
}
