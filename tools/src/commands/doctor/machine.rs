//! What can be seen of a machine without recording anything.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::fs::StatVfsMountFlags;

use crate::commands::checks::{Check, Status};
use crate::{agent_library, units};

/// Every check, in the order in which things are needed.
pub(super) fn checks() -> Vec<Check> {
    let mut checks = vec![
        platform(),
        agent_library(),
        c_library(),
        shared_memory(),
        cycle_counter(),
        process_access(),
        signal(),
        kernel_clock(),
        cpu_timers(),
        debug_files(),
    ];
    checks.extend(preloaded());
    checks
}

fn platform() -> Check {
    let (os, machine) = (std::env::consts::OS, std::env::consts::ARCH);
    let release = read("/proc/sys/kernel/osrelease").unwrap_or_default();
    let known = os == "linux" && (machine == "x86_64" || machine == "aarch64");
    Check::new(
        "platform",
        if known { Status::Ok } else { Status::Failed },
        format!("{os} {release}, {machine}"),
        "hooks exist for Linux on x86-64 and arm64",
    )
}

fn agent_library() -> Check {
    match agent_library::locate(None) {
        Ok(path) => Check::new(
            "agent library",
            Status::Ok,
            match agent_library::embedded_bytes() {
                0 => path.display().to_string(),
                n => format!(
                    "{} ({} inside this program)",
                    path.display(),
                    units::bytes(n as u64)
                ),
            },
            "",
        ),
        Err(error) => Check::new(
            "agent library",
            Status::Failed,
            format!("{error:#}"),
            "no program can be recorded without it",
        ),
    }
}

/// The glibc version decides how modules are found: `_dl_find_object` came with 2.35.
fn c_library() -> Check {
    let version = Command::new("getconf")
        .arg("GNU_LIBC_VERSION")
        .output()
        .ok()
        .and_then(|o| String::from_utf8(o.stdout).ok())
        .unwrap_or_default();
    let numbers = version.trim().strip_prefix("glibc ").and_then(|v| {
        let (major, minor) = v.split_once('.')?;
        Some((major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?))
    });
    match numbers {
        Some(v) if v >= (2, 35) => Check::new(
            "C library",
            Status::Ok,
            format!(
                "{}, with _dl_find_object and rseq registration",
                version.trim()
            ),
            "",
        ),
        Some(_) => Check::new(
            "C library",
            Status::Limited,
            version.trim(),
            "older than 2.35: modules loaded later are found more slowly",
        ),
        None => Check::new(
            "C library",
            Status::Limited,
            "version not known",
            "hooks are made for glibc; programs with another C library run unseen",
        ),
    }
}

fn shared_memory() -> Check {
    const NAME: &str = "shared memory";
    const ENOUGH: u64 = 64 << 20;
    let folder = Path::new("/dev/shm");
    let probe = folder.join(format!("stackbeat-doctor.{}", std::process::id()));
    let writable = fs::write(&probe, b"x");
    let _ = fs::remove_file(&probe);
    let advice = "mount a tmpfs there (docker run --shm-size=256m); recording falls back to /tmp";
    if let Err(error) = writable {
        let found = format!("/dev/shm cannot be written: {error}");
        return Check::new(NAME, Status::Limited, found, advice);
    }
    let Ok(stat) = rustix::fs::statvfs(folder) else {
        return Check::new(NAME, Status::Limited, "/dev/shm: size not known", advice);
    };
    let free = stat.f_bavail * stat.f_frsize;
    let status = if free >= ENOUGH {
        Status::Ok
    } else {
        Status::Limited
    };
    let mut found = format!("/dev/shm, {} free", units::bytes(free));
    if stat.f_flag.contains(StatVfsMountFlags::NOEXEC) {
        found.push_str(", noexec (fine for samples)");
    }
    Check::new(NAME, status, found, advice)
}

/// The cycle counter dates samples when it runs at one rate on all processors.
fn cycle_counter() -> Check {
    const NAME: &str = "cycle counter";
    if cfg!(target_arch = "aarch64") {
        return Check::new(NAME, Status::Ok, "cntvct_el0, always invariant", "");
    }
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = info
        .lines()
        .find(|l| l.starts_with("flags"))
        .unwrap_or_default();
    let has = |name: &str| flags.split_whitespace().any(|f| f == name);
    let source = read("/sys/devices/system/clocksource/clocksource0/current_clocksource")
        .unwrap_or_else(|| "unknown".into());
    let invariant = has("constant_tsc") && has("nonstop_tsc");
    let found = format!(
        "TSC {}; the kernel's clock is {source}",
        if invariant {
            "invariant"
        } else {
            "not invariant"
        }
    );
    Check::new(
        NAME,
        if invariant {
            Status::Ok
        } else {
            Status::Limited
        },
        found,
        "CLOCK_MONOTONIC dates samples instead: some 10 ns more each",
    )
}

/// Whether a started program may be looked into: /proc/PID/syscall says who runs.
fn process_access() -> Check {
    const NAME: &str = "process access";
    let advice = "running threads are found less precisely, and waiting threads have no stack until \
                  their waits end; allow ptrace of child processes \
                  (kernel.yama.ptrace_scope below 2, docker --cap-add=SYS_PTRACE)";
    let child = Command::new("sleep")
        .arg("5")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn();
    let Ok(child) = child else {
        return Check::new(
            NAME,
            Status::Limited,
            "no program to try it on (sleep)",
            advice,
        );
    };
    let mut child = Reaped(child);
    let readable = fs::read_to_string(format!("/proc/{}/syscall", child.0.id()));
    child.end();
    let scope = read("/proc/sys/kernel/yama/ptrace_scope")
        .map_or("no yama".to_string(), |s| format!("yama ptrace_scope {s}"));
    match readable {
        Ok(_) => Check::new(
            NAME,
            Status::Ok,
            format!(
                "/proc/PID/syscall is readable, {scope}{}",
                if is_debugger() {
                    ""
                } else {
                    "; not that of programs that change their user or are not dumpable (no CAP_SYS_PTRACE)"
                }
            ),
            "",
        ),
        Err(e) => Check::new(
            NAME,
            Status::Limited,
            format!("/proc/PID/syscall: {e}, {scope}"),
            advice,
        ),
    }
}

/// Whether the kernel may sample threads by its own clock.
fn kernel_clock() -> Check {
    const NAME: &str = "kernel clock";
    match stackbeat_collector::probe_kernel_clock() {
        Ok(()) => Check::new(
            NAME,
            Status::Ok,
            "perf_event_open works: it samples processes in their first second",
            "",
        ),
        Err(why_not) => Check::new(
            NAME,
            Status::Ok,
            format!("not to be had, so ticks sample processes in their first second ({why_not})"),
            "",
        ),
    }
}

/// Whether threads can have timers that sample them, and how often those go off.
fn cpu_timers() -> Check {
    const NAME: &str = "CPU timers";
    match stackbeat_collector::probe_cpu_timers() {
        Ok(tick_ns) => Check::new(
            NAME,
            Status::Ok,
            format!(
                "sample processes that have computed for a second, every {}",
                units::duration(tick_ns)
            ),
            "",
        ),
        Err(why_not) => Check::new(
            NAME,
            Status::Ok,
            format!("not to be had, so ticks sample long runs, too, which costs more ({why_not})"),
            "",
        ),
    }
}

/// Whether we may look into processes of every user.
fn is_debugger() -> bool {
    const CAP_SYS_PTRACE: u32 = 19; // capabilities(7), include/uapi/linux/capability.h
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|set| u64::from_str_radix(set.trim(), 16).ok())
        .is_some_and(|set| set >> CAP_SYS_PTRACE & 1 == 1)
}

/// A child that does not outlive its value.
struct Reaped(Child);

impl Reaped {
    fn end(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Reaped {
    fn drop(&mut self) {
        self.end();
    }
}

/// SIGURG interrupts running threads, SIGWINCH those that block it; what starts us may have blocked both.
fn signal() -> Check {
    const NAME: &str = "SIGURG";
    // signal(7), x86 and arm
    const SIGURG: u32 = 23;
    const SIGWINCH: u32 = 28;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = |field: &str| {
        status
            .lines()
            .find_map(|l| l.strip_prefix(field))
            .and_then(|v| u64::from_str_radix(v.trim(), 16).ok())
            .unwrap_or(0)
    };
    let is_blocked = |signal| mask("SigBlk:") >> (signal - 1) & 1 == 1;
    let (status, found) = match (is_blocked(SIGURG), is_blocked(SIGWINCH)) {
        (false, _) => (Status::Ok, "not blocked; interrupts running threads"),
        (true, false) => (
            Status::Ok,
            "blocked in what started this program; SIGWINCH interrupts running threads",
        ),
        (true, true) => (
            Status::Limited,
            "blocked, as SIGWINCH is, in what started this program",
        ),
    };
    Check::new(
        NAME,
        status,
        found,
        "programs inherit the block: threads that pass no hook are not seen until they unblock it",
    )
}

fn debug_files() -> Check {
    let folder = Path::new("/usr/lib/debug/.build-id");
    let some = fs::read_dir(folder).is_ok_and(|mut d| d.next().is_some());
    let found = match some {
        true => "separate debug files are installed under /usr/lib/debug",
        false => "no separate debug files; system libraries show exported names only",
    };
    // Nothing is wrong without them.
    Check::new("debug files", Status::Ok, found, "")
}

/// Another preload stands beside ours.
fn preloaded() -> Option<Check> {
    let value = std::env::var("LD_PRELOAD").ok().filter(|v| !v.is_empty())?;
    Some(Check::new(
        "LD_PRELOAD",
        Status::Limited,
        value,
        "other preloaded libraries may hide calls from the agent or be hidden from it",
    ))
}

fn read(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_can_be_looked_at() {
        let checks = checks();
        assert!(checks.iter().all(|c| !c.found.is_empty()));
        let names: Vec<_> = checks.iter().map(|c| c.name).collect();
        assert!(names.contains(&"cycle counter") && names.contains(&"SIGURG"));
    }
}
