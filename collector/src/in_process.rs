//! Starts a program that records itself (`crate::embedded`), waits for it, and completes its trace where it
//! could not: nothing here records.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::fs::File;
use std::path::Path;
use std::time::{Duration, SystemTime};

use stackbeat_core::embedded::{LIBRARY_VARIABLE, OPTIONS_VARIABLE, OWNER_VARIABLE};
use stackbeat_core::ids::Pid;
use stackbeat_proto::stream::PacketReader;
use stackbeat_proto::v1::{packet, summary};

use crate::embedded::{Wanted, leftovers};
use crate::linux::find_program;
use crate::linux::group_sentinel::GroupSentinel;
use crate::linux::runtime_options;
use crate::linux::spawn::{self, SignalState, Start};
use crate::linux::supervise::{self, Supervisor, Wake};
use crate::session::error::{RecordError, Warning};
use crate::session::options::{Options, Outcome, Progress, Status};
use crate::session::{jit_maps, runtime_folders};

/// The program ends when it likes; nothing else is waited for.
const POLL: Duration = Duration::from_secs(60);

/// Records one run of a program by a session inside it, from `library`. Returns when the program has ended
/// and its trace is complete.
///
/// # Errors
/// When the program cannot be started or recorded; then it did not run.
pub fn record_in_process(
    options: &Options,
    library: &Path,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Outcome, RecordError> {
    options.validate()?;
    let program = find_program::resolve(options)?;
    find_program::check_agent(&options.agent)?;
    find_program::check_agent(library)?;
    let mut warnings = program.warnings().to_vec();
    for warning in &warnings {
        progress(&Progress::Warning(warning.clone()));
    }
    if options.output.exists() && !options.overwrite {
        return Err(RecordError::OutputExists {
            path: options.output.clone(),
        });
    }
    let text = Wanted::of(options).to_text();
    let signals = SignalState::take_over(&supervise::HANDLED).map_err(RecordError::Thread)?;
    let descriptor = Supervisor::signal_descriptor().map_err(RecordError::Thread)?;
    let sentinel = GroupSentinel::post().ok();
    let of_runtime = options
        .runtime_options
        .then(|| runtime_options::extension(program.path(), &options.command))
        .flatten();
    let mut variables = vec![
        (LIBRARY_VARIABLE, library.as_os_str()),
        (OPTIONS_VARIABLE, OsStr::new(&text)),
        // That of a session around this one.
        (OWNER_VARIABLE, OsStr::new("")),
    ];
    variables.extend(of_runtime.iter().map(|added| (added.name, &*added.value)));
    let start = Start {
        path: program.path(),
        command: &options.command,
        preload: program.preload().then_some(options.agent.as_path()),
        variables: &variables,
    };
    let began_at = SystemTime::now();
    let spawned = match &options.cpus {
        Some(cpus) => cpus.run(|| spawn::spawn(&start, &signals)),
        None => Ok(spawn::spawn(&start, &signals)),
    };
    let child = spawned.and_then(|spawned| spawned);
    let child = child.map_err(|source| RecordError::Start {
        program: program.path().to_path_buf(),
        source,
    })?;
    let mut supervisor = Supervisor::new(child, descriptor, sentinel, None);
    let pid = supervisor.pid() as u32;
    progress(&Progress::Started { pid });
    let (wait_status, cpu) = loop {
        if let Wake::Ended {
            wait_status,
            user,
            system,
            ..
        } = supervisor.wait(POLL)
        {
            break (wait_status, user + system);
        }
    };
    drop(signals);
    // It was killed, became another program, or left without a word.
    for completed in leftovers::complete(options.mapping_folder.as_deref(), options.symbolize) {
        let warning = Warning::Completed {
            trace: completed.trace,
            lost: completed.lost,
            overwritten: completed.overwritten,
        };
        progress(&Progress::Warning(warning.clone()));
        warnings.push(warning);
    }
    let (recorded, pids) = read(&options.output);
    if of_runtime.is_some_and(|added| added.brings_maps) {
        let folders = runtime_folders::own_folder().into_iter().collect();
        jit_maps::remove(pids.into_iter().map(Pid), &folders, began_at);
    }
    let mut outcome = Outcome {
        wait_status,
        pid,
        program_cpu: cpu,
        ..recorded
    };
    if program.preload() && outcome.status.processes == 0 {
        warnings.push(Warning::NoAgent);
    }
    outcome.warnings = warnings;
    Ok(outcome)
}

/// What the trace says of its recording, and its processes.
fn read(trace: &Path) -> (Outcome, HashSet<u32>) {
    let mut outcome = Outcome {
        wait_status: 0,
        pid: 0,
        duration: Duration::ZERO,
        program_cpu: Duration::ZERO,
        collector_cpu: Duration::ZERO,
        after_cpu: Duration::ZERO,
        status: Status::default(),
        records_written: 0,
        records_stored: 0,
        records_lost: 0,
        drops: Vec::new(),
        unrecorded: Vec::new(),
        write_error: None,
        figures: Vec::new(),
        warnings: Vec::new(),
        attach_session: None,
    };
    let (mut processes, mut threads) = (HashSet::new(), HashSet::new());
    let mut drops = BTreeMap::<_, u64>::new();
    let Ok(file) = File::open(trace) else {
        return (outcome, processes);
    };
    let status = &mut outcome.status;
    status.bytes = file.metadata().map_or(0, |m| m.len());
    let mut start_ns = 0;
    for packet in PacketReader::new(file).flatten() {
        match packet.1.body {
            Some(packet::Body::Header(header)) => {
                start_ns = header.start.map_or(0, |clock| clock.monotonic_ns);
                if let Some(summary) = header.summary {
                    outcome.records_written = summary.records_written;
                    outcome.records_stored = summary.records_stored;
                    outcome.records_lost = summary.records_lost;
                    if !is_complete(summary.outcome()) {
                        let path = trace.display();
                        outcome.write_error = Some(format!("{path}: its session did not end"));
                    }
                }
            }
            Some(packet::Body::Process(process)) => _ = processes.insert(process.pid),
            Some(packet::Body::Thread(thread)) => _ = threads.insert(thread.utid),
            Some(packet::Body::Drops(dropped)) => {
                *drops.entry(dropped.cause()).or_default() += dropped.count;
            }
            Some(packet::Body::Footer(footer)) => {
                outcome.duration = Duration::from_nanos(footer.end_ns.saturating_sub(start_ns));
                status.samples = footer.samples;
                let figures = footer.figures.into_iter().map(|f| (f.name, f.value));
                outcome.figures = figures.collect();
            }
            _ => {}
        }
    }
    outcome.drops = drops.into_iter().collect();
    status.elapsed = outcome.duration;
    status.lost = outcome.records_lost;
    status.processes = processes.len() as u32;
    status.threads = threads.len() as u32;
    let cpu = outcome.figures.iter().find(|(name, _)| name == "cpu_ns");
    outcome.collector_cpu = Duration::from_nanos(cpu.map_or(0, |(_, ns)| *ns));
    (outcome, processes)
}

fn is_complete(outcome: summary::Outcome) -> bool {
    matches!(
        outcome,
        summary::Outcome::Finished | summary::Outcome::Recovered
    )
}
