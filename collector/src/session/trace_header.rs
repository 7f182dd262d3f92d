//! The first packet of a trace: what was recorded, where and how.

use std::ffi::CStr;
use std::fs;
use std::time::SystemTime;

use stackbeat_core::clock::Snapshot;
use stackbeat_core::platform;
use stackbeat_core::probe::Category;
use stackbeat_core::shm::layout::{Mode, SamplingClock, sampled_by};
use stackbeat_proto::stream::FORMAT_VERSION;
use stackbeat_proto::v1::{Config, SessionHeader, config};

use super::options::{Chosen, Options};
use crate::drain::clock_packet;

/// The header for a session that starts now.
pub(crate) fn header(
    options: &Options,
    session_id: [u8; 16],
    start: &Snapshot,
    chosen: &Chosen,
    program_began_at: Option<SystemTime>,
) -> SessionHeader {
    let names = rustix::system::uname();
    let text = |field: &CStr| field.to_string_lossy().into_owned();
    SessionHeader {
        format_version: FORMAT_VERSION,
        session_id: session_id.to_vec(),
        stackbeat_version: env!("CARGO_PKG_VERSION").to_owned(),
        command_line: command_line(options),
        working_directory: std::env::current_dir()
            .map(|d| d.to_string_lossy().into_owned())
            .unwrap_or_default(),
        hostname: text(names.nodename()),
        os: [
            text(names.sysname()),
            text(names.release()),
            text(names.version()),
        ]
        .join(" "),
        machine: text(names.machine()),
        cpus: std::thread::available_parallelism().map_or(1, |n| n.get() as u32),
        cpu_model: cpu_model(),
        config: Some(Config {
            interval_ns: options.interval_ns,
            main_interval_ns: options.main_interval_ns,
            depth_limit: options.depth_limit,
            await_chains: options.await_chains,
            probes: Category::SELECTABLE
                .iter()
                .filter(|c| options.probes & c.bit() != 0)
                .map(|c| c.name().to_owned())
                .collect(),
            buffer_bytes: options.buffer_bytes,
            mode: match options.mode {
                Mode::Endless => config::Mode::Endless,
                Mode::Ring => config::Mode::Ring,
                Mode::Startup => config::Mode::Startup,
            }
            .into(),
            follow_children: options.follow_children,
            label: options.label.clone(),
            commit: options.commit.clone(),
            hooks_only: !options.interrupt_running,
            shares_processor: options.shares_processor,
            sampling_clock: match chosen.clock {
                SamplingClock::Tick => config::SamplingClock::Tick,
                SamplingClock::Kernel => config::SamplingClock::Kernel,
                SamplingClock::Timer if chosen.at_first != sampled_by::SESSION_CLOCK => {
                    config::SamplingClock::Auto
                }
                SamplingClock::Timer => config::SamplingClock::Timer,
            }
            .into(),
            no_kernel_clock: chosen.why_not.clone(),
            begins_with_events: chosen.at_first == sampled_by::EVENTS_AT_FIRST,
            timer_ns: chosen.timer_ns,
            by_suspension: chosen.by_suspension,
            in_memory: options.in_memory,
            program_began_ns: program_began_at
                .and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok())
                .map_or(0, |since| since.as_nanos() as u64),
        }),
        start: Some(clock_packet(start)),
        page_size: platform::page_bytes() as u32,
        summary: None,
    }
}

/// The recorded command.
pub(crate) fn command_line(options: &Options) -> Vec<String> {
    let arguments = options.command.iter();
    arguments
        .map(|a| a.to_string_lossy().into_owned())
        .collect()
}

fn cpu_model() -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = cpuinfo.lines().find_map(|l| l.strip_prefix("model name"));
    line.map(|l| l.trim_start_matches(['\t', ' ', ':']).to_owned())
        .unwrap_or_default()
}

/// Sixteen random bytes.
pub(crate) fn session_id() -> [u8; 16] {
    let mut id = [0u8; 16];
    if platform::random(&mut id).is_err() {
        // Time and pid are unique enough on a machine without random numbers.
        let now = Snapshot::take(stackbeat_core::shm::layout::ClockSource::Monotonic);
        id[..8].copy_from_slice(&now.realtime_ns.to_le_bytes());
        id[8..12].copy_from_slice(&std::process::id().to_le_bytes());
    }
    id
}
