//! The plain walk along saved frame pointers, for code that keeps them.

use super::{Frames, Registers, StackBounds, StackWalker, WalkEnd};

/// Follows the chain {saved frame pointer, return address} of x86-64 and AArch64.
#[derive(Debug, Default)]
pub struct FramePointerWalker;

// SAFETY: there are no bytes.
unsafe impl StackWalker for FramePointerWalker {
    fn walk(
        &mut self,
        registers: &Registers,
        bounds: &StackBounds,
        _exact_leaf: bool,
        out: &mut Frames,
    ) -> WalkEnd {
        if !out.push(registers.pc) {
            return WalkEnd::Depth;
        }
        let mut fp = registers.fp;
        let mut above = registers.sp;
        loop {
            if fp == 0 {
                return WalkEnd::Root;
            }
            // A frame lies outside of the one it called.
            if fp < above {
                return WalkEnd::Unknown;
            }
            let (Some(next), Some(address)) = (bounds.read(fp), bounds.read(fp.wrapping_add(8)))
            else {
                return WalkEnd::Unknown;
            };
            if address == 0 {
                return WalkEnd::Root;
            }
            if !out.push(address) {
                return WalkEnd::Depth;
            }
            above = fp.wrapping_add(16);
            fp = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walk(words: &[u64], fp: u64, limit: usize) -> (std::vec::Vec<u64>, WalkEnd) {
        // SAFETY: `words` outlives the bounds.
        let bounds = unsafe {
            let view = core::slice::from_raw_parts(words.as_ptr().cast::<u8>(), words.len() * 8);
            StackBounds::of_copy(0x7000, view)
        };
        let mut frames = Frames::new(limit);
        let registers = Registers {
            pc: 1,
            sp: 0x7000,
            fp,
            ..Registers::default()
        };
        let end = FramePointerWalker.walk(&registers, &bounds, true, &mut frames);
        (frames.addresses().to_vec(), end)
    }

    #[test]
    fn a_chain_is_followed_to_its_root() {
        let words = [0x7010, 2, 0x7020, 3, 0, 4];
        assert_eq!(
            walk(&words, 0x7000, 10),
            (std::vec![1, 2, 3, 4], WalkEnd::Root)
        );
    }

    #[test]
    fn the_limit_cuts() {
        let words = [0x7010, 2, 0x7020, 3, 0, 4];
        assert_eq!(walk(&words, 0x7000, 2), (std::vec![1, 2], WalkEnd::Depth));
    }

    #[test]
    fn loops_and_wild_pointers_end_the_walk() {
        let words = [0x7000, 2, 0, 0];
        assert_eq!(
            walk(&words, 0x7000, 10),
            (std::vec![1, 2], WalkEnd::Unknown)
        );
        let words = [0xdead_beef_0000, 2];
        assert_eq!(
            walk(&words, 0x7000, 10),
            (std::vec![1, 2], WalkEnd::Unknown)
        );
        assert_eq!(walk(&words, 0x7001, 10), (std::vec![1], WalkEnd::Unknown));
    }
}
