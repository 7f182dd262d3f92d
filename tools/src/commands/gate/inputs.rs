//! Which traces make up a side.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use stackbeat_model::{Trace, TraceError};

/// The traces of a side, each once, in order.
#[derive(Debug, Default)]
pub(super) struct Inputs {
    pub traces: Vec<PathBuf>,
    /// Files beside them that are called like traces and are none.
    pub others: Vec<TraceError>,
}

impl Inputs {
    /// Takes what was found in a folder or by a pattern.
    fn take(&mut self, files: Vec<PathBuf>) {
        for file in files {
            match Trace::check(&file) {
                Err(other @ TraceError::NotATrace { .. }) => self.others.push(other),
                _ => self.traces.push(file),
            }
        }
    }

    /// What is said of the files that are no traces.
    pub(super) fn warnings(&self) -> impl Iterator<Item = String> {
        self.others.iter().map(|other| format!("{other}; left out"))
    }
}

/// The traces that folders, patterns and files stand for.
///
/// # Errors
///
/// Nothing is found for one of the inputs, or nothing but files that are no traces. A file that is named is
/// not looked into.
pub(super) fn traces(flag: &str, inputs: &[String]) -> Result<Inputs> {
    let mut found = Inputs::default();
    for input in inputs {
        let path = Path::new(input);
        let (traces, others) = (found.traces.len(), found.others.len());
        if path.is_dir() {
            found.take(in_folder(path)?);
            if found.traces.len() == traces && found.others.len() == others {
                bail!("{flag} {input}: no .beat file in this folder");
            }
        } else if path.exists() {
            found.traces.push(path.to_owned());
        } else {
            let pattern = glob::glob(input).with_context(|| format!("{flag} {input}"))?;
            for path in pattern.filter_map(|path| path.ok()) {
                match path.is_dir() {
                    true => found.take(in_folder(&path)?),
                    false if path.is_file() => found.take(vec![path]),
                    false => found.traces.push(path),
                }
            }
            if found.traces.len() == traces && found.others.len() == others {
                bail!(
                    "{flag} {input}: no such file, and no trace matches; give a folder of traces, traces, \
                     or a pattern in quotes"
                );
            }
        }
        if found.traces.len() == traces
            && let Some(other) = found.others.get(others)
        {
            bail!("{flag} {input}: no trace among its files; {other}");
        }
    }
    found.traces.sort();
    found.traces.dedup();
    Ok(found)
}

/// The traces in a folder and in the folders in it.
pub(super) fn in_folder(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = |folder: &Path| -> Result<Vec<PathBuf>> {
        let context = || format!("{}: cannot be read", folder.display());
        let list = std::fs::read_dir(folder).with_context(context)?;
        list.map(|entry| Ok(entry.with_context(context)?.path()))
            .collect()
    };
    let is_trace = |path: &PathBuf| path.extension().is_some_and(|e| e == "beat") && path.is_file();
    let mut found = Vec::new();
    for path in entries(folder)? {
        if path.is_dir() {
            found.extend(entries(&path)?.into_iter().filter(is_trace));
        } else if is_trace(&path) {
            found.push(path);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_patterns_and_files() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir(at("evening")).expect("is made");
        let trace = stackbeat_model::synthetic::realistic();
        for name in ["a.beat", "b.beat", "notes.txt", "evening/c.beat"] {
            std::fs::write(at(name), &trace).expect("is written");
        }
        let text = |name: &str| at(name).display().to_string();
        let found = |inputs: &[String]| traces("--baseline", inputs).expect("are found").traces;
        assert_eq!(
            found(&[text("")]),
            [at("a.beat"), at("b.beat"), at("evening/c.beat")]
        );
        assert_eq!(
            found(&[text("?.beat"), text("a.beat")]),
            [at("a.beat"), at("b.beat")]
        );
        assert_eq!(found(&[text("even*")]), [at("evening/c.beat")]);
        for missing in ["x*.beat", "none.beat"] {
            let error = traces("--baseline", &[text(missing)]).expect_err("is missing");
            assert!(error.to_string().contains(missing), "{error}");
        }
    }

    #[test]
    fn what_is_no_trace_is_left_out_beside_traces() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("a.beat"), stackbeat_model::synthetic::realistic()).expect("is written");
        std::fs::write(at("b.beat"), "text").expect("is written");
        let text = |name: &str| at(name).display().to_string();
        for input in [text(""), text("*")] {
            let found = traces("--baseline", &[input]).expect("are found");
            assert_eq!(found.traces, [at("a.beat")]);
            let warnings: Vec<String> = found.warnings().collect();
            assert!(
                warnings[0].contains("b.beat is not a stackbeat trace"),
                "{warnings:?}"
            );
            assert_eq!(warnings.len(), 1);
        }
        // One that is named is wanted: reading it says why it cannot be had.
        let named = traces("--baseline", &[text("b.beat")]).expect("is named");
        assert_eq!((named.traces.len(), named.others.len()), (1, 0));

        std::fs::remove_file(at("a.beat")).expect("is removed");
        let error = traces("--baseline", &[text("")]).expect_err("no trace");
        let error = error.to_string();
        assert!(
            error.contains("no trace among its files") && error.contains("b.beat"),
            "{error}"
        );
    }
}
