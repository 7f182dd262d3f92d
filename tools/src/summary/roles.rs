//! What threads are for, by their names.

use stackbeat_gate::comparable_names;

/// What the names of threads begin with that a runtime has for itself, to collect garbage or to compile:
/// HotSpot's (`Thread::set_name`, `os::set_native_thread_name`), V8's and .NET's. Linux keeps 15 bytes of a
/// name.
const OF_RUNTIMES: [&str; 48] = [
    "GC Thread",
    "G1 ",
    "CMS ",
    "ZDirector",
    "ZDriver",
    "ZStat",
    "ZUncommitter",
    "ZUnmapper",
    "ZWorker",
    "XDirector",
    "XDriver",
    "XStat",
    "XUncommitter",
    "XUnmapper",
    "XWorker",
    "Shenandoah",
    "RuntimeWorker",
    "Safepoint Clean",
    "StrDedup",
    "StringDedup",
    "Sweeper thread",
    "C1 Compiler",
    "C2 Compiler",
    "JVMCI",
    "VM Thread",
    "VM Periodic",
    "Reference Handl",
    "Finalizer",
    "Signal Dispatch",
    "Service Thread",
    "Monitor Deflat",
    "Common-Cleaner",
    "Notification Th",
    "Attach Listener",
    "AsyncLog",
    "JFR ",
    "VirtualThread-u",
    "V8Worker",
    "node-V8Worker",
    "DelayedTaskSche",
    "SignalInspector",
    ".NET Finalizer",
    ".NET Tiered",
    ".NET SigHandler",
    ".NET EventPipe",
    ".NET Server GC",
    ".NET BGC",
    "dotnet-",
];

/// Whether a thread is of a program's runtime, by its name.
pub(crate) fn serves_runtime(is_main: bool, name: &str) -> bool {
    !is_main && OF_RUNTIMES.iter().any(|begin| name.starts_with(begin))
}

/// `main`, `worker-*`, or `thread` for one that is named as its process.
pub(crate) fn role_of_thread(is_main: bool, name: &str, process: &str) -> String {
    if is_main {
        "main".to_string()
    } else if name == process || name.is_empty() {
        "thread".to_string()
    } else {
        comparable_names::role(name)
    }
}
