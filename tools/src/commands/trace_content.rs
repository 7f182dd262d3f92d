//! A trace that is complete but for names: which it wants, and how they are added.

use std::collections::{BTreeSet, HashMap};
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Seek, SeekFrom, Write};
use std::path::Path;

use stackbeat_core::ids::Upid;
use stackbeat_core::shm::callstack::process_of_root;
use stackbeat_core::shm::layout::node_kind;
use stackbeat_proto::nodes::{Node, nodes};
use stackbeat_proto::stream::{PacketReader, write_packet};
use stackbeat_proto::v1::{self, NodeKind, packet};
use stackbeat_symbolize::python::{Unqualified, program_began_at};
use stackbeat_symbolize::{Modules, Query};

/// What of a trace says which names are wanted.
#[derive(Default)]
pub(crate) struct Content {
    pub(crate) modules: Modules,
    pub(crate) queries: Vec<Query>,
    /// What threads of processes waited for.
    pub(crate) waited_for: BTreeSet<(Upid, u64)>,
    /// Methods that want qualified names.
    pub(crate) unqualified: Unqualified,
    /// Where the last packet begins, and itself.
    footer_at: u64,
    footer: Vec<u8>,
}

impl Content {
    /// Adds methods and names to the trace that this was read of.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub(crate) fn add<'a>(
        &self,
        trace: &Path,
        methods: impl IntoIterator<Item = v1::Methods>,
        names: impl IntoIterator<Item = &'a v1::Symbols>,
    ) -> io::Result<()> {
        let mut packets = Vec::new();
        for methods in methods {
            let body = packet::Body::Methods(methods);
            write_packet(&v1::Packet { body: Some(body) }, &mut packets);
        }
        for symbols in names {
            let body = packet::Body::Symbols(symbols.clone());
            write_packet(&v1::Packet { body: Some(body) }, &mut packets);
        }
        // The footer stays the last packet.
        packets.extend_from_slice(&self.footer);
        let mut file = OpenOptions::new().write(true).open(trace)?;
        file.seek(SeekFrom::Start(self.footer_at))?;
        file.write_all(&packets)
    }

    /// # Errors
    ///
    /// When it cannot be read, or has no end.
    pub(crate) fn read(trace: &Path) -> io::Result<Content> {
        let mut content = Content::default();
        let mut roots: HashMap<u32, u64> = HashMap::new();
        let mut processes: HashMap<u32, Upid> = HashMap::new();
        for item in PacketReader::new(BufReader::new(File::open(trace)?)) {
            let (offset, packet) = item.map_err(io::Error::other)?;
            match packet.body {
                Some(packet::Body::Header(header)) => {
                    content.unqualified.not_after = program_began_at(&header);
                }
                Some(packet::Body::Methods(packet)) => {
                    for method in &packet.methods {
                        content.unqualified.take_of(method, &packet.strings);
                    }
                }
                Some(packet::Body::Module(module)) => {
                    content.modules.insert(&module);
                }
                Some(packet::Body::Thread(thread)) => {
                    processes.insert(thread.utid, Upid(thread.upid));
                }
                Some(packet::Body::LongWait(wait)) => {
                    let process = processes.get(&wait.utid);
                    content
                        .waited_for
                        .extend(process.map(|upid| (*upid, wait.object)));
                }
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
            true => Err(io::Error::other("the trace has no end")),
            false => Ok(content),
        }
    }
}

/// The name that a node wants, if any.
fn wanted(node: Node, root: u64) -> Option<Query> {
    let (upid, epoch) = process_of_root(root);
    let kind = match node.kind {
        node_kind::NATIVE => NodeKind::Native,
        node_kind::LEAF_PC | node_kind::AWAITING => NodeKind::LeafPc,
        _ => return None,
    };
    Some(Query {
        upid,
        epoch,
        address: node.address,
        kind,
    })
}
