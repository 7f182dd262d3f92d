//! A loader for tests: maps an image, relocates and binds it by what another library reads in it. It shares
//! no code with the crate.

use std::collections::BTreeMap;
use std::path::Path;

use stackbeat_apple::macho::{Image, Memory};
use stackbeat_apple::rebind::{Loaded, Process, Resolver};
use stackbeat_core::address::{Bias, Svma};

use crate::truth::Truth;

/// Addresses of functions by their names in C.
pub(crate) type Functions = BTreeMap<&'static str, u64>;

/// A mapped image. Stays until the process ends.
pub(crate) struct Mapped {
    pub(crate) loaded: Loaded,
    base: *mut u8,
    bytes: usize,
    truth: Truth,
}

/// Maps an image and binds it. `lazily`: lazy slots keep the address of their helper.
pub(crate) fn map(file: &[u8], truth: &Truth, functions: &Functions, lazily: bool) -> Mapped {
    let mapped = load(file, truth, functions, lazily, 0, &|function, _, _| {
        function
    });
    let slide = mapped.loaded.slide.0;
    assert!(slide > u64::from(u32::MAX), "a slide of more than 32 bits");
    mapped
}

/// The same below 2 GiB.
#[cfg(target_arch = "x86_64")]
pub(crate) fn map_low(file: &[u8], truth: &Truth, functions: &Functions) -> Mapped {
    let below = libc::MAP_32BIT;
    load(file, truth, functions, false, below, &|function, _, _| {
        function
    })
}

/// What a slot holds for a function: by its address before the slide is added, and the slide.
type Signed<'a> = &'a dyn Fn(u64, u64, u64) -> u64;

/// Maps an image and binds it; functions with nothing added are signed.
#[cfg(target_feature = "paca")]
pub(crate) fn map_signed(
    file: &[u8],
    truth: &Truth,
    functions: &Functions,
    signed: Signed<'_>,
) -> Mapped {
    load(file, truth, functions, false, 0, signed)
}

fn load(
    file: &[u8],
    truth: &Truth,
    functions: &Functions,
    lazily: bool,
    where_to: i32,
    signed: Signed<'_>,
) -> Mapped {
    let image = Image::read(file).expect("an image");
    let end = image
        .segments
        .iter()
        .map(|s| s.address + s.memory_bytes)
        .max();
    let bytes = end.expect("segments") as usize;
    // SAFETY: new memory.
    let base = unsafe {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | where_to;
        let base = libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0);
        assert_ne!(base, libc::MAP_FAILED);
        base.cast::<u8>()
    };
    let slide = base.expose_provenance() as u64;
    for segment in &image.segments {
        let from = &file[segment.file_offset as usize..][..segment.file_bytes as usize];
        // SAFETY: within the mapping, which nobody else uses.
        unsafe {
            let to = base.add(segment.address as usize);
            to.copy_from_nonoverlapping(from.as_ptr(), from.len());
        }
    }
    let mapped = Mapped {
        loaded: Loaded {
            header: slide,
            slide: Bias(slide),
        },
        base,
        bytes,
        truth: truth.clone(),
    };
    for (address, target) in &truth.rebases {
        mapped.store(*address, target + slide);
    }
    for bind in truth.binds.iter().filter(|bind| !(bind.is_lazy && lazily)) {
        let name = bind.name.strip_prefix('_').unwrap_or(&bind.name);
        let function = functions.get(name);
        // What the tests do not call needs an address nevertheless.
        let function = function.copied().unwrap_or(0x1000);
        let value = match bind.addend {
            0 => signed(function, bind.address, slide),
            addend => function.wrapping_add_signed(addend),
        };
        mapped.store(bind.address, value);
    }
    for segment in &image.segments {
        let protection = match &segment.name[..] {
            b"__TEXT" => libc::PROT_READ | libc::PROT_EXEC,
            b"__DATA" => libc::PROT_READ | libc::PROT_WRITE,
            _ => libc::PROT_READ,
        };
        // SAFETY: pages of the mapping.
        unsafe {
            let begin = base.add(segment.address as usize).cast();
            assert_eq!(
                libc::mprotect(begin, segment.memory_bytes as usize, protection),
                0
            );
        }
    }
    mapped
}

impl Mapped {
    fn store(&self, address: u64, value: u64) {
        assert!(address as usize + 8 <= self.bytes);
        // SAFETY: within the mapping, which is writable while it is bound.
        unsafe {
            self.base
                .add(address as usize)
                .cast::<u64>()
                .write_unaligned(value)
        };
    }

    /// Where it lies: begin and length.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn range(&self) -> (usize, usize) {
        (self.base.addr(), self.bytes)
    }

    /// The word at an address before the slide is added.
    pub(crate) fn word(&self, address: u64) -> u64 {
        let mut bytes = [0; 8];
        assert!(Process.read(self.loaded.slide.in_process(Svma(address)), &mut bytes));
        u64::from_ne_bytes(bytes)
    }

    /// All slots with what they hold.
    pub(crate) fn slots(&self) -> BTreeMap<u64, u64> {
        let binds = self.truth.binds.iter();
        binds
            .map(|bind| (bind.address, self.word(bind.address)))
            .collect()
    }

    /// Changes its memory, whose layout is that of the file: the images here are so small that segments begin
    /// at their offsets.
    pub(crate) fn overwrite(&self, change: impl FnOnce(&mut [u8])) {
        // SAFETY: the mapping is this one's, and nobody runs its code; its data is writable again afterwards.
        unsafe {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            assert_eq!(libc::mprotect(self.base.cast(), self.bytes, protection), 0);
            change(core::slice::from_raw_parts_mut(self.base, self.bytes));
        }
    }

    /// All of its memory.
    pub(crate) fn contents(&self) -> Vec<u8> {
        let mut contents = vec![0; self.bytes];
        assert!(Process.read(self.loaded.header, &mut contents));
        contents
    }

    /// The address of an exported function.
    pub(crate) fn function(&self, name: &str) -> *const u8 {
        let address = self.truth.symbols[&format!("_{name}")];
        self.base.wrapping_add(address as usize)
    }

    /// The protection of each of its pages, as the kernel says it.
    pub(crate) fn protections(&self) -> BTreeMap<u64, String> {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("readable");
        let mut protections = BTreeMap::new();
        for line in maps.lines() {
            let (range, rest) = line.split_once(' ').expect("a range");
            let (begin, end) = range.split_once('-').expect("two addresses");
            let [begin, end] = [begin, end].map(|n| u64::from_str_radix(n, 16).expect("hex"));
            for page in (begin..end).step_by(4096) {
                if (self.loaded.header..self.loaded.header + self.bytes as u64).contains(&page) {
                    protections.insert(page, rest[..4].to_owned());
                }
            }
        }
        protections
    }
}

/// The libraries of the world: one, of these functions.
pub(crate) struct Libraries(pub(crate) Functions);

impl Resolver for Libraries {
    fn by_name(&self, name: &str) -> Option<u64> {
        self.0.get(name).copied()
    }

    fn in_library(&self, library: &[u8], name: &str) -> Option<u64> {
        let is_it = library == b"/usr/lib/libSystem.B.dylib";
        self.by_name(name).filter(|_| is_it)
    }
}

/// A file that was read.
pub(crate) fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).expect("readable")
}
