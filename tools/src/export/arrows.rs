//! What one thread causes in another, for formats that draw an arrow between the two.

use stackbeat_model::{LongWait, ThreadIndex, Trace};

use super::export_names;

/// What was caused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The end of a wait.
    Wakeup,
    ThreadStart,
}

impl Kind {
    pub(super) const fn category(self) -> &'static str {
        match self {
            Kind::Wakeup => "wakeup",
            Kind::ThreadStart => "thread start",
        }
    }
}

/// One end of an arrow.
#[derive(Clone, Copy)]
pub(super) struct End {
    pub thread: ThreadIndex,
    pub time_ns: u64,
}

/// From the thread that causes something to the one that it happens to.
#[derive(Clone, Copy)]
pub(super) struct Arrow {
    pub kind: Kind,
    pub from: End,
    pub to: End,
}

impl Arrow {
    /// The end of a wait.
    pub(super) fn wakeup(wait: &LongWait, waker: ThreadIndex) -> Arrow {
        // The woken thread may run before the call that woke it has returned.
        let woken_ns = wait.end_ns;
        let wakes_ns = wait.wake.map_or(woken_ns, |wake| wake.time_ns);
        Arrow {
            kind: Kind::Wakeup,
            from: End {
                thread: waker,
                time_ns: wakes_ns.min(woken_ns),
            },
            to: End {
                thread: wait.thread,
                time_ns: woken_ns,
            },
        }
    }

    /// The start of a thread.
    pub(super) fn start(trace: &Trace, thread: ThreadIndex, creator: ThreadIndex) -> Arrow {
        // A thread is known from its first instruction on; when its creator called for it, is not.
        let time_ns = trace.thread(thread).start_ns;
        let by = trace.thread(creator);
        Arrow {
            kind: Kind::ThreadStart,
            from: End {
                thread: creator,
                time_ns: time_ns.clamp(by.start_ns, by.end_ns.max(by.start_ns)),
            },
            to: End { thread, time_ns },
        }
    }

    /// What happens at both ends.
    pub(super) fn texts(&self, trace: &Trace) -> [String; 2] {
        let name = |end: &End| export_names::thread_name(&trace.thread(end.thread).name);
        let (from, to) = (name(&self.from), name(&self.to));
        match self.kind {
            Kind::Wakeup => [format!("wakes {to}"), format!("woken by {from}")],
            Kind::ThreadStart => [format!("starts {to}"), format!("started by {from}")],
        }
    }
}
