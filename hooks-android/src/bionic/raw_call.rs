//! `syscall()`: by it programs wait for futexes of their own, and make other calls that wait. So do ART's own
//! locks.

use core::ffi::{c_long, c_void};
use core::mem::transmute;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use stackbeat_core::posix::function_table::Function;
use stackbeat_core::posix::raw_call::{self, Call, Kind, NUMBERS};

static ORIGINAL: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
static LOOKED_AT: [u64; NUMBERS / 64] = raw_call::looked_at(&[]);

pub(super) const FUNCTIONS: &[Function] = super::functions! { syscall = ORIGINAL; };

stackbeat_core::raw_calls! { syscall = ORIGINAL, LOOKED_AT => looked }

type Syscall =
    unsafe extern "C-unwind" fn(c_long, c_long, c_long, c_long, c_long, c_long, c_long) -> c_long;

unsafe extern "C-unwind" fn looked(
    number: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
) -> c_long {
    let original = |call: &Call| {
        let [a, b, c, d, e, f] = call.arguments;
        // SAFETY: whoever uses the table has put the function of this name there, and these are its caller's
        // arguments. It takes them where they lie, however many there are.
        unsafe {
            let function = transmute::<*mut c_void, Syscall>(ORIGINAL.load(Ordering::Relaxed));
            function(call.number, a, b, c, d, e, f)
        }
    };
    let call = Call {
        number,
        arguments: [a, b, c, d, e, f],
    };
    match call.kind() {
        // SAFETY: as above.
        Kind::Waits(probe, how) => unsafe { call.wait(probe, how, original) },
        Kind::Wakes(how) => call.wake(how, original),
        Kind::Other => original(&call),
    }
}
