//! Little-endian numbers and LEB128 of bytes that are distrusted.

use super::ImageError;

/// The bytes of one table or command, with its name for errors.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    what: &'static str,
}

impl<'a> Reader<'a> {
    pub(super) fn new(what: &'static str, bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, at: 0, what }
    }

    /// The same bytes from an offset on.
    pub(super) fn from(self, offset: usize) -> Result<Reader<'a>, ImageError> {
        if offset > self.bytes.len() {
            return Err(self.short());
        }
        Ok(Reader { at: offset, ..self })
    }

    pub(super) fn at_end(&self) -> bool {
        self.at >= self.bytes.len()
    }

    fn short(&self) -> ImageError {
        ImageError::Short(self.what)
    }

    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], ImageError> {
        let end = self.at.checked_add(count).ok_or_else(|| self.short())?;
        let taken = self.bytes.get(self.at..end).ok_or_else(|| self.short())?;
        self.at = end;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], ImageError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    pub(super) fn u8(&mut self) -> Result<u8, ImageError> {
        Ok(self.array::<1>()?[0])
    }

    pub(super) fn u16(&mut self) -> Result<u16, ImageError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(super) fn u32(&mut self) -> Result<u32, ImageError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64, ImageError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A name that ends with a NUL.
    pub(super) fn name(&mut self) -> Result<&'a [u8], ImageError> {
        let rest = self.bytes.get(self.at..).unwrap_or(&[]);
        let length = rest.iter().position(|byte| *byte == 0);
        let length = length.ok_or_else(|| self.short())?;
        self.at += length + 1;
        Ok(&rest[..length])
    }

    pub(super) fn uleb(&mut self) -> Result<u64, ImageError> {
        let mut value = 0u64;
        for shift in (0..).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if shift > 63 || bits << shift >> shift != bits {
                return Err(ImageError::Range {
                    what: self.what,
                    value: bits,
                });
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                break;
            }
        }
        Ok(value)
    }

    pub(super) fn sleb(&mut self) -> Result<i64, ImageError> {
        let mut value = 0i64;
        let mut shift = 0;
        loop {
            let byte = self.u8()?;
            if shift > 63 {
                return Err(ImageError::Range {
                    what: self.what,
                    value: byte.into(),
                });
            }
            value |= i64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                if byte & 0x40 != 0 && shift < 64 {
                    value |= -1 << shift;
                }
                return Ok(value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(bytes: &[u8]) -> Reader<'_> {
        Reader::new("test", bytes)
    }

    #[test]
    fn leb128_of_the_dwarf_standard() {
        for (bytes, value) in [(&[2][..], 2), (&[0x80, 1], 128), (&[0xb9, 0x64], 12857)] {
            assert_eq!(reader(bytes).uleb(), Ok(value));
        }
        for (bytes, value) in [(&[0x7e][..], -2), (&[0xff, 0], 127), (&[0x80, 0x7f], -128)] {
            assert_eq!(reader(bytes).sleb(), Ok(value));
        }
        let most = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
        assert_eq!(reader(&most).uleb(), Ok(u64::MAX));
        assert!(reader(&[0xff; 10]).uleb().is_err());
        assert!(reader(&[0xff; 11]).sleb().is_err());
        assert_eq!(reader(&[0x80]).uleb(), Err(ImageError::Short("test")));
    }

    #[test]
    fn names_end_within_their_table() {
        assert_eq!(reader(b"_read\0x").name(), Ok(&b"_read"[..]));
        assert_eq!(reader(b"_read").name(), Err(ImageError::Short("test")));
        assert!(reader(b"a").from(2).is_err());
    }
}
