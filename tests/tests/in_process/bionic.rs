//! What Android lets an app ask the kernel for is enough for a session inside the program.
//!
//! Android's filter kills for other calls. Here they are held and shown to the test, which lets those of the
//! program and of glibc go on and refuses ours. The kernel says from which instruction a call came, and maps
//! say whose that is.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::Command;
use std::sync::mpsc;

use stackbeat_tests::c_programs::agent;
use stackbeat_tests::{scratch, stackbeat, workspace};

const LIST: &str = include_str!("bionic_app_calls.txt");

/// What glibc asks for and bionic does not, and why; whoever calls glibc does so, too.
const OF_GLIBC: [(&str, &str); 6] = [
    (
        "rseq",
        "registers restartable sequences when a thread begins (bionic: never)",
    ),
    (
        "set_robust_list",
        "registers robust mutexes when a thread begins (bionic has none)",
    ),
    (
        "access",
        "ld.so looks for /etc/ld.so.preload (bionic: faccessat)",
    ),
    ("unlink", "unlink(2) itself (bionic: unlinkat)"),
    ("rename", "rename(2) itself (bionic: renameat2)"),
    ("mkdir", "mkdir(2) itself (bionic: mkdirat)"),
];

/// Which number each allowed call has, by the column of the list.
fn allowed(column: usize) -> BTreeMap<&'static str, u32> {
    let lines = LIST.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| {
            let fields: Vec<_> = line.split(' ').collect();
            assert_eq!(fields.len(), 3, "{line}");
            Some((fields[0], fields[column].parse().ok()?))
        })
        .collect()
}

/// A call's name, as the kernel's header has it, or its number where that is not installed.
fn name_of(number: i32) -> String {
    let header = fs::read_to_string("/usr/include/x86_64-linux-gnu/asm/unistd_64.h");
    let text = number.to_string();
    let header = header.unwrap_or_default();
    let name = header.lines().find_map(|line| {
        let (name, value) = line.strip_prefix("#define __NR_")?.split_once(' ')?;
        (value == text).then(|| name.to_owned())
    });
    name.unwrap_or(text)
}

/// A call outside of the list.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Outside {
    pub(crate) name: String,
    number: i32,
    /// The file whose code made the call.
    pub(crate) file: String,
    /// The thread's name.
    pub(crate) thread: String,
}

/// Puts the calling thread and all that it starts under the filter, which holds these calls, too. The
/// descriptor gives the calls that are held.
fn enter_filter(held_too: &[&str]) -> OwnedFd {
    const LOAD_NUMBER: libc::sock_filter = libc::sock_filter {
        code: (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16,
        jt: 0,
        jf: 0,
        k: 0,
    };
    let give = |k| libc::sock_filter {
        code: (libc::BPF_RET | libc::BPF_K) as u16,
        jt: 0,
        jf: 0,
        k,
    };
    let mut program = vec![LOAD_NUMBER];
    let mut allowed = allowed(1);
    allowed.retain(|name, _| !held_too.contains(name));
    for number in allowed.into_values() {
        program.push(libc::sock_filter {
            code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
            jt: 0,
            jf: 1,
            k: number,
        });
        program.push(give(libc::SECCOMP_RET_ALLOW));
    }
    program.push(give(libc::SECCOMP_RET_USER_NOTIF));
    let program = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the program lives during the call; the descriptor is new.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let fd = libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            &program,
        );
        assert!(fd >= 0, "{}", std::io::Error::last_os_error());
        OwnedFd::from_raw_fd(fd as i32)
    }
}

/// Where an instruction of a process belongs to.
fn file_of(thread: u32, instruction: u64) -> String {
    let maps = fs::read_to_string(format!("/proc/{thread}/maps")).unwrap_or_default();
    let holds = |line: &&str| {
        let parsed = |text| u64::from_str_radix(text, 16).ok();
        let range = line
            .split(' ')
            .next()
            .and_then(|range| range.split_once('-'));
        let range = range.and_then(|(low, high)| Some(parsed(low)?..parsed(high)?));
        range.is_some_and(|range| range.contains(&instruction))
    };
    let line = maps.lines().find(holds).unwrap_or("");
    let path = line.split_once('/').map_or(line, |(_, path)| path);
    path.rsplit('/').next().unwrap_or("").to_owned()
}

fn is_ours(outside: &Outside) -> bool {
    outside.file.contains("libstackbeat") || outside.thread.starts_with("stackbeat ")
}

/// Runs this under the filter, which holds these calls, too. Gives besides what was held of processes of this
/// program.
pub(crate) fn under_filter<R: Send>(
    program: &str,
    held_too: &[&str],
    run: impl FnOnce() -> R + Send,
) -> (R, Vec<Outside>) {
    let (send, receive) = mpsc::channel();
    std::thread::scope(|scope| {
        let running = scope.spawn(|| {
            send.send(enter_filter(held_too)).expect("it is waited for");
            run()
        });
        let held = receive.recv().expect("the filter is in force");
        let all = answer(&held, program);
        (running.join().expect("it runs"), all)
    })
}

/// The calls that are ours, where other code beside us makes calls of its own.
pub(crate) fn ours(all: &[Outside]) -> BTreeSet<&Outside> {
    let glibc = numbers(&OF_GLIBC.map(|(name, _)| name));
    let is_wrong = |outside: &&Outside| {
        outside.file.contains("libstackbeat")
            || is_ours(outside) && !glibc.contains(&outside.number)
    };
    all.iter().filter(is_wrong).collect()
}

/// Answers until nobody is left under the filter. What was held of processes of this program.
fn answer(held: &OwnedFd, program: &str) -> Vec<Outside> {
    let glibc: Vec<_> = OF_GLIBC.iter().map(|(name, _)| *name).collect();
    let glibc = numbers(&glibc);
    let mut all = Vec::new();
    loop {
        let mut poll = libc::pollfd {
            fd: held.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one entry.
        let ready = unsafe { libc::poll(&mut poll, 1, 60_000) };
        assert!(ready > 0, "nothing happens any more");
        if poll.revents & libc::POLLIN == 0 {
            return all;
        }
        // SAFETY: the kernel fills it, and wants zeros before.
        let notice = unsafe {
            let mut notice: libc::seccomp_notif = std::mem::zeroed();
            if libc::ioctl(
                held.as_raw_fd(),
                libc::SECCOMP_IOCTL_NOTIF_RECV,
                &mut notice,
            ) != 0
            {
                // The thread was killed meanwhile.
                continue;
            }
            notice
        };
        let executable = fs::read_link(format!("/proc/{}/exe", notice.pid)).unwrap_or_default();
        let thread = fs::read_to_string(format!("/proc/{}/comm", notice.pid)).unwrap_or_default();
        let outside = Outside {
            name: name_of(notice.data.nr),
            number: notice.data.nr,
            file: file_of(notice.pid, notice.data.instruction_pointer),
            thread: thread.trim().to_owned(),
        };
        // What glibc does for a thread of ours is its own need.
        let is_glibcs = !outside.file.contains("libstackbeat") && glibc.contains(&outside.number);
        let refused = executable.ends_with(program) && is_ours(&outside) && !is_glibcs;
        let answer = libc::seccomp_notif_resp {
            id: notice.id,
            val: 0,
            error: if refused { -libc::ENOSYS } else { 0 },
            flags: if refused {
                0
            } else {
                libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32
            },
        };
        // SAFETY: fails where the thread is gone, which is fine.
        unsafe { libc::ioctl(held.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &answer) };
        if executable.ends_with(program) {
            all.push(outside);
        }
    }
}

/// Numbers of calls that are not on the list.
fn numbers(names: &[&str]) -> Vec<i32> {
    let number = |name: &&str| match *name {
        "rseq" => libc::SYS_rseq,
        "set_robust_list" => libc::SYS_set_robust_list,
        "access" => libc::SYS_access,
        "poll" => libc::SYS_poll,
        "unlink" => libc::SYS_unlink,
        "rename" => libc::SYS_rename,
        "mkdir" => libc::SYS_mkdir,
        other => panic!("{other} has no number here"),
    };
    names.iter().map(|name| number(name) as i32).collect()
}

#[test]
fn a_session_inside_keeps_to_what_android_allows() {
    let folder = scratch();
    let program = super::build(folder.path());
    // Built before the filter.
    let _ = (agent(), stackbeat());
    // Where nothing is kept yet symbols are, by `rename`.
    let cache = folder.path().join("cache");
    let cache = cache.to_str().expect("UTF-8");
    let mut met = BTreeSet::new();
    for (how, status) in [("return", 5), ("fork", 5), ("exec", 3), ("waiting", 8)] {
        let program = super::inside(&program, how).variable("XDG_CACHE_HOME", cache);
        let (recorded, all) = under_filter("ends", &[], || program.record(folder.path()));
        assert_eq!(recorded.run.shell_status(), status, "{how}");
        let glibc = numbers(&OF_GLIBC.map(|(name, _)| name));
        let mut wrong: Vec<_> = all
            .iter()
            .filter(|outside| {
                outside.file.contains("libstackbeat") || !glibc.contains(&outside.number)
            })
            .collect();
        wrong.sort();
        wrong.dedup();
        assert!(wrong.is_empty(), "{how}: {wrong:#?}");
        met.extend(all.iter().map(|outside| outside.name.clone()));
        // The filter was in force: glibc registers each thread.
        let registered = all.iter().filter(|o| i64::from(o.number) == libc::SYS_rseq);
        assert!(registered.count() >= 5, "{how}: {all:#?}");
        let report = stackbeat_tests::report(&recorded.trace);
        assert!(super::running(&report, "computes") > 0.5, "{how}");
    }
    // A line that nobody needs goes.
    let not_met = OF_GLIBC.iter().filter(|(name, _)| !met.contains(*name));
    assert_eq!(not_met.count(), 0, "met are {met:?}");
}

/// Functions whose call of that name is not on the list, and what bionic calls instead (libc/bionic/NAME.cpp
/// of the same commit; `fork` in `fork.cpp` by `clone.cpp`).
const BY_ANOTHER_CALL: [(&str, &str); 6] = [
    ("fork", "clone"),
    ("mkdir", "mkdirat"),
    ("pause", "ppoll"),
    ("poll", "ppoll"),
    ("rename", "renameat2"),
    ("unlink", "unlinkat"),
];

/// The library of an app makes other calls by functions of bionic's, which names each of its calls in the
/// list. So a function that the list does not allow is not imported.
#[test]
fn functions_that_the_library_of_an_app_imports_are_allowed() {
    let output = Command::new("nm")
        .args(["-D", "--undefined-only", "--format=posix"])
        .arg(crate::art::app::library())
        .output()
        .expect("nm runs");
    let imports = String::from_utf8(output.stdout).expect("names");
    let imports: BTreeSet<&str> = imports
        .lines()
        .filter_map(|line| line.split([' ', '@']).next())
        .collect();
    assert!(imports.contains("pthread_getspecific"), "{imports:?}");
    let header = fs::read_to_string("/usr/include/x86_64-linux-gnu/asm/unistd_64.h");
    let header = header.expect("the kernel's header");
    let calls = header.lines().filter_map(|line| {
        let (name, _) = line.strip_prefix("#define __NR_")?.split_once(' ')?;
        Some(name)
    });
    let allowed = allowed(1);
    let by_another = |call: &&str| {
        let found = BY_ANOTHER_CALL.iter().find(|(name, _)| name == call);
        found.is_some_and(|(_, by)| allowed.contains_key(by))
    };
    let calls: Vec<&str> = calls.filter(|call| imports.contains(call)).collect();
    assert!(calls.len() > 10, "{calls:?}");
    let wrong: Vec<&&str> = calls
        .iter()
        .filter(|call| !allowed.contains_key(**call) && !by_another(call))
        .collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// Calls that are named in what runs inside a program, for both processors: also those that no test comes to.
#[test]
fn calls_that_the_sources_name_are_allowed() {
    // Names of calls that programs wait in, and calls that are looked at, not made.
    const NOT_MADE: [&str; 2] = [
        "core/src/platform/linux/blocking_calls.rs",
        "core/src/posix/raw_call.rs",
    ];
    /// Of x86-64 only, under its own name.
    const OF_X86_64: [&str; 1] = ["arch_prctl"];
    let (x86_64, arm64) = (allowed(1), allowed(2));
    assert!(x86_64.len() > 200 && arm64.len() > 200);
    let mut named = BTreeMap::new();
    for part in [
        "core/src",
        "collector/src/embedded",
        "collector/src/drain",
        "api/src",
        "hooks-android/src",
        "hooks-android/app/src",
    ] {
        let mut folders = vec![workspace().join(part)];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).expect("is read") {
                let path = entry.expect("is read").path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let text = fs::read_to_string(&path).expect("text");
                let text = text.split("\nmod tests {").next().unwrap_or("");
                let is_word = |c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
                for (at, _) in text.match_indices("SYS_") {
                    let name = text[at + 4..].split(is_word).next().unwrap_or("");
                    named.entry(name.to_owned()).or_insert(path.clone());
                }
            }
        }
    }
    named.retain(|_, path| !NOT_MADE.iter().any(|file| path.ends_with(file)));
    assert!(named.len() > 30, "{named:?}");
    for (name, path) in named {
        assert!(x86_64.contains_key(name.as_str()), "{name} in {path:?}");
        let is_there = arm64.contains_key(name.as_str()) || OF_X86_64.contains(&name.as_str());
        assert!(is_there, "{name} in {path:?}");
    }
}
