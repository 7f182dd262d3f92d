//! Names of code made at run time: the `/tmp/perf-PID.map` files that V8 (`node --perf-basic-prof`),
//! CPython (`-X perf`), JVM agents and others write for perf. One line a function: start, size, name.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::time::SystemTime;

/// Lines read of one file. Above, something is wrong with it.
const MOST_LINES: usize = 8_000_000;
const LONGEST_LINE: u64 = 1 << 16;

/// The functions of one process, sorted by start.
#[derive(Debug, Default)]
pub struct JitMap {
    functions: Vec<JitFunction>,
}

#[derive(Debug)]
struct JitFunction {
    start: u64,
    end: u64,
    name: Box<str>,
}

impl JitMap {
    /// Reads a map; `None` when there is none, or when it is older than `not_before` and so belongs
    /// to an earlier process of that number.
    pub fn open(path: &Path, not_before: Option<SystemTime>) -> Option<JitMap> {
        let meta = std::fs::symlink_metadata(path).ok()?;
        if !meta.is_file() {
            return None;
        }
        if let (Some(limit), Ok(modified)) = (not_before, meta.modified())
            && modified < limit
        {
            return None;
        }
        Some(JitMap::read(BufReader::new(File::open(path).ok()?)))
    }

    fn read(mut reader: impl BufRead) -> JitMap {
        let mut functions = Vec::new();
        let mut line = Vec::new();
        for _ in 0..MOST_LINES {
            line.clear();
            match std::io::Read::take(&mut reader, LONGEST_LINE).read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => break,
                Ok(_) => functions.extend(parse(&line)),
            }
        }
        // Code is recompiled over freed code: of entries with one start the last one is true.
        functions.reverse();
        functions.sort_by_key(|function: &JitFunction| function.start);
        functions.dedup_by_key(|function| function.start);
        JitMap { functions }
    }

    /// The function that contains an address.
    pub fn find(&self, address: u64) -> Option<&str> {
        let after = self.functions.partition_point(|f| f.start <= address);
        let function = &self.functions[after.checked_sub(1)?];
        (address < function.end).then_some(&*function.name)
    }
}

fn parse(line: &[u8]) -> Option<JitFunction> {
    let line = String::from_utf8_lossy(line);
    let mut words = line.trim_end().splitn(3, ' ');
    let mut hex = || u64::from_str_radix(words.next()?.trim_start_matches("0x"), 16).ok();
    let (start, size) = (hex()?, hex()?);
    let name = words.next()?.into();
    Some(JitFunction {
        start,
        end: start.checked_add(size)?,
        name,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_entry_for_an_address_counts_and_garbage_is_skipped() {
        let map = JitMap::read(
            &b"1000 40 LazyCompile:*old /a.js:1\nnonsense\n\xff\xfe 1 2\n0x2000 10 with space\n1000 20 new\n"[..],
        );
        assert_eq!(map.find(0x1000), Some("new"));
        assert_eq!(map.find(0x101f), Some("new"));
        assert_eq!(map.find(0x1020), None);
        assert_eq!(map.find(0x200f), Some("with space"));
        assert_eq!(map.find(0xfff), None);
    }
}
