//! The stackbeat trace format: types generated from `proto/stackbeat.proto`, a writer and a reader
//! of packet streams.

#![forbid(unsafe_code)]

pub mod columns;
pub mod nodes;
pub mod stream;

/// Types generated from `stackbeat.proto`.
#[allow(clippy::all, missing_docs, unreachable_pub, rustdoc::all)]
pub mod v1 {
    include!(concat!(env!("OUT_DIR"), "/stackbeat.v1.rs"));
}

/// Types generated from `perfetto_subset.proto`: what we write of Perfetto's format.
#[allow(clippy::all, missing_docs, unreachable_pub, rustdoc::all)]
pub mod perfetto {
    include!(concat!(env!("OUT_DIR"), "/stackbeat.perfetto.rs"));
}

/// Types generated from `pprof.proto`.
#[allow(clippy::all, missing_docs, unreachable_pub, rustdoc::all)]
pub mod pprof {
    include!(concat!(env!("OUT_DIR"), "/stackbeat.pprof.rs"));
}
