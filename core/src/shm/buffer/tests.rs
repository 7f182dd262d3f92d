//! Writers and the drain of sub-buffers.

use super::*;
use crate::shm::mapping::Mapping;
use crate::shm::mapping::tests::small;
use std::collections::BTreeMap;
use std::vec::Vec;

fn writer(mapping: &Mapping, index: u32, mode: Mode) -> Writer<'_, Mapping> {
    let entry = mapping.thread(index).expect("it exists");
    entry.utid.store(index + 100, Ordering::Relaxed);
    Writer {
        pool: mapping,
        entry,
        index,
        upid: Upid(1),
        mode,
        generation: 0,
    }
}

fn drain_all(mapping: &Mapping) -> Vec<(Drained, Vec<u64>)> {
    let mut all = Vec::new();
    for i in 0..mapping.count() {
        let mut words = Vec::new();
        if let Some(drained) = drain(mapping, i, true, &mut words) {
            stored(mapping, &drained);
            all.push((drained, words));
        }
    }
    all
}

#[test]
fn a_partial_buffer_is_drained_in_steps() {
    let mapping = small();
    let w = writer(&mapping, 0, Mode::Endless);
    assert!(w.append(&[1, 2, 3], Cycles(10)));
    let first = drain_all(&mapping);
    assert_eq!(first.len(), 1);
    assert_eq!(first[0].1, [1, 2, 3]);
    assert_eq!((first[0].0.first_record, first[0].0.records), (0, 1));
    assert!(drain_all(&mapping).is_empty());
    assert!(w.append(&[4, 5], Cycles(11)) && w.append(&[6], Cycles(12)));
    let second = drain_all(&mapping);
    assert_eq!(second[0].1, [4, 5, 6]);
    assert_eq!((second[0].0.first_record, second[0].0.records), (1, 2));
    assert!(!second[0].0.complete);
    w.complete();
    assert!(drain_all(&mapping)[0].0.complete);
    assert_eq!(free_count(&mapping), 8);
}

#[test]
fn when_nothing_is_free_records_are_lost_and_numbered() {
    let mapping = small();
    let w = writer(&mapping, 0, Mode::Endless);
    // 8 buffers of 512 words hold 8 × 51 records of 10 words.
    let written = (0..500).filter(|_| w.append(&[7; 10], Cycles(1))).count();
    assert_eq!(written, 8 * 51);
    assert_eq!(
        w.entry.drops[drops::BUFFER_FULL].load(Ordering::Relaxed),
        500 - written as u64
    );
    assert_eq!(w.entry.records.load(Ordering::Relaxed), 500);
    let stored: u32 = drain_all(&mapping).iter().map(|(d, _)| d.records).sum();
    assert_eq!(stored as usize, written);
    assert!(w.append(&[1], Cycles(1)));
    assert_eq!(drain_all(&mapping)[0].0.first_record, 500);
}

#[test]
fn a_ring_keeps_the_newest() {
    let mapping = small();
    let w = writer(&mapping, 0, Mode::Ring);
    for n in 0..5000u64 {
        assert!(w.append(&[n; 10], Cycles(n)));
    }
    let mut kept: Vec<u64> = Vec::new();
    for i in 0..mapping.count() {
        let mut words = Vec::new();
        if let Some(drained) = drain(&mapping, i, false, &mut words) {
            assert_eq!(drained.first_record, words[0]);
            kept.extend(words.iter().step_by(10));
        }
    }
    kept.sort();
    let first = kept[0];
    assert!(kept.iter().copied().eq(first..5000));
    assert_eq!(
        w.entry.drops[drops::OVERWRITTEN].load(Ordering::Relaxed),
        first
    );
}

#[test]
fn an_idle_owner_loses_its_buffer_but_no_record() {
    let mapping = small();
    let w = writer(&mapping, 3, Mode::Endless);
    w.entry.capturing.store(1, Ordering::SeqCst);
    assert!(w.append(&[1], Cycles(1)));
    let i = w.entry.buffer.load(Ordering::Relaxed) - 1;
    assert!(revoke(&mapping, i));
    // The owner may be writing still.
    assert!(!settle(&mapping, i, Some(w.entry)));
    w.entry.capturing.store(0, Ordering::SeqCst);
    assert!(settle(&mapping, i, Some(w.entry)));
    assert_eq!(drain_all(&mapping)[0].1, [1]);
    assert!(w.append(&[2], Cycles(2)));
    let again = drain_all(&mapping);
    assert_eq!(
        (again[0].1.as_slice(), again[0].0.first_record),
        (&[2][..], 1)
    );
}

#[test]
fn the_dead_leave_what_they_committed() {
    let mapping = small();
    let w = writer(&mapping, 3, Mode::Endless);
    assert!(w.append(&[9, 9], Cycles(1)));
    let half = mapping.buffer(7).expect("it exists");
    half.state
        .store(state_word(3, state::TAKING), Ordering::Relaxed);
    for i in 0..mapping.count() {
        owner_died(&mapping, i);
    }
    let all = drain_all(&mapping);
    assert_eq!(all.len(), 1);
    assert_eq!(
        (all[0].1.as_slice(), all[0].0.complete),
        (&[9, 9][..], true)
    );
    assert_eq!(free_count(&mapping), 8);
}

#[test]
fn nonsense_in_the_mapping_is_survived() {
    let mapping = small();
    let w = writer(&mapping, 0, Mode::Endless);
    w.entry.buffer.store(u32::MAX, Ordering::Relaxed);
    assert!(w.append(&[1], Cycles(1)));
    let header = mapping
        .buffer(w.entry.buffer.load(Ordering::Relaxed) - 1)
        .expect("it exists");
    header.committed.store(u64::MAX, Ordering::Relaxed);
    assert!(w.append(&[2], Cycles(1)));
    for i in 0..mapping.count() {
        let header = mapping.buffer(i).expect("it exists");
        for state in 0..6u64 {
            header.state.store(state, Ordering::Relaxed);
            for committed in [0, 5, 513, u64::MAX, 1 << 63] {
                for drained in [0, 6, u64::MAX] {
                    header.committed.store(committed, Ordering::Relaxed);
                    header.drained.store(drained, Ordering::Relaxed);
                    let mut words = Vec::new();
                    let _ = drain(&mapping, i, true, &mut words);
                    assert!(words.len() <= 512);
                }
            }
        }
    }
}

#[test]
fn sixteen_writers_and_a_drain_lose_nothing_unseen() {
    let mapping = small();
    let seen = std::sync::Mutex::new(BTreeMap::<(u32, u64), u64>::new());
    let running = core::sync::atomic::AtomicU32::new(16);
    std::thread::scope(|scope| {
        for t in 0..16 {
            let (mapping, running) = (&mapping, &running);
            scope.spawn(move || {
                let w = writer(mapping, t, Mode::Endless);
                for n in 0..3000u64 {
                    w.entry.capturing.swap(1, Ordering::SeqCst);
                    w.append(&[(t as u64) << 32 | n; 7], Cycles(n));
                    w.entry.capturing.store(0, Ordering::Release);
                }
                w.complete();
                running.fetch_sub(1, Ordering::Release);
            });
        }
        loop {
            let over = running.load(Ordering::Acquire) == 0;
            for i in 0..mapping.count() {
                if revoke(&mapping, i) {
                    let state = mapping
                        .buffer(i)
                        .expect("exists")
                        .state
                        .load(Ordering::Relaxed);
                    let owner = mapping.thread((state >> 32) as u32);
                    while mapping
                        .buffer(i)
                        .expect("exists")
                        .state
                        .load(Ordering::Relaxed) as u32
                        == state::REVOKED
                    {
                        settle(&mapping, i, owner);
                    }
                }
            }
            for (drained, words) in drain_all(&mapping) {
                assert_eq!(words.len(), drained.records as usize * 7);
                for (k, record) in words.chunks(7).enumerate() {
                    let (t, n) = ((record[0] >> 32) as u32, record[0] & 0xffff_ffff);
                    assert!(record.iter().all(|w| *w == record[0]));
                    assert_eq!(drained.utid.0, t + 100);
                    assert_eq!(drained.first_record + k as u64, n);
                    let mut seen = seen.lock().expect("no panic");
                    assert_eq!(seen.insert((t, n), 1), None);
                }
            }
            if over {
                break;
            }
        }
    });
    let seen = seen.into_inner().expect("no panic");
    for t in 0..16 {
        let stored = seen.range((t, 0)..(t + 1, 0)).count() as u64;
        let entry = mapping.thread(t).expect("exists");
        let lost = entry.drops[drops::BUFFER_FULL].load(Ordering::Relaxed);
        assert_eq!(stored + lost, 3000, "thread {t}");
        assert_eq!(entry.records.load(Ordering::Relaxed), 3000);
    }
}

#[test]
fn a_pool_that_fills_wants_a_drain() {
    let mapping = small();
    let word = &mapping.control().drain;
    word.store(1, Ordering::SeqCst);
    let buffers = mapping.count();
    for taken in 1..=buffers {
        assert!(writer(&mapping, taken, Mode::Endless).append(&[1], Cycles(1)));
        if taken <= buffers / 2 {
            assert_eq!(word.load(Ordering::SeqCst), 1, "{taken} of {buffers}");
        }
    }
    assert_eq!(word.load(Ordering::SeqCst), 0);
}
