//! `stackbeat export`: hands a trace to other tools.

use std::fs::{self, File};
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use stackbeat_model::Trace;

use crate::cli::ExportArgs;
use crate::export::{self, Exported, Options};
use crate::summary::load;
use crate::{terminal, units};

/// Runs the command.
pub(crate) fn run(args: &ExportArgs) -> Result<u8> {
    if args.weight.is_some() && !args.to.uses_weight() {
        bail!(
            "--weight: {} carries every amount, there is nothing to choose",
            args.to
        );
    }
    let trace = Trace::open(&args.file)?;
    load::warn_of_damage(&args.file, &trace);
    let options = Options {
        weight: args.weight.unwrap_or_default(),
        threads: args.thread.clone(),
        range_ns: match (args.from, args.until) {
            (None, None) => None,
            (from, until) => Some(from.unwrap_or(0)..until.unwrap_or(u64::MAX)),
        },
        title: args.title.clone(),
        scratch_folder: None,
    };
    if args.output.as_deref() == Some(Path::new("-")) {
        return to_standard_output(&trace, args, &options);
    }
    let output = args
        .output
        .clone()
        .unwrap_or_else(|| default_output(&args.file, args.to.extension(), args.force));
    let exported = to_file(&trace, args, &options, &output)?;
    if args.json {
        terminal::print_json(&serde_json::json!({
            "schema": "stackbeat.export.v1",
            "output": output,
            "format": args.to.name(),
            "bytes": exported.bytes,
            "threads": exported.threads,
            "segments": exported.segments,
            "samples": exported.samples,
            "slices": exported.slices,
        }))?;
    } else {
        terminal::say(&format!(
            "{}: wrote {} ({}, {}, {} samples)",
            terminal::Style::stderr().bold("stackbeat"),
            output.display(),
            units::bytes(exported.bytes),
            units::plural(exported.threads as u64, "thread", "threads"),
            units::count(exported.samples),
        ));
    }
    Ok(0)
}

fn to_standard_output(trace: &Trace, args: &ExportArgs, options: &Options) -> Result<u8> {
    let mut out = io::stdout().lock();
    if out.is_terminal() && !matches!(args.to, export::Format::Folded) {
        bail!(
            "-o -: {} is nothing for a terminal; redirect it or name a file",
            args.to
        );
    }
    export::export(trace, args.to, options, &mut out)?;
    out.flush()?;
    Ok(0)
}

/// `app.beat` → `app.pftrace`, beside the trace, or `app.2.pftrace` and so on.
fn default_output(file: &Path, extension: &str, force: bool) -> PathBuf {
    let folder = file.parent().unwrap_or(Path::new(""));
    let name = file.file_stem().unwrap_or_default().to_string_lossy();
    terminal::unused(folder, &name, extension, force)
}

/// Writes a file that is complete or not there.
fn to_file(trace: &Trace, args: &ExportArgs, options: &Options, output: &Path) -> Result<Exported> {
    let same = |a: &Path, b: &Path| matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b);
    if same(&args.file, output) {
        bail!(
            "{}: is the trace itself; choose another output",
            output.display()
        );
    }
    terminal::refuse_to_replace(output, args.force)?;
    let is_new = !output.exists();
    let mut file =
        File::create(output).with_context(|| format!("{}: cannot be written", output.display()))?;
    let written = export::export(trace, args.to, options, &mut file)
        .with_context(|| format!("{}", output.display()));
    if written.is_err() && is_new {
        let _ = fs::remove_file(output);
    }
    written
}
