//! What traces are measured and compared by.

macro_rules! metrics {
    (
        compared { $($(#[$doc:meta])* $variant:ident = $name:literal, $title:literal;)* }
        shown { $($(#[$shown_doc:meta])* $shown:ident = $shown_name:literal, $shown_title:literal;)* }
    ) => {
        /// One kind of amount. Times are in ns.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Metric {
            #[default]
            $(
                $(#[$doc])*
                #[doc = ""]
                #[doc = concat!("`", $name, "` in JSON, \"", $title, "\" for people.")]
                $variant,
            )*
            $($(#[$shown_doc])* $shown,)*
        }

        impl Metric {
            /// Every metric that is compared, at its number.
            pub const ALL: [Metric; [$($name),*].len()] = [$(Metric::$variant),*];

            /// The name in JSON and in policies.
            pub fn name(self) -> &'static str {
                match self { $(Metric::$variant => $name,)* $(Metric::$shown => $shown_name,)* }
            }

            /// The name for people.
            pub fn title(self) -> &'static str {
                match self { $(Metric::$variant => $title,)* $(Metric::$shown => $shown_title,)* }
            }
        }
    };
}

metrics! {
    compared {
        /// From begin to end. Of the whole run: the recording's length; elsewhere summed over threads.
        Wall = "wall", "wall time";
        Cpu = "cpu", "CPU time";
        /// Ready to run, but without a CPU.
        Ready = "ready", "waiting for a CPU";
        Lock = "lock", "blocked: lock";
        Wait = "wait", "blocked: wait";
        Io = "io", "blocked: io";
        Net = "net", "blocked: net";
        Poll = "poll", "blocked: poll";
        Sleep = "sleep", "blocked: sleep";
        Join = "join", "blocked: join";
        Process = "process", "blocked: process";
        /// Blocked outside any hook.
        Unknown = "unknown", "blocked: unknown";
        /// Time that no sample says anything about.
        Gap = "no-evidence", "no evidence";
        Allocations = "allocations", "allocations";
        AllocatedBytes = "allocated-bytes", "allocated bytes";
        Frees = "frees", "frees";
        MinorFaults = "minor-faults", "minor faults";
        MajorFaults = "major-faults", "major faults";
        VoluntarySwitches = "voluntary-switches", "voluntary switches";
        InvoluntarySwitches = "involuntary-switches", "involuntary switches";
        /// Calls that waited, as far as they were seen.
        Calls = "waiting-calls", "calls that waited";
        Threads = "threads", "threads";
        /// System calls by kind, as far as they pass hooks. Of threads they are exact; who makes them is
        /// known by samples.
        CallsRead = "calls:read", "system calls: read";
        CallsWrite = "calls:write", "system calls: write";
        CallsCopy = "calls:copy", "system calls: copy";
        CallsOpen = "calls:open", "system calls: open";
        CallsClose = "calls:close", "system calls: close";
        CallsSync = "calls:sync", "system calls: sync";
        CallsStat = "calls:stat", "system calls: stat";
        CallsControl = "calls:control", "system calls: control";
        CallsSocket = "calls:socket", "system calls: socket";
        CallsSend = "calls:send", "system calls: send";
        CallsReceive = "calls:receive", "system calls: receive";
        CallsPoll = "calls:poll", "system calls: poll";
        CallsSleep = "calls:sleep", "system calls: sleep";
        CallsMemory = "calls:memory", "system calls: memory";
        CallsProcess = "calls:process", "system calls: process";
        CallsSignal = "calls:signal", "system calls: signal";
        CallsFutex = "calls:futex", "system calls: futex";
        CallsYield = "calls:yield", "system calls: yield";
        /// Bytes that these calls moved. The kernel counts others in `read-bytes`.
        BytesRead = "bytes:read", "bytes read by system calls";
        BytesWritten = "bytes:written", "bytes written by system calls";
        /// Calls in which a thread was switched away. `voluntary-switches` has each sleep in them, and those
        /// outside of hooked calls.
        WakeUps = "wake-ups", "wake-ups in calls";
        /// Calls that read, whatever from. This and the next three are known of the whole run only.
        ReadCalls = "read-calls", "read calls";
        WriteCalls = "write-calls", "write calls";
        ReadBytes = "read-bytes", "bytes read";
        WrittenBytes = "written-bytes", "bytes written";
    }
    shown {
        /// In code: on the CPU, or ready to run.
        Running = "running", "running";
        /// Blocked, for whatever cause.
        Blocked = "blocked", "blocked";
        /// Samples that are evidence.
        Samples = "samples", "samples";
    }
}

/// How amounts are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Times, shown as s, ms, µs or ns.
    Nanoseconds,
    /// Amounts of memory or data.
    Bytes,
    /// Plain numbers: calls, faults, switches, samples.
    Count,
}

/// The metrics from this one on.
const fn from<const N: usize>(first: Metric) -> [Metric; N] {
    let mut found = [first; N];
    let mut i = 0;
    while i < N {
        found[i] = Metric::ALL[first as usize + i];
        i += 1;
    }
    found
}

impl Metric {
    /// System calls by kind, and what they moved, in the order of the kinds' numbers.
    pub const SYSTEM_CALLS: [Metric; Metric::WakeUps as usize - Metric::CallsRead as usize + 1] =
        from(Metric::CallsRead);

    /// What a program reads and writes. Known of the whole run only, and of those only that were recorded
    /// with counters.
    pub const TRANSFERS: [Metric; 4] = from(Metric::ReadCalls);

    /// What functions are compared by, beside evidence.
    pub const OF_FUNCTIONS: [Metric; 5] = [
        Metric::Cpu,
        Metric::Lock,
        Metric::Io,
        Metric::Net,
        Metric::Sleep,
    ];

    /// The metric that is compared and has this name.
    pub fn from_name(name: &str) -> Option<Metric> {
        Metric::ALL.into_iter().find(|m| m.name() == name)
    }

    /// How amounts of it are written.
    pub fn unit(self) -> Unit {
        match self {
            Metric::AllocatedBytes
            | Metric::BytesRead
            | Metric::BytesWritten
            | Metric::ReadBytes
            | Metric::WrittenBytes => Unit::Bytes,
            Metric::Running | Metric::Blocked => Unit::Nanoseconds,
            m if (m as u8) < Metric::Allocations as u8 => Unit::Nanoseconds,
            _ => Unit::Count,
        }
    }

    /// A program that does the same gives the same number: such counts are compared exactly.
    pub fn is_exact(self) -> bool {
        matches!(
            self,
            Metric::Allocations | Metric::AllocatedBytes | Metric::Frees | Metric::Threads
        ) || self.is_transfer()
            || self.is_system_call()
    }

    /// More of it is worse by itself. The others (a thread that waits for work, a switch) are evidence for
    /// causes only.
    pub fn is_cost(self) -> bool {
        matches!(
            self,
            Metric::Wall
                | Metric::Cpu
                | Metric::Lock
                | Metric::Io
                | Metric::Net
                | Metric::Sleep
                | Metric::Allocations
                | Metric::AllocatedBytes
                | Metric::MinorFaults
                | Metric::MajorFaults
        ) || self.is_transfer()
    }

    /// Time that a thread waits in a call.
    pub fn is_blocked(self) -> bool {
        (Metric::Lock..=Metric::Unknown).contains(&self)
    }

    /// Counted by hooks of allocation, which a budget may have taken away.
    pub fn is_of_allocation(self) -> bool {
        matches!(
            self,
            Metric::Allocations | Metric::AllocatedBytes | Metric::Frees
        )
    }

    /// One of `SYSTEM_CALLS`.
    pub fn is_system_call(self) -> bool {
        (Metric::CallsRead..=Metric::WakeUps).contains(&self)
    }

    /// A kind of system call that moves bytes.
    pub fn moves(self) -> bool {
        matches!(
            self,
            Metric::CallsRead
                | Metric::CallsWrite
                | Metric::CallsCopy
                | Metric::CallsSend
                | Metric::CallsReceive
        )
    }

    /// What system calls moved.
    pub fn is_call_bytes(self) -> bool {
        matches!(self, Metric::BytesRead | Metric::BytesWritten)
    }

    /// A kind of system call of which a program that does the same makes as many, or what they move. How
    /// often it asks for events, waits for a lock or gives up the CPU is decided by time.
    pub fn is_steady_call(self) -> bool {
        self.is_system_call()
            && !matches!(
                self,
                Metric::CallsPoll
                    | Metric::CallsSignal
                    | Metric::CallsFutex
                    | Metric::CallsYield
                    | Metric::WakeUps
            )
    }

    /// One of `TRANSFERS`.
    pub fn is_transfer(self) -> bool {
        Metric::TRANSFERS.contains(&self)
    }
}

/// Number of metrics that are compared, for arrays indexed by `Metric as usize`.
pub const METRICS: usize = Metric::ALL.len();
/// Number of metrics that are compared by function and stored for all places: the first ones. Few places have
/// system calls, and those few kinds: places have them beside.
pub const OF_PLACES: usize = Metric::Threads as usize + 1;

/// An amount of each of the first metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Values<const N: usize = METRICS>(pub [u64; N]);

impl<const N: usize> Default for Values<N> {
    fn default() -> Values<N> {
        Values([0; N])
    }
}

impl<const N: usize> Values<N> {
    /// The amount of this metric.
    pub fn get(&self, metric: Metric) -> u64 {
        self.0[metric as usize]
    }

    /// Replaces the amount of this metric.
    pub fn set(&mut self, metric: Metric, value: u64) {
        self.0[metric as usize] = value;
    }

    /// Adds others, of those metrics that both have; sums stop at the highest number.
    pub fn add<const M: usize>(&mut self, other: &Values<M>) {
        for (sum, more) in self.0.iter_mut().zip(other.0) {
            *sum = sum.saturating_add(more);
        }
    }

    /// Those that are not 0.
    pub fn present(&self) -> impl Iterator<Item = (Metric, u64)> + '_ {
        let all = Metric::ALL.into_iter().zip(self.0);
        all.filter(|(_, value)| *value != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_in_order_and_have_names_of_their_own() {
        for (at, metric) in Metric::ALL.into_iter().enumerate() {
            assert_eq!(metric as usize, at);
            assert_eq!(Metric::from_name(metric.name()), Some(metric));
        }
        let calls = Metric::ALL.into_iter().filter(|m| m.is_system_call());
        assert!(calls.eq(Metric::SYSTEM_CALLS));
        assert_eq!(Metric::Gap.unit(), Unit::Nanoseconds);
        assert_eq!(Metric::Frees.unit(), Unit::Count);
    }
}
