//! Every format of fixup chains that programs have. LLVM's linker writes one of them; a second writer here
//! rewrites its images to the others. What it writes is read by the other library too. No linker for arm64e
//! runs on Linux: those formats are proven only so.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;

use stackbeat_apple::macho::{
    Authentication, Image, ImageError, InFile, Key, Slot, SlotKind, slots,
};
use stackbeat_apple::rebind::Rebinder;

use crate::linkers::{ARCHITECTURES, Linker, image};
use crate::rebinding::{NAMES, hooks, no_functions, replacements, wanted};
use crate::truth::{truth, truths};
#[cfg(not(target_feature = "paca"))]
use crate::world::map;
#[cfg(target_feature = "paca")]
use crate::world::map_signed;
use crate::world::{Libraries, read};

/// What to write.
#[derive(Clone, Copy, Debug)]
struct Format {
    /// `DYLD_CHAINED_PTR_…`.
    pointers: u16,
    /// `DYLD_CHAINED_IMPORT…`.
    imports: u32,
    /// Sign what calls use as `__auth_got` is, and pointers in data as C's function pointers are.
    is_signed: bool,
}

fn get<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("as many bytes")
}
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(get(bytes, at))
}
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(get(bytes, at))
}
fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(get(bytes, at))
}
fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

/// Where each load command begins.
fn commands(file: &[u8]) -> Vec<usize> {
    let mut at = 32;
    let count = u32_at(file, 16);
    let next = |_| {
        let this = at;
        at += u32_at(file, at + 4) as usize;
        this
    };
    (0..count).map(next).collect()
}

/// A name and what is added to its address: one import of the new table.
type Import = (u32, String, i64);

/// Rewrites an image with chains of 64-bit pointers (format 2) and plain imports (format 1).
fn rewrite(file: &[u8], format: Format) -> Vec<u8> {
    let mut file = file.to_vec();
    let of_kind = |file: &[u8], kind: u32| {
        let all = commands(file).into_iter();
        all.filter(|at| u32_at(file, *at) == kind)
            .collect::<Vec<_>>()
    };
    let [chains] = of_kind(&file, 0x8000_0034)[..] else {
        panic!("one command of fixup chains")
    };
    let segments = of_kind(&file, 0x19);
    let begin = u32_at(&file, chains + 8) as usize;
    let mut blob = file[begin..begin + u32_at(&file, chains + 12) as usize].to_vec();
    let [starts, imports, names] = [4, 8, 12].map(|at| u32_at(&blob, at) as usize);
    assert_eq!(
        [u32_at(&blob, 20), u32_at(&blob, 24)],
        [1, 0],
        "plain imports and names"
    );

    // The old imports, and the new ones: those with something added are others where the table says what.
    let name_of = |offset: usize| {
        let name = blob[names + offset..].split(|byte| *byte == 0).next();
        String::from_utf8(name.expect("a name").to_vec()).expect("text")
    };
    let old: Vec<Import> = (0..u32_at(&blob, 16) as usize)
        .map(|number| u32_at(&blob, imports + number * 4))
        .map(|import| (import & 0x1ff, name_of((import >> 9) as usize), 0))
        .collect();
    // Imports in front that nothing uses: numbers need all of their bits.
    let unused = match format.pointers {
        1 | 9 => 0x100,
        _ => 0x1_0000,
    };
    let mut new = vec![(1, "_unused".to_owned(), 0); unused];
    new.extend(old.iter().cloned());

    for (number, segment) in segments.iter().enumerate() {
        let offset = u32_at(&blob, starts + 4 + number * 4) as usize;
        if offset == 0 {
            continue;
        }
        let here = starts + offset;
        assert_eq!(u16_at(&blob, here + 6), 2, "what LLVM's linker writes");
        put(&mut blob, here + 6, &format.pointers.to_le_bytes());
        let is_const = file[segment + 8..].starts_with(b"__DATA_CONST");
        let first = u64_at(&file, segment + 40) as usize;
        for page in 0..usize::from(u16_at(&blob, here + 20)) {
            let start = u16_at(&blob, here + 22 + page * 2);
            if start == 0xffff {
                continue;
            }
            let page_bytes = usize::from(u16_at(&blob, here + 4));
            let mut at = first + page * page_bytes + usize::from(start);
            loop {
                let slot = u64_at(&file, at);
                let next = (slot >> 51 & 0xfff) * 4;
                let value = rewrite_slot(slot, next, format, is_const, &old, &mut new);
                put(&mut file, at, &value.to_le_bytes());
                if next == 0 {
                    break;
                }
                at += next as usize;
            }
        }
    }

    // The new table: header and starts as they were, then imports, then names.
    let starts_end = imports;
    blob.truncate(starts_end);
    blob.resize(starts_end.next_multiple_of(8), 0);
    let (imports, mut names) = (blob.len() as u32, vec![0u8]);
    let mut offsets = BTreeMap::new();
    for (flags, name, addend) in &new {
        let offset = *offsets.entry(name).or_insert_with(|| {
            let offset = names.len() as u32;
            names.extend(name.bytes().chain([0]));
            offset
        });
        match format.imports {
            1 => blob.extend((offset << 9 | flags).to_le_bytes()),
            2 => {
                blob.extend((offset << 9 | flags).to_le_bytes());
                blob.extend((*addend as i32).to_le_bytes());
            }
            3 => {
                let weak = u64::from(flags >> 8);
                let ordinal = u64::from(flags & 0xff);
                blob.extend((u64::from(offset) << 32 | weak << 16 | ordinal).to_le_bytes());
                blob.extend(addend.to_le_bytes());
            }
            _ => panic!("{format:?}"),
        }
    }
    let names_at = blob.len() as u32;
    blob.extend(names);
    for (at, value) in [
        (8, imports),
        (12, names_at),
        (16, new.len() as u32),
        (20, format.imports),
    ] {
        put(&mut blob, at, &value.to_le_bytes());
    }

    // Behind all else in __LINKEDIT, the last segment.
    file.resize(file.len().next_multiple_of(8), 0);
    let at = file.len() as u32;
    put(&mut file, chains + 8, &at.to_le_bytes());
    put(&mut file, chains + 12, &(blob.len() as u32).to_le_bytes());
    file.extend(blob);
    let linkedit = *segments.last().expect("segments");
    let bytes = file.len() as u64 - u64_at(&file, linkedit + 40);
    put(&mut file, linkedit + 48, &bytes.to_le_bytes());
    put(
        &mut file,
        linkedit + 32,
        &bytes.next_multiple_of(0x4000).to_le_bytes(),
    );
    if is_arm64e(format) {
        // CPU_SUBTYPE_ARM64E, as its linkers do.
        put(&mut file, 8, &2u32.to_le_bytes());
    }
    file
}

fn is_arm64e(format: Format) -> bool {
    matches!(format.pointers, 1 | 9 | 12)
}

fn rewrite_slot(
    slot: u64,
    next: u64,
    format: Format,
    is_const: bool,
    old: &[Import],
    new: &mut Vec<Import>,
) -> u64 {
    let is_bind = slot >> 63 == 1;
    let is_function = is_bind && slot >> 24 & 0xff == 0;
    let (mut import, mut addend) = (slot & 0xff_ffff, slot >> 24 & 0xff);
    if is_bind && addend != 0 && format.imports != 1 {
        let (flags, name, _) = &old[import as usize];
        new.push((*flags, name.clone(), addend as i64));
        import = new.len() as u64 - 1;
        addend = 0;
    } else if is_bind {
        import += new
            .iter()
            .take_while(|(_, name, _)| name == "_unused")
            .count() as u64;
    }
    if !is_arm64e(format) {
        // The image is linked for address 0, so offsets are addresses.
        return match is_bind {
            true => import | addend << 24 | (next / 4) << 51 | 1 << 63,
            false => slot,
        };
    }
    assert!(next.is_multiple_of(8));
    let next = (next / 8) << 51;
    match is_bind {
        false => slot & 0xf_ffff_ffff | (slot >> 36 & 0xff) << 43 | next,
        true if format.is_signed && is_function => {
            let how = u64::from(is_const) << 48;
            import | DIVERSITY << 32 | how | next | 0b11 << 62
        }
        true => import | addend << 32 | next | 1 << 62,
    }
}

/// Something to see that it arrives; C's function pointers have 0.
const DIVERSITY: u64 = 0x1234;

fn formats() -> impl Iterator<Item = Format> {
    let pointers = [2, 6, 1, 9, 12].into_iter();
    pointers.flat_map(|pointers| {
        [1, 2, 3].into_iter().flat_map(move |imports| {
            let signed: &[bool] = match pointers {
                1 | 9 | 12 => &[false, true],
                _ => &[false],
            };
            signed.iter().map(move |is_signed| Format {
                pointers,
                imports,
                is_signed: *is_signed,
            })
        })
    })
}

fn find(file: &[u8]) -> Result<Vec<Slot>, ImageError> {
    let image = Image::read(file)?;
    let source = InFile(file);
    slots(&image, &source, Some(&source), &wanted).map(|found| found.slots)
}

#[test]
fn slots_of_all_formats_are_those_that_another_reader_finds() {
    let path = image(Linker::LldChains, ARCHITECTURES[1]);
    let original = read(&path);
    let as_linked: BTreeMap<_, _> = find(&original)
        .expect("slots")
        .iter()
        .map(|slot| (slot.address, *slot))
        .collect();
    let folder = tempfile::tempdir().expect("a folder");
    let (mut files, mut paths) = (Vec::new(), Vec::new());
    for (number, format) in formats().enumerate() {
        let file = rewrite(&original, format);
        let path = folder.path().join(format!("{number}.dylib"));
        std::fs::write(&path, &file).expect("written");
        files.push((format, file));
        paths.push(path);
    }
    for ((format, file), truth) in files.into_iter().zip(truths(&paths)) {
        let found = find(&file).expect("slots");
        let expected: BTreeSet<_> = (truth.binds.iter())
            .filter_map(|bind| {
                let symbol = wanted(bind.name.as_bytes())?;
                Some((bind.address, NAMES[symbol], bind.addend, bind.library))
            })
            .collect();
        let seen: BTreeSet<_> = (found.iter())
            .map(|slot| (slot.address, NAMES[slot.symbol], slot.addend, slot.library))
            .collect();
        assert_eq!(seen, expected, "{format:?}");
        // The same as before it was rewritten, and signed where it says so.
        let image = Image::read(&file).expect("an image");
        assert_eq!(image.is_arm64e, is_arm64e(format));
        for slot in &found {
            let before = &as_linked[&slot.address];
            let segment = image.segment_of_slot(slot.address).expect("a segment");
            let authentication = (format.is_signed && slot.addend == 0).then_some(Authentication {
                key: Key::InstructionA,
                has_address: segment.name == b"__DATA_CONST",
                diversity: DIVERSITY as u16,
            });
            let expected = Slot {
                authentication,
                kind: SlotKind::Eager,
                ..*before
            };
            assert_eq!(*slot, expected, "{format:?}");
        }
        assert_eq!(found.len(), as_linked.len());
    }
}

/// Signs for a slot, as dyld does: key IA.
#[cfg(target_feature = "paca")]
fn sign(mut pointer: u64, slot: u64, has_address: bool) -> u64 {
    let mut discriminator = if has_address { slot } else { DIVERSITY };
    // SAFETY: changes registers only.
    unsafe {
        if has_address {
            // What clang makes of `ptrauth_blend_discriminator`.
            core::arch::asm!("movk {}, #0x1234, lsl #48", inout(reg) discriminator);
        }
        core::arch::asm!("pacia {}, {}", inout(reg) pointer, in(reg) discriminator);
    }
    pointer
}

/// A build for arm64e (here: for arm64 Linux with signed pointers, under emulation) signs its hooks.
#[test]
#[cfg(target_feature = "paca")]
fn hooks_in_signed_slots_are_signed() {
    let path = image(Linker::LldChains, ARCHITECTURES[1]);
    let format = Format {
        pointers: 12,
        imports: 1,
        is_signed: true,
    };
    let file = rewrite(&read(&path), format);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("signed.dylib");
    std::fs::write(&path, &file).expect("written");
    let (functions, hooks) = (no_functions(), hooks());
    let world = Libraries(functions.clone());
    let truth = truth(&path);
    let image = Image::read(&file).expect("an image");
    let signed = |pointer: u64, address: u64, slide: u64| {
        let segment = image.segment_of_slot(address).expect("a segment");
        sign(pointer, address + slide, segment.name == b"__DATA_CONST")
    };
    let mapped = map_signed(&file, &truth, &functions, &signed);
    let before = mapped.slots();
    assert!(
        before.values().any(|value| value >> 48 != 0),
        "this processor does not sign"
    );
    let rebinder = Rebinder::new(&replacements(&hooks), &world);
    // SAFETY: a mapped image whose code is not called.
    let report = unsafe { rebinder.add_image(mapped.loaded, || File::open(&path).ok(), &world) };
    let report = report.expect("an image");
    assert!(report.signed == 0 && report.rebound == 8, "{report:?}");
    let slots = mapped.slots();
    for bind in truth.binds.iter().filter(|bind| bind.addend == 0) {
        let expected = match hooks.get(bind.name.trim_start_matches('_')) {
            Some(hook) => signed(*hook, bind.address, mapped.loaded.slide.0),
            None => before[&bind.address],
        };
        assert_eq!(slots[&bind.address], expected, "{bind:?}");
    }
    // SAFETY: the image is mapped.
    assert_eq!(unsafe { rebinder.restore() }, 0);
    assert_eq!(mapped.slots(), before);
}

#[test]
#[cfg(not(target_feature = "paca"))]
fn signed_slots_stay_as_they_are() {
    let path = image(Linker::LldChains, ARCHITECTURES[1]);
    let format = Format {
        pointers: 12,
        imports: 1,
        is_signed: true,
    };
    let file = rewrite(&read(&path), format);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("signed.dylib");
    std::fs::write(&path, &file).expect("written");
    let functions = no_functions();
    let world = Libraries(functions.clone());
    let mapped = map(&file, &truth(&path), &functions, false);
    let before = mapped.slots();
    let rebinder = Rebinder::new(&replacements(&hooks()), &world);
    // SAFETY: a mapped image whose code is not called.
    let report = unsafe { rebinder.add_image(mapped.loaded, || File::open(&path).ok(), &world) };
    let report = report.expect("an image");
    assert!(report.signed >= 7 && report.rebound == 0, "{report:?}");
    assert_eq!(mapped.slots(), before);
}

#[test]
fn other_formats_are_refused_by_name() {
    let original = read(&image(Linker::LldChains, ARCHITECTURES[0]));
    let [chains] = commands(&original)
        .into_iter()
        .filter(|at| u32_at(&original, *at) == 0x8000_0034)
        .collect::<Vec<_>>()[..]
    else {
        panic!("one command of fixup chains")
    };
    let blob = u32_at(&original, chains + 8) as usize;
    let starts = blob + u32_at(&original, blob + 4) as usize;
    let segment = (0..)
        .map(|n| u32_at(&original, starts + 4 + n * 4))
        .find(|offset| *offset != 0);
    let format_at = starts + segment.expect("a segment with chains") as usize + 6;
    for number in [0, 3, 4, 5, 7, 8, 10, 11, 13, 14, 15] {
        let mut file = original.clone();
        put(&mut file, format_at, &u16::to_le_bytes(number));
        assert_eq!(find(&file), Err(ImageError::PointerFormat(number)));
    }
    for (at, value, error) in [
        (0, 1, ImageError::ChainsVersion(1)),
        (20, 4, ImageError::ImportsFormat(4)),
        (24, 1, ImageError::SymbolsFormat(1)),
    ] {
        let mut file = original.clone();
        put(&mut file, blob + at, &u32::to_le_bytes(value));
        assert_eq!(find(&file), Err(error));
    }
    assert_eq!(
        ImageError::PointerFormat(7).to_string(),
        "fixup chains of pointer format 7 are not supported: only 64-bit formats of user programs are"
    );
}
