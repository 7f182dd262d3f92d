//! `stackbeat status --locks`: which threads of a session wait for locks now, who holds these, and deadlocks.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

use anyhow::Result;
use serde::Serialize;
use stackbeat_collector::session::control::client;
use stackbeat_collector::session::protocol::{LockReply, LocksReply, Request};
use stackbeat_core::ids::{Pid, Upid};
use stackbeat_proto::v1::{self, NodeKind};
use stackbeat_symbolize::perf_map::file::{self, Tail};
use stackbeat_symbolize::perf_map::{Method, PerfMap};
use stackbeat_symbolize::short_names::{simplify, variable_name};
use stackbeat_symbolize::{Modules, Query, Symbolizer, Wanted};

use crate::terminal::{self, Style, clean};
use crate::units::duration;

/// Frames shown of a stack.
const SHOWN: usize = 12;

#[derive(Debug, Serialize)]
struct LocksJson {
    schema: &'static str,
    session: String,
    waits: Vec<WaitJson>,
    /// Tids: each waits for a lock that the next one holds, the last for one of the first.
    deadlocks: Vec<Vec<u32>>,
}

#[derive(Debug, Serialize)]
struct WaitJson {
    pid: u32,
    tid: u32,
    name: String,
    call: String,
    lock: String,
    /// The lock's name, where it is a variable.
    #[serde(skip_serializing_if = "Option::is_none")]
    waited_for: Option<String>,
    /// 0: nobody holds it alone, or that is not known.
    owner_tid: u32,
    waited_ns: u64,
    /// Innermost first.
    stack: Vec<String>,
}

/// Asks the session and prints its answer.
pub(super) fn show(target: &str, json: bool) -> Result<u8> {
    let session = client::find(target)?.session;
    let reply = client::ask(&session, &Request::Locks {})?;
    let locks = reply.locks.unwrap_or_default();
    let Names { stacks, variables } = names(&locks);
    let known = stacks.iter().zip(&variables);
    if json {
        let tids = |cycle: &Vec<usize>| cycle.iter().map(|i| locks.waits[*i].tid).collect();
        type Known<'a> = (&'a Vec<String>, &'a Option<String>);
        let wait = |(wait, (stack, variable)): (&LockReply, Known<'_>)| WaitJson {
            pid: wait.pid,
            tid: wait.tid,
            name: wait.name.clone(),
            call: wait.call.clone(),
            lock: format!("{:#x}", wait.lock),
            waited_for: variable.clone(),
            owner_tid: wait.owner_tid,
            waited_ns: wait.waited_ns,
            stack: stack.clone(),
        };
        let answer = LocksJson {
            schema: "stackbeat.locks.v1",
            session,
            waits: locks.waits.iter().zip(known).map(wait).collect(),
            deadlocks: locks.deadlocks.iter().map(tids).collect(),
        };
        terminal::print(&terminal::json_line(&answer)?)?;
    } else {
        terminal::print(&text(&locks, known, Style::stdout()))?;
    }
    Ok(0)
}

fn text<'a>(
    locks: &LocksReply,
    known: impl Iterator<Item = (&'a Vec<String>, &'a Option<String>)>,
    style: Style,
) -> String {
    let mut out = String::new();
    if locks.waits.is_empty() {
        out.push_str("no thread waits for a lock\n");
        return out;
    }
    for cycle in &locks.deadlocks {
        let tids: Vec<_> = cycle
            .iter()
            .map(|i| locks.waits[*i].tid.to_string())
            .collect();
        let line = format!("deadlock: {} wait for each other's locks", tids.join(", "));
        let _ = writeln!(out, "{}", style.warning(&line));
    }
    for (wait, (stack, variable)) in locks.waits.iter().zip(known) {
        let lock = match variable {
            Some(name) => clean(name).into_owned(),
            None => format!("{:#x}", wait.lock),
        };
        let holder = match wait.owner_tid {
            0 => "nobody alone holds it".to_owned(),
            tid => {
                let known = locks.waits.iter().find(|w| w.tid == tid);
                let name = known.map_or(String::new(), |w| format!("{} ", clean(&w.name)));
                format!("held by {name}{tid}")
            }
        };
        let _ = writeln!(
            out,
            "{} {} of pid {} waits for {} in {} for lock {lock}, {holder}",
            style.bold(&clean(&wait.name)),
            wait.tid,
            wait.pid,
            duration(wait.waited_ns),
            wait.call,
        );
        for name in stack.iter().take(SHOWN) {
            let _ = writeln!(out, "    {}", clean(name));
        }
        if stack.len() > SHOWN {
            let _ = writeln!(out, "    … and {} more", stack.len() - SHOWN);
        }
    }
    out
}

/// What each wait has of names.
struct Names {
    /// Of its frames, innermost first.
    stacks: Vec<Vec<String>>,
    /// Of the lock, where it is a variable.
    variables: Vec<Option<String>>,
}

fn names(locks: &LocksReply) -> Names {
    let mut modules = Modules::default();
    let symbolizer = Symbolizer::new(stackbeat_symbolize::Options::default());
    for module in &locks.modules {
        // A reply has no upids.
        modules.insert(&v1::Module {
            upid: module.pid,
            epoch: 0,
            end_epoch: 0,
            path: module.path.clone(),
            build_id: module.build_id.clone(),
            start: module.start,
            end: module.end,
            bias: module.bias,
        });
    }
    let query = |wait: &LockReply, address, exact| Query {
        upid: Upid(wait.pid),
        epoch: 0,
        address,
        kind: match exact {
            true => NodeKind::LeafPc,
            false => NodeKind::Native,
        },
    };
    let mut wanted = Wanted::default();
    let mut of_code: BTreeMap<Pid, Vec<Query>> = BTreeMap::new();
    for wait in &locks.waits {
        wanted.add_variable(&modules, Upid(wait.pid), wait.lock);
        for (address, exact) in &wait.frames {
            let query = query(wait, *address, *exact);
            match modules.at(query.upid, Some(0), query.inside()) {
                // What has no room among two million has no name.
                Some(_) => drop(wanted.add(&modules, &query)),
                None => of_code.entry(Pid(wait.pid)).or_default().push(query),
            }
        }
    }
    // By the file's path, or the process where no file holds the code.
    let mut names: HashMap<(String, Upid, u64), Vec<String>> = HashMap::new();
    let mut variables: HashMap<(String, u64), String> = HashMap::new();
    symbolizer.symbolize(wanted, &mut |_| true, &mut |symbols| {
        let path = symbols.file.as_ref().map_or("", |file| &file.path);
        for variable in &symbols.variables {
            if let Some(name) = symbols.strings.get(variable.name as usize) {
                let key = (path.to_owned(), variable.address);
                variables.insert(key, variable_name(name, variable.offset));
            }
        }
        for address in &symbols.addresses {
            let functions = address.function.iter().rev();
            let named = functions.filter_map(|function| {
                let function = symbols.functions.get(*function as usize)?;
                let name = symbols.strings.get(function.name as usize)?;
                Some(simplify(name).into_owned())
            });
            let key = (path.to_owned(), Upid(address.upid), address.address);
            names.insert(key, named.collect());
        }
    });
    for (pid, queries) in of_code {
        for (address, name) in names_of_code(pid, &queries) {
            names.insert((String::new(), Upid(pid.0), address), vec![name]);
        }
    }
    let key = |query: &Query| {
        let module = modules.at(query.upid, Some(0), query.inside());
        module.map_or((String::new(), query.upid, query.address), |module| {
            let path = module.file.path.clone();
            (path, Upid(0), module.bias.in_file(query.address).0)
        })
    };
    let frames = |wait: &LockReply| {
        let innermost_first = wait.frames.iter().rev();
        innermost_first
            .flat_map(
                |(address, exact)| match names.get(&key(&query(wait, *address, *exact))) {
                    Some(known) if !known.is_empty() => known.clone(),
                    _ => vec![format!("{address:#x}")],
                },
            )
            .collect()
    };
    let variable = |wait: &LockReply| {
        let module = modules.at(Upid(wait.pid), None, wait.lock)?;
        let key = (module.file.path.clone(), module.bias.in_file(wait.lock).0);
        variables.get(&key).cloned()
    };
    Names {
        stacks: locks.waits.iter().map(frames).collect(),
        variables: locks.waits.iter().map(variable).collect(),
    }
}

/// What generated code of a process is called now, by its perf map: addresses and names.
fn names_of_code(pid: Pid, queries: &[Query]) -> Vec<(u64, String)> {
    let Some(mut tail) = Tail::open(&file::path_of_living(pid), None) else {
        return Vec::new();
    };
    let (mut map, mut changes, mut room) = (PerfMap::default(), Vec::new(), usize::MAX);
    for query in queries {
        map.add(query.epoch, query.address, query.kind, &mut changes);
    }
    map.append(&tail.read_all(), 0, &mut room, &mut changes);
    let named = changes.into_iter().filter_map(|change| {
        let name = Method::from_text(&change.text?).name;
        Some((change.address, name))
    });
    named.collect()
}
