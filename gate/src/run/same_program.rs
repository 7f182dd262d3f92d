//! Whether two runs are of one program.

use std::collections::HashMap;

use stackbeat_model::metric::Metric;

use super::{NameId, Names, Run};
use crate::comparable_names::module_of_address;

/// What two runs say of their programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kin {
    /// One program, perhaps two builds of it.
    Same,
    /// Files of other names, and nothing that says whether they are builds of one program.
    Unknown,
    /// Files of other names whose functions are others, too.
    Different,
}

/// Two builds of a program may have other file names; then their functions are mostly the same.
pub fn kin(a: &Run, b: &Run, names: &Names) -> Kin {
    /// Of the time of either.
    const SHARED: f64 = 0.1;
    let is_known = !a.about.programs.is_empty() && !b.about.programs.is_empty();
    let programs = &b.about.programs;
    if !is_known || a.about.programs.iter().any(|name| programs.contains(name)) {
        return Kin::Same;
    }
    let (a, b) = (own_functions(a, names), own_functions(b, names));
    if a.is_empty() || b.is_empty() {
        return Kin::Unknown;
    }
    let shared = |these: &HashMap<NameId, u64>, those: &HashMap<NameId, u64>| {
        let in_both = these.iter().filter(|(name, _)| those.contains_key(*name));
        let in_both: u64 = in_both.map(|(_, ns)| ns).sum();
        in_both as f64 / these.values().sum::<u64>().max(1) as f64
    };
    match shared(&a, &b).max(shared(&b, &a)) < SHARED {
        true => Kin::Different,
        false => Kin::Same,
    }
}

/// Time by function, of those that have names and are not the system's.
fn own_functions(run: &Run, names: &Names) -> HashMap<NameId, u64> {
    let mut own = HashMap::new();
    for (_, name, metric, ns) in run.functions() {
        let known = &names.names()[name.0 as usize];
        let is_own = !known.is_system && module_of_address(&known.text).is_none();
        if metric == Metric::Wall && is_own {
            *own.entry(name).or_insert(0) += ns;
        }
    }
    own
}

#[cfg(test)]
mod tests {
    use stackbeat_model::metric::Values;

    use super::*;
    use crate::run::{About, Builder, Label, ROOT, Role, Side};

    #[test]
    fn builds_of_one_program_are_told_from_other_programs() {
        let mut names = Names::default();
        let mut run = |program: &str, functions: &[(&str, u64)]| {
            let about = About {
                programs: vec![program.into()],
                ..About::default()
            };
            let mut builder = Builder::new(Side::Baseline, about);
            let role = names.role(Role {
                process: "any".into(),
                thread: "main".into(),
                is_root: true,
            });
            let top = builder.tree.child(ROOT, Label::Group(role));
            for (name, ns) in functions {
                let name = names.function(name, *name == "memcpy", Side::Baseline);
                let place = builder.tree.child(top, Label::Function(name));
                let mut values = Values::default();
                values.set(Metric::Wall, *ns);
                builder.add(place, &values);
            }
            builder.finish(1000)
        };
        let old = run("old", &[("parse", 700), ("main", 20), ("memcpy", 280)]);
        let new = run(
            "new",
            &[("parse_all", 500), ("parse", 300), ("memcpy", 200)],
        );
        let other = run("sort", &[("compare", 500), ("main", 20), ("memcpy", 480)]);
        let unnamed = run("bare", &[("bare+0x12a0", 900), ("memcpy", 100)]);
        let same_file = run("old", &[("compare", 500)]);
        let kin = |a: &Run, b: &Run| kin(a, b, &names);
        assert_eq!(kin(&old, &new), Kin::Same);
        assert_eq!(kin(&old, &other), Kin::Different);
        assert_eq!(kin(&old, &unnamed), Kin::Unknown);
        assert_eq!(kin(&old, &same_file), Kin::Same);
    }
}
