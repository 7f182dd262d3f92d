//! Names for dumps that were written without: each address is looked up once, however many dumps it is in. The session's
//! recorder has nothing to do for it.

use std::collections::{HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Seek, SeekFrom, Write};
use std::path::Path;

use stackbeat_core::ids::{Pid, Upid};
use stackbeat_core::shm::callstack::process_of_root;
use stackbeat_core::shm::layout::node_kind;
use stackbeat_proto::nodes::{Node, nodes};
use stackbeat_proto::stream::{PacketReader, write_packet};
use stackbeat_proto::v1::{self, NodeKind, packet};
use stackbeat_symbolize::{Modules, Options, Query, Symbolizer, Wanted};

use crate::user_folders::symbol_cache;

/// Names are forgotten, and looked up again, when there are more: a program that makes code all the time has no end of them.
const MOST_ADDRESSES: usize = 1 << 18;

/// What is known so far.
#[derive(Debug, Default)]
pub(super) struct LiveNames {
    /// Process, module epoch and address, of code in files: these names stay what they are.
    known: HashSet<(Upid, u32, u64, NodeKind)>,
    names: Vec<v1::Symbols>,
}

impl LiveNames {
    /// Adds the names to a dump.
    ///
    /// # Errors
    ///
    /// When it cannot be read or written.
    pub(super) fn add_to(&mut self, dump: &Path) -> io::Result<()> {
        if self.known.len() > MOST_ADDRESSES {
            *self = LiveNames::default();
        }
        let content = Content::read(dump)?;
        let mut symbolizer = Symbolizer::new(Options {
            cache: symbol_cache(false),
            ..Options::default()
        });
        for process in &content.processes {
            symbolizer.add_process(Upid(process.upid), Pid(process.pid));
        }
        for map in &content.jit_maps {
            symbolizer.add_jit_map(map);
        }
        let (mut lasting, mut passing) = (Wanted::default(), Wanted::default());
        for query in &content.queries {
            let Query { upid, epoch, .. } = *query;
            let module = (content.modules).at(upid, Some(epoch), query.inside());
            let mut is_new = || (self.known).insert((upid, epoch, query.address, query.kind));
            match module {
                None => passing.add(&content.modules, query),
                Some(_) => is_new() && lasting.add(&content.modules, query),
            };
        }
        let mut names = Vec::new();
        symbolizer.symbolize(lasting, &mut |_| true, &mut |found| self.names.push(found));
        symbolizer.symbolize(passing, &mut |_| true, &mut |found| names.push(found));
        content.add(dump, self.names.iter().chain(&names))
    }
}

/// What of a dump says which names are wanted.
#[derive(Default)]
pub(crate) struct Content {
    processes: Vec<v1::Process>,
    jit_maps: Vec<v1::JitMap>,
    pub(crate) modules: Modules,
    pub(crate) queries: Vec<Query>,
    /// Where the last packet begins, and itself.
    footer_at: u64,
    footer: Vec<u8>,
}

impl Content {
    /// Adds names to the dump that this was read of.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub(crate) fn add<'a>(
        &self,
        dump: &Path,
        names: impl IntoIterator<Item = &'a v1::Symbols>,
    ) -> io::Result<()> {
        let mut packets = Vec::new();
        for symbols in names {
            let body = packet::Body::Symbols(symbols.clone());
            write_packet(&v1::Packet { body: Some(body) }, &mut packets);
        }
        // The footer stays the last packet.
        packets.extend_from_slice(&self.footer);
        let mut file = OpenOptions::new().write(true).open(dump)?;
        file.seek(SeekFrom::Start(self.footer_at))?;
        file.write_all(&packets)
    }

    /// # Errors
    ///
    /// When it cannot be read, or has no end.
    pub(crate) fn read(dump: &Path) -> io::Result<Content> {
        let mut content = Content::default();
        let mut roots: HashMap<u32, u64> = HashMap::new();
        for item in PacketReader::new(BufReader::new(File::open(dump)?)) {
            let (offset, packet) = item.map_err(io::Error::other)?;
            match packet.body {
                Some(packet::Body::Process(process)) => content.processes.push(process),
                Some(packet::Body::Module(module)) => {
                    content.modules.insert(&module);
                }
                Some(packet::Body::JitMap(map)) => content.jit_maps.push(map),
                Some(packet::Body::Nodes(columns)) => {
                    for node in nodes(&columns).into_iter().flatten() {
                        // A parent stands before its children.
                        let root = match node.parent {
                            0 => node.address,
                            parent => roots.get(&parent).copied().unwrap_or_default(),
                        };
                        roots.insert(node.id, root);
                        content.queries.extend(wanted(node, root));
                    }
                }
                Some(packet::Body::Footer(footer)) => {
                    content.footer_at = offset;
                    let body = packet::Body::Footer(footer);
                    write_packet(&v1::Packet { body: Some(body) }, &mut content.footer);
                }
                _ => {}
            }
        }
        match content.footer.is_empty() {
            true => Err(io::Error::other("the dump has no end")),
            false => Ok(content),
        }
    }
}

/// The name that a node wants, if any.
fn wanted(node: Node, root: u64) -> Option<Query> {
    let (upid, epoch) = process_of_root(root);
    let kind = match node.kind {
        node_kind::NATIVE => NodeKind::Native,
        node_kind::LEAF_PC => NodeKind::LeafPc,
        _ => return None,
    };
    Some(Query {
        upid,
        epoch,
        address: node.address,
        kind,
    })
}
