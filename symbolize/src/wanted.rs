//! Which addresses want a name. Those in files are kept by file, so that they are as many as the code that
//! ran, not as the processes that ran it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use stackbeat_core::address::Svma;
use stackbeat_core::ids::Upid;
use stackbeat_proto::v1::NodeKind;

use super::module::Address;
use super::modules::{ModuleFile, Modules};

/// Addresses that names are looked up for: a program with more makes code all the time.
pub const MOST_ADDRESSES: usize = 2 << 20;

/// An address of the trace that wants a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// The process in which the address was seen.
    pub upid: Upid,
    /// The process' module epoch then.
    pub epoch: u32,
    /// Address in the process.
    pub address: u64,
    /// `Native` is a return address: its call, one byte before, is looked up. `LeafPc` is exact.
    pub kind: NodeKind,
}

impl Query {
    /// An address inside of the instruction that is meant.
    pub fn inside(&self) -> u64 {
        (self.address).saturating_sub(u64::from(self.kind != NodeKind::LeafPc))
    }
}

/// A set of addresses that takes little for each.
#[derive(Clone, Debug, Default)]
pub struct AddressSet {
    /// The address times two, plus 1 where it is exact: no code lies in the upper half. The first ones are in
    /// order.
    words: Vec<u64>,
    ordered: usize,
}

impl AddressSet {
    /// Takes an address in. Gives by how much this changes the length: what came twice may go.
    pub fn insert(&mut self, address: u64, kind: NodeKind) -> isize {
        const LEAST_BEHIND: usize = 32;
        let word = address << 1 | u64::from(kind == NodeKind::LeafPc);
        if self.contains(address, kind) {
            return 0;
        }
        let before = self.words.len();
        self.words.push(word);
        if self.words.len() - self.ordered >= LEAST_BEHIND.max(self.ordered) {
            self.put_in_order();
        }
        self.words.len() as isize - before as isize
    }

    /// Whether it is known to hold an address: of those that came last this cannot be told.
    pub fn contains(&self, address: u64, kind: NodeKind) -> bool {
        let word = address << 1 | u64::from(kind == NodeKind::LeafPc);
        self.words[..self.ordered].binary_search(&word).is_ok()
    }

    /// Sorts them, and takes out what is in it twice.
    pub fn put_in_order(&mut self) {
        if self.ordered == self.words.len() {
            return;
        }
        self.words.sort_unstable();
        self.words.dedup();
        self.ordered = self.words.len();
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many; each once if they were put in order before.
    pub fn len(&self) -> usize {
        self.words.len()
    }

    /// All of them, some twice unless they were put in order before.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (u64, NodeKind)> {
        let kind = |word| match word & 1 {
            0 => NodeKind::Native,
            _ => NodeKind::LeafPc,
        };
        (self.words.iter()).map(move |word| (word >> 1, kind(*word)))
    }
}

/// The addresses that want a name.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// [`Svma`]s.
    pub(super) by_file: BTreeMap<Arc<ModuleFile>, AddressSet>,
    /// What threads waited for in files' data.
    pub(super) variables: BTreeMap<Arc<ModuleFile>, BTreeSet<Svma>>,
    count: usize,
}

impl Wanted {
    /// Takes an address in, unless no file holds it. False: there are too many.
    pub fn add(&mut self, modules: &Modules, query: &Query) -> bool {
        let Some(module) = modules.at(query.upid, Some(query.epoch), query.inside()) else {
            return true;
        };
        let address = module.bias.in_file(query.address).0;
        if self.count >= MOST_ADDRESSES && self.put_in_order() >= MOST_ADDRESSES {
            let set = self.by_file.get(&module.file);
            return set.is_some_and(|set| set.contains(address, query.kind));
        }
        let set = self.by_file.entry(Arc::clone(&module.file)).or_default();
        self.count = self
            .count
            .wrapping_add_signed(set.insert(address, query.kind));
        true
    }

    /// Takes in what a thread of a process waited for. What no file holds has no name.
    pub fn add_variable(&mut self, modules: &Modules, upid: Upid, address: u64) {
        if let Some(module) = modules.at(upid, None, address) {
            let of_file = self.variables.entry(Arc::clone(&module.file)).or_default();
            of_file.insert(module.bias.in_file(address));
        }
    }

    /// The addresses in files.
    pub fn in_files(&self) -> impl Iterator<Item = (&ModuleFile, Svma, NodeKind)> {
        let in_files = self.by_file.iter();
        in_files.flat_map(|(file, set)| {
            set.iter()
                .map(move |(address, kind)| (&**file, Svma(address), kind))
        })
    }

    /// Puts all in order, for a search; gives how many they are.
    pub(super) fn put_in_order(&mut self) -> usize {
        for set in self.by_file.values_mut() {
            set.put_in_order();
        }
        self.count = self.by_file.values().map(AddressSet::len).sum();
        self.count
    }
}

impl From<&AddressSet> for Vec<Address> {
    fn from(set: &AddressSet) -> Vec<Address> {
        let address = |(svma, kind)| Address {
            svma: Svma(svma),
            is_return: kind != NodeKind::LeafPc,
        };
        set.iter().map(address).collect()
    }
}
