//! Links the agent so that it needs nothing but libc: the unwinder that Rust's panics use comes from the
//! static libgcc_eh. The standard library asks for `-lgcc_s`; a linker script of that name, found
//! first, answers with the static one.

use std::{env, fs, path::PathBuf};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    fs::write(out.join("libgcc_s.so"), "INPUT(-lgcc_eh -lgcc)\n").expect("OUT_DIR is writable");
    println!("cargo::rustc-link-search=native={}", out.display());
    println!("cargo::rustc-cdylib-link-arg=-static-libgcc");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,now");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // The versions that `versions!` in the sources gives to hooks. Every other hook has none, which the
    // loader takes for any version.
    let is_x86_64 = env::var_os("CARGO_CFG_TARGET_ARCH").is_some_and(|arch| arch == "x86_64");
    let versions = match is_x86_64 {
        true => "GLIBC_2.3.2 {};\nGLIBC_2.15 {};\nGLIBC_2.34 {};\n",
        false => "GLIBC_2.34 {};\n",
    };
    let script = out.join("versions.map");
    fs::write(&script, versions).expect("OUT_DIR is writable");
    println!(
        "cargo::rustc-cdylib-link-arg=-Wl,--version-script={}",
        script.display()
    );
}
