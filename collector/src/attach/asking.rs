//! What a program asks the agent for by itself (`stackbeat.h`, the crate `stackbeat-api`): it looks once whether there is
//! an agent, and keeps the answer in *slots*. One that asked before the agent came would stay unheard, and the agent's
//! functions are none that it could find, because the dynamic linker loaded them for us alone. So whoever attaches
//! fills the slots in.
//!
//! They lie in sections that are called as the function that they are for. Section headers are not loaded, so they are
//! read from the modules' files.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use object::read::ReadCache;
use object::{Object, ObjectSection};

use super::image::Images;
use crate::foreign::Module;

/// The functions, by the names of their sections (`hooks-linux/src/api.rs`).
const FUNCTIONS: [&str; 2] = ["stackbeat_v1_event", "stackbeat_v1_capture"];
/// Nobody has asked yet.
const NOT_ASKED: u64 = 0;
/// It was asked, and there was no agent.
const NO_AGENT: u64 = 1;
const SLOT_BYTES: u64 = 8;

/// Where the slots of the modules of a process lie, for each of the functions.
#[derive(Debug)]
pub struct Slots {
    pid: u32,
    ranges: [Vec<Range<u64>>; 2],
}

impl Slots {
    /// Looks into the files of all modules; those that cannot be read have none.
    pub fn find(pid: u32) -> io::Result<Slots> {
        let mut ranges = [Vec::new(), Vec::new()];
        for module in Images::read(pid)?.modules {
            for (ranges, found) in ranges.iter_mut().zip(sections(pid, &module)) {
                ranges.extend(found);
            }
        }
        Ok(Slots { pid, ranges })
    }

    /// From now on the program finds the agent, whose module this is.
    pub fn connect(&self, images: &Images, agent: &Module) -> io::Result<()> {
        self.replace(images, agent, |slot, function| {
            matches!(slot, NOT_ASKED | NO_AGENT).then_some(function)
        })
    }

    /// From now on the program looks by itself again.
    pub fn disconnect(&self, images: &Images, agent: &Module) -> io::Result<()> {
        self.replace(images, agent, |slot, function| {
            (slot == function).then_some(NOT_ASKED)
        })
    }

    /// Gives slots new values: what `value` says of what is there and the function's address. Anything else
    /// than what it knows is left alone: a file may have been replaced since it was loaded.
    fn replace(
        &self,
        images: &Images,
        agent: &Module,
        value: impl Fn(u64, u64) -> Option<u64>,
    ) -> io::Result<()> {
        if self.ranges.iter().all(Vec::is_empty) {
            return Ok(());
        }
        let memory = OpenOptions::new()
            .read(true)
            .write(true)
            .open(format!("/proc/{}/mem", self.pid))?;
        for (ranges, name) in self.ranges.iter().zip(FUNCTIONS) {
            let Some(function) = images.symbol(agent, name) else {
                continue;
            };
            for address in ranges.iter().flat_map(|r| r.clone().step_by(8)) {
                let mut slot = [0; SLOT_BYTES as usize];
                memory.read_exact_at(&mut slot, address)?;
                if let Some(value) = value(u64::from_ne_bytes(slot), function) {
                    memory.write_all_at(&value.to_ne_bytes(), address)?;
                }
            }
        }
        Ok(())
    }
}

/// The sections of a module that hold slots.
fn sections(pid: u32, module: &Module) -> [Option<Range<u64>>; 2] {
    let find = || {
        let file = File::open(format!("/proc/{pid}/root{}", module.path)).ok()?;
        let cache = ReadCache::new(file);
        let file = object::File::parse(&cache).ok()?;
        let section = |name| {
            let section = file.section_by_name(name)?;
            let start = section.address().wrapping_add(module.bias);
            let end = start.checked_add(section.size() & !(SLOT_BYTES - 1))?;
            (module.start <= start && end <= module.end).then_some(start..end)
        };
        Some(FUNCTIONS.map(section))
    };
    find().unwrap_or_default()
}
