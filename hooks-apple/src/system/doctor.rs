//! What became of each hook, for the trace: who misses something in it can tell whether the app did not do it
//! or no hook was there. The form is that of Android's hooks.
//!
//! ```text
//! apple: 131 of 133 hooks in place
//! apple, by slots: read, write, …
//! apple, not available: this system does not have os_sync_wait_on_address, …
//! apple, called by no loaded image: lockf, …
//! apple, not seen: calls inside the dyld shared cache, which pass no slot
//! ```

use stackbeat_core::agent;

use super::{foundation, library, malloc_logger, run_loop, syscall_logger};
use crate::rebind::Rebinder;

/// Lines for [`agent::say`], after hooks were placed. `incomplete`: images whose slots could not all be
/// found.
pub fn lines(rebinder: &Rebinder, incomplete: usize) -> Vec<String> {
    let (called, not_called) = rebinder.called();
    let missing = rebinder.missing();
    let wanted = called.len() + missing.len();
    let mut lines = vec![format!(
        "apple: {} of {wanted} hooks in place",
        called.len()
    )];
    for (head, names) in [
        ("by slots: ", &*called),
        ("not available: this system does not have ", missing),
        ("called by no loaded image: ", &not_called),
    ] {
        if !names.is_empty() {
            lines.push(agent::list(&format!("apple, {head}"), names));
        }
    }
    if incomplete > 0 {
        lines.push(format!(
            "apple, not available: pointers in data, or signed ones, of {incomplete} images"
        ));
    }
    if !library::knows_callers() {
        lines.push(
            "apple, not available: how long dlopen takes, because this system has no dlopen_from"
                .to_owned(),
        );
    }
    let of_others = [
        (
            malloc_logger::LOGGER.is_placed(),
            "by malloc_logger: all allocations",
            "not available: malloc_logger, which another tool has; allocations are seen by slots",
        ),
        (
            syscall_logger::LOGGER.is_placed(),
            "by __syscall_logger: memory that is mapped and unmapped",
            "not available: __syscall_logger, which another tool has; mmap is seen by slots",
        ),
        (
            run_loop::is_placed(),
            "by observers: iterations of run loops, those of other threads once they enter theirs",
            "not available: iterations of run loops, because CoreFoundation is not loaded",
        ),
    ];
    for (is_placed, how, why_not) in of_others {
        lines.push(format!("apple, {}", if is_placed { how } else { why_not }));
    }
    let methods = foundation::METHODS.iter().chain(&run_loop::METHODS);
    let (placed, missing): (Vec<_>, Vec<_>) = methods.partition(|method| method.is_placed());
    for (head, methods) in [("by methods: ", placed), ("not available: ", missing)] {
        if !methods.is_empty() {
            let names: Vec<_> = methods.iter().map(|method| method.name).collect();
            lines.push(agent::list(&format!("apple, {head}"), &names));
        }
    }
    lines
        .push("apple, not seen: calls inside the dyld shared cache, which pass no slot".to_owned());
    lines
}
