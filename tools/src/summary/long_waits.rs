//! Single long waits, for the page: what each was for, who held it and who ended it.

use stackbeat_core::probe::{Cause, Probe};
use stackbeat_model::{LongWait, ThreadIndex, Trace};

/// Waits that a report keeps: the longest.
const MOST: usize = 20_000;

/// A wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LongWaitRow {
    pub thread: ThreadIndex,
    /// Since the recording's start, ns.
    pub begin_ns: u64,
    pub end_ns: u64,
    /// What it waited for, as a text.
    pub object: String,
    /// Who held the lock when the wait began.
    pub owner: Option<ThreadIndex>,
    pub waker: Option<ThreadIndex>,
    /// Where the waker was: a place of the profile's tree.
    pub waking: Option<u32>,
}

/// Collects them while a trace is read.
#[derive(Clone, Debug, Default)]
pub(crate) struct LongWaits {
    rows: Vec<LongWaitRow>,
}

impl LongWaits {
    pub(crate) fn add(&mut self, trace: &Trace, wait: &LongWait, waking: Option<u32>) {
        self.rows.push(LongWaitRow {
            thread: wait.thread,
            begin_ns: wait.begin_ns.saturating_sub(trace.start_ns()),
            end_ns: wait.end_ns.saturating_sub(trace.start_ns()),
            object: object(trace, wait),
            owner: wait.owner,
            waker: wait.waker,
            waking,
        });
        if self.rows.len() >= 2 * MOST {
            self.keep_longest();
        }
    }

    fn keep_longest(&mut self) {
        let length = |row: &LongWaitRow| row.end_ns.saturating_sub(row.begin_ns);
        self.rows.sort_by_key(|row| std::cmp::Reverse(length(row)));
        self.rows.truncate(MOST);
    }

    /// The longest, by thread and time.
    pub(crate) fn finish(mut self) -> Vec<LongWaitRow> {
        self.keep_longest();
        self.rows.sort_by_key(|row| (row.thread, row.begin_ns));
        self.rows
    }
}

fn object(trace: &Trace, wait: &LongWait) -> String {
    let variable = trace.variable(trace.thread(wait.thread).process, wait.object);
    match (wait.probe.cause(), variable) {
        (Cause::Lock, Some(name)) => return format!("lock {name}"),
        (Cause::Wait, Some(name)) => return name.to_string(),
        _ => {}
    }
    match wait.probe.cause() {
        Cause::Lock => format!("lock at {:#x}", wait.object),
        Cause::Wait | Cause::Join => format!("object at {:#x}", wait.object),
        Cause::Process => format!("process {}", wait.object),
        Cause::Ipc if wait.probe.known() == Some(Probe::SemaphoreSet) => {
            format!("semaphore set {}", wait.object)
        }
        Cause::Ipc => format!("queue {}", wait.object),
        _ if wait.object <= u64::from(u16::MAX) => format!("descriptor {}", wait.object),
        _ => format!("{:#x}", wait.object),
    }
}
