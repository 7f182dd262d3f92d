//! Links the library so that it needs nothing but libc, as the agent: the unwinder that Rust's panics use
//! comes from the static libgcc_eh. The standard library asks for `-lgcc_s`; a linker script of that name,
//! found first, answers with the static one.

use std::path::PathBuf;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if env::var_os("CARGO_CFG_TARGET_OS").is_none_or(|os| os != "linux") {
        return;
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    fs::write(out.join("libgcc_s.so"), "INPUT(-lgcc_eh -lgcc)\n").expect("OUT_DIR is writable");
    println!("cargo::rustc-link-search=native={}", out.display());
    println!("cargo::rustc-cdylib-link-arg=-static-libgcc");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,now");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
