//! The stackbeat trace format: types generated from `proto/stackbeat.proto`, a writer and a reader
//! of packet streams.
//!
//! The generated code is part of the sources, because a compiler of `.proto` files takes longer to build than
//! all that uses its output. A test says when it is not that of the files; `STACKBEAT_BLESS=1 cargo test -p
//! stackbeat-proto` writes it.

#![forbid(unsafe_code)]

pub mod columns;
pub mod nodes;
pub mod stream;

/// Types generated from `stackbeat.proto`.
#[rustfmt::skip]
#[path = "generated/stackbeat.v1.rs"]
#[allow(clippy::all, missing_docs, unreachable_pub, rustdoc::all)]
pub mod v1;

/// Types generated from `perfetto_subset.proto`: what we write of Perfetto's format.
#[rustfmt::skip]
#[path = "generated/stackbeat.perfetto.rs"]
#[allow(clippy::all, missing_docs, unreachable_pub, rustdoc::all)]
pub mod perfetto;

/// Types generated from `pprof.proto`.
#[rustfmt::skip]
#[path = "generated/stackbeat.pprof.rs"]
#[allow(clippy::all, missing_docs, unreachable_pub, rustdoc::all)]
pub mod pprof;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    #[test]
    fn generated_code_is_that_of_the_proto_files() {
        let package = Path::new(env!("CARGO_MANIFEST_DIR"));
        let names = ["stackbeat", "perfetto_subset", "pprof"];
        let files = names.map(|name| package.join(format!("proto/{name}.proto")));
        let compiled = protox::compile(files, [package.join("proto")]).expect("valid");
        let folder = tempfile::tempdir().expect("a folder");
        let mut config = prost_build::Config::new();
        config.out_dir(folder.path());
        config.compile_fds(compiled).expect("generated");
        let mut generated = 0;
        for entry in fs::read_dir(folder.path()).expect("a folder") {
            let entry = entry.expect("a file");
            let own = package.join("src/generated").join(entry.file_name());
            let new = fs::read_to_string(entry.path()).expect("text");
            if std::env::var_os("STACKBEAT_BLESS").is_some() {
                fs::write(&own, &new).expect("written");
            }
            let old = fs::read_to_string(&own).unwrap_or_default();
            assert!(
                old == new,
                "{} is not what the .proto files say: STACKBEAT_BLESS=1 cargo test -p stackbeat-proto",
                own.display()
            );
            generated += 1;
        }
        assert_eq!(generated, names.len());
    }
}
