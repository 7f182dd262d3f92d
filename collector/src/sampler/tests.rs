//! Threads are suspended wherever they are, also where they hold the lock of malloc, by a thread of the same process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use stackbeat_core::ids::{Pid, Tid, Utid};
use stackbeat_core::platform;
use stackbeat_core::shm::layout::{ClockSource, ThreadEntry, entry_state};

use super::suspended::{Attempt, Whom, take};
use crate::apple::host::Inside as Apple;
use crate::host::{Host, Interruption, Suspension};
use crate::linux::host::Linux;
use crate::linux::suspension::ByTracing;

/// How long threads are suspended where nobody says it.
const USUAL: Duration = Duration::from_secs(3);
/// Without a suspension for so long somebody waits for ever.
const STUCK: Duration = Duration::from_secs(60);
const THREADS: usize = 4;

/// How much is wanted.
enum Wanted {
    Times(u64),
    Time(Duration),
}

impl Wanted {
    /// `STACKBEAT_SUSPENSIONS`: how often, or with an `s` behind it for how many seconds.
    fn of_environment() -> Wanted {
        let Ok(text) = std::env::var("STACKBEAT_SUSPENSIONS") else {
            return Wanted::Time(USUAL);
        };
        let number = |text: &str| text.parse().expect("a number");
        match text.strip_suffix('s') {
            Some(seconds) => Wanted::Time(Duration::from_secs(number(seconds))),
            None => Wanted::Times(number(&text)),
        }
    }
}

/// Calls malloc and free all the time, with sizes beyond those that are kept by thread: each call takes the lock.
fn allocate(is_over: &AtomicBool, tid: &AtomicU32, calls: &AtomicU64) {
    tid.store(platform::thread_id(), Ordering::Release);
    let mut bytes = 2_000;
    while !is_over.load(Ordering::Relaxed) {
        bytes = 2_000 + (bytes * 31 + 7) % 30_000;
        // SAFETY: what is allocated is written to within its length, and freed once.
        unsafe {
            let memory = libc::malloc(bytes);
            memory.cast::<u8>().write_volatile(1);
            libc::free(memory);
        }
        calls.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn threads_are_suspended_while_they_hold_the_lock_of_malloc() {
    suspend_at_random(Box::new(ByTracing::start().expect("a process")));
}

/// The same by Mach's calls.
#[test]
fn threads_are_suspended_by_mach_while_they_hold_the_lock_of_malloc() {
    match Apple::new(Pid(std::process::id())).interruption() {
        Ok(Interruption::BySuspension(by)) => suspend_at_random(by),
        other => panic!("{other:?}"),
    }
}

fn suspend_at_random(mut by: Box<dyn Suspension>) {
    let wanted = Wanted::of_environment();
    // SAFETY: one lock for all threads; and whoever may trace children only lets ours trace us.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
        libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY);
    }
    let is_over = Arc::new(AtomicBool::new(false));
    let done = Arc::new(AtomicU64::new(0));
    let calls = Arc::new(AtomicU64::new(0));
    let tids: Arc<[AtomicU32; THREADS]> = Arc::default();
    let threads: Vec<_> = (0..THREADS)
        .map(|i| {
            let (is_over, tids, calls) =
                (Arc::clone(&is_over), Arc::clone(&tids), Arc::clone(&calls));
            std::thread::spawn(move || allocate(&is_over, &tids[i], &calls))
        })
        .collect();
    let watch = {
        let (is_over, done) = (Arc::clone(&is_over), Arc::clone(&done));
        std::thread::spawn(move || {
            let mut last = (u64::MAX, Instant::now());
            while !is_over.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(100));
                let now = done.load(Ordering::Relaxed);
                if now != last.0 {
                    last = (now, Instant::now());
                } else if last.1.elapsed() > STUCK {
                    eprintln!("no thread was suspended for {STUCK:?}");
                    std::process::abort();
                }
            }
        })
    };
    while tids.iter().any(|tid| tid.load(Ordering::Acquire) == 0) {
        std::thread::yield_now();
    }

    // SAFETY: all its words are atomics, for which zeros are valid.
    let entry: Box<ThreadEntry> = unsafe { Box::new(std::mem::zeroed()) };
    entry.state.store(entry_state::LIVE, Ordering::Relaxed);
    Linux::of_the_dead().begin_ticking();
    let mut words = vec![0; 8 << 10];
    let began = Instant::now();
    let (mut attempts, mut taken) = (0u64, 0u64);
    let mut random = 1u64;
    loop {
        let goes_on = match wanted {
            Wanted::Times(times) => taken < times,
            Wanted::Time(time) => began.elapsed() < time,
        };
        if !goes_on {
            break;
        }
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let tid = &tids[(random >> 33) as usize % THREADS];
        let whom = Whom {
            entry: &entry,
            utid: Utid(0),
            pid: Pid(std::process::id()),
            tid: Tid(tid.load(Ordering::Relaxed)),
            tick: None,
            owed: 0,
            source: ClockSource::Monotonic,
        };
        attempts += 1;
        match take(&mut *by, &whom, &mut words) {
            Attempt::Taken(found) => {
                assert!(found.words > 0 && found.registers.pc != 0 && found.cpu_ns > 0);
                taken += 1;
            }
            // It waits for a processor.
            Attempt::NotNow => std::thread::sleep(Duration::from_millis(1)),
            Attempt::Gone => panic!("no thread has ended"),
        }
        // Outside of the window, anything may be called.
        drop(std::hint::black_box(vec![0u8; 3_000]));
        done.store(attempts, Ordering::Relaxed);
    }
    let seconds = began.elapsed().as_secs_f64();
    is_over.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().expect("it goes on until it is told");
    }
    watch.join().expect("nothing is stuck");
    let calls = calls.load(Ordering::Relaxed);
    eprintln!("{taken} suspensions in {seconds:.1} s, {attempts} attempts, {calls} allocations");
    assert!(taken > 20, "{taken} of {attempts}");
    assert!(calls > taken, "{calls}");
}

#[test]
fn the_tripwire_ends_who_allocates_in_the_window() {
    for (what, is_in_window) in [("malloc", true), ("write", true), ("malloc", false)] {
        // SAFETY: the child calls little, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: keeps a core file from being written; what is allocated is not used; ends the child.
            unsafe {
                libc::prctl(libc::PR_SET_DUMPABLE, 0);
                super::tripwire::set(is_in_window);
                match what {
                    "malloc" => _ = std::hint::black_box(libc::malloc(8)),
                    _ => _ = libc::write(2, [0u8; 0].as_ptr().cast(), 0),
                }
                libc::_exit(0);
            }
        }
        let mut status = 0;
        // SAFETY: our own child.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        let is_aborted = libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGABRT;
        assert_eq!(is_aborted, is_in_window, "{what}");
    }
}
