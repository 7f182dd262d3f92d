//! The modules of all processes. Those of ended ones stay, because names are looked up at the end; so what they have in
//! common is kept once.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use stackbeat_proto::v1;

/// Process, start and epoch: one address range can hold several modules in turn.
type Key = (u32, u64, u32);

/// A path and a build id.
type File = (String, Vec<u8>);

#[derive(Debug, Default)]
pub struct Modules {
    by_key: BTreeMap<Key, Module>,
    files: HashSet<Arc<File>>,
}

#[derive(Debug)]
struct Module {
    file: Arc<File>,
    end: u64,
    bias: u64,
    end_epoch: u32,
}

impl Modules {
    pub fn contains(&self, key: &Key) -> bool {
        self.by_key.contains_key(key)
    }

    pub fn get(&self, key: &Key) -> Option<v1::Module> {
        self.by_key.get(key).map(|module| module.packet(*key))
    }

    /// Whether something lies there that has not gone.
    pub fn is_there(&self, process_uid: u32, start: u64) -> bool {
        let mut there =
            (self.by_key).range((process_uid, start, 0)..=(process_uid, start, u32::MAX));
        there.any(|(_, module)| module.end_epoch == 0)
    }

    pub fn insert(&mut self, module: &v1::Module) {
        let file = (module.path.clone(), module.build_id.clone());
        let file = match self.files.get(&file) {
            Some(file) => Arc::clone(file),
            None => {
                let file = Arc::new(file);
                self.files.insert(Arc::clone(&file));
                file
            }
        };
        let key = (module.process_uid, module.start, module.epoch);
        let module = Module {
            file,
            end: module.end,
            bias: module.bias,
            end_epoch: module.end_epoch,
        };
        self.by_key.insert(key, module);
    }

    /// What lay there before this epoch has gone with it. Gives it, unless that was known.
    pub fn end(&mut self, process_uid: u32, start: u64, epoch: u32) -> Option<v1::Module> {
        let there = (process_uid, start, 0)..(process_uid, start, epoch);
        let (key, module) = self.by_key.range_mut(there).next_back()?;
        if module.end_epoch != 0 {
            return None;
        }
        module.end_epoch = epoch;
        Some(module.packet(*key))
    }

    pub fn all(&self) -> impl Iterator<Item = v1::Module> {
        (self.by_key.iter()).map(|(key, module)| module.packet(*key))
    }
}

impl Module {
    fn packet(&self, (process_uid, start, epoch): Key) -> v1::Module {
        v1::Module {
            process_uid,
            epoch,
            end_epoch: self.end_epoch,
            path: self.file.0.clone(),
            build_id: self.file.1.clone(),
            start,
            end: self.end,
            bias: self.bias,
        }
    }
}
