//! What a process says of itself in the trace: its executable, its command line, and what works in it and
//! what does not.

use super::capture::{self, ThreadWriter};
use super::tls;
use super::{own_stack, registered, registered_now, scratch, session};
use crate::cycles::Cycles;
use crate::platform;
use crate::shm::buffer::{self, Writer};
use crate::shm::mapping::Mapping;
use crate::shm::record_format::{self, RecordBuffer, TEXT_PART_BYTES, TextKind};
use core::fmt::Write;
use core::sync::atomic::Ordering;
use std::string::String;

/// Notes the executable, the path that it was started by and the command line.
pub(super) fn write_texts(mapping: &'static Mapping) {
    write(mapping, |writer, record, now| {
        let mut part = [0u8; TEXT_PART_BYTES];
        if let Ok(path) = platform::read_link(c"/proc/self/exe", &mut part) {
            let words = record_format::write_text(TextKind::Executable, 0, path, record);
            capture::append(writer, record, words, now);
        }
        let words =
            record_format::write_text(TextKind::StartedAs, 0, platform::started_as(), record);
        capture::append(writer, record, words, now);
        if let Ok(fd) = platform::open(c"/proc/self/cmdline", libc::O_RDONLY, 0) {
            // A command line may have megabytes; what tells a person which it was is at its beginning.
            const MOST_PARTS: usize = 4;
            let mut offset = 0;
            for _ in 0..MOST_PARTS {
                let length = platform::read(fd, &mut part).unwrap_or(0);
                session::count_own_read(length);
                if length == 0 {
                    break;
                }
                let text = part.get(..length).unwrap_or(&[]);
                let words = record_format::write_text(TextKind::CommandLine, offset, text, record);
                capture::append(writer, record, words, now);
                offset += length;
            }
            platform::close(fd);
        }
    });
}

/// Notes something that the process' entry in the trace is to say: what works in it and what does not.
/// At most [`TEXT_PART_BYTES`].
pub fn say(text: &[u8]) {
    let Some(mapping) = session::mapping() else {
        return;
    };
    if registered_now().is_none() {
        return;
    }
    let text = text.get(..TEXT_PART_BYTES).unwrap_or(text);
    write(mapping, |writer, record, now| {
        let words = record_format::write_text(TextKind::Capability, 0, text, record);
        capture::append(writer, record, words, now);
    });
}

/// A text for [`say`]: a list of names, cut after the last one that has room. Allocates.
pub fn list(head: &str, names: &[&str]) -> String {
    /// For ", and 123 more".
    const REST: usize = 16;
    let mut text = String::from(head);
    for (i, name) in names.iter().enumerate() {
        if text.len() + name.len() + 2 + REST > TEXT_PART_BYTES {
            let _ = write!(text, ", and {} more", names.len() - i);
            break;
        }
        let separator = if i == 0 { "" } else { ", " };
        let _ = write!(text, "{separator}{name}");
    }
    text.truncate(TEXT_PART_BYTES);
    text
}

/// Lets a registered thread write records that are no samples.
fn write(
    mapping: &'static Mapping,
    mut records: impl FnMut(&ThreadWriter, &mut RecordBuffer, Cycles),
) {
    own_stack::run(|_| write_here(mapping, &mut records));
}

fn write_here(
    mapping: &'static Mapping,
    records: &mut impl FnMut(&ThreadWriter, &mut RecordBuffer, Cycles),
) {
    let block = tls::block();
    let Some((entry, _)) = registered(block) else {
        return;
    };
    let Some(_guard) = capture::Guard::enter(block) else {
        return;
    };
    // SAFETY: the guard is held.
    let Some(scratch) = (unsafe { scratch::scratch(block) }) else {
        return;
    };
    let control = mapping.control();
    let generation = control.generation.load(Ordering::Acquire);
    buffer::begin_capture(entry, generation);
    let writer: ThreadWriter = Writer {
        pool: mapping,
        entry,
        index: block.entry_index.load(Ordering::Relaxed),
        upid: session::upid(),
        mode: session::mode(control),
        generation,
    };
    records(&writer, &mut scratch.record, session::now());
    buffer::end_capture(entry);
}
