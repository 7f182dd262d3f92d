//! What a git repository says about commits. Asks the program `git`; names go in through its standard input,
//! so none can be taken for a flag.

use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// A repository.
#[derive(Clone, Debug)]
pub(super) struct Repository {
    folder: PathBuf,
}

/// What people know a commit by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Note {
    /// As short as it is unambiguous.
    pub short: String,
    pub subject: String,
    pub time_unix: u64,
}

impl Repository {
    /// The repository that a folder lies in.
    ///
    /// # Errors
    ///
    /// When git is missing or knows no repository there.
    pub(super) fn at(folder: &Path) -> Result<Repository> {
        let repository = Repository {
            folder: folder.to_owned(),
        };
        repository.ask(&["rev-parse", "--git-dir"], "")?;
        Ok(repository)
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    fn ask(&self, arguments: &[&str], input: &str) -> Result<String> {
        let mut child = Command::new("git")
            .arg("-C")
            .arg(&self.folder)
            .args(arguments)
            // Set inside of hooks, for another repository.
            .env_remove("GIT_DIR")
            .env_remove("GIT_WORK_TREE")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("git cannot be run; install it, or give --order time")?;
        let mut to = child.stdin.take().context("git has no input")?;
        let input = input.to_owned();
        // git answers while it reads: both at once, or both wait.
        let writer = std::thread::spawn(move || to.write_all(input.as_bytes()));
        let output = child.wait_with_output().context("git does not answer")?;
        let written = writer.join();
        if !output.status.success() || !matches!(written, Ok(Ok(()))) {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!(
                "{}: git {}: {}",
                self.folder.display(),
                arguments.first().unwrap_or(&""),
                said.trim().lines().next().unwrap_or("failed")
            );
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// The full hashes of those names that are commits: hashes of seven digits or more, and tags.
    pub(super) fn commits(&self, names: &[&str]) -> Result<HashMap<String, String>> {
        let asked: Vec<(&str, String)> = names
            .iter()
            .filter(|name| !name.is_empty() && !name.contains(char::is_control))
            .flat_map(|name| {
                let tag = (*name, format!("refs/tags/{name}^{{commit}}"));
                let hash = is_hash(name).then(|| (*name, format!("{name}^{{commit}}")));
                hash.into_iter().chain([tag])
            })
            .collect();
        let input: String = asked
            .iter()
            .map(|(_, object)| format!("{object}\n"))
            .collect();
        let answer = self.ask(&["cat-file", "--batch-check=%(objectname)"], &input)?;
        let mut found = HashMap::new();
        for ((name, _), line) in asked.iter().zip(answer.lines()) {
            // What is none is repeated with `missing` or `ambiguous` behind it.
            if line.len() >= 40 && is_hex(line) {
                found
                    .entry((*name).to_string())
                    .or_insert_with(|| line.to_string());
            }
        }
        Ok(found)
    }

    /// Of these commits, given by full hash, every one after its ancestors; else the older first.
    pub(super) fn in_order(&self, commits: &[String]) -> Result<Vec<String>> {
        let wanted: HashSet<&str> = commits.iter().map(String::as_str).collect();
        let all = self.ask(&["rev-list", "--date-order", "--stdin"], &lines(commits))?;
        let mut found: Vec<String> = all
            .lines()
            .filter(|hash| wanted.contains(hash))
            .map(String::from)
            .collect();
        found.reverse();
        Ok(found)
    }

    /// Those of these commits that a commit is no descendant of.
    pub(super) fn not_before(&self, commits: &[String], commit: &str) -> Result<HashSet<String>> {
        let input = format!("{}^{commit}\n", lines(commits));
        let after = self.ask(&["rev-list", "--stdin"], &input)?;
        Ok(after.lines().map(String::from).collect())
    }

    /// Short hash, subject and time of commits, by full hash.
    pub(super) fn notes(&self, commits: &[String]) -> Result<HashMap<String, Note>> {
        let format = "--format=%H%x00%h%x00%ct%x00%s";
        let text = self.ask(&["log", "--no-walk", format, "--stdin"], &lines(commits))?;
        let note = |line: &str| {
            let mut parts = line.splitn(4, '\0').map(String::from);
            let (hash, short) = (parts.next()?, parts.next()?);
            let time_unix = parts.next()?.parse().ok()?;
            let subject = parts.next()?;
            Some((
                hash,
                Note {
                    short,
                    subject,
                    time_unix,
                },
            ))
        };
        Ok(text.lines().filter_map(note).collect())
    }

    /// How many commits a commit has that another has not.
    pub(super) fn count_between(&self, from: &str, to: &str) -> Result<usize> {
        let text = self.ask(
            &["rev-list", "--count", "--stdin"],
            &format!("{to}\n^{from}\n"),
        )?;
        text.trim().parse().context("git does not count commits")
    }
}

fn lines(commits: &[String]) -> String {
    commits.iter().map(|hash| format!("{hash}\n")).collect()
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// Whether a name may be a hash, whole or abbreviated.
pub(super) fn is_hash(name: &str) -> bool {
    (7..=64).contains(&name.len()) && is_hex(name)
}
