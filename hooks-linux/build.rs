//! Links the agent so that it needs nothing but libc: the unwinder that Rust's panics use comes from the
//! static libgcc_eh. The standard library asks for `-lgcc_s`; a linker script of that name, found
//! first, answers with the static one.
//!
//! And of libc it needs nothing that another one may lack. The real one would give each symbol its newest
//! version, which an older glibc refuses at the program's start. So a stand-in takes its place that has the
//! name and nearly no symbols: the others stay undefined and without version, which the loader takes for the
//! one that was there first or is the only one.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    fs::write(out.join("libgcc_s.so"), "INPUT(-lgcc_eh -lgcc)\n").expect("OUT_DIR is writable");
    // The tests of this package are linked with the real one.
    let stand_in = stand_in_for_libc(&out);
    println!("cargo::rustc-cdylib-link-arg=-L{}", stand_in.display());
    println!("cargo::rustc-link-search=native={}", out.display());
    println!("cargo::rustc-cdylib-link-arg=-static-libgcc");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,now");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // By this name a runtime's adapter finds an agent that came by `attach` (`stackbeat_runtime.h`).
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libstackbeat.so");
    // The versions that `versions!` and `hidden_versions!` in the sources give to hooks. Every other hook has
    // none, which the loader takes for any version. The first is one of libc's: a hidden one in its place
    // would be found without a version (glibc's elf/dl-lookup.c, check_match).
    let is_x86_64 = env::var_os("CARGO_CFG_TARGET_ARCH").is_some_and(|arch| arch == "x86_64");
    let versions = match is_x86_64 {
        true => "GLIBC_2.3.2 {};\nGLIBC_2.15 {};\nGLIBC_2.34 {};\n",
        false => "GLIBC_2.34 {};\n",
    };
    let liburing = ["2.0", "2.2", "2.3", "2.8", "2.9"].map(|v| format!("LIBURING_{v} {{}};\n"));
    let script = out.join("versions.map");
    fs::write(&script, versions.to_owned() + &liburing.concat()).expect("OUT_DIR is writable");
    println!(
        "cargo::rustc-cdylib-link-arg=-Wl,--version-script={}",
        script.display()
    );
    // rustc's own list of exports names hooks that have a hidden version only.
    println!("cargo::rustc-cdylib-link-arg=-Wl,--undefined-version");
}

/// Makes a library named libc.so.6 that has a function which everything calls: without one that is used it
/// would be left out. Gives its folder.
fn stand_in_for_libc(out: &Path) -> PathBuf {
    let folder = out.join("libc");
    fs::create_dir_all(&folder).expect("OUT_DIR is writable");
    let source = folder.join("libc.c");
    fs::write(&source, "void memcpy(void) {}\n").expect("OUT_DIR is writable");
    println!("cargo::rerun-if-env-changed=RUSTC_LINKER");
    let linker = env::var_os("RUSTC_LINKER").unwrap_or_else(|| "cc".into());
    let status = Command::new(&linker)
        .args(["-shared", "-nostdlib", "-fno-builtin", "-w"])
        .args(["-Wl,-soname,libc.so.6", "-o"])
        .args([&folder.join("libc.so"), &source])
        .status();
    assert!(
        status.is_ok_and(|status| status.success()),
        "{} does not link a library",
        linker.display()
    );
    folder
}
