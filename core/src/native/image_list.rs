//! The modules of this process where the dynamic linker announces them (Apple's systems): hooks hand over
//! what comes and goes, captures write it down. Frame pointers are followed without it, so it is for names
//! only.
//!
//! # Signal safety
//! [`report_changes`] runs in captures: no allocation, no lock. [`add`] allocates, and runs where dyld calls
//! back. Nothing is ever freed.

use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use std::boxed::Box;

use crate::address::Bias;

/// Most images that are told apart, those that have gone included. A large app has about a thousand.
const MOST: usize = 8192;
const ANNOUNCED: u32 = 1;
const ANNOUNCED_GONE: u32 = 2;

/// A loaded image.
#[derive(Debug)]
pub struct LoadedImage {
    /// Where its code begins in this process.
    pub start: u64,
    /// First address behind its code.
    pub end: u64,
    /// Address in the process minus address in the file.
    pub slide: Bias,
    /// Its file.
    pub path: Box<[u8]>,
    /// The UUID that the linker has given it, by which its dSYM is found; empty: none.
    pub uuid: Box<[u8]>,
    /// First epoch with it, and first one without it; 0: it is loaded.
    epoch: u32,
    gone: AtomicU32,
    announced: AtomicU32,
}

static IMAGES: [AtomicPtr<LoadedImage>; MOST] =
    [const { AtomicPtr::new(core::ptr::null_mut()) }; MOST];
static COUNT: AtomicUsize = AtomicUsize::new(0);
static EPOCH: AtomicU32 = AtomicU32::new(1);
static PENDING: AtomicBool = AtomicBool::new(false);

/// The epoch in force: which code lies where changes only with it.
pub fn epoch() -> u32 {
    EPOCH.load(Ordering::Acquire)
}

fn all() -> impl Iterator<Item = &'static LoadedImage> {
    let count = COUNT.load(Ordering::Acquire).min(MOST);
    let images = IMAGES.iter().take(count);
    // SAFETY: null, or an image that is never freed.
    images.filter_map(|place| unsafe { place.load(Ordering::Acquire).as_ref() })
}

/// An image was loaded. One that is known already changes nothing.
pub fn add(range: (u64, u64), slide: Bias, path: &[u8], uuid: &[u8]) {
    let is_known =
        |image: &LoadedImage| image.start == range.0 && image.gone.load(Ordering::Relaxed) == 0;
    if all().any(is_known) {
        return;
    }
    let number = COUNT.fetch_add(1, Ordering::AcqRel);
    let Some(place) = IMAGES.get(number) else {
        // Its frames have no names.
        return;
    };
    let image = LoadedImage {
        start: range.0,
        end: range.1,
        slide,
        path: path.into(),
        uuid: uuid.into(),
        epoch: epoch(),
        gone: AtomicU32::new(0),
        announced: AtomicU32::new(0),
    };
    place.store(Box::into_raw(Box::new(image)), Ordering::Release);
    PENDING.store(true, Ordering::Release);
}

/// The image whose code begins there is about to be unloaded. Other code may come to lie there: another epoch
/// begins.
pub fn remove(start: u64) {
    let loaded =
        |image: &&LoadedImage| image.start == start && image.gone.load(Ordering::Relaxed) == 0;
    if let Some(image) = all().find(loaded) {
        let next = EPOCH.fetch_add(1, Ordering::AcqRel).wrapping_add(1);
        image.gone.store(next, Ordering::Release);
        PENDING.store(true, Ordering::Release);
    }
}

/// Another session begins: all that is loaded is to be reported to it.
pub fn begin_anew() {
    for image in all() {
        let seen = match image.gone.load(Ordering::Relaxed) {
            0 => 0,
            _ => ANNOUNCED | ANNOUNCED_GONE,
        };
        image.announced.store(seen, Ordering::Relaxed);
    }
    PENDING.store(true, Ordering::Release);
}

/// Calls `report` for what came or went since the last call: an image, with its first epoch, and for one that
/// has gone the first epoch without it.
pub fn report_changes(mut report: impl FnMut(&'static LoadedImage, u32, Option<u32>)) {
    if !PENDING.load(Ordering::Relaxed) || !PENDING.swap(false, Ordering::AcqRel) {
        return;
    }
    for image in all() {
        if image.announced.fetch_or(ANNOUNCED, Ordering::Relaxed) & ANNOUNCED == 0 {
            report(image, image.epoch, None);
        }
        let gone = image.gone.load(Ordering::Acquire);
        let seen = || image.announced.fetch_or(ANNOUNCED_GONE, Ordering::Relaxed);
        if gone != 0 && seen() & ANNOUNCED_GONE == 0 {
            report(image, image.epoch, Some(gone));
        }
    }
}
