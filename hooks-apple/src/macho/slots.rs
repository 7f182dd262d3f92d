//! Slots.

/// Whether a symbol's slots are wanted, by its name with the underscore that C puts in front, and the
/// caller's number of it.
pub type Wanted<'a> = &'a dyn Fn(&[u8]) -> Option<usize>;

/// What a slot is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SlotKind {
    /// dyld fills it before the image's code runs.
    Eager,
    /// It may hold the address of a helper of the image until it is used.
    Lazy,
}

/// A key of pointer authentication, numbered as `fixup-chains.h` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key {
    /// Instructions, A.
    InstructionA,
    /// Instructions, B.
    InstructionB,
    /// Data, A.
    DataA,
    /// Data, B.
    DataB,
}

/// How a pointer in a slot is signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Authentication {
    /// The key.
    pub key: Key,
    /// Whether the slot's address is mixed into the discriminator.
    pub has_address: bool,
    /// The other part of the discriminator.
    pub diversity: u16,
}

/// A word that holds the address of an imported symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot {
    /// Where it is before the slide is added.
    pub address: u64,
    /// Which of the wanted symbols.
    pub symbol: usize,
    /// The library that it comes from: an ordinal, or one of dyld's special ones, which are not positive.
    pub library: i32,
    /// What is added to the symbol's address.
    pub addend: i64,
    /// What it is for.
    pub kind: SlotKind,
    /// How it is signed, on arm64e.
    pub authentication: Option<Authentication>,
}

/// What was found in an image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slots {
    /// Each address once, in ascending order.
    pub slots: Vec<Slot>,
    /// Pointers in data may be missing: only the indirect symbol table was at hand.
    pub without_data: bool,
}
