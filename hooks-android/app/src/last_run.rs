//! What earlier runs have left that were killed: their traces are completed, and it is said how they ended.

use std::fmt::Write as _;
use std::path::Path;
use std::time::UNIX_EPOCH;

use stackbeat_collector::embedded::leftovers;

/// Completes what lies in the folder. Lines of fields with tabs between them:
///
/// ```text
/// run   PID  RECORDS  LOST RECORDS  PATH OF THE TRACE
/// wait  TID  1: the main thread  CALL  TID OF THE LOCK'S OWNER, 0: not known  SINCE, milliseconds of the epoch
/// ```
///
/// A run's waits, which its end has interrupted, stand behind it.
pub(crate) fn save(folder: &Path) -> String {
    let mut text = String::new();
    for done in leftovers::complete(Some(folder), false) {
        let (records, lost) = (done.records, done.lost);
        let path = done.trace.display();
        let _ = writeln!(text, "run\t{}\t{records}\t{lost}\t{path}", done.pid);
        for wait in done.last_waits {
            let since = wait.since.duration_since(UNIX_EPOCH);
            let since_ms = since.map_or(0, |since| since.as_millis());
            let (tid, main, call) = (wait.tid, u8::from(wait.is_main), wait.call);
            let _ = writeln!(
                text,
                "wait\t{tid}\t{main}\t{call}\t{}\t{since_ms}",
                wait.owner_tid
            );
        }
    }
    text
}
