//! What is loaded in another process: its modules, their unwind tables and the functions of libc, read
//! from its memory.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use object::{Object, ObjectSymbol};
use stackbeat_core::unwind::cfi::{RegisterNumbers, Section, Tables, frames_address};
use stackbeat_core::unwind::elf;
use stackbeat_core::unwind::full::{self, AllRegisters};
use stackbeat_core::unwind::rule::Rule;
use stackbeat_core::unwind::walk::{ReadStack, Rules};

/// A loaded ELF file.
#[derive(Debug)]
pub struct Module {
    pub path: String,
    pub start: u64,
    pub end: u64,
    pub bias: u64,
    dynamic: u64,
    /// The unwind tables: where they lie in the process, and their bytes.
    tables: (u64, Vec<u8>),
    header: u64,
}

impl Module {
    pub fn contains(&self, address: u64) -> bool {
        self.start <= address && address < self.end
    }

    fn file_name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }
}

/// The modules of a process.
#[derive(Debug)]
pub struct Images {
    pub modules: Vec<Module>,
    memory: File,
}

impl Images {
    /// Reads what is loaded now.
    pub fn read(pid: u32) -> std::io::Result<Images> {
        Images::read_besides(pid, &[])
    }

    /// Reads what has been loaded besides these.
    pub fn read_besides(pid: u32, known: &[Module]) -> std::io::Result<Images> {
        let memory = File::open(format!("/proc/{pid}/mem"))?;
        let maps = fs::read(format!("/proc/{pid}/maps"))?;
        let mut modules = Vec::new();
        for line in String::from_utf8_lossy(&maps).lines() {
            let mut fields = line.split_ascii_whitespace();
            let start = fields
                .next()
                .and_then(|range| range.split_once('-'))
                .and_then(|(start, _)| u64::from_str_radix(start, 16).ok());
            let is_first = fields.nth(1).is_some_and(|o| o.bytes().all(|b| b == b'0'));
            let path = line
                .find(['/', '['])
                .map(|at| line[at..].trim_end_matches(" (deleted)"));
            if let (Some(start), true, Some(path)) = (start, is_first, path)
                && !path.starts_with("/dev/")
                && !known.iter().any(|m| m.contains(start))
                && let Some(module) = read_module(&memory, start, path)
            {
                modules.push(module);
            }
        }
        Ok(Images { modules, memory })
    }

    pub fn at(&self, address: u64) -> Option<&Module> {
        self.modules.iter().find(|m| m.contains(address))
    }

    /// The address of a function that a module exports.
    pub fn symbol(&self, module: &Module, name: &str) -> Option<u64> {
        let mut read =
            |address, buffer: &mut [u8]| self.memory.read_exact_at(buffer, address).is_ok();
        elf::symbol(&mut read, module.dynamic, module.bias, name.as_bytes())
    }

    /// The module that is glibc's libc.
    pub fn libc(&self) -> Option<&Module> {
        self.modules.iter().find(|m| {
            let name = m.file_name();
            name == "libc.so.6" || name.starts_with("libc-2.")
        })
    }

    /// The dynamic linker.
    pub fn is_loader(&self, module: &Module) -> bool {
        let name = module.file_name();
        name.starts_with("ld-linux") || name.starts_with("ld-2.") || name == "ld.so"
    }

    /// The agent, if it is loaded.
    pub fn agent(&self) -> Option<&Module> {
        let is_agent = |m: &&Module| self.symbol(m, "stackbeat_attach").is_some();
        self.modules.iter().find(is_agent)
    }

    /// Address of a `syscall` instruction (0f 05) in libc.
    pub fn syscall_instruction(&self) -> Option<u64> {
        let function = self.symbol(self.libc()?, "syscall")?;
        let mut code = [0u8; 64];
        self.memory.read_exact_at(&mut code, function).ok()?;
        let at = code.windows(2).position(|w| w == [0x0f, 0x05])?;
        Some(function + at as u64)
    }

    fn tables(&self, address: u64) -> Option<Tables<'_>> {
        let module = self.at(address)?;
        let section = |at: u64| {
            let offset = at.checked_sub(module.tables.0)? as usize;
            Some(Section {
                bytes: module.tables.1.get(offset..)?,
                address: at,
            })
        };
        let header = section(module.header)?;
        Some(Tables {
            header,
            frames: section(frames_address(&header)?)?,
        })
    }
}

fn read_module(memory: &File, start: u64, path: &str) -> Option<Module> {
    let mut read = |address, buffer: &mut [u8]| memory.read_exact_at(buffer, address).is_ok();
    let (headers, count) = elf::program_headers(&mut read, start)?;
    let image = elf::image(&mut read, headers, count)?;
    let bias = start.wrapping_sub(image.start & !4095);
    // From the header on: the tables follow it in all files that linkers make.
    let segment_end = image.tables.address + image.tables.memory_bytes;
    let mut bytes = vec![0; segment_end.saturating_sub(image.eh_frame_header) as usize];
    let at = image.eh_frame_header.wrapping_add(bias);
    if image.eh_frame_header == 0 || memory.read_exact_at(&mut bytes, at).is_err() {
        bytes.clear();
    }
    Some(Module {
        path: path.to_owned(),
        start: image.start.wrapping_add(bias),
        end: image.end.wrapping_add(bias),
        bias,
        dynamic: image.dynamic,
        tables: (at, bytes),
        header: at,
    })
}

/// The address to look up for a pc.
fn lookup(pc: u64, exact: bool) -> u64 {
    if exact { pc } else { pc.wrapping_sub(1) }
}

impl Rules for &Images {
    fn rule(&self, pc: u64, exact: bool) -> Rule {
        let address = lookup(pc, exact);
        match self.tables(address) {
            Some(tables) => tables.rule(address, pc, &RegisterNumbers::X86_64),
            None => Rule::NOWHERE,
        }
    }

    fn full_step(
        &self,
        registers: &mut AllRegisters,
        exact: bool,
        read: &mut dyn FnMut(u64) -> Option<u64>,
    ) -> Option<bool> {
        let address = lookup(registers.state().0, exact);
        let tables = self.tables(address)?;
        full::step(&tables, address, &RegisterNumbers::X86_64, registers, read)
    }

    fn generation(&self) -> u32 {
        1
    }
}

// SAFETY: no part of the stack is named as one that could be read directly.
unsafe impl ReadStack for &Images {
    fn read(&mut self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.memory.read_exact_at(&mut bytes, address).ok()?;
        Some(u64::from_le_bytes(bytes))
    }

    fn own(&self) -> (u64, u64) {
        (0, 0)
    }

    unsafe fn read_own(&self, _address: u64) -> u64 {
        0
    }
}

/// The functions that a library exports, by address.
#[derive(Debug, Default)]
pub struct Functions {
    /// Start, end and name.
    ranges: Vec<(u64, u64, String)>,
}

impl Functions {
    /// Those of a module, read from its file as the process sees it.
    pub fn of(pid: u32, module: &Module) -> Option<Functions> {
        let data = fs::read(format!("/proc/{pid}/root{}", module.path)).ok()?;
        let file = object::File::parse(&*data).ok()?;
        let mut ranges: Vec<_> = file
            .dynamic_symbols()
            .filter(|s| s.is_definition() && s.size() > 0)
            .filter_map(|s| {
                let start = s.address().wrapping_add(module.bias);
                Some((start, start + s.size(), s.name().ok()?.to_owned()))
            })
            .collect();
        ranges.sort_unstable();
        Some(Functions { ranges })
    }

    /// The names of the functions at an address.
    pub fn at(&self, address: u64) -> impl Iterator<Item = &str> {
        let end = self.ranges.partition_point(|r| r.0 <= address);
        // No exported function of libc is so large that 64 others begin inside of it.
        let candidates = &self.ranges[end.saturating_sub(64)..end];
        candidates
            .iter()
            .filter(move |r| address < r.1)
            .map(|r| r.2.as_str())
    }
}
