//! Line tables of methods, as runtimes encode them. For the collector.

use std::vec::Vec;

/// Decodes a line table: where a line begins, in bytes of the method's bytecode, ascending, and the line (0: none). Empty
/// for a format that is not known. `bytes` may be anything.
pub fn decode(_line_format: u8, _first_line: u32, _bytes: &[u8]) -> Vec<(u32, u32)> {
    Vec::new()
}
