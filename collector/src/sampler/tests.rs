//! Threads are suspended wherever they are, also where they hold the lock of malloc, by a thread of the same
//! process.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use stackbeat_core::cycles::Cycles;
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

/// Calls malloc and free all the time, with sizes beyond those that are kept by thread: each call takes the
/// lock.
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
    // A thread has to get a processor before it stands still, which takes a slice of who has one. So each has
    // a suspender of its own: they wait at the same time, and while one thread is suspended others are too.
    let start = || -> Box<dyn Suspension> { Box::new(ByTracing::start().expect("a process")) };
    suspend_at_random((0..THREADS).map(|_| start()).collect());
}

/// The same by Mach's calls.
#[test]
fn threads_are_suspended_by_mach_while_they_hold_the_lock_of_malloc() {
    match Apple::new(Pid(std::process::id())).interruption() {
        // What stands in for Mach suspends one thread at a time.
        Ok(Interruption::BySuspension(by)) => suspend_at_random(vec![by]),
        other => panic!("{other:?}"),
    }
}

/// What a suspender has done.
#[derive(Default)]
struct Done {
    attempts: AtomicU64,
    taken: AtomicU64,
    /// Of these, where the thread was in libc's code: in malloc or free.
    in_libc: AtomicU64,
}

/// Where libc's code lies.
fn code_of_libc() -> std::ops::Range<u64> {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("our own");
    let mut lines = maps.lines().filter(|line| line.contains("/libc.so"));
    let code = lines
        .find(|line| line.contains(" r-xp "))
        .expect("is loaded");
    let range = code
        .split_once(' ')
        .and_then(|(range, _)| range.split_once('-'));
    let (start, end) = range.expect("two addresses");
    let number = |text| u64::from_str_radix(text, 16).expect("an address");
    number(start)..number(end)
}

/// Each suspender has threads of its own.
fn suspend_at_random(suspenders: Vec<Box<dyn Suspension>>) {
    let wanted = Wanted::of_environment();
    // SAFETY: one lock for all threads; and whoever may trace children only lets ours trace us.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
        libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY);
    }
    let is_over = AtomicBool::new(false);
    let calls = AtomicU64::new(0);
    let tids: [AtomicU32; THREADS] = Default::default();
    let done: Vec<Done> = suspenders.iter().map(|_| Done::default()).collect();
    let sum = |of: fn(&Done) -> &AtomicU64| -> u64 {
        done.iter()
            .map(|done| of(done).load(Ordering::Relaxed))
            .sum()
    };
    let began = Instant::now();
    std::thread::scope(|scope| {
        for tid in &tids {
            scope.spawn(|| allocate(&is_over, tid, &calls));
        }
        while tids.iter().any(|tid| tid.load(Ordering::Acquire) == 0) {
            std::thread::yield_now();
        }
        let threads = tids.chunks(THREADS / suspenders.len());
        for ((by, tids), done) in suspenders.into_iter().zip(threads).zip(&done) {
            let is_over = &is_over;
            scope.spawn(move || suspend(by, tids, done, is_over));
        }
        let mut last: (Vec<u64>, _) = (vec![0; done.len()], began);
        loop {
            std::thread::sleep(Duration::from_millis(100));
            let goes_on = match wanted {
                Wanted::Times(times) => sum(|done| &done.taken) < times,
                Wanted::Time(time) => began.elapsed() < time,
            };
            if !goes_on {
                break;
            }
            let now = done
                .iter()
                .map(|done| done.attempts.load(Ordering::Relaxed));
            let now: Vec<u64> = now.collect();
            if now.iter().zip(&last.0).all(|(now, before)| now != before) {
                last = (now, Instant::now());
            } else if last.1.elapsed() > STUCK {
                eprintln!("somebody suspends no thread for {STUCK:?}: {now:?}");
                std::process::abort();
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let seconds = began.elapsed().as_secs_f64();
    let (taken, attempts) = (sum(|done| &done.taken), sum(|done| &done.attempts));
    let (calls, in_libc) = (calls.into_inner(), sum(|done| &done.in_libc));
    eprintln!(
        "{taken} suspensions in {seconds:.1} s, {in_libc} in malloc and free; {attempts} attempts, {calls} allocations"
    );
    assert!(taken > 20, "{taken} of {attempts}");
    // Often a third; how often depends on where a thread that just got a processor is.
    assert!(in_libc > taken / 20, "{in_libc} of {taken}");
    assert!(calls > taken, "{calls}");
}

/// Suspends any of these threads of this process, until it is over.
fn suspend(mut by: Box<dyn Suspension>, tids: &[AtomicU32], done: &Done, is_over: &AtomicBool) {
    // SAFETY: all its words are atomics, for which zeros are valid.
    let entry: Box<ThreadEntry> = unsafe { Box::new(std::mem::zeroed()) };
    entry.state.store(entry_state::LIVE, Ordering::Relaxed);
    Linux::of_the_dead().begin_ticking();
    let libc = code_of_libc();
    let mut words = vec![0; 8 << 10];
    let mut random = 1u64;
    while !is_over.load(Ordering::Relaxed) {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let tid = &tids[(random >> 33) as usize % tids.len()];
        let whom = Whom {
            entry: &entry,
            utid: Utid(0),
            pid: Pid(std::process::id()),
            tid: Tid(tid.load(Ordering::Relaxed)),
            tick: None,
            owed: Cycles(0),
            source: ClockSource::Monotonic,
        };
        match take(&mut *by, &whom, &mut words) {
            Attempt::Taken(found) => {
                assert!(found.words > 0 && found.registers.pc != 0 && found.cpu_ns > 0);
                done.taken.fetch_add(1, Ordering::Relaxed);
                let is_in_libc = libc.contains(&found.registers.pc);
                done.in_libc.fetch_add(is_in_libc.into(), Ordering::Relaxed);
            }
            // It waits for a processor.
            Attempt::NotNow => std::thread::sleep(Duration::from_millis(1)),
            Attempt::Gone => assert!(is_over.load(Ordering::Relaxed), "no thread has ended"),
        }
        // Outside of the window, anything may be called.
        drop(std::hint::black_box(vec![0u8; 3_000]));
        done.attempts.fetch_add(1, Ordering::Relaxed);
    }
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
