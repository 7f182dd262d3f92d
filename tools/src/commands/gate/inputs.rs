//! Which traces make up a side.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// The traces that folders, patterns and files stand for, each once, in order.
pub fn traces(flag: &str, inputs: &[String]) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for input in inputs {
        let path = Path::new(input);
        if path.is_dir() {
            let mut inside = in_folder(path)?;
            if inside.is_empty() {
                bail!("{flag} {input}: no .beat file in this folder");
            }
            found.append(&mut inside);
        } else if path.exists() {
            found.push(path.to_owned());
        } else {
            let pattern = glob::glob(input).with_context(|| format!("{flag} {input}"))?;
            let before = found.len();
            for path in pattern.filter_map(|path| path.ok()) {
                match path.is_dir() {
                    true => found.append(&mut in_folder(&path)?),
                    false => found.push(path),
                }
            }
            if found.len() == before {
                bail!(
                    "{flag} {input}: no such file, and no trace matches; give a folder of traces, traces, \
                     or a pattern in quotes"
                );
            }
        }
    }
    found.sort();
    found.dedup();
    Ok(found)
}

/// The traces in a folder and in the folders in it.
pub fn in_folder(folder: &Path) -> Result<Vec<PathBuf>> {
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
        for name in ["a.beat", "b.beat", "notes.txt", "evening/c.beat"] {
            std::fs::write(at(name), "").expect("is written");
        }
        let text = |name: &str| at(name).display().to_string();
        let found = |inputs: &[String]| traces("--baseline", inputs).expect("are found");
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
}
