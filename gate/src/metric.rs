//! What is compared.

/// One kind of amount. Times are in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Metric {
    /// From begin to end. Of the whole run: the recording's length; elsewhere summed over threads.
    #[default]
    Wall,
    Cpu,
    /// Ready to run, but without a CPU.
    Ready,
    Lock,
    Wait,
    Io,
    Net,
    Poll,
    Sleep,
    Join,
    Process,
    /// Blocked outside any hook.
    Unknown,
    /// Time that no sample says anything about.
    Gap,
    Allocations,
    AllocatedBytes,
    Frees,
    MinorFaults,
    MajorFaults,
    VoluntarySwitches,
    InvoluntarySwitches,
    /// Calls that waited, as far as they were seen.
    Calls,
    Threads,
    /// System calls by kind, as far as they pass hooks. These are known of threads, not of functions.
    CallsRead,
    CallsWrite,
    CallsCopy,
    CallsOpen,
    CallsClose,
    CallsSync,
    CallsStat,
    CallsControl,
    CallsSocket,
    CallsSend,
    CallsReceive,
    CallsPoll,
    CallsSleep,
    CallsMemory,
    CallsProcess,
    CallsSignal,
    CallsFutex,
    CallsYield,
    /// Calls that read, whatever from. This and the next three are known of the whole run only.
    ReadCalls,
    WriteCalls,
    ReadBytes,
    WrittenBytes,
}

/// How amounts are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Nanoseconds,
    Bytes,
    Count,
}

impl Metric {
    pub const ALL: [Metric; 44] = [
        Metric::Wall,
        Metric::Cpu,
        Metric::Ready,
        Metric::Lock,
        Metric::Wait,
        Metric::Io,
        Metric::Net,
        Metric::Poll,
        Metric::Sleep,
        Metric::Join,
        Metric::Process,
        Metric::Unknown,
        Metric::Gap,
        Metric::Allocations,
        Metric::AllocatedBytes,
        Metric::Frees,
        Metric::MinorFaults,
        Metric::MajorFaults,
        Metric::VoluntarySwitches,
        Metric::InvoluntarySwitches,
        Metric::Calls,
        Metric::Threads,
        Metric::CallsRead,
        Metric::CallsWrite,
        Metric::CallsCopy,
        Metric::CallsOpen,
        Metric::CallsClose,
        Metric::CallsSync,
        Metric::CallsStat,
        Metric::CallsControl,
        Metric::CallsSocket,
        Metric::CallsSend,
        Metric::CallsReceive,
        Metric::CallsPoll,
        Metric::CallsSleep,
        Metric::CallsMemory,
        Metric::CallsProcess,
        Metric::CallsSignal,
        Metric::CallsFutex,
        Metric::CallsYield,
        Metric::ReadCalls,
        Metric::WriteCalls,
        Metric::ReadBytes,
        Metric::WrittenBytes,
    ];

    /// System calls by kind, in the order of the kinds' numbers.
    pub const SYSTEM_CALLS: [Metric; 18] = [
        Metric::CallsRead,
        Metric::CallsWrite,
        Metric::CallsCopy,
        Metric::CallsOpen,
        Metric::CallsClose,
        Metric::CallsSync,
        Metric::CallsStat,
        Metric::CallsControl,
        Metric::CallsSocket,
        Metric::CallsSend,
        Metric::CallsReceive,
        Metric::CallsPoll,
        Metric::CallsSleep,
        Metric::CallsMemory,
        Metric::CallsProcess,
        Metric::CallsSignal,
        Metric::CallsFutex,
        Metric::CallsYield,
    ];

    /// What a program reads and writes. Known of the whole run only, and of those only that were recorded with counters.
    pub const TRANSFERS: [Metric; 4] = [
        Metric::ReadCalls,
        Metric::WriteCalls,
        Metric::ReadBytes,
        Metric::WrittenBytes,
    ];

    /// What functions are compared by, beside evidence.
    pub const OF_FUNCTIONS: [Metric; 5] = [
        Metric::Cpu,
        Metric::Lock,
        Metric::Io,
        Metric::Net,
        Metric::Sleep,
    ];

    /// The name in JSON and in policies.
    pub fn name(self) -> &'static str {
        match self {
            Metric::Wall => "wall",
            Metric::Cpu => "cpu",
            Metric::Ready => "ready",
            Metric::Lock => "lock",
            Metric::Wait => "wait",
            Metric::Io => "io",
            Metric::Net => "net",
            Metric::Poll => "poll",
            Metric::Sleep => "sleep",
            Metric::Join => "join",
            Metric::Process => "process",
            Metric::Unknown => "unknown",
            Metric::Gap => "no-evidence",
            Metric::Allocations => "allocations",
            Metric::AllocatedBytes => "allocated-bytes",
            Metric::Frees => "frees",
            Metric::MinorFaults => "minor-faults",
            Metric::MajorFaults => "major-faults",
            Metric::VoluntarySwitches => "voluntary-switches",
            Metric::InvoluntarySwitches => "involuntary-switches",
            Metric::Calls => "waiting-calls",
            Metric::Threads => "threads",
            Metric::CallsRead => "calls:read",
            Metric::CallsWrite => "calls:write",
            Metric::CallsCopy => "calls:copy",
            Metric::CallsOpen => "calls:open",
            Metric::CallsClose => "calls:close",
            Metric::CallsSync => "calls:sync",
            Metric::CallsStat => "calls:stat",
            Metric::CallsControl => "calls:control",
            Metric::CallsSocket => "calls:socket",
            Metric::CallsSend => "calls:send",
            Metric::CallsReceive => "calls:receive",
            Metric::CallsPoll => "calls:poll",
            Metric::CallsSleep => "calls:sleep",
            Metric::CallsMemory => "calls:memory",
            Metric::CallsProcess => "calls:process",
            Metric::CallsSignal => "calls:signal",
            Metric::CallsFutex => "calls:futex",
            Metric::CallsYield => "calls:yield",
            Metric::ReadCalls => "read-calls",
            Metric::WriteCalls => "write-calls",
            Metric::ReadBytes => "read-bytes",
            Metric::WrittenBytes => "written-bytes",
        }
    }

    pub fn from_name(name: &str) -> Option<Metric> {
        Metric::ALL.into_iter().find(|m| m.name() == name)
    }

    /// The name for people.
    pub fn title(self) -> &'static str {
        match self {
            Metric::Wall => "wall time",
            Metric::Cpu => "CPU time",
            Metric::Ready => "waiting for a CPU",
            Metric::Lock => "blocked: lock",
            Metric::Wait => "blocked: wait",
            Metric::Io => "blocked: io",
            Metric::Net => "blocked: net",
            Metric::Poll => "blocked: poll",
            Metric::Sleep => "blocked: sleep",
            Metric::Join => "blocked: join",
            Metric::Process => "blocked: process",
            Metric::Unknown => "blocked: unknown",
            Metric::Gap => "no evidence",
            Metric::Allocations => "allocations",
            Metric::AllocatedBytes => "allocated bytes",
            Metric::Frees => "frees",
            Metric::MinorFaults => "minor faults",
            Metric::MajorFaults => "major faults",
            Metric::VoluntarySwitches => "voluntary switches",
            Metric::InvoluntarySwitches => "involuntary switches",
            Metric::Calls => "calls that waited",
            Metric::Threads => "threads",
            Metric::CallsRead => "system calls: read",
            Metric::CallsWrite => "system calls: write",
            Metric::CallsCopy => "system calls: copy",
            Metric::CallsOpen => "system calls: open",
            Metric::CallsClose => "system calls: close",
            Metric::CallsSync => "system calls: sync",
            Metric::CallsStat => "system calls: stat",
            Metric::CallsControl => "system calls: control",
            Metric::CallsSocket => "system calls: socket",
            Metric::CallsSend => "system calls: send",
            Metric::CallsReceive => "system calls: receive",
            Metric::CallsPoll => "system calls: poll",
            Metric::CallsSleep => "system calls: sleep",
            Metric::CallsMemory => "system calls: memory",
            Metric::CallsProcess => "system calls: process",
            Metric::CallsSignal => "system calls: signal",
            Metric::CallsFutex => "system calls: futex",
            Metric::CallsYield => "system calls: yield",
            Metric::ReadCalls => "read calls",
            Metric::WriteCalls => "write calls",
            Metric::ReadBytes => "bytes read",
            Metric::WrittenBytes => "bytes written",
        }
    }

    pub fn unit(self) -> Unit {
        match self {
            Metric::AllocatedBytes | Metric::ReadBytes | Metric::WrittenBytes => Unit::Bytes,
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

    /// Counted by hooks of allocation, which a budget may have taken away.
    pub fn is_of_allocation(self) -> bool {
        matches!(
            self,
            Metric::Allocations | Metric::AllocatedBytes | Metric::Frees
        )
    }

    /// One of `SYSTEM_CALLS`.
    pub fn is_system_call(self) -> bool {
        (Metric::CallsRead..=Metric::CallsYield).contains(&self)
    }

    /// A kind of system call of which a program that does the same makes as many. How often it asks for events, waits for
    /// a lock or gives up the CPU is decided by time.
    pub fn is_steady_call(self) -> bool {
        self.is_system_call()
            && !matches!(
                self,
                Metric::CallsPoll | Metric::CallsSignal | Metric::CallsFutex | Metric::CallsYield
            )
    }

    /// One of `TRANSFERS`.
    pub fn is_transfer(self) -> bool {
        Metric::TRANSFERS.contains(&self)
    }
}

/// Number of metrics, for arrays indexed by `Metric as usize`.
pub const METRICS: usize = Metric::ALL.len();
/// Number of metrics that functions and places have: the first ones.
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
    pub fn get(&self, metric: Metric) -> u64 {
        self.0[metric as usize]
    }

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
