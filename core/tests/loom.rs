//! Models of the shared protocols: loom runs every interleaving that the memory model allows, up to a
//! number of preemptions.
//! `scripts/loom.sh` runs them.
#![cfg(loom)]

use loom::sync::Arc;
use loom::sync::atomic::AtomicU32;
use loom::thread;
use stackbeat_core::cycles::Cycles;
use stackbeat_core::ids::{Tid, Upid, Utid};
use stackbeat_core::shm::adoption;
use stackbeat_core::shm::buffer::{self, Pool, Writer};
use stackbeat_core::shm::calls::Calls;
use stackbeat_core::shm::callstack::{NodeValue, Table};
use stackbeat_core::shm::layout::{
    BufferHeader, Control, GenerationHeader, MethodEntry, MethodsHeader, Mode, Node, TICK_PARKED,
    ThreadEntry, buffer_state, entry_state, node_kind,
};
use stackbeat_core::shm::methods::{Description, Methods};
use stackbeat_core::shm::signal_gate;
use stackbeat_core::shm::throttle::{self, Due, Ticker};
use stackbeat_core::sync::{AtomicU64, Ordering, fence};

fn model(preemptions: usize, test: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(test);
}

/// Whether a signal was on its way to the thread (1) and has arrived: then its handler has run.
fn delivered(signal: &AtomicU32, handler: impl Fn()) -> bool {
    let arrives = signal.swap(0, Ordering::SeqCst) == 1;
    if arrives {
        handler();
    }
    arrives
}

/// A thread between `close` and `reopen` is never interrupted.
#[test]
fn no_signal_arrives_behind_a_closed_gate() {
    model(3, || closed_signal_gate(false));
}

/// The same with an asymmetric barrier at first. loom has no `membarrier`; a fence at each side stands for
/// it, so this checks what is stored and read, in which order.
#[test]
fn no_signal_arrives_behind_a_gate_with_an_asymmetric_barrier() {
    model(3, || closed_signal_gate(true));
}

fn closed_signal_gate(asymmetric_barrier: bool) {
    const UTID: u32 = 7;
    let entry = Arc::new(ThreadEntry::default());
    entry.utid.store(UTID, Ordering::Relaxed);
    if asymmetric_barrier {
        signal_gate::use_asymmetric_barrier(&entry, Utid(UTID));
    }
    // The signal: 1 while it is on its way to the thread.
    let signal = Arc::new(AtomicU32::new(0));
    let sampler = {
        let (entry, signal) = (entry.clone(), signal.clone());
        thread::spawn(move || {
            let barrier = || {
                fence(Ordering::SeqCst);
                true
            };
            if signal_gate::try_send(&entry, barrier) {
                signal.store(1, Ordering::SeqCst);
            }
        })
    };
    let deliver = || delivered(&signal, || signal_gate::arrived(&entry));
    let mut sampler = Some(sampler);
    let before = signal_gate::close(&entry, |_| {
        // Waiting is: the sampler gets on with it, then the signal is delivered.
        if let Some(sampler) = sampler.take() {
            sampler.join().expect("no panic");
        }
        deliver();
        true
    });
    // Inside the call: nothing arrives now, and nothing will until the gate is open.
    assert!(!deliver());
    if let Some(sampler) = sampler {
        sampler.join().expect("no panic");
    }
    assert!(!deliver());
    signal_gate::reopen(&entry, before);
}

/// A thread that waits no longer is not interrupted in its call, however long the sampler had no processor
/// between the announcement, the signal and the word about it.
#[test]
fn no_signal_arrives_that_was_given_up() {
    model(3, || {
        let entry = Arc::new(ThreadEntry::default());
        let signal = Arc::new(AtomicU32::new(0));
        let sampler = {
            let (entry, signal) = (entry.clone(), signal.clone());
            thread::spawn(move || {
                if signal_gate::try_send(&entry, || true) && signal_gate::commit(&entry) {
                    signal.store(1, Ordering::SeqCst);
                    signal_gate::sent(&entry);
                }
            })
        };
        let deliver = || delivered(&signal, || signal_gate::arrived(&entry));
        let mut sampler = Some(sampler);
        let before = signal_gate::close(&entry, |_| {
            if signal_gate::give_up(&entry) {
                return false;
            }
            if signal_gate::is_being_sent(&entry)
                && let Some(sampler) = sampler.take()
            {
                sampler.join().expect("no panic");
            }
            deliver();
            true
        });
        assert!(!deliver());
        if let Some(sampler) = sampler {
            sampler.join().expect("no panic");
        }
        assert!(!deliver());
        signal_gate::reopen(&entry, before);
    });
}

/// The tid of the unregistered thread in the models below.
const TID: u32 = 9;

/// The sampler's side: sends a signal to a thread that has no entry, unless it gets one meanwhile.
fn meets(
    state: &Arc<AtomicU32>,
    unregistered: &Arc<AtomicU32>,
    signal: &Arc<AtomicU32>,
) -> thread::JoinHandle<()> {
    let (state, unregistered) = (state.clone(), unregistered.clone());
    let signal = signal.clone();
    thread::spawn(move || {
        let is_registered = || state.load(Ordering::SeqCst) == 2;
        if signal_gate::announce(&unregistered, TID, is_registered)
            && signal_gate::commit_meeting(&unregistered, TID)
        {
            signal.store(1, Ordering::SeqCst);
            signal_gate::meeting_sent(&unregistered, TID);
        }
    })
}

/// A thread that gets its entry while a signal is sent to it, because it had none, is not interrupted in the
/// call that it makes next.
#[test]
fn no_signal_arrives_in_the_first_call_of_an_unregistered_thread() {
    model(3, || {
        let state = Arc::new(AtomicU32::new(0));
        let unregistered = Arc::new(AtomicU32::new(0));
        let signal = Arc::new(AtomicU32::new(0));
        let sampler = meets(&state, &unregistered, &signal);
        let deliver = || delivered(&signal, || signal_gate::met(&unregistered, || TID));
        state.store(2, Ordering::Release);
        let mut sampler = Some(sampler);
        signal_gate::introduce(&unregistered, TID, |attempt| {
            assert!(attempt < 2, "waits for a signal that does not come");
            if let Some(sampler) = sampler.take() {
                sampler.join().expect("no panic");
            }
            deliver();
            true
        });
        assert!(!deliver());
        if let Some(sampler) = sampler {
            sampler.join().expect("no panic");
        }
        assert!(!deliver());
    });
}

/// The same for one that waits no longer, however long the sampler had no processor in between.
#[test]
fn no_signal_arrives_that_an_unregistered_thread_gave_up() {
    model(3, || {
        let state = Arc::new(AtomicU32::new(0));
        let unregistered = Arc::new(AtomicU32::new(0));
        let signal = Arc::new(AtomicU32::new(0));
        let sampler = meets(&state, &unregistered, &signal);
        let deliver = || delivered(&signal, || signal_gate::met(&unregistered, || TID));
        state.store(2, Ordering::Release);
        let mut sampler = Some(sampler);
        signal_gate::introduce(&unregistered, TID, |_| {
            if signal_gate::give_up_meeting(&unregistered, TID) {
                return false;
            }
            if signal_gate::is_meeting_being_sent(&unregistered, TID)
                && let Some(sampler) = sampler.take()
            {
                sampler.join().expect("no panic");
            }
            deliver();
            true
        });
        assert!(!deliver());
        if let Some(sampler) = sampler {
            sampler.join().expect("no panic");
        }
        assert!(!deliver());
    });
}

/// A thread that passes its first hook while the collector makes an entry for it has one entry, whoever made
/// it.
#[test]
fn a_thread_that_is_found_has_one_entry() {
    model(3, || {
        let entries: Arc<[ThreadEntry; 2]> = Arc::default();
        let counter = Arc::new(AtomicU32::new(0));
        let collector = {
            let (entries, counter) = (entries.clone(), counter.clone());
            thread::spawn(move || {
                let [offered, own] = &*entries;
                offered.tid.store(TID, Ordering::Relaxed);
                adoption::offer(&counter, offered);
                if adoption::has_entry(own) && own.tid.load(Ordering::Relaxed) == TID {
                    adoption::take_back(offered);
                } else {
                    adoption::keep(offered);
                }
            })
        };
        let own = &entries[1];
        own.state.store(entry_state::CLAIMED, Ordering::Relaxed);
        own.tid.store(TID, Ordering::Relaxed);
        let all = || (0..).zip(entries.iter());
        let state = match adoption::take(&counter, all, (0, Tid(TID))) {
            Some(_) => entry_state::FREE,
            None => entry_state::LIVE,
        };
        own.state.store(state, Ordering::Release);
        collector.join().expect("no panic");
        let mut states = entries
            .each_ref()
            .map(|entry| entry.state.load(Ordering::Relaxed));
        states.sort_unstable();
        assert_eq!(states, [entry_state::FREE, entry_state::LIVE]);
    });
}

/// Whoever is called may find that nothing is over and sleep: then the call that says so has not come yet.
#[test]
fn a_call_is_not_slept_through() {
    model(3, || {
        let calls = Arc::new(Calls::default());
        let is_over = Arc::new(AtomicU32::new(0));
        let caller = {
            let (calls, is_over) = (calls.clone(), is_over.clone());
            thread::spawn(move || {
                is_over.store(1, Ordering::SeqCst);
                calls.add();
            })
        };
        let noted = calls.note_unless(|| is_over.load(Ordering::SeqCst) == 1);
        caller.join().expect("no panic");
        if let Some(noted) = noted {
            assert_ne!(calls.count(), noted, "it sleeps, and nobody will call");
        }
    });
}

/// Whatever a hook sees while the ticker parks: if it comes after, it wakes it.
#[test]
fn a_hook_after_parking_wakes_the_ticker() {
    model(2, || {
        let control = Arc::new(Control::default());
        let ticker = Ticker::default();
        let hook = {
            let control = control.clone();
            thread::spawn(move || {
                thread::yield_now();
                let entry = ThreadEntry::default();
                let tick = throttle::tick_of(&control, 1);
                let saw_parked = tick.count.load(Ordering::Relaxed) == TICK_PARKED;
                if !throttle::is_quiet(tick, &entry) {
                    let due = throttle::due(&control, tick, &entry, 0, || Cycles(0));
                    let Due::Capture { tick, .. } = due else {
                        panic!("ticks are not by cycles here");
                    };
                    assert_ne!(tick, TICK_PARKED);
                }
                saw_parked
            })
        };
        ticker.park(&control);
        let saw_parked = hook.join().expect("no panic");
        if saw_parked {
            assert!(
                !throttle::is_parked(&control),
                "a hook ran and nobody was woken"
            );
        }
    });
}

/// Of two hooks that find the ticker parked, one says that it is to be woken.
#[test]
fn one_of_two_hooks_wakes() {
    model(2, || {
        let control = Arc::new(Control::default());
        let ticker = Ticker::default();
        ticker.park(&control);
        let run = |control: &Control, index| {
            let entry = ThreadEntry::default();
            let tick = throttle::tick_of(control, index);
            matches!(
                throttle::due(control, tick, &entry, 0, || Cycles(0)),
                Due::Capture { wake: true, .. }
            )
        };
        let other = {
            let control = control.clone();
            thread::spawn(move || run(&control, 0))
        };
        let a = run(&control, 1);
        let b = other.join().expect("no panic");
        assert!(a ^ b);
    });
}

struct Two {
    headers: [BufferHeader; 2],
    words: [[AtomicU64; 4]; 2],
}

impl Pool for Two {
    fn count(&self) -> u32 {
        2
    }
    fn header(&self, i: u32) -> Option<&BufferHeader> {
        self.headers.get(i as usize)
    }
    fn words(&self, i: u32) -> Option<&[AtomicU64]> {
        self.words.get(i as usize).map(|w| &w[..])
    }
}

fn two() -> Arc<Two> {
    Arc::new(Two {
        headers: Default::default(),
        words: Default::default(),
    })
}

fn writer<'a>(pool: &'a Two, entry: &'a ThreadEntry, mode: Mode) -> Writer<'a, Two> {
    Writer {
        pool,
        entry,
        index: 0,
        upid: Upid(1),
        mode,
        generation: 0,
    }
}

fn write(pool: &Two, entry: &ThreadEntry, mode: Mode, record: &[u64]) {
    buffer::begin_capture(entry, 0);
    writer(pool, entry, mode).append(record, Cycles(record[0]));
    buffer::end_capture(entry);
}

/// What is drained is what was written, in order and once, though the collector takes the
/// sub-buffer away in between.
#[test]
fn a_revoked_buffer_loses_and_doubles_nothing() {
    model(2, || {
        let pool = two();
        let entry = Arc::new(ThreadEntry::default());
        let owner = {
            let (pool, entry) = (pool.clone(), entry.clone());
            thread::spawn(move || {
                write(&pool, &entry, Mode::Endless, &[10, 10]);
                write(&pool, &entry, Mode::Endless, &[11, 11]);
            })
        };
        let mut seen = Vec::new();
        let sweep = |seen: &mut Vec<(u64, u64)>| {
            for i in 0..2 {
                let mut words = Vec::new();
                if let Some(drained) = buffer::drain(&*pool, i, true, &mut words) {
                    for (k, record) in words.chunks(2).enumerate() {
                        assert_eq!(record[0], record[1], "a torn record");
                        seen.push((drained.first_record + k as u64, record[0]));
                    }
                    buffer::stored(&*pool, &drained);
                }
            }
        };
        thread::yield_now();
        for i in 0..2 {
            if buffer::revoke(&*pool, i) {
                buffer::settle(&*pool, i, Some(&entry));
            }
        }
        sweep(&mut seen);
        owner.join().expect("no panic");
        for i in 0..2 {
            buffer::settle(&*pool, i, Some(&entry));
        }
        sweep(&mut seen);
        seen.sort();
        assert_eq!(seen, [(0, 10), (1, 11)]);
    });
}

/// A reader of a ring sees a record as it was written, or notices that it was overwritten.
#[test]
fn an_overwritten_buffer_is_never_read_as_another() {
    model(2, || {
        let pool = two();
        let entry = Arc::new(ThreadEntry::default());
        // Both are full: the next record overwrites the first.
        for n in [10, 11] {
            write(&pool, &entry, Mode::Ring, &[n; 4]);
        }
        let owner = {
            let (pool, entry) = (pool.clone(), entry.clone());
            thread::spawn(move || write(&pool, &entry, Mode::Ring, &[12; 4]))
        };
        for i in 0..2 {
            let mut words = Vec::new();
            if let Some(drained) = buffer::drain(&*pool, i, false, &mut words) {
                for (k, record) in words.chunks(4).enumerate() {
                    let number = drained.first_record + k as u64;
                    assert!(record.iter().all(|w| *w == 10 + number), "{record:?}");
                }
            }
        }
        owner.join().expect("no panic");
        let states: Vec<u32> = (0..2)
            .filter_map(|i| pool.header(i))
            .map(|h| h.state.load(Ordering::Relaxed) as u32)
            .collect();
        assert!(states.contains(&buffer_state::WRITING));
    });
}

/// Two threads that insert the same stack get the same node, and it is written when they get it.
#[test]
fn inserts_agree() {
    model(3, || {
        let header = Arc::new(GenerationHeader::default());
        header.nodes_used.store(1, Ordering::Relaxed);
        header.nodes_limit.store(4, Ordering::Relaxed);
        let index: Arc<[AtomicU32; 8]> = Arc::default();
        let nodes: Arc<[Node; 4]> = Arc::default();
        let value = NodeValue {
            parent: 0,
            address: 0x1000,
            kind: node_kind::ROOT,
        };
        let insert = {
            let (header, index, nodes) = (header.clone(), index.clone(), nodes.clone());
            move || {
                let table = Table {
                    header: &header,
                    index: &index[..],
                    nodes: &nodes[..],
                };
                let node = table.insert(value).expect("room");
                assert_eq!(table.read(node), Some(value));
                node
            }
        };
        let other = thread::spawn(insert.clone());
        let mine = insert();
        assert_eq!(mine, other.join().expect("no panic"));
    });
}

/// Whoever reads nodes in order of their indices, as the drain does, finds a whole node or none, while two
/// threads insert it and one of them clears its own.
#[test]
fn a_node_is_read_whole() {
    for kind in [node_kind::ROOT, node_kind::LEAF_PC] {
        model(2, move || {
            let header = Arc::new(GenerationHeader::default());
            header.nodes_used.store(2, Ordering::Relaxed);
            header.nodes_limit.store(4, Ordering::Relaxed);
            let index: Arc<[AtomicU32; 8]> = Arc::default();
            let nodes: Arc<[Node; 4]> = Arc::default();
            let value = NodeValue {
                parent: u32::from(kind != node_kind::ROOT),
                address: 0x1000,
                kind,
            };
            let insert = {
                let (header, index, nodes) = (header.clone(), index.clone(), nodes.clone());
                move || {
                    let table = Table {
                        header: &header,
                        index: &index[..],
                        nodes: &nodes[..],
                    };
                    table.insert(value).expect("room");
                }
            };
            let read = move || {
                let table = Table {
                    header: &header,
                    index: &index[..],
                    nodes: &nodes[..],
                };
                for i in [2, 3] {
                    assert!(table.read(i).is_none_or(|read| read == value));
                }
            };
            let threads = [thread::spawn(read), thread::spawn(insert.clone())];
            insert();
            for thread in threads {
                thread.join().expect("no panic");
            }
        });
    }
}

/// Two threads that insert the same method get the same number, and its text is written when they get it.
#[test]
fn methods_agree() {
    model(3, || {
        let header = Arc::new(MethodsHeader::default());
        header.used.store(1, Ordering::Relaxed);
        header.limit.store(4, Ordering::Relaxed);
        header.words_limit.store(6, Ordering::Relaxed);
        let index: Arc<[AtomicU32; 8]> = Arc::default();
        let entries: Arc<[MethodEntry; 4]> = Arc::default();
        let words: Arc<[AtomicU64; 6]> = Arc::default();
        let insert = {
            let (header, index) = (header.clone(), index.clone());
            let (entries, words) = (entries.clone(), words.clone());
            move || {
                let methods = Methods {
                    header: &header,
                    index: &index[..],
                    entries: &entries[..],
                    words: &words[..],
                };
                let description = Description {
                    name: b"f",
                    ..Default::default()
                };
                let number = methods.insert(5, &description).expect("room");
                assert_eq!(methods.read(number).expect("written").name, "f");
                number
            }
        };
        let other = thread::spawn(insert.clone());
        let mine = insert();
        assert_eq!(mine, other.join().expect("no panic"));
    });
}
