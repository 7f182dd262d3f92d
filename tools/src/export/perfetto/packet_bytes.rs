//! Protobuf encoding by hand for the packets of which there are millions: slice begins, slice ends
//! and samples. Everything rarer goes through the generated types.
//!
//! Field numbers are those of `perfetto_subset.proto`; the test below lays both encodings side by
//! side.

/// Longest message: all arguments of a slice at their longest, with room for a thread's name.
const CAPACITY: usize = 1024;

/// A message that is being put together, in place: one buffer serves for one after the other.
#[derive(Debug)]
pub(super) struct Message {
    bytes: [u8; CAPACITY],
    length: usize,
}

impl Message {
    pub(super) const fn new() -> Message {
        Message {
            bytes: [0; CAPACITY],
            length: 0,
        }
    }

    pub(super) fn clear(&mut self) {
        self.length = 0;
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// A field of an integer, enum or bool type; negative numbers as two's complement.
    #[inline]
    pub(super) fn number(&mut self, field: u32, value: u64) {
        self.varint(u64::from(field << 3));
        self.varint(value);
    }

    /// A nested message of two numbers.
    #[inline]
    pub(super) fn pair(&mut self, field: u32, first: (u32, u64), second: (u32, u64)) {
        self.varint(u64::from(field << 3 | 2));
        let length_at = self.length;
        self.length += 1;
        self.number(first.0, first.1);
        self.number(second.0, second.1);
        // Two numbers with their tags are 30 bytes at most: their length is one byte.
        self.bytes[length_at] = (self.length - length_at - 1) as u8;
    }

    /// The beginning of a nested message or string of `length` bytes.
    #[inline]
    pub(super) fn begin(&mut self, field: u32, length: usize) {
        self.varint(u64::from(field << 3 | 2));
        self.varint(length as u64);
    }

    /// Bytes that are encoded already.
    #[inline]
    pub(super) fn append(&mut self, encoded: &[u8]) {
        self.bytes[self.length..self.length + encoded.len()].copy_from_slice(encoded);
        self.length += encoded.len();
    }

    #[inline]
    fn varint(&mut self, value: u64) {
        let (mut at, mut rest) = (self.length, value);
        while rest >= 0x80 {
            self.bytes[at] = rest as u8 | 0x80;
            rest >>= 7;
            at += 1;
        }
        self.bytes[at] = rest as u8;
        self.length = at + 1;
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;
    use stackbeat_proto::perfetto as pb;

    use super::Message;

    #[test]
    fn what_is_written_by_hand_decodes_as_the_generated_types() {
        for value in [0, 1, 127, 128, 300, 1 << 35, u64::MAX] {
            let mut event = Message::new();
            event.number(3, value);
            event.pair(4, (1, value), (4, value));
            event.number(9, 2);
            event.number(34, 5);
            let mut packet = Message::new();
            packet.number(8, value);
            packet.begin(11, event.bytes().len());
            packet.append(event.bytes());
            let decoded = pb::TracePacket::decode(packet.bytes()).unwrap();
            let expected = pb::TracePacket {
                timestamp: Some(value),
                track_event: Some(pb::TrackEvent {
                    category_iids: vec![value],
                    debug_annotations: vec![pb::DebugAnnotation {
                        name_iid: Some(value),
                        int_value: Some(value as i64),
                        ..pb::DebugAnnotation::default()
                    }],
                    r#type: Some(2),
                    source_location_iid: Some(5),
                    ..pb::TrackEvent::default()
                }),
                ..pb::TracePacket::default()
            };
            assert_eq!(decoded, expected);
        }
    }
}
