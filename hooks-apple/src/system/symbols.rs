//! Functions and variables that hooks use besides their originals. They are looked up by name: an import of
//! one that a system does not have keeps a program from starting, and one of CoreFoundation's brings that
//! library in.

use core::ffi::c_void;
use core::sync::atomic::{AtomicUsize, Ordering};

/// Something with a name.
#[derive(Debug)]
pub(super) struct Symbol {
    name: &'static str,
    /// 0: not there, or not looked for yet.
    address: AtomicUsize,
}

impl Symbol {
    const fn named(name: &'static str) -> Symbol {
        Symbol {
            name,
            address: AtomicUsize::new(0),
        }
    }

    /// Its address, as a pointer or a pointer to a function.
    ///
    /// # Safety
    /// `F` is a type of its address.
    pub(super) unsafe fn get<F: Copy>(&self) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<usize>()) };
        let address = self.address.load(Ordering::Acquire);
        let pointer = core::ptr::with_exposed_provenance::<c_void>(address);
        // SAFETY: by contract.
        (address != 0).then(|| unsafe { core::mem::transmute_copy(&pointer) })
    }
}

macro_rules! symbols {
    ($($place:ident = $name:literal;)*) => {
        $(pub(super) static $place: Symbol = Symbol::named($name);)*

        /// Looks for all of them. May lock and allocate.
        pub(super) fn prepare(find: &dyn Fn(&str) -> Option<u64>) {
            for symbol in [$(&$place),*] {
                let found = find(symbol.name).unwrap_or(0);
                symbol.address.store(found as usize, Ordering::Release);
            }
        }
    };
}

symbols! {
    // mach/thread_act.h.
    THREAD_INFO = "thread_info";
    // dyld's dlfcn_private.h.
    DLOPEN_FROM = "dlopen_from";
    // Block.h.
    BLOCK_COPY = "_Block_copy";
    BLOCK_RELEASE = "_Block_release";
    BLOCK_CLASS = "_NSConcreteGlobalBlock";
    // dispatch/block.h.
    BLOCK_CREATE = "dispatch_block_create";
    // libmalloc's stack_logging.h.
    MALLOC_LOGGER = "malloc_logger";
    // libsyscall's stack_logging_internal.h, and mach_init.h.
    SYSCALL_LOGGER = "__syscall_logger";
    TASK_SELF = "mach_task_self_";
    // objc4's objc-sync.mm.
    SYNC_TRY_ENTER = "objc_sync_try_enter";
    // objc4's runtime.h.
    CLASS_LOOK_UP = "objc_lookUpClass";
    CLASS_SUPER = "class_getSuperclass";
    CLASS_METHOD = "class_getInstanceMethod";
    SELECTOR_REGISTER = "sel_registerName";
    METHOD_GET = "method_getImplementation";
    METHOD_SET = "method_setImplementation";
    // CoreFoundation's CFRunLoop.h, CFString.h and CFBase.h.
    RUN_LOOP_MAIN = "CFRunLoopGetMain";
    RUN_LOOP_CURRENT = "CFRunLoopGetCurrent";
    RUN_LOOP_MODE = "CFRunLoopCopyCurrentMode";
    RUN_LOOP_COMMON_MODES = "kCFRunLoopCommonModes";
    OBSERVER_CREATE = "CFRunLoopObserverCreate";
    OBSERVER_ADD = "CFRunLoopAddObserver";
    OBSERVER_REMOVE = "CFRunLoopRemoveObserver";
    STRING_GET = "CFStringGetCString";
    RELEASE = "CFRelease";
}
