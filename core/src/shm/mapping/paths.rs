//! Paths in the header: of the trace, and of what events are written to as they happen.

use super::Mapping;
use crate::sync::{AtomicU64, Ordering};

impl Mapping {
    /// The trace that the collector writes, as kept for `recover`.
    pub fn trace_path(&self) -> std::vec::Vec<u8> {
        let mut bytes = [0; PATH_BYTES];
        load_path(&self.header().trace_path, &mut bytes).to_vec()
    }

    /// Keeps the trace's path for `recover`; false when it is too long.
    pub fn set_trace_path(&self, path: &[u8]) -> bool {
        store_path(path, &self.header().trace_path)
    }

    /// Where agents write events as they happen; `None`: nowhere. `buffer` holds the path, NUL padded.
    pub fn marker<'a>(&self, buffer: &'a mut [u8; PATH_BYTES]) -> Option<Marker<'a>> {
        let header = self.header();
        let path = load_path(&header.marker_path, buffer);
        (!path.is_empty()).then(|| Marker {
            path,
            device: header.marker_device.load(Ordering::Relaxed),
            inode: header.marker_inode.load(Ordering::Relaxed),
            is_pipe: header.marker_is_pipe.load(Ordering::Relaxed) == 1,
        })
    }

    /// Says where agents write events as they happen; false when the path is too long.
    pub fn set_marker(&self, marker: &Marker) -> bool {
        let header = self.header();
        for (word, value) in [
            (&header.marker_device, marker.device),
            (&header.marker_inode, marker.inode),
        ] {
            word.store(value, Ordering::Relaxed);
        }
        header
            .marker_is_pipe
            .store(marker.is_pipe.into(), Ordering::Relaxed);
        store_path(marker.path, &header.marker_path)
    }
}

/// Bytes of a path in the header, with a NUL at its end.
pub const PATH_BYTES: usize = 1024;

/// What events are written to as they happen: `layout::Header::marker_path` and what follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marker<'a> {
    /// Path to open.
    pub path: &'a [u8],
    /// Device of the file, which is checked after opening.
    pub device: u64,
    /// Inode of the file, checked likewise.
    pub inode: u64,
    /// A pipe stands in the place of `trace_marker`.
    pub is_pipe: bool,
}

fn load_path<'a>(words: &[AtomicU64], to: &'a mut [u8; PATH_BYTES]) -> &'a [u8] {
    for (bytes, word) in to.chunks_exact_mut(8).zip(words) {
        bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
    }
    let end = to.iter().position(|b| *b == 0).unwrap_or(0);
    to.get(..end).unwrap_or(&[])
}

fn store_path(path: &[u8], words: &[AtomicU64]) -> bool {
    if path.len() >= words.len() * 8 {
        return false;
    }
    for (i, word) in words.iter().enumerate() {
        let mut bytes = [0u8; 8];
        for (to, from) in bytes.iter_mut().zip(path.iter().skip(i * 8)) {
            *to = *from;
        }
        word.store(u64::from_le_bytes(bytes), Ordering::Relaxed);
    }
    true
}
