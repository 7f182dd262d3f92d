//! What one thread causes in another, for formats that draw an arrow between the two.

use stackbeat_collector::model::{LongWait, ThreadIndex, Trace};

use super::names;

/// One end of an arrow: when, in which thread, and what happens there.
pub(super) struct End {
    pub thread: ThreadIndex,
    pub time_ns: u64,
    pub text: String,
}

/// From the thread that causes something to the one that it happens to.
pub(super) struct Arrow {
    pub category: &'static str,
    pub from: End,
    pub to: End,
}

impl Arrow {
    /// The end of a wait.
    pub fn wakeup(trace: &Trace, wait: &LongWait, waker: ThreadIndex) -> Arrow {
        // The woken thread may run before the call that woke it has returned.
        let woken_ns = wait.end_ns;
        let wakes_ns = wait
            .wake
            .map_or(woken_ns, |wake| wake.time_ns)
            .min(woken_ns);
        Arrow {
            category: "wakeup",
            from: End {
                thread: waker,
                time_ns: wakes_ns,
                text: format!("wakes {}", name(trace, wait.thread)),
            },
            to: End {
                thread: wait.thread,
                time_ns: woken_ns,
                text: format!("woken by {}", name(trace, waker)),
            },
        }
    }

    /// The start of a thread.
    pub fn start(trace: &Trace, thread: ThreadIndex, creator: ThreadIndex) -> Arrow {
        // A thread is known from its first instruction on; when its creator called for it, is not.
        let start_ns = trace.thread(thread).start_ns;
        let by = trace.thread(creator);
        Arrow {
            category: "thread start",
            from: End {
                thread: creator,
                time_ns: start_ns.clamp(by.start_ns, by.end_ns.max(by.start_ns)),
                text: format!("starts {}", name(trace, thread)),
            },
            to: End {
                thread,
                time_ns: start_ns,
                text: format!("started by {}", name(trace, creator)),
            },
        }
    }
}

fn name(trace: &Trace, thread: ThreadIndex) -> &str {
    names::thread_name(&trace.thread(thread).name)
}
