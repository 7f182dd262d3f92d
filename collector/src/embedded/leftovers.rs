//! What sessions inside programs leave when their process is killed or becomes another program: the mapping,
//! and a trace that was begun. Whoever comes next completes the trace in its place.

use std::fs;
use std::path::{Path, PathBuf};

use stackbeat_core::sync::Ordering;
use stackbeat_symbolize::{NameSources, paths};

use crate::recover::leftovers::Abandoned;
use crate::recover::{self, LastWait, RecoverOptions};
use crate::session::storage;

/// A trace that was completed.
#[derive(Clone, Debug)]
pub struct Completed {
    /// The trace, in its place.
    pub trace: PathBuf,
    /// The process that had begun it.
    pub pid: u32,
    /// Records in it.
    pub records: u64,
    /// Records that are lost.
    pub lost: u64,
    /// Records that newer ones have overwritten in a ring.
    pub overwritten: u64,
    /// Threads that waited when the process died.
    pub last_waits: Vec<LastWait>,
}

/// Completes the traces of this user's sessions inside programs whose process is gone. Their mappings are
/// where shared memory is, or in `folder`. What cannot be completed stays for `recover`.
pub fn complete(folder: Option<&Path>, symbolize: bool) -> Vec<Completed> {
    let mut folders = storage::default_folders();
    folders.extend(folder.map(Path::to_path_buf));
    let mappings = folders
        .iter()
        .flat_map(|f| recover::leftovers::of_embedded(f));
    mappings
        .filter_map(|one| complete_one(&one, symbolize))
        .collect()
}

fn complete_one(one: &Abandoned, symbolize: bool) -> Option<Completed> {
    let Abandoned {
        mapping,
        pid,
        trace,
        ..
    } = one;
    // Beside it, so that it can take its place at once.
    let mut aside = trace.as_os_str().to_owned();
    aside.push(format!(".{}.part", std::process::id()));
    let aside = PathBuf::from(aside);
    remove_parts(trace);
    let options = RecoverOptions {
        overwrite: true,
        keep_mapping: true,
        symbolize,
        names: NameSources::default(),
    };
    let found = recover::recover(mapping, &aside, &options);
    let found = found.and_then(|found| {
        fs::rename(&aside, trace).map_err(|source| recover::RecoverError::Write {
            path: trace.clone(),
            source,
        })?;
        Ok(found)
    });
    match found {
        Ok(found) => {
            let _ = fs::remove_file(mapping);
            Some(Completed {
                trace: trace.clone(),
                pid: *pid,
                records: found.records_from_trace + found.records_from_mapping,
                lost: found.records_lost - found.records_overwritten,
                overwritten: found.records_overwritten,
                last_waits: found.last_waits,
            })
        }
        Err(_) => {
            let _ = fs::remove_file(&aside);
            None
        }
    }
}

/// What those have left who were killed while they completed the same trace. Nobody else does so now: its
/// mapping is locked.
fn remove_parts(trace: &Path) {
    let name = trace.file_name().unwrap_or_default().as_encoded_bytes();
    let folder = trace.parent().unwrap_or(Path::new("/"));
    let is_part = |path: &PathBuf| {
        let file = path.file_name().unwrap_or_default().as_encoded_bytes();
        let pid = file
            .strip_prefix(name)
            .and_then(|rest| rest.strip_prefix(b".")?.strip_suffix(b".part"));
        pid.is_some_and(|pid| !pid.is_empty() && pid.iter().all(u8::is_ascii_digit))
    };
    for part in paths::files_of(folder).iter().filter(|path| is_part(path)) {
        let _ = fs::remove_file(part);
    }
}

/// The image before this one has recorded into `output`: gives this one another, `NAME.2.beat` and so on.
pub(super) fn number_output(output: &mut PathBuf, previous: &Path) {
    let Some(mapping) = recover::open_read_only(previous) else {
        return;
    };
    if mapping.header().collector_pid.load(Ordering::Relaxed) != std::process::id() {
        return;
    }
    let stem = output.file_stem().unwrap_or_default().to_owned();
    let ending = output.extension().map(|e| e.to_owned());
    let numbered = (2u32..).map(|n| {
        let mut name = stem.clone();
        name.push(format!(".{n}"));
        if let Some(ending) = &ending {
            name.push(".");
            name.push(ending);
        }
        output.with_file_name(name)
    });
    // One that was there before the recording is left alone.
    if let Some(free) = numbered.into_iter().find(|path| !path.exists()) {
        *output = free;
    }
}
