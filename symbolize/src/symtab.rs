//! Function symbols of one module, by address. Names are read only for the symbols that are hit.

use super::demangle::is_mangled;
use super::object_file::ObjectFile;
use object::{
    BinaryFormat, Object, ObjectSection, ObjectSymbol, ObjectSymbolTable, SectionFlags,
    SymbolIndex, SymbolKind,
};
use stackbeat_core::address::Svma;

/// How many symbols before an address are searched for one that spans it: symbols nest rarely, and
/// then not deeply.
const NESTING: usize = 16;

/// The symbol tables of a module's file, its debug file and its mini debug info, merged.
#[derive(Debug, Default)]
pub(crate) struct SymbolTable<'a> {
    tables: Vec<(&'a ObjectFile<'a>, bool)>,
    entries: Vec<Entry>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    start: Svma,
    end: Svma,
    /// Which table, and the index therein.
    table: u32,
    index: u32,
    /// Smaller is better: functions before labels; global, weak, local.
    rank: u8,
}

/// A symbol that contains an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found<'a> {
    pub start: Svma,
    pub name: &'a str,
}

impl<'a> SymbolTable<'a> {
    /// Adds the function symbols of a file. Call `finish` when all have been added.
    pub(crate) fn add(&mut self, file: &'a ObjectFile<'a>) {
        for dynamic in [false, true] {
            let table = self.tables.len() as u32;
            self.tables.push((file, dynamic));
            let symbols: Box<dyn Iterator<Item = _>> = if dynamic {
                Box::new(file.dynamic_symbols())
            } else {
                Box::new(file.symbols())
            };
            for symbol in symbols {
                if let Some(rank) = rank(file, &symbol) {
                    self.entries.push(Entry {
                        start: Svma(symbol.address()),
                        end: Svma(symbol.address()).saturating_add(symbol.size()),
                        table,
                        index: symbol.index().0 as u32,
                        rank,
                    });
                }
            }
        }
    }

    /// Sorts, and gives symbols without a size (assembly) the room up to the next symbol. Afterwards these
    /// addresses (ascending) can be searched, and no others.
    pub(crate) fn finish(&mut self, addresses: &[Svma], text_end: impl Fn(Svma) -> Option<Svma>) {
        // To sort a large table takes longer than everything else; most of it is far from all addresses.
        if addresses.len() < self.entries.len() / (2 * NESTING) {
            self.keep_near(addresses);
        }
        self.entries.sort_by_key(|e| (e.start, e.rank));
        let mut next_start = Svma(u64::MAX);
        for i in (0..self.entries.len()).rev() {
            let start = self.entries[i].start;
            if self.entries[i].end == start {
                self.entries[i].end = next_start.min(text_end(start).unwrap_or(start));
            }
            if i > 0 && self.entries[i - 1].start != start {
                next_start = start;
            }
        }
    }

    /// Drops what a search of these addresses does not meet. Between two addresses it meets the last
    /// [`NESTING`] symbols and those that begin where one of them does; the first one ends a symbol without a
    /// size that stands before them.
    fn keep_near(&mut self, addresses: &[Svma]) {
        let gap = |entry: &Entry| addresses.partition_point(|address| *address < entry.start);
        let gaps: Vec<u32> = self.entries.iter().map(|e| gap(e) as u32).collect();
        let mut starts = vec![Vec::new(); addresses.len() + 1];
        for (gap, entry) in gaps.iter().zip(&self.entries) {
            starts[*gap as usize].push(entry.start);
        }
        let bounds = |mut starts: Vec<Svma>| {
            let first = starts.iter().copied().min().unwrap_or_default();
            let last = match starts.len().checked_sub(NESTING) {
                Some(at) if at > 0 => *starts.select_nth_unstable(at).1,
                _ => first,
            };
            (first, last)
        };
        let bounds: Vec<(Svma, Svma)> = starts.into_iter().map(bounds).collect();
        let mut gaps = gaps.into_iter();
        self.entries.retain(|entry| {
            let gap = gaps.next().unwrap_or(0);
            let (first, last) = bounds[gap as usize];
            entry.start == first || entry.start >= last
        });
    }

    /// The function that contains an address. Of several names for one address the public one wins.
    pub(crate) fn find(&self, svma: Svma) -> Option<Found<'a>> {
        let after = self.entries.partition_point(|e| e.start <= svma);
        let candidates = &self.entries[after.saturating_sub(NESTING)..after];
        let best = candidates
            .iter()
            .filter(|e| svma < e.end)
            .min_by_key(|e| (e.rank >= LABEL, std::cmp::Reverse(e.start)))?;
        self.aliases(best.start)
            .filter(|(entry, _)| svma < entry.end)
            .min_by_key(|(entry, name)| (entry.rank >= LABEL, quality(entry, name)))
            .map(|(entry, name)| Found {
                start: entry.start,
                name,
            })
    }

    /// Whether some symbol at `start` has this name.
    pub(crate) fn has_alias(&self, start: Svma, name: &str) -> bool {
        self.aliases(start).any(|(_, alias)| alias == name)
    }

    fn aliases(&self, start: Svma) -> impl Iterator<Item = (Entry, &'a str)> + '_ {
        let first = self.entries.partition_point(|e| e.start < start);
        self.entries[first..]
            .iter()
            .take_while(move |e| e.start == start)
            .filter_map(|e| Some((*e, self.name(e)?)))
    }

    fn name(&self, entry: &Entry) -> Option<&'a str> {
        let (file, dynamic) = self.tables[entry.table as usize];
        let table = if dynamic {
            file.dynamic_symbol_table()
        } else {
            file.symbol_table()
        }?;
        let symbol = table
            .symbol_by_index(SymbolIndex(entry.index as usize))
            .ok()?;
        let name = symbol.name().ok()?;
        // Mach-O puts an underscore in front of C's names.
        let name = match file.format() {
            BinaryFormat::MachO => name.strip_prefix('_').unwrap_or(name),
            _ => name,
        };
        Some(name).filter(|name| !name.is_empty())
    }
}

/// First rank of symbols that are labels, not functions.
const LABEL: u8 = 4;

fn rank<'a>(
    file: &ObjectFile<'a>,
    symbol: &object::Symbol<'a, '_, &'a object::ReadCache<super::object_file::Source>>,
) -> Option<u8> {
    if !symbol.is_definition() && symbol.kind() != SymbolKind::Unknown || symbol.address() == 0 {
        return None;
    }
    let base = match symbol.kind() {
        SymbolKind::Text => 0,
        SymbolKind::Unknown | SymbolKind::Label => LABEL,
        _ => return None,
    };
    if base == LABEL {
        let section = file.section_by_index(symbol.section_index()?).ok()?;
        let SectionFlags::Elf { sh_flags } = section.flags() else {
            return None;
        };
        // Mapping symbols of arm64: $x, $d.
        if sh_flags & u64::from(object::elf::SHF_EXECINSTR) == 0
            || symbol.name().is_ok_and(|n| n.starts_with('$'))
        {
            return None;
        }
    }
    Some(
        base + if symbol.is_weak() {
            1
        } else if symbol.is_global() {
            0
        } else {
            2
        },
    )
}

/// Order among names of one address: fewer leading underscores (`read` before `__libc_read`), mangled
/// names first (they say more), then global before local, then the shorter.
fn quality<'n>(entry: &Entry, name: &'n str) -> (usize, u8, usize, &'n str) {
    let underscores = if is_mangled(name) {
        0
    } else {
        name.bytes().take_while(|&b| b == b'_').count()
    };
    (underscores, entry.rank, name.len(), name)
}
