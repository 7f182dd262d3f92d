//! Damaged images: an error or slots in writable segments, never a panic, a read outside or a loop without
//! end.

use std::fs::File;
use std::time::{Duration, Instant};

use stackbeat_apple::macho::{Image, ImageError, InFile, indirect_slots, slots};
use stackbeat_apple::rebind::Rebinder;

use crate::linkers::{ARCHITECTURES, LINKERS, image};
use crate::rebinding::{hooks, no_functions, replacements, wanted};
use crate::truth::truth;
use crate::world::{Libraries, map, read};

/// Numbers that look random and are the same each time (xorshift).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

/// Changes one to four places: a bit, a byte, or a number that is at an edge.
fn damage(file: &mut [u8], numbers: &mut Numbers, places: &[std::ops::Range<usize>]) {
    const EDGES: [u32; 8] = [
        0,
        1,
        7,
        0x7fff_ffff,
        0x8000_0000,
        u32::MAX,
        0xffff_fff8,
        0x1_0000,
    ];
    for _ in 0..=numbers.below(4) {
        let place = &places[numbers.below(places.len())];
        let at = place.start + numbers.below(place.len());
        match numbers.below(3) {
            0 => file[at] ^= 1 << numbers.below(8),
            1 => file[at] = numbers.next() as u8,
            _ => {
                let at = at & !3;
                let edge = EDGES[numbers.below(EDGES.len())];
                if let Some(word) = file.get_mut(at..at + 4) {
                    word.copy_from_slice(&edge.to_le_bytes());
                }
            }
        }
    }
}

/// Where damage hurts: load commands, `__LINKEDIT`, and the data that chains run through.
fn places(file: &[u8]) -> Vec<std::ops::Range<usize>> {
    let image = Image::read(file).expect("an image");
    let commands = 32 + u32::from_le_bytes(file[20..24].try_into().expect("four")) as usize;
    let rest = image
        .segments
        .iter()
        .filter(|s| s.name != b"__TEXT" && s.file_bytes > 0);
    let rest = rest.map(|s| {
        // Pages are mostly padding.
        let bytes = s.file_bytes.min(1024) as usize;
        s.file_offset as usize..s.file_offset as usize + bytes
    });
    std::iter::once(0..commands).chain(rest).collect()
}

#[test]
fn damaged_images_are_errors_or_have_slots_where_slots_may_be() {
    let mut numbers = Numbers(0x5eed_5eed_5eed_5eed);
    let (mut errors, mut read_whole) = (0, 0);
    for linker in LINKERS {
        for architecture in ARCHITECTURES {
            let whole = read(&image(linker, architecture));
            let places = places(&whole);
            for _ in 0..1_500 {
                let mut file = whole.clone();
                damage(&mut file, &mut numbers, &places);
                if numbers.below(8) == 0 {
                    file.truncate(numbers.below(file.len()));
                }
                let begin = Instant::now();
                match find(&file) {
                    Ok(()) => read_whole += 1,
                    Err(error) => {
                        errors += 1;
                        assert!(!error.to_string().is_empty());
                    }
                }
                assert!(begin.elapsed() < Duration::from_secs(20), "{linker:?}");
            }
        }
    }
    assert!(
        errors > 1_000 && read_whole > 1_000,
        "{errors} errors, {read_whole} read"
    );
}

fn find(file: &[u8]) -> Result<(), ImageError> {
    let image = Image::read(file)?;
    let source = InFile(file);
    let all = slots(&image, &source, Some(&source), &wanted);
    let calls = indirect_slots(&image, &source, &wanted);
    for slot in [&all, &calls]
        .into_iter()
        .flatten()
        .flat_map(|found| &found.slots)
    {
        let segment = image
            .segment_of_slot(slot.address)
            .expect("a segment for slots");
        assert!(segment.is_writable && segment.contains(slot.address, 8));
    }
    all.and(calls).map(drop)
}

#[test]
fn a_damaged_image_in_memory_is_changed_in_its_slots_only() {
    let functions = no_functions();
    let hooks = hooks();
    let world = Libraries(functions.clone());
    let mut numbers = Numbers(0x0dd5_eed5);
    let mut rebound = 0;
    for linker in LINKERS {
        let path = image(linker, ARCHITECTURES[0]);
        let (file, truth) = (read(&path), truth(&path));
        let places = places(&file);
        for _ in 0..60 {
            let mapped = map(&file, &truth, &functions, false);
            let slots = mapped.slots();
            mapped.overwrite(|memory| damage(memory, &mut numbers, &places));
            let before = mapped.contents();
            let rebinder = Rebinder::new(&replacements(&hooks), &world);
            // SAFETY: a mapped image whose code is not called; what is damaged is checked.
            let report =
                unsafe { rebinder.add_image(mapped.loaded, || File::open(&path).ok(), &world) };
            rebound += report.map_or(0, |report| report.rebound);
            let after = mapped.contents();
            for (at, (old, new)) in before.chunks(8).zip(after.chunks(8)).enumerate() {
                if old != new {
                    assert!(slots.contains_key(&(at as u64 * 8)), "{linker:?}: {at:#x}");
                    let new = u64::from_ne_bytes(new.try_into().expect("a word"));
                    assert!(hooks.values().any(|hook| *hook == new));
                }
            }
            // SAFETY: the image is mapped.
            assert_eq!(unsafe { rebinder.restore() }, 0);
            assert_eq!(mapped.contents(), before);
        }
    }
    assert!(rebound > 100, "{rebound}");
}
