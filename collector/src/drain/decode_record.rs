//! Takes records apart. The words come from memory that the traced program can write to, so nothing in
//! them is trusted: a record that does not fit its own length ends the reading of its sub-buffer.

use stackbeat_core::address::Bias;
use stackbeat_core::cycles::Cycles;
use stackbeat_core::shm::record_format::{self, NAME_BYTES, RecordKind, Sample, Waited, Woke};

/// One record, as it was written: dated by the session's clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    Sample(Sample),
    Module {
        start: u64,
        end: u64,
        bias: Bias,
        epoch: u32,
        path: String,
        build_id: Vec<u8>,
    },
    ModuleGone {
        start: u64,
        epoch: u32,
    },
    /// Of the thread, and whether a runtime knows it: the system may have another one.
    Name(String, bool),
    Text {
        kind: u32,
        offset: usize,
        bytes: Vec<u8>,
    },
    Mark {
        kind: u8,
        cycles: Cycles,
        value: i64,
        name: String,
    },
    Wait(Waited),
    Wake(Woke),
    /// Of a kind that this version does not know.
    Unknown,
}

/// A record that contradicts itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Damaged;

/// Takes the first record off `words`; `None` when there is none left.
pub(crate) fn next(words: &mut &[u64]) -> Result<Option<Record>, Damaged> {
    let Some(header) = words.first().copied() else {
        return Ok(None);
    };
    let length = (header >> 8) as u8 as usize;
    if length == 0 || length > words.len() {
        return Err(Damaged);
    }
    let (body, rest) = (&words[1..length], &words[length..]);
    let record = match RecordKind::from_number(header as u8) {
        Some(RecordKind::Sample) => {
            Record::Sample(record_format::read_sample(header, body).ok_or(Damaged)?)
        }
        Some(RecordKind::Module) => module(body).ok_or(Damaged)?,
        Some(RecordKind::ModuleGone) => Record::ModuleGone {
            start: *body.first().ok_or(Damaged)?,
            epoch: *body.get(1).ok_or(Damaged)? as u32,
        },
        Some(RecordKind::Name) => {
            let length = (body.len() * 8).min(NAME_BYTES);
            Record::Name(
                text(&bytes_of(body, length).ok_or(Damaged)?),
                header >> 32 != 0,
            )
        }
        Some(RecordKind::Text) => {
            let length = usize::try_from(*body.first().ok_or(Damaged)?).map_err(|_| Damaged)?;
            let offset = usize::try_from(*body.get(1).ok_or(Damaged)?).map_err(|_| Damaged)?;
            Record::Text {
                kind: (header >> 32) as u32,
                offset,
                bytes: bytes_of(body.get(2..).ok_or(Damaged)?, length).ok_or(Damaged)?,
            }
        }
        Some(RecordKind::Mark) => {
            let length = usize::try_from(*body.get(2).ok_or(Damaged)?).map_err(|_| Damaged)?;
            Record::Mark {
                kind: (header >> 16) as u8,
                cycles: Cycles(body[0]),
                value: body[1] as i64,
                name: text(&bytes_of(&body[3..], length).ok_or(Damaged)?),
            }
        }
        Some(RecordKind::Wait) => {
            Record::Wait(record_format::read_wait(header, body).ok_or(Damaged)?)
        }
        Some(RecordKind::Wake) => {
            Record::Wake(record_format::read_wake(header, body).ok_or(Damaged)?)
        }
        None if header as u8 == 0 => return Err(Damaged),
        None => Record::Unknown,
    };
    *words = rest;
    Ok(Some(record))
}

fn module(body: &[u64]) -> Option<Record> {
    let (fixed, strings) = body.split_at_checked(5)?;
    let (path_bytes, id_bytes) = (fixed[4] as u32 as usize, (fixed[4] >> 32) as usize);
    let path = bytes_of(strings, path_bytes)?;
    let build_id = bytes_of(strings.get(path_bytes.div_ceil(8)..)?, id_bytes)?;
    Some(Record::Module {
        start: fixed[0],
        end: fixed[1],
        bias: Bias(fixed[2]),
        epoch: fixed[3] as u32,
        path: text(&path),
        build_id,
    })
}

/// The first `length` bytes of these words.
fn bytes_of(words: &[u64], length: usize) -> Option<Vec<u8>> {
    if length > words.len() * 8 {
        return None;
    }
    let mut bytes: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
    bytes.truncate(length);
    Some(bytes)
}

/// Up to the first NUL, as UTF-8 as far as it goes.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use stackbeat_core::ids::Tid;
    use stackbeat_core::platform::Usage;
    use stackbeat_core::shm::record_format::{flags, header};

    fn words_of(text: &str) -> Vec<u64> {
        text.as_bytes()
            .chunks(8)
            .map(|chunk| {
                let mut word = [0; 8];
                word[..chunk.len()].copy_from_slice(chunk);
                u64::from_ne_bytes(word)
            })
            .collect()
    }

    #[test]
    fn samples_with_and_without_their_options() {
        let all = flags::HAS_ARG | flags::HAS_RUSAGE | flags::HAS_WAKER;
        let mut words = vec![header(RecordKind::Sample, 7, 10, 0, 77), 100, 0, 5, 1, 2, 3];
        words.extend([
            header(RecordKind::Sample, 12, 50, all, 78),
            200,
            40,
            6,
            4,
            5,
            6,
        ]);
        words.extend([9, -4i64 as u64, 1 | 2 << 32, 3 | 4 << 32, 4242]);
        let mut rest = &words[..];
        let Ok(Some(Record::Sample(plain))) = next(&mut rest) else {
            panic!("no sample")
        };
        assert_eq!((plain.probe, plain.node, plain.arg), (10, 77, None));
        let Ok(Some(Record::Sample(full))) = next(&mut rest) else {
            panic!("no sample")
        };
        assert_eq!(full.arg, Some((9, -4)));
        let usage = Usage {
            minor_faults: 1,
            major_faults: 2,
            voluntary_switches: 3,
            involuntary_switches: 4,
        };
        assert_eq!(full.usage, Some(usage));
        assert_eq!(full.waker_tid, Some(Tid(4242)));
        assert_eq!(full.duration_cycles, Cycles(40));
        assert_eq!(next(&mut rest), Ok(None));
    }

    #[test]
    fn modules_carry_path_and_build_id() {
        let path = "/usr/lib/x86_64-linux-gnu/libc.so.6";
        let mut words = vec![0, 0x1000, 0x9000, 0x500, 3, path.len() as u64 | 3 << 32];
        words.extend(words_of(path));
        words.push(u64::from_ne_bytes([1, 2, 3, 0, 0, 0, 0, 0]));
        words[0] = header(RecordKind::Module, words.len() as u8, 0, 0, 0);
        let expected = Record::Module {
            start: 0x1000,
            end: 0x9000,
            bias: Bias(0x500),
            epoch: 3,
            path: path.to_owned(),
            build_id: vec![1, 2, 3],
        };
        assert_eq!(next(&mut &words[..]), Ok(Some(expected)));
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        let too_long = [header(RecordKind::Sample, 9, 1, 0, 0), 1, 2];
        let too_short = [header(RecordKind::Sample, 3, 1, 0, 0), 1, 2];
        let no_length = [header(RecordKind::Name, 0, 0, 0, 0)];
        let long_text = [header(RecordKind::Text, 4, 0, 0, 1), 900, 0, 0];
        let zeros = [0u64; 4];
        let short_wait = [header(RecordKind::Wait, 3, 30, 0, 1), 1, 2];
        for bad in [
            &too_long[..],
            &too_short,
            &no_length,
            &long_text,
            &zeros,
            &short_wait,
        ] {
            assert_eq!(next(&mut &bad[..]), Err(Damaged), "{bad:?}");
        }
        let newer = [99 | 2 << 8, 5];
        assert_eq!(next(&mut &newer[..]), Ok(Some(Record::Unknown)));
    }
}
