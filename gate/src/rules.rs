//! What a gate is asked: when a difference counts, and the most that a run may spend.

use stackbeat_model::metric::{Metric, Unit};

use crate::stats::rank;

/// When a difference counts. The defaults are those of the command; a policy may change them.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    /// Chance of calling equal programs different, over all comparisons of a gate.
    pub alpha: f64,
    /// Of the intervals.
    pub confidence: f64,
    /// Least relative change that matters.
    pub min_effect: f64,
    /// The same for counts that are equal in every run of a side.
    pub min_exact: f64,
    /// Least change of a time that matters.
    pub floor_ns: f64,
    /// The same as a share of the baseline's wall time (CPU time for faults).
    pub floor_share: f64,
    /// How the runs were recorded; decides which tests are used.
    pub pairing: Pairing,
    /// Draws of the bootstrap.
    pub draws: usize,
    /// Seed of all random numbers.
    pub seed: u64,
    /// Metrics of the whole run that must be known for "no regression".
    pub required: Vec<Metric>,
    /// Counts decide as times do.
    pub fail_on_counts: bool,
    /// Costs that are not compared.
    pub ignored_metrics: Vec<Metric>,
    /// Findings in these functions do not count; `*` stands for anything.
    pub ignored_functions: Vec<String>,
    /// Each is checked by itself, without a comparison.
    pub budgets: Vec<Budget>,
    /// Scopes of the program that every run of the candidate must have; `*` stands for anything.
    pub required_scopes: Vec<String>,
}

/// How runs of both sides belong together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pairing {
    /// Each run stands for itself.
    #[default]
    None,
    /// In pairs, recorded one after the other.
    InTurns,
    /// In pairs, recorded at the same time on one processor, which both shared.
    Together,
}

impl Pairing {
    /// Each run of the baseline has one of the candidate that it is compared with.
    pub fn is_paired(self) -> bool {
        self != Pairing::None
    }

    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Pairing::None => "unpaired",
            Pairing::InTurns => "paired",
            Pairing::Together => "together",
        }
    }
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            alpha: 0.01,
            confidence: 0.95,
            min_effect: 0.03,
            min_exact: 0.02,
            floor_ns: 1e6,
            floor_share: 0.005,
            pairing: Pairing::None,
            draws: 4000,
            seed: 0x5EED,
            required: vec![Metric::Wall, Metric::Cpu],
            fail_on_counts: false,
            ignored_metrics: Vec::new(),
            ignored_functions: Vec::new(),
            budgets: Vec::new(),
            required_scopes: Vec::new(),
        }
    }
}

/// Least counts of page faults that matter, and what one costs at least.
const FLOOR_FAULTS: f64 = 64.0;

const FAULT_NS: f64 = 500.0;

/// Least count of calls, of allocations and of bytes that matters: a library more to load takes some.
const FLOOR_CALLS: f64 = 16.0;

const FLOOR_BYTES: f64 = 32.0 * 1024.0;

impl Rules {
    /// What one of the two ways to a finding (down the hierarchy, and over all functions at once) may use
    /// up of `alpha`.
    pub fn alpha_of_half(&self) -> f64 {
        self.alpha / 2.0
    }

    /// Least absolute change of a metric that matters, in its unit, for runs that take so long.
    pub fn floor(&self, metric: Metric, wall_ns: f64, cpu_ns: f64) -> f64 {
        match (metric, metric.unit()) {
            (_, Unit::Nanoseconds) => self.floor_ns.max(self.floor_share * wall_ns),
            (Metric::MinorFaults, _) => FLOOR_FAULTS.max(self.floor_share * cpu_ns / FAULT_NS),
            (Metric::MajorFaults, _) => FLOOR_FAULTS,
            (_, Unit::Bytes) => FLOOR_BYTES,
            (Metric::Threads, _) => 1.0,
            _ => FLOOR_CALLS,
        }
    }

    /// Whether more of a metric makes a regression. Of counts it does where that is asked for; otherwise it
    /// is a notice: a faster program may count more.
    pub fn decides(&self, metric: Metric) -> bool {
        let is_time = metric.unit() == Unit::Nanoseconds;
        is_time || self.fail_on_counts || self.required.contains(&metric)
    }

    /// Runs a side without which nothing can be said.
    pub fn fewest_runs(&self) -> usize {
        rank::fewest_runs(self.alpha_of_half(), self.pairing.is_paired())
    }
}

/// The most that a run of the candidate may spend.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Budget {
    /// With callees; `None`: all of the threads.
    pub function: Option<String>,
    /// The thread's role; `None`: all threads.
    pub thread: Option<String>,
    /// A scope of the program, in place of a function.
    pub scope: Option<Scoped>,
    /// What is limited.
    pub metric: Metric,
    /// In the metric's unit (ns, bytes, count).
    pub max: f64,
}

/// The scopes that are meant.
#[derive(Clone, Debug, PartialEq)]
pub struct Scoped {
    /// The program's name for the scopes.
    pub name: String,
    /// Which of their amounts is limited.
    pub per: Per,
}

/// What of a scope has a budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Per {
    /// All of them in a run together.
    #[default]
    Run,
    /// Their mean.
    Call,
    /// The longest; of wall time only.
    Longest,
}

impl Per {
    /// Every choice.
    pub const ALL: [Per; 3] = [Per::Run, Per::Call, Per::Longest];

    /// The name in policies and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Per::Run => "run",
            Per::Call => "call",
            Per::Longest => "longest",
        }
    }
}
