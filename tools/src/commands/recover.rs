//! `stackbeat recover`: the trace of a recording that was killed.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use serde::Serialize;
use stackbeat_collector::recover::leftovers::{self, Removed};
use stackbeat_collector::recover::{self, Orphan, RecoverError, RecoverOptions, RecoverySummary};
use stackbeat_symbolize::{NameSources, paths};

use crate::cli::RecoverArgs;
use crate::units::{self, plural};
use crate::{debuginfod, source_maps, terminal, user_folders};

/// Where sessions keep their shared memory.
const SHARED_MEMORY: &str = "/dev/shm";

/// Runs the command.
pub(crate) fn run(args: &RecoverArgs) -> Result<u8> {
    let Some(file) = &args.file else {
        return list(args.json);
    };
    let output = match &args.output {
        Some(path) => path.clone(),
        None => default_output(file),
    };
    let options = RecoverOptions {
        overwrite: args.force,
        keep_mapping: args.keep,
        symbolize: true,
        names: NameSources {
            root: None,
            cache: user_folders::symbol_cache(args.no_symbol_cache),
            debug: debuginfod::source(args.no_debuginfod),
            source_maps: source_maps::wanted(args.source_maps),
        },
    };
    let summary = match recover::recover(file, &output, &options) {
        Err(RecoverError::OutputExists { path }) => bail!(terminal::exists_already(&path)),
        summary => summary?,
    };
    if args.json {
        terminal::print_json(&Recovered::from(&summary))?;
    } else {
        terminal::print(&text(&summary))?;
    }
    Ok(0)
}

/// `app.beat` → `app.recovered.beat`, in the current folder when the source is shared memory.
fn default_output(file: &Path) -> PathBuf {
    let stem = file.file_stem().unwrap_or(file.as_os_str());
    let name = format!("{}.recovered.beat", stem.to_string_lossy());
    if file.starts_with(SHARED_MEMORY) {
        PathBuf::from(name)
    } else {
        file.with_file_name(name)
    }
}

#[derive(Serialize)]
struct Recovered {
    schema: &'static str,
    output: PathBuf,
    mapping: Option<PathBuf>,
    partial: Option<PathBuf>,
    records_written: u64,
    records_from_trace: u64,
    records_from_mapping: u64,
    records_lost: u64,
    records_overwritten: u64,
    damaged: u64,
    processes: u32,
    threads: u32,
    still_running: bool,
}

impl From<&RecoverySummary> for Recovered {
    fn from(s: &RecoverySummary) -> Recovered {
        Recovered {
            schema: "stackbeat.recover.v1",
            output: s.output.clone(),
            mapping: s.mapping.clone(),
            partial: s.partial.clone(),
            records_written: s.records_written,
            records_from_trace: s.records_from_trace,
            records_from_mapping: s.records_from_mapping,
            records_lost: s.records_lost,
            records_overwritten: s.records_overwritten,
            damaged: s.damaged,
            processes: s.processes,
            threads: s.threads,
            still_running: s.still_running,
        }
    }
}

fn text(s: &RecoverySummary) -> String {
    let mut out = String::new();
    let name = |p: &Option<PathBuf>| {
        p.as_ref()
            .map_or("none found".to_string(), |p| p.display().to_string())
    };
    let _ = writeln!(
        out,
        "{}: {} of {} records recovered, {}{} lost ({} processes, {} threads)",
        s.output.display(),
        s.records_from_trace + s.records_from_mapping,
        s.records_written,
        match s.records_overwritten {
            0 => String::new(),
            overwritten => format!("{overwritten} overwritten by newer ones, "),
        },
        s.records_lost - s.records_overwritten,
        s.processes,
        s.threads
    );
    let _ = writeln!(
        out,
        "  from the unfinished trace ({}): {}",
        name(&s.partial),
        s.records_from_trace
    );
    let _ = writeln!(
        out,
        "  from shared memory ({}): {}",
        name(&s.mapping),
        s.records_from_mapping
    );
    if s.damaged > 0 {
        let _ = writeln!(out, "  {} entries were damaged and left out", s.damaged);
    }
    if s.still_running {
        let _ = writeln!(
            out,
            "  the program still runs: the shared memory was left, recover again when it has ended"
        );
    }
    out
}

/// Which recordings to recover are said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Announced {
    /// All.
    All,
    /// Those that were not said before.
    #[cfg_attr(
        not(target_os = "linux"),
        expect(dead_code, reason = "`record` says them")
    )]
    Once,
}

/// Removes what recorders that were killed have left and nobody needs, and says so; and that there is
/// something to recover.
pub(crate) fn tidy(announced: Announced) {
    let found = leftovers::tidy(Path::new(SHARED_MEMORY), leftovers::YOUNG);
    let text = tidied(&found.removed);
    if !text.is_empty() {
        terminal::say(&text);
    }
    let kept: Vec<&Path> = (found.kept.iter())
        .map(|orphan| orphan.mapping.as_path())
        .collect();
    let list = paths::user_caches().map(|caches| caches.join("stackbeat"));
    let are_new = announced == Announced::All
        || list.is_none_or(|folder| are_new(&folder, &kept).unwrap_or(true));
    if are_new && !kept.is_empty() {
        let bytes = found.kept.iter().map(|orphan| orphan.bytes).sum();
        let count = found.kept.len() as u64;
        terminal::say(&format!(
            "stackbeat: {} of recorders that were killed {} {} of memory: see `stackbeat recover`",
            plural(count, "recording", "recordings"),
            if count == 1 { "takes" } else { "take" },
            units::bytes(bytes),
        ));
    }
}

/// Whether some of these recordings were not said before, by the list in a folder, which has them all
/// afterwards.
fn are_new(folder: &Path, kept: &[&Path]) -> Result<bool> {
    let list = folder.join("leftovers");
    let said = fs::read_to_string(&list).unwrap_or_default();
    let said: BTreeSet<&str> = said.lines().collect();
    let kept: BTreeSet<String> = kept.iter().map(|p| p.display().to_string()).collect();
    if said.iter().copied().eq(kept.iter().map(String::as_str)) {
        return Ok(false);
    }
    user_folders::private_folder(folder)?;
    fs::write(
        &list,
        Vec::from_iter(kept.iter().map(String::as_str)).join("\n"),
    )?;
    Ok(kept.iter().any(|name| !said.contains(&**name)))
}

fn tidied(removed: &[Removed]) -> String {
    let mut out = String::new();
    for file in removed {
        let _ = writeln!(
            out,
            "stackbeat: removed {} ({}), which a killed recorder left: {}",
            file.path.display(),
            units::bytes(file.bytes),
            file.reason
        );
    }
    out
}

fn list(json: bool) -> Result<u8> {
    let tidied = leftovers::tidy(Path::new(SHARED_MEMORY), leftovers::YOUNG).removed;
    let orphans = recover::orphans(Path::new(SHARED_MEMORY))?;
    if json {
        #[derive(Serialize)]
        struct Session {
            mapping: PathBuf,
            recorder_pid: u32,
            trace: PathBuf,
            bytes: u64,
            still_running: bool,
        }
        #[derive(Serialize)]
        struct File {
            path: PathBuf,
            bytes: u64,
            reason: &'static str,
        }
        let removed = tidied.into_iter().map(|f| File {
            path: f.path,
            bytes: f.bytes,
            reason: f.reason,
        });
        let removed: Vec<_> = removed.collect();
        let sessions: Vec<_> = orphans
            .into_iter()
            .map(|o| Session {
                mapping: o.mapping,
                recorder_pid: o.collector_pid,
                trace: o.trace,
                bytes: o.bytes,
                still_running: o.still_running,
            })
            .collect();
        terminal::print_json(&serde_json::json!({
            "schema": "stackbeat.recover-list.v1",
            "sessions": sessions,
            "removed": removed,
        }))?;
        return Ok(0);
    }
    terminal::print(&format!("{}{}", self::tidied(&tidied), list_text(&orphans)))?;
    Ok(0)
}

fn list_text(orphans: &[Orphan]) -> String {
    if orphans.is_empty() {
        return format!("nothing to recover in {SHARED_MEMORY}\n");
    }
    let mut out = String::new();
    for o in orphans {
        let when = match o.still_running {
            true => ", when the program has ended (it still runs)",
            false => "",
        };
        let _ = writeln!(
            out,
            "{}  {}  was recording into {} (pid {})\n  stackbeat recover {} -o saved.beat{when}",
            o.mapping.display(),
            units::bytes(o.bytes),
            o.trace.display(),
            o.collector_pid,
            o.mapping.display()
        );
    }
    let _ = writeln!(
        out,
        "To throw a recording away, remove its file in {SHARED_MEMORY}."
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_that_was_left_is_said_once() {
        let caches = tempfile::tempdir().expect("a folder");
        let folder = caches.path().join("stackbeat");
        let are_new = |names: &[&str]| {
            let kept: Vec<&Path> = names.iter().map(Path::new).collect();
            are_new(&folder, &kept).expect("is noted")
        };
        assert!(!are_new(&[]));
        assert!(!folder.exists());
        assert!(are_new(&["/dev/shm/stackbeat.1"]));
        assert!(!are_new(&["/dev/shm/stackbeat.1"]));
        assert!(are_new(&["/dev/shm/stackbeat.1", "/dev/shm/stackbeat.2"]));
        assert!(!are_new(&["/dev/shm/stackbeat.2"]));
        assert!(!are_new(&[]));
        // It is gone from the list.
        assert!(are_new(&["/dev/shm/stackbeat.1"]));
        // Where nothing can be noted it is said each time.
        let file = caches.path().join("file");
        fs::write(&file, "").expect("is written");
        assert!(super::are_new(&file, &[Path::new("/dev/shm/stackbeat.1")]).is_err());
    }
}
