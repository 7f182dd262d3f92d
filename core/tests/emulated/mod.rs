//! The agent for arm64 Linux in a program whose return addresses are signed, under emulation: it starts, its
//! hooks count, its captures have the right stacks, also of a thread that was interrupted.
//! `scripts/cross/cross-check.sh run` builds what this needs.
#![cfg(all(target_os = "linux", target_env = "gnu", target_arch = "aarch64"))]

use std::ffi::CString;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::Duration;

use stackbeat_core::clock;
use stackbeat_core::cycles::Cycles;
use stackbeat_core::platform;
use stackbeat_core::shm::callstack::Table;
use stackbeat_core::shm::layout::{Capacity, SESSION_VARIABLE, entry_state, node_kind};
use stackbeat_core::shm::mapping::Mapping;
use stackbeat_core::shm::registry;
use stackbeat_core::shm::signal_gate;
use stackbeat_core::shm::throttle::Ticker;

use super::agent::samples;

/// Interrupts each registered thread whose gate is open.
fn interrupt(mapping: &Mapping) -> u32 {
    let mut sent = 0;
    for (_, entry) in registry::threads(mapping) {
        let process = entry.process.load(Ordering::Relaxed);
        let pid = mapping.process(process).map(|process| process.pid());
        let (Some(pid), tid) = (pid, entry.tid()) else {
            continue;
        };
        let is_live = entry.state.load(Ordering::Acquire) == entry_state::LIVE;
        if !is_live
            || !signal_gate::try_send(entry, platform::barrier_everywhere)
            || !signal_gate::commit(entry)
        {
            continue;
        }
        let signalled = platform::signal_thread(pid, tid, libc::SIGURG);
        signal_gate::sent(entry);
        match signalled {
            Ok(()) => sent += 1,
            Err(_) => signal_gate::cancel(entry),
        }
    }
    sent
}

#[test]
#[ignore = "needs the agent for arm64: scripts/cross/cross-check.sh run"]
fn a_program_of_signed_code_is_recorded() {
    let agent = std::env::var("STACKBEAT_AGENT").expect("names the agent");
    // On an arm64 machine there is none.
    let emulator = std::env::var("EMULATOR").unwrap_or_default();
    let folder = tempfile::tempdir().expect("made");
    let program = folder.path().join("program");
    let status = Command::new("aarch64-linux-gnu-gcc")
        .args(["-O1", "-mbranch-protection=standard", "-pthread", "-o"])
        .arg(&program)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/emulated/program.c"))
        .status();
    assert!(status.expect("a C compiler is installed").success());

    let path = format!("/dev/shm/stackbeat.emulated-test.{}", std::process::id());
    let path = CString::new(path).expect("no NUL");
    let mapping = Mapping::create(&path, Capacity::default()).expect("/dev/shm has room");
    let control = mapping.control();
    control.depth_limit.store(128, Ordering::Relaxed);
    control.probe_mask.store(u64::MAX, Ordering::Relaxed);
    control.forced_per_second.store(10_000, Ordering::Relaxed);
    control.signal.store(libc::SIGURG as u32, Ordering::Relaxed);
    for class in &control.interval_cycles {
        class.store(Cycles(1), Ordering::Relaxed);
    }
    for class in &control.interval_ns {
        class.store(1_000, Ordering::Relaxed);
    }
    control.switch.store(1, Ordering::Release);

    let session = path.to_str().expect("plain");
    let variables = [
        format!("LD_PRELOAD={agent}"),
        format!("{SESSION_VARIABLE}={session}"),
    ];
    let mut words = emulator.split_whitespace();
    let mut command = match words.next() {
        Some(emulator) => {
            let mut command = Command::new(emulator);
            command.args(words);
            for variable in &variables {
                command.args(["-E", variable]);
            }
            command.arg(&program);
            command
        }
        None => {
            let mut command = Command::new(&program);
            command.envs(variables.iter().filter_map(|v| v.split_once('=')));
            command
        }
    };
    let mut child = command.stdout(Stdio::piped()).spawn().expect("started");
    let mut ticker = Ticker::default();
    let mut sent = 0;
    let status = loop {
        if let Some(status) = child.try_wait().expect("is ours") {
            break status;
        }
        ticker.advance_all(control, clock::cycles());
        sent += interrupt(&mapping);
        std::thread::sleep(Duration::from_millis(2));
    };
    platform::remove(&path);
    let output = child.wait_with_output().expect("is ours").stdout;
    let output = String::from_utf8_lossy(&output);
    assert_eq!(status.code(), Some(3), "{output}");
    let functions: Vec<u64> = output
        .split_whitespace()
        .map(|text| u64::from_str_radix(text, 16).expect("an address"))
        .collect();
    let [inner, outer, computes] = functions[..] else {
        panic!("{output}");
    };

    let threads: Vec<_> = registry::threads(&mapping)
        .map(|(_, entry)| entry)
        .collect();
    assert_eq!(threads.len(), 4);
    let counted = threads
        .iter()
        .map(|t| t.allocations.load(Ordering::Relaxed));
    let counted: u64 = counted.sum();
    assert!((3000..3100).contains(&counted), "{counted} allocations");

    let (seen, _) = samples(&mapping);
    let table = Table::of(&mapping, 0).expect("generation 0");
    let (mut whole, mut in_hooks, mut interrupted) = (0, 0, 0);
    for sample in &seen {
        // Leaf first.
        let (mut stack, mut is_truncated, mut leaf) = (Vec::new(), false, None);
        let mut i = sample.node;
        while i != 0 {
            let node = table.read(i).expect("a node that a record names is there");
            match node.kind {
                node_kind::ROOT => {}
                node_kind::TRUNCATED => is_truncated = true,
                kind => {
                    leaf = leaf.or(Some(kind));
                    stack.push(node.address);
                }
            }
            i = node.parent;
        }
        whole += usize::from(!is_truncated && i == 0 && !stack.is_empty());
        assert!(stack.iter().all(|address| *address < 1 << 48), "{stack:x?}");
        let is_in = |function: u64| {
            let mut addresses = stack.iter();
            addresses.any(|address| (function..function + 0x80).contains(address))
        };
        if leaf == Some(node_kind::NATIVE) && is_in(inner) {
            assert!(is_in(outer), "{stack:x?}");
            in_hooks += 1;
        }
        if leaf == Some(node_kind::LEAF_PC) && is_in(computes) {
            assert!(is_in(outer), "{stack:x?}");
            interrupted += 1;
        }
    }
    println!(
        "{} samples, {whole} whole, {in_hooks} in hooks, {interrupted} interrupted, {sent} signals",
        seen.len()
    );
    assert!(
        whole * 10 >= seen.len() * 9,
        "{whole} of {} are whole",
        seen.len()
    );
    assert!(in_hooks > 20 && interrupted > 3);
}
