//! Writing packets: framing, sequences and track ids.

use std::io::{self, Write};

use prost::Message;
use prost::encoding::encode_varint;
use stackbeat_model::{ProcessIndex, ThreadIndex};
use stackbeat_proto::perfetto as pb;

use super::super::viewer_ids::Identities;
use super::packet_bytes;

/// `BuiltinClock` of protos/perfetto/common/builtin_clock.proto.
pub(super) const CLOCK_REALTIME: u32 = 1;
pub(super) const CLOCK_MONOTONIC: u32 = 3;
pub(super) const CLOCK_BOOTTIME: u32 = 6;

pub(super) const STATE_CLEARED: u32 =
    pb::trace_packet::SequenceFlags::SeqIncrementalStateCleared as u32;
pub(super) const NEEDS_STATE: u32 =
    pb::trace_packet::SequenceFlags::SeqNeedsIncrementalState as u32;

/// Field 1 of `Trace` (`packet`), length-delimited.
const PACKET_TAG: u8 = 1 << 3 | 2;
/// Packets are collected to this size before they are written.
const FLUSH_BYTES: usize = 1 << 16;

/// Frames packets and writes them in large pieces.
pub(super) struct Packets<'a> {
    out: &'a mut dyn Write,
    buffer: Vec<u8>,
    /// What stands before the payload of a packet.
    head: packet_bytes::Message,
}

impl<'a> Packets<'a> {
    pub(super) fn new(out: &'a mut dyn Write) -> Packets<'a> {
        Packets {
            out,
            buffer: Vec::with_capacity(2 * FLUSH_BYTES),
            head: packet_bytes::Message::new(),
        }
    }

    pub(super) fn write(&mut self, packet: &pb::TracePacket) -> io::Result<()> {
        self.buffer.push(PACKET_TAG);
        encode_varint(packet.encoded_len() as u64, &mut self.buffer);
        packet.encode_raw(&mut self.buffer);
        if self.buffer.len() >= FLUSH_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    /// A packet of which only the payload (field `field`) and the time differ from others of its
    /// sequence; `common` are its other fields.
    #[inline]
    pub(super) fn write_payload(
        &mut self,
        common: &[u8],
        time_ns: u64,
        field: u32,
        payload: &[u8],
        interned: Option<pb::InternedData>,
    ) -> io::Result<()> {
        let head = &mut self.head;
        head.clear();
        head.number(8, time_ns);
        head.append(common);
        head.begin(field, payload.len());
        // Names and stacks that are new come behind.
        let interned = interned.map(|interned| pb::TracePacket {
            interned_data: Some(interned),
            ..pb::TracePacket::default()
        });
        let behind = interned.as_ref().map_or(0, Message::encoded_len);
        self.buffer.push(PACKET_TAG);
        let length = head.bytes().len() + payload.len() + behind;
        encode_varint(length as u64, &mut self.buffer);
        self.buffer.extend_from_slice(head.bytes());
        self.buffer.extend_from_slice(payload);
        if let Some(interned) = interned {
            interned.encode_raw(&mut self.buffer);
        }
        if self.buffer.len() >= FLUSH_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.out.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }
}

/// A packet sequence's id. The tracing service counts its own up from 1; ours stay away from them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sequence(pub u32);

impl Sequence {
    pub(super) const SESSION: Sequence = Sequence(1_000_000);
    pub(super) const COUNTERS: Sequence = Sequence(1_000_001);
    pub(super) const SAMPLES: Sequence = Sequence(1_000_002);
    /// The program's own scopes, flows and counters. Below those of threads.
    pub(super) const PROGRAM: Sequence = Sequence(999_999);

    pub(super) fn thread(thread: ThreadIndex) -> Sequence {
        Sequence(1_000_003 + thread.0)
    }

    /// The fields that all packets with interned data of this sequence share.
    pub(super) fn common_fields(self) -> Vec<u8> {
        let mut fields = packet_bytes::Message::new();
        fields.number(10, u64::from(self.0));
        fields.number(13, u64::from(NEEDS_STATE));
        fields.bytes().to_vec()
    }
}

/// Track ids: unique in a trace, different between sessions, the same for all images of a process.
#[derive(Debug)]
pub(super) struct Uuids {
    session: u64,
    pub identities: Identities,
}

impl Uuids {
    pub(super) fn new(session_id: &[u8], identities: Identities) -> Uuids {
        let session = session_id
            .iter()
            .fold(0, |hash, byte| mix(hash ^ u64::from(*byte)));
        Uuids {
            session,
            identities,
        }
    }

    pub(super) fn session(&self) -> u64 {
        self.id(0, 0)
    }

    pub(super) fn process(&self, process: ProcessIndex) -> u64 {
        self.id(1, self.identities.process(process).0)
    }

    pub(super) fn thread(&self, thread: ThreadIndex) -> u64 {
        self.id(2, self.identities.thread(thread).0)
    }

    /// A counter of a process or thread.
    pub(super) fn counter(&self, owner: u64, counter: usize) -> u64 {
        mix(owner ^ (counter as u64 + 1)) | 1
    }

    /// The track of a thread's own scopes.
    pub(super) fn scopes(&self, thread: ThreadIndex) -> u64 {
        self.id(3, self.identities.thread(thread).0)
    }

    /// The flow between two threads, by its number in this export.
    pub(super) fn arrow(&self, number: u32) -> u64 {
        self.id(4, number)
    }

    /// A counter by its name.
    pub(super) fn named(&self, owner: u64, name: &str) -> u64 {
        name.bytes()
            .fold(mix(owner), |hash, byte| mix(hash ^ u64::from(byte)))
            | 1
    }

    /// The track that the counters of a process stand below, or without one, those of the machine.
    pub(super) fn counters(&self, process: Option<ProcessIndex>) -> u64 {
        match process {
            Some(process) => self.id(6, self.identities.process(process).0),
            None => self.id(7, 0),
        }
    }

    /// One of the tracks of asynchronous work of a name.
    pub(super) fn lane(&self, name: u64, lane: usize) -> u64 {
        mix(name ^ self.id(5, lane as u32)) | 1
    }

    fn id(&self, kind: u64, index: u32) -> u64 {
        // 0 would be Perfetto's implicit track.
        mix(self.session ^ (kind << 32 | u64::from(index))) | 1
    }
}

/// The finalizer of splitmix64: every bit of the input changes half of the output.
fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A set of small numbers, most of which are never used: pages of 4,096 bits come when needed.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pages: Vec<Option<Box<[u64; 64]>>>,
}

impl Seen {
    /// Adds a number; whether it is new.
    pub(super) fn insert(&mut self, number: usize) -> bool {
        let (page, word, bit) = (number >> 12, number >> 6 & 63, 1 << (number & 63));
        if self.pages.len() <= page {
            self.pages.resize_with(page + 1, || None);
        }
        let words = self.pages[page].get_or_insert_with(|| Box::new([0; 64]));
        let is_new = words[word] & bit == 0;
        words[word] |= bit;
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::Seen;

    #[test]
    fn a_number_is_new_once() {
        let mut seen = Seen::default();
        for number in [0, 63, 64, 4_095, 4_096, 1 << 20] {
            assert!(seen.insert(number), "{number}");
            assert!(!seen.insert(number), "{number}");
        }
    }
}
