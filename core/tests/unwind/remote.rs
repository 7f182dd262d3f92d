//! The same unwinder over another process, as a sampler outside would use it: modules from
//! `/proc/PID/maps` and their files, stack words from `/proc/PID/mem`.

use std::fs::File;
use std::os::unix::fs::FileExt;

use stackbeat_core::address::{Bias, Svma};
use stackbeat_core::unwind::cfi::{RegisterNumbers, Section, Tables, frames_address};
use stackbeat_core::unwind::elf;
use stackbeat_core::unwind::full::{self, AllRegisters};
use stackbeat_core::unwind::rule::Rule;
use stackbeat_core::unwind::walk::{ReadStack, Rules};

/// A loaded file of the process.
struct Module {
    start: u64,
    end: u64,
    /// The segment with the unwind tables: its address in the process, and its bytes.
    tables: (u64, Vec<u8>),
    header: u64,
}

pub struct Process {
    memory: File,
    modules: Vec<Module>,
    /// The main thread's stack.
    stack: (u64, u64),
}

impl Process {
    pub fn open(pid: u32) -> Process {
        let memory = File::open(format!("/proc/{pid}/mem")).expect("its memory can be read");
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("it runs");
        let mut modules = Vec::new();
        let mut stack = (0, 0);
        let mut read = |address, buffer: &mut [u8]| memory.read_exact_at(buffer, address).is_ok();
        for line in maps.lines() {
            let mut fields = line.split_whitespace();
            let range = fields.next().unwrap_or_default();
            let offset = fields.nth(1).unwrap_or_default();
            let (start, end) = range.split_once('-').expect("a range");
            let start = u64::from_str_radix(start, 16).expect("an address");
            if line.ends_with("[stack]") {
                stack = (start, u64::from_str_radix(end, 16).expect("an address"));
            }
            if u64::from_str_radix(offset, 16) != Ok(0) {
                continue;
            }
            let Some((headers, count)) = elf::program_headers(&mut read, start) else {
                continue;
            };
            let Some(image) = elf::image(&mut read, headers, count) else {
                continue;
            };
            let bias = Bias::between(start, Svma(image.start.0 & !4095));
            let mut bytes = vec![0; image.tables.memory_bytes as usize];
            let at = bias.in_process(image.tables.address);
            if memory.read_exact_at(&mut bytes, at).is_ok() {
                modules.push(Module {
                    start: bias.in_process(image.start),
                    end: bias.in_process(image.end),
                    tables: (at, bytes),
                    header: bias.in_process(image.eh_frame_header),
                });
            }
        }
        Process {
            memory,
            modules,
            stack,
        }
    }

    fn tables(&self, address: u64) -> Option<Tables<'_>> {
        let module = self
            .modules
            .iter()
            .find(|m| m.start <= address && address < m.end)?;
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

/// The address to look up for a pc.
fn lookup(pc: u64, exact: bool) -> u64 {
    if exact { pc } else { pc.wrapping_sub(1) }
}

impl Rules for &Process {
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

// SAFETY: every address can be asked for.
unsafe impl ReadStack for &Process {
    fn read(&mut self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.memory.read_exact_at(&mut bytes, address).ok()?;
        Some(u64::from_le_bytes(bytes))
    }

    fn own(&self) -> (u64, u64) {
        (self.stack.0, self.stack.1 - self.stack.0)
    }

    unsafe fn read_own(&self, address: u64) -> u64 {
        let mut process = *self;
        process.read(address).unwrap_or(0)
    }
}
