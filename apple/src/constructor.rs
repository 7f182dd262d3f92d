//! Begins a session as soon as the library is loaded, where the switch says so.
//!
//! dyld may hold its lock while it calls an initializer, and what begins a session asks dyld for names and
//! waits for threads. So that has a thread of its own, and dyld goes on at once.

use crate::own_session::{self, SessionError};
use crate::switch;

extern "C" fn begin() {
    let outcome = std::panic::catch_unwind(|| {
        let Some(switched) = switch::switched() else {
            return;
        };
        for complaint in &switched.complaints {
            say(complaint);
        }
        let started = switched
            .wanted()
            .and_then(|wanted| own_session::start_soon(wanted, switched.duration, failed));
        if let Err(error) = started {
            failed(&error);
        }
    });
    if outcome.is_err() {
        say("a defect of stackbeat's: the app is not recorded");
    }
}

fn failed(error: &SessionError) {
    say(&stackbeat_collector::embedded::error_text(error));
}

/// On standard error, which goes to Xcode's console and `simctl launch --console`.
fn say(text: &str) {
    let text = format!("stackbeat: {text}\n");
    // SAFETY: the text lives during the call.
    unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
}

/// dyld calls what stands in this section when the library is loaded (mach-o/loader.h,
/// `S_MOD_INIT_FUNC_POINTERS`). glibc has its own, for tests.
#[used]
#[cfg_attr(
    target_vendor = "apple",
    unsafe(link_section = "__DATA,__mod_init_func,mod_init_funcs")
)]
#[cfg_attr(not(target_vendor = "apple"), unsafe(link_section = ".init_array"))]
static BEGIN: extern "C" fn() = begin;
