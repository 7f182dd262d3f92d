//! Namespaces of functions whose DWARF entries say only a bare name, as those of inlined generic functions
//! in Rust do: the entries that they stand in tell the rest.

use addr2line::gimli::{self, EndianSlice, RunTimeEndian, UnitOffset, UnitRef};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

type Reader<'a> = EndianSlice<'a, RunTimeEndian>;
/// By entry of a function: the path of what it stands in.
type UnitScopes = HashMap<UnitOffset, Rc<str>>;

/// The scopes of a module's units, each read when it is first asked for.
#[derive(Debug, Default)]
pub(crate) struct Scopes {
    units: RefCell<HashMap<Place, Rc<UnitScopes>>>,
}

/// Which unit: its place in its section, and the id that a split one has.
type Place = (Option<gimli::UnitSectionOffset>, Option<u64>);

impl Scopes {
    /// The path of the namespaces and types that the function at `offset` stands in; `None` when it stands
    /// in none, or has a linkage name.
    pub(crate) fn of(&self, unit: UnitRef<'_, Reader<'_>>, offset: UnitOffset) -> Option<Rc<str>> {
        let place = (
            Some(unit.header.offset()),
            unit.dwo_id.map(|dwo_id| dwo_id.0),
        );
        let mut units = self.units.borrow_mut();
        let scopes = units
            .entry(place)
            .or_insert_with(|| Rc::new(read(unit).unwrap_or_default()));
        scopes.get(&offset).cloned()
    }
}

fn read(unit: UnitRef<'_, Reader<'_>>) -> Result<UnitScopes, gimli::Error> {
    let mut found = UnitScopes::new();
    // Depth and path of the scopes around the current entry.
    let mut around: Vec<(isize, Rc<str>)> = Vec::new();
    let mut entries = unit.entries();
    while let Some(entry) = entries.next_dfs()? {
        let depth = entry.depth();
        while around.last().is_some_and(|(outer, _)| *outer >= depth) {
            around.pop();
        }
        let outer = around.last().map(|(_, path)| path);
        match entry.tag() {
            gimli::DW_TAG_namespace
            | gimli::DW_TAG_structure_type
            | gimli::DW_TAG_class_type
            | gimli::DW_TAG_union_type
            | gimli::DW_TAG_enumeration_type => {
                let name = match name_of(unit, entry) {
                    Some(name) => name,
                    None if entry.tag() == gimli::DW_TAG_namespace => {
                        "(anonymous namespace)".into()
                    }
                    // The only functions that a type without a name has in practice.
                    None => "{lambda}".into(),
                };
                around.push((depth, path_in(outer, &name)));
            }
            gimli::DW_TAG_subprogram => {
                let has_linkage_name = entry.attr_value(gimli::DW_AT_linkage_name).is_some();
                if let (Some(outer), false) = (outer, has_linkage_name) {
                    found.insert(entry.offset(), outer.clone());
                }
                // Types that are declared in it, as those of lambdas.
                if let Some(name) = name_of(unit, entry) {
                    around.push((depth, path_in(outer, &name)));
                }
            }
            _ => {}
        }
    }
    Ok(found)
}

fn name_of<'a>(
    unit: UnitRef<'_, Reader<'a>>,
    entry: &gimli::DebuggingInformationEntry<Reader<'a>>,
) -> Option<std::borrow::Cow<'a, str>> {
    let name = entry.attr_value(gimli::DW_AT_name)?;
    Some(unit.attr_string(name).ok()?.to_string_lossy())
}

fn path_in(outer: Option<&Rc<str>>, name: &str) -> Rc<str> {
    match outer {
        Some(outer) => format!("{outer}::{name}").into(),
        None => name.into(),
    }
}
