//! Draining of a mapping that the test itself writes to, as an agent would.

use std::collections::HashSet;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;

use stackbeat_core::address::Svma;
use stackbeat_core::cycles::Cycles;
use stackbeat_core::ids::{Pid, Tid, Upid};
use stackbeat_core::shm::buffer::Writer;
use stackbeat_core::shm::callstack::{NodeValue, Table, root_address};
use stackbeat_core::shm::layout::{
    Capacity, METHODS, Mode, ThreadEntry, buffer_state, node_id, node_kind,
};
use stackbeat_core::shm::record_format::{RecordKind, header};
use stackbeat_core::shm::registry::{NewProcess, NewThread, add_process, add_thread, end_thread};
use stackbeat_proto::columns;
use stackbeat_proto::stream::PacketReader;

use super::*;
use crate::linux::host::Linux;

/// What was stored; refuses as often as it is asked to.
#[derive(Default)]
struct Memory {
    stored: Vec<u8>,
    refuse: u32,
}

impl Sink for Memory {
    fn append(&mut self, bytes: &[u8], _: u64) -> io::Result<()> {
        if self.refuse > 0 {
            self.refuse -= 1;
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.stored.extend_from_slice(bytes);
        Ok(())
    }
}

impl Memory {
    fn bodies(&self) -> Vec<packet::Body> {
        PacketReader::new(&self.stored[..])
            .map(|p| p.expect("a good packet").1.body.expect("a body"))
            .collect()
    }

    /// The numbers of all samples of a thread, in the order of the stream.
    fn numbers(&self, utid: Utid) -> Vec<u64> {
        let batches = self.bodies().into_iter().filter_map(|body| match body {
            packet::Body::Samples(b) if b.utid == utid.0 => columns::decode(&b).ok(),
            _ => None,
        });
        batches.flatten().map(|row| row.record).collect()
    }

    fn ends(&self) -> Vec<v1::ThreadEnd> {
        let ends = self.bodies().into_iter().filter_map(|body| match body {
            packet::Body::ThreadEnd(end) => Some(end),
            _ => None,
        });
        ends.collect()
    }
}

struct World {
    mapping: Mapping,
    mode: Mode,
    process: u32,
}

impl World {
    fn new(buffers: u32, mode: Mode) -> World {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("mapping");
        let path = CString::new(path.as_os_str().as_bytes()).expect("no NUL");
        let capacity = Capacity {
            processes: 4,
            threads: 64,
            buffers,
            buffer_bytes: 4096,
            generation_nodes: 1024,
            call_rows: 0,
        };
        let mapping = Mapping::create(&path, capacity).expect("a small mapping");
        let new = NewProcess {
            pid: Pid(std::process::id()),
            cycles: Cycles(1),
            ..Default::default()
        };
        let (process, _) = add_process(&mapping, &new).expect("an entry");
        World {
            mapping,
            mode,
            process,
        }
    }

    fn drainer(&self) -> Drainer {
        let first = Snapshot::take(ClockSource::Monotonic);
        let host = Arc::new(Linux::of_session(b"", Pid(0)));
        Drainer::new(host, ClockSource::Monotonic, &first, 1, false)
    }

    fn thread(&self) -> Thread<'_> {
        let new = NewThread {
            // Nobody's: it has left already when its entry says that it ends.
            tid: Tid(1 << 22),
            process: self.process,
            cycles: Cycles(1),
            ..Default::default()
        };
        let (index, entry) = add_thread(&self.mapping, &new).expect("an entry");
        Thread {
            world: self,
            index,
            entry,
        }
    }
}

struct Thread<'a> {
    world: &'a World,
    index: u32,
    entry: &'a ThreadEntry,
}

impl Thread<'_> {
    fn utid(&self) -> Utid {
        self.entry.utid()
    }

    fn append(&self, record: &[u64]) -> bool {
        let control = self.world.mapping.control();
        self.writer(control.generation.load(Ordering::Relaxed))
            .append(record, Cycles(1))
    }

    fn writer(&self, generation: u32) -> Writer<'_, Mapping> {
        Writer {
            pool: &self.world.mapping,
            entry: self.entry,
            index: self.index,
            upid: Upid(1),
            mode: self.world.mode,
            generation,
        }
    }

    fn sample(&self, node: u32) -> bool {
        let now = stackbeat_core::platform::clock_ns(libc::CLOCK_MONOTONIC);
        self.append(&[
            header(RecordKind::Sample, 7, 10, 0, node),
            now,
            0,
            0,
            0,
            0,
            0,
        ])
    }

    fn end(&self) {
        self.writer(0).complete();
        end_thread(self.entry, Cycles(5));
    }
}

fn in_use(mapping: &Mapping) -> usize {
    let buffers = (0..mapping.layout().capacity.buffers).filter_map(|i| mapping.buffer(i));
    buffers
        .filter(|h| h.state.load(Ordering::Relaxed) as u32 != buffer_state::FREE)
        .count()
}

#[test]
fn a_thread_that_ends_while_newcomers_are_met_loses_nothing() {
    let world = World::new(8, Mode::Endless);
    let (mut drainer, mut memory) = (world.drainer(), Memory::default());
    let thread = world.thread();
    assert!(thread.sample(0));
    let snapshot = drainer.take_snapshot();
    drainer.lifecycle.poll(
        &world.mapping,
        &drainer.converter,
        &snapshot,
        Changed::All,
        &*drainer.host,
    );
    assert!(drainer.waiting(&world.mapping).len() == 1);
    // Behind the back of a pass that has read the pool already.
    assert!(thread.sample(0));
    thread.end();
    drainer.lifecycle.meet_newcomers(
        &world.mapping,
        &drainer.converter,
        &snapshot,
        &*drainer.host,
    );
    drainer
        .lifecycle
        .conclude(&world.mapping, &drainer.converter);
    drainer
        .flush_queue(&world.mapping, &mut memory)
        .expect("memory takes everything");
    assert_eq!(memory.ends(), []);
    for _ in 0..2 {
        drainer
            .pass(&world.mapping, &mut memory, Keep::Nothing)
            .expect("memory takes everything");
    }
    let ends = memory.ends();
    assert_eq!((ends.len(), ends[0].records_written), (1, 2));
    assert_eq!(memory.numbers(thread.utid()), [0, 1]);
}

#[test]
fn every_record_is_stored_once_and_its_place_is_given_back() {
    let world = World::new(8, Mode::Endless);
    let (mut drainer, mut memory) = (world.drainer(), Memory::default());
    let thread = world.thread();
    // 73 samples fill a sub-buffer of 512 words.
    for round in 0..10 {
        for _ in 0..100 {
            assert!(thread.sample(0), "round {round}");
        }
        drainer
            .pass(&world.mapping, &mut memory, Keep::Nothing)
            .expect("stored");
    }
    assert_eq!(memory.numbers(thread.utid()), (0..1000).collect::<Vec<_>>());
    assert!(in_use(&world.mapping) <= 1);
    thread.end();
    drainer
        .pass(&world.mapping, &mut memory, Keep::Nothing)
        .expect("stored");
    let ends = memory.ends();
    assert_eq!((ends.len(), ends[0].records_written), (1, 1000));
    assert!(ends[0].exited);
    assert_eq!(in_use(&world.mapping), 0);
    // The entry serves somebody else, who is told apart.
    let next = world.thread();
    assert_eq!(next.index, thread.index);
    next.sample(0);
    drainer
        .pass(&world.mapping, &mut memory, Keep::Nothing)
        .expect("stored");
    assert_eq!(memory.numbers(next.utid()), [0]);
    assert_eq!(memory.ends().len(), 1);
}

#[test]
fn what_the_sink_refuses_comes_again_and_nothing_twice() {
    for refuse in 1..6 {
        let world = World::new(8, Mode::Endless);
        let (mut drainer, mut memory) = (world.drainer(), Memory::default());
        let thread = world.thread();
        for _ in 0..150 {
            thread.sample(0);
        }
        thread.end();
        memory.refuse = refuse;
        while drainer
            .pass(&world.mapping, &mut memory, Keep::Nothing)
            .is_err()
        {}
        assert_eq!(memory.numbers(thread.utid()), (0..150).collect::<Vec<_>>());
        assert_eq!(memory.ends().len(), 1);
        let announced = memory
            .bodies()
            .iter()
            .filter(|b| matches!(b, packet::Body::Process(_)))
            .count();
        assert_eq!(announced, 1);
    }
}

#[test]
fn samples_by_suspension_stand_among_the_threads_own() {
    for refuse in [0, 1, 2] {
        let world = World::new(8, Mode::Endless);
        let (mut drainer, mut memory) = (world.drainer(), Memory::default());
        let thread = world.thread();
        let suspended = |record, cpu_ns| suspended::SuspendedSample {
            utid: thread.utid(),
            upid: Upid(1),
            epoch: 0,
            record,
            cycles: Cycles(stackbeat_core::platform::clock_ns(libc::CLOCK_MONOTONIC)),
            cpu_ns,
            allocations: 0,
            allocated_bytes: 0,
            frees: 0,
            stack: crate::host::Stack::default(),
        };
        let mut taken = Vec::new();
        assert!(thread.sample(0));
        taken.extend([suspended(0, 1), suspended(0, 2)]);
        assert!(thread.sample(0));
        taken.push(suspended(1, 3));
        for sample in &taken {
            drainer.take_suspended(&world.mapping, Vec::new(), sample);
        }
        memory.refuse = refuse;
        while drainer
            .pass(&world.mapping, &mut memory, Keep::Nothing)
            .is_err()
        {}
        drainer
            .pass(&world.mapping, &mut memory, Keep::Nothing)
            .expect("stored");
        let batches = memory.bodies().into_iter().filter_map(|body| match body {
            packet::Body::Samples(batch) => {
                let rows = columns::decode(&batch).expect("sound").len();
                Some((batch.by_suspension, batch.first_record, rows))
            }
            _ => None,
        });
        let expected = [(false, 0, 1), (true, 0, 2), (false, 1, 1), (true, 1, 1)];
        assert_eq!(batches.collect::<Vec<_>>(), expected, "{refuse} refused");
        // They are no records.
        let sums = drainer.lifecycle.sums(&world.mapping);
        assert_eq!((sums.written, sums.stored), (2, 2));
    }
}

#[test]
fn drops_are_the_gaps() {
    let world = World::new(2, Mode::Endless);
    let (mut drainer, mut memory) = (world.drainer(), Memory::default());
    let thread = world.thread();
    let kept = (0..500).filter(|_| thread.sample(0)).count();
    drainer
        .pass(&world.mapping, &mut memory, Keep::Nothing)
        .expect("stored");
    for _ in 0..10 {
        thread.sample(0);
    }
    drainer
        .pass(&world.mapping, &mut memory, Keep::Nothing)
        .expect("stored");
    let numbers = memory.numbers(thread.utid());
    assert_eq!(numbers.len(), kept + 10);
    assert_eq!(numbers.last(), Some(&509));
    let sums = drainer.lifecycle.sums(&world.mapping);
    assert_eq!((sums.written, sums.stored), (510, kept as u64 + 10));
    assert_eq!(sums.lost(), 500 - kept as u64);
}

#[test]
fn a_full_table_is_followed_by_the_next_generation() {
    let world = World::new(8, Mode::Endless);
    let (mut drainer, mut memory) = (world.drainer(), Memory::default());
    let thread = world.thread();
    let mut expected = Vec::new();
    let fill = |generation: u32, expected: &mut Vec<u32>| {
        let table = Table::of(&world.mapping, generation).expect("the generation is there");
        let insert = |parent, address, kind| {
            table.insert(NodeValue {
                parent,
                address,
                kind,
            })
        };
        let root = insert(0, root_address(Upid(1), 0), node_kind::ROOT).expect("room");
        for i in 0..800 {
            let node = insert(root, 0x1000 + i * 16, node_kind::NATIVE).expect("room");
            expected.push(node_id(generation, 1024, node));
        }
    };
    for generation in 0..4 {
        let control = world.mapping.control();
        assert_eq!(control.generation.load(Ordering::Relaxed), generation);
        fill(generation, &mut expected);
        thread.sample(*expected.last().expect("a node"));
        // A capture in the generation before last holds the change up.
        if generation > 0 {
            thread.entry.capturing.store(generation, Ordering::SeqCst);
            drainer
                .pass(&world.mapping, &mut memory, Keep::Nothing)
                .expect("stored");
            drainer.tend_nodes(&world.mapping);
            assert_eq!(control.generation.load(Ordering::Relaxed), generation);
            thread.entry.capturing.store(0, Ordering::SeqCst);
        }
        drainer
            .pass(&world.mapping, &mut memory, Keep::Nothing)
            .expect("stored");
        drainer.tend_nodes(&world.mapping);
    }
    let mut ids = Vec::new();
    for body in memory.bodies() {
        if let packet::Body::Nodes(nodes) = body {
            let nodes = stackbeat_proto::nodes::nodes(&nodes).expect("columns that fit");
            ids.extend(nodes.map(|node| node.id));
        }
    }
    assert!(expected.iter().all(|id| ids.contains(id)));
    let distinct: HashSet<u32> = ids.iter().copied().collect();
    assert_eq!(distinct.len(), ids.len(), "a node comes twice");
    // The same addresses in each generation ask for one name each.
    let mut queries = drainer.nodes.take_wanted(None);
    queries.sort_unstable_by_key(|query| (query.upid, query.epoch, query.address));
    queries.dedup();
    assert_eq!(queries.len(), 800);
}

#[test]
fn methods_come_once_and_before_the_nodes_that_name_them() {
    use stackbeat_core::shm::methods::{Description, Methods, managed_address};
    for keep in [Keep::Nothing, Keep::Records] {
        let world = World::new(8, Mode::Endless);
        let (mut drainer, mut memory) = (world.drainer(), Memory::default());
        drainer.methods.seed([2]);
        let table = Methods::of(&world.mapping);
        let stacks = Table::of(&world.mapping, 0).expect("there");
        let mut passes = Vec::new();
        for round in 0..3 {
            for key in round * 400 + 1..=round * 400 + 400 {
                let name = format!("method {key}");
                let description = Description {
                    name: name.as_bytes(),
                    file: b"program.py",
                    first_line: key as u32,
                    ..Default::default()
                };
                let number = table.insert(key, &description).expect("room");
                let managed = NodeValue {
                    parent: 0,
                    address: root_address(Upid(1), 0),
                    kind: node_kind::ROOT,
                };
                let root = stacks.insert(managed).expect("room");
                let node = NodeValue {
                    parent: root,
                    address: managed_address(number, 5),
                    kind: node_kind::MANAGED_INTERPRETED,
                };
                stacks.insert(node).ok();
            }
            // A method that is not written yet is read once it is.
            let late = &table.entries[3];
            let place = late.place.swap(u64::from(round != 0), Ordering::Relaxed);
            memory.refuse = u32::from(round == 1);
            let stored = drainer.pass(&world.mapping, &mut memory, keep);
            assert_eq!(stored.is_err(), round == 1);
            drainer.tend_nodes(&world.mapping);
            late.place.store(place, Ordering::Relaxed);
            passes.push(memory.bodies().len());
        }
        drainer
            .pass(&world.mapping, &mut memory, keep)
            .expect("stored");
        let mut seen: HashMap<u32, String> = HashMap::new();
        for body in memory.bodies() {
            match body {
                packet::Body::Methods(packet) => {
                    for method in packet.methods {
                        let name = &packet.strings[method.name as usize];
                        assert_eq!(packet.strings[method.file as usize], "program.py");
                        assert_eq!(*name, format!("method {}", method.first_line));
                        assert_eq!(seen.insert(method.number, name.clone()), None);
                    }
                }
                packet::Body::Nodes(nodes) => {
                    for node in stackbeat_proto::nodes::nodes(&nodes).expect("columns that fit") {
                        let number = (node.address >> 32) as u32;
                        let is_known = seen.contains_key(&number) || [2, 3].contains(&number);
                        assert!(!node_kind::is_managed(node.kind) || is_known);
                    }
                }
                _ => {}
            }
        }
        assert_eq!(seen.len(), 1199);
        assert!(!seen.contains_key(&2) && seen.contains_key(&3));
        // Managed frames want no names, and the table got more room in time.
        assert_eq!(drainer.nodes.wanted_count(), 0);
        assert!(!table.is_low());
    }
}

#[test]
fn a_table_of_methods_that_was_written_over_is_not_read_without_end() {
    use stackbeat_core::shm::layout::METHODS;
    use stackbeat_core::shm::methods::{Description, LINES_BYTES, Methods};
    let world = World::new(8, Mode::Endless);
    let (mut drainer, mut memory) = (world.drainer(), Memory::default());
    let table = Methods::of(&world.mapping);
    world
        .mapping
        .extend_methods(u32::MAX, u32::MAX)
        .expect("room");
    let description = Description {
        line_format: 1,
        lines: &[1; LINES_BYTES],
        ..Default::default()
    };
    let number = table.insert(1, &description).expect("room");
    let place = table.entries[number as usize].place.load(Ordering::Relaxed);
    for entry in table.entries {
        entry.place.store(place, Ordering::Relaxed);
    }
    table.header.used.store(METHODS, Ordering::Relaxed);
    for _ in 0..3 {
        drainer
            .pass(&world.mapping, &mut memory, Keep::Nothing)
            .expect("stored");
    }
    let bytes = drainer.methods.count as usize * LINES_BYTES;
    assert!((1..=12 << 20).contains(&bytes), "{bytes}");
}

#[test]
fn a_ring_forgets_samples_but_not_modules() {
    let world = World::new(2, Mode::Ring);
    let (mut drainer, mut memory) = (world.drainer(), Memory::default());
    let thread = world.thread();
    let path = u64::from_ne_bytes(*b"/lib/x.o");
    thread.append(&[
        header(RecordKind::Module, 7, 0, 0, 0),
        0x1000,
        0x2000,
        0,
        0,
        8,
        path,
    ]);
    drainer
        .pass(&world.mapping, &mut memory, Keep::Records)
        .expect("stored");
    for _ in 0..500 {
        assert!(thread.sample(0));
    }
    thread.end();
    drainer
        .pass(&world.mapping, &mut memory, Keep::Records)
        .expect("stored");
    assert!(memory.numbers(thread.utid()).is_empty());
    assert_eq!(memory.ends().len(), 1);
    drainer
        .pass(&world.mapping, &mut memory, Keep::Nothing)
        .expect("stored");
    let numbers = memory.numbers(thread.utid());
    assert_eq!(numbers.last(), Some(&500), "the newest are kept");
    assert!(numbers.len() < 200);
    assert_eq!(memory.ends().len(), 1);
    let modules: Vec<_> = memory
        .bodies()
        .into_iter()
        .filter_map(|b| match b {
            packet::Body::Module(m) => Some(m.path),
            _ => None,
        })
        .collect();
    assert_eq!(modules, ["/lib/x.o"]);
    let sums = drainer.lifecycle.sums(&world.mapping);
    assert_eq!(sums.written - sums.stored, sums.lost());
}

#[test]
fn of_an_ended_process_only_addresses_in_files_are_kept() {
    let world = World::new(8, Mode::Endless);
    let (mut drainer, mut memory) = (world.drainer(), Memory::default());
    let thread = world.thread();
    let path = u64::from_ne_bytes(*b"/lib/x.o");
    let module = header(RecordKind::Module, 7, 0, 0, 0);
    thread.append(&[module, 0x1000, 0x2000, 0x400, 0, 8, path]);
    let table = Table::of(&world.mapping, 0).expect("the first generation");
    let insert = |parent, address, kind| {
        let node = table.insert(NodeValue {
            parent,
            address,
            kind,
        });
        node.expect("room")
    };
    let root = insert(0, root_address(Upid(1), 0), node_kind::ROOT);
    let node = insert(root, 0x1500, node_kind::NATIVE);
    thread.sample(node_id(0, 1024, insert(node, 0x9000, node_kind::LEAF_PC)));
    thread.end();
    let entry = world.mapping.process(world.process).expect("its entry");
    // Nobody's.
    entry.pid.store(1 << 22, Ordering::Relaxed);
    registry::end_process(entry, Cycles(9), false);
    drainer
        .pass(&world.mapping, &mut memory, Keep::Nothing)
        .expect("stored");
    let now_ns = Snapshot::take(ClockSource::Monotonic).monotonic_ns;
    // What the recorder sees from outside may come a little later than the end.
    drainer.forget_the_ended(now_ns + 1_000_000_000, Keep::Nothing);
    assert!(
        drainer
            .lifecycle
            .modules()
            .at(Upid(1), Some(0), 0x1500)
            .is_some()
    );
    drainer.forget_the_ended(now_ns + 11_000_000_000, Keep::Nothing);
    assert!(
        drainer
            .lifecycle
            .modules()
            .at(Upid(1), Some(0), 0x1500)
            .is_none()
    );
    assert_eq!(drainer.lifecycle.pids().count(), 0);
    assert!(drainer.nodes.take_wanted(None).is_empty());
    let wanted = drainer.take_wanted();
    let in_files: Vec<_> = wanted.in_files().collect();
    let file = stackbeat_symbolize::ModuleFile {
        path: "/lib/x.o".into(),
        build_id: Vec::new(),
    };
    assert_eq!(in_files, [(&file, Svma(0x1100), v1::NodeKind::Native)]);

    // What is seen still later of it is no reason to remember it for good.
    let late = || v1::Module {
        upid: 1,
        start: 0x1000,
        end: 0x2000,
        path: "/lib/x.o".into(),
        ..Default::default()
    };
    for _ in 0..2 {
        drainer.lifecycle.add_module(late());
        assert!(
            drainer
                .lifecycle
                .modules()
                .at(Upid(1), Some(0), 0x1500)
                .is_some()
        );
        drainer.forget_the_ended(now_ns + 11_000_000_000, Keep::Nothing);
        assert!(
            drainer
                .lifecycle
                .modules()
                .at(Upid(1), Some(0), 0x1500)
                .is_none()
        );
    }
}

/// Names of addresses of process 1, from when on each, as packets have them.
fn names_of_code(memory: &Memory) -> Vec<(u64, u64, Option<String>)> {
    let (mut methods, mut names) = (HashMap::new(), Vec::new());
    for body in memory.bodies() {
        match body {
            packet::Body::Methods(packet) => {
                for method in packet.methods {
                    let name = packet.strings[method.name as usize].clone();
                    assert_eq!(methods.insert(method.number, name), None);
                }
            }
            packet::Body::Symbols(symbols) => {
                for entry in symbols.addresses {
                    let name = methods.get(&entry.method).cloned();
                    assert_eq!(name.is_some(), entry.method != 0, "its method comes first");
                    names.push((entry.address, entry.from_ns, name));
                }
            }
            _ => {}
        }
    }
    names
}

#[test]
fn generated_code_has_its_names_in_the_pass_that_knows_them() {
    use super::generated_code::MapLines;

    let world = World::new(8, Mode::Endless);
    let (mut drainer, mut memory) = (world.drainer(), Memory::default());
    let thread = world.thread();
    let path = u64::from_ne_bytes(*b"/lib/x.o");
    let module = header(RecordKind::Module, 7, 0, 0, 0);
    thread.append(&[module, 0x1000, 0x2000, 0x400, 0, 8, path]);
    let table = Table::of(&world.mapping, 0).expect("the first generation");
    let insert = |parent, address, kind| {
        let node = table.insert(NodeValue {
            parent,
            address,
            kind,
        });
        node.expect("room")
    };
    let root = insert(0, root_address(Upid(1), 0), node_kind::ROOT);
    let see = |address| insert(root, address, node_kind::LEAF_PC);
    let lines = |from_ns, text: &str| MapLines {
        upid: Upid(1),
        from_ns,
        begins_anew: false,
        bytes: text.into(),
    };
    let name = |address, from_ns, name: &str| (address, from_ns, Some(name.to_owned()));
    // What lies in a file has that file's names.
    see(0x1500);
    see(0x9000);
    let pass = |drainer: &mut Drainer, memory: &mut Memory| {
        let is_refused = memory.refuse > 0;
        let stored = drainer.pass(&world.mapping, memory, Keep::Records);
        assert_eq!(stored.is_err(), is_refused);
    };
    pass(&mut drainer, &mut memory);
    assert_eq!(names_of_code(&memory), []);
    drainer
        .generated
        .take(lines(5, "1000 1000 x\n9000 10 a\na000 10 b\n"));
    pass(&mut drainer, &mut memory);
    assert_eq!(names_of_code(&memory), [name(0x9000, 0, "a")]);
    // Of what was seen before this pass the name of then holds, and later ones from their times on.
    see(0xa000);
    drainer.generated.take(lines(7, "a000 10 c\n9000 8 a\n"));
    drainer.generated.take(lines(9, "a000 10 b\n"));
    memory.refuse = 1;
    pass(&mut drainer, &mut memory);
    pass(&mut drainer, &mut memory);
    let expected = [
        name(0x9000, 0, "a"),
        name(0xa000, 0, "b"),
        name(0xa000, 7, "c"),
        name(0xa000, 9, "b"),
    ];
    assert_eq!(names_of_code(&memory), expected);
    // Numbers that the table of methods cannot give.
    let is_own = |body: &packet::Body| match body {
        packet::Body::Methods(packet) => packet.methods.iter().all(|m| m.number >= METHODS),
        _ => true,
    };
    assert!(memory.bodies().iter().all(is_own));
}

/// A JVM writes its map at its end, a killed recorder has read none.
#[test]
fn a_map_that_nobody_has_found_in_time_is_read_once() {
    let world = World::new(8, Mode::Endless);
    let (mut drainer, mut memory) = (world.drainer(), Memory::default());
    let entry = world.mapping.process(world.process).expect("its entry");
    // Nobody's.
    entry.pid.store(1 << 22, Ordering::Relaxed);
    let table = Table::of(&world.mapping, 0).expect("the first generation");
    let mut parent = 0;
    for (address, kind) in [
        (root_address(Upid(1), 0), node_kind::ROOT),
        (0x9000, node_kind::NATIVE),
        (0x9000, node_kind::LEAF_PC),
    ] {
        let node = NodeValue {
            parent,
            address,
            kind,
        };
        parent = table.insert(node).expect("room");
    }
    drainer
        .pass(&world.mapping, &mut memory, Keep::Nothing)
        .expect("stored");
    let named = (Upid(1), 0, 0x9000, v1::NodeKind::Native);
    drainer.generated.seed([], HashSet::from([named]));
    let map = "/tmp/perf-4194304.map";
    std::fs::write(map, "9000 10 early\n8000 1001 late").expect("written");
    drainer.name_by_maps_left(None);
    std::fs::remove_file(map).expect("removed");
    drainer.name_by_maps_left(None);
    drainer
        .flush_queue(&world.mapping, &mut memory)
        .expect("stored");
    // The other one has a name in a trace that was left.
    let expected = [(0x9000, 0, Some("late".to_owned()))];
    assert_eq!(names_of_code(&memory), expected);
}

#[test]
fn a_module_that_is_seen_before_its_process_stays() {
    let world = World::new(8, Mode::Endless);
    let (mut drainer, mut memory) = (world.drainer(), Memory::default());
    drainer.lifecycle.add_module(v1::Module {
        upid: 1,
        start: 0x1000,
        end: 0x2000,
        path: "/lib/x.o".into(),
        ..Default::default()
    });
    drainer
        .pass(&world.mapping, &mut memory, Keep::Nothing)
        .expect("stored");
    let now_ns = Snapshot::take(ClockSource::Monotonic).monotonic_ns;
    drainer.forget_the_ended(now_ns + 11_000_000_000, Keep::Nothing);
    assert!(
        drainer
            .lifecycle
            .modules()
            .at(Upid(1), Some(0), 0x1500)
            .is_some()
    );
}

/// A pass takes a while: a thread that is killed meanwhile may have captured since the pass read its clock.
#[test]
fn a_killed_thread_ends_after_its_last_capture() {
    let world = World::new(8, Mode::Endless);
    let (mut drainer, mut memory) = (world.drainer(), Memory::default());
    let thread = world.thread();
    thread.sample(0);
    let last_ns = stackbeat_core::platform::clock_ns(libc::CLOCK_MONOTONIC) + 1_000_000_000;
    thread
        .entry
        .last_capture_cycles
        .store(Cycles(last_ns), Ordering::Relaxed);
    let entry = world.mapping.process(world.process).expect("its entry");
    // Nobody's.
    entry.pid.store(1 << 22, Ordering::Relaxed);
    drainer
        .pass(&world.mapping, &mut memory, Keep::Nothing)
        .expect("stored");
    assert_eq!(memory.ends()[0].end_ns, last_ns);
}

#[test]
fn damage_is_counted_and_stays_where_it_is() {
    let world = World::new(8, Mode::Endless);
    let (mut drainer, mut memory) = (world.drainer(), Memory::default());
    let (hurt, whole) = (world.thread(), world.thread());
    for _ in 0..50 {
        hurt.sample(0);
        whole.sample(0);
    }
    let i = hurt.entry.buffer.load(Ordering::Relaxed) - 1;
    let words = world.mapping.buffer_words(i).expect("its words");
    words[7 * 20].store(0xff00, Ordering::Relaxed);
    drainer
        .pass(&world.mapping, &mut memory, Keep::Nothing)
        .expect("stored");
    assert_eq!(memory.numbers(hurt.utid()), (0..20).collect::<Vec<_>>());
    assert_eq!(memory.numbers(whole.utid()), (0..50).collect::<Vec<_>>());
    assert_eq!(drainer.totals.damaged, 30);
}

#[test]
fn only_changed_entries_are_looked_at_and_the_sums_are_those_of_all() {
    let world = World::new(8, Mode::Endless);
    let (mut drainer, mut memory) = (world.drainer(), Memory::default());
    let (one, other) = (world.thread(), world.thread());
    let mut pass = |drainer: &mut Drainer, entries: &[u32]| {
        let changed = Changed::Entries(entries);
        drainer
            .pass_changed(&world.mapping, &mut memory, Keep::Nothing, changed)
            .expect("stored");
        (drainer.lifecycle.live_threads, memory.ends().len())
    };
    one.sample(0);
    other.sample(0);
    assert_eq!(pass(&mut drainer, &[one.index, other.index]), (2, 0));
    one.sample(0);
    one.end();
    // Nobody has said so.
    assert_eq!(pass(&mut drainer, &[other.index]), (2, 0));
    assert_eq!(pass(&mut drainer, &[one.index]), (1, 1));
    assert_eq!(pass(&mut drainer, &[one.index]), (1, 1));
    other.sample(0);
    pass(&mut drainer, &[other.index]);
    let sums = drainer.lifecycle.sums(&world.mapping);
    assert_eq!(sums.written, 4);
    let kept = drainer.lifecycle.written_and_lost();
    assert_eq!(kept, (sums.written, sums.lost()));
}

#[test]
fn a_thread_that_sleeps_gives_its_place_back_and_one_that_writes_keeps_it() {
    let world = World::new(8, Mode::Endless);
    let (mut drainer, mut memory) = (world.drainer(), Memory::default());
    let (awake, asleep) = (world.thread(), world.thread());
    asleep.sample(0);
    for _ in 0..3 {
        awake.sample(0);
        drainer
            .pass(&world.mapping, &mut memory, Keep::Nothing)
            .expect("stored");
        drainer.revoke_idle(&world.mapping);
    }
    drainer
        .pass(&world.mapping, &mut memory, Keep::Nothing)
        .expect("stored");
    assert_eq!(in_use(&world.mapping), 1);
    assert!(asleep.sample(0) && awake.sample(0));
    drainer
        .pass(&world.mapping, &mut memory, Keep::Nothing)
        .expect("stored");
    assert_eq!(memory.numbers(asleep.utid()), [0, 1]);
    assert_eq!(memory.numbers(awake.utid()), [0, 1, 2, 3]);
}
