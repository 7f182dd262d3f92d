//! What a program asks the agent for by itself (`stackbeat.h`, the crate `stackbeat-api`): it looks once
//! whether there is an agent, and keeps the answer in *slots*. One that asked before the agent came would
//! stay unheard, and the agent's functions are none that it could find, because the dynamic linker loaded
//! them for us alone. So whoever attaches has the agent fill the slots in, and empty them again.
//!
//! They lie in sections that are called as the function that they are for. Section headers are not loaded, so
//! they are read from the modules' files, if these are still the files that were loaded.

use std::ops::Range;

use object::read::ReadCache;
use object::{Object, ObjectSection};

use stackbeat_core::address::Svma;
use stackbeat_core::ids::Pid;

use super::exec;
use super::image::Images;
use super::tracee::Borrowed;
use crate::linux::remote_unwind::Module;
use crate::session::attach_error::AttachError;

/// The functions, by the names of their sections (`hooks-linux/src/api.rs`): events, captures.
const FUNCTIONS: [&str; 2] = ["stackbeat_v1_event", "stackbeat_v1_capture"];
const SLOT_BYTES: u64 = 8;
/// Slots whose addresses the agent gets in one call.
const SLOTS_PER_CALL: usize = 1000;

/// Where the slots of the modules of a process lie, for each of the functions.
#[derive(Debug, Default)]
pub(super) struct Slots {
    addresses: [Vec<u64>; 2],
}

impl Slots {
    /// Looks into the files of all modules; those that cannot be read have none.
    pub(super) fn find(pid: Pid, images: &Images) -> Slots {
        let mut slots = Slots::default();
        for module in &images.modules {
            for (addresses, range) in slots.addresses.iter_mut().zip(sections(pid, module)) {
                addresses.extend(
                    range
                        .into_iter()
                        .flat_map(|r| r.step_by(SLOT_BYTES as usize)),
                );
            }
        }
        slots
    }

    /// Has the agent fill the slots in (`connect`), or empty them, by its function at `fill`. The memory at
    /// `list` has room for a list.
    pub(super) fn tell(
        &self,
        borrowed: &mut Borrowed,
        fill: u64,
        connect: bool,
        list: u64,
    ) -> Result<(), AttachError> {
        for (kind, addresses) in self.addresses.iter().enumerate() {
            for some in addresses.chunks(SLOTS_PER_CALL) {
                // `Slots` of hooks-linux/src/api.rs.
                let mut counts = [0; 2];
                counts[kind] = some.len() as u64;
                let words = [u64::from(connect), counts[0], counts[1]];
                let bytes = words.iter().chain(some).flat_map(|word| word.to_le_bytes());
                borrowed.write(list, &bytes.collect::<Vec<u8>>())?;
                borrowed.call(fill, [list, 0])?;
            }
        }
        Ok(())
    }
}

/// The sections of a module that hold slots.
fn sections(pid: Pid, module: &Module) -> [Option<Range<u64>>; 2] {
    let find = || {
        let file = exec::open_mapped(pid, &module.path).ok()?;
        let cache = ReadCache::new(file);
        let file = object::File::parse(&cache).ok()?;
        // A file that was replaced since has its sections elsewhere.
        let build_id = file.build_id().ok()??;
        if build_id != module.build_id {
            return None;
        }
        let section = |name| {
            let section = file.section_by_name(name)?;
            let start = module.bias.in_process(Svma(section.address()));
            let end = start.checked_add(section.size() & !(SLOT_BYTES - 1))?;
            (module.start <= start && end <= module.end).then_some(start..end)
        };
        Some(FUNCTIONS.map(section))
    };
    find().unwrap_or_default()
}
