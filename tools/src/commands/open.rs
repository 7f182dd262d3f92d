//! `stackbeat open`: writes the page of a trace, and shows it in a browser.

use std::fs::{self, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail};

use crate::cli::OpenArgs;
use crate::commands::report;
use crate::terminal::{self, Style};
use crate::units;
use crate::user_folders::private_folder;

/// Pages that nobody has opened for so long are removed when another one is written.
const OLD: Duration = Duration::from_secs(24 * 3600);
/// Characters of a trace's name in that of its page: four bytes each, of 255 that a name may have.
const LONGEST_STEM: usize = 48;
/// A browser that has not failed by then shows the page. It may run until its window is closed.
const STARTS_WITHIN: Duration = Duration::from_secs(2);

/// Runs the command.
pub(crate) fn run(args: &OpenArgs) -> Result<u8> {
    open(&args.file, false)?;
    Ok(0)
}

/// Writes the page of a trace into a folder of this user's, and shows it. Says where it is, whether a browser
/// came up or not; `quiet`: only if none came up.
pub(crate) fn open(trace: &Path, quiet: bool) -> Result<()> {
    let page = report::page(trace)?;
    let path = write(trace, page.as_bytes())?;
    let label = Style::stderr().bold("stackbeat");
    let (place, size) = (path.display(), units::bytes(page.len() as u64));
    terminal::say(&match show(&path) {
        Ok(_) if quiet => return Ok(()),
        Ok(browser) => format!("{label}: opened {place} ({size}) with {browser}"),
        Err(reason) => format!(
            "{label}: wrote {place} ({size})\n  {reason}; open this file in a browser{}",
            match std::env::var_os("SSH_CONNECTION") {
                Some(_) => ", here or where you sit (scp it there)",
                None => "",
            }
        ),
    });
    Ok(())
}

/// Folders for pages, best first: what browsers show must be a file that nobody else can replace.
fn folders() -> Vec<PathBuf> {
    let absolute = |name: &str| {
        let path = std::env::var_os(name).map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    };
    let cache = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|p| p.join(".cache")));
    let uid = rustix::process::geteuid().as_raw();
    let temporary = std::env::temp_dir().join(format!("stackbeat-{uid}"));
    { cache.map(|folder| folder.join("stackbeat")) }
        .into_iter()
        .chain([temporary])
        .collect()
}

/// Writes a page. The page of one trace has the same name each time.
fn write(trace: &Path, page: &[u8]) -> Result<PathBuf> {
    let whole = trace.canonicalize().unwrap_or_else(|_| trace.to_owned());
    let mut hasher = DefaultHasher::new();
    whole.hash(&mut hasher);
    // Of the name only what is harmless in an address and leaves room for the rest.
    let stem = trace.file_stem().unwrap_or_default().to_string_lossy();
    let is_plain = |c: char| c.is_alphanumeric() || "-_. ".contains(c);
    let stem: String = (stem.chars().take(LONGEST_STEM))
        .map(|c| if is_plain(c) { c } else { '_' })
        .collect();
    let name = format!("page-{stem}-{:08x}.html", hasher.finish() as u32);
    let mut refusals = Vec::new();
    for folder in folders() {
        match write_into(&folder, &name, page) {
            Ok(path) => return Ok(path),
            Err(error) => refusals.push(format!("{}: {error:#}", folder.display())),
        }
    }
    bail!(
        "no folder can hold the page; write it with `stackbeat report {} --html page.html`\n  {}",
        trace.display(),
        refusals.join("\n  ")
    )
}

fn write_into(folder: &Path, name: &str, page: &[u8]) -> Result<PathBuf> {
    private_folder(folder)?;
    remove_old(folder);
    let path = folder.join(name);
    // Root's folder can be read by others, whose business the trace is not.
    let mut options = OpenOptions::new();
    let file = options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&path);
    file.and_then(|mut file| file.write_all(page))
        .context("cannot be written")?;
    Ok(path)
}

fn remove_old(folder: &Path) {
    for item in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = item.file_name().to_string_lossy().into_owned();
        let modified = item.metadata().and_then(|metadata| metadata.modified());
        let age = modified
            .ok()
            .and_then(|time| SystemTime::now().duration_since(time).ok());
        if name.starts_with("page-") && name.ends_with(".html") && age > Some(OLD) {
            let _ = fs::remove_file(item.path());
        }
    }
}

/// Shows a page; gives the name of the browser, or why there is none.
fn show(page: &Path) -> Result<String, String> {
    let has_display = ["DISPLAY", "WAYLAND_DISPLAY"]
        .iter()
        .any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()));
    let chosen = std::env::var("BROWSER").unwrap_or_default();
    if !chosen.trim().is_empty() {
        let mut last = String::new();
        for command in chosen
            .split(':')
            .filter(|command| !command.trim().is_empty())
        {
            match start(command, page, has_display) {
                Ok(name) => return Ok(name),
                Err(reason) => last = reason,
            }
        }
        return Err(last);
    }
    if cfg!(target_os = "macos") {
        return start("open", page, true);
    }
    match has_display {
        true => start("xdg-open", page, true),
        false => Err("there is no display here, and no $BROWSER".to_owned()),
    }
}

/// Starts a browser's command, in which `%s` stands for the page. Without a display it has the terminal until
/// it ends.
fn start(command: &str, page: &Path, has_display: bool) -> Result<String, String> {
    let words = shlex::split(command).filter(|words| !words.is_empty());
    let Some(words) = words else {
        return Err(format!("$BROWSER: `{command}` is no command"));
    };
    let page_text = page.to_string_lossy();
    let mut arguments: Vec<String> = (words[1..].iter())
        .map(|word| word.replace("%s", &page_text))
        .collect();
    if !command.contains("%s") {
        arguments.push(page_text.into_owned());
    }
    let mut browser = Command::new(&words[0]);
    browser.args(arguments);
    if has_display {
        // It may run on, and write, when this process has ended.
        browser
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
    }
    let name = words[0].clone();
    let failed = |error: std::io::Error| format!("{name}: {error}");
    let mut child = browser.spawn().map_err(failed)?;
    let status = match has_display {
        false => Some(child.wait().map_err(failed)?),
        true => {
            let begin = Instant::now();
            loop {
                match child.try_wait().map_err(failed)? {
                    Some(status) => break Some(status),
                    None if begin.elapsed() > STARTS_WITHIN => break None,
                    None => std::thread::sleep(Duration::from_millis(20)),
                }
            }
        }
    };
    match status {
        Some(status) if !status.success() => Err(format!("{name}: {status}")),
        Some(_) | None => Ok(name),
    }
}
