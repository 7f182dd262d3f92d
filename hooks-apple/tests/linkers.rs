//! Makes images: clang compiles `programs/image.c`, and two linkers link it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};

/// Which linker, and what it writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Linker {
    /// LLVM's: bind opcodes.
    LldOpcodes,
    /// LLVM's: fixup chains.
    LldChains,
    /// Zig's own: bind opcodes.
    Zig,
}

pub(crate) const LINKERS: [Linker; 3] = [Linker::LldOpcodes, Linker::LldChains, Linker::Zig];
/// As LLVM's linker and clang name them.
pub(crate) const ARCHITECTURES: [(&str, &str); 2] = [("x86_64", "x86_64"), ("arm64", "aarch64")];

/// The one whose code runs here.
#[cfg(target_arch = "x86_64")]
pub(crate) const OWN: (&str, &str) = ARCHITECTURES[0];
/// The one whose code runs here.
#[cfg(target_arch = "aarch64")]
pub(crate) const OWN: (&str, &str) = ARCHITECTURES[1];

/// Tools of `scripts/install-apple-tools.sh`, which is run if they are missing.
pub(crate) fn tools() -> &'static Path {
    static TOOLS: OnceLock<PathBuf> = OnceLock::new();
    TOOLS.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .expect("a workspace");
        let folder = root.join("target/apple-tools");
        run(Command::new(root.join("scripts/install-apple-tools.sh")).arg(&folder));
        folder.join("python")
    })
}

pub(crate) fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs")
}

/// Runs a command, and gives what it says.
pub(crate) fn run(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8(output.stdout).expect("text")
}

/// A folder for what tests make, kept until they are built anew.
pub(crate) fn folder() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

/// clang and the linker of the package ziglang.
pub(crate) fn zig() -> Command {
    let mut command = Command::new(tools().join("ziglang/zig"));
    for cache in ["ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"] {
        command.env(cache, folder().join("cache"));
    }
    command
}

/// Rust's copy of LLVM's linker: of the compiler in use, or of one that rustup has installed.
pub(crate) fn lld() -> PathBuf {
    let used = run(Command::new("rustc").args(["--print", "sysroot"]));
    let home = std::env::var_os("HOME").unwrap_or_default();
    let installed = std::fs::read_dir(Path::new(&home).join(".rustup/toolchains"));
    let installed = installed
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    let roots = std::iter::once(PathBuf::from(used.trim())).chain(installed);
    let mut linkers =
        roots.map(|root| root.join("lib/rustlib/x86_64-unknown-linux-gnu/bin/rust-lld"));
    linkers
        .find(|linker| linker.exists())
        .expect("rust-lld of a toolchain of rustup")
}

/// The image of `programs/image.c`. Each is made once.
pub(crate) fn image(linker: Linker, architecture: (&'static str, &'static str)) -> PathBuf {
    image_of("image", linker, architecture)
}

/// The same of another program.
pub(crate) fn image_of(
    program: &'static str,
    linker: Linker,
    architecture: (&'static str, &'static str),
) -> PathBuf {
    static MADE: Mutex<BTreeSet<(&str, Linker, &str)>> = Mutex::new(BTreeSet::new());
    let path = folder().join(format!("{program}-{linker:?}-{}.dylib", architecture.0));
    let mut made = MADE.lock().expect("no test failed here");
    if made.insert((program, linker, architecture.0)) {
        // Another run may be reading it.
        let new = path.with_extension(std::process::id().to_string());
        link(&new, program, linker, architecture);
        std::fs::rename(&new, &path).expect("the same folder");
    }
    path
}

fn link(image: &Path, program: &str, linker: Linker, (arch, clang_arch): (&str, &str)) {
    let object = image.with_extension("o");
    let target = format!("{clang_arch}-macos.11.0");
    let library = programs().join("libSystem.tbd");
    // Only a program that calls it has it among its libraries.
    let other = |name: &str| programs().join(format!("{name}.tbd"));
    let others = match program {
        "system" => &[other("libobjc"), other("CoreFoundation")][..],
        _ => &[],
    };
    run(zig()
        .args(["cc", "-target", &target, "-c", "-O1", "-fblocks", "-o"])
        .args([&object, &programs().join(format!("{program}.c"))]));
    let chains = match linker {
        Linker::Zig => {
            let options = ["cc", "-target", &target, "-dynamiclib", "-nostdlib", "-o"];
            run(zig()
                .args(options)
                .args([image, &object, &library])
                .args(others));
            return;
        }
        Linker::LldOpcodes => "-no_fixup_chains",
        Linker::LldChains => "-fixup_chains",
    };
    run(Command::new(lld())
        .args(["-flavor", "darwin", "-arch", arch, "-dylib", chains])
        .args(["-platform_version", "macos", "11.0", "14.0", "-o"])
        .args([image, &object, &library])
        .args(others));
}
