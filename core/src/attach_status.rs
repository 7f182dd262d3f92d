//! What the agent's entrances (`stackbeat_attach`, `stackbeat_detach`) give the collector that had them
//! called in a running process: one number, because it comes back in a register.

/// Why a running process did not join a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It takes part in one.
    Busy,
    /// The agent has switched itself off in this process, after an error of its own.
    Disabled,
    /// The session has no room for another process.
    Full,
    /// A sanitizer in it holds signals back.
    Sanitizer,
    /// The agent panicked.
    Panicked,
    /// The agent in it is of another version than the session's mapping.
    OtherVersion,
    /// The file is not a session's mapping.
    NotOurs,
    /// The mapping belongs to another user.
    OtherOwner,
    /// The process may take only little more address space (RLIMIT_AS).
    AddressSpace,
    /// The mapping cannot be opened; the error number.
    System(i32),
    /// A number that this version does not know.
    Unknown(i64),
}

/// Those without a value of their own, and their numbers.
const NUMBERS: [(Refused, i64); 9] = [
    (Refused::Busy, -1),
    (Refused::Disabled, -2),
    (Refused::Full, -3),
    (Refused::Sanitizer, -4),
    (Refused::Panicked, -5),
    (Refused::OtherVersion, -6),
    (Refused::NotOurs, -7),
    (Refused::OtherOwner, -8),
    (Refused::AddressSpace, -9),
];
/// Less the error number.
const SYSTEM: i64 = -1000;
/// Error numbers are below it on every Linux.
const ERROR_NUMBERS: i64 = 4096;

/// The number for an answer: the slots that were changed, or why not.
pub fn encode(answer: Result<usize, Refused>) -> i64 {
    match answer {
        Ok(slots) => slots as i64,
        Err(Refused::System(errno)) => SYSTEM - i64::from(errno),
        Err(Refused::Unknown(number)) => number,
        Err(refused) => NUMBERS
            .iter()
            .find(|(known, _)| *known == refused)
            .map_or(i64::MIN, |(_, number)| *number),
    }
}

/// The answer that a number stands for.
pub fn decode(number: i64) -> Result<u64, Refused> {
    if let Ok(slots) = u64::try_from(number) {
        return Ok(slots);
    }
    let known = NUMBERS.iter().find(|(_, known)| *known == number);
    Err(match (known, SYSTEM.wrapping_sub(number)) {
        (Some((refused, _)), _) => *refused,
        (None, errno @ 1..ERROR_NUMBERS) => Refused::System(errno as i32),
        (None, _) => Refused::Unknown(number),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_answer_comes_back_as_it_was() {
        let refused = NUMBERS.map(|(refused, _)| refused);
        let others = [Refused::System(2), Refused::Unknown(-99)];
        for refused in refused.into_iter().chain(others) {
            assert_eq!(decode(encode(Err(refused))), Err(refused));
        }
        assert_eq!(decode(encode(Ok(0))), Ok(0));
        assert_eq!(decode(encode(Ok(1234))), Ok(1234));
        assert_eq!(decode(i64::MIN), Err(Refused::Unknown(i64::MIN)));
    }
}
