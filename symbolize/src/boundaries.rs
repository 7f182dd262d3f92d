//! Where functions begin and end when no symbol says so: the unwind tables of stripped code do. It
//! gives unnamed code the shape of functions (`libfoo.so+0x1240`), so that its samples add up.

use super::object_file::ObjectFile;
use addr2line::gimli::{
    self, BaseAddresses, EhFrame, EhFrameHdr, EndianSlice, LittleEndian, UnwindSection,
};
use object::{Object, ObjectSection};
use stackbeat_core::address::Svma;

/// The unwind tables of one module.
pub(crate) struct Boundaries<'a> {
    header: gimli::ParsedEhFrameHdr<EndianSlice<'a, LittleEndian>>,
    frames: EhFrame<EndianSlice<'a, LittleEndian>>,
    bases: BaseAddresses,
}

impl<'a> Boundaries<'a> {
    /// `None` when the module has no binary search table of its unwind entries.
    pub(crate) fn open(file: &ObjectFile<'a>) -> Option<Boundaries<'a>> {
        let header = file.section_by_name(".eh_frame_hdr")?;
        let frames = file.section_by_name(".eh_frame")?;
        let mut bases = BaseAddresses::default()
            .set_eh_frame_hdr(header.address())
            .set_eh_frame(frames.address());
        if let Some(text) = file.section_by_name(".text") {
            bases = bases.set_text(text.address());
        }
        let header = EhFrameHdr::new(header.data().ok()?, LittleEndian)
            .parse(&bases, 8)
            .ok()?;
        header.table()?;
        let frames = EhFrame::new(frames.data().ok()?, LittleEndian);
        Some(Boundaries {
            header,
            frames,
            bases,
        })
    }

    /// The function that contains an address.
    pub(crate) fn function(&self, svma: Svma) -> Option<Function> {
        let entry = self
            .header
            .table()?
            .fde_for_address(&self.frames, &self.bases, svma.0, EhFrame::cie_from_offset)
            .ok()?;
        Some(Function {
            start: Svma(entry.initial_address()),
            returns_from_signal: entry.is_signal_trampoline(),
        })
    }
}

/// What the unwind tables say about a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Function {
    pub start: Svma,
    /// It is the code that signal handlers return to.
    pub returns_from_signal: bool,
}
