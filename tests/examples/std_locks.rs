//! A program to record: threads that wait for locks and conditions of Rust's standard library, which are
//! futexes.

use std::sync::{Condvar, Mutex, RwLock};
use std::thread;
use std::time::Duration;

/// How long each wait lasts, about.
const HELD: Duration = Duration::from_millis(60);

static MUTEX: Mutex<u32> = Mutex::new(0);
static TABLE: RwLock<u32> = RwLock::new(0);
static DONE: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());

#[inline(never)]
fn in_mutex() {
    *MUTEX.lock().expect("no panic") += 1;
}

#[inline(never)]
fn in_reader() {
    assert_eq!(*TABLE.read().expect("no panic"), 0);
}

#[inline(never)]
fn in_condition() {
    let mut done = DONE.0.lock().expect("no panic");
    while !*done {
        done = DONE.1.wait(done).expect("no panic");
    }
}

fn main() {
    let (held, written) = (MUTEX.lock(), TABLE.write());
    let threads = [
        thread::spawn(in_mutex),
        thread::spawn(in_reader),
        thread::spawn(in_condition),
    ];
    thread::sleep(HELD);
    drop((held, written));
    *DONE.0.lock().expect("no panic") = true;
    DONE.1.notify_all();
    for thread in threads {
        thread.join().expect("no panic");
    }
}
