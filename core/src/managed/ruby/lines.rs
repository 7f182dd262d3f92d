//! Lines of Ruby's code. Each entry of a list holds for the positions up to the next one. Which entry a
//! position has is said by a succinct index (`struct succ_index_table`, iseq.c): ranks of the first
//! positions, of 7 bits each, and behind them blocks with a bit for each position where an entry begins.

use super::MOST_WORDS;
use super::offsets::Offsets;
use crate::managed::memory::Memory;

/// Bytes of an entry (`struct iseq_insn_info_entry`), which begins with its line.
const ENTRY_BYTES: u64 = 12;
/// Positions whose rank is said, and how many of them a word has.
const IMMEDIATE: u32 = 54;
const PER_WORD: u32 = 9;
/// Of a block: its bytes, those before its bits, its positions.
const BLOCK_BYTES: u64 = 80;
const BLOCK_HEAD: u64 = 16;
const PER_BLOCK: u32 = 512;

/// Writes the line table of the code with this body and so many words, in the format
/// [`crate::managed::lines::format::PLAIN`]. Gives its bytes. `None`: it cannot be read, or is too long.
pub(super) fn read(
    memory: &mut impl Memory,
    offsets: &Offsets,
    body: u64,
    words: u32,
    to: &mut [u8],
) -> Option<usize> {
    let lines = memory.word(body.checked_add(offsets.lines)?)?;
    let count = memory.half(body.checked_add(offsets.lines_count)?)?;
    let index = memory.word(body.checked_add(offsets.lines_index)?)?;
    if lines == 0 || index == 0 || words > MOST_WORDS {
        return None;
    }
    let (mut used, mut rank, mut last) = (0, 0, None);
    for position in 0..words {
        let before = rank;
        rank = match position.checked_sub(IMMEDIATE) {
            None => {
                let word = index.checked_add(u64::from(position / PER_WORD) * 8)?;
                (memory.word(word)? >> (7 * (position % PER_WORD)) & 0x7f) as u32
            }
            Some(beyond) => rank + begins(memory, index, beyond)?,
        };
        if rank == before {
            continue;
        }
        let entry = u64::from(rank.checked_sub(1).filter(|entry| *entry < count)?);
        let line = memory.half(lines.checked_add(entry * ENTRY_BYTES)?)?;
        if last == Some(line) {
            continue;
        }
        last = Some(line);
        let pair = u64::from(position) | u64::from(line) << 32;
        to.get_mut(used..used + 8)?
            .copy_from_slice(&pair.to_le_bytes());
        used += 8;
    }
    Some(used)
}

/// 1: an entry begins at this position behind the immediate ones; 0: none does.
fn begins(memory: &mut impl Memory, index: u64, position: u32) -> Option<u32> {
    let blocks = u64::from(IMMEDIATE / PER_WORD) * 8;
    let block = blocks + u64::from(position / PER_BLOCK) * BLOCK_BYTES;
    let word = u64::from(position % PER_BLOCK / 64) * 8;
    let bits = memory.word(index.checked_add(block + BLOCK_HEAD + word)?)?;
    Some((bits >> (position % 64) & 1) as u32)
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::super::offsets::of_version;
    use super::*;
    use crate::managed::lines::{decode, format};
    use std::collections::HashMap;
    use std::vec;
    use std::vec::Vec;

    struct Words(HashMap<u64, u64>);

    impl Memory for Words {
        fn word(&mut self, address: u64) -> Option<u64> {
            Some(self.0.get(&address).copied().unwrap_or(0))
        }
    }

    /// Entries begin at these positions, on these lines. As `succ_index_table_create` writes it.
    fn code(words: u32, entries: &[(u32, u32)]) -> Words {
        const BODY: u64 = 0x1000;
        const LINES: u64 = 0x2000;
        const INDEX: u64 = 0x8000;

        let o = of_version((3, 1)).expect("is known");
        let mut memory = HashMap::from([
            (BODY + o.lines, LINES),
            (BODY + o.lines_count, entries.len() as u64),
            (BODY + o.lines_index, INDEX),
        ]);
        for (i, (_, line)) in (0..).zip(entries) {
            let at = LINES + i * ENTRY_BYTES;
            *memory.entry(at & !7).or_insert(0) |= u64::from(*line) << (8 * (at & 7));
        }
        for position in 0..words {
            let rank = entries
                .iter()
                .filter(|(begin, _)| *begin <= position)
                .count() as u64;
            let is_begin = entries.iter().any(|(begin, _)| *begin == position);
            let (at, bits) = match position.checked_sub(IMMEDIATE) {
                None => (u64::from(position / 9) * 8, rank << (7 * (position % 9))),
                Some(beyond) => (
                    48 + u64::from(beyond / 512) * 80 + 16 + u64::from(beyond % 512 / 64) * 8,
                    u64::from(is_begin) << (beyond % 64),
                ),
            };
            *memory.entry(INDEX + at).or_insert(0) |= bits;
        }
        Words(memory)
    }

    #[test]
    fn lines_are_those_of_the_index() {
        let o = of_version((3, 1)).expect("is known");
        let entries = [
            (0, 7),
            (5, 8),
            (9, 8),
            (53, 9),
            (54, 12),
            (565, 13),
            (566, 7),
            (1200, 20),
        ];
        let mut to = vec![0; 4096];
        let bytes = read(&mut code(1300, &entries), &o, 0x1000, 1300, &mut to).expect("is read");
        let expected: Vec<_> = entries
            .into_iter()
            .filter(|entry| *entry != (9, 8))
            .collect();
        assert_eq!(decode(format::PLAIN, 1, &to[..bytes]), expected);
        // There is no room.
        assert_eq!(
            read(&mut code(1300, &entries), &o, 0x1000, 1300, &mut to[..8]),
            None
        );
        // The index says more entries than there are.
        let mut wrong = code(60, &entries[..3]);
        wrong.0.insert(0x1000 + o.lines_count, 2);
        assert_eq!(read(&mut wrong, &o, 0x1000, 60, &mut to), None);
    }
}
