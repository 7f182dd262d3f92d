//! One run, summed up: what stays of a trace while the others are read. Its size follows the number of
//! places that matter, not the length of the recording.

mod comparable;
mod run_builder;
mod same_program;
pub mod wait_sums;

use std::collections::HashMap;

pub(crate) use comparable::{all_count, keep_comparable};
pub use run_builder::Builder;
pub use same_program::{Kin, kin};

use stackbeat_model::call_tree::{self, CallTree};
pub use stackbeat_model::call_tree::{Leaf, ROOT};
use stackbeat_model::metric::{METRICS, Metric, Values};

use crate::comparable_names::{self, Form};
use crate::packed::{Metrics, Packed};
use crate::run::wait_sums::WaitSum;

/// Which set a run belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Side {
    /// The runs that are compared with: before the change.
    Baseline,
    /// The runs that are judged: after the change.
    Candidate,
}

impl Side {
    pub(crate) fn bit(self) -> u8 {
        match self {
            Side::Baseline => 1,
            Side::Candidate => 2,
        }
    }

    /// The name in JSON and reports.
    pub fn name(self) -> &'static str {
        match self {
            Side::Baseline => "baseline",
            Side::Candidate => "candidate",
        }
    }
}

/// The number of a name in `Names`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NameId(pub u32);

/// The number of a role in `Names`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RoleId(pub u32);

/// The number of a build in `Names`: a file of code, by its build id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BuildId(pub u32);

/// What threads are for: they are compared by this.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Role {
    /// Name of the process' program.
    pub process: String,
    /// Name of the threads without their numbers: `main`, `worker-*`.
    pub thread: String,
    /// The main thread of the program that was recorded.
    pub is_root: bool,
}

impl Role {
    /// `main thread of sqlite3`, `worker-* of shop`.
    pub fn describe(&self) -> String {
        match self.thread.as_str() {
            "main" => format!("main thread of {}", self.process),
            thread => format!("{thread} of {}", self.process),
        }
    }
}

/// A function's name, and where it was seen.
#[derive(Clone, Debug)]
pub struct Name {
    /// Without marks of a build.
    pub text: String,
    /// Bit 0: in the baseline, bit 1: in the candidate.
    pub sides: u8,
    /// Part of the system (libc, the loader), not of the program.
    pub is_system: bool,
    /// The builds that have a function of this name.
    builds: Vec<BuildId>,
    /// So has code without a build id.
    is_in_unknown_build: bool,
}

/// The names and roles of all runs.
#[derive(Clone, Debug, Default)]
pub struct Names {
    names: Vec<Name>,
    index: HashMap<String, NameId>,
    /// The sides that loaded each build, as in `Name::sides`.
    builds: Vec<u8>,
    build_index: HashMap<Vec<u8>, BuildId>,
    roles: Vec<Role>,
    role_index: HashMap<Role, RoleId>,
}

impl Names {
    /// The number of a function's name.
    pub fn function(&mut self, name: &str, is_system: bool, side: Side) -> NameId {
        let text = comparable_names::reduce(name, Form::Name);
        let id = *self.index.entry(text).or_insert_with_key(|text| {
            self.names.push(Name {
                text: text.clone(),
                sides: 0,
                is_system,
                builds: Vec::new(),
                is_in_unknown_build: false,
            });
            NameId((self.names.len() - 1) as u32)
        });
        self.names[id.0 as usize].sides |= side.bit();
        id
    }

    /// The number of a build that a run of this side has loaded.
    pub fn build(&mut self, build_id: &[u8], side: Side) -> BuildId {
        let next = BuildId(self.builds.len() as u32);
        let build = *(self.build_index.entry(build_id.to_vec())).or_insert(next);
        if build == next {
            self.builds.push(0);
        }
        self.builds[build.0 as usize] |= side.bit();
        build
    }

    /// Notes which build a function is in. `None`: in code without a build id.
    pub fn is_in(&mut self, name: NameId, build: Option<BuildId>) {
        let name = &mut self.names[name.0 as usize];
        match build {
            Some(build) if !name.builds.contains(&build) => name.builds.push(build),
            Some(_) => {}
            None => name.is_in_unknown_build = true,
        }
    }

    /// Whether all code that has this function was loaded on both sides. Then both have it under this name,
    /// and where only one side shows it, the other did not sample it.
    pub fn is_in_same_builds(&self, name: NameId) -> bool {
        const BOTH: u8 = 3;
        let name = &self.names[name.0 as usize];
        let is_shared = |build: &BuildId| self.builds[build.0 as usize] == BOTH;
        !name.is_in_unknown_build && !name.builds.is_empty() && name.builds.iter().all(is_shared)
    }

    /// The number of a role; a new one when it has none yet.
    pub fn role(&mut self, role: Role) -> RoleId {
        *self.role_index.entry(role).or_insert_with_key(|role| {
            self.roles.push(role.clone());
            RoleId((self.roles.len() - 1) as u32)
        })
    }

    /// All names; [`NameId`] counts in these.
    pub fn names(&self) -> &[Name] {
        &self.names
    }

    /// All roles; [`RoleId`] counts in these.
    pub fn roles(&self) -> &[Role] {
        &self.roles
    }

    /// The name's text.
    pub fn text(&self, id: NameId) -> &str {
        &self.names[id.0 as usize].text
    }
}

/// What a place stands for. Groups are roles, and a gap is time without stack, too.
pub type Label = call_tree::Label<RoleId, NameId, NameId>;

/// A place: a chain of calls from a role to here.
pub type Place = call_tree::Place<Label>;

/// The call tree of one run, or of all.
pub type Tree = CallTree<Label>;

/// An amount of one metric at a place, callees not included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Index of the place in its tree.
    pub place: u32,
    /// What was measured there.
    pub metric: Metric,
    /// How much, in the metric's unit.
    pub value: u64,
}

/// What a run says about itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct About {
    /// The trace's file, for people.
    pub label: String,
    /// Runs that were made together: a build, a machine, an evening.
    pub group: String,
    /// The command line of the recorded program.
    pub command: String,
    /// Names of the program itself: more than one where it executed another.
    pub programs: Vec<String>,
    /// Another run of a pair shared the processor at the same time.
    pub shares_processor: bool,
    /// What of the trace cannot be read, one line each.
    pub damage: Vec<String>,
    /// CPU model, number of CPUs, operating system.
    pub machine: String,
    /// When the recording began: nanoseconds since 1970; 0: not known.
    pub started_unix_ns: u64,
    /// The recording's sampling interval, ns.
    pub interval_ns: u64,
    /// Records that were lost.
    pub lost: u64,
    /// The recording came to its regular end.
    pub complete: bool,
    /// Allocations were not counted to the end.
    pub counts_end_early: bool,
    /// System calls of all threads are known.
    pub knows_system_calls: bool,
    /// So is who makes them.
    pub knows_callers: bool,
    /// What they moved is known, and who did.
    pub knows_call_bytes: bool,
    /// How long the calibration loop took.
    pub calibration_ns: Option<u64>,
}

/// All scopes of the program with one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScopeSum {
    /// The program's name for them.
    pub name: String,
    /// How often they were entered.
    pub count: u64,
    /// The longest of them, ns.
    pub longest_ns: u64,
    /// What happened inside, by samples; the wall time is exact.
    pub values: Values,
    /// Beside the wall time, more is known.
    pub knows_inside: bool,
}

/// One run.
#[derive(Clone, Debug)]
pub struct Run {
    /// The set that it belongs to.
    pub side: Side,
    /// What it says about itself.
    pub about: About,
    /// Sums over the whole run.
    pub whole: Values,
    /// Sums over the threads of each role.
    pub roles: Vec<(RoleId, Values)>,
    /// Sums over the scopes of each name.
    pub scopes: Vec<ScopeSum>,
    /// In order of their keys.
    pub waits: Vec<WaitSum>,
    functions: Metrics,
    places: Packed,
    entries: Metrics,
}

impl Run {
    /// Whether it is known what was read and written. No program starts without reading.
    pub fn knows_transfers(&self) -> bool {
        self.whole.get(Metric::ReadCalls) > 0
    }

    /// Amounts in functions themselves, in order; calls that wait count as their caller's own.
    pub fn functions(&self) -> impl Iterator<Item = (RoleId, NameId, Metric, u64)> + '_ {
        self.functions.iter().map(|(key, amount)| {
            let function = key >> METRIC_BITS;
            let (role, name) = (function >> 32, function & u64::from(u32::MAX));
            (
                RoleId(role as u32),
                NameId(name as u32),
                metric(key),
                amount,
            )
        })
    }

    /// The call tree; parents stand before their children. None are left in a `RunTable`, which has one tree
    /// for all.
    pub fn places(&self) -> Vec<Place> {
        let mut numbers = self.places.iter();
        let mut at = 0;
        let next = || {
            let (up, label) = (numbers.next()?, label(numbers.next()?));
            at += 1;
            Some(Place {
                parent: (at - 1) - up as u32,
                label,
            })
        };
        std::iter::from_fn(next).collect()
    }

    /// Amounts at places themselves, in order of places.
    pub fn entries(&self) -> impl Iterator<Item = Entry> + '_ {
        self.entries.iter().map(|(key, value)| Entry {
            place: (key >> METRIC_BITS) as u32,
            metric: metric(key),
            value,
        })
    }

    /// Entries become those of another tree, `moved` saying which place is which there, and the own tree
    /// goes.
    pub(crate) fn move_entries(&mut self, moved: &[u32]) {
        let entries = self.entries().map(|entry| Entry {
            place: moved[entry.place as usize],
            ..entry
        });
        self.entries = packed_entries(entries);
        self.places = Packed::default();
    }

    /// Drops the call tree.
    pub fn forget_places(&mut self) {
        self.places = Packed::default();
        self.entries = Metrics::default();
    }

    /// Drops the functions.
    pub(crate) fn forget_functions(&mut self) {
        self.functions = Metrics::default();
    }
}

/// Low bits of a key that hold the metric.
const METRIC_BITS: u32 = 6;
const _: () = assert!(METRICS <= 1 << METRIC_BITS);

fn metric(key: u64) -> Metric {
    Metric::ALL[(key & ((1 << METRIC_BITS) - 1)) as usize]
}

fn packed_entries(entries: impl Iterator<Item = Entry>) -> Metrics {
    let key = |entry: &Entry| u64::from(entry.place) << METRIC_BITS | entry.metric as u64;
    Metrics::new(entries.map(|entry| (key(&entry), entry.value)).collect())
}

/// A small number for each.
fn code(label: Label) -> u64 {
    let (kind, number) = match label {
        Label::Root => (0, 0),
        Label::Group(RoleId(role)) => (1, role),
        Label::Function(NameId(name)) => (2, name),
        Label::Leaf(Leaf::Blocking(NameId(name))) => (3, name),
        Label::Leaf(Leaf::Code | Leaf::Gap | Leaf::NoStack) => (4, 0),
        Label::Small => (5, 0),
    };
    u64::from(number) << 3 | kind
}

fn label(code: u64) -> Label {
    let number = (code >> 3) as u32;
    match code & 7 {
        1 => Label::Group(RoleId(number)),
        2 => Label::Function(NameId(number)),
        3 => Label::Leaf(Leaf::Blocking(NameId(number))),
        4 => Label::Leaf(Leaf::Gap),
        5 => Label::Small,
        _ => Label::Root,
    }
}
