//! Which commit each trace belongs to, and the order of the commits.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::git::{self, Repository};
use crate::cli::CommitOrder;

/// Folders in folders in which traces are looked for.
const DEEPEST: usize = 5;

/// A commit that was measured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Commit {
    /// The short hash, or the name that the traces give it.
    pub name: String,
    /// In full, when a repository knows it.
    pub hash: Option<String>,
    pub subject: String,
    pub time_unix: Option<u64>,
}

/// What orders the commits.
#[derive(Clone, Debug)]
pub(super) enum Order {
    Git(Repository),
    /// When the first run of each was started.
    Started,
}

/// A trace, as far as its commit is concerned.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub path: PathBuf,
    /// What `record --commit` was told; may be empty.
    pub recorded: String,
    pub started_unix_ns: u64,
}

/// Commits in order, and the commit of each source.
#[derive(Debug)]
pub(super) struct Measured {
    pub order: Order,
    pub commits: Vec<Commit>,
    pub of_source: Vec<usize>,
}

/// The traces in a folder and in the folders in it, in the order of their paths.
pub(super) fn traces(folder: &Path) -> Result<Vec<PathBuf>> {
    fn walk(folder: &Path, deep: usize, found: &mut Vec<PathBuf>) -> Result<()> {
        let context = || format!("{}: cannot be read", folder.display());
        for entry in std::fs::read_dir(folder).with_context(context)? {
            let path = entry.with_context(context)?.path();
            if path.is_dir() && deep < DEEPEST {
                walk(&path, deep + 1, found)?;
            } else if path.extension() == Some(OsStr::new("beat")) && path.is_file() {
                found.push(path);
            }
        }
        Ok(())
    }
    if folder.is_file() {
        bail!(
            "{}: is a file; give the folder that has the traces of all commits",
            folder.display()
        );
    }
    if !folder.is_dir() {
        bail!(
            "{}: no such folder; give the folder that has the traces of all commits",
            folder.display()
        );
    }
    let mut found = Vec::new();
    walk(folder, 0, &mut found)?;
    if found.is_empty() {
        bail!("{}: no .beat file in this folder", folder.display());
    }
    found.sort();
    Ok(found)
}

/// Assigns sources to commits. `repository` is what the user named.
pub(super) fn measured(
    folder: &Path,
    sources: &[Source],
    repository: Option<&Path>,
    order: CommitOrder,
) -> Result<Measured> {
    let is_guess = order == CommitOrder::Auto && repository.is_none();
    let names: Vec<Vec<String>> = sources.iter().map(|s| names(folder, s)).collect();
    let repository = match (order, repository) {
        (CommitOrder::Time, _) => None,
        (_, Some(path)) => Some(Repository::at(path).context("--repo")?),
        (CommitOrder::Git, None) => Some(Repository::at(folder).with_context(
            || "--order git: the folder lies in no repository; name one with --repo",
        )?),
        (CommitOrder::Auto, None) => Repository::at(folder).ok(),
    };
    let Some(repository) = repository else {
        return Ok(by_start(sources, &names));
    };
    let mut all: Vec<&str> = names.iter().flatten().map(String::as_str).collect();
    all.sort_unstable();
    all.dedup();
    let known = repository.commits(&all)?;
    let hash = |names: &Vec<String>| names.iter().find_map(|name| known.get(name)).cloned();
    let hashes: Vec<Option<String>> = names.iter().map(hash).collect();
    if let Some(at) = hashes.iter().position(Option::is_none) {
        if is_guess && hashes.iter().all(Option::is_none) {
            return Ok(by_start(sources, &names));
        }
        bail!(
            "{}: no commit or tag of {} stands in its path or its header ({}); record with --commit HASH, name \
             another repository with --repo, or give --order time",
            sources[at].path.display(),
            repository.folder().display(),
            names[at].join(", ")
        );
    }
    let hashes: Vec<String> = hashes.into_iter().flatten().collect();
    let mut distinct = hashes.clone();
    distinct.sort();
    distinct.dedup();
    let order = repository.in_order(&distinct)?;
    let notes = repository.notes(&order)?;
    let commits = order.iter().map(|hash| {
        let note = notes.get(hash).cloned().unwrap_or_default();
        Commit {
            name: note.short,
            hash: Some(hash.clone()),
            subject: note.subject,
            time_unix: Some(note.time_unix),
        }
    });
    let place: HashMap<&str, usize> = order.iter().map(String::as_str).zip(0..).collect();
    Ok(Measured {
        commits: commits.collect(),
        of_source: hashes.iter().map(|hash| place[hash.as_str()]).collect(),
        order: Order::Git(repository),
    })
}

fn by_start(sources: &[Source], names: &[Vec<String>]) -> Measured {
    // The recorded commit, or the first name of the path.
    let name = |at: usize| names[at].first().cloned().unwrap_or_default();
    let mut first: BTreeMap<String, u64> = BTreeMap::new();
    for (at, source) in sources.iter().enumerate() {
        let started = first.entry(name(at)).or_insert(u64::MAX);
        *started = source.started_unix_ns.min(*started);
    }
    let mut order: Vec<(u64, String)> = first.into_iter().map(|(name, at)| (at, name)).collect();
    order.sort();
    let place: HashMap<&str, usize> = order.iter().map(|(_, n)| n.as_str()).zip(0..).collect();
    Measured {
        of_source: (0..sources.len())
            .map(|at| place[name(at).as_str()])
            .collect(),
        commits: order
            .iter()
            .map(|(_, name)| Commit {
                name: name.clone(),
                ..Commit::default()
            })
            .collect(),
        order: Order::Started,
    }
}

/// What may be a source's commit, the likeliest first: what it was recorded with, the folders that it lies in
/// from the inside out, its own name; of names also the hashes in them.
fn names(folder: &Path, source: &Source) -> Vec<String> {
    if !source.recorded.is_empty() {
        return vec![source.recorded.clone()];
    }
    let inside = source.path.strip_prefix(folder).unwrap_or(&source.path);
    let parents = inside.parent().into_iter().flat_map(Path::components);
    let mut parts: Vec<String> = parts_of(parents);
    parts.reverse();
    let stem = inside.file_stem().unwrap_or_default().to_string_lossy();
    parts.push(without_number(&stem).to_string());
    let mut names = Vec::new();
    for part in parts {
        let tokens = part.split(|c: char| !c.is_ascii_alphanumeric());
        // `git describe` puts a g before the hash.
        let bare = tokens.map(|token| token.strip_prefix('g').unwrap_or(token));
        let hashes: Vec<String> = bare
            .filter(|token| git::is_hash(token) && *token != part)
            .map(String::from)
            .collect();
        names.push(part);
        names.extend(hashes);
    }
    names
}

fn parts_of<'a>(components: impl Iterator<Item = Component<'a>>) -> Vec<String> {
    components
        .filter_map(|c| match c {
            Component::Normal(name) => Some(name.to_string_lossy().into_owned()),
            _ => None,
        })
        .collect()
}

/// `abc1234-3` is the third run of `abc1234`.
fn without_number(stem: &str) -> &str {
    let bare = stem.trim_end_matches(|c: char| c.is_ascii_digit());
    match bare.strip_suffix(['-', '_', '.']) {
        Some(name) if bare.len() < stem.len() && !name.is_empty() => name,
        _ => stem,
    }
}

impl Measured {
    /// The place of the first commit that is not older than a named one.
    pub(super) fn since(&self, name: &str) -> Result<usize> {
        let is_it = |commit: &Commit| {
            let hash = commit.hash.as_deref().unwrap_or("");
            commit.name == name || git::is_hash(name) && hash.starts_with(name)
        };
        if let Some(at) = self.commits.iter().position(is_it) {
            return Ok(at);
        }
        let Order::Git(repository) = &self.order else {
            bail!("--since {name}: no trace is of this commit");
        };
        let hashes: Vec<String> = self.commits.iter().filter_map(|c| c.hash.clone()).collect();
        let known = repository.commits(&[name])?;
        let commit = known.get(name).with_context(|| {
            format!(
                "--since {name}: no commit or tag of {}",
                repository.folder().display()
            )
        })?;
        let after: HashSet<String> = repository.not_before(&hashes, commit)?;
        let is_after = |hash: &String| after.contains(hash) || hash == commit;
        Ok(hashes.iter().position(is_after).unwrap_or(hashes.len()))
    }

    /// How many commits lie after one that was measured, up to and with the next; 1 where that is not known.
    pub(super) fn distance(&self, from: usize, to: usize) -> usize {
        let hash = |at: usize| self.commits.get(at)?.hash.as_deref();
        match (&self.order, hash(from), hash(to)) {
            (Order::Git(repository), Some(from), Some(to)) => {
                repository.count_between(from, to).unwrap_or(1)
            }
            _ => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, recorded: &str, started_unix_ns: u64) -> Source {
        Source {
            path: path.into(),
            recorded: recorded.into(),
            started_unix_ns,
        }
    }

    #[test]
    fn a_path_names_its_commit() {
        let of = |path: &str| names(Path::new("runs"), &source(path, "", 0));
        assert_eq!(of("runs/abc1234/1.beat"), ["abc1234", "1"]);
        assert_eq!(of("runs/abc1234-12.beat"), ["abc1234"]);
        assert_eq!(
            of("runs/v1.2-7-gabc1234.beat"),
            ["v1.2-7-gabc1234", "abc1234"]
        );
        assert_eq!(
            of("runs/017-abc1234/sort/x.beat"),
            ["sort", "017-abc1234", "abc1234", "x"]
        );
        let recorded = source("runs/abc1234/1.beat", "feed123", 0);
        assert_eq!(names(Path::new("runs"), &recorded), ["feed123"]);
    }

    #[test]
    fn without_a_repository_the_first_start_orders() {
        let sources = [
            source("runs/new/1.beat", "", 30),
            source("runs/old/1.beat", "", 10),
            source("runs/old/2.beat", "", 40),
        ];
        let found = measured(Path::new("runs"), &sources, None, CommitOrder::Time).expect("orders");
        let names: Vec<&str> = found.commits.iter().map(|c| c.name.as_str()).collect();
        assert_eq!(names, ["old", "new"]);
        assert_eq!(found.of_source, [1, 0, 0]);
        assert_eq!(found.since("new").ok(), Some(1));
        let error = found.since("never").expect_err("is unknown");
        assert!(error.to_string().contains("--since never"), "{error}");
    }
}
