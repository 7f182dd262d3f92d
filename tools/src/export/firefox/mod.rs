//! Firefox Profiler's processed profile, version 48 (firefox-devtools/profiler,
//! docs-developer/CHANGELOG-formats.md): the last with tables in each thread; newer profilers
//! upgrade it when they open it.
//!
//! A sample stands for a segment and weighs its length, so that self times are wall times. CPU use
//! is a column of its own, blocking calls are markers as well as leaf frames.

mod thread_tables;

use std::collections::HashMap;
use std::io::{self, Write};

use anyhow::Result;
use stackbeat_core::probe::Cause;
use stackbeat_model::{ProbeId, ThreadIndex, Trace};
use stackbeat_proto::v1::{self, event::Kind};

use super::drops;
use super::export_names::{self, Names};
use super::json_writer::{self, Separator};
use super::spool::Spool;
use super::viewer_ids::Identities;
use super::{Exported, Options, Selection};
use crate::scopes::{Open, Scope, Work};
use thread_tables::Tables;

const FORMAT_VERSION: u32 = 48;
/// Of the Gecko format that a processed profile could come from; required, not otherwise used.
const GECKO_VERSION: u32 = 28;

/// Categories: running code, then one for each cause, then gaps.
const CATEGORY_CODE: usize = 0;
const CATEGORY_GAP: usize = Cause::ALL.len();

fn category_of(probe: ProbeId) -> usize {
    // `Cause::None` has no category of its own: code's number is its.
    probe.cause() as usize
}

pub(super) fn write(
    trace: &Trace,
    selection: &Selection,
    options: &Options,
    out: &mut dyn Write,
) -> Result<Exported> {
    let mut spool = Spool::fill(trace, selection, options.scratch_folder.as_deref())?;
    let names = Names::new();
    meta(trace, options, out)?;
    out.write_all(br#","libs":"#)?;
    let libs = Libs::new(trace);
    let identities = Identities::new(trace);
    libs.write(trace, out)?;
    out.write_all(br#","pages":[],"counters":[],"profilerOverhead":[],"threads":["#)?;
    let mut separator = Separator::default();
    // The profiler shows a process by its main thread: main threads first.
    let mut threads = spool.threads();
    threads.sort_by_key(|thread| !trace.thread(*thread).is_main);
    let mut events = std::mem::take(&mut spool.events);
    events.sort_by_key(|(_, event)| event.time_ns);
    let moments = moments(trace, events, std::mem::take(&mut spool.asynchronous));
    let first = threads.first().copied();
    for thread in threads {
        separator.next(out)?;
        // What concerns the whole session stands with the first thread.
        let own = moments
            .iter()
            .filter(|m| m.thread.or(first) == Some(thread));
        Tables::new(trace, &names, &libs, &identities, thread)
            .with_moments(own.collect())
            .write(&mut spool, out)?;
    }
    out.write_all(b"]}\n")?;
    Ok(spool.exported)
}

/// What becomes a marker besides blocking calls: an event, or a scope with its end.
struct Moment {
    thread: Option<ThreadIndex>,
    begin_ns: u64,
    end_ns: Option<u64>,
    kind: &'static str,
    name: String,
    value: i64,
}

/// In order of their begins.
fn moments(
    trace: &Trace,
    events: Vec<(Option<ThreadIndex>, v1::Event)>,
    work: Vec<Work>,
) -> Vec<Moment> {
    let mut open = Open::default();
    let mut moments = Vec::new();
    let of_scope = |scope: Scope| Moment {
        thread: Some(scope.thread),
        begin_ns: scope.begin_ns,
        end_ns: Some(scope.end_ns),
        kind: "scope",
        name: scope.name,
        value: 0,
    };
    for (thread, event) in events {
        match (event.kind(), thread) {
            (Kind::ScopeBegin, Some(thread)) => open.begin(thread, &event.name, event.time_ns),
            (Kind::ScopeEnd, Some(thread)) => {
                moments.extend(open.end(thread, event.time_ns).map(of_scope));
            }
            (kind, _) => {
                let kind = export_names::event_kind(kind);
                moments.push(Moment {
                    thread,
                    begin_ns: event.time_ns,
                    end_ns: None,
                    kind,
                    name: match event.name.is_empty() {
                        true => kind.to_owned(),
                        false => event.name,
                    },
                    value: event.value,
                });
            }
        }
    }
    moments.extend(
        open.rest(|thread| trace.thread(thread).end_ns)
            .into_iter()
            .map(of_scope),
    );
    moments.extend(work.into_iter().map(|work| Moment {
        thread: Some(work.thread),
        begin_ns: work.begin_ns,
        end_ns: Some(work.end_ns),
        kind: "async",
        name: work.name,
        value: work.id,
    }));
    moments.sort_by_key(|moment| moment.begin_ns);
    moments
}

fn meta(trace: &Trace, options: &Options, out: &mut dyn Write) -> io::Result<()> {
    let header = trace.header();
    let start_ns = header.start.as_ref().map_or(0, |start| start.realtime_ns);
    write!(
        out,
        r#"{{"meta":{{"version":{GECKO_VERSION},"preprocessedProfileVersion":{FORMAT_VERSION},"processType":0,"stackwalk":1,"debug":false,"symbolicated":true,"usesOnlyOneStackType":true,"doesNotUseFrameImplementation":true,"sourceCodeIsNotOnSearchfox":true,"extensions":{{"length":0,"id":[],"name":[],"baseURL":[]}},"startTime":"#
    )?;
    json_writer::millis(out, start_ns)?;
    out.write_all(br#","interval":"#)?;
    json_writer::millis(out, trace.config().interval_ns)?;
    out.write_all(
        r#","sampleUnits":{"time":"ms","eventDelay":"ms","threadCPUDelta":"ns"},"product":"#
            .as_bytes(),
    )?;
    // The profiler shows it above the timeline.
    let product = export_names::title(trace, options) + &drops::suffix(trace);
    json_writer::string(out, &product)?;
    out.write_all(br#","importedFrom":"stackbeat","oscpu":"#)?;
    json_writer::string(out, &format!("{} {}", header.os, header.machine))?;
    write!(out, r#","physicalCPUs":{0},"logicalCPUs":{0}"#, header.cpus)?;
    out.write_all(br#","categories":["#)?;
    let categories = [("code", "yellow")]
        .into_iter()
        .chain(
            Cause::ALL[1..]
                .iter()
                .map(|cause| (cause.name(), color(*cause))),
        )
        .chain([("no evidence", "transparent")]);
    let mut separator = Separator::default();
    for (name, color) in categories {
        separator.next(out)?;
        write!(
            out,
            r#"{{"name":"{name}","color":"{color}","subcategories":["Other"]}}"#
        )?;
    }
    out.write_all(
        br#"],"markerSchema":[{"name":"blocked","display":["marker-chart","marker-table","timeline-overview"],"chartLabel":"{marker.name}","tableLabel":"{marker.name} {marker.data.cause}","data":[{"key":"cause","label":"Waits for","format":"string","searchable":true},{"key":"argument","label":"Argument","format":"string"},{"key":"result","label":"Result","format":"integer"},{"key":"wokenBy","label":"Woken by thread","format":"integer"}]},{"name":"event","display":["marker-chart","marker-table","timeline-overview"],"chartLabel":"{marker.name}","tableLabel":"{marker.name}","data":[{"key":"kind","label":"Kind","format":"string"},{"key":"value","label":"Value","format":"integer"}]}]}"#,
    )
}

/// Colors of the profiler's palette.
fn color(cause: Cause) -> &'static str {
    match cause {
        Cause::None => "yellow",
        Cause::Lock => "red",
        Cause::Wait | Cause::Gc | Cause::Safepoint => "orange",
        Cause::Io => "blue",
        Cause::Net => "green",
        Cause::Poll => "lightblue",
        Cause::Sleep => "lightgreen",
        Cause::Join => "purple",
        Cause::Process => "magenta",
        Cause::Unknown => "grey",
        Cause::Ipc | Cause::Binder => "brown",
    }
}

/// The modules that functions come from, in the order of the `libs` list.
struct Libs {
    positions: HashMap<String, usize>,
    /// Position of the module in the trace.
    list: Vec<usize>,
}

impl Libs {
    fn new(trace: &Trace) -> Libs {
        let mut libs = Libs {
            positions: HashMap::new(),
            list: Vec::new(),
        };
        for (index, module) in trace.modules().iter().enumerate() {
            libs.positions
                .entry(module.path.clone())
                .or_insert_with(|| {
                    libs.list.push(index);
                    libs.list.len() - 1
                });
        }
        libs
    }

    fn write(&self, trace: &Trace, out: &mut dyn Write) -> io::Result<()> {
        json_writer::array(out, &self.list, |out, index| {
            let module = &trace.modules()[*index];
            let base = module.path.rsplit('/').next().unwrap_or_default();
            for (key, text) in [
                (r#"{"arch":"#, trace.header().machine.as_str()),
                (r#","name":"#, base),
                (r#","path":"#, &module.path),
                (r#","debugName":"#, base),
                (r#","debugPath":"#, &module.path),
                (r#","breakpadId":"#, ""),
                (r#","codeId":"#, &export_names::hex(&module.build_id)),
            ] {
                out.write_all(key.as_bytes())?;
                json_writer::string(out, text)?;
            }
            out.write_all(b"}")
        })
    }
}
