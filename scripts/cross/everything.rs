//! What runs on the program's threads, for a link that shows what it asks of the platform.
#[cfg(with_android)]
extern crate stackbeat_android;
extern crate stackbeat_api;
#[cfg(with_apple)]
extern crate stackbeat_apple;
extern crate stackbeat_core;

#[unsafe(no_mangle)]
pub extern "C" fn stackbeat_everything() -> u32 {
    stackbeat_core::platform::process_id()
}
