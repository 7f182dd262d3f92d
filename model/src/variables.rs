//! Variables of the program: what locks that threads waited for are called.

use std::sync::Arc;

use hashbrown::HashMap;
use stackbeat_core::address::Svma;
use stackbeat_proto::v1;
use stackbeat_symbolize::ModuleFile;
use stackbeat_symbolize::short_names::variable_name;

use super::ProcessIndex;
use super::program::{Module, Origin, Process};

/// Forks to follow upwards in search of a variable.
const ANCESTOR_LIMIT: usize = 64;

/// Names of variables by the files that they are in.
#[derive(Debug, Default)]
pub(super) struct VariablesOfFiles(HashMap<ModuleFile, Vec<(Svma, Arc<str>)>>);

impl VariablesOfFiles {
    pub(super) fn add(&mut self, packet: &v1::Symbols) {
        let Some(file) = packet
            .file
            .as_ref()
            .filter(|_| !packet.variables.is_empty())
        else {
            return;
        };
        let file = ModuleFile {
            path: file.path.clone(),
            build_id: file.build_id.clone(),
        };
        let named = packet.variables.iter().filter_map(|variable| {
            let name = packet.strings.get(variable.name as usize)?;
            let name = variable_name(name, variable.offset);
            Some((Svma(variable.address), name.into()))
        });
        self.0.entry(file).or_default().extend(named);
    }

    /// Where they lie in each process.
    pub(super) fn place(&self, modules: &[Module], processes: &[Process]) -> Variables {
        let mut names = HashMap::new();
        if !self.0.is_empty() {
            for module in modules {
                let file = ModuleFile {
                    path: module.path.clone(),
                    build_id: module.build_id.clone(),
                };
                for (svma, name) in self.0.get(&file).into_iter().flatten() {
                    let address = module.bias.in_process(*svma);
                    names.insert((module.process, address), Arc::clone(name));
                }
            }
        }
        let parent = |process: &Process| match process.origin {
            Origin::Forked => process.parent,
            _ => None,
        };
        Variables {
            names,
            parents: processes.iter().map(parent).collect(),
        }
    }
}

/// Names of variables by process and address.
#[derive(Debug, Default)]
pub(super) struct Variables {
    names: HashMap<(ProcessIndex, u64), Arc<str>>,
    /// Of a process that was forked: where its memory comes from.
    parents: Vec<Option<ProcessIndex>>,
}

impl Variables {
    pub(super) fn at(&self, process: ProcessIndex, address: u64) -> Option<&Arc<str>> {
        if self.names.is_empty() {
            return None;
        }
        let mut at = process;
        for _ in 0..ANCESTOR_LIMIT {
            if let Some(name) = self.names.get(&(at, address)) {
                return Some(name);
            }
            at = self.parents.get(at.0 as usize).copied().flatten()?;
        }
        None
    }
}
