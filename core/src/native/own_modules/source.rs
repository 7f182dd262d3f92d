//! Where a module's unwind tables and path come from: its file, else memory.

use core::ffi::CStr;
use core::sync::atomic::{AtomicUsize, Ordering};

use super::read_safely;
use crate::address::{Bias, Svma};
use crate::native::unwind_memory;
use crate::platform;
use crate::unwind::cfi::{Section, Tables, frames_address};
use crate::unwind::elf::Image;

/// Longest path that is kept (Linux' PATH_MAX).
const MAX_PATH: usize = 4096;
/// Tables larger than this are not copied from memory.
const MAX_COPY: u64 = 64 << 20;

/// The path under which a module's file can be opened.
pub(super) fn path(name: &CStr, start: u64) -> &'static CStr {
    let bytes = name.to_bytes();
    if is_vdso(start) || bytes.starts_with(b"linux-vdso") {
        return c"[vdso]";
    }
    if !bytes.is_empty() {
        return ARENA.copy(bytes).unwrap_or(c"");
    }
    // The program itself has no name in the dynamic linker's list.
    let Some(memory) = ARENA.take(MAX_PATH) else {
        return c"";
    };
    // SAFETY: fresh zeroed memory of that size.
    let buffer = unsafe { core::slice::from_raw_parts_mut(memory, MAX_PATH) };
    let _ = platform::read_link(c"/proc/self/exe", &mut buffer[..MAX_PATH - 1]);
    CStr::from_bytes_until_nul(buffer).unwrap_or(c"")
}

/// Calls `with` with a way to read a module's file, by offsets, if it can be opened.
pub(super) fn with_file(path: &CStr, with: impl FnOnce(&mut dyn FnMut(u64, &mut [u8]) -> bool)) {
    // A path may name anything by now: never block in a pipe or take a terminal.
    let flags = libc::O_RDONLY | libc::O_NOCTTY | libc::O_NONBLOCK;
    if let Ok(file) = platform::open(path, flags, 0) {
        with(&mut |offset, buffer| platform::read_at(file, buffer, offset));
        platform::close(file);
    }
}

fn is_vdso(start: u64) -> bool {
    // SAFETY: reads the auxiliary vector; takes no lock.
    unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) == start }
}

/// The unwind tables of an image: mapped from its file, or copied from memory.
pub(super) fn tables(image: &Image, bias: Bias, path: &CStr) -> Option<Tables<'static>> {
    if image.eh_frame_header == Svma(0) {
        return None;
    }
    let segment = image.tables;
    let bytes = map_tables(image, bias, path).or_else(|| {
        let size = segment.memory_bytes;
        let from = bias.in_process(segment.address);
        if size > MAX_COPY {
            return None;
        }
        let copy = unwind_memory::map_memory(size as usize);
        if copy.is_null() {
            return None;
        }
        // SAFETY: just mapped, that many bytes, used by nobody else.
        let copy = unsafe { core::slice::from_raw_parts_mut(copy, size as usize) };
        read_safely(from, copy).then_some(&*copy)
    })?;
    let at = |address: Svma| -> Option<Section<'static>> {
        let offset = usize::try_from(address.0.checked_sub(segment.address.0)?).ok()?;
        Some(Section {
            bytes: bytes.get(offset..)?,
            address: bias.in_process(address),
        })
    };
    let header = at(image.eh_frame_header)?;
    let frames = frames_address(&header)?;
    Some(Tables {
        header,
        frames: at(bias.in_file(frames))?,
    })
}

/// Maps the segment with the tables from the module's file, if that file is still the one that was
/// loaded: the whole `.eh_frame_hdr` prefix must equal what lies in memory.
fn map_tables(image: &Image, bias: Bias, path: &CStr) -> Option<&'static [u8]> {
    if !path.to_bytes().starts_with(b"/") {
        return None;
    }
    let segment = image.tables;
    // Pages are at most 64 KB (arm64).
    let skew = segment.file_offset % (64 << 10);
    let bytes = usize::try_from(segment.file_bytes + skew).ok()?;
    let mapped = unwind_memory::map_file(path, segment.file_offset - skew, bytes)?;
    // SAFETY: a read-only private mapping of that many bytes that lies inside the file.
    let mapped_bytes = unsafe { core::slice::from_raw_parts(mapped, bytes) };
    let tables = &mapped_bytes[skew as usize..];
    let offset = image.eh_frame_header.bytes_since(segment.address) as usize;
    let mut loaded = [0u8; 512];
    let length = loaded.len().min(tables.len().saturating_sub(offset));
    let from = bias.in_process(image.eh_frame_header);
    if read_safely(from, &mut loaded[..length])
        && tables[offset..offset + length] == loaded[..length]
    {
        return Some(tables);
    }
    // SAFETY: nothing refers to it.
    unsafe { platform::unmap(mapped, bytes) };
    None
}

/// Memory for modules and paths: only taken from, by the thread that holds `BUSY`.
pub(super) struct Arena {
    next: AtomicUsize,
    left: AtomicUsize,
}

pub(super) static ARENA: Arena = Arena {
    next: AtomicUsize::new(0),
    left: AtomicUsize::new(0),
};

impl Arena {
    const CHUNK: usize = 64 << 10;

    /// Fresh zeroed memory aligned to 16; `None` when there is none. At most `CHUNK` bytes.
    pub(super) fn take(&self, bytes: usize) -> Option<*mut u8> {
        let bytes = bytes.next_multiple_of(16);
        if bytes > Self::CHUNK {
            return None;
        }
        if self.left.load(Ordering::Relaxed) < bytes {
            let chunk = unwind_memory::map_memory(Self::CHUNK);
            if chunk.is_null() {
                return None;
            }
            self.next.store(chunk as usize, Ordering::Relaxed);
            self.left.store(Self::CHUNK, Ordering::Relaxed);
        }
        self.left.fetch_sub(bytes, Ordering::Relaxed);
        Some(self.next.fetch_add(bytes, Ordering::Relaxed) as *mut u8)
    }

    /// A copy with a NUL behind it.
    fn copy(&self, bytes: &[u8]) -> Option<&'static CStr> {
        let memory = self.take(bytes.len() + 1)?;
        // SAFETY: fresh zeroed memory of at least that size, written once.
        let copy = unsafe {
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), memory, bytes.len());
            core::slice::from_raw_parts(memory, bytes.len() + 1)
        };
        CStr::from_bytes_until_nul(copy).ok()
    }
}
