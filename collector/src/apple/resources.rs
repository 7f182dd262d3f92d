//! What the process uses, for counters: `proc_pid_rusage`.
//!
//! Source: libproc.h of xnu (libsyscall/wrappers/libproc), since macOS 10.9 and iOS 7. The SDK of iOS does
//! not have this header, and Apple calls its functions private there (its answer FB23247918, quoted in pull
//! request 1679 of the crate sysinfo). So the function is looked for by name: without it a session has no
//! such counters, and nothing else is missing.
//!
//! It says nothing of page faults that need no disk and of descriptors: these counters are not there.

use std::ffi::c_int;
use std::mem::offset_of;

use stackbeat_core::ids::Pid;

use super::mach::look_up;
use super::threads::Threads;
use crate::host::{Other, Resources, Use};
use crate::session::own_threads;

/// sys/resource.h, `RUSAGE_INFO_V4`: macOS 10.14, iOS 12.
const FLAVOR: c_int = 4;

/// sys/resource.h, `struct rusage_info_v4`. Times are in Mach's units, energy is in nJ (xnu,
/// bsd/kern/kern_resource.c, `gather_rusage_info`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct UsageInfo {
    pub uuid: [u8; 16],
    pub user_time: u64,
    pub system_time: u64,
    pub idle_wakeups: u64,
    pub interrupt_wakeups: u64,
    pub page_ins: u64,
    pub wired_bytes: u64,
    pub resident_bytes: u64,
    pub footprint_bytes: u64,
    pub start_and_exit: [u64; 2],
    pub of_children: [u64; 6],
    pub disk_read_bytes: u64,
    pub disk_written_bytes: u64,
    pub by_quality_of_service: [u64; 7],
    pub billed_and_serviced_time: [u64; 2],
    pub logically_written_bytes: u64,
    pub largest_footprint_bytes: u64,
    pub instructions: u64,
    pub cycles: u64,
    pub billed_energy_nj: u64,
    pub serviced_energy_nj: u64,
    pub largest_footprint_of_interval_bytes: u64,
    pub runnable_time: u64,
}
// The same in hooks-apple/tests/programs/layouts.c, of Apple's header.
const _: () = assert!(size_of::<UsageInfo>() == 296);
const _: () = assert!(offset_of!(UsageInfo, page_ins) == 48);
const _: () = assert!(offset_of!(UsageInfo, footprint_bytes) == 72);
const _: () = assert!(offset_of!(UsageInfo, disk_read_bytes) == 144);
const _: () = assert!(offset_of!(UsageInfo, billed_energy_nj) == 264);

/// `proc_pid_rusage`.
pub(super) type Ask = unsafe extern "C" fn(c_int, c_int, *mut UsageInfo) -> c_int;

/// This process.
#[derive(Debug)]
pub(super) struct OfProcess {
    pid: Pid,
    /// `None`: this system does not have it.
    ask: Option<Ask>,
}

impl OfProcess {
    pub(super) fn new(pid: Pid) -> OfProcess {
        // SAFETY: the type is that of the header.
        let ask = unsafe { look_up::<Ask>(c"proc_pid_rusage") };
        OfProcess { pid, ask }
    }

    #[cfg(test)]
    pub(super) fn without(pid: Pid) -> OfProcess {
        OfProcess { pid, ask: None }
    }
}

impl Resources for OfProcess {
    fn read(&mut self) -> Use {
        let own = own_threads::count(self.pid);
        let mut found = Use {
            threads: Some(Threads::count().saturating_sub(own)),
            ..Use::default()
        };
        let mut info = UsageInfo::default();
        let Some(ask) = self.ask else {
            return found;
        };
        // SAFETY: the kernel writes a structure of this flavor there.
        if unsafe { ask(self.pid.0.cast_signed(), FLAVOR, &raw mut info) } != 0 {
            return found;
        }
        found.resident_bytes = Some(info.resident_bytes);
        found.others = others(&info).to_vec();
        found
    }
}

fn others(info: &UsageInfo) -> [Other; 6] {
    let wakeups = info.idle_wakeups.saturating_add(info.interrupt_wakeups);
    [
        // What the system ends an app for.
        ("footprint", "bytes", info.footprint_bytes, 0),
        ("disk read", "bytes/s", info.disk_read_bytes, 1),
        ("disk written", "bytes/s", info.disk_written_bytes, 1),
        ("page-ins", "/s", info.page_ins, 1),
        ("processor wake-ups", "/s", wakeups, 1),
        // nJ/s are nW.
        ("power", "uW", info.billed_energy_nj, 1000),
    ]
    .map(|(name, unit, value, divided_by)| Other {
        name,
        unit,
        value,
        divided_by,
    })
}
