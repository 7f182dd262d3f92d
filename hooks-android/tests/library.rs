//! Libraries that tests hook: some of the system, some made here.

use std::ffi::{CStr, CString, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A loaded library. It stays loaded.
pub(crate) struct Library(*mut c_void);

impl Library {
    pub(crate) fn open(path: &Path) -> Library {
        let name = CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: a library of the system, or of the test, without surprises in its constructors.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
        // SAFETY: dlerror's text stays for this thread until the next call.
        let error = || unsafe { CStr::from_ptr(libc::dlerror()).to_owned() };
        assert!(!handle.is_null(), "{path:?}: {:?}", error());
        Library(handle)
    }

    pub(crate) fn address(&self, name: &str) -> *mut c_void {
        let c_name = CString::new(name).unwrap();
        // SAFETY: the library is loaded.
        let address = unsafe { libc::dlsym(self.0, c_name.as_ptr()) };
        assert!(!address.is_null(), "there is no {name}");
        address
    }
}

/// Compiles a library.
pub(crate) fn build(folder: &Path, name: &str, source: &str, options: &[&str]) -> PathBuf {
    let (file, library) = (
        folder.join(format!("{name}.c")),
        folder.join(format!("lib{name}.so")),
    );
    std::fs::write(&file, source).unwrap();
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let status = Command::new(compiler)
        .args(["-O2", "-shared", "-fPIC", "-o"])
        .args([&library, &file])
        .args(options)
        .status()
        .expect("a C compiler");
    assert!(status.success(), "{source}");
    library
}

/// The bytes of code at an address.
#[cfg(target_arch = "x86_64")]
pub(crate) fn code(address: *mut c_void) -> [u8; 64] {
    // SAFETY: the functions of the tests are followed by others.
    unsafe { address.cast::<[u8; 64]>().read() }
}
