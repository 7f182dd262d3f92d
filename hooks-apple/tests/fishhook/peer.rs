//! The module for macOS of the crate fishhook, as it is, for tests on Linux: dyld announces one image.

use std::ffi::{c_char, c_int, c_void, CStr};
use std::sync::atomic::{AtomicUsize, Ordering};

mod arch {
    #[path = "../../vendor/fishhook/src/arch/darwin.rs"]
    pub mod platform;

    #[derive(Clone)]
    pub struct Rebinding {
        pub name: String,
        pub function: usize,
    }
}

/// The image that dyld announces: header and slide.
static IMAGE: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// The crate takes the slide for a `c_int`; dyld hands over a word.
#[no_mangle]
unsafe extern "C" fn _dyld_register_func_for_add_image(
    callback: extern "C" fn(*const c_void, c_int),
) {
    let callback: extern "C" fn(usize, usize) = std::mem::transmute(callback);
    let [header, slide] = [0, 1].map(|at: usize| IMAGE[at].load(Ordering::Relaxed));
    callback(header, slide);
}

/// # Safety
/// An image of so many bytes that is mapped, names, and as many functions.
#[no_mangle]
unsafe extern "C" fn rebind(
    header: usize,
    bytes: usize,
    slide: usize,
    names: *const *const c_char,
    functions: *const usize,
    count: usize,
) {
    mach2::IMAGE[0].store(header, Ordering::Relaxed);
    mach2::IMAGE[1].store(header + bytes, Ordering::Relaxed);
    IMAGE[0].store(header, Ordering::Relaxed);
    IMAGE[1].store(slide, Ordering::Relaxed);
    let rebinding = |number| arch::Rebinding {
        name: CStr::from_ptr(*names.add(number)).to_str().unwrap().to_owned(),
        function: *functions.add(number),
    };
    arch::platform::register_bindings((0..count).map(rebinding).collect());
}
