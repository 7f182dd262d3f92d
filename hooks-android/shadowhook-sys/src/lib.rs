//! Bindings to ShadowHook's C API, version 1.0.6. `libshadowhook.so` is loaded at run time, so an app without
//! it starts, too.
//!
//! Everything that the header `shadowhook.h` declares is here: [`Functions`], the numbers in [`errno`],
//! [`mode`] and [`record_item`], and the macros that wrap functions: [`Functions::is_shared_mode`] and
//! [`Functions::is_unique_mode`]. The macros that take the address their own caller returns to
//! (`SHADOWHOOK_POP_STACK` and its relatives) need the C compiler; only shared mode uses them.
//!
//! Thread safety: all functions may be called by any thread, [`Functions::shadowhook_init`] included.

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::fmt;
use core::mem;

/// The version whose header this follows.
pub const VERSION: &str = "1.0.6";

/// `shadowhook_mode_t`.
pub type Mode = c_uint;

/// How functions are hooked: `shadowhook_mode_t`.
pub mod mode {
    use super::Mode;

    /// A function can have several hooks. A replacement must use ShadowHook's macros.
    pub const SHARED: Mode = 0;
    /// A function can have one hook. A replacement is an ordinary function.
    pub const UNIQUE: Mode = 1;
}

/// Declares constants, and a table of them for comparisons with the header.
macro_rules! constants {
    ($(#[$module_doc:meta])* $module:ident $prefix:literal $table:ident: $type:ty {
        $($(#[$doc:meta])* $name:ident = $value:expr;)*
    }) => {
        $(#[$module_doc])*
        pub mod $module {
            #[allow(unused_imports)]
            use super::*;
            $($(#[$doc])* pub const $name: $type = $value;)*
        }
        /// Name in the header, and value.
        pub const $table: &[(&str, i64)] = &[$((concat!($prefix, stringify!($name)), $value as i64),)*];
    };
}

constants! {
    /// What went wrong: `SHADOWHOOK_ERRNO_…`. [`Functions::shadowhook_to_errmsg`] has the words.
    errno "SHADOWHOOK_ERRNO_" ERRNOS: c_int {
        /// Nothing.
        OK = 0;
        /// The library to be hooked is not loaded yet.
        PENDING = 1;
        /// `shadowhook_init` was not called, or failed.
        UNINIT = 2;
        /// An argument is null or not valid.
        INVALID_ARG = 3;
        /// No memory.
        OOM = 4;
        /// mprotect failed.
        MPROT = 5;
        /// Writing the code crashed.
        WRITE_CRASH = 6;
        /// init: the place of its errno.
        INIT_ERRNO = 7;
        /// init: its handler for SIGSEGV.
        INIT_SIGSEGV = 8;
        /// init: its handler for SIGBUS.
        INIT_SIGBUS = 9;
        /// init: memory for entries.
        INIT_ENTER = 10;
        /// init: the functions that it calls past hooks.
        INIT_SAFE = 11;
        /// init: the dynamic linker.
        INIT_LINKER = 12;
        /// init: what shared mode needs.
        INIT_HUB = 13;
        /// Shared mode: making a function's list.
        HUB_CREAT = 14;
        /// Watching libraries being loaded.
        MONITOR_DLOPEN = 15;
        /// The thread that watches.
        MONITOR_THREAD = 16;
        /// Opening the library crashed.
        HOOK_DLOPEN_CRASH = 17;
        /// The library has no such symbol.
        HOOK_DLSYM = 18;
        /// Searching the symbol crashed.
        HOOK_DLSYM_CRASH = 19;
        /// Unique mode: the function is hooked already.
        HOOK_DUP = 20;
        /// Asking for the address' symbol crashed.
        HOOK_DLADDR_CRASH = 21;
        /// The address belongs to no symbol.
        HOOK_DLINFO = 22;
        /// The symbol's size is not known, or too small.
        HOOK_SYMSZ = 23;
        /// No memory near the function.
        HOOK_ENTER = 24;
        /// Moving instructions crashed.
        HOOK_REWRITE_CRASH = 25;
        /// Instructions cannot be moved.
        HOOK_REWRITE_FAILED = 26;
        /// There is no such hook.
        UNHOOK_NOTFOUND = 27;
        /// Comparing the code crashed.
        UNHOOK_CMP_CRASH = 28;
        /// The code at the function is not ShadowHook's.
        UNHOOK_TRAMPO_MISMATCH = 29;
        /// The jump's other half is not ShadowHook's.
        UNHOOK_EXIT_MISMATCH = 30;
        /// Looking at that half crashed.
        UNHOOK_EXIT_CRASH = 31;
        /// The hook to be removed had failed.
        UNHOOK_ON_ERROR = 32;
        /// The hook to be removed waits for its library.
        UNHOOK_ON_UNFINISHED = 33;
    }
}

constants! {
    /// What a record of `shadowhook_get_records` has: `SHADOWHOOK_RECORD_ITEM_…`.
    record_item "SHADOWHOOK_RECORD_ITEM_" RECORD_ITEMS: u32 {
        /// Everything.
        ALL = 0x3ff;
        /// When.
        TIMESTAMP = 1 << 0;
        /// The library that asked.
        CALLER_LIB_NAME = 1 << 1;
        /// Hook or unhook.
        OP = 1 << 2;
        /// The hooked library.
        LIB_NAME = 1 << 3;
        /// The function's name.
        SYM_NAME = 1 << 4;
        /// The function's address.
        SYM_ADDR = 1 << 5;
        /// The replacement.
        NEW_ADDR = 1 << 6;
        /// Bytes of code that were replaced.
        BACKUP_LEN = 1 << 7;
        /// The result.
        ERRNO = 1 << 8;
        /// The hook's handle.
        STUB = 1 << 9;
    }
}

/// `shadowhook_hooked_t`: a hook for which a library had to be loaded is there. Gets an [`errno`], the
/// library, the symbol, its address, the replacement, the original, and the argument given with the hook.
#[allow(non_camel_case_types)]
pub type shadowhook_hooked_t = unsafe extern "C" fn(
    c_int,
    *const c_char,
    *const c_char,
    *mut c_void,
    *mut c_void,
    *mut c_void,
    *mut c_void,
);

/// Declares [`Functions`], how they are found, and a table of them for comparisons with the header.
macro_rules! functions {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        /// ShadowHook's functions. Each is `unsafe`: their contracts are those of the manual.
        #[derive(Clone, Copy)]
        pub struct Functions {
            $($(#[$doc])* pub $name: unsafe extern "C" fn($($type),*) $(-> $result)?,)*
            /// What `shadowhook_init` gave. The header of 1.0.6 declares it, and its libraries do not have
            /// it.
            pub shadowhook_get_init_errno: Option<unsafe extern "C" fn() -> c_int>,
        }

        /// Name, arguments and result of each function, in Rust's words.
        pub const DECLARATIONS: &[(&str, &[&str], &str)] = &[
            $((stringify!($name), &[$(stringify!($type)),*], concat!($(stringify!($result))?)),)*
            ("shadowhook_get_init_errno", &[], "c_int"),
        ];

        impl Functions {
            /// # Safety
            ///
            /// `handle` is an open library whose functions of these names are ShadowHook's.
            unsafe fn find(handle: *mut c_void) -> Result<Functions, LoadError> {
                Ok(Functions {
                    $($name: {
                        // SAFETY: as the caller says.
                        let address = unsafe { symbol(handle, concat!(stringify!($name), "\0")) }?;
                        // SAFETY: the header declares it so.
                        unsafe {
                            mem::transmute::<*mut c_void, unsafe extern "C" fn($($type),*) $(-> $result)?>(address)
                        }
                    },)*
                    // SAFETY: as above.
                    shadowhook_get_init_errno: unsafe { symbol(handle, "shadowhook_get_init_errno\0") }
                        .ok()
                        // SAFETY: the header declares it so.
                        .map(|address| unsafe {
                            mem::transmute::<*mut c_void, unsafe extern "C" fn() -> c_int>(address)
                        }),
                })
            }
        }
    };
}

functions! {
    /// The library's version. The text is static.
    fn shadowhook_get_version() -> *const c_char;
    /// Gives an [`errno`]. Later calls change nothing and answer as the first.
    fn shadowhook_init(mode: Mode, debuggable: bool) -> c_int;
    /// The mode of `shadowhook_init`.
    fn shadowhook_get_mode() -> Mode;
    /// Whether it logs.
    fn shadowhook_get_debuggable() -> bool;
    /// Log, or not.
    fn shadowhook_set_debuggable(debuggable: bool);
    /// Whether it keeps records of what it did.
    fn shadowhook_get_recordable() -> bool;
    /// Keep records, or not.
    fn shadowhook_set_recordable(recordable: bool);
    /// The calling thread's last [`errno`].
    fn shadowhook_get_errno() -> c_int;
    /// An [`errno`] in words. The text is static.
    fn shadowhook_to_errmsg(error_number: c_int) -> *const c_char;
    /// Hooks code that no symbol names. Gives a handle, or null.
    fn shadowhook_hook_func_addr(func_addr: *mut c_void, new_addr: *mut c_void, orig_addr: *mut *mut c_void) -> *mut c_void;
    /// Hooks the function that a symbol names, by its address. Gives a handle, or null.
    fn shadowhook_hook_sym_addr(sym_addr: *mut c_void, new_addr: *mut c_void, orig_addr: *mut *mut c_void) -> *mut c_void;
    /// Hooks by library and symbol, also one that is not loaded yet. Gives a handle, or null.
    fn shadowhook_hook_sym_name(lib_name: *const c_char, sym_name: *const c_char, new_addr: *mut c_void, orig_addr: *mut *mut c_void) -> *mut c_void;
    /// As `shadowhook_hook_sym_name`, and says when the hook is there.
    fn shadowhook_hook_sym_name_callback(lib_name: *const c_char, sym_name: *const c_char, new_addr: *mut c_void, orig_addr: *mut *mut c_void, hooked: Option<shadowhook_hooked_t>, hooked_arg: *mut c_void) -> *mut c_void;
    /// Takes a handle. Gives 0, or -1 with the reason in `shadowhook_get_errno`.
    fn shadowhook_unhook(stub: *mut c_void) -> c_int;
    /// Its records as text, for `free`; null: none.
    fn shadowhook_get_records(item_flags: u32) -> *mut c_char;
    /// Writes its records into a descriptor.
    fn shadowhook_dump_records(fd: c_int, item_flags: u32);
    /// Opens a loaded library past the linker's namespaces, for the functions below.
    fn shadowhook_dlopen(lib_name: *const c_char) -> *mut c_void;
    /// Closes it.
    fn shadowhook_dlclose(handle: *mut c_void);
    /// A symbol of `.dynsym`, else of `.symtab`.
    fn shadowhook_dlsym(handle: *mut c_void, sym_name: *const c_char) -> *mut c_void;
    /// A symbol of `.dynsym`.
    fn shadowhook_dlsym_dynsym(handle: *mut c_void, sym_name: *const c_char) -> *mut c_void;
    /// A symbol of `.symtab`, also of the compressed one.
    fn shadowhook_dlsym_symtab(handle: *mut c_void, sym_name: *const c_char) -> *mut c_void;
    /// Shared mode, in a replacement: what it calls next.
    fn shadowhook_get_prev_func(func: *mut c_void) -> *mut c_void;
    /// Shared mode: a replacement returns there.
    fn shadowhook_pop_stack(return_address: *mut c_void);
    /// Shared mode: the replacement may be entered again by the same thread.
    fn shadowhook_allow_reentrant(return_address: *mut c_void);
    /// Shared mode: it may not.
    fn shadowhook_disallow_reentrant(return_address: *mut c_void);
    /// Shared mode: where the hooked function's caller goes on.
    fn shadowhook_get_return_address() -> *mut c_void;
}

impl Functions {
    /// Loads `libshadowhook.so`, for good. A name without a slash is searched where the app's libraries are.
    ///
    /// # Safety
    ///
    /// The library of this name is ShadowHook.
    pub unsafe fn load(name: &CStr) -> Result<Functions, LoadError> {
        // SAFETY: the caller names a library that may be loaded.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            return Err(LoadError::NoLibrary(last_error()));
        }
        // SAFETY: just opened, and never closed.
        unsafe { Functions::find(handle) }
    }

    /// `SHADOWHOOK_IS_SHARED_MODE`.
    pub fn is_shared_mode(&self) -> bool {
        // SAFETY: reads a word.
        unsafe { (self.shadowhook_get_mode)() == mode::SHARED }
    }

    /// `SHADOWHOOK_IS_UNIQUE_MODE`.
    pub fn is_unique_mode(&self) -> bool {
        // SAFETY: reads a word.
        unsafe { (self.shadowhook_get_mode)() == mode::UNIQUE }
    }

    /// An [`errno`] in ShadowHook's words.
    pub fn message(&self, error: c_int) -> String {
        // SAFETY: any number may be asked for.
        let text = unsafe { (self.shadowhook_to_errmsg)(error) };
        match text.is_null() {
            true => "no text".to_owned(),
            // SAFETY: a static text.
            false => unsafe { CStr::from_ptr(text) }
                .to_string_lossy()
                .into_owned(),
        }
    }
}

impl fmt::Debug for Functions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Functions").finish_non_exhaustive()
    }
}

/// Why `libshadowhook.so` cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadError {
    /// It cannot be loaded: the dynamic linker's words.
    NoLibrary(String),
    /// It has no such function: another version, or another library.
    NoFunction(String),
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::NoLibrary(why) => write!(
                f,
                "libshadowhook.so cannot be loaded: {why}; add com.bytedance.android:shadowhook:{VERSION} to the app"
            ),
            LoadError::NoFunction(name) => write!(
                f,
                "the loaded libshadowhook.so has no {name}; use version {VERSION}"
            ),
        }
    }
}

impl std::error::Error for LoadError {}

/// # Safety
///
/// `handle` is an open library.
unsafe fn symbol(handle: *mut c_void, name: &str) -> Result<*mut c_void, LoadError> {
    let name = CStr::from_bytes_with_nul(name.as_bytes()).unwrap_or(c"");
    // SAFETY: as the caller says.
    let address = unsafe { libc::dlsym(handle, name.as_ptr()) };
    match address.is_null() {
        true => Err(LoadError::NoFunction(name.to_string_lossy().into_owned())),
        false => Ok(address),
    }
}

fn last_error() -> String {
    // SAFETY: this thread's last error, copied before the next call.
    unsafe {
        let text = libc::dlerror();
        match text.is_null() {
            true => "no reason given".to_owned(),
            false => CStr::from_ptr(text).to_string_lossy().into_owned(),
        }
    }
}
