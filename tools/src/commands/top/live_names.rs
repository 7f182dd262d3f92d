//! Names for dumps that were written without those of files: each address and each method is looked up once,
//! however many dumps it is in. The session's recorder has nothing to do for it.

use std::collections::HashSet;
use std::io;
use std::path::Path;

use stackbeat_core::ids::Upid;
use stackbeat_proto::v1::{self, NodeKind};
use stackbeat_symbolize::python::Unqualified;
use stackbeat_symbolize::{NameSources, Options, Query, Symbolizer, Wanted};

use crate::commands::trace_content::Content;
use crate::user_folders::symbol_cache;

/// Names are forgotten, and looked up again, when there are more: a program that makes code all the time has
/// no end of them.
const MOST_ADDRESSES: usize = 1 << 18;

/// What is known so far.
#[derive(Debug, Default)]
pub(super) struct LiveNames {
    /// Process, module epoch and address: in files, names stay what they are.
    known: HashSet<(Upid, u32, u64, NodeKind)>,
    names: Vec<v1::Symbols>,
    /// Numbers of the methods that sources were read for, and what these say.
    looked_for: HashSet<u32>,
    methods: Vec<v1::Methods>,
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
        let mut content = Content::read(dump)?;
        let looked_for = &mut self.looked_for;
        (content.unqualified).keep(|number| looked_for.insert(number));
        self.methods.extend(qualified(&content.unqualified));
        let symbolizer = Symbolizer::new(Options {
            sources: NameSources {
                cache: symbol_cache(false),
                ..NameSources::default()
            },
            ..Options::default()
        });
        let mut wanted = Wanted::default();
        for query in &content.queries {
            let Query { upid, epoch, .. } = *query;
            let module = content.modules.at(upid, Some(epoch), query.inside());
            // What is in none so far may be in one that is found later.
            if module.is_some() && (self.known).insert((upid, epoch, query.address, query.kind)) {
                wanted.add(&content.modules, query);
            }
        }
        symbolizer.symbolize(wanted, &mut |_| true, &mut |found| self.names.push(found));
        content.add(dump, self.methods.iter().cloned(), &self.names)
    }
}

/// Methods that have qualified names now. Reads their sources.
fn qualified(unqualified: &Unqualified) -> impl Iterator<Item = v1::Methods> {
    let all = unqualified.qualify().into_iter();
    all.map(|(mut method, [name, file])| {
        (method.name, method.file) = (1, 2);
        v1::Methods {
            strings: vec![String::new(), name, file],
            methods: vec![method],
        }
    })
}
