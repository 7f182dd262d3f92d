//! The library stays loaded for good: threads may be in a hook, and runtimes keep what they have got of it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
