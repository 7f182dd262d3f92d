//! Streams of packets: a `.beat` file is `stackbeat.v1.Trace`, written one packet after the other.
//!
//! ```text
//!   0x0a  length (varint)  body of a Packet
//!   0x0a  length (varint)  body of a Packet …
//! ```
//!
//! The reader trusts nothing: it grows with the bytes that are really there, not with the lengths that
//! the file claims, and after an error it says whether going on makes sense.

use std::io::{self, BufReader, Read, Write};

use prost::Message;
use prost::encoding::{encode_varint, encoded_len_varint};

use crate::v1::Packet;

/// Longest packet body, and longest expansion of a compressed packet.
pub const MAX_PACKET_BYTES: usize = 16 << 20;
/// A compressed packet expands to at most this many times its size, so that a small file cannot ask
/// for much memory.
pub const MAX_EXPANSION: usize = 256;
/// Version of the format that this code writes, and the highest that it reads.
pub const FORMAT_VERSION: u32 = 1;

/// Tag of `Trace.packet`: field 1, length-delimited.
const PACKET_TAG: u64 = 0x0a;
/// Tag of `Packet.compressed_packets`: field 13, length-delimited.
const COMPRESSED_TAG: u8 = 0x6a;

/// Tag of `Packet.samples`: field 6, length-delimited.
const SAMPLES_TAG: u64 = 0x32;

/// Appends `packet` to `out` as the next packet of a stream.
pub fn write_packet(packet: &Packet, out: &mut Vec<u8>) {
    let length = packet.encoded_len();
    out.reserve(length + 11);
    encode_varint(PACKET_TAG, out);
    encode_varint(length as u64, out);
    packet
        .encode(out)
        .expect("a Vec grows as far as the packet needs");
}

/// Appends a stream of packets to `out` as one compressed packet, or as it is when that is not
/// longer or when a reader would refuse the expansion. `level` is that of zlib, 1 to 9. The packets in
/// `stream` must not be compressed already.
pub fn write_compressed(stream: &[u8], level: u32, out: &mut Vec<u8>) {
    if stream.len() > MAX_PACKET_BYTES {
        out.extend_from_slice(stream);
        return;
    }
    let mut encoder =
        flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::new(level.clamp(1, 9)));
    let packed = match encoder.write_all(stream).and_then(|()| encoder.finish()) {
        Ok(packed) => packed,
        Err(_) => {
            out.extend_from_slice(stream);
            return;
        }
    };
    let body = 1 + encoded_len_varint(packed.len() as u64) + packed.len();
    if body + 6 >= stream.len() || stream.len() > packed.len().saturating_mul(MAX_EXPANSION) {
        out.extend_from_slice(stream);
        return;
    }
    encode_varint(PACKET_TAG, out);
    encode_varint(body as u64, out);
    out.push(COMPRESSED_TAG);
    encode_varint(packed.len() as u64, out);
    out.extend_from_slice(&packed);
}

/// Why a stream could not be read further, or a packet not be understood. Offsets are bytes from
/// the beginning of the file; for packets inside a compressed one, the offset of the latter.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// The system could not read.
    #[error("reading failed at byte {offset}: {source}")]
    Io {
        /// Where reading failed.
        offset: u64,
        /// What the system said.
        source: io::Error,
    },
    /// The file ends within a packet.
    #[error("the file ends at byte {end}, within the packet that begins at byte {offset}")]
    Truncated {
        /// Where the packet begins.
        offset: u64,
        /// Length of the file.
        end: u64,
    },
    /// A packet is longer than [`MAX_PACKET_BYTES`].
    #[error(
        "the packet at byte {offset} claims {length} bytes, more than the {MAX_PACKET_BYTES} allowed"
    )]
    TooLong {
        /// Where the packet begins.
        offset: u64,
        /// Length that it claims.
        length: u64,
    },
    /// What stands here is no packet.
    #[error("no packet begins at byte {offset}")]
    NotAPacket {
        /// Where a packet should begin.
        offset: u64,
    },
    /// The packet is no valid message.
    #[error("the packet at byte {offset} is damaged: {source}")]
    Malformed {
        /// Where the packet begins.
        offset: u64,
        /// What is wrong with it.
        source: prost::DecodeError,
    },
    /// A compressed packet cannot be expanded.
    #[error("the compressed packet at byte {offset} is damaged: {reason}")]
    Compression {
        /// Where the packet begins.
        offset: u64,
        /// What is wrong with it.
        reason: Damage,
    },
}

/// Why a compressed packet cannot be expanded.
#[derive(Debug, thiserror::Error)]
pub enum Damage {
    /// Its body ends within the length of the compressed bytes.
    #[error("no length")]
    NoLength,
    /// Its body is not exactly the compressed bytes.
    #[error("its length does not fit the packet")]
    WrongLength,
    /// The compressed bytes are not zlib's.
    #[error("{0}")]
    Zlib(io::Error),
    /// It would take more memory than a packet of its size may.
    #[error("it expands to more than {limit} bytes")]
    TooLong {
        /// What it may expand to, bytes.
        limit: usize,
    },
    /// What it expands to is not a stream of packets, or ends within one.
    #[error("its content is not a row of packets")]
    Content,
    /// One of its packets is compressed, too.
    #[error("it contains another one")]
    Nested,
}

impl StreamError {
    /// Where the packet begins that could not be read.
    pub fn offset(&self) -> u64 {
        match *self {
            StreamError::Io { offset, .. }
            | StreamError::Truncated { offset, .. }
            | StreamError::TooLong { offset, .. }
            | StreamError::NotAPacket { offset }
            | StreamError::Malformed { offset, .. }
            | StreamError::Compression { offset, .. } => offset,
        }
    }

    /// True when the stream ends here; false when only this packet is lost and the next one can be
    /// read.
    pub fn is_fatal(&self) -> bool {
        !matches!(
            self,
            StreamError::Malformed { .. } | StreamError::Compression { .. }
        )
    }
}

/// A packet before it is decoded.
#[derive(Clone, Copy, Debug)]
pub struct RawPacket<'a> {
    /// Where it begins in the file; for packets inside a compressed one, where that begins.
    pub offset: u64,
    /// The serialized `Packet`.
    pub body: &'a [u8],
}

impl RawPacket<'_> {
    /// Number of the first field in the body: which member of `Packet.body` it most likely is. 0 for
    /// an empty packet.
    pub fn field(&self) -> u32 {
        match take_varint(self.body) {
            Some((tag, _)) => (tag >> 3) as u32,
            None => 0,
        }
    }

    /// The serialized `SampleBatch`, when the packet is one and nothing else.
    pub fn samples(&self) -> Option<&[u8]> {
        let (tag, a) = take_varint(self.body)?;
        let (length, b) = take_varint(&self.body[a..])?;
        let content = &self.body[a + b..];
        (tag == SAMPLES_TAG && length == content.len() as u64).then_some(content)
    }

    /// Decodes it.
    pub fn decode(&self) -> Result<Packet, StreamError> {
        Packet::decode(self.body).map_err(|source| StreamError::Malformed {
            offset: self.offset,
            source,
        })
    }
}

/// The varint at the beginning of `bytes` and its length.
pub(crate) fn take_varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0u64;
    for (i, &byte) in bytes.iter().take(10).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * i).min(63);
        if byte < 0x80 {
            return Some((value, i + 1));
        }
    }
    None
}

/// Reads a stream packet by packet and expands compressed ones on the way. As an iterator it yields
/// decoded packets with their offsets; after a fatal error it ends.
#[derive(Debug)]
pub struct PacketReader<R> {
    input: BufReader<R>,
    /// Where the next packet of the file begins.
    offset: u64,
    body: Vec<u8>,
    expanded: Vec<u8>,
    /// Read so far of `expanded`.
    expanded_at: usize,
    /// Where the packet stands that `expanded` came from.
    expanded_offset: u64,
    ended: bool,
}

/// What the next step of a reader found.
enum Step {
    Body,
    Expanded(usize, usize),
}

impl<R: Read> PacketReader<R> {
    /// A reader of a stream that begins at the beginning of a file.
    pub fn new(input: R) -> Self {
        Self::at(input, 0)
    }

    /// A reader of `input`, whose first byte stands at `offset` of the file.
    pub fn at(input: R, offset: u64) -> Self {
        PacketReader {
            input: BufReader::with_capacity(256 << 10, input),
            offset,
            body: Vec::new(),
            expanded: Vec::new(),
            expanded_at: 0,
            expanded_offset: 0,
            ended: false,
        }
    }

    /// End of the last packet that was read completely: what follows can be cut off when reading
    /// failed.
    pub fn good_end(&self) -> u64 {
        self.offset
    }

    /// The next packet, not decoded.
    pub fn next_raw(&mut self) -> Option<Result<RawPacket<'_>, StreamError>> {
        match self.step() {
            None => None,
            Some(Err(error)) => {
                if error.is_fatal() {
                    self.ended = true;
                    self.expanded.clear();
                }
                Some(Err(error))
            }
            Some(Ok((offset, Step::Body))) => Some(Ok(RawPacket {
                offset,
                body: &self.body,
            })),
            Some(Ok((offset, Step::Expanded(from, to)))) => Some(Ok(RawPacket {
                offset,
                body: &self.expanded[from..to],
            })),
        }
    }

    fn step(&mut self) -> Option<Result<(u64, Step), StreamError>> {
        loop {
            if self.expanded_at < self.expanded.len() {
                return Some(self.next_expanded());
            }
            if self.ended {
                return None;
            }
            let offset = self.offset;
            match self.read_frame() {
                Ok(false) => return None,
                Ok(true) => {}
                Err(error) => return Some(Err(error)),
            }
            if self.body.first() != Some(&COMPRESSED_TAG) {
                return Some(Ok((offset, Step::Body)));
            }
            if let Err(reason) = self.expand() {
                self.expanded.clear();
                return Some(Err(StreamError::Compression { offset, reason }));
            }
            self.expanded_offset = offset;
        }
    }

    /// Reads one packet's body into `self.body`; false at the end of the file.
    fn read_frame(&mut self) -> Result<bool, StreamError> {
        let offset = self.offset;
        let mut end = offset;
        let tag = match self.read_varint(&mut end)? {
            None if end == offset => return Ok(false),
            None => return Err(StreamError::Truncated { offset, end }),
            Some(tag) => tag,
        };
        if tag != Some(PACKET_TAG) {
            return Err(StreamError::NotAPacket { offset });
        }
        let length = match self.read_varint(&mut end)? {
            None => return Err(StreamError::Truncated { offset, end }),
            Some(None) => return Err(StreamError::NotAPacket { offset }),
            Some(Some(length)) => length,
        };
        if length > MAX_PACKET_BYTES as u64 {
            return Err(StreamError::TooLong { offset, length });
        }
        self.body.clear();
        let read = (&mut self.input)
            .take(length)
            .read_to_end(&mut self.body)
            .map_err(|source| StreamError::Io { offset, source })?;
        end += read as u64;
        if (read as u64) < length {
            return Err(StreamError::Truncated { offset, end });
        }
        self.offset = end;
        Ok(true)
    }

    /// `None`: the file ended; `Some(None)`: not a varint.
    fn read_varint(&mut self, end: &mut u64) -> Result<Option<Option<u64>>, StreamError> {
        let mut bytes = [0u8; 10];
        for i in 0..bytes.len() {
            match self.input.read_exact(&mut bytes[i..=i]) {
                Ok(()) => *end += 1,
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
                Err(source) => {
                    return Err(StreamError::Io {
                        offset: self.offset,
                        source,
                    });
                }
            }
            if bytes[i] < 0x80 {
                return Ok(Some(take_varint(&bytes[..=i]).map(|(value, _)| value)));
            }
        }
        Ok(Some(None))
    }

    /// Expands the compressed packet in `self.body` into `self.expanded`.
    fn expand(&mut self) -> Result<(), Damage> {
        let (length, used) = take_varint(&self.body[1..]).ok_or(Damage::NoLength)?;
        let packed = &self.body[1 + used..];
        if length != packed.len() as u64 {
            return Err(Damage::WrongLength);
        }
        let limit = packed
            .len()
            .saturating_mul(MAX_EXPANSION)
            .min(MAX_PACKET_BYTES);
        self.expanded.clear();
        self.expanded_at = 0;
        let read = flate2::read::ZlibDecoder::new(packed)
            .take(limit as u64 + 1)
            .read_to_end(&mut self.expanded)
            .map_err(Damage::Zlib)?;
        if read > limit {
            return Err(Damage::TooLong { limit });
        }
        Ok(())
    }

    /// The next packet of `self.expanded`. Any fault there drops the rest of it.
    fn next_expanded(&mut self) -> Result<(u64, Step), StreamError> {
        let offset = self.expanded_offset;
        let rest = &self.expanded[self.expanded_at..];
        let parsed = (|| {
            let (tag, a) = take_varint(rest)?;
            let (length, b) = take_varint(&rest[a..])?;
            let from = a + b;
            let to = from.checked_add(usize::try_from(length).ok()?)?;
            (tag == PACKET_TAG && to <= rest.len()).then_some((from, to))
        })();
        let Some((from, to)) = parsed else {
            self.expanded.clear();
            let reason = Damage::Content;
            return Err(StreamError::Compression { offset, reason });
        };
        let nested = rest[from..to].first() == Some(&COMPRESSED_TAG);
        let from = self.expanded_at + from;
        let to = self.expanded_at + to;
        self.expanded_at = to;
        if nested {
            let reason = Damage::Nested;
            return Err(StreamError::Compression { offset, reason });
        }
        Ok((offset, Step::Expanded(from, to)))
    }
}

impl<R: Read> Iterator for PacketReader<R> {
    type Item = Result<(u64, Packet), StreamError>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(
            self.next_raw()?
                .and_then(|raw| Ok((raw.offset, raw.decode()?))),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1::{Drops, packet::Body};

    fn drops(count: u64) -> Packet {
        Packet {
            body: Some(Body::Drops(Drops {
                utid: 7,
                cause: 1,
                count,
            })),
        }
    }

    fn stream(counts: std::ops::Range<u64>) -> Vec<u8> {
        let mut out = Vec::new();
        for count in counts {
            write_packet(&drops(count), &mut out);
        }
        out
    }

    fn counts(bytes: &[u8]) -> Vec<u64> {
        PacketReader::new(bytes)
            .map(|item| match item.expect("a good stream").1.body {
                Some(Body::Drops(dropped)) => dropped.count,
                other => panic!("unexpected {other:?}"),
            })
            .collect()
    }

    #[test]
    fn packets_come_back_in_order_with_their_offsets() {
        let bytes = stream(0..300);
        assert_eq!(counts(&bytes), (0..300).collect::<Vec<_>>());
        let second = PacketReader::new(&bytes[..])
            .nth(1)
            .expect("there are 300")
            .expect("good");
        let mut first = Vec::new();
        write_packet(&drops(0), &mut first);
        assert_eq!(second.0, first.len() as u64);
    }

    #[test]
    fn compressed_packets_stand_in_their_place() {
        let mut bytes = stream(0..2);
        let plain = stream(2..500);
        write_compressed(&plain, 6, &mut bytes);
        bytes.extend(stream(500..510));
        assert!(bytes.len() < plain.len());
        assert_eq!(counts(&bytes), (0..510).collect::<Vec<_>>());
    }

    #[test]
    fn every_cut_is_seen_and_loses_only_the_tail() {
        let bytes = stream(0..20);
        let whole: Vec<u64> = PacketReader::new(&bytes[..])
            .map(|p| p.expect("good").0)
            .collect();
        for cut in 0..bytes.len() {
            let mut reader = PacketReader::new(&bytes[..cut]);
            let mut good = 0;
            let mut failed = false;
            for item in reader.by_ref() {
                match item {
                    Ok(_) => good += 1,
                    Err(error) => {
                        assert!(matches!(error, StreamError::Truncated { .. }), "{error}");
                        failed = true;
                    }
                }
            }
            let ends_on_a_packet = cut == 0 || whole.contains(&(cut as u64));
            assert_eq!(failed, !ends_on_a_packet, "cut at {cut}");
            let packets = whole.iter().filter(|&&o| o < cut as u64).count();
            assert_eq!(good, packets - usize::from(failed));
        }
    }

    #[test]
    fn absurd_lengths_and_garbage_are_refused() {
        let huge = [0x0a, 0xff, 0xff, 0xff, 0xff, 0x7f, 1, 2, 3];
        let error = PacketReader::new(&huge[..]).next().expect("an item");
        assert!(matches!(error, Err(StreamError::TooLong { .. })));
        let error = PacketReader::new(&b"\x7fELF"[..]).next().expect("an item");
        assert!(matches!(error, Err(StreamError::NotAPacket { offset: 0 })));
    }

    #[test]
    fn a_bomb_is_refused_and_the_next_packet_read() {
        let zeros = vec![0u8; 15 << 20];
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(&zeros).expect("memory");
        let packed = encoder.finish().expect("memory");
        let bomb = Packet {
            body: Some(Body::CompressedPackets(packed)),
        };
        let mut bytes = Vec::new();
        write_packet(&bomb, &mut bytes);
        write_packet(&drops(5), &mut bytes);
        let mut reader = PacketReader::new(&bytes[..]);
        let first = reader.next().expect("an item");
        assert!(matches!(first, Err(StreamError::Compression { .. })));
        assert!(reader.expanded.capacity() < 15 << 20);
        assert_eq!(reader.next().expect("an item").expect("good").1, drops(5));
    }
}
