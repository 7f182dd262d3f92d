//! What an image's fixups are, as another library reads them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use crate::linkers::{programs, run, tools};

/// A bind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Bind {
    pub(crate) address: u64,
    pub(crate) name: String,
    pub(crate) addend: i64,
    pub(crate) library: i32,
    pub(crate) is_lazy: bool,
}

/// All fixups and exports of an image.
#[derive(Clone, Debug, Default)]
pub(crate) struct Truth {
    pub(crate) binds: BTreeSet<Bind>,
    /// Targets by address, before the slide is added.
    pub(crate) rebases: BTreeMap<u64, u64>,
    pub(crate) symbols: BTreeMap<String, u64>,
    /// In hexadecimal digits; empty: none.
    pub(crate) uuid: String,
}

/// Those of one image.
pub(crate) fn truth(image: &Path) -> Truth {
    truths(&[image]).remove(0)
}

/// Those of several: the library takes longer to begin than to read.
pub(crate) fn truths(images: &[impl AsRef<Path>]) -> Vec<Truth> {
    let script = programs().join("fixups.py");
    let images_as_paths = images.iter().map(AsRef::as_ref);
    let said = run(Command::new("python3")
        .arg(script)
        .arg(tools())
        .args(images_as_paths));
    let mut truths = Vec::new();
    for line in said.lines() {
        let words: Vec<_> = line.split(' ').collect();
        if words[0] == "image" {
            truths.push(Truth::default());
            continue;
        }
        let truth = truths.last_mut().expect("an image first");
        match words[..] {
            ["bind", address, name, addend, library, kind] => {
                truth.binds.insert(Bind {
                    address: number(address),
                    name: name.to_owned(),
                    addend: addend.parse().expect("a number"),
                    library: library.parse().expect("a number"),
                    is_lazy: kind == "lazy",
                });
            }
            ["rebase", address, target] => {
                truth.rebases.insert(number(address), number(target));
            }
            ["symbol", name, address] => {
                truth.symbols.insert(name.to_owned(), number(address));
            }
            ["uuid", uuid] => uuid.clone_into(&mut truth.uuid),
            _ => panic!("{line}"),
        }
    }
    assert_eq!(truths.len(), images.len());
    let is_whole = |truth: &Truth| !truth.binds.is_empty() && !truth.symbols.is_empty();
    assert!(truths.iter().all(is_whole), "{said}");
    truths
}

fn number(text: &str) -> u64 {
    text.parse().expect("a number")
}
