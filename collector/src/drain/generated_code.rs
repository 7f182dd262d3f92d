//! Names of generated code, by the maps that runtimes write ([`PerfMap`]). Each pass looks up what is new,
//! because a map may be gone when its process is: addresses that lie in no file, and lines.
//!
//! A node is made before or while its code holds, and lines are read before the pass looks for nodes. So
//! addresses are looked up by what held at the pass before, and then lines change their names, each from its
//! time on.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use stackbeat_core::ids::Upid;
use stackbeat_core::shm::layout::METHODS;
use stackbeat_core::unwind::rule::Rule;
use stackbeat_proto::v1::methods::Runtime;
use stackbeat_proto::v1::symbols::AddressSymbol;
use stackbeat_proto::v1::{self, NodeKind, packet};
use stackbeat_symbolize::perf_map::file::{self, Tail};
use stackbeat_symbolize::perf_map::{Change, Method, PerfMap};
use stackbeat_symbolize::{Query, SourceMaps};

use super::Drainer;
use super::methods::Batch;
use crate::host::code_source::{Code, CodeSource, Frames};

/// What the functions of all maps may take, bytes, about.
const MOST_BYTES: usize = 256 << 20;
/// So much of a map is taken over at once, bytes: who waits for the maps, or for a tick, does not wait long.
pub(crate) const PIECE: usize = 256 << 10;
/// Addresses in one packet.
const ADDRESSES_PER_PACKET: usize = 8192;
/// The first number of a method that the table of methods cannot give.
const FIRST_NUMBER: u32 = METHODS;

/// An address that has a name: process, module epoch, address, kind.
pub(crate) type Named = (Upid, u32, u64, NodeKind);

/// What was appended to a map.
#[derive(Debug)]
pub(crate) struct MapLines {
    pub upid: Upid,
    /// From when on it holds, ns.
    pub from_ns: u64,
    /// The map was begun anew with it.
    pub begins_anew: bool,
    pub bytes: Vec<u8>,
}

/// A process with a map.
#[derive(Debug, Default)]
pub(crate) struct OfProcess {
    map: PerfMap,
    /// Whose its code is, as far as is known.
    runtime: Option<Runtime>,
}

/// The maps of a session's processes. The drain keeps them, and walks from outside ask them.
#[derive(Clone, Debug, Default)]
pub(crate) struct PerfMaps(Arc<Mutex<HashMap<Upid, OfProcess>>>);

impl PerfMaps {
    fn lock(&self) -> MutexGuard<'_, HashMap<Upid, OfProcess>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// That of a process, if it has one.
    pub(crate) fn of(&self, upid: Upid) -> CodeOfMap {
        CodeOfMap {
            maps: self.clone(),
            upid,
        }
    }
}

/// The code that a process' map tells of.
#[derive(Debug)]
pub(crate) struct CodeOfMap {
    maps: PerfMaps,
    upid: Upid,
}

impl CodeSource for CodeOfMap {
    fn look(&self, address: u64, exact: bool) -> Option<Code> {
        let maps = self.maps.lock();
        let process = maps.get(&self.upid)?;
        process.map.function_at(address)?;
        // Where compiled code of V8 and .NET calls, it has a frame pointer; a JVM's and PHP's has none.
        let has_frame = !exact && matches!(process.runtime, Some(Runtime::V8 | Runtime::Dotnet));
        Some(Code {
            rule: has_frame.then_some(Rule::FRAME_POINTER),
            frames: Frames::NamedByTheDrain,
        })
    }
}

/// What is known of generated code.
#[derive(Debug)]
pub(crate) struct GeneratedCode {
    pub maps: PerfMaps,
    /// Processes whose maps were found.
    met: HashSet<Upid>,
    /// What was read and not taken over.
    read: Vec<MapLines>,
    /// Numbers of the methods that nodes are in.
    numbers: HashMap<Method, u32>,
    next_number: u32,
    /// Names that are in the trace already (`recover`).
    named: HashSet<Named>,
    room: usize,
    /// Lines and names that were left out because there are too many.
    pub left_out: u64,
    /// Older maps belong to earlier processes.
    pub not_before: Option<SystemTime>,
}

impl Default for GeneratedCode {
    fn default() -> GeneratedCode {
        GeneratedCode {
            maps: PerfMaps::default(),
            met: HashSet::new(),
            read: Vec::new(),
            numbers: HashMap::new(),
            next_number: FIRST_NUMBER,
            named: HashSet::new(),
            room: MOST_BYTES,
            left_out: 0,
            not_before: None,
        }
    }
}

impl GeneratedCode {
    /// Takes over what a partial trace holds.
    pub(crate) fn seed(
        &mut self,
        methods: impl IntoIterator<Item = (Method, u32)>,
        named: HashSet<Named>,
    ) {
        for (method, number) in methods {
            self.next_number = self.next_number.max(number.saturating_add(1));
            self.numbers.insert(method, number);
        }
        self.named = named;
    }

    /// The next pass takes this over.
    pub(crate) fn take(&mut self, lines: MapLines) {
        self.read.push(lines);
    }

    /// Whether a map of this process was found.
    pub(crate) fn has_met(&self, upid: Upid) -> bool {
        self.met.contains(&upid)
    }

    /// The process is over, and all its addresses are named.
    fn forget(&mut self, upid: Upid) {
        let process = self.maps.lock().remove(&upid);
        if let Some(process) = process {
            self.room += process.map.bytes();
        }
    }

    /// The methods of all generated code, and their numbers.
    pub(crate) fn methods(&self) -> impl Iterator<Item = (&Method, u32)> {
        self.numbers
            .iter()
            .map(|(method, number)| (method, *number))
    }

    /// Puts changes of a process' names into packets.
    fn write(&mut self, upid: Upid, changes: Vec<Change>, packets: &mut Packets) {
        let maps = self.maps.clone();
        let mut maps = maps.lock();
        let mut none = None;
        let runtime = (maps.get_mut(&upid)).map_or(&mut none, |process| &mut process.runtime);
        for change in changes {
            let mut method = change.text.as_deref().map(Method::from_text);
            if let Some(method) = &mut method {
                *runtime = method.runtime.or(*runtime);
                // What is a runtime's own is written in no form that tells.
                method.runtime = *runtime;
            }
            let number = method.map_or(0, |method| match self.numbers.get(&method) {
                Some(number) => *number,
                None => {
                    let number = self.next_number;
                    self.next_number = number.saturating_add(1);
                    packets.describe(&method, number);
                    self.numbers.insert(method, number);
                    number
                }
            });
            packets.addresses.push(AddressSymbol {
                upid: upid.0,
                epoch: change.epoch,
                address: change.address,
                kind: change.kind.into(),
                from_ns: change.from_ns,
                method: number,
                ..AddressSymbol::default()
            });
        }
    }
}

/// The methods of generated code that a packet describes, and their numbers.
pub(crate) fn methods_of_code(packet: &v1::Methods) -> impl Iterator<Item = (Method, u32)> {
    let string = |index: u32| packet.strings.get(index as usize).cloned();
    let of_code = packet.methods.iter().filter(|m| m.number >= FIRST_NUMBER);
    of_code.map(move |method| {
        let described = Method {
            runtime: Some(method.runtime()).filter(|runtime| *runtime != Runtime::Other),
            name: string(method.name).unwrap_or_default(),
            file: string(method.file).unwrap_or_default(),
            line: method.first_line,
            column: method.first_column,
        };
        (described, method.number)
    })
}

/// Describes by these the methods whose places in sources `maps` knows.
pub(crate) fn in_sources<'a>(
    methods: impl IntoIterator<Item = (&'a Method, u32)>,
    maps: &dyn SourceMaps,
) -> Vec<v1::Methods> {
    let mut packets = Packets::default();
    for (method, number) in methods {
        if let Some(method) = method.in_source(maps) {
            packets.describe(&method, number);
        }
    }
    packets.finish_methods()
}

/// Packets in the making.
#[derive(Debug, Default)]
struct Packets {
    batch: Batch,
    full: Vec<v1::Methods>,
    addresses: Vec<AddressSymbol>,
}

impl Packets {
    fn describe(&mut self, method: &Method, number: u32) {
        let described = v1::methods::Method {
            number,
            name: 0,
            file: 1,
            first_line: method.line,
            first_column: method.column,
            runtime: method.runtime.unwrap_or(Runtime::Other).into(),
            ..Default::default()
        };
        self.batch.add(&described, &[&method.name, &method.file]);
        self.full.extend(self.batch.take_full());
    }

    fn finish_methods(mut self) -> Vec<v1::Methods> {
        self.full.extend(self.batch.take_rest());
        self.full
    }

    /// Methods first: a file that is cut off has no name without its method.
    fn finish(mut self) -> Vec<packet::Body> {
        let addresses = std::mem::take(&mut self.addresses);
        let symbols = addresses.chunks(ADDRESSES_PER_PACKET).map(|addresses| {
            packet::Body::Symbols(v1::Symbols {
                addresses: addresses.to_vec(),
                ..v1::Symbols::default()
            })
        });
        let methods = self.finish_methods().into_iter();
        methods.map(packet::Body::Methods).chain(symbols).collect()
    }
}

/// Whose code a process makes, by the files that it has loaded.
fn runtime_of<'a>(paths: impl Iterator<Item = &'a str> + Clone) -> Option<Runtime> {
    const FILES: [(&str, Runtime); 8] = [
        ("libjvm", Runtime::Jvm),
        ("node", Runtime::V8),
        ("libnode", Runtime::V8),
        ("libcoreclr", Runtime::Dotnet),
        ("php", Runtime::Php),
        ("ruby", Runtime::Ruby),
        ("python", Runtime::Cpython),
        ("libpython", Runtime::Cpython),
    ];
    let is_of = |path: &str, name: &str| {
        let file = path.rsplit('/').next().unwrap_or(path);
        // `php8.2`, `libjvm.so`.
        (file.strip_prefix(name)).is_some_and(|rest| !rest.starts_with(char::is_alphabetic))
    };
    let mut known = FILES.iter();
    known
        .find(|(name, _)| paths.clone().any(|path| is_of(path, name)))
        .map(|(_, runtime)| *runtime)
}

impl Drainer {
    /// Queues the names of what is new. Follow with [`Drainer::flush_queue`].
    pub(crate) fn name_generated_code(&mut self) {
        let mut packets = Packets::default();
        let mut of_processes: HashMap<Upid, Vec<Change>> = HashMap::new();
        for query in self.nodes.take_fresh() {
            if self.generated.has_met(query.upid) {
                let changes = of_processes.entry(query.upid).or_default();
                self.add_generated(&query, changes);
            }
        }
        for (upid, changes) in of_processes {
            self.generated.write(upid, changes, &mut packets);
        }
        for lines in std::mem::take(&mut self.generated.read) {
            let mut changes = Vec::new();
            self.meet_map(lines.upid, &mut changes);
            let generated = &mut self.generated;
            if let Some(process) = generated.maps.lock().get_mut(&lines.upid) {
                let map = &mut process.map;
                if lines.begins_anew {
                    map.begin_anew(&mut generated.room);
                }
                map.append(
                    &lines.bytes,
                    lines.from_ns,
                    &mut generated.room,
                    &mut changes,
                );
                generated.left_out += std::mem::take(&mut map.left_out);
            }
            generated.write(lines.upid, changes, &mut packets);
        }
        for body in packets.finish() {
            self.lifecycle.say(body);
        }
    }

    /// A process has a map: its addresses so far want names.
    fn meet_map(&mut self, upid: Upid, changes: &mut Vec<Change>) {
        if self.generated.maps.lock().contains_key(&upid) {
            return;
        }
        let process = OfProcess {
            map: PerfMap::default(),
            runtime: runtime_of(self.lifecycle.modules().paths_of(upid)),
        };
        self.generated.maps.lock().insert(upid, process);
        self.generated.met.insert(upid);
        let so_far: Vec<Query> = self.nodes.wanted_of(upid).collect();
        for query in so_far {
            self.add_generated(&query, changes);
        }
    }

    /// Takes an address in that lies in no file.
    fn add_generated(&mut self, query: &Query, changes: &mut Vec<Change>) {
        if !self.wants_name(query) {
            return;
        }
        if let Some(process) = self.generated.maps.lock().get_mut(&query.upid) {
            (process.map).add(query.epoch, query.address, query.kind, changes);
        }
    }

    /// Whether an address lies in no file, and has no name in a partial trace.
    fn wants_name(&self, query: &Query) -> bool {
        let modules = self.lifecycle.modules();
        let module = modules.at(query.upid, Some(query.epoch), query.inside());
        let named = (query.upid, query.epoch, query.address, query.kind);
        module.is_none() && !self.generated.named.contains(&named)
    }

    /// Names generated code of a process, or of all, whose map nobody has found while it ran: it came with
    /// its end, or there is nothing but a mapping that was left. Follow with [`Drainer::flush_queue`].
    pub(crate) fn name_by_maps_left(&mut self, upid: Option<Upid>) {
        self.name_generated_code();
        let upids = match upid {
            Some(upid) => vec![upid],
            None => self.nodes.processes().into_iter().collect(),
        };
        for upid in upids {
            let pid = self.lifecycle.pid(upid);
            let Some(pid) = pid.filter(|_| !self.generated.has_met(upid)) else {
                continue;
            };
            // Few processes have one: addresses are looked at afterwards.
            let tail = Tail::open(&file::path_of(pid), self.generated.not_before);
            if let Some(mut tail) = tail
                && (self.nodes.wanted_of(upid)).any(|query| self.wants_name(&query))
            {
                let mut bytes = tail.read_all();
                // The last line may have no end.
                bytes.push(b'\n');
                for bytes in bytes.chunks(PIECE) {
                    self.generated.take(MapLines {
                        upid,
                        from_ns: 0,
                        begins_anew: false,
                        bytes: bytes.to_vec(),
                    });
                }
                self.name_generated_code();
            }
        }
    }

    /// A process is over for long: nothing names its code any more.
    pub(super) fn forget_generated(&mut self, upid: Upid) {
        self.name_by_maps_left(Some(upid));
        self.generated.forget(upid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_from_outside_learns_whose_code_keeps_frame_pointers() {
        let maps = PerfMaps::default();
        let (v8, jvm, none) = (Upid(1), Upid(2), Upid(3));
        for (upid, runtime) in [(v8, Runtime::V8), (jvm, Runtime::Jvm)] {
            let mut process = OfProcess {
                runtime: Some(runtime),
                ..OfProcess::default()
            };
            let (mut room, mut changes) = (1 << 20, Vec::new());
            process
                .map
                .append(b"1000 10 f\n", 0, &mut room, &mut changes);
            maps.lock().insert(upid, process);
        }
        let look = |upid, address| maps.of(upid).look(address, false);
        let code = |rule| {
            Some(Code {
                rule,
                frames: Frames::NamedByTheDrain,
            })
        };
        assert_eq!(look(v8, 0x1000), code(Some(Rule::FRAME_POINTER)));
        assert_eq!(look(jvm, 0x100f), code(None));
        assert_eq!(maps.of(v8).look(0x1000, true), code(None));
        assert_eq!((look(v8, 0x1010), look(v8, 0xfff)), (None, None));
        assert_eq!(look(none, 0x1000), None);
    }

    #[test]
    fn a_file_tells_the_runtime() {
        let of = |paths: &[&str]| runtime_of(paths.iter().copied());
        assert_eq!(of(&["/usr/bin/node", "/lib/libc.so.6"]), Some(Runtime::V8));
        assert_eq!(of(&["/usr/bin/php8.2"]), Some(Runtime::Php));
        let java = ["/jdk/bin/java", "/jdk/lib/server/libjvm.so"];
        assert_eq!(of(&java), Some(Runtime::Jvm));
        assert_eq!(of(&["/srv/nodelet", "/lib/libphpx.so"]), None);
        assert_eq!(of(&[]), None);
    }
}
