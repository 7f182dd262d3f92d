//! The processes that an attached one has started before: found by their parents, attached to one by one like
//! itself. What they start from then on, their agents follow by themselves.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use stackbeat_core::ids::Pid;

use super::attach::{self, Target};
use super::procfs;
use super::sharing::give;
use crate::host::Whose;
use crate::session::attach_error::AttachError;
use crate::session::error::Warning;
use crate::session::options::Descendants;
use crate::session::storage::Storage;

/// Searches for more: each finds what those that were not attached to yet have started meanwhile.
const ROUNDS: usize = 16;

/// The living descendants of a process, without this one and its own.
pub(super) fn of(pid: Pid) -> Vec<Pid> {
    let mut children: HashMap<Pid, Vec<Pid>> = HashMap::new();
    for (child, parent) in procfs::parents(..) {
        children.entry(parent).or_default().push(child);
    }
    let mut found = children.remove(&pid).unwrap_or_default();
    let mut next = 0;
    while let Some(process) = found.get(next).copied() {
        if process == Pid(std::process::id()) {
            found.swap_remove(next);
            continue;
        }
        found.extend(children.remove(&process).unwrap_or_default());
        next += 1;
    }
    found
}

/// Attaches to all descendants of `target`. The mapping is `target`'s again afterwards.
pub(super) fn attach(
    target: &Target,
    allow_seccomp: bool,
    agent: &Path,
    storage: &Storage,
    session: &Path,
    warn: &mut dyn FnMut(Warning),
) -> Descendants {
    let name = storage.path.file_name().unwrap_or_default();
    let mut all = Descendants::default();
    let mut met = HashSet::new();
    for _ in 0..ROUNDS {
        let mut is_complete = true;
        for pid in of(target.pid) {
            // Children of those that take part already take part from their fork on.
            if !met.insert(pid)
                || procfs::identify(pid, name.as_encoded_bytes(), Pid(0)) == Whose::Ours
            {
                continue;
            }
            is_complete = false;
            let attempt = Target::examine(pid, allow_seccomp).and_then(|descendant| {
                give(storage, &descendant)?;
                attach::attach(&descendant, agent, session)
            });
            match attempt {
                Ok(attach_step) => {
                    all.attached += 1;
                    all.longest_pause = all.longest_pause.max(attach_step.pause);
                }
                // Gone meanwhile.
                Err(
                    AttachError::Ended { .. }
                    | AttachError::Zombie { .. }
                    | AttachError::NoSuchProcess { .. },
                ) => {}
                // As a child does that was met between fork and exec.
                Err(AttachError::Executed { .. }) => drop(met.remove(&pid)),
                Err(error) => warn(Warning::NotAttached(error.to_string())),
            }
        }
        if is_complete {
            break;
        }
    }
    // The first process may start programs, which open the mapping anew.
    if let Err(error) = give(storage, target) {
        warn(Warning::NotAttached(error.to_string()));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process;
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Command, Stdio};

    #[test]
    fn descendants_are_found_through_their_parents() {
        let mut shell = Command::new("sh")
            .args([
                "-c",
                "sh -c 'sleep 600 & echo $!; wait' & read x; kill $!; wait",
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let mut line = String::new();
        let mut said = BufReader::new(shell.stdout.take().expect("piped"));
        said.read_line(&mut line).expect("says its grandchild");
        let grandchild = Pid(line.trim().parse().expect("a pid"));
        let found = of(Pid(shell.id()));
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!(found[1], grandchild);
        assert!(of(grandchild).is_empty());
        assert!(!of(Pid(1)).contains(&Pid(std::process::id())));
        let _ = shell.stdin.take().map(|mut i| i.write_all(b"x\n"));
        let grandchild = process::Pid::from_raw(grandchild.0.cast_signed()).expect("a pid");
        process::kill_process(grandchild, process::Signal::KILL).expect("this test's");
        shell.wait().expect("ends");
    }
}
