//! Which thread, and which of its times, made the run longer.

use std::collections::{BTreeMap, BTreeSet};

use stackbeat_model::metric::Metric;

use super::{Explanation, change, explain_sum};
use crate::rules::Pairing;
use crate::run::{Label, Leaf, RoleId};
use crate::run_table::RunTable;
use crate::stats::mean;
use crate::wait_partners::{self, Answering};

const ACTIVE: [Metric; 7] = [
    Metric::Cpu,
    Metric::Ready,
    Metric::Lock,
    Metric::Io,
    Metric::Net,
    Metric::Sleep,
    Metric::Gap,
];
/// The same of runs that shared a processor: what nothing is known of, and time without a CPU, is the other's
/// turn.
const OWN: [Metric; 5] = [
    Metric::Cpu,
    Metric::Lock,
    Metric::Io,
    Metric::Net,
    Metric::Sleep,
];
const PASSIVE: [Metric; 4] = [Metric::Wait, Metric::Poll, Metric::Join, Metric::Process];
/// What a thread spends time on that has nothing to do: it sleeps, or reads a pipe or a socket, for as long
/// as the run takes; what of that is too short to be seen looks like time without a CPU.
const IDLE: [Metric; 4] = [Metric::Io, Metric::Net, Metric::Sleep, Metric::Ready];
/// Share of a wait for a lock by which who holds it has to have waited longer himself, for something else.
const HOLDS: f64 = 0.5;
/// Share of a wait by which others have to have taken longer, to be its reason.
const ANSWERS: f64 = 0.3;
/// The same where nobody is known to have ended the wait, and others work, or are idle, beside it.
const ANSWERS_UNSEEN: f64 = 0.7;

/// Wall time is no sum over threads. The main thread's time is: what of it grew? If it waited for others
/// longer, what they did longer is the reason.
pub(super) fn explain(table: &RunTable, pairing: Pairing) -> Explanation {
    let threads = Threads { table, pairing };
    let is_root = |role: &RoleId| table.names.roles()[role.0 as usize].is_root;
    let (main, others): (Vec<RoleId>, Vec<RoleId>) = table.roles().into_iter().partition(is_root);
    let active = threads.largest(&main, threads.active());
    let passive = threads.largest(&main, &PASSIVE);
    let waits_for_others = match (&active, &passive) {
        (Some(active), Some(passive)) => passive.ns > active.ns,
        (None, _) => true,
        _ => false,
    };
    let followed = match (waits_for_others, passive) {
        (true, Some(passive)) => {
            let answering = threads.answering(&main, &others, passive.ns);
            Some(answering.unwrap_or(passive))
        }
        _ => active,
    };
    let Some(grown) = followed.filter(|grown| grown.ns > 0.0) else {
        return explain_sum(table, Metric::Cpu, None);
    };
    let Some(holder) = threads.holding(grown) else {
        return explain_sum(table, grown.metric, Some(grown.role));
    };
    let mut found = explain_sum(table, holder.metric, Some(holder.role));
    // Who waited for it stays evidence.
    let held = wait_partners::waited_for(table, grown.metric, Some(grown.role));
    found.waited_for.splice(0..0, held);
    found
}

/// A time of a role's threads that became longer, and by how much.
#[derive(Clone, Copy, Debug)]
struct Grown {
    ns: f64,
    role: RoleId,
    metric: Metric,
}

fn most(all: impl Iterator<Item = Grown>) -> Option<Grown> {
    all.reduce(|best, next| if next.ns > best.ns { next } else { best })
}

/// The threads of both sides.
#[derive(Clone, Copy)]
struct Threads<'a> {
    table: &'a RunTable,
    pairing: Pairing,
}

impl Threads<'_> {
    /// What threads do that do not wait for others.
    fn active(self) -> &'static [Metric] {
        match self.pairing {
            Pairing::Together => &OWN,
            Pairing::None | Pairing::InTurns => &ACTIVE,
        }
    }

    fn grown(self, role: RoleId, metric: Metric) -> Grown {
        let table = self.table;
        let grown = |metric| change(table, &table.role(role, metric));
        let (seen, with_unseen) = waits(table, role);
        let ns = match metric {
            metric if self.pairing == Pairing::Together => grown(metric),
            metric if Some(metric) == seen => with_unseen,
            Metric::Cpu => grown(Metric::Cpu) + pushed_out(table, role),
            Metric::Ready => grown(Metric::Ready) - pushed_out(table, role),
            metric => grown(metric),
        };
        Grown { ns, role, metric }
    }

    /// The time that grew most; of equal ones the first.
    fn largest(self, roles: &[RoleId], metrics: &[Metric]) -> Option<Grown> {
        let all = roles
            .iter()
            .flat_map(|role| metrics.iter().map(|metric| self.grown(*role, *metric)));
        most(all)
    }

    /// What others did longer, and with that made the main thread wait longer by `waited` ns. Only if they
    /// took longer by about as much: who answers late may also be outside of the recording.
    fn answering(self, main: &[RoleId], others: &[RoleId], waited: f64) -> Option<Grown> {
        match wait_partners::answering(self.table, main, &PASSIVE, waited) {
            Answering::Roles(known) => {
                let known = others.iter().filter(|role| known.contains(role)).copied();
                let known: Vec<RoleId> = known.collect();
                let is_enough = |grown: &Grown| grown.ns >= ANSWERS * waited;
                let answering = self.largest(&known, self.active()).filter(is_enough);
                answering.or_else(|| {
                    // They wait themselves, too shortly each time to know for whom.
                    self.largest(&known, &PASSIVE).filter(is_enough)?;
                    let known = known.into_iter().collect();
                    self.unseen(others, &known, ANSWERS * waited, waited)
                })
            }
            Answering::Unseen(enders) => {
                self.unseen(others, &enders, ANSWERS_UNSEEN * waited, waited)
            }
            Answering::Unknown => self.unseen(others, &BTreeSet::new(), ANSWERS * waited, waited),
        }
    }

    /// What those wait for longer that hold the lock for which a role waits longer.
    fn holding(self, waiting: Grown) -> Option<Grown> {
        const WAITS: [Metric; 3] = [Metric::Io, Metric::Net, Metric::Sleep];
        if waiting.metric != Metric::Lock {
            return None;
        }
        let table = self.table;
        let holders = wait_partners::holders(table, waiting.role, waiting.ns);
        let all = WAITS.into_iter().flat_map(|metric| {
            let in_files = spent_in_files(table, metric);
            let of_holder = move |role: &RoleId| {
                let mut grown = self.grown(*role, metric);
                let in_files = in_files.get(role).copied().unwrap_or(0.0);
                grown.ns -= idled(table, *role, metric, in_files);
                grown
            };
            holders.iter().map(of_holder).collect::<Vec<_>>()
        });
        most(all).filter(|grown| grown.ns >= HOLDS * waiting.ns)
    }

    /// What threads did longer that nobody saw end the wait, `least` ns or more. `enders` ended some of the
    /// waits that did not time out: all that they did counts. Time without evidence says nothing of the
    /// others, and of what a thread does that has nothing to do only that counts which did not just come with
    /// its longer life.
    fn unseen(
        self,
        others: &[RoleId],
        enders: &BTreeSet<RoleId>,
        least: f64,
        waited: f64,
    ) -> Option<Grown> {
        let table = self.table;
        let in_files: BTreeMap<Metric, BTreeMap<RoleId, f64>> = IDLE
            .into_iter()
            .map(|metric| (metric, spent_in_files(table, metric)))
            .collect();
        let in_files = |role: &RoleId, metric| {
            let of_metric = in_files.get(&metric);
            of_metric
                .and_then(|of| of.get(role))
                .copied()
                .unwrap_or(0.0)
        };
        let all = others.iter().flat_map(|role| {
            let is_ender = enders.contains(role);
            let in_files = &in_files;
            self.active().iter().filter_map(move |metric| {
                let metric = *metric;
                let mut grown = self.grown(*role, metric);
                let is_idle = IDLE.contains(&metric) && !is_ender;
                // What nothing is known of says nothing as far as it came with a longer life, whoever it is.
                if is_idle || metric == Metric::Gap {
                    grown.ns -= idled(table, *role, metric, in_files(role, metric));
                }
                let least = match is_idle {
                    true => ANSWERS_UNSEEN * waited,
                    false => least,
                };
                let is_evidence = is_ender || metric != Metric::Gap;
                (is_evidence && grown.ns >= least).then_some(grown)
            })
        });
        most(all)
    }
}

/// What each role's threads spent before, of this kind of time, in calls that wait for a file system. In ns.
fn spent_in_files(table: &RunTable, metric: Metric) -> BTreeMap<RoleId, f64> {
    const OF_FILES: [&str; 3] = ["fsync", "open", "stat"];
    let mut spent = BTreeMap::new();
    let columns = table.own_places(metric);
    for (at, (place, column)) in table.tree.places().iter().zip(&columns).enumerate() {
        let Label::Leaf(Leaf::Blocking(name)) = place.label else {
            continue;
        };
        if !OF_FILES.contains(&table.names.text(name)) {
            continue;
        }
        if let Some(Label::Group(role)) = table.tree.labels(at as u32).last() {
            *spent.entry(role).or_insert(0.0) += mean(table.split(column).0);
        }
    }
    spent
}

/// How much longer threads spent with this because they lived longer: their share of it before, of what their
/// lives grew by. In ns. Nobody idles in calls that wait for a file system, where they spent `in_files`.
fn idled(table: &RunTable, role: RoleId, metric: Metric, in_files: f64) -> f64 {
    let before = |column: &[f64]| mean(table.split(column).0);
    let lives = table.role(role, Metric::Wall);
    let unseen = match waits(table, role).0 == Some(metric) {
        true => before(&table.role(role, Metric::Ready)),
        false => 0.0,
    };
    let spent = before(&table.role(role, metric)) + unseen - in_files;
    let share = spent.max(0.0) / before(&lives).max(1.0);
    share.min(1.0) * change(table, &lives).max(0.0)
}

/// Time without a CPU that comes with computing longer: on a busy machine a thread is pushed out as often,
/// for what it computes, as it was before. In ns; 0 when the role computes no longer.
fn pushed_out(table: &RunTable, role: RoleId) -> f64 {
    let (cpu, ready) = (
        table.role(role, Metric::Cpu),
        table.role(role, Metric::Ready),
    );
    let before = |column: &[f64]| mean(table.split(column).0);
    let rate = before(&ready) / before(&cpu).max(1.0);
    let most = change(table, &ready).max(0.0);
    (change(table, &cpu) * rate).clamp(0.0, most)
}

/// Waits shorter than the interval are seen now and then only; the rest of their time looks like code without
/// a CPU. When a role's threads gave the CPU up more often, that time belongs to the waits that were seen:
/// the kind that grew most, and its growth with this time.
fn waits(table: &RunTable, role: RoleId) -> (Option<Metric>, f64) {
    const WAITS: [Metric; 6] = [
        Metric::Sleep,
        Metric::Io,
        Metric::Lock,
        Metric::Net,
        Metric::Wait,
        Metric::Poll,
    ];
    // So much of it has to be seen.
    const SEEN: f64 = 0.02;
    let grown = |metric| change(table, &table.role(role, metric));
    let unseen = grown(Metric::Ready);
    let seen = WAITS
        .into_iter()
        .map(|metric| (grown(metric), metric))
        .max_by(|a, b| a.0.total_cmp(&b.0));
    match seen {
        Some((seen, metric)) if unseen > 0.0 && waits_more(table, role) && seen > SEEN * unseen => {
            (Some(metric), seen + unseen)
        }
        _ => (None, 0.0),
    }
}

/// Whether a role's threads gave the CPU up more often, and not only had it taken away.
fn waits_more(table: &RunTable, role: RoleId) -> bool {
    let grown = |metric| change(table, &table.role(role, metric));
    let voluntary = grown(Metric::VoluntarySwitches);
    voluntary > 1.0 && voluntary > grown(Metric::InvoluntarySwitches)
}
