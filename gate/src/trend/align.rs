//! The functions of a series: which names stand for the same function in builds of different commits.

use std::collections::{BTreeMap, BTreeSet};

use crate::comparable_names::{self, Form};
use crate::run::{NameId, Names, Run};
use crate::run_table::Match;

/// For every name the one that it is taken for, and what was taken for what. Names that some commit has not
/// are taken for one when they are the same apart from marks of a form and no commit has two of them.
pub fn same_names(
    names: &Names,
    runs: &[(usize, Run)],
    commits: usize,
) -> (Vec<NameId>, Vec<Match>) {
    let all = names.names();
    let mut presence: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); all.len()];
    for (commit, run) in runs {
        for (_, name, _, _) in run.functions() {
            presence[name.0 as usize].insert(*commit);
        }
    }
    let mut same: Vec<usize> = (0..all.len()).collect();
    let mut matches = Vec::new();
    for form in [Form::Closures, Form::Generics, Form::Parameters] {
        let mut groups: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (at, seen) in presence.iter().enumerate() {
            if same[at] == at && !seen.is_empty() && seen.len() < commits {
                let reduced = comparable_names::reduce(&all[at].text, form);
                groups.entry(reduced).or_default().push(at);
            }
        }
        for members in groups.into_values().filter(|m| m.len() > 1) {
            let together: BTreeSet<usize> = members
                .iter()
                .flat_map(|at| presence[*at].iter().copied())
                .collect();
            let apart: usize = members.iter().map(|at| presence[*at].len()).sum();
            if together.len() != apart {
                continue;
            }
            // The newest name is what people know the function by.
            let newest = |at: &usize| presence[*at].last().copied();
            let Some(kept) = members.iter().copied().max_by_key(newest) else {
                continue;
            };
            for at in members.into_iter().filter(|at| *at != kept) {
                same[at] = kept;
                matches.push(Match {
                    name: all[at].text.clone(),
                    taken_for: all[kept].text.clone(),
                    form,
                });
            }
            presence[kept] = together;
        }
    }
    // What was taken for a name that was taken for another in a coarser form.
    let last = |mut at: usize| {
        while same[at] != at {
            at = same[at];
        }
        NameId(at as u32)
    };
    ((0..all.len()).map(last).collect(), matches)
}

#[cfg(test)]
mod tests {
    use stackbeat_model::metric::{Metric, Values};

    use super::*;
    use crate::run::{About, Builder, Label, ROOT, RoleId, Side};

    fn run(names: &mut Names, functions: &[&str]) -> Run {
        let mut builder = Builder::new(Side::Baseline, About::default());
        let role = builder.tree.child(ROOT, Label::Group(RoleId(0)));
        let mut values = Values::default();
        values.set(Metric::Cpu, 1);
        for function in functions {
            let name = names.function(function, false, Side::Baseline);
            let place = builder.tree.child(role, Label::Function(name));
            builder.add(place, &values);
        }
        builder.finish(1)
    }

    #[test]
    fn a_renamed_function_is_one_and_two_of_one_commit_are_two() {
        let mut names = Names::default();
        let runs = vec![
            (
                0,
                run(&mut names, &["map<u8>", "both<u8>", "both<u16>", "main"]),
            ),
            (1, run(&mut names, &["map<u16>", "both<u8>", "main"])),
            (2, run(&mut names, &["map<u32>", "both<u16>", "main"])),
        ];
        let (same, matches) = same_names(&names, &runs, 3);
        let of = |text: &str| {
            let at = names.names().iter().position(|n| n.text == text);
            names.text(same[at.expect(text)]).to_string()
        };
        assert_eq!(
            (of("map<u8>"), of("map<u16>")),
            ("map<u32>".into(), "map<u32>".into())
        );
        assert_eq!(
            (of("both<u8>"), of("both<u16>")),
            ("both<u8>".into(), "both<u16>".into())
        );
        assert_eq!(of("main"), "main");
        assert_eq!(matches.len(), 2);
        assert!(
            matches
                .iter()
                .all(|m| m.form == Form::Generics && m.taken_for == "map<u32>")
        );
    }
}
