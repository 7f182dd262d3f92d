//! Writes the trace file: appends whole packets, and keeps the summary in the first one up to date in
//! place, which works on a full disk too.
//!
//! ```text
//!   0                 packet: SessionHeader, its last field the Summary, SUMMARY_BYTES long
//!   then              packets, appended; `end` is where the last complete one ends
//! ```

#![forbid(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use prost::Message;
use stackbeat_proto::v1::{Packet, SessionHeader, Summary, packet};

/// Encoded size of the summary, whatever its numbers are: padding fills up to it. (At most 2 bytes of
/// outcome, 3 × 9 of counts, 2 of the padding's own head.)
const SUMMARY_BYTES: usize = 48;

/// An open trace.
#[derive(Debug)]
pub(crate) struct Writer {
    file: File,
    path: PathBuf,
    /// False for pipes and devices: nothing can be rewritten or cut off.
    regular: bool,
    /// Where the last complete packet ends.
    end: u64,
    summary_at: u64,
    summary: Summary,
    packets: u64,
}

impl Writer {
    /// Creates the file. One that exists is refused unless `overwrite`.
    pub(crate) fn create(path: &Path, overwrite: bool) -> io::Result<Writer> {
        let mut open = OpenOptions::new();
        open.write(true).mode(0o644);
        let special = path.metadata().is_ok_and(|m| {
            let kind = m.file_type();
            kind.is_fifo() || kind.is_char_device()
        });
        if overwrite {
            open.create(true).truncate(true);
        } else if !special {
            open.create_new(true);
        }
        let file = open.open(path)?;
        let regular = file.metadata()?.is_file();
        Ok(Writer {
            file,
            path: path.to_path_buf(),
            regular,
            end: 0,
            summary_at: 0,
            summary: Summary::default(),
            packets: 0,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// False for pipes and devices, which nobody can read again.
    pub(crate) fn is_regular(&self) -> bool {
        self.regular
    }

    /// Bytes of complete packets.
    pub(crate) fn bytes(&self) -> u64 {
        self.end
    }

    /// Packets written.
    pub(crate) fn packets(&self) -> u64 {
        self.packets
    }

    /// Writes the first packet. Its summary becomes the one that is kept up to date.
    pub(crate) fn write_header(&mut self, mut header: SessionHeader) -> io::Result<()> {
        header.summary = Some(padded(&Summary::default()));
        let mut out = Vec::new();
        encode(packet::Body::Header(header), &mut out);
        debug_assert!(
            out.ends_with(&padded(&Summary::default()).encode_to_vec()),
            "the summary is rewritten at the header's end"
        );
        self.append(&out, 1)?;
        self.summary_at = self.end - SUMMARY_BYTES as u64;
        Ok(())
    }

    /// Appends complete packets, in as few calls as the system allows. After an error the file ends
    /// with the last complete packet again, and the same bytes can be given once more later.
    pub(crate) fn append(&mut self, bytes: &[u8], packets: u64) -> io::Result<()> {
        match self.write_at_end(bytes) {
            Ok(()) => {
                self.end += bytes.len() as u64;
                self.packets += packets;
                Ok(())
            }
            Err(error) => {
                if self.regular {
                    // A torn packet may stay when even this fails: readers cut it off.
                    let _ = self.file.set_len(self.end);
                }
                Err(error)
            }
        }
    }

    fn write_at_end(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.regular {
            self.file.write_all_at(bytes, self.end)
        } else {
            io::Write::write_all(&mut self.file, bytes)
        }
    }

    /// Puts this summary in the place of the former one, if it differs.
    pub(crate) fn update_summary(&mut self, summary: &Summary) -> io::Result<()> {
        if !self.regular || *summary == self.summary {
            return Ok(());
        }
        let bytes = padded(summary).encode_to_vec();
        self.file.write_all_at(&bytes, self.summary_at)?;
        self.summary = summary.clone();
        Ok(())
    }
}

/// Appends one packet to `out` as a field of `Trace`.
pub(crate) fn encode(body: packet::Body, out: &mut Vec<u8>) {
    stackbeat_proto::stream::write_packet(&Packet { body: Some(body) }, out);
}

/// The summary with padding up to its fixed size.
fn padded(summary: &Summary) -> Summary {
    let mut summary = Summary {
        padding: Vec::new(),
        ..summary.clone()
    };
    let head = 2;
    summary.padding = vec![0; SUMMARY_BYTES - head - summary.encoded_len()];
    summary
}
