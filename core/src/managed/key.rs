//! What identifies a method: a hash of what it says of itself, because addresses say nothing.

/// A method's identity.
#[derive(Debug)]
pub(super) struct Key(pub(super) u64);

impl Key {
    pub(super) fn new() -> Key {
        Key(0x9e37_79b9_7f4a_7c15)
    }

    /// Multiplies into 128 bits and folds.
    #[inline]
    pub(super) fn add(&mut self, word: u64) {
        let wide = u128::from(self.0 ^ word) * u128::from(0xa076_1d64_78bd_642f_u64);
        self.0 = (wide ^ wide >> 64) as u64 ^ self.0.rotate_left(23);
    }

    pub(super) fn finish(mut self) -> u64 {
        self.add(0);
        self.0.max(1)
    }
}
