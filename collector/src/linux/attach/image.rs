//! What attaching wants to know of the modules of another process: which is libc, where functions are.

use std::fs::File;
use std::os::unix::fs::FileExt;

use object::read::ReadCache;
use object::{Object, ObjectSymbol};
use stackbeat_core::address::Svma;
use stackbeat_core::ids::Pid;
use stackbeat_core::unwind::elf;
use stackbeat_core::unwind::full::AllRegisters;
use stackbeat_core::unwind::rule::Rule;
use stackbeat_core::unwind::walk::{ReadStack, Rules};

use super::exec;
use super::way_back::Code;
use crate::linux::remote_unwind::{self, Module};

/// Bytes of a page.
const PAGE: u64 = 4096;

/// The modules of a process.
#[derive(Debug)]
pub struct Images {
    pub modules: Vec<Module>,
    memory: File,
}

impl Images {
    /// Reads what is loaded now.
    pub fn read(pid: Pid) -> std::io::Result<Images> {
        Images::read_besides(pid, &[])
    }

    /// Reads what has been loaded besides these.
    pub fn read_besides(pid: Pid, known: &[Module]) -> std::io::Result<Images> {
        let memory = remote_unwind::memory(pid)?;
        let modules = remote_unwind::first_mappings(pid)?
            .into_iter()
            .filter(|(start, _)| !known.iter().any(|m| m.contains(*start)))
            .filter_map(|(start, path)| Module::read(&memory, start, &path))
            .collect();
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

    /// Where nobody has code, in the last page of a module's code, and we may put ours.
    pub(super) fn room_for_code(&self) -> Option<Code> {
        let libc = self.libc().into_iter();
        let others = self.modules.iter();
        libc.chain(others).find_map(|module| {
            let end = self.code_end(module)?;
            let at = end.next_multiple_of(8);
            let code: [u8; Code::BYTES.len()] = self.bytes(at)?;
            let is_inside = at + Code::BYTES.len() as u64 <= end.next_multiple_of(PAGE);
            let is_free = code.iter().all(|byte| *byte == 0) || code == Code::BYTES;
            (is_inside && is_free).then_some(Code(at))
        })
    }

    /// Where the code of a module ends.
    fn code_end(&self, module: &Module) -> Option<u64> {
        let mut read =
            |address, buffer: &mut [u8]| self.memory.read_exact_at(buffer, address).is_ok();
        let (headers, count) = elf::program_headers(&mut read, module.start)?;
        let image = elf::image(&mut read, headers, count)?;
        Some(module.bias.in_process(image.text_end))
    }

    /// The function that the call before a return address has called, directly, by a slot of the GOT, or by
    /// an entry of the PLT. `None`: by a register, or it is no such call (AMD64 psABI, Procedure Linkage
    /// Table).
    pub fn called_before(&self, return_address: u64) -> Option<u64> {
        let code: [u8; 6] = self.bytes(return_address.checked_sub(6)?)?;
        match code {
            // call *slot(%rip)
            [0xff, 0x15, a, b, c, d] => self.behind(return_address, [a, b, c, d]),
            // call function
            [_, 0xe8, a, b, c, d] => {
                let offset = i32::from_le_bytes([a, b, c, d]);
                let function = return_address.wrapping_add_signed(offset.into());
                Some(self.jumps_to(function).unwrap_or(function))
            }
            _ => None,
        }
    }

    /// Where an entry of a PLT jumps to: `jmp *slot(%rip)`, perhaps with a prefix, behind an `endbr64`.
    fn jumps_to(&self, entry: u64) -> Option<u64> {
        const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
        const BND: u8 = 0xf2;
        let code: [u8; 11] = self.bytes(entry)?;
        let mut at = if code.starts_with(&ENDBR64) { 4 } else { 0 };
        at += usize::from(code[at] == BND);
        match code[at..] {
            [0xff, 0x25, a, b, c, d, ..] => self.behind(entry + at as u64 + 6, [a, b, c, d]),
            _ => None,
        }
    }

    /// What a slot holds that is this far from an address.
    fn behind(&self, address: u64, offset: [u8; 4]) -> Option<u64> {
        let slot = address.wrapping_add_signed(i32::from_le_bytes(offset).into());
        self.bytes(slot).map(u64::from_le_bytes)
    }

    fn bytes<const N: usize>(&self, address: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        (self.memory.read_exact_at(&mut bytes, address).ok()).map(|()| bytes)
    }
}

impl Rules for &Images {
    fn rule(&self, pc: u64, exact: bool) -> Rule {
        let module = self.at(remote_unwind::lookup(pc, exact));
        module.map_or(Rule::NOWHERE, |m| m.rule(pc, exact))
    }

    fn full_step(
        &self,
        registers: &mut AllRegisters,
        exact: bool,
        read: &mut dyn FnMut(u64) -> Option<u64>,
    ) -> Option<bool> {
        let module = self.at(remote_unwind::lookup(registers.state().0, exact))?;
        module.full_step(registers, exact, read)
    }

    fn generation(&self) -> u32 {
        1
    }
}

// SAFETY: no part of the stack is named as one that could be read directly.
unsafe impl ReadStack for &Images {
    fn read(&mut self, address: u64) -> Option<u64> {
        self.bytes(address).map(u64::from_le_bytes)
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
pub(super) struct Functions {
    /// Start, end and name.
    ranges: Vec<(u64, u64, String)>,
}

impl Functions {
    /// Those of a module, read from its file as the process sees it.
    pub(super) fn of(pid: Pid, module: &Module) -> Option<Functions> {
        let cache = ReadCache::new(exec::open_mapped(pid, &module.path).ok()?);
        let file = object::File::parse(&cache).ok()?;
        let mut ranges: Vec<_> = file
            .dynamic_symbols()
            .filter(|s| s.is_definition() && s.size() > 0)
            .filter_map(|s| {
                let start = module.bias.in_process(Svma(s.address()));
                Some((start, start + s.size(), s.name().ok()?.to_owned()))
            })
            .collect();
        ranges.sort_unstable();
        Some(Functions { ranges })
    }

    /// The names of the functions at an address.
    pub(super) fn at(&self, address: u64) -> impl Iterator<Item = &str> {
        let end = self.ranges.partition_point(|r| r.0 <= address);
        // No exported function of libc is so large that 64 others begin inside of it.
        let candidates = &self.ranges[end.saturating_sub(64)..end];
        candidates
            .iter()
            .filter(move |r| address < r.1)
            .map(|r| r.2.as_str())
    }
}
