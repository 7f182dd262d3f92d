//! Where a library's functions are in this process: from the file's `.dynsym`, its `.symtab`, and the table
//! that Android packs into `.gnu_debugdata`. The names of a library that the linker's namespaces hide are
//! found, too.

use std::collections::HashMap;
use std::ffi::{CStr, OsStr, c_int, c_void};
use std::io::{Error, ErrorKind, Read, Result};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use object::read::elf::ElfFile64;
use object::{Object, ObjectSection, ObjectSymbol};

/// `PF_X` of elf.h; `libc` lacks it for Android.
const EXECUTABLE: u32 = 1;

/// The largest table that `.gnu_debugdata` may hold when it is unpacked.
const MOST_BYTES: u64 = 256 << 20;
/// The most memory for unpacking it.
const MOST_KB: u32 = 64 << 10;

/// A library of this process.
#[derive(Debug)]
pub struct Library {
    /// Its file.
    pub path: PathBuf,
    /// What is added to the file's addresses.
    pub bias: u64,
    /// Where its code lies, from and to.
    pub code: (u64, u64),
}

impl Library {
    /// The loaded library whose file name begins so.
    pub fn loaded(name: &str) -> Option<Library> {
        struct Wanted<'a> {
            name: &'a str,
            found: Option<Library>,
        }
        unsafe extern "C" fn each(
            info: *mut libc::dl_phdr_info,
            _: usize,
            wanted: *mut c_void,
        ) -> c_int {
            // SAFETY: what dl_iterate_phdr gives, and the argument below.
            let (info, wanted) = unsafe { (&*info, &mut *wanted.cast::<Wanted>()) };
            if info.dlpi_name.is_null() || info.dlpi_phdr.is_null() {
                return 0;
            }
            // SAFETY: a name, and so many headers.
            let (path, headers) = unsafe {
                (
                    Path::new(OsStr::from_bytes(CStr::from_ptr(info.dlpi_name).to_bytes())),
                    core::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()),
                )
            };
            let file = path.file_name().unwrap_or_default().as_bytes();
            if !file.starts_with(wanted.name.as_bytes()) {
                return 0;
            }
            let bias = info.dlpi_addr;
            let code = headers
                .iter()
                .find(|header| header.p_type == libc::PT_LOAD && header.p_flags & EXECUTABLE != 0)
                .map_or((0, 0), |header| {
                    let start = bias.wrapping_add(header.p_vaddr);
                    (start, start.wrapping_add(header.p_memsz))
                });
            wanted.found = Some(Library {
                path: path.into(),
                bias,
                code,
            });
            1
        }
        let mut wanted = Wanted { name, found: None };
        // SAFETY: the function takes this argument.
        unsafe { libc::dl_iterate_phdr(Some(each), (&raw mut wanted).cast()) };
        wanted.found
    }
}

/// The addresses of names in a file, without the bias.
#[derive(Debug, Default)]
pub struct Symbols {
    places: HashMap<Box<[u8]>, (u64, u64)>,
}

impl Symbols {
    /// Those of these names that a file has.
    ///
    /// # Errors
    /// When the file cannot be read or is no 64-bit ELF file.
    pub fn of_file(path: &Path, names: &[&str]) -> Result<Symbols> {
        Symbols::read(path, names, |_| false)
    }

    /// As [`Symbols::of_file`], where one of the names is enough: the packed table, which takes time, is left
    /// alone then.
    ///
    /// # Errors
    /// As there.
    pub fn any_of_file(path: &Path, names: &[&str]) -> Result<Symbols> {
        Symbols::read(path, names, |found| !found.places.is_empty())
    }

    fn read(path: &Path, names: &[&str], is_enough: fn(&Symbols) -> bool) -> Result<Symbols> {
        let bytes = std::fs::read(path)?;
        let mut symbols = Symbols::default();
        let invalid = |error: object::Error| Error::new(ErrorKind::InvalidData, error.to_string());
        let elf = ElfFile64::<object::Endianness>::parse(&*bytes).map_err(invalid)?;
        symbols.add(&elf, names);
        let packed = elf.section_by_name(".gnu_debugdata");
        if let Some(packed) = packed.filter(|_| !is_enough(&symbols)) {
            let packed = packed.data().map_err(invalid)?;
            let mut unpacked = Vec::new();
            lzma_rust2::XzReader::new_mem_limit(packed, false, MOST_KB)
                .take(MOST_BYTES)
                .read_to_end(&mut unpacked)?;
            let elf = ElfFile64::<object::Endianness>::parse(&*unpacked).map_err(invalid)?;
            symbols.add(&elf, names);
        }
        Ok(symbols)
    }

    fn add(&mut self, elf: &ElfFile64, names: &[&str]) {
        let wanted: std::collections::HashSet<&[u8]> =
            names.iter().map(|name| name.as_bytes()).collect();
        for symbol in elf.dynamic_symbols().chain(elf.symbols()) {
            let Ok(name) = symbol.name_bytes() else {
                continue;
            };
            if symbol.is_definition() && symbol.address() != 0 && wanted.contains(name) {
                self.places
                    .entry(name.into())
                    .or_insert((symbol.address(), symbol.size()));
            }
        }
    }

    /// Where this name stands in the file, and how many bytes it has (0: not known).
    pub fn get(&self, name: &str) -> Option<(u64, u64)> {
        self.places.get(name.as_bytes()).copied()
    }
}
