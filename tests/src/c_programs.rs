//! Runs small C programs with and without the agent.
//!
//! The harness stands in for the collector: it makes the mapping, publishes ticks, interrupts threads,
//! and reads what they wrote.

use stackbeat_core::clock;
use stackbeat_core::cycles::Cycles;
use stackbeat_core::ids::Pid;
use stackbeat_core::platform;
use stackbeat_core::probe::{Category, Probe};
use stackbeat_core::shm::layout::{
    CLASSES, Capacity, SESSION_VARIABLE, ThreadEntry, buffer_state, entry_state,
};
use stackbeat_core::shm::mapping::Mapping;
use stackbeat_core::shm::record_format::RecordKind;
use stackbeat_core::shm::signal_gate;
use stackbeat_core::shm::throttle::Ticker;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::{target_folder, workspace};

/// The agent as it is shipped, built by cargo (which does not build a cdylib for tests by itself), or the
/// one that `STACKBEAT_AGENT` names.
pub fn agent() -> &'static Path {
    static AGENT: OnceLock<PathBuf> = OnceLock::new();
    AGENT.get_or_init(|| {
        if let Some(path) = std::env::var_os("STACKBEAT_AGENT") {
            return path.into();
        }
        let profile = target_folder();
        let target = profile.parent().expect("target/PROFILE");
        let status = Command::new(env!("CARGO"))
            .args([
                "build",
                "-q",
                "--profile",
                "agent",
                "-p",
                "stackbeat-hooks-linux",
            ])
            .arg("--manifest-path")
            .arg(workspace().join("Cargo.toml"))
            .arg("--target-dir")
            .arg(target)
            .status()
            .expect("cargo runs");
        assert!(status.success(), "the agent does not build");
        target.join("agent/libstackbeat.so")
    })
}

fn use_asymmetric_barrier(mapping: &Mapping, entry: &ThreadEntry) {
    let process = mapping.process(entry.process.load(Ordering::Relaxed));
    if process.is_some_and(|p| p.barrier.load(Ordering::Relaxed) != 0) {
        signal_gate::use_asymmetric_barrier(entry, entry.utid());
    }
}

/// The source of a program of these tests.
pub fn source(name: &str) -> PathBuf {
    workspace().join("hooks-linux/tests/programs").join(name)
}

/// Compiles `hooks-linux/tests/programs/SOURCE` into `folder` and returns the result's path.
pub fn compile(folder: &Path, file: &str, options: &[&str]) -> PathBuf {
    let source = source(file);
    let cpp = file.ends_with(".cpp");
    let shared = options.contains(&"-shared");
    let stem = source
        .file_stem()
        .expect("a name")
        .to_string_lossy()
        .into_owned();
    let out = folder.join(if shared {
        format!("lib{stem}.so")
    } else {
        stem
    });
    let status = Command::new(if cpp { "g++" } else { "gcc" })
        .args([
            "-O2",
            "-g",
            "-D_FORTIFY_SOURCE=2",
            "-w",
            "-pthread",
            "-fnon-call-exceptions",
        ])
        .arg("-o")
        .arg(&out)
        .arg(&source)
        .args(options)
        .status()
        .expect("gcc runs");
    assert!(status.success(), "{file} does not compile");
    out
}

/// A session as the collector would open it.
pub struct Session {
    /// What agents write into.
    pub mapping: Arc<Mapping>,
    path: CString,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    /// Signals sent by the sampler.
    pub sent: Arc<AtomicU64>,
}

impl Default for Session {
    fn default() -> Session {
        Session::new()
    }
}

impl Session {
    /// Creates the mapping, and starts what stands in for ticker and sampler.
    pub fn new() -> Session {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = format!(
            "/dev/shm/stackbeat.hooks-test.{}.{number}",
            std::process::id()
        );
        let path = CString::new(path).expect("no NUL");
        let capacity = Capacity {
            buffers: 4096,
            ..Capacity::default()
        };
        let mapping = Mapping::create(&path, capacity).expect("/dev/shm has room");
        let control = mapping.control();
        control.depth_limit.store(128, Ordering::Relaxed);
        control.probe_mask.store(u64::MAX, Ordering::Relaxed);
        control.forced_per_second.store(10_000, Ordering::Relaxed);
        control.follow_children.store(1, Ordering::Relaxed);
        // Any wait is long: who ends it is looked for, and captured.
        control.long_wait_cycles.store(Cycles(1), Ordering::Relaxed);
        control.signal.store(libc::SIGURG as u32, Ordering::Relaxed);
        for class in &control.interval_cycles {
            class.store(Cycles(1), Ordering::Relaxed);
        }
        for class in &control.interval_ns {
            class.store(1_000, Ordering::Relaxed);
        }
        control.switch.store(1, Ordering::Release);
        Session {
            mapping: Arc::new(mapping),
            path,
            stop: Arc::default(),
            threads: Vec::new(),
            sent: Arc::default(),
        }
    }

    /// Every hook captures.
    pub fn capture_all(self) -> Session {
        let ticker = Ticker::default();
        for class in 0..CLASSES {
            ticker.by_cycles(self.mapping.control(), class);
        }
        self
    }

    /// The hooks of allocation are to go, as with a budget that they alone exceed.
    pub fn unpatch_allocation(self) -> Session {
        let unpatched = &self.mapping.control().unpatched;
        unpatched.store(Category::Alloc.bit(), Ordering::Relaxed);
        self
    }

    /// Ticks at an interval, as a recording does.
    pub fn tick(mut self, interval: Duration) -> Session {
        let (mapping, stop) = (self.mapping.clone(), self.stop.clone());
        self.threads.push(std::thread::spawn(move || {
            let mut ticker = Ticker::default();
            while !stop.load(Ordering::Relaxed) {
                ticker.advance_all(mapping.control(), clock::cycles());
                std::thread::sleep(interval);
            }
        }));
        self
    }

    /// Lets the gates of all threads use the asymmetric barrier now and then, as a recording does for threads
    /// that wait often and are not interrupted.
    pub fn asymmetric_barriers(mut self) -> Session {
        let (mapping, stop) = (self.mapping.clone(), self.stop.clone());
        self.threads.push(std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                for i in 0..mapping.control().threads_used.load(Ordering::Relaxed) {
                    if let Some(entry) = mapping.thread(i) {
                        use_asymmetric_barrier(&mapping, entry);
                    }
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }));
        self
    }

    /// Interrupts every registered thread whose gate is open, each `interval`.
    pub fn interrupt(mut self, interval: Duration) -> Session {
        let (mapping, stop, sent) = (self.mapping.clone(), self.stop.clone(), self.sent.clone());
        self.threads.push(std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                let begin = Instant::now();
                let used = mapping.control().threads_used.load(Ordering::Relaxed);
                for i in 0..used {
                    let Some(entry) = mapping.thread(i) else {
                        break;
                    };
                    if entry.state.load(Ordering::Acquire) != entry_state::LIVE {
                        continue;
                    }
                    let process = entry.process.load(Ordering::Relaxed);
                    // A program that blocks the first does so for good.
                    let (pid, signal) = mapping.process(process).map_or((Pid(0), 0), |p| {
                        let second = p.second_signal.load(Ordering::Relaxed);
                        let first = p.signal.load(Ordering::Relaxed);
                        let signal = if second == 0 { first } else { second };
                        (p.pid(), signal)
                    });
                    let tid = entry.tid();
                    if pid.0 == 0
                        || signal == 0
                        || tid.0 == 0
                        || !signal_gate::try_send(entry, platform::barrier_everywhere)
                        || !signal_gate::commit(entry)
                    {
                        continue;
                    }
                    let signalled = platform::signal_thread(pid, tid, signal as i32);
                    signal_gate::sent(entry);
                    match signalled {
                        Ok(()) => _ = sent.fetch_add(1, Ordering::Relaxed),
                        Err(_) => signal_gate::cancel(entry),
                    }
                    if sent.load(Ordering::Relaxed) % 2 == 0 {
                        use_asymmetric_barrier(&mapping, entry);
                    }
                }
                while begin.elapsed() < interval {
                    std::thread::sleep(Duration::from_micros(10));
                }
            }
        }));
        self
    }

    /// A command that runs under the agent in this session.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .env("LD_PRELOAD", agent())
            .env(SESSION_VARIABLE, self.path());
        command
    }

    /// Where its mapping lies, for a program that brings the agent in by itself.
    pub fn path(&self) -> &str {
        self.path.to_str().expect("ASCII")
    }

    /// Samples by probe, of all threads, after the program has ended.
    pub fn samples(&self) -> BTreeMap<Probe, u64> {
        let mut found = BTreeMap::new();
        for i in 0..self.mapping.layout().capacity.buffers {
            let (Some(head), Some(words)) = (self.mapping.buffer(i), self.mapping.buffer_words(i))
            else {
                break;
            };
            if head.state.load(Ordering::Acquire) as u32 == buffer_state::FREE {
                continue;
            }
            let committed = head.committed.load(Ordering::Acquire) as u32 as usize;
            let mut at = 0;
            while at < committed {
                let word = words[at].load(Ordering::Relaxed);
                let kind = RecordKind::from_number(word as u8).expect("a known kind");
                if kind == RecordKind::Sample {
                    let probe = Probe::from_number((word >> 16) as u8).expect("a known probe");
                    *found.entry(probe).or_default() += 1;
                }
                at += (word >> 8) as u8 as usize;
            }
            assert_eq!(at, committed, "records end where the buffer does");
        }
        found
    }

    /// What the processes' entries say of sandboxes (`layout::sandboxed`), in the order in which they began.
    pub fn sandboxed(&self) -> Vec<u32> {
        let mut said: Vec<_> = stackbeat_core::shm::registry::processes(&self.mapping)
            .map(|(_, entry)| {
                let upid = entry.upid.load(Ordering::Relaxed);
                (upid, entry.sandboxed.load(Ordering::Acquire))
            })
            .collect();
        said.sort_unstable();
        said.into_iter().map(|(_, bits)| bits).collect()
    }

    /// Sum of a counter over all threads.
    pub fn total(&self, of: impl Fn(&stackbeat_core::shm::layout::ThreadEntry) -> u64) -> u64 {
        let used = self.mapping.control().threads_used.load(Ordering::Relaxed);
        (0..used)
            .filter_map(|i| self.mapping.thread(i))
            .map(of)
            .sum()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            _ = thread.join();
        }
        platform::remove(&self.path);
    }
}

/// Runs a command, ending it after five minutes: long also for a loaded machine.
pub fn run(command: &mut Command) -> Output {
    use std::process::Stdio;
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let pid = child.id() as i32;
    let done = Arc::new(AtomicBool::new(false));
    let watch = done.clone();
    let guard = std::thread::spawn(move || {
        let begin = Instant::now();
        while !watch.load(Ordering::Relaxed) {
            if begin.elapsed() > Duration::from_secs(300) {
                // SAFETY: our own child, not yet waited for.
                unsafe { libc::kill(pid, libc::SIGKILL) };
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    let output = child.wait_with_output().expect("the program ends");
    done.store(true, Ordering::Relaxed);
    _ = guard.join();
    output
}

/// Asserts that two runs printed the same and ended the same.
pub fn assert_same(name: &str, plain: &Output, hooked: &Output) {
    let (a, b) = (
        String::from_utf8_lossy(&plain.stdout).into_owned(),
        String::from_utf8_lossy(&hooked.stdout).into_owned(),
    );
    for (i, (x, y)) in a.lines().zip(b.lines()).enumerate() {
        assert_eq!(x, y, "{name}, line {} (left: without the agent)", i + 1);
    }
    assert_eq!(
        a.lines().count(),
        b.lines().count(),
        "{name}: {b}\n{}",
        String::from_utf8_lossy(&hooked.stderr)
    );
    assert_eq!(
        plain.status,
        hooked.status,
        "{name}: {}",
        String::from_utf8_lossy(&hooked.stderr)
    );
}
