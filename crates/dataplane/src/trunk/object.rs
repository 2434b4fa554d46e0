//! The compiled program, loaded once per instance.

use std::path::Path;

use anabranch_policy::{abi, spread::Table};
use aya::{
    Ebpf, EbpfLoader,
    maps::{Array, MapData, PerCpuArray},
    programs::{SchedClassifier, TcAttachType},
};

use crate::{
    Error,
    leftovers::Layout,
    object::{classifier, load_programs, take, unpack},
};

/// The object as clang made it.
pub fn trunk_object() -> Vec<u8> {
    unpack(include_bytes!(concat!(env!("OUT_DIR"), "/trunk.bpf.o.z")))
}

pub const PROGRAM: &str = "trunk";

/// What a trunk pins. The table names sublinks.
pub const LAYOUT: Layout = Layout {
    sized: &[],
    together: &["bins", "sublinks", "spreading"],
    sweepers: &[],
    end: TcAttachType::Egress,
};

/// The program and its maps, with names and types as in `bpf/lib/trunk/maps.h`.
pub struct Object {
    bpf: Ebpf,
    pub spreading: Array<MapData, abi::Spreading>,
    pub sublinks: Array<MapData, abi::Sublink>,
    pub bins: Array<MapData, Table>,
    pub volumes: PerCpuArray<MapData, [u64; abi::BINS]>,
    pub carried: PerCpuArray<MapData, abi::Carried>,
    pub reasons: PerCpuArray<MapData, u64>,
}

impl Object {
    /// Loads the program over the maps pinned in `pins`, making those that are not there. The flag tells whether they
    /// were.
    pub fn load(pins: &Path) -> Result<(Self, bool), Error> {
        let adopted = pins.join("bins").exists();
        let mut bpf = EbpfLoader::new()
            .default_map_pin_directory(pins)
            .load(&trunk_object())?;
        load_programs(&mut bpf, &[PROGRAM], &[])?;
        let object = Object {
            spreading: take(&mut bpf, "spreading")?,
            sublinks: take(&mut bpf, "sublinks")?,
            bins: take(&mut bpf, "bins")?,
            volumes: take(&mut bpf, "volumes")?,
            carried: take(&mut bpf, "carried")?,
            reasons: take(&mut bpf, "trunk_reasons")?,
            bpf,
        };
        Ok((object, adopted))
    }

    pub fn program(&mut self) -> Result<&mut SchedClassifier, Error> {
        classifier(&mut self.bpf, PROGRAM)
    }
}
