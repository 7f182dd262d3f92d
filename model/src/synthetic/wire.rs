//! A writer of protobuf bytes that shares no code with the reader: field numbers and encodings are
//! spelled out here and in `super`, so that both cannot be wrong together.

/// The bytes of one message.
#[derive(Clone, Debug, Default)]
pub struct Message(pub Vec<u8>);

fn raw_varint(out: &mut Vec<u8>, mut value: u64) {
    loop {
        let low = (value & 0x7f) as u8;
        value >>= 7;
        if value == 0 {
            out.push(low);
            return;
        }
        out.push(low | 0x80);
    }
}

fn zigzag(value: i64) -> u64 {
    if value >= 0 {
        (value as u64) * 2
    } else {
        (!(value as u64)) * 2 + 1
    }
}

impl Message {
    /// uint32, uint64, bool, enum.
    pub fn varint(mut self, field: u32, value: u64) -> Self {
        raw_varint(&mut self.0, u64::from(field) << 3);
        raw_varint(&mut self.0, value);
        self
    }

    /// int32, int64: negative numbers take ten bytes.
    pub fn int(self, field: u32, value: i64) -> Self {
        self.varint(field, value as u64)
    }

    pub fn fixed64(mut self, field: u32, value: u64) -> Self {
        raw_varint(&mut self.0, u64::from(field) << 3 | 1);
        self.0.extend(value.to_le_bytes());
        self
    }

    /// bytes, string, message, packed.
    pub fn bytes(mut self, field: u32, content: &[u8]) -> Self {
        raw_varint(&mut self.0, u64::from(field) << 3 | 2);
        raw_varint(&mut self.0, content.len() as u64);
        self.0.extend(content);
        self
    }

    pub fn string(self, field: u32, content: &str) -> Self {
        self.bytes(field, content.as_bytes())
    }

    pub fn message(self, field: u32, content: &Message) -> Self {
        self.bytes(field, &content.0)
    }

    /// Packed uint32, uint64.
    pub fn packed(self, field: u32, values: impl IntoIterator<Item = u64>) -> Self {
        let mut content = Vec::new();
        for value in values {
            raw_varint(&mut content, value);
        }
        if content.is_empty() {
            return self;
        }
        self.bytes(field, &content)
    }

    /// Packed sint64 of differences: the first from zero, each further one from the one before.
    pub fn deltas(self, field: u32, values: impl IntoIterator<Item = u64>) -> Self {
        let mut before = 0u64;
        self.packed(
            field,
            values.into_iter().map(|value| {
                let difference = value.wrapping_sub(before) as i64;
                before = value;
                zigzag(difference)
            }),
        )
    }

    /// Packed uint64 of differences.
    pub fn growth(self, field: u32, values: impl IntoIterator<Item = u64>) -> Self {
        let mut before = 0u64;
        self.packed(
            field,
            values.into_iter().map(|value| {
                let difference = value.wrapping_sub(before);
                before = value;
                difference
            }),
        )
    }

    /// Packed sint64.
    pub fn signed(self, field: u32, values: impl IntoIterator<Item = i64>) -> Self {
        self.packed(field, values.into_iter().map(zigzag))
    }
}
