//! At the start of a process: which hooks the program will reach, and whether there is something behind
//! them. Each is checked by itself, and one that is out of reach costs the others nothing; what was found
//! goes into the trace.

use core::ffi::CStr;

use stackbeat_core::agent;

use crate::{hooked_functions, resolve};

/// Functions of a library that most programs do without: where it is not there, nothing is missing.
fn is_of_liburing(name: &str) -> bool {
    name.trim_start_matches('_').starts_with("io_uring_")
}

/// Says in the trace what is in place, and whether streams are read and written through hooks. Allocates from
/// the agent's own memory: only for the start.
pub(crate) fn report(sees_streams: bool) {
    let (mut in_place, mut wanted) = (0, 0);
    let mut absent = Vec::new();
    // The same library in most cases: an allocator, or the program itself.
    let mut behind: Vec<(&'static CStr, Vec<&str>)> = Vec::new();
    let all = hooked_functions::all();
    for name in all.iter().filter_map(hooked_functions::Function::name) {
        let Ok(text) = name.to_str() else { continue };
        let is_there = resolve::original(name, 0).is_some();
        if !is_there && is_of_liburing(text) {
            continue;
        }
        wanted += 1;
        if let Some(owner) = resolve::stands_before_us(name) {
            match behind.iter_mut().find(|(o, _)| *o == owner) {
                Some((_, names)) => names.push(text),
                None => behind.push((owner, vec![text])),
            }
        } else if is_there {
            in_place += 1;
        } else {
            absent.push(text);
        }
    }
    agent::say(format!("{in_place} of {wanted} hooks in place").as_bytes());
    if !sees_streams {
        agent::say(
            b"reads and writes of streams (stdio) are not seen: libc's tables could not be changed",
        );
    }
    for (owner, names) in behind {
        let owner = match owner.to_bytes() {
            // The loader has no name for the program itself.
            b"" => "the program itself".into(),
            path => String::from_utf8_lossy(path),
        };
        agent::say(agent::list(&format!("hidden by {owner}: "), &names).as_bytes());
    }
    if !absent.is_empty() {
        agent::say(agent::list("not in the program's libraries: ", &absent).as_bytes());
    }
}
