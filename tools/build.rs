//! Builds the agent library and leaves it where the binary embeds it, so that one installed file
//! records anywhere.
//!
//! The agent has a profile of its own and must not share the outer build's target folder (its lock is
//! held while build scripts run). Variables for whoever builds:
//!
//! - `STACKBEAT_EMBED_AGENT=/path/libstackbeat.so` embeds a library built elsewhere;
//! - `STACKBEAT_EMBED_AGENT=none` embeds nothing: `--agent` must then name one at run time.

use std::env;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

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
    match library {
        Some(path) => fs::copy(&path, &embedded)
            .map_err(|e| format!("{}: cannot be embedded: {e}", path.display()))
            .map(drop)?,
        None => fs::write(&embedded, [])?,
    }
    Ok(())
}

/// The agent interposes glibc, so only a glibc target can use one.
fn can_carry_an_agent() -> bool {
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|v| v == value);
    is("CARGO_CFG_TARGET_OS", "linux")
        && is("CARGO_CFG_TARGET_ENV", "gnu")
        && env::var_os("DOCS_RS").is_none()
}

fn build_agent(out: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let manifest_folder = PathBuf::from(variable("CARGO_MANIFEST_DIR")?);
    let workspace = manifest_folder
        .parent()
        .ok_or("the tools folder stands in the workspace")?;
    for source in ["core", "hooks-linux", "Cargo.toml", "Cargo.lock"] {
        println!(
            "cargo::rerun-if-changed={}",
            workspace.join(source).display()
        );
    }
    let target = variable("TARGET")?;
    let target_folder = out.join("agent");
    let mut cargo = Command::new(variable("CARGO")?);
    cargo
        .current_dir(workspace)
        .args(["build", "--package", "stackbeat-hooks-linux"])
        .args(["--profile", "agent", "--locked", "--target", &target])
        .arg("--target-dir")
        .arg(&target_folder)
        // Line tables make up nine tenths of the file; its symbols are enough for a backtrace.
        .args(["--config", "profile.agent.strip='debuginfo'"]);
    if variable("PROFILE")? == "debug" {
        // Whoever works on the sources builds often: give the slow half of the optimization away.
        cargo.args([
            "--config",
            "profile.agent.lto=false",
            "--config",
            "profile.agent.codegen-units=16",
            "--config",
            "profile.agent.incremental=true",
        ]);
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

fn variable(name: &str) -> Result<String, Box<dyn Error>> {
    env::var(name).map_err(|e| format!("{name}: {e}").into())
}
