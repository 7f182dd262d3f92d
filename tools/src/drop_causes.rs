//! Causes of loss as users read them: every table shows what a trace does not have.

use std::borrow::Cow;

use stackbeat_proto::v1::drops::Cause;

/// The cause with this number; one that a newer version has added reads as unknown.
pub(crate) fn from_number(number: i32) -> Cause {
    Cause::try_from(number).unwrap_or(Cause::Unknown)
}

/// The name in JSON.
pub(crate) fn name(cause: Cause) -> &'static str {
    match cause {
        Cause::Unknown => "unknown",
        Cause::BufferFull => "buffer_full",
        Cause::Overwritten => "overwritten",
        Cause::TableFull => "table_full",
        Cause::TruncatedDepth => "truncated_depth",
        Cause::TruncatedUnwind => "truncated_unwind",
        Cause::ForcedOverBudget => "forced_over_budget",
        Cause::Reentrant => "reentrant",
        Cause::ThreadTableFull => "thread_table_full",
        Cause::ProcessTableFull => "process_table_full",
        Cause::Disk => "disk",
        Cause::Damaged => "damaged",
        Cause::NotHooked => "not_hooked",
        Cause::SignalMissed => "signal_missed",
        Cause::AgentDisabled => "agent_disabled",
        Cause::WaitersFull => "waiters_full",
        Cause::WaitLeftOut => "wait_left_out",
        Cause::NoAddressSpace => "no_address_space",
        Cause::MethodTableFull => "method_table_full",
    }
}

/// What is lost, as descriptions begin: many, and one.
const NOUNS: [(&str, &str); 9] = [
    ("records", "record"),
    ("stacks", "stack"),
    ("captures", "capture"),
    ("threads", "thread"),
    ("processes", "process"),
    ("child programs", "child program"),
    ("interruptions", "interruption"),
    ("waits", "wait"),
    ("frames", "frame"),
];

/// A description as it stands after this count.
pub(crate) fn counted(count: u64, description: &str) -> Cow<'_, str> {
    let noun = NOUNS.iter().find(|(many, _)| description.starts_with(many));
    match noun {
        Some((many, one)) if count == 1 => {
            let singular = description.replacen(many, one, 1);
            Cow::Owned(singular.replace("contradict themselves", "contradicts itself"))
        }
        _ => Cow::Borrowed(description),
    }
}

/// What happened, after a count of many, and what helps.
pub(crate) fn describe(cause: Cause) -> &'static str {
    match cause {
        Cause::Unknown => "records lost for a reason that is not known",
        Cause::BufferFull => {
            "records dropped because the buffer was full (a larger --buffer or --interval helps)"
        }
        Cause::Overwritten => "records overwritten by newer ones (--mode ring)",
        Cause::TableFull => "stacks cut because the table of stacks was full",
        Cause::TruncatedDepth => {
            "stacks without some frames: deeper than --depth, or met while Python or Ruby began or ended a call"
        }
        Cause::TruncatedUnwind => {
            "stacks that could not be walked to the root (code without unwind tables)"
        }
        Cause::ForcedOverBudget => {
            "captures at the ends of long waits, and of who ended them, refused because there were too many"
        }
        Cause::Reentrant => "captures refused because one was under way on the thread",
        Cause::ThreadTableFull => "threads not seen: too many at once",
        Cause::ProcessTableFull => "processes not seen: too many at once",
        Cause::Disk => "records lost because the trace could not be written (disk full?)",
        Cause::Damaged => "records that contradict themselves: written over, or cut off",
        Cause::NotHooked => "child programs not seen (statically linked or setuid)",
        Cause::SignalMissed => "interruptions that found the thread where none may be captured",
        Cause::WaitersFull => "waits without a known waker: too many threads waited at once",
        Cause::WaitLeftOut => {
            "waits without a record: over --interval, but records of waits took too much of --budget"
        }
        Cause::NoAddressSpace => {
            "processes not seen: address space is limited (RLIMIT_AS, `ulimit -v`)"
        }
        Cause::MethodTableFull => {
            "frames of managed code (Python, …) without a name: the table of methods was full"
        }
        Cause::AgentDisabled => "processes whose agent switched itself off after an internal error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_no_plural_whatever_was_lost() {
        for number in 0.. {
            let Ok(cause) = Cause::try_from(number) else {
                break;
            };
            let description = describe(cause);
            assert_eq!(counted(2, description), description);
            assert_ne!(counted(1, description), description);
        }
        let cut = describe(Cause::TruncatedUnwind);
        assert!(counted(1, cut).starts_with("stack that could not"));
    }
}
