//! The modules of processes, and which of them lies at an address. What processes have in common is kept
//! once.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use stackbeat_core::address::Bias;
use stackbeat_core::ids::Upid;
use stackbeat_proto::v1;

/// Modules that begin below an address to look at: ends that were never reported make them overlap.
const MOST_BELOW: usize = 64;

/// Process, start and epoch: one address range can hold several modules in turn.
type Key = (Upid, u64, u32);

/// What makes a module's file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModuleFile {
    /// Path in the process' file system.
    pub path: String,
    /// The linker's note that identifies the file's content; empty when it has none.
    pub build_id: Vec<u8>,
}

/// Modules by process and address.
#[derive(Clone, Debug, Default)]
pub struct Modules {
    by_key: BTreeMap<Key, Module>,
    files: HashSet<Arc<ModuleFile>>,
}

/// A module of a process.
#[derive(Clone, Debug)]
pub struct Module {
    /// Shared by all processes that have loaded it.
    pub file: Arc<ModuleFile>,
    /// Where it is loaded.
    pub bias: Bias,
    end: u64,
    end_epoch: u32,
}

impl Modules {
    /// Whether this module was inserted.
    pub fn contains(&self, key: &Key) -> bool {
        self.by_key.contains_key(key)
    }

    /// The module as a packet of the trace.
    pub fn get(&self, key: &Key) -> Option<v1::Module> {
        self.by_key.get(key).map(|module| module.packet(*key))
    }

    /// Whether something lies there that has not gone.
    pub fn is_there(&self, upid: Upid, start: u64) -> bool {
        let mut there = (self.by_key).range((upid, start, 0)..=(upid, start, u32::MAX));
        there.any(|(_, module)| module.end_epoch == 0)
    }

    /// Adds a module. A later packet about the same one (its end) replaces it.
    pub fn insert(&mut self, module: &v1::Module) {
        let file = ModuleFile {
            path: module.path.clone(),
            build_id: module.build_id.clone(),
        };
        let file = match self.files.get(&file) {
            Some(file) => Arc::clone(file),
            None => {
                let file = Arc::new(file);
                self.files.insert(Arc::clone(&file));
                file
            }
        };
        let key = (Upid(module.upid), module.start, module.epoch);
        let module = Module {
            file,
            end: module.end,
            bias: Bias(module.bias),
            end_epoch: module.end_epoch,
        };
        self.by_key.insert(key, module);
    }

    /// What lay there before this epoch has gone with it. Gives it, unless that was known.
    pub fn end(&mut self, upid: Upid, start: u64, epoch: u32) -> Option<v1::Module> {
        let there = (upid, start, 0)..(upid, start, epoch);
        let (key, module) = self.by_key.range_mut(there).next_back()?;
        if module.end_epoch != 0 {
            return None;
        }
        module.end_epoch = epoch;
        Some(module.packet(*key))
    }

    /// The module at an address: loaded by this epoch and not gone by then; of several the one that came
    /// last. Without an epoch: the last one of all.
    pub fn at(&self, upid: Upid, epoch: Option<u32>, address: u64) -> Option<&Module> {
        let latest = epoch.unwrap_or(u32::MAX);
        let mut found: Option<(u32, &Module)> = None;
        let mut below = address;
        for _ in 0..MOST_BELOW {
            let all_below = (upid, 0, 0)..=(upid, below, u32::MAX);
            let mut all_below = self.by_key.range(all_below).rev();
            let Some((&(_, start, last), module)) = all_below.next() else {
                break;
            };
            // Usually the last one there: of many, only the last that had come by then may be there.
            let there = match last <= latest {
                true => Some((last, module)),
                false => {
                    let by_then = (upid, start, 0)..=(upid, start, latest);
                    let by_then = self.by_key.range(by_then).next_back();
                    by_then.map(|(&(_, _, from), module)| (from, module))
                }
            };
            if let Some((from, module)) = there
                && address < module.end
                && (module.end_epoch == 0 || epoch.is_none_or(|epoch| epoch < module.end_epoch))
                && found.is_none_or(|(other, _)| other < from)
            {
                found = Some((from, module));
            }
            match start.checked_sub(1) {
                Some(next) => below = next,
                None => break,
            }
        }
        found.map(|(_, module)| module)
    }

    /// The paths of all modules that a process has or had.
    pub fn paths_of(&self, upid: Upid) -> impl Iterator<Item = &str> + Clone {
        let all = (upid, 0, 0)..=(upid, u64::MAX, u32::MAX);
        let modules = self.by_key.range(all);
        modules.map(|(_, module)| module.file.path.as_str())
    }

    /// Forgets the modules of a process.
    pub fn remove_process(&mut self, upid: Upid) {
        let all = (upid, 0, 0)..=(upid, u64::MAX, u32::MAX);
        for (_, module) in self.by_key.extract_if(all, |_, _| true) {
            // The set's and this one.
            if Arc::strong_count(&module.file) == 2 {
                self.files.remove(&module.file);
            }
        }
    }
}

impl Module {
    fn packet(&self, (upid, start, epoch): Key) -> v1::Module {
        v1::Module {
            upid: upid.0,
            epoch,
            end_epoch: self.end_epoch,
            path: self.file.path.clone(),
            build_id: self.file.build_id.clone(),
            start,
            end: self.end,
            bias: self.bias.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(path: &str, start: u64, end: u64, epochs: (u32, u32)) -> v1::Module {
        v1::Module {
            upid: 7,
            epoch: epochs.0,
            end_epoch: epochs.1,
            path: path.into(),
            start,
            end,
            ..v1::Module::default()
        }
    }

    fn path_at(modules: &Modules, epoch: Option<u32>, address: u64) -> &str {
        (modules.at(Upid(7), epoch, address)).map_or("", |module| module.file.path.as_str())
    }

    #[test]
    fn an_address_belongs_to_what_lay_there_in_its_epoch() {
        let mut modules = Modules::default();
        for i in 0..1000 {
            modules.insert(&module(&format!("{i}"), 0x1000, 0x2000, (i, i + 1)));
        }
        modules.insert(&module("last", 0x1000, 0x1800, (1000, 0)));
        for epoch in [0, 1, 500, 999] {
            assert_eq!(path_at(&modules, Some(epoch), 0x1fff), epoch.to_string());
        }
        assert_eq!(path_at(&modules, Some(1000), 0x1000), "last");
        assert_eq!(path_at(&modules, None, 0x1000), "last");
        assert_eq!(path_at(&modules, Some(2000), 0x1800), "");
        // What ended without a word before another one came is not there again when that one has gone.
        modules.insert(&module("silent", 0x5000, 0x6000, (1, 0)));
        modules.insert(&module("gone", 0x5000, 0x6000, (3, 6)));
        let in_turn = [2, 3, 8].map(|epoch| path_at(&modules, Some(epoch), 0x5000));
        assert_eq!(in_turn, ["silent", "gone", ""]);
        assert!(modules.at(Upid(6), Some(1), 0x1000).is_none());
        assert_eq!(path_at(&modules, Some(1), 0xfff), "");
    }

    #[test]
    fn of_modules_that_overlap_the_later_one_counts() {
        let mut modules = Modules::default();
        modules.insert(&module("old and large", 0x1000, 0x9000, (1, 0)));
        modules.insert(&module("small", 0x2000, 0x3000, (5, 0)));
        modules.insert(&module("new and large", 0x800, 0x9000, (9, 0)));
        assert_eq!(path_at(&modules, Some(4), 0x2500), "old and large");
        assert_eq!(path_at(&modules, Some(5), 0x2500), "small");
        assert_eq!(path_at(&modules, Some(5), 0x3500), "old and large");
        assert_eq!(path_at(&modules, Some(9), 0x2500), "new and large");
    }

    #[test]
    fn what_only_an_ended_process_had_is_forgotten() {
        let mut modules = Modules::default();
        modules.insert(&module("shared", 0x1000, 0x2000, (0, 0)));
        modules.insert(&module("own", 0x3000, 0x4000, (0, 0)));
        modules.insert(&module("own", 0x5000, 0x6000, (0, 0)));
        let mut other = module("shared", 0x1000, 0x2000, (0, 0));
        other.upid = 8;
        modules.insert(&other);
        modules.remove_process(Upid(7));
        assert_eq!((modules.by_key.len(), modules.files.len()), (1, 1));
        assert!(modules.at(Upid(8), Some(0), 0x1000).is_some());
    }
}
