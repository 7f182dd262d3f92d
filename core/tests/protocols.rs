//! The shared protocols between real threads over plain memory: what `scripts/miri.sh` looks at for
//! undefined behaviour and data races.
#![cfg(not(loom))]

use stackbeat_core::clock;
use stackbeat_core::cycles::Cycles;
use stackbeat_core::ids::{Upid, Utid};
use stackbeat_core::shm::buffer::{self, Pool, Writer};
use stackbeat_core::shm::callstack::{NodeValue, Table};
use stackbeat_core::shm::layout::{
    BufferHeader, GenerationHeader, Mode, Node, ThreadEntry, node_kind,
};
use stackbeat_core::shm::signal_gate;
use stackbeat_core::shm::throttle::{self, Due, Ticker};
use stackbeat_core::sync::{AtomicU32, AtomicU64, Ordering};

const ROUNDS: u64 = if cfg!(miri) { 40 } else { 4000 };

#[derive(Default)]
struct Plain {
    headers: [BufferHeader; 3],
    words: [[AtomicU64; 32]; 3],
}

impl Pool for Plain {
    fn count(&self) -> u32 {
        3
    }
    fn header(&self, i: u32) -> Option<&BufferHeader> {
        self.headers.get(i as usize)
    }
    fn words(&self, i: u32) -> Option<&[AtomicU64]> {
        self.words.get(i as usize).map(|w| &w[..])
    }
}

#[test]
fn two_writers_and_a_drain() {
    let pool = Plain::default();
    let entries: [ThreadEntry; 2] = Default::default();
    let mut received = [0u64; 2];
    std::thread::scope(|scope| {
        let writers: Vec<_> = entries
            .iter()
            .enumerate()
            .map(|(i, entry)| {
                entry.utid.store(i as u32, Ordering::Relaxed);
                let pool = &pool;
                scope.spawn(move || {
                    for n in 0..ROUNDS {
                        buffer::begin_capture(entry, 0);
                        Writer {
                            pool,
                            entry,
                            index: i as u32,
                            upid: Upid(1),
                            mode: Mode::Endless,
                            generation: 0,
                        }
                        .append(&[n; 5], Cycles(n));
                        buffer::end_capture(entry);
                    }
                })
            })
            .collect();
        let mut words = Vec::new();
        loop {
            let over = writers.iter().all(|w| w.is_finished());
            for i in 0..3 {
                buffer::revoke(&pool, i);
                let owner = (pool.headers[i as usize].state.load(Ordering::Relaxed) >> 32) as usize;
                buffer::settle(&pool, i, entries.get(owner));
                if let Some(drained) = buffer::drain(&pool, i, true, &mut words) {
                    for (k, record) in words.chunks(5).enumerate() {
                        let number = drained.first_record + k as u64;
                        assert!(record.iter().all(|w| *w == number), "{record:?}");
                    }
                    received[drained.utid.0 as usize] += drained.records as u64;
                    buffer::stored(&pool, &drained);
                }
            }
            if over && (0..3).all(|i| pool.headers[i].state.load(Ordering::Relaxed) == 0) {
                break;
            }
            std::thread::yield_now();
        }
    });
    for (entry, received) in entries.iter().zip(received) {
        let lost = entry.drops[1].load(Ordering::Relaxed);
        assert_eq!(received + lost, ROUNDS);
    }
}

#[test]
fn threads_share_a_table() {
    let header = GenerationHeader::default();
    header.nodes_used.store(1, Ordering::Relaxed);
    header.nodes_limit.store(256, Ordering::Relaxed);
    let index: [AtomicU32; 512] = std::array::from_fn(|_| AtomicU32::new(0));
    let nodes: [Node; 256] = std::array::from_fn(|_| Node::default());
    let table = Table {
        header: &header,
        index: &index,
        nodes: &nodes,
    };
    let path = || {
        let mut node = 0;
        (0..30u64)
            .map(|depth| {
                let value = NodeValue {
                    parent: node,
                    address: 0x1000 + depth,
                    kind: if depth == 0 {
                        node_kind::ROOT
                    } else {
                        node_kind::NATIVE
                    },
                };
                node = table.insert(value).expect("room");
                assert_eq!(table.read(node), Some(value));
                node
            })
            .collect::<Vec<u32>>()
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(path);
        let mine = path();
        assert_eq!(mine, other.join().expect("no panic"));
    });
}

#[test]
fn a_closed_gate_stays_quiet() {
    closed_signal_gates_stay_quiet(false);
}

#[test]
#[cfg(all(target_os = "linux", not(miri)))]
fn a_closed_signal_gate_with_an_asymmetric_barrier_stays_quiet() {
    if stackbeat_core::platform::accept_barriers() {
        closed_signal_gates_stay_quiet(true);
    }
}

fn closed_signal_gates_stay_quiet(asymmetric_barrier: bool) {
    const UTID: u32 = 7;
    let entry = ThreadEntry::default();
    entry.utid.store(UTID, Ordering::Relaxed);
    let signal = AtomicU32::new(0);
    let over = AtomicU32::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while over.load(Ordering::Relaxed) == 0 {
                if asymmetric_barrier {
                    signal_gate::use_asymmetric_barrier(&entry, Utid(UTID));
                }
                if signal_gate::try_send(&entry, stackbeat_core::platform::barrier_everywhere) {
                    signal.store(1, Ordering::SeqCst);
                }
                std::thread::yield_now();
            }
        });
        let deliver = || {
            let came = signal.swap(0, Ordering::SeqCst) == 1;
            if came {
                signal_gate::arrived(&entry);
            }
            came
        };
        for _ in 0..ROUNDS {
            let before = signal_gate::close(&entry, |attempt| {
                if !deliver() && attempt < 50 {
                    std::thread::yield_now();
                } else if attempt >= 50 {
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
                true
            });
            // The call takes a while: a sender that was wrong has time to be seen.
            for _ in 0..30 {
                std::hint::spin_loop();
            }
            assert!(!deliver());
            signal_gate::reopen(&entry, before);
            deliver();
        }
        over.store(1, Ordering::Relaxed);
    });
}

#[test]
fn a_parked_ticker_is_woken() {
    let control = std::sync::Arc::new(stackbeat_core::shm::layout::Control::default());
    let entry = ThreadEntry::default();
    let mut ticker = Ticker::default();
    for _ in 0..ROUNDS / 10 {
        ticker.park(&control);
        let tick = throttle::tick_of(&control, 5);
        assert!(!throttle::is_quiet(tick, &entry));
        let due = throttle::due(&control, tick, &entry, 0, || Cycles(0));
        let Due::Capture { tick: last, wake } = due else {
            panic!("ticks are not by cycles here");
        };
        assert!(wake);
        entry.last_tick.store(last, Ordering::Relaxed);
        assert!(throttle::is_quiet(tick, &entry));
        assert!(!throttle::is_parked(&control));
        ticker.resume(&control);
        assert!(throttle::is_quiet(tick, &entry));
        ticker.advance_all(&control, clock::cycles());
        assert!(!throttle::is_quiet(tick, &entry));
    }
}
