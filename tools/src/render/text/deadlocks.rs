//! Deadlocks as text: who waited for whom, and where.

use std::fmt::Write;

use stackbeat_model::ThreadIndex;

use crate::render::text::table_layout::{Layout, title};
use crate::summary::call_tree::Profile;
use crate::summary::deadlocks::Deadlocks;
use crate::summary::labels::chain;
use crate::summary::metadata::Metadata;
use crate::summary::own_code::OwnCode;
use crate::terminal::clean;
use crate::units::duration;

/// The text; empty when there was none.
pub(crate) fn text(
    deadlocks: &Deadlocks,
    metadata: &Metadata,
    profile: &Profile,
    layout: &Layout,
) -> String {
    let mut out = String::new();
    if deadlocks.found.is_empty() {
        return out;
    }
    title(&mut out, layout, "Deadlocks");
    let name = |thread: ThreadIndex| {
        let known = metadata.threads.get(thread.0 as usize);
        known.map_or("?".to_owned(), |t| {
            format!("{} ({})", clean(&t.name), t.tid)
        })
    };
    let own = OwnCode::new(metadata, &profile.tree);
    for (at_ns, members) in deadlocks.found.iter().take(layout.top) {
        let _ = writeln!(out, "  {} after the start:", duration(*at_ns));
        for (member, holder) in members.iter().zip(members.iter().cycle().skip(1)) {
            let lock = match profile.waited_for.name(member.thread, member.lock) {
                Some(name) => clean(name).into_owned(),
                None => format!("{:#x}", member.lock),
            };
            let line = format!(
                "    {} waits in {} for {lock}, which {} holds",
                name(member.thread),
                member.probe.name(),
                name(holder.thread)
            );
            let _ = writeln!(out, "{}", layout.style.warning(&line));
            let stack = chain(&own, member.place);
            if !stack.is_empty() {
                let _ = writeln!(out, "      {stack}");
            }
        }
    }
    crate::render::text::table_layout::more(&mut out, layout, deadlocks.found.len());
    out
}
