//! `libstackbeat_art_rig.so`: ART's adapter beside an agent, for the launcher of `scripts/art`, which calls
//! these functions. Programs carry `libstackbeat_app.so` instead.

use core::ffi::c_void;

use stackbeat_android::art;

/// The virtual machine is up.
#[unsafe(no_mangle)]
extern "C" fn art_agent_vm(vm: *mut *const [*mut c_void; 8], env: *mut c_void) {
    // Not recorded: nothing to do.
    let Some(agent) = art::agent_of_process() else {
        return;
    };
    // SAFETY: so the launcher calls it; the table is the agent's.
    if let Err(error) = unsafe { art::rig::begin(agent, vm, env) } {
        eprintln!("stackbeat: Java stays unrecorded: {error}");
    }
}

/// `main` has returned.
#[unsafe(no_mangle)]
extern "C" fn art_agent_end(_vm: *mut c_void, _env: *mut c_void) {
    // SAFETY: it is called in native code.
    unsafe { art::rig::end() };
}
