//! The compiled programs, loaded once per instance.

use std::path::Path;

use anabranch_policy::abi;
use aya::{
    Ebpf, EbpfLoader,
    maps::{Array, HashMap, MapData, PerCpuArray},
    programs::{SchedClassifier, TcAttachType},
};

use crate::{
    Error,
    leftovers::Layout,
    object::{classifier, load_programs, take, unpack},
};

/// The object as clang made it.
pub fn member_object() -> Vec<u8> {
    unpack(include_bytes!(concat!(env!("OUT_DIR"), "/member.bpf.o.z")))
}

pub const INGRESS: &str = "member";
pub const EGRESS: &str = "member_answer";

/// What a member pins.
pub const LAYOUT: Layout = Layout {
    sized: &[],
    together: &[],
    sweepers: &[],
    end: TcAttachType::Ingress,
};

/// The programs and their maps, with names and types as in `bpf/lib/member/maps.h`.
pub struct Object {
    bpf: Ebpf,
    pub settings: Array<MapData, abi::Member>,
    pub addresses: HashMap<MapData, abi::Addr, abi::MemberAddress>,
    pub sources: HashMap<MapData, abi::Addr, u32>,
    pub reasons: PerCpuArray<MapData, u64>,
}

impl Object {
    /// Loads the programs over the maps pinned in `pins`, making those that are not there. The flag tells whether they were.
    pub fn load(pins: &Path) -> Result<(Self, bool), Error> {
        let adopted = pins.join("member_addresses").exists();
        let mut bpf = EbpfLoader::new()
            .default_map_pin_directory(pins)
            .load(&member_object())?;
        load_programs(&mut bpf, &[INGRESS, EGRESS], &[])?;
        let object = Object {
            settings: take(&mut bpf, "member_settings")?,
            addresses: take(&mut bpf, "member_addresses")?,
            sources: take(&mut bpf, "member_sources")?,
            reasons: take(&mut bpf, "member_reasons")?,
            bpf,
        };
        Ok((object, adopted))
    }

    pub fn program(&mut self, name: &'static str) -> Result<&mut SchedClassifier, Error> {
        classifier(&mut self.bpf, name)
    }
}
