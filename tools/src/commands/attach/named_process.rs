//! A running process by the name of its program.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Result, bail};

/// The only process whose program has this name.
pub(crate) fn find(command: &str, name: &str) -> Result<u32> {
    let own = std::process::id();
    let mut found: Vec<Named> = (processes().filter(|pid| *pid != own))
        .filter_map(|pid| named(pid, name))
        .collect();
    found.sort_by_key(|process| process.pid);
    match found.as_slice() {
        [] => {
            bail!(
                "{command} {name}: no process runs a program of this name; `pgrep -a .` lists all"
            )
        }
        [one] => Ok(one.pid),
        many => {
            const SHOWN: usize = 12;
            let mut text = format!(
                "{command} {name}: {} processes have this name; name one by its number (or a parent, with --children):",
                many.len()
            );
            for process in many.iter().take(SHOWN) {
                text += &format!("\n  {:>7}  {}", process.pid, process.command);
            }
            if many.len() > SHOWN {
                text += &format!("\n  and {} more", many.len() - SHOWN);
            }
            bail!(text)
        }
    }
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

struct Named {
    pid: u32,
    command: String,
}

/// The process, if its name, its executable or the first word of its command is this. Kernel threads and
/// processes that have ended have no command.
fn named(pid: u32, name: &str) -> Option<Named> {
    let at = |file: &str| format!("/proc/{pid}/{file}");
    let command = fs::read(at("cmdline")).ok()?;
    let words: Vec<&[u8]> = command.split(|byte| *byte == 0).collect();
    let first = words.first().filter(|word| !word.is_empty())?;
    let is_it = |path: &Path| path.file_name() == Some(OsStr::new(name));
    // The name of a process has 15 bytes at most (`TASK_COMM_LEN`, include/linux/sched.h).
    let is_named = fs::read_to_string(at("comm")).is_ok_and(|comm| comm.trim_end() == name)
        || is_it(Path::new(OsStr::from_bytes(first)))
        || fs::read_link(at("exe")).is_ok_and(|path| is_it(&path));
    is_named.then(|| {
        let words = words.iter().map(|word| String::from_utf8_lossy(word));
        let command = words.collect::<Vec<_>>().join(" ");
        Named {
            pid,
            command: crate::table::shorten(&crate::terminal::clean(command.trim_end()), 60),
        }
    })
}
