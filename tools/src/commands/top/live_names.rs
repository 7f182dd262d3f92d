//! Names for dumps that were written without: each address is looked up once, however many dumps it is in.
//! The session's recorder has nothing to do for it.

use std::collections::HashSet;
use std::io;
use std::path::Path;

use stackbeat_core::ids::{Pid, Upid};
use stackbeat_proto::v1::{self, NodeKind};
use stackbeat_symbolize::{NameSources, Options, Query, Symbolizer, Wanted};

use crate::commands::trace_content::Content;
use crate::user_folders::symbol_cache;

/// Names are forgotten, and looked up again, when there are more: a program that makes code all the time has
/// no end of them.
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
            sources: NameSources {
                cache: symbol_cache(false),
                ..NameSources::default()
            },
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
