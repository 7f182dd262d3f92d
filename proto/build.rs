//! Compiles the `.proto` files with protox, so that no `protoc` is needed to build.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let files = protox::compile(
        [
            "proto/stackbeat.proto",
            "proto/perfetto_subset.proto",
            "proto/pprof.proto",
        ],
        ["proto"],
    )?;
    prost_build::Config::new().compile_fds(files)?;
    Ok(())
}
