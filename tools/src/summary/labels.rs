//! Names of functions and of places of the call tree, as readers know them.

use std::collections::BTreeMap;

use stackbeat_model::ThreadIndex;
use stackbeat_model::layers::Layer;

use crate::summary::call_tree::{Label, Leaf, Profile};
use crate::summary::functions::SiteRow;
use crate::summary::libraries::{self, is_address, package};
use crate::summary::metadata::{FunctionName, Metadata};
use crate::summary::own_code::OwnCode;

/// CPU time of the wanted threads that no sample says anything about.
pub(crate) fn gap_cpu_ns(profile: &Profile, wanted: &dyn Fn(ThreadIndex) -> bool) -> u64 {
    let chosen = profile.threads.iter().enumerate();
    chosen
        .filter(|(i, _)| wanted(ThreadIndex(*i as u32)))
        .map(|(_, time)| time.gap_cpu_ns)
        .fold(0, u64::saturating_add)
}

pub(crate) fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

/// A place in a source file: `json.py:12`. Of a line that is not known the file alone.
pub(crate) fn source_text(file: &str, line: u32) -> String {
    let file = file_name(file);
    match line {
        0 => file.to_owned(),
        line => format!("{file}:{line}"),
    }
}

/// The name, and the module when it is not obvious. Of a runtime's function the file: its module is the
/// runtime.
pub(crate) fn function_text(metadata: &Metadata, function: u32) -> String {
    let unknown = FunctionName::default();
    let f = metadata
        .functions
        .get(function as usize)
        .unwrap_or(&unknown);
    // Code that no file holds has a place in a source file where its runtime says so.
    if libraries::is_managed(f) && !f.file.is_empty() {
        return format!("{}  [{}]", f.name, source_text(&f.file, f.line));
    }
    // As Rust's `{closure#0}` where the namespaces are not known (`line-tables-only`).
    if f.name.starts_with('{') && !f.file.is_empty() {
        return format!("{}  [{}]", f.name, file_name(&f.file));
    }
    let module = match package(f) {
        Some(package) => package.to_owned(),
        None => file_name(&f.module).to_owned(),
    };
    let module = &*module;
    if module.is_empty() || f.name.starts_with(module) {
        f.name.clone()
    } else {
        format!("{}  [{module}]", f.name)
    }
}

/// A label as one name.
pub(crate) fn label_text(metadata: &Metadata, label: Label) -> String {
    match label {
        Label::Root => "all".into(),
        Label::Function(f) => metadata
            .functions
            .get(f.0 as usize)
            .map_or_else(|| "?".into(), |f| f.name.clone()),
        Label::Leaf(Leaf::Blocking(probe)) => {
            format!("{} [{}]", probe.name(), probe.cause().name())
        }
        Label::Leaf(Leaf::Gap) => "(no evidence)".into(),
        Label::Leaf(Leaf::Code | Leaf::NoStack) => "(no stack)".into(),
        Label::Small => "(many small stacks)".into(),
        Label::Group(none) => match none {},
    }
}

/// Sites that a reader of the table could not tell apart are one, longest total first.
pub(crate) fn alike(
    metadata: &Metadata,
    profile: &Profile,
    sites: Vec<SiteRow>,
) -> Vec<(SiteRow, String)> {
    let own = OwnCode::new(metadata, &profile.tree);
    let mut rows: BTreeMap<(String, String), SiteRow> = BTreeMap::new();
    for site in sites {
        let callers = chain(&own, profile.caller_of(site.place));
        rows.entry((site.call(profile), callers))
            .and_modify(|row| row.add(&site))
            .or_insert(site);
    }
    let mut rows: Vec<_> = rows
        .into_iter()
        .map(|((_, callers), site)| (site, callers))
        .collect();
    rows.sort_by_key(|(site, _)| std::cmp::Reverse(site.total_ns));
    rows
}

/// The names at a place that tell something, innermost first: from where the program calls a library
/// ([`OwnCode::told`]). Where no function is the program's own, the layers of a standard library, or of an
/// interpreter, are left out at the beginning, and so are functions without a name where one with a name is
/// near.
pub(crate) fn chain(own: &OwnCode, place: u32) -> String {
    const SHOWN: usize = 4;
    let told = own.told(place);
    let from = told.map_or(place, |told| told.from);
    let outwards = own.tree().outwards(from);
    let mut labels: Vec<Label> = Vec::new();
    for (at, label) in outwards {
        labels.push(label);
        if told.is_some_and(|told| told.to == at) {
            break;
        }
    }
    let is_managed = |label: &Label| is_managed(own.metadata(), *label);
    let is_interpreter = |label: &Label| own.layer_of(*label) == Some(Layer::Interpreter);
    let is_standard = |label: &Label| own.layer_of(*label).is_some_and(Layer::is_standard);
    if labels.iter().any(is_managed) {
        labels.retain(|label| !is_interpreter(label));
    }
    let texts = labels
        .iter()
        .map(|label| label_text(own.metadata(), *label));
    let all: Vec<_> = texts.collect();
    let first = match told {
        Some(_) => 0,
        None => {
            let managed = labels.iter().position(is_managed);
            let other = || labels.iter().position(|label| !is_standard(label));
            let first = managed.or_else(other).unwrap_or(0);
            let mut near = all[first..].iter().take(SHOWN);
            first + near.position(|name| !is_address(name)).unwrap_or(0)
        }
    };
    let mut names: Vec<_> = all[first..]
        .iter()
        .take(SHOWN + 1)
        .map(|name| crate::table::shorten_name(name, 48))
        .collect();
    if names.len() > SHOWN {
        names[SHOWN] = "…".into();
    }
    names.join(" ← ")
}

fn function(metadata: &Metadata, label: Label) -> Option<&FunctionName> {
    match label {
        Label::Function(function) => metadata.functions.get(function.0 as usize),
        _ => None,
    }
}

/// Whether a function is interpreted, or compiled by a runtime ([`libraries::is_managed`]).
pub(crate) fn is_managed(metadata: &Metadata, label: Label) -> bool {
    function(metadata, label).is_some_and(libraries::is_managed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_not_known_is_not_said() {
        assert_eq!(source_text("/srv/shop.js", 12), "shop.js:12");
        assert_eq!(source_text("/srv/shop.js", 0), "shop.js");
        let metadata = Metadata {
            functions: vec![FunctionName {
                name: "load".to_owned(),
                file: "/srv/shop.js".to_owned(),
                ..FunctionName::default()
            }],
            ..Metadata::default()
        };
        assert_eq!(function_text(&metadata, 0), "load  [shop.js]");
    }
}
