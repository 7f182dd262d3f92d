//! Variables of a file, by addresses in them: a lock that is one of them has its name.

use std::collections::{BTreeMap, BTreeSet};

use object::{Object, ObjectSymbol, SymbolKind};
use stackbeat_core::address::Svma;

use super::demangle::demangle;
use super::object_file::ObjectFile;

/// A variable that holds an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedVariable {
    pub svma: Svma,
    /// Demangled.
    pub name: String,
    /// Where the address lies in it.
    pub offset: u64,
}

/// Of several names of an address the one that is least by this is given: of the smallest variable, public,
/// short.
type Rank<'a> = (u64, bool, usize, &'a str);

/// The variables in these files' symbol tables that hold one of the addresses.
pub(crate) fn named<'a>(
    files: impl Iterator<Item = &'a ObjectFile<'a>>,
    wanted: &BTreeSet<Svma>,
) -> Vec<NamedVariable> {
    let mut found: BTreeMap<Svma, (Rank<'_>, u64)> = BTreeMap::new();
    for symbol in files.flat_map(|file| file.symbols().chain(file.dynamic_symbols())) {
        let start = Svma(symbol.address());
        let inside = start..start.saturating_add(symbol.size());
        if symbol.kind() != SymbolKind::Data || !symbol.is_definition() || inside.is_empty() {
            continue;
        }
        for svma in wanted.range(inside) {
            let Some(name) = symbol.name().ok().filter(|name| !name.is_empty()) else {
                continue;
            };
            let rank = (symbol.size(), !symbol.is_global(), name.len(), name);
            let offset = svma.0 - start.0;
            let known = found.entry(*svma).or_insert((rank, offset));
            *known = (*known).min((rank, offset));
        }
    }
    let named = found.into_iter().map(|(svma, ((.., name), offset))| {
        let name = demangle(name);
        NamedVariable { svma, name, offset }
    });
    named.collect()
}
