//! Other processes: what is loaded in them and how to unwind their stacks, read from their memory.

mod walker;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use stackbeat_core::address::{Bias, Svma};
use stackbeat_core::ids::Pid;
use stackbeat_core::unwind::cfi::{RegisterNumbers, Section, Tables, frames_address};
use stackbeat_core::unwind::elf;
use stackbeat_core::unwind::full::{self, AllRegisters};
use stackbeat_core::unwind::rule::Rule;

pub(super) use walker::{Place, Process, Walker};

/// The memory of a process; takes the rights of a debugger.
pub(super) fn memory(pid: Pid) -> std::io::Result<File> {
    File::open(format!("/proc/{pid}/mem"))
}

/// Where files are mapped from their begin on: addresses and paths. Names in brackets are the kernel's.
pub(super) fn first_mappings(pid: Pid) -> std::io::Result<Vec<(u64, String)>> {
    let maps = fs::read(format!("/proc/{pid}/maps"))?;
    let maps = String::from_utf8_lossy(&maps);
    let first = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let (start, _) = fields.next()?.split_once('-')?;
        let is_first = fields.nth(1)?.bytes().all(|b| b == b'0');
        let path = &line[line.find(['/', '['])?..];
        let start = u64::from_str_radix(start, 16).ok()?;
        // Where no other folder can be written to, the agent lies in shared memory.
        let is_device = path.starts_with("/dev/") && !path.starts_with("/dev/shm/");
        (is_first && !is_device).then(|| (start, path.trim_end_matches(" (deleted)").to_owned()))
    };
    Ok(maps.lines().filter_map(first).collect())
}

/// A loaded ELF file.
#[derive(Debug)]
pub struct Module {
    pub path: String,
    pub start: u64,
    pub end: u64,
    pub bias: Bias,
    pub dynamic: Svma,
    /// `.eh_frame_hdr`; 0: it has none.
    pub unwind_table: Svma,
    pub build_id: Vec<u8>,
    /// The unwind tables: where they lie in the process, and their bytes.
    tables: (u64, Vec<u8>),
}

impl Module {
    /// Reads what is mapped at an address, if it is one.
    pub fn read(memory: &File, start: u64, path: &str) -> Option<Module> {
        let mut read = |address, buffer: &mut [u8]| memory.read_exact_at(buffer, address).is_ok();
        let (headers, count) = elf::program_headers(&mut read, start)?;
        let image = elf::image(&mut read, headers, count)?;
        let bias = Bias::between(start, Svma(image.start.0 & !4095));
        let (id, id_bytes) = elf::build_id(&mut read, &image, bias);
        // From the header on: the tables follow it in all files that linkers make.
        let segment_end = image.tables.address.0 + image.tables.memory_bytes;
        let mut bytes = vec![0; segment_end.saturating_sub(image.eh_frame_header.0) as usize];
        let at = bias.in_process(image.eh_frame_header);
        if image.eh_frame_header == Svma(0) || memory.read_exact_at(&mut bytes, at).is_err() {
            bytes.clear();
        }
        Some(Module {
            path: path.to_owned(),
            start: bias.in_process(image.start),
            end: bias.in_process(image.end),
            bias,
            dynamic: image.dynamic,
            unwind_table: image.eh_frame_header,
            build_id: id[..id_bytes].to_vec(),
            tables: (at, bytes),
        })
    }

    pub fn contains(&self, address: u64) -> bool {
        self.start <= address && address < self.end
    }

    pub fn file_name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    /// The rule at a place of the module.
    pub fn rule(&self, pc: u64, exact: bool) -> Rule {
        match self.tables() {
            Some(tables) => tables.rule(lookup(pc, exact), pc, &RegisterNumbers::NATIVE),
            None => Rule::NOWHERE,
        }
    }

    /// See `Rules::full_step`.
    pub fn full_step(
        &self,
        registers: &mut AllRegisters,
        exact: bool,
        read: &mut dyn FnMut(u64) -> Option<u64>,
    ) -> Option<bool> {
        let address = lookup(registers.state().0, exact);
        let numbers = &RegisterNumbers::NATIVE;
        full::step(&self.tables()?, address, numbers, registers, read)
    }

    fn tables(&self) -> Option<Tables<'_>> {
        let section = |at: u64| {
            let offset = at.checked_sub(self.tables.0)? as usize;
            Some(Section {
                bytes: self.tables.1.get(offset..)?,
                address: at,
            })
        };
        let header = section(self.tables.0)?;
        Some(Tables {
            header,
            frames: section(frames_address(&header)?)?,
        })
    }
}

/// The address to look up for a pc.
pub(super) fn lookup(pc: u64, exact: bool) -> u64 {
    if exact { pc } else { pc.wrapping_sub(1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_in_shared_memory_are_modules_like_others() {
        let file = tempfile::NamedTempFile::new_in("/dev/shm").expect("shared memory");
        file.as_file().set_len(4096).expect("room");
        let path = file.path().to_str().expect("text");
        let all = libc::PROT_READ;
        let descriptor = std::os::fd::AsRawFd::as_raw_fd(file.as_file());
        // SAFETY: a new mapping, which nothing else knows of.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                4096,
                all,
                libc::MAP_SHARED,
                descriptor,
                0,
            )
        };
        assert_ne!(address, libc::MAP_FAILED);
        let found = first_mappings(Pid(std::process::id())).expect("our own");
        assert!(
            found.contains(&(address as u64, path.to_owned())),
            "{found:?}"
        );
        // SAFETY: as it was mapped; nobody holds a reference.
        unsafe { libc::munmap(address, 4096) };
    }
}
