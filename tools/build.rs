//! Builds the agent library and leaves it where the binary embeds it, so that one installed file
//! records anywhere.
//!
//! The agent's sources are part of this package: `agent/` has a folder for each of its crates, made of
//! symbolic links that `cargo package` replaces by what they lead to. It leaves out folders with a
//! `Cargo.toml`, so the manifests have other names there, and the workspace that cargo needs is put together
//! in OUT_DIR.
//!
//! The agent has a profile of its own and must not share the outer build's target folder (its lock is
//! held while build scripts run). Variables for whoever builds:
//!
//! - `STACKBEAT_EMBED_AGENT=/path/libstackbeat.so` embeds a library built elsewhere, and the one with the
//!   session inside a program (`libstackbeat_session.so`) that lies beside it;
//! - `STACKBEAT_EMBED_AGENT=none` embeds nothing: `--agent` must then name one at run time.

use std::env;
use std::error::Error;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use lzma_rust2::{FilterType, XzOptions, XzWriter};

/// The library with the session inside a program.
const SESSION: &str = "libstackbeat_session.so";
/// What does not run on the program's threads: all dependencies from outside, and of ours these.
const BESIDE_AGENT: [&str; 5] = [
    "'*'",
    "stackbeat-collector",
    "stackbeat-model",
    "stackbeat-proto",
    "stackbeat-symbolize",
];
/// What runs only while something is built: procedural macros, and what they are made of.
const AT_BUILD_TIME: [&str; 6] = [
    "proc-macro2",
    "prost-derive",
    "quote",
    "serde_derive",
    "syn",
    "thiserror-impl",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-env-changed=STACKBEAT_EMBED_AGENT");
    println!("cargo::rerun-if-changed=build.rs");
    let out = PathBuf::from(variable("OUT_DIR")?);
    let embedded = out.join("libstackbeat.so");
    let library = match env::var_os("STACKBEAT_EMBED_AGENT") {
        Some(choice) if choice == "none" => None,
        Some(path) => {
            println!("cargo::rerun-if-changed={}", Path::new(&path).display());
            Some(PathBuf::from(path))
        }
        None if can_carry_an_agent() => Some(build_agent(&out)?),
        None => None,
    };
    let session = library.as_ref().map(|p| p.with_file_name(SESSION));
    // A binary that is to be small unpacks them when it needs one.
    let is_small = matches!(&*variable("OPT_LEVEL")?, "s" | "z");
    for (library, embedded) in [(library, embedded), (session, out.join(SESSION))] {
        match library {
            Some(path) => embed(&path, &embedded, is_small)
                .map_err(|e| format!("{}: cannot be embedded: {e}", path.display()))?,
            None => fs::write(&embedded, [])?,
        }
    }
    Ok(())
}

fn embed(library: &Path, embedded: &Path, is_small: bool) -> io::Result<()> {
    if !is_small {
        return fs::copy(library, embedded).map(drop);
    }
    let mut options = XzOptions::with_preset(9);
    // Targets of jumps become absolute, so that those of one function are alike (the .xz format, 5.3.2).
    match env::var("CARGO_CFG_TARGET_ARCH").as_deref() {
        Ok("x86_64") => options.prepend_pre_filter(FilterType::BcjX86, 0),
        Ok("aarch64") => options.prepend_pre_filter(FilterType::BcjArm64, 0),
        _ => {}
    }
    let mut packed = XzWriter::new(Vec::new(), options)?;
    packed.write_all(&fs::read(library)?)?;
    fs::write(embedded, packed.finish()?)
}

/// The agent interposes glibc, so only a glibc target can use one.
fn can_carry_an_agent() -> bool {
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|v| v == value);
    is("CARGO_CFG_TARGET_OS", "linux")
        && is("CARGO_CFG_TARGET_ENV", "gnu")
        && env::var_os("DOCS_RS").is_none()
}

fn build_agent(out: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let package = PathBuf::from(variable("CARGO_MANIFEST_DIR")?);
    let sources = package.join("agent");
    // cargo follows the links.
    println!("cargo::rerun-if-changed=agent");
    let workspace = out.join("agent");
    make_workspace(&sources, &workspace)
        .map_err(|e| format!("{}: no workspace for the agent: {e}", workspace.display()))?;
    let target = variable("TARGET")?;
    let target_folder = workspace.join("target");
    let mut cargo = Command::new(variable("CARGO")?);
    cargo
        // Where the configuration for this package is found.
        .current_dir(&package)
        .args(["build", "--package", "stackbeat-hooks-linux"])
        .args(["--package", "stackbeat-embedded"])
        .args(["--profile", "agent", "--target", &target])
        .arg("--manifest-path")
        .arg(workspace.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(&target_folder)
        // Line tables make up nine tenths of the file; its symbols are enough for a backtrace.
        .args(["--config", "profile.agent.strip='debuginfo'"]);
    if variable("PROFILE")? == "debug" {
        // Whoever works on the sources builds often: give the slow half of the optimization away, and of what
        // the session has beside the agent nearly all. The packages of the libraries themselves have the
        // profile's own level: with one of their own, cargo would not strip them. Line tables are not made.
        for setting in [
            "lto=false",
            "codegen-units=16",
            "incremental=true",
            "debug=false",
        ] {
            cargo.args(["--config", &format!("profile.agent.{setting}")]);
        }
        for (packages, level) in [(&BESIDE_AGENT[..], 1), (&AT_BUILD_TIME[..], 0)] {
            for package in packages {
                let level = format!("profile.agent.package.{package}.opt-level={level}");
                cargo.args(["--config", &level]);
            }
        }
    }
    // What the outer build was told about its own crates (clippy's wrapper, sanitizers, coverage) must
    // not get into a library that is loaded into other people's programs.
    for name in [
        "RUSTC_WORKSPACE_WRAPPER",
        "CARGO_ENCODED_RUSTFLAGS",
        "RUSTFLAGS",
        "CARGO_BUILD_TARGET",
        "CARGO_TARGET_DIR",
    ] {
        cargo.env_remove(name);
    }
    let status = cargo.status()?;
    if !status.success() {
        return Err(format!("building the agent library failed ({status})").into());
    }
    Ok(target_folder
        .join(target)
        .join("agent")
        .join("libstackbeat.so"))
}

/// Makes the workspace of the agent's crates in `folder`: links to `sources`, and manifests with what
/// building needs.
fn make_workspace(sources: &Path, folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let mut members = Vec::new();
    for entry in fs::read_dir(sources)? {
        let path = entry?.path();
        if path.is_dir() {
            let name = path.file_name().unwrap_or_default();
            make_member(&path, &folder.join(name))?;
            members.push(name.to_string_lossy().into_owned());
        }
    }
    let manifest = sections(
        &fs::read_to_string(sources.join("workspace.toml"))?,
        |header| header.starts_with("[workspace.") || header == "[profile.agent]",
    );
    fs::write(
        folder.join("Cargo.toml"),
        format!("[workspace]\nresolver = \"3\"\nmembers = {members:?}\n\n{manifest}"),
    )?;
    // It has the other crates' dependencies, too, so `--locked` would fail; cargo takes the versions from it.
    fs::write(
        folder.join("Cargo.lock"),
        fs::read(sources.join("Cargo.lock"))?,
    )
}

/// Tests, benchmarks and what they depend on are left out: the package does not have their files.
fn make_member(sources: &Path, folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    for entry in fs::read_dir(sources)? {
        let entry = entry?;
        if entry.file_name() == "manifest.toml" {
            let manifest = sections(&fs::read_to_string(entry.path())?, |header| {
                !header.starts_with("[[") && !header.contains("dev-dependencies")
            });
            fs::write(folder.join("Cargo.toml"), manifest)?;
            continue;
        }
        let link = folder.join(entry.file_name());
        match fs::remove_file(&link) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => symlink(entry.path(), link)?,
        }
    }
    Ok(())
}

/// The sections of a manifest whose headers are wanted.
fn sections(manifest: &str, wanted: impl Fn(&str) -> bool) -> String {
    let mut kept = false;
    manifest
        .lines()
        .filter(|line| {
            if line.starts_with('[') {
                kept = wanted(line);
            }
            kept
        })
        .flat_map(|line| [line, "\n"])
        .collect()
}

fn variable(name: &str) -> Result<String, Box<dyn Error>> {
    env::var(name).map_err(|e| format!("{name}: {e}").into())
}
