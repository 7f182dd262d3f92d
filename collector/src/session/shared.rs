//! What the threads of a session share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use stackbeat_core::mapping::Mapping;
use stackbeat_core::sys;

use super::drainer::Order;
use super::options::Status;

macro_rules! figures {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What the collector measures about itself.
        #[derive(Debug, Default)]
        pub struct Figures {
            $($(#[$doc])* pub $name: AtomicU64,)*
        }

        impl Figures {
            /// Names and values, for the footer.
            pub fn all(&self) -> Vec<(String, u64)> {
                vec![$((stringify!($name).to_owned(), self.$name.load(Ordering::Relaxed)),)*]
            }
        }
    };
}

figures! {
    /// Times the ticker woke up to advance ticks.
    ticks,
    /// Steps that came so late that the next one was due.
    ticks_late,
    /// Sums over these of the shortest interval asked for and of what it was stretched to, ns.
    intervals_asked_ns,
    intervals_kept_ns,
    /// Times the ticker parked because nothing ran.
    parks,
    /// Threads interrupted.
    signals_sent,
    /// Threads that were inside a call that must not be interrupted.
    signals_held_back,
    /// Looks at /proc whether a thread runs.
    state_reads,
    /// Threads of the program that had no entry when they were first interrupted.
    strangers,
    /// Passes over the sub-buffers.
    drains,
    /// Longest pass.
    drain_max_ns,
    /// Bytes of records read.
    bytes_drained,
    /// Bytes written to the trace.
    bytes_written,
    /// Passes that could not store what they had.
    write_failures,
    /// Nodes of the CallstackTable.
    nodes,
    /// Generations of the CallstackTable.
    generations,
    /// CPU time of the collector, without symbolization.
    cpu_ns,
    /// CPU time of the ticker's thread and of the drain's thread.
    ticker_cpu_ns,
    drain_cpu_ns,
    /// From the end of the program to the end of the trace, without symbolization.
    finish_ns,
    /// Time of symbolization.
    symbolize_ns,
    /// CPU time of the program and its waited-for children, as the kernel gave it at the end.
    program_cpu_ns,
}

/// Adds to a figure.
pub fn count(figure: &AtomicU64, amount: u64) {
    figure.fetch_add(amount, Ordering::Relaxed);
}

/// What the supervising thread wants to know.
#[derive(Debug, Default)]
pub struct State {
    pub status: Status,
    pub write_error: Option<String>,
    /// What the drain is to do besides, in this order.
    orders: Vec<Order>,
    drain_is_wanted: bool,
}

/// One session.
#[derive(Debug)]
pub struct Shared {
    pub mapping: Mapping,
    pub figures: Figures,
    stop: AtomicBool,
    state: Mutex<State>,
    /// With `state`: the drain is wanted before its time.
    drain_wanted: Condvar,
}

impl Shared {
    pub fn new(mapping: Mapping) -> Shared {
        Shared {
            mapping,
            figures: Figures::default(),
            stop: AtomicBool::new(false),
            state: Mutex::default(),
            drain_wanted: Condvar::new(),
        }
    }

    /// A panic of another thread of ours leaves plain numbers behind: they stay usable.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn stopping(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// Asks the session's threads to come to their end.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        self.wake_ticker();
        self.want_drain();
    }

    /// Ends the ticker's sleep while parked or switched off, so that it looks at the control block.
    pub fn wake_ticker(&self) {
        let control = self.mapping.control();
        control.parked.store(0, Ordering::SeqCst);
        sys::wake(&control.parked, 1);
        sys::wake(&control.switch, 1);
    }

    /// Asks the drain for something; it is done with its next pass, which comes soon.
    pub fn order(&self, order: Order) {
        let mut state = self.state();
        state.orders.push(order);
        state.drain_is_wanted = true;
        self.drain_wanted.notify_all();
    }

    /// What was ordered since the last call.
    pub fn take_orders(&self) -> Vec<Order> {
        std::mem::take(&mut self.state().orders)
    }

    /// Wakes the drain.
    pub fn want_drain(&self) {
        self.state().drain_is_wanted = true;
        self.drain_wanted.notify_all();
    }

    /// The drain's sleep: at least `shortest`, and `longest` unless it is wanted.
    pub fn sleep(&self, shortest: Duration, longest: Duration) {
        let began = Instant::now();
        let mut state = self.state();
        state.drain_is_wanted = false;
        loop {
            let slept = began.elapsed();
            if self.stopping() || slept >= longest || (state.drain_is_wanted && slept >= shortest) {
                return;
            }
            let end = if state.drain_is_wanted {
                shortest
            } else {
                longest
            };
            let wait = self.drain_wanted.wait_timeout(state, end - slept);
            state = wait.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
