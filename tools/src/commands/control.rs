//! `stackbeat status|start|stop|set|mark|dump`: speaks to the recorders of live sessions.

mod status_locks;

use std::path::absolute;

use anyhow::{Context, Result, bail};
use serde::Serialize;
use stackbeat_collector::session::control::client::{self, ControlError, Found};
use stackbeat_collector::session::control::{mode_name, names_of};
use stackbeat_collector::session::protocol::{
    DumpReply, DumpRequest, Reply, Request, SessionStatus, Settings,
};
use stackbeat_core::shm::layout::Mode;

use crate::EXIT_NEGATIVE;
use crate::cli::control::{DumpArgs, MarkArgs, SetArgs, StartArgs, StatusArgs, StopArgs, Target};
use crate::commands::recover;
use crate::commands::requests::{interval, parse_probes};
use crate::table::{Column, Table};
use crate::terminal::{self, Style};
use crate::units::{bytes, count, duration, plural};

#[derive(Serialize)]
struct StatusJson {
    schema: &'static str,
    sessions: Vec<SessionStatus>,
    /// Sessions of other users, which say nothing to this one.
    other_users: usize,
}

#[derive(Serialize)]
struct SetJson {
    schema: &'static str,
    /// Where the session stands after it.
    session: SessionStatus,
}

#[derive(Serialize)]
struct DumpJson {
    schema: &'static str,
    #[serde(flatten)]
    dump: DumpReply,
    session: String,
}

/// The session that is meant where none is named; `None`: there is none at all.
fn the_only(sessions: &[SessionStatus]) -> Result<Option<&SessionStatus>> {
    match sessions {
        [] => Ok(None),
        [one] => Ok(Some(one)),
        many => {
            let names: Vec<&str> = many.iter().map(|s| s.session.as_str()).collect();
            bail!(
                "{} sessions are recording; name one, or a pid in it: {}",
                many.len(),
                names.join(", ")
            )
        }
    }
}

/// `stackbeat status`.
pub(crate) fn status(args: &StatusArgs) -> Result<u8> {
    if args.locks
        && let Some(session) = &args.session
    {
        return status_locks::show(session, args.json);
    }
    let (sessions, others) = match &args.session {
        Some(target) => match client::find(target) {
            Ok(session) => (vec![session], 0),
            Err(error @ ControlError::NoSession { .. }) => {
                terminal::say(&format!("{}: {error}", terminal::error_label()));
                return Ok(EXIT_NEGATIVE);
            }
            Err(error) => return Err(error.into()),
        },
        None => {
            if !args.json {
                recover::tidy(recover::Announced::All);
            }
            sorted(client::list())
        }
    };
    if args.locks
        && let Some(session) = the_only(&sessions)?
    {
        return status_locks::show(&session.session, args.json);
    }
    let code = if sessions.is_empty() {
        EXIT_NEGATIVE
    } else {
        0
    };
    if args.json {
        let json = StatusJson {
            schema: "stackbeat.status.v1",
            sessions,
            other_users: others,
        };
        terminal::print(&terminal::json_line(&json)?)?;
    } else if args.session.is_some() {
        terminal::print(&details(&sessions))?;
    } else {
        terminal::print(&table(
            &sessions,
            others,
            terminal::width(),
            Style::stdout(),
        ))?;
    }
    Ok(code)
}

/// Those that answered, oldest first, and how many belong to others.
fn sorted(found: Vec<Found>) -> (Vec<SessionStatus>, usize) {
    let (mut sessions, mut others, mut silent) = (Vec::new(), 0, 0);
    for Found { status, .. } in found {
        match status {
            Ok(status) => sessions.push(status),
            Err(ControlError::NotAllowed { .. }) => others += 1,
            Err(ControlError::Unreachable { .. }) => silent += 1,
            Err(error) => terminal::warn(&error.to_string()),
        }
    }
    if silent > 0 {
        terminal::warn(&format!(
            "{} no answer",
            plural(silent, "session gives", "sessions give")
        ));
    }
    sessions.sort_by_key(|s| (std::cmp::Reverse(s.elapsed_ns), s.session.clone()));
    (sessions, others)
}

fn table(sessions: &[SessionStatus], others: usize, width: Option<usize>, style: Style) -> String {
    let mut table = Table::new(vec![
        Column::text("SESSION", 0),
        Column::number("PID", 0),
        Column::text("STATE", 0),
        Column::number("FOR", 1),
        Column::number("EVERY", 3),
        Column::number("THREADS", 4),
        Column::number("SAMPLES", 2),
        Column::number("LOST", 5),
        Column::text("COMMAND", 0),
    ]);
    for s in sessions {
        table.row(vec![
            s.session.clone(),
            s.program_pid.to_string(),
            state(s).to_owned(),
            duration(s.elapsed_ns),
            duration(sampled_each(s)),
            s.live_threads.to_string(),
            count(s.samples),
            match s.lost {
                0 => String::new(),
                lost => count(lost),
            },
            s.command.join(" "),
        ]);
    }
    let mut out = match sessions.is_empty() {
        true => "no session of yours is recording\n".to_owned(),
        false => table.render(width, style),
    };
    if others > 0 {
        out.push_str(&format!(
            "  {} of other users\n",
            plural(others as u64, "session", "sessions")
        ));
    }
    out
}

/// What samples of a thread that computes are apart; the interval where that is not known yet.
fn sampled_each(s: &SessionStatus) -> u64 {
    match s.sampled_each_ns {
        0 => s.interval_ns.max(s.kept_interval_ns),
        ns => ns,
    }
}

/// The interval asked for, and what the budget makes of it.
fn in_force(asked_ns: u64, kept_ns: u64) -> String {
    match kept_ns > asked_ns {
        true => format!(
            "{}, within the budget {}",
            duration(asked_ns),
            duration(kept_ns)
        ),
        false => duration(asked_ns),
    }
}

fn state(session: &SessionStatus) -> &'static str {
    match (session.write_failing, session.capturing) {
        (true, _) => "cannot write",
        (_, true) => "capturing",
        (_, false) => "stopped",
    }
}

fn details(sessions: &[SessionStatus]) -> String {
    let mut out = String::new();
    for s in sessions {
        let pids: Vec<_> = s.pids.iter().map(u32::to_string).collect();
        let probes = match s.probes.is_empty() {
            true => "none".to_owned(),
            false => s.probes.join(" "),
        };
        for (name, value) in [
            ("session", s.session.clone()),
            ("command", s.command.join(" ")),
            ("state", state(s).to_owned()),
            ("for", duration(s.elapsed_ns)),
            ("trace", format!("{}, {}", s.trace, bytes(s.trace_bytes))),
            ("interval", in_force(s.interval_ns, s.kept_interval_ns)),
            (
                "main interval",
                in_force(s.main_interval_ns, s.kept_main_interval_ns),
            ),
            ("samples every", duration(sampled_each(s))),
            ("probes", probes),
            ("mode", s.mode.clone()),
            (
                "processes",
                format!("{} so far; {}", s.processes, pids.join(" ")),
            ),
            (
                "threads",
                format!("{} so far, {} live", s.threads, s.live_threads),
            ),
            ("samples", format!("{}, {} lost", s.samples, s.lost)),
            ("recorder", format!("pid {}", s.collector_pid)),
        ] {
            out.push_str(&format!("{name:<14} {}\n", terminal::clean(&value)));
        }
    }
    out
}

/// `stackbeat start`.
pub(crate) fn start(args: &StartArgs) -> Result<u8> {
    let (name, _) = ask(&args.target, &Request::Start {})?;
    did(&name, "captures from now on");
    Ok(0)
}

/// `stackbeat stop`.
pub(crate) fn stop(args: &StopArgs) -> Result<u8> {
    let (name, _) = ask(&args.target, &Request::Stop {})?;
    let session = &args.target.session;
    did(
        &name,
        &format!("captures nothing until `stackbeat start {session}`"),
    );
    Ok(0)
}

/// `stackbeat set`.
pub(crate) fn set(args: &SetArgs) -> Result<u8> {
    let interval_ns = args
        .interval
        .map(|ns| interval("--interval", ns))
        .transpose()?;
    let main_interval_ns = args
        .main_interval
        .map(|ns| interval("--main-interval", ns))
        .transpose()?
        .or(interval_ns);
    let mask = args.probes.as_deref().map(parse_probes).transpose()?;
    let settings = Settings {
        interval_ns,
        main_interval_ns,
        probes: mask.map(names_of),
        mode: args
            .mode
            .map(|mode| mode_name(Mode::from(mode) as u32).to_owned()),
    };
    if settings == Settings::default() {
        bail!("nothing to set: give --interval, --main-interval, --probes or --mode");
    }
    let (name, reply) = ask(&args.target, &Request::Set(settings.clone()))?;
    let session = reply.session.unwrap_or_default();
    if args.json {
        let schema = "stackbeat.set.v1";
        terminal::print(&terminal::json_line(&SetJson { schema, session })?)?;
        return Ok(0);
    }
    did(&name, &format!("has {}", in_words(&settings, &session)));
    Ok(0)
}

/// The settings that were changed, as they are in force now.
fn in_words(changed: &Settings, now: &SessionStatus) -> String {
    let mut words = Vec::new();
    if changed.interval_ns.is_some() {
        let interval = in_force(now.interval_ns, now.kept_interval_ns);
        words.push(format!("an interval of {interval}"));
    }
    if changed
        .main_interval_ns
        .is_some_and(|ns| Some(ns) != changed.interval_ns)
    {
        let interval = in_force(now.main_interval_ns, now.kept_main_interval_ns);
        words.push(format!("{interval} for main threads"));
    }
    if changed.probes.is_some() {
        words.push(match now.probes.is_empty() {
            true => "no probes".to_owned(),
            false => format!("the probes {}", now.probes.join(" ")),
        });
    }
    if changed.mode.is_some() {
        words.push(format!("mode {}", now.mode));
    }
    words.join(", ") + " now"
}

/// `stackbeat mark`.
pub(crate) fn mark(args: &MarkArgs) -> Result<u8> {
    let text = args.text.clone();
    let (name, reply) = ask(&args.target, &Request::Mark { text })?;
    let elapsed_ns = reply.session.unwrap_or_default().elapsed_ns;
    let text = terminal::clean(&args.text);
    did(
        &name,
        &format!("has the mark `{text}` at {}", duration(elapsed_ns)),
    );
    Ok(0)
}

/// Says what a session does now.
fn did(session: &str, what: &str) {
    let label = Style::stderr().bold("stackbeat");
    terminal::say(&format!("{label}: session {session} {what}"));
}

/// `stackbeat dump`.
pub(crate) fn dump(args: &DumpArgs) -> Result<u8> {
    let output = absolute(&args.output)
        .with_context(|| format!("{}: no name for a trace", args.output.display()))?;
    terminal::refuse_to_replace(&output, args.force)?;
    let (session, reply) = ask(
        &args.target,
        &Request::Dump(DumpRequest {
            output,
            overwrite: args.force,
            last_ns: args.last,
            symbolize: !args.no_symbols,
        }),
    )?;
    let dump = reply.dump.unwrap_or_default();
    if args.json {
        let json = DumpJson {
            schema: "stackbeat.dump.v1",
            dump,
            session,
        };
        terminal::print(&terminal::json_line(&json)?)?;
        return Ok(0);
    }
    terminal::say(&format!(
        "{}: the last {}, {}, {}, {}",
        args.output.display(),
        duration(dump.covered_ns),
        plural(dump.samples, "sample", "samples"),
        plural(dump.threads, "thread", "threads"),
        bytes(dump.bytes)
    ));
    if let Some(asked) = args.last
        && dump.samples > 0
        && dump.covered_ns < asked.min(dump.elapsed_ns) / 2
    {
        terminal::warn(&format!(
            "the session reaches back {} only; a larger --buffer keeps more",
            duration(dump.covered_ns)
        ));
    }
    Ok(0)
}

fn ask(target: &Target, request: &Request) -> Result<(String, Reply)> {
    let session = client::find(&target.session)?.session;
    let reply = client::ask(&session, request)?;
    Ok((session, reply))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::golden;

    #[test]
    fn one_session_needs_no_name() {
        let named = |name: &str| SessionStatus {
            session: name.into(),
            ..SessionStatus::default()
        };
        let sessions = [named("1.a"), named("2.b")];
        assert!(the_only(&[]).expect("no error").is_none());
        let one = the_only(&sessions[..1]).expect("one").expect("is there");
        assert_eq!(one.session, "1.a");
        let error = the_only(&sessions).expect_err("which?").to_string();
        assert!(error.contains("1.a, 2.b"), "{error}");
    }

    #[test]
    fn settings_are_said_as_they_are_in_force() {
        let changed = Settings {
            interval_ns: Some(100_000),
            main_interval_ns: Some(100_000),
            probes: Some(vec!["lock".into()]),
            mode: Some("ring".into()),
        };
        let now = SessionStatus {
            interval_ns: 100_000,
            kept_interval_ns: 1_000_000,
            main_interval_ns: 100_000,
            probes: vec!["lock".into()],
            mode: "ring".into(),
            ..SessionStatus::default()
        };
        assert_eq!(
            in_words(&changed, &now),
            "an interval of 100 µs, within the budget 1.00 ms, the probes lock, mode ring now"
        );
        let none = Settings {
            probes: Some(Vec::new()),
            main_interval_ns: Some(2_000_000),
            ..Settings::default()
        };
        let now = SessionStatus {
            main_interval_ns: 2_000_000,
            ..SessionStatus::default()
        };
        assert_eq!(
            in_words(&none, &now),
            "2.00 ms for main threads, no probes now"
        );
    }

    #[test]
    fn sessions_as_a_table_and_in_detail() {
        let server = SessionStatus {
            session: "4710.0badcafe".into(),
            collector_pid: 4710,
            program_pid: 4711,
            command: vec!["./server".into(), "--port".into(), "80\x1b[31m".into()],
            trace: "/home/me/server.beat".into(),
            elapsed_ns: 61_500_000_000,
            capturing: true,
            interval_ns: 1_000_000,
            main_interval_ns: 500_000,
            sampled_each_ns: 4_000_000,
            probes: vec!["lock".into(), "io".into()],
            mode: "ring".into(),
            pids: vec![4711, 4713],
            live_threads: 17,
            processes: 2,
            threads: 20,
            samples: 123_456,
            lost: 3,
            trace_bytes: 1 << 20,
            ..SessionStatus::default()
        };
        let idle = SessionStatus {
            session: "99.00000001".into(),
            program_pid: 100,
            command: vec!["sleep".into(), "9".into()],
            elapsed_ns: 2_000_000,
            interval_ns: 1_000_000,
            ..SessionStatus::default()
        };
        let mut text = table(&[server.clone(), idle], 2, Some(100), Style::default());
        text.push_str(&table(&[], 0, None, Style::default()));
        text.push_str(&details(&[server]));
        golden("status.txt", &text);
    }
}
