//! From a module's unwind tables to a rule.
//!
//! `.eh_frame_hdr` leads to the FDE of an address, gimli runs the FDE's program to the row in force
//! there, and the row becomes a rule when it speaks about pc, sp and the frame pointer only.
//! Expressions are evaluated symbolically, so that a PLT entry (whose CFA depends on the pc), a
//! signal frame and a function that realigns its stack become rules like others.
//!
//! Pure: tables and an address in, a rule out. Nothing here allocates; gimli's context lies on the
//! stack and is kept small (about 3 KB) because that stack may be an alternate signal stack.

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, Encoding, EndianSlice, FrameDescriptionEntry,
    LittleEndian, Operation, Register, RegisterRule, UnwindContext, UnwindContextStorage,
    UnwindExpression, UnwindSection, UnwindTableRow,
};

use super::rule::{Kind, Rule};

/// The bytes of a section and the address at which the program sees its first one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Section<'a> {
    /// Its content; empty: there is no such section.
    pub bytes: &'a [u8],
    /// Address of the first byte.
    pub address: u64,
}

/// The unwind tables of a module.
#[derive(Clone, Copy, Debug)]
pub struct Tables<'a> {
    /// `.eh_frame_hdr` and what follows it in its segment.
    pub header: Section<'a>,
    /// `.eh_frame` and what follows it in its segment.
    pub frames: Section<'a>,
}

/// DWARF numbers of the registers that rules speak about.
#[derive(Clone, Copy, Debug)]
pub struct RegisterNumbers {
    /// Program counter.
    pub pc: Register,
    /// Stack pointer.
    pub sp: Register,
    /// Frame pointer: rbp, x29.
    pub fp: Register,
    /// The return address; on aarch64 the link register.
    pub ra: Register,
    /// True when the return address stays in a register until it is saved (aarch64).
    pub link_register: bool,
}

impl RegisterNumbers {
    /// System V ABI for AMD64, figure 3.36.
    pub const X86_64: RegisterNumbers = RegisterNumbers {
        pc: Register(16),
        sp: Register(7),
        fp: Register(6),
        ra: Register(16),
        link_register: false,
    };
    /// DWARF for the Arm 64-bit architecture, section 4.1.
    pub const AARCH64: RegisterNumbers = RegisterNumbers {
        pc: Register(32),
        sp: Register(31),
        fp: Register(29),
        ra: Register(30),
        link_register: true,
    };
    /// Those of the processor this is compiled for.
    pub const NATIVE: RegisterNumbers = if cfg!(target_arch = "aarch64") {
        RegisterNumbers::AARCH64
    } else {
        RegisterNumbers::X86_64
    };
}

/// Gimli's storage on the stack. A row of x86-64 or aarch64 names at most 17 registers plus the
/// vector ones that aarch64 saves; programs with `remember_state` nest once, rarely twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SmallStorage;

impl UnwindContextStorage<usize> for SmallStorage {
    type Rules = [(Register, RegisterRule<usize>); 24];
    type Stack = [UnwindTableRow<usize, Self>; 3];
}

pub(super) type Row = UnwindTableRow<usize, SmallStorage>;
pub(super) type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// The address of `.eh_frame` that a `.eh_frame_hdr` names.
pub fn frames_address(header: &Section<'_>) -> Option<u64> {
    let bases = BaseAddresses::default().set_eh_frame_hdr(header.address);
    let parsed = EhFrameHdr::new(header.bytes, LittleEndian)
        .parse(&bases, 8)
        .ok()?;
    parsed.eh_frame_ptr().direct().ok()
}

impl<'a> Tables<'a> {
    /// Finds the table row in force at `address` and hands it to `use_row`. `None`: no table
    /// describes the address.
    pub(super) fn with_row<T>(
        &self,
        address: u64,
        use_row: impl FnOnce(&Row, &EhFrame<Slice<'a>>, Encoding, bool) -> T,
    ) -> Option<T> {
        let (fde, frames, bases) = self.fde(address)?;
        let mut context = UnwindContext::<usize, SmallStorage>::new_in();
        let row = fde
            .unwind_info_for_address(&frames, &bases, &mut context, address)
            .ok()?;
        Some(use_row(
            row,
            &frames,
            fde.cie().encoding(),
            fde.is_signal_trampoline(),
        ))
    }

    /// The entry that describes an address, with what it takes to read on.
    #[allow(clippy::type_complexity)]
    fn fde(
        &self,
        address: u64,
    ) -> Option<(
        FrameDescriptionEntry<Slice<'a>>,
        EhFrame<Slice<'a>>,
        BaseAddresses,
    )> {
        let bases = BaseAddresses::default()
            .set_eh_frame_hdr(self.header.address)
            .set_eh_frame(self.frames.address);
        let header = EhFrameHdr::new(self.header.bytes, LittleEndian)
            .parse(&bases, 8)
            .ok()?;
        let mut frames = EhFrame::new(self.frames.bytes, LittleEndian);
        frames.set_address_size(8);
        let fde = header
            .table()?
            .fde_for_address(&frames, &bases, address, EhFrame::cie_from_offset)
            .ok()?;
        Some((fde, frames, bases))
    }

    /// The rule at an address. `lookup` is the address to look up: the pc of an exact frame, the
    /// byte before a return address otherwise; `pc` is what the pc register holds.
    pub fn rule(&self, lookup: u64, pc: u64, numbers: &RegisterNumbers) -> Rule {
        self.with_row(lookup, |row, frames, encoding, signal| {
            let mut symbols = Symbols { pc, numbers };
            symbols
                .rule(row, frames, encoding, signal)
                .unwrap_or(Rule::COMPLEX)
        })
        .unwrap_or_else(|| {
            // A return address that is the first byte of a function was put there by hand: the root
            // of a stack that `makecontext` or the like has made.
            if lookup != pc && self.begins_function(pc) {
                Rule::END
            } else {
                Rule::UNKNOWN
            }
        })
    }

    fn begins_function(&self, address: u64) -> bool {
        self.fde(address)
            .is_some_and(|(fde, ..)| fde.initial_address() == address)
    }
}

/// What an expression may yield for a rule to come out of it. With all registers at hand every value
/// is a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Symbol {
    Constant(i64),
    Sp(i64),
    Fp(i64),
    /// The word at sp + n.
    AtSp(i64),
    /// The word at fp + n.
    AtFp(i64),
}

/// Where expressions take registers and memory from.
pub(super) trait Values {
    /// A register's value plus an offset.
    fn register(&mut self, register: Register, offset: i64) -> Option<Symbol>;
    /// The word at a value.
    fn word_at(&mut self, address: Symbol) -> Option<Symbol>;
}

/// Symbols for sp and fp; only the pc is known.
struct Symbols<'s> {
    pc: u64,
    numbers: &'s RegisterNumbers,
}

impl Values for Symbols<'_> {
    fn register(&mut self, register: Register, offset: i64) -> Option<Symbol> {
        if register == self.numbers.sp {
            Some(Symbol::Sp(offset))
        } else if register == self.numbers.fp {
            Some(Symbol::Fp(offset))
        } else if register == self.numbers.pc {
            Some(Symbol::Constant((self.pc as i64).wrapping_add(offset)))
        } else {
            None
        }
    }

    fn word_at(&mut self, address: Symbol) -> Option<Symbol> {
        match address {
            Symbol::Sp(n) => Some(Symbol::AtSp(n)),
            Symbol::Fp(n) => Some(Symbol::AtFp(n)),
            _ => None,
        }
    }
}

impl Symbols<'_> {
    /// The rule that a row amounts to; `None`: more registers are needed than a rule knows.
    fn rule(
        &mut self,
        row: &Row,
        frames: &EhFrame<Slice<'_>>,
        encoding: Encoding,
        signal: bool,
    ) -> Option<Rule> {
        let ra_rule = row.register(self.numbers.ra);
        if matches!(ra_rule, Some(RegisterRule::Undefined)) {
            return Some(Rule::END);
        }
        let fp_rule = row.register(self.numbers.fp);
        let cfa = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => self.register(*register, *offset)?,
            CfaRule::Expression(expression) => evaluate(expression, frames, encoding, self)?,
        };
        // Where a register was saved, if it was.
        let mut slot = |rule: Option<RegisterRule<usize>>| match rule {
            None | Some(RegisterRule::SameValue | RegisterRule::Undefined) => Some(None),
            Some(RegisterRule::Offset(offset)) => Some(Some(Saved::AtCfa(offset))),
            Some(RegisterRule::Expression(expression)) => Some(Some(Saved::At(evaluate(
                &expression,
                frames,
                encoding,
                self,
            )?))),
            Some(_) => None,
        };
        match cfa {
            Symbol::Sp(base) | Symbol::Fp(base) => {
                let kind = match cfa {
                    Symbol::Sp(_) => Kind::Sp,
                    _ => Kind::Fp,
                };
                // An expression's slot is relative to its register: turn it into one from the CFA.
                let from_cfa = |saved: Option<Saved>| match saved {
                    None => Some(None),
                    Some(Saved::AtCfa(offset)) => Some(Some(offset)),
                    Some(Saved::At(Symbol::Sp(n))) if kind == Kind::Sp => Some(Some(n - base)),
                    Some(Saved::At(Symbol::Fp(n))) if kind == Kind::Fp => Some(Some(n - base)),
                    Some(Saved::At(_)) => None,
                };
                let fp = from_cfa(slot(fp_rule)?)?;
                let ra = from_cfa(slot(ra_rule)?)?;
                if ra.is_none() && !self.numbers.link_register {
                    return Some(Rule::END);
                }
                Rule::new(kind, base, fp, ra)
            }
            Symbol::AtSp(base) if signal => {
                let at_sp = |saved: Option<Saved>| match saved {
                    Some(Saved::At(Symbol::Sp(n))) => Some(n),
                    _ => None,
                };
                let fp = at_sp(slot(fp_rule)?)?;
                let ra = at_sp(slot(ra_rule)?)?;
                Rule::new(Kind::Signal, base, Some(fp), Some(ra))
            }
            Symbol::AtFp(base) => {
                let fp = match slot(fp_rule)? {
                    None => None,
                    Some(Saved::At(Symbol::Fp(n))) => Some(n),
                    Some(_) => return None,
                };
                let Some(Saved::AtCfa(ra)) = slot(ra_rule)? else {
                    return None;
                };
                Rule::new(Kind::FpIndirect, base, fp, Some(ra))
            }
            _ => None,
        }
    }
}

/// Runs an expression. The operations are those that compilers, linkers and glibc write into unwind
/// tables.
pub(super) fn evaluate(
    expression: &UnwindExpression<usize>,
    frames: &EhFrame<Slice<'_>>,
    encoding: Encoding,
    values: &mut impl Values,
) -> Option<Symbol> {
    let expression = expression.get(frames).ok()?;
    let mut stack = [Symbol::Constant(0); 8];
    let mut depth = 0;
    let mut operations = expression.operations(encoding);
    while let Some(operation) = operations.next().ok()? {
        let result = match operation {
            Operation::RegisterOffset {
                register, offset, ..
            } => values.register(register, offset)?,
            Operation::UnsignedConstant { value } => Symbol::Constant(value as i64),
            Operation::SignedConstant { value } => Symbol::Constant(value),
            Operation::PlusConstant { value } => {
                depth = usize::checked_sub(depth, 1)?;
                add(stack[depth], Symbol::Constant(value as i64))?
            }
            Operation::Deref {
                size: 8,
                space: false,
                ..
            } => {
                depth = usize::checked_sub(depth, 1)?;
                values.word_at(stack[depth])?
            }
            Operation::Plus
            | Operation::Minus
            | Operation::And
            | Operation::Shl
            | Operation::Ge => {
                depth = usize::checked_sub(depth, 2)?;
                binary(&operation, stack[depth], stack[depth + 1])?
            }
            _ => return None,
        };
        *stack.get_mut(depth)? = result;
        depth += 1;
    }
    stack.get(usize::checked_sub(depth, 1)?).copied()
}

/// Where a row says a register was saved.
#[derive(Clone, Copy)]
enum Saved {
    AtCfa(i64),
    At(Symbol),
}

fn add(a: Symbol, b: Symbol) -> Option<Symbol> {
    Some(match (a, b) {
        (Symbol::Constant(a), Symbol::Constant(b)) => Symbol::Constant(a.wrapping_add(b)),
        (Symbol::Sp(a), Symbol::Constant(b)) | (Symbol::Constant(a), Symbol::Sp(b)) => {
            Symbol::Sp(a.wrapping_add(b))
        }
        (Symbol::Fp(a), Symbol::Constant(b)) | (Symbol::Constant(a), Symbol::Fp(b)) => {
            Symbol::Fp(a.wrapping_add(b))
        }
        _ => return None,
    })
}

fn binary(operation: &Operation<Slice<'_>>, a: Symbol, b: Symbol) -> Option<Symbol> {
    if *operation == Operation::Plus {
        return add(a, b);
    }
    let Symbol::Constant(constant) = b else {
        return None;
    };
    if *operation == Operation::Minus {
        return add(a, Symbol::Constant(constant.wrapping_neg()));
    }
    let Symbol::Constant(a) = a else {
        return None;
    };
    Some(Symbol::Constant(match operation {
        Operation::And => a & constant,
        Operation::Ge => (a >= constant) as i64,
        Operation::Shl => a.checked_shl(u32::try_from(constant).ok()?).unwrap_or(0),
        _ => return None,
    }))
}
