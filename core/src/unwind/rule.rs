//! Unwind rules: how to get from one frame to its caller, packed into one word.
//!
//! A rule is derived once per code address (see `cfi`) and kept in the rule cache (see `cache`). It
//! speaks about three registers only: pc, sp and the frame pointer. What needs more than that is
//! `Kind::Complex` and is evaluated with the whole register file (see `complex`).
//!
//! ```text
//!   bits 0..4   kind
//!        4..26  base    offset that gives the CFA, in words, signed
//!       26..45  fp      slot of the caller's frame pointer, in words, signed; NO_SLOT: unchanged
//!       45..64  ra      slot of the return address, in words, signed; NO_SLOT: in the link register
//! ```

/// What a rule does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// No rule: the value of an empty cache slot.
    None = 0,
    /// CFA = sp + base; slots relative to the CFA.
    Sp = 1,
    /// CFA = fp + base; slots relative to the CFA.
    Fp = 2,
    /// The outermost frame: its return address is undefined on purpose.
    End = 3,
    /// A signal frame: sp, fp and pc are read from sp + base, sp + fp, sp + ra. The pc found is
    /// exact, not a return address.
    Signal = 4,
    /// CFA = *(fp + base), fp slot relative to fp: a function that realigns its stack.
    FpIndirect = 5,
    /// Needs other registers: evaluated from the tables each time.
    Complex = 6,
    /// Code of a module that no table describes (assembly without CFI).
    Unknown = 7,
    /// Code of no module (JIT code), or no code at all.
    Nowhere = 8,
    /// Could not be found out at this moment: ends a walk, is never stored.
    NotNow = 9,
}

/// A packed rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule(u64);

const BASE_BITS: u32 = 22;
const SLOT_BITS: u32 = 19;
const NO_SLOT: i64 = -(1 << (SLOT_BITS - 1));

impl Rule {
    /// No rule, see [`Kind::None`].
    pub const NONE: Rule = Rule(0);
    /// The outermost frame, see [`Kind::End`].
    pub const END: Rule = Rule(Kind::End as u64);
    /// See [`Kind::Complex`].
    pub(crate) const COMPLEX: Rule = Rule(Kind::Complex as u64);
    /// See [`Kind::Unknown`].
    pub const UNKNOWN: Rule = Rule(Kind::Unknown as u64);
    /// See [`Kind::Nowhere`].
    pub const NOWHERE: Rule = Rule(Kind::Nowhere as u64);
    /// See [`Kind::NotNow`].
    #[cfg_attr(
        not(any(target_os = "linux", target_os = "android")),
        allow(dead_code, reason = "generated code is not looked up there")
    )]
    pub(crate) const NOT_NOW: Rule = Rule(Kind::NotNow as u64);
    /// The frame-pointer chain of x86-64 and aarch64: saved fp at fp, return address above it.
    pub const FRAME_POINTER: Rule = match Rule::new(Kind::Fp, 16, Some(-16), Some(-8)) {
        Some(rule) => rule,
        None => unreachable!(),
    };

    /// Packs a rule from byte offsets; `None` when one is no multiple of 8 or does not fit.
    pub const fn new(kind: Kind, base: i64, fp: Option<i64>, ra: Option<i64>) -> Option<Rule> {
        if base % 8 != 0 || base / 8 < -(1 << (BASE_BITS - 1)) || base / 8 >= 1 << (BASE_BITS - 1) {
            return None;
        }
        let (Some(fp), Some(ra)) = (slot(fp), slot(ra)) else {
            return None;
        };
        let base = (base / 8) as u64 & ((1 << BASE_BITS) - 1);
        Some(Rule(
            kind as u64 | base << 4 | fp << (4 + BASE_BITS) | ra << (4 + BASE_BITS + SLOT_BITS),
        ))
    }

    /// The word that the cache stores.
    pub const fn to_word(self) -> u64 {
        self.0
    }

    /// A rule from a word that `to_word` gave.
    pub const fn from_word(word: u64) -> Rule {
        Rule(word)
    }

    /// What the rule does.
    #[inline(always)]
    pub const fn kind(self) -> Kind {
        match self.0 & 15 {
            1 => Kind::Sp,
            2 => Kind::Fp,
            3 => Kind::End,
            4 => Kind::Signal,
            5 => Kind::FpIndirect,
            6 => Kind::Complex,
            7 => Kind::Unknown,
            8 => Kind::Nowhere,
            9 => Kind::NotNow,
            _ => Kind::None,
        }
    }

    /// `Kind::Sp` or `Kind::Fp`: nearly all rules. One comparison, where `kind` is a jump table.
    #[inline(always)]
    pub const fn is_common(self) -> bool {
        (self.0 & 15).wrapping_sub(1) < 2
    }

    /// CFA = sp + base, return address right below it, frame pointer unchanged: what most of them are.
    #[inline(always)]
    pub const fn is_simple(self) -> bool {
        const SIMPLE: u64 = match Rule::new(Kind::Sp, 0, None, Some(-8)) {
            Some(rule) => rule.0,
            None => unreachable!(),
        };
        const BASE: u64 = ((1 << BASE_BITS) - 1) << 4;
        self.0 & !BASE == SIMPLE
    }

    /// Whether a common rule starts from the frame pointer.
    #[inline(always)]
    pub const fn is_from_fp(self) -> bool {
        self.0 & 15 == Kind::Fp as u64
    }

    /// Bytes to add to the base register.
    #[inline(always)]
    pub const fn base(self) -> i64 {
        (((self.0 << (64 - 4 - BASE_BITS)) as i64) >> (64 - BASE_BITS)) << 3
    }

    /// Offset of the saved frame pointer in bytes, if the frame saved it.
    #[inline(always)]
    pub const fn fp(self) -> Option<i64> {
        let words = ((self.0 << SLOT_BITS) as i64) >> (64 - SLOT_BITS);
        if words == NO_SLOT {
            None
        } else {
            Some(words << 3)
        }
    }

    /// Offset of the return address in bytes; `None`: it is in the link register.
    #[inline(always)]
    pub const fn ra(self) -> Option<i64> {
        let words = (self.0 as i64) >> (64 - SLOT_BITS);
        if words == NO_SLOT {
            None
        } else {
            Some(words << 3)
        }
    }
}

/// A slot's field, or `None` when the offset cannot be packed.
const fn slot(offset: Option<i64>) -> Option<u64> {
    let words = match offset {
        None => NO_SLOT,
        Some(bytes) if bytes % 8 == 0 && bytes / 8 > NO_SLOT && bytes / 8 < -NO_SLOT => bytes / 8,
        Some(_) => return None,
    };
    Some(words as u64 & ((1 << SLOT_BITS) - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_survive_packing() {
        for kind in [Kind::Sp, Kind::Fp, Kind::Signal, Kind::FpIndirect] {
            for base in [-16_777_216, -8, 0, 8, 16, 4096, 16_777_208] {
                for fp in [None, Some(-2_097_144), Some(-16), Some(0), Some(2_097_144)] {
                    for ra in [None, Some(-2_097_144), Some(-8), Some(0), Some(168)] {
                        let rule = Rule::new(kind, base, fp, ra).expect("it fits");
                        assert_eq!(
                            (rule.kind(), rule.base(), rule.fp(), rule.ra()),
                            (kind, base, fp, ra)
                        );
                        assert_eq!(Rule::from_word(rule.to_word()), rule);
                        assert_ne!(rule.to_word(), 0);
                    }
                }
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        assert_eq!(Rule::new(Kind::Sp, 4, None, Some(-8)), None);
        assert_eq!(Rule::new(Kind::Sp, 16_777_216, None, Some(-8)), None);
        assert_eq!(Rule::new(Kind::Sp, 8, Some(-2_097_152), Some(-8)), None);
        assert_eq!(Rule::new(Kind::Sp, 8, None, Some(-3)), None);
    }
}
