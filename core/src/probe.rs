//! The probes: every kind of call that a hook can report, with its category and, for calls that can
//! block, what a thread is then waiting for.
//!
//! The numbers are part of the trace format: never reuse or renumber one.

/// What a blocked thread waits for. Used as the cause of blocked time in every table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Cause {
    /// Does not block.
    None = 0,
    /// A mutex, rwlock, spin lock or monitor that another thread holds.
    Lock = 1,
    /// A condition variable, semaphore, barrier, raw futex or parking.
    Wait = 2,
    /// Reading, writing, syncing or looking up files and pipes.
    Io = 3,
    /// Sockets: connect, accept, send, receive.
    Net = 4,
    /// poll, select, epoll: idle until an event comes.
    Poll = 5,
    /// A sleep that the program asked for.
    Sleep = 6,
    /// The end of a thread.
    Join = 7,
    /// The end of a child process.
    Process = 8,
    /// Not known: blocked outside any hook.
    Unknown = 9,
    /// Message queues and System V semaphores: until another thread or process sends, receives or posts.
    Ipc = 10,
    /// A runtime's garbage collection.
    Gc = 11,
    /// A runtime that lets its threads stop, or goes on, together.
    Safepoint = 12,
    /// A call of another process by Android's Binder.
    Binder = 13,
}

impl Cause {
    /// Every cause, in the order of their numbers.
    pub const ALL: [Cause; 14] = [
        Cause::None,
        Cause::Lock,
        Cause::Wait,
        Cause::Io,
        Cause::Net,
        Cause::Poll,
        Cause::Sleep,
        Cause::Join,
        Cause::Process,
        Cause::Unknown,
        Cause::Ipc,
        Cause::Gc,
        Cause::Safepoint,
        Cause::Binder,
    ];

    /// The name that reports and files use.
    pub const fn name(self) -> &'static str {
        match self {
            Cause::None => "none",
            Cause::Lock => "lock",
            Cause::Wait => "wait",
            Cause::Io => "io",
            Cause::Net => "net",
            Cause::Poll => "poll",
            Cause::Sleep => "sleep",
            Cause::Join => "join",
            Cause::Process => "process",
            Cause::Unknown => "unknown",
            Cause::Ipc => "ipc",
            Cause::Gc => "gc",
            Cause::Safepoint => "safepoint",
            Cause::Binder => "binder",
        }
    }
}

/// A group of probes that is switched on and off together (`--probes alloc,lock,io`). The number is
/// its bit in the probe mask of the control block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Category {
    /// malloc, free and their relatives.
    Alloc = 0,
    /// mmap, munmap and what else changes mappings.
    Memory = 1,
    /// Mutexes, read-write locks and spin locks.
    Lock = 2,
    /// Conditions, semaphores, barriers, futexes and signals.
    Wait = 3,
    /// Files, pipes and message queues.
    Io = 4,
    /// Sockets and name lookups.
    Net = 5,
    /// poll, select and epoll.
    Poll = 6,
    /// Calls that only wait for a time.
    Sleep = 7,
    /// Reading a clock.
    Clock = 8,
    /// Begin, end and joining of threads.
    Thread = 9,
    /// Starting, ending and waiting for processes.
    Process = 10,
    /// Loading libraries.
    Library = 11,
    /// Giving the processor away.
    Sched = 12,
    /// The fallback sampler's interruptions. Always on while recording.
    Sampler = 13,
    /// Marks and forced captures of the program itself. Always on while recording.
    User = 14,
    /// What runtimes of managed code tell: monitors, parking, garbage collection, calls between managed and
    /// native code.
    Runtime = 15,
}

impl Category {
    /// The categories a user can name.
    pub const SELECTABLE: [Category; 14] = [
        Category::Alloc,
        Category::Memory,
        Category::Lock,
        Category::Wait,
        Category::Io,
        Category::Net,
        Category::Poll,
        Category::Sleep,
        Category::Clock,
        Category::Thread,
        Category::Process,
        Category::Library,
        Category::Sched,
        Category::Runtime,
    ];

    /// This category's bit in a probe mask.
    pub const fn bit(self) -> u64 {
        1 << self as u8
    }

    /// The name on the command line and in files.
    pub const fn name(self) -> &'static str {
        match self {
            Category::Alloc => "alloc",
            Category::Memory => "memory",
            Category::Lock => "lock",
            Category::Wait => "wait",
            Category::Io => "io",
            Category::Net => "net",
            Category::Poll => "poll",
            Category::Sleep => "sleep",
            Category::Clock => "clock",
            Category::Thread => "thread",
            Category::Process => "process",
            Category::Library => "library",
            Category::Sched => "sched",
            Category::Sampler => "sampler",
            Category::User => "user",
            Category::Runtime => "runtime",
        }
    }

    /// The category with this name, if a user can select it.
    pub fn from_name(name: &str) -> Option<Category> {
        Self::SELECTABLE.into_iter().find(|c| c.name() == name)
    }
}

macro_rules! probes {
    ($($(#[$doc:meta])* $variant:ident = $number:literal, $name:literal, $category:ident, $cause:ident;)*) => {
        /// One kind of hooked call.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Probe {
            $(
                $(#[$doc])*
                #[doc = ""]
                #[doc = concat!("Shown as `", $name, "`.")]
                $variant = $number,
            )*
        }

        impl Probe {
            /// Every probe.
            pub const ALL: &'static [Probe] = &[$(Probe::$variant,)*];

            /// The probe with this number, if there is one.
            pub const fn from_number(number: u8) -> Option<Probe> {
                match number { $($number => Some(Probe::$variant),)* _ => None }
            }

            /// The name shown to users: the call's own name, or the group's.
            pub const fn name(self) -> &'static str {
                match self { $(Probe::$variant => $name,)* }
            }

            /// The category that switches this probe.
            #[inline]
            pub const fn category(self) -> Category {
                match self { $(Probe::$variant => Category::$category,)* }
            }

            /// What a thread inside this call waits for; `Cause::None` for calls that do not block.
            #[inline]
            pub const fn cause(self) -> Cause {
                match self { $(Probe::$variant => Cause::$cause,)* }
            }
        }
    };
}

probes! {
    /// An interruption by the fallback sampler: the thread was running.
    Running = 1, "running", Sampler, None;
    /// A thread found blocked outside any hook.
    BlockedOutside = 2, "blocked", Sampler, Unknown;
    Mark = 3, "mark", User, None;
    /// A thread found waiting for a page.
    PageFault = 6, "page fault", Sampler, Io;
    /// A signal is about to end the process: the thread that it came to.
    Crash = 7, "fatal signal", Sampler, None;
    /// The agent's own note at a thread's first capture.
    ThreadStart = 4, "thread start", Thread, None;
    ThreadExit = 5, "thread exit", Thread, None;

    Malloc = 10, "malloc", Alloc, None;
    Calloc = 11, "calloc", Alloc, None;
    Realloc = 12, "realloc", Alloc, None;
    Memalign = 13, "memalign", Alloc, None;
    Free = 14, "free", Alloc, None;
    /// The allocation at which the thread's number of allocations reached what was drawn at random: evidence
    /// of who allocates, not of where time goes.
    SampledAllocation = 15, "counted allocation", Alloc, None;
    /// The same for bytes.
    SampledByte = 16, "counted byte", Alloc, None;
    /// The same for system calls of one kind (the sample's argument), of which the thread has made so many
    /// (its result) since the last such sample.
    SampledCall = 17, "counted call", Sampler, None;

    Mmap = 20, "mmap", Memory, None;
    Munmap = 21, "munmap", Memory, None;
    Mremap = 22, "mremap", Memory, None;
    Mprotect = 23, "mprotect", Memory, None;
    Madvise = 24, "madvise", Memory, None;
    VmAllocate = 25, "vm_allocate", Memory, None;
    VmDeallocate = 26, "vm_deallocate", Memory, None;

    MutexLock = 30, "pthread_mutex_lock", Lock, Lock;
    MutexUnlock = 31, "pthread_mutex_unlock", Lock, None;
    RwlockRead = 32, "pthread_rwlock_rdlock", Lock, Lock;
    RwlockWrite = 33, "pthread_rwlock_wrlock", Lock, Lock;
    RwlockUnlock = 34, "pthread_rwlock_unlock", Lock, None;
    SpinLock = 35, "pthread_spin_lock", Lock, Lock;
    /// A futex, and a condition, by which a lock of a library's own waits: no agent writes these, the model
    /// knows such waits by the functions that wait.
    FutexLock = 36, "futex lock", Lock, Lock;
    ConditionLock = 37, "condition lock", Lock, Lock;

    UnfairLock = 38, "os_unfair_lock_lock", Lock, Lock;
    UnfairUnlock = 39, "os_unfair_lock_unlock", Lock, None;

    CondWait = 40, "pthread_cond_wait", Wait, Wait;
    CondSignal = 41, "pthread_cond_signal", Wait, None;
    SemWait = 42, "sem_wait", Wait, Wait;
    SemPost = 43, "sem_post", Wait, None;
    BarrierWait = 44, "pthread_barrier_wait", Wait, Wait;
    FutexWait = 45, "futex wait", Wait, Wait;
    FutexWake = 46, "futex wake", Wait, None;
    SignalWait = 47, "sigwait", Wait, Wait;
    SignalSend = 48, "kill", Wait, None;
    SemaphoreSet = 49, "semop", Wait, Ipc;

    Read = 50, "read", Io, Io;
    Write = 51, "write", Io, Io;
    Sendfile = 52, "sendfile", Io, Io;
    Splice = 53, "splice", Io, Io;
    Open = 54, "open", Io, Io;
    Close = 55, "close", Io, Io;
    Fsync = 56, "fsync", Io, Io;
    Fcntl = 57, "fcntl", Io, Io;
    Stat = 58, "stat", Io, Io;
    FileLock = 59, "flock", Io, Lock;
    MessageReceive = 60, "msgrcv", Io, Ipc;
    MessageSend = 61, "msgsnd", Io, Ipc;
    QueueReceive = 62, "mq_receive", Io, Ipc;
    QueueSend = 63, "mq_send", Io, Ipc;

    Connect = 70, "connect", Net, Net;
    Accept = 71, "accept", Net, Net;
    Send = 72, "send", Net, Net;
    Recv = 73, "recv", Net, Net;
    Getsockopt = 74, "getsockopt", Net, None;
    /// A name is looked up, or the name of an address: by files, name servers and whatever else the machine
    /// asks.
    Resolve = 75, "getaddrinfo", Net, Net;

    Poll = 80, "poll", Poll, Poll;
    Select = 81, "select", Poll, Poll;
    EpollWait = 82, "epoll_wait", Poll, Poll;

    Nanosleep = 90, "nanosleep", Sleep, Sleep;

    ClockRead = 100, "clock_gettime", Clock, None;

    ThreadCreate = 110, "pthread_create", Thread, None;
    ThreadJoin = 111, "pthread_join", Thread, Join;

    Wait = 120, "wait", Process, Process;
    Fork = 121, "fork", Process, None;
    Exec = 122, "exec", Process, None;
    /// Its caller waits until the child runs its program or has ended; so with `vfork`.
    Spawn = 123, "posix_spawn", Process, Process;
    Exit = 124, "exit", Process, None;
    Vfork = 125, "vfork", Process, Process;

    LibraryLoad = 130, "dlopen", Library, None;

    Yield = 140, "sched_yield", Sched, None;

    MonitorEnter = 150, "monitor enter", Runtime, Lock;
    MonitorExit = 151, "monitor exit", Runtime, None;
    MonitorWait = 152, "monitor wait", Runtime, Wait;
    MonitorNotify = 153, "monitor notify", Runtime, None;
    Park = 154, "park", Runtime, Wait;
    Unpark = 155, "unpark", Runtime, None;
    GcWait = 156, "gc wait", Runtime, Gc;
    Safepoint = 157, "safepoint", Runtime, Safepoint;
    /// A call of managed code into native code.
    NativeCall = 158, "native call", Runtime, None;
    BinderTransact = 159, "binder transact", Runtime, Binder;
    /// An object of managed code.
    ObjectAllocation = 160, "object allocation", Runtime, None;
    /// A collection has ended that threads may wait for.
    GcEnd = 161, "gc end", Runtime, None;
    ClassLoad = 162, "class load", Runtime, None;

    AddressWait = 170, "os_sync_wait_on_address", Wait, Wait;
    AddressWake = 171, "os_sync_wake_by_address", Wait, None;
    DispatchSemaphoreWait = 172, "dispatch_semaphore_wait", Wait, Wait;
    DispatchSemaphoreSignal = 173, "dispatch_semaphore_signal", Wait, None;
    /// Until the work begins on the calling thread, or has ended on another one.
    DispatchSync = 174, "dispatch_sync", Wait, Wait;
    /// Work was handed to a queue.
    DispatchAsync = 175, "dispatch_async", Wait, None;
    DispatchGroupWait = 176, "dispatch_group_wait", Wait, Wait;
    DispatchGroupLeave = 177, "dispatch_group_leave", Wait, None;
    /// A run loop sleeps until something comes.
    RunLoopWait = 178, "run loop", Poll, Poll;
    ObjectLock = 179, "NSLock lock", Lock, Lock;
    ObjectUnlock = 180, "NSLock unlock", Lock, None;
    ObjectWait = 181, "NSCondition wait", Wait, Wait;
    ObjectSignal = 182, "NSCondition signal", Wait, None;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_are_unique() {
        for (i, a) in Probe::ALL.iter().enumerate() {
            assert_eq!(Probe::from_number(*a as u8), Some(*a));
            for b in &Probe::ALL[i + 1..] {
                assert_ne!(*a as u8, *b as u8);
                assert_ne!(a.name(), b.name());
            }
        }
    }
}
