//! Who makes system calls, as JSON.

use std::cmp::Reverse;

use serde::Serialize;
use stackbeat_model::ThreadIndex;

use crate::summary::call_tree::Profile;
use crate::summary::labels::label_text;
use crate::summary::metadata::{FunctionName, Metadata};
use crate::summary::system_calls::{CallSites, Counted, name};

/// Calls of one kind that a function makes, or bytes that they move.
#[derive(Serialize)]
pub(crate) struct FunctionJson {
    #[serde(flatten)]
    kind: Option<KindJson>,
    #[serde(flatten)]
    name: FunctionName,
    #[serde(rename = "self")]
    own: u64,
    total: u64,
}

/// Calls of one kind that are made at a place, or bytes that they move.
#[derive(Serialize)]
pub(crate) struct SiteJson {
    #[serde(flatten)]
    kind: Option<KindJson>,
    count: u64,
    /// Innermost first; empty: not known.
    stack: Vec<String>,
}

#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "lowercase")]
enum KindJson {
    Call(&'static str),
    Bytes(&'static str),
}

/// The functions and the places that make the most calls, or move the most bytes, of each kind.
pub(crate) fn json(
    sites: &CallSites,
    what: Counted,
    metadata: &Metadata,
    profile: &Profile,
    wanted: &dyn Fn(ThreadIndex) -> bool,
    top: usize,
) -> (Vec<FunctionJson>, Vec<SiteJson>) {
    let (mut functions, mut places) = (Vec::new(), Vec::new());
    for kind in sites.by_kind(what, wanted) {
        let json = match what {
            Counted::Calls => Some(KindJson::Call(name(kind.call))),
            Counted::Bytes => Some(KindJson::Bytes(name(kind.call))),
            Counted::WakeUps => None,
        };
        let rows = kind.functions(profile).into_iter().take(top);
        functions.extend(rows.map(|(function, own, total)| FunctionJson {
            kind: json,
            name: (metadata.functions.get(function.0 as usize).cloned()).unwrap_or_default(),
            own,
            total,
        }));
        let mut rows: Vec<_> = kind.places.into_iter().collect();
        rows.sort_by_key(|(place, count)| (Reverse(*count), *place));
        places.extend(rows.into_iter().take(top).map(|(place, count)| {
            SiteJson {
                kind: json,
                count,
                stack: (profile.tree.outwards(place))
                    .map(|(_, label)| label_text(metadata, label))
                    .collect(),
            }
        }));
    }
    (functions, places)
}

#[cfg(test)]
mod tests {
    use stackbeat_core::system_call::SystemCall;
    use stackbeat_model::{AttributedCalls, FunctionIndex, StackIndex};

    use super::*;

    #[test]
    fn counts_of_a_damaged_file_end_at_the_largest() {
        let (metadata, mut profile) = (Metadata::default(), Profile::default());
        let mut sites = CallSites::default();
        let [main, one, other] = [0, 1, 2].map(FunctionIndex);
        for path in [[main, one], [main, other]] {
            let place = profile.tree.path(&path);
            for thread in [0, 1] {
                let thread = ThreadIndex(thread);
                let attributed = AttributedCalls {
                    thread,
                    stack: StackIndex::NONE,
                    call: SystemCall::Read,
                    count: i64::MAX as u64,
                    time_ns: 0,
                };
                for _ in 0..3 {
                    sites.add(thread, place, &attributed);
                }
            }
        }
        let rows = sites.rows(Counted::Calls, &metadata, &profile, &|_| true, 9);
        // Nothing has a name here: all places read alike.
        let metrics: Vec<_> = rows.iter().map(|row| (row.count, row.of_kind)).collect();
        assert_eq!(metrics, [(u64::MAX, u64::MAX)]);
        let (functions, places) = json(&sites, Counted::Calls, &metadata, &profile, &|_| true, 9);
        let metrics: Vec<_> = functions.iter().map(|f| (f.own, f.total)).collect();
        let max = u64::MAX;
        assert_eq!(metrics, [(max, max), (max, max), (0, max)]);
        assert!(places.iter().all(|place| place.count == max));
    }
}
