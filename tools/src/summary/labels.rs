//! Names of functions and of places of the call tree, as readers know them.

use std::collections::BTreeMap;

use stackbeat_model::ThreadIndex;
use stackbeat_model::layers::Layer;

use crate::summary::call_tree::{Label, Leaf, Profile};
use crate::summary::functions::SiteRow;
use crate::summary::libraries::{self, package};
use crate::summary::metadata::{FunctionName, Metadata};

/// CPU time of the wanted threads that no sample says anything about.
pub(crate) fn gap_cpu_ns(profile: &Profile, wanted: &dyn Fn(ThreadIndex) -> bool) -> u64 {
    let chosen = profile.threads.iter().enumerate();
    chosen
        .filter(|(i, _)| wanted(ThreadIndex(*i as u32)))
        .map(|(_, time)| time.gap_cpu_ns)
        .fold(0, u64::saturating_add)
}

/// The name, and the module when it is not obvious. Of a runtime's function the file: its module is the
/// runtime.
pub(crate) fn function_text(metadata: &Metadata, function: u32) -> String {
    let unknown = FunctionName::default();
    let f = metadata
        .functions
        .get(function as usize)
        .unwrap_or(&unknown);
    let file_name = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    // Code that no file holds has a place in a source file where its runtime says so.
    if libraries::is_managed(f) && !f.file.is_empty() {
        return format!("{}  [{}:{}]", f.name, file_name(&f.file), f.line);
    }
    // As Rust's `{closure#0}` where the namespaces are not known (`line-tables-only`).
    if f.name.starts_with('{') && !f.file.is_empty() {
        return format!("{}  [{}]", f.name, file_name(&f.file));
    }
    let module = match package(f) {
        Some(package) => package.to_owned(),
        None => file_name(&f.module),
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
    let mut rows: BTreeMap<(String, String), SiteRow> = BTreeMap::new();
    for site in sites {
        let callers = callers(metadata, profile, &site);
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

/// The innermost callers of a blocking call.
pub(crate) fn callers(metadata: &Metadata, profile: &Profile, site: &SiteRow) -> String {
    chain(metadata, profile.tree.outwards(site.place).skip(1))
}

/// The innermost names that tell something: the layers of a standard library, or of an interpreter, between a
/// call and the program's own code are left out, and so are functions without a name where one with a name is
/// near.
pub(crate) fn chain(metadata: &Metadata, outwards: impl Iterator<Item = (u32, Label)>) -> String {
    const SHOWN: usize = 4;
    let mut labels: Vec<Label> = outwards.map(|(_, label)| label).collect();
    if labels.iter().any(|label| is_managed(metadata, *label)) {
        labels.retain(|label| !is_interpreter(metadata, *label));
    }
    let all: Vec<_> = labels.iter().map(|l| label_text(metadata, *l)).collect();
    let managed = labels.iter().position(|label| is_managed(metadata, *label));
    let first = managed.or_else(|| {
        labels
            .iter()
            .position(|label| !is_standard(metadata, *label))
    });
    let first = first.unwrap_or(0);
    let nameless = all[first..]
        .iter()
        .take(SHOWN)
        .position(|name| !is_address(name));
    let first = first + nameless.unwrap_or(0);
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

/// Whether a function belongs to a standard library.
fn is_standard(metadata: &Metadata, label: Label) -> bool {
    function(metadata, label).is_some_and(FunctionName::is_standard)
}

/// Whether a function is an interpreter's.
fn is_interpreter(metadata: &Metadata, label: Label) -> bool {
    function(metadata, label).is_some_and(|f| f.layer() == Layer::Interpreter)
}

/// Whether a function is interpreted, or compiled by a runtime ([`libraries::is_managed`]).
pub(crate) fn is_managed(metadata: &Metadata, label: Label) -> bool {
    function(metadata, label).is_some_and(libraries::is_managed)
}

/// Whether a function has no name: `libfoo.so+0x1240`, or the address alone.
pub(crate) fn is_address(name: &str) -> bool {
    name.starts_with("0x") || name.contains("+0x")
}
