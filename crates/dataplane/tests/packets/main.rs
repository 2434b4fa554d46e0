//! Packet transcripts through the loaded programs: what arrives, what leaves, and the reason it is counted for.

#[path = "../common/mod.rs"]
mod common;
mod frame;
#[path = "../common/property.rs"]
mod property;
mod rig;
mod routed;

mod admission;
mod bad_input;
mod classes;
mod concurrency;
mod devices;
mod errors;
mod evictions;
mod fragments;
mod hairpin;
mod limits;
mod mappings;
mod policies;
mod program;
mod strays;
mod sweeps;
mod tcp;
mod translation;
mod trunk;
