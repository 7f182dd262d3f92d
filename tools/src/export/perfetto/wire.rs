//! Protobuf encoding by hand for the packets of which there are millions: slice begins, slice ends
//! and samples. Everything rarer goes through the generated types.
//!
//! Field numbers are those of `perfetto_subset.proto`; the test below lays both encodings side by
//! side.

/// A message that is being put together; the same buffer serves for one after the other.
#[derive(Debug, Default)]
pub(super) struct Message {
    bytes: Vec<u8>,
}

impl Message {
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// A field of an integer, enum or bool type; negative numbers as two's complement.
    #[inline]
    pub fn number(&mut self, field: u32, value: u64) {
        number(&mut self.bytes, field, value);
    }

    /// A nested message.
    #[inline]
    pub fn message(&mut self, field: u32, content: &[u8]) {
        message(&mut self.bytes, field, content);
    }

    /// A nested message of two numbers, shorter than 128 bytes.
    #[inline]
    pub fn pair(&mut self, field: u32, first: (u32, u64), second: (u32, u64)) {
        varint(&mut self.bytes, u64::from(field << 3 | 2));
        let length_at = self.bytes.len();
        self.bytes.push(0);
        self.number(first.0, first.1);
        self.number(second.0, second.1);
        // Two numbers with their tags are 30 bytes at most.
        self.bytes[length_at] = (self.bytes.len() - length_at - 1) as u8;
    }
}

#[inline]
pub(super) fn number(out: &mut Vec<u8>, field: u32, value: u64) {
    varint(out, u64::from(field << 3));
    varint(out, value);
}

#[inline]
pub(super) fn message(out: &mut Vec<u8>, field: u32, content: &[u8]) {
    varint(out, u64::from(field << 3 | 2));
    varint(out, content.len() as u64);
    out.extend_from_slice(content);
}

#[inline]
pub(super) fn varint(out: &mut Vec<u8>, value: u64) {
    if value < 0x80 {
        out.push(value as u8);
        return;
    }
    let mut bytes = [0; 10];
    let (mut length, mut rest) = (0, value);
    while rest >= 0x80 {
        bytes[length] = rest as u8 | 0x80;
        rest >>= 7;
        length += 1;
    }
    bytes[length] = rest as u8;
    out.extend_from_slice(&bytes[..=length]);
}

#[cfg(test)]
mod tests {
    use prost::Message as _;
    use stackbeat_proto::perfetto as pb;

    use super::Message;

    #[test]
    fn what_is_written_by_hand_decodes_as_the_generated_types() {
        for value in [0, 1, 127, 128, 300, 1 << 35, u64::MAX] {
            let mut event = Message::default();
            event.number(3, value);
            event.pair(4, (1, value), (4, value));
            event.number(9, 2);
            event.number(34, 5);
            let mut packet = Message::default();
            packet.number(8, value);
            packet.message(11, event.bytes());
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
