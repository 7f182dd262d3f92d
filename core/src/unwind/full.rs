//! A step with the whole register file, for the frames that a rule cannot describe: code whose CFA
//! hangs on another callee-saved register (glibc's lazy binding keeps it in rbx) or on an expression
//! that only hand-written assembly has.
//!
//! Slow (a table look-up each step) and rare. Pure like `cfi`.

use gimli::{CfaRule, EhFrame, Encoding, Register, RegisterRule};

use super::Registers;
use super::cfi::{RegisterNumbers, Row, Slice, Symbol, Tables, Values, evaluate};

/// Registers by their DWARF numbers, and which of them are known.
#[derive(Clone, Copy, Debug)]
pub struct AllRegisters {
    values: [u64; 33],
    known: u64,
}

impl AllRegisters {
    /// No register is known.
    pub const UNKNOWN: AllRegisters = AllRegisters {
        values: [0; 33],
        known: 0,
    };

    /// What a walk knows in any frame.
    pub fn of_state(pc: u64, sp: u64, fp: u64) -> AllRegisters {
        let mut all = AllRegisters::UNKNOWN;
        let numbers = RegisterNumbers::NATIVE;
        all.set(numbers.pc, Some(pc));
        all.set(numbers.sp, Some(sp));
        all.set(numbers.fp, Some(fp));
        all
    }

    /// What is known where a walk begins.
    pub fn of(registers: &Registers) -> AllRegisters {
        let mut all = AllRegisters::of_state(registers.pc, registers.sp, registers.fp);
        if RegisterNumbers::NATIVE.link_register {
            all.set(RegisterNumbers::NATIVE.ra, Some(registers.lr));
        } else if registers.saved != [0; 5] {
            for (number, value) in [3, 12, 13, 14, 15].into_iter().zip(registers.saved) {
                all.set(Register(number), Some(value));
            }
        }
        all
    }

    /// (pc, sp); 0 where not known.
    pub fn state(&self) -> (u64, u64) {
        let value = |register| self.get(register).unwrap_or(0);
        let numbers = RegisterNumbers::NATIVE;
        (value(numbers.pc), value(numbers.sp))
    }

    /// The frame pointer; 0 when it is not known.
    pub fn fp(&self) -> u64 {
        self.get(RegisterNumbers::NATIVE.fp).unwrap_or(0)
    }

    /// A register's value, if it is known.
    pub fn get(&self, register: Register) -> Option<u64> {
        let value = self.values.get(register.0 as usize)?;
        (self.known & 1 << register.0 != 0).then_some(*value)
    }

    /// Sets a register; `None`: no longer known.
    pub fn set(&mut self, register: Register, value: Option<u64>) {
        if let Some(place) = self.values.get_mut(register.0 as usize) {
            *place = value.unwrap_or(0);
            let bit = 1 << register.0;
            self.known = self.known & !bit | if value.is_some() { bit } else { 0 };
        }
    }
}

/// Concrete values for expressions.
struct Concrete<'a> {
    registers: &'a AllRegisters,
    read: &'a mut dyn FnMut(u64) -> Option<u64>,
}

impl Values for Concrete<'_> {
    fn register(&mut self, register: Register, offset: i64) -> Option<Symbol> {
        let value = self.registers.get(register)? as i64;
        Some(Symbol::Constant(value.wrapping_add(offset)))
    }

    fn word_at(&mut self, address: Symbol) -> Option<Symbol> {
        match address {
            Symbol::Constant(address) => {
                Some(Symbol::Constant((self.read)(address as u64)? as i64))
            }
            _ => None,
        }
    }
}

/// Goes to the caller: all registers as they will be there. `lookup` as in `Tables::rule`. The flag is
/// true when the frame was a signal's, so that the new pc is exact. `None`: a register that is needed
/// is not known, memory cannot be read, or there is no caller.
pub fn step(
    tables: &Tables<'_>,
    lookup: u64,
    numbers: &RegisterNumbers,
    registers: &mut AllRegisters,
    read: &mut dyn FnMut(u64) -> Option<u64>,
) -> Option<bool> {
    tables.with_row(lookup, |row, frames, encoding, signal| {
        let next = caller(row, frames, encoding, numbers, registers, read)?;
        *registers = next;
        Some(signal)
    })?
}

fn caller(
    row: &Row,
    frames: &EhFrame<Slice<'_>>,
    encoding: Encoding,
    numbers: &RegisterNumbers,
    registers: &AllRegisters,
    read: &mut dyn FnMut(u64) -> Option<u64>,
) -> Option<AllRegisters> {
    let constant = |symbol: Symbol| match symbol {
        Symbol::Constant(value) => Some(value as u64),
        _ => None,
    };
    let run = |expression, read: &mut dyn FnMut(u64) -> Option<u64>| {
        let mut values = Concrete { registers, read };
        evaluate(expression, frames, encoding, &mut values).and_then(constant)
    };
    let cfa = match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => {
            registers.get(*register)?.wrapping_add_signed(*offset)
        }
        CfaRule::Expression(expression) => run(expression, read)?,
    };
    let mut next = *registers;
    next.set(numbers.sp, Some(cfa));
    // The return address has no default: what is not saved stays in the link register or is unknown.
    let mut ra = registers.get(numbers.ra).filter(|_| numbers.link_register);
    for (register, rule) in row.registers() {
        let value = match rule {
            RegisterRule::Undefined => None,
            RegisterRule::SameValue => registers.get(*register),
            RegisterRule::Offset(offset) => read(cfa.wrapping_add_signed(*offset)),
            RegisterRule::ValOffset(offset) => Some(cfa.wrapping_add_signed(*offset)),
            RegisterRule::Register(other) => registers.get(*other),
            RegisterRule::Expression(expression) => run(expression, read).and_then(&mut *read),
            RegisterRule::ValExpression(expression) => run(expression, read),
            RegisterRule::Constant(value) => Some(*value),
            _ => None,
        };
        if *register == numbers.ra {
            ra = value;
        }
        next.set(*register, value);
    }
    next.set(numbers.pc, Some(super::strip(ra?)));
    Some(next)
}
