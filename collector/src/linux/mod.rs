//! Linux: what starts, attaches to, samples and looks into programs there, and what begins a session (`record`,
//! `attached`), which is above all the others.

pub mod attach;
pub mod attached;
pub mod death;
mod family;
mod foreign;
mod locks;
mod meter;
mod outside;
pub mod procfs;
mod program;
pub mod record;
mod sampler;
mod sharing;
mod spawn;
mod supervise;
mod systrace;
mod ticker;
mod transfers;
mod unix_peers;
mod unrecorded;
mod witness;
