//! Names of native functions in a fetched trace, from what the build has left of them: an app has stripped
//! libraries.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use stackbeat_symbolize::{FilesOfBuilds, NameSources, Options, Symbolizer, Wanted};

use crate::commands::trace_content::Content;
use crate::user_folders::symbol_cache;
use crate::{terminal, units};

/// What names were found.
struct Found {
    /// Libraries of the trace that the folder has.
    libraries: usize,
    /// Of so many that the trace knows.
    of_libraries: usize,
    /// Addresses that have a name now.
    addresses: usize,
}

/// The libraries, or dSYMs, below a folder. `hint` says what they are and where a build leaves them.
pub(super) fn read(folder: &Path, hint: &str) -> Result<Arc<FilesOfBuilds>> {
    let files = FilesOfBuilds::below(folder)
        .with_context(|| format!("{}: cannot be read", folder.display()))?;
    if files.is_empty() {
        bail!("{}: has no {hint}", folder.display());
    }
    Ok(Arc::new(files))
}

/// Adds the names to a trace. What the device has found for the same libraries gives way to them.
fn add(trace: &Path, files: &Arc<FilesOfBuilds>) -> Result<Found> {
    let failed = || format!("{}: names cannot be added", trace.display());
    let content = Content::read(trace).with_context(failed)?;
    let symbolizer = Symbolizer::new(Options {
        files_of_builds: Arc::clone(files),
        sources: NameSources {
            cache: symbol_cache(false),
            ..NameSources::default()
        },
        ..Options::default()
    });
    let (mut known, mut all) = (BTreeSet::new(), BTreeSet::new());
    let mut wanted = Wanted::default();
    for query in &content.queries {
        let module = (content.modules).at(query.upid, Some(query.epoch), query.inside());
        let Some(module) = module else { continue };
        all.insert(&module.file);
        if files.get(&module.file.build_id).is_some() {
            known.insert(&module.file);
            wanted.add(&content.modules, query);
        }
    }
    for (upid, object) in &content.waited_for {
        let module = content.modules.at(*upid, None, *object);
        if module.is_some_and(|module| files.get(&module.file.build_id).is_some()) {
            wanted.add_variable(&content.modules, *upid, *object);
        }
    }
    let mut names = Vec::new();
    let report = symbolizer.symbolize(wanted, &mut |_| true, &mut |found| names.push(found));
    // Sources of Python are those of the device, not of this machine.
    content.add(trace, [], &names).with_context(failed)?;
    Ok(Found {
        libraries: known.len(),
        of_libraries: all.len(),
        addresses: report.named,
    })
}

/// Adds the names, and says what came of it.
pub(super) fn add_and_say(trace: &Path, files: &Arc<FilesOfBuilds>) -> Result<()> {
    let found = add(trace, files)?;
    terminal::say(&format!(
        "{} of {} libraries are in the folder: {} addresses have their names of them",
        found.libraries,
        found.of_libraries,
        units::count(found.addresses as u64)
    ));
    Ok(())
}
