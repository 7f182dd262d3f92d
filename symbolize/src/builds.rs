//! Object files below a folder, by build id or UUID: the unstripped ones, or dSYMs, of programs that ran on
//! another machine.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use object::{Object, ObjectSection};

use super::object_file::{FileContent, PartOfFile, build_id};

/// Folders within each other that are looked into.
const DEEPEST: usize = 32;

/// The file of each build.
#[derive(Debug, Default)]
pub struct FilesOfBuilds {
    by_id: HashMap<Vec<u8>, (Names, PathBuf)>,
}

/// What a file says of its functions; of several files of one build the best is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Names {
    Exported,
    Symbols,
    Lines,
}

impl FilesOfBuilds {
    /// Those below a folder. Links to folders are not followed, and what cannot be read is left out.
    ///
    /// # Errors
    ///
    /// When the folder itself cannot be read.
    pub fn below(folder: &Path) -> io::Result<FilesOfBuilds> {
        let mut found = FilesOfBuilds::default();
        std::fs::read_dir(folder)?;
        found.add_folder(folder, DEEPEST);
        Ok(found)
    }

    fn add_folder(&mut self, folder: &Path, deepest: usize) {
        let Ok(items) = std::fs::read_dir(folder) else {
            return;
        };
        for item in items.flatten() {
            match item.file_type() {
                Ok(kind) if kind.is_dir() && deepest > 0 => {
                    self.add_folder(&item.path(), deepest - 1);
                }
                // A link may lead to a file.
                Ok(kind) if !kind.is_dir() => self.add_file(&item.path()),
                _ => {}
            }
        }
    }

    fn add_file(&mut self, path: &Path) {
        let Ok(file) = FileContent::open(path) else {
            return;
        };
        for (id, names) in file.of_each_part(read) {
            let known = self.by_id.get(&id).map(|(names, _)| *names);
            if known.is_none_or(|known| known < names) {
                self.by_id.insert(id, (names, path.to_owned()));
            }
        }
    }

    /// The file of a build.
    pub fn get(&self, build_id: &[u8]) -> Option<&Path> {
        self.by_id.get(build_id).map(|(_, path)| path.as_path())
    }

    /// How many builds there are.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }
}

/// `None`: no object file with a build id.
fn read(object: &PartOfFile<'_>) -> Option<(Vec<u8>, Names)> {
    let id = build_id(object)?;
    let has = |name| object.section_by_name(name).is_some_and(|s| s.size() > 0);
    let names = match () {
        () if has(".debug_info") => Names::Lines,
        () if object.symbols().next().is_some() => Names::Symbols,
        () => Names::Exported,
    };
    Some((id, names))
}
