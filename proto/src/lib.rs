//! The stackbeat trace format: types generated from `proto/stackbeat.proto`, a writer and a reader
//! of packet streams.

#![forbid(unsafe_code)]

/// Types generated from `stackbeat.proto`.
#[allow(clippy::all, missing_docs, rustdoc::all)]
pub mod v1 {
    include!(concat!(env!("OUT_DIR"), "/stackbeat.v1.rs"));
}
