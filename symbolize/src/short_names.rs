//! Names of functions as people write them, and as short as the room asks for. Every view takes names from
//! here, so that a function has one name everywhere: [`simplify`] gives its full name, [`fit`] the one for a
//! width, [`fit_apart`] those of functions that would get one name.
//!
//! Both only read text. They know where C++ and Rust write brackets, and leave alone what they cannot follow.

mod apart;
mod brackets;
mod fit;
mod shape;
mod simplify;
mod width;

pub use apart::fit_apart;
pub use fit::fit;
pub use simplify::simplify;
pub use width::{beginning, ending, text_width, without_middle};

/// A place in a variable: `cache`, or `table+0x40`.
pub fn variable_name(name: &str, offset: u64) -> String {
    match offset {
        0 => simplify(name).into_owned(),
        offset => format!("{}+{offset:#x}", simplify(name)),
    }
}

/// Longer names, and those that nest deeper, stay as they are.
const LONGEST: usize = 8 << 10;
const MOST_NESTING: usize = 64;

#[cfg(test)]
mod tests;
