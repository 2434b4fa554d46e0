//! The compiled programs, loaded once per instance.

use std::path::Path;

use anabranch_policy::abi;
use aya::{
    Ebpf, EbpfLoader,
    maps::{Array, HashMap, Map, MapData, MapError, PerCpuArray, lpm_trie::LpmTrie},
    programs::{RawTracePoint, SchedClassifier, TcAttachType},
};

use crate::{
    Error,
    leftovers::Layout,
    object::{classifier, load_programs, sweeper, take, unpack},
};

/// The object as clang made it.
pub fn service_object() -> Vec<u8> {
    unpack(include_bytes!(concat!(env!("OUT_DIR"), "/service.bpf.o.z")))
}

pub const SWEEPER: &str = "sweep_connections";
pub const EXPLAINER: &str = "explain_service";
/// The tables of connections: of those that are translated, and of those whose servers answer themselves.
pub const TABLES: [&str; 2] = ["connections", "direct_connections"];

/// What services pin. Connections name servers, which count them.
pub const LAYOUT: Layout = Layout {
    sized: &TABLES,
    together: &[TABLES[0], TABLES[1], "servers", "service_gauges"],
    sweepers: &[SWEEPER],
    end: TcAttachType::Ingress,
};

/// The programs and their maps, with names and types as in `bpf/lib/service/maps.h`.
pub struct Object {
    bpf: Ebpf,
    pub virtuals: LpmTrie<MapData, abi::Virtual, u32>,
    pub servers: Array<MapData, abi::Server>,
    pub choices: Array<MapData, abi::Choice>,
    pub tables: HashMap<MapData, u32, abi::Consistent>,
    pub rows: HashMap<MapData, u32, abi::Consistent>,
    pub answers: LpmTrie<MapData, abi::Virtual, abi::Answering>,
    pub settings: Array<MapData, abi::ServiceSettings>,
    pub clients: HashMap<MapData, abi::Client, u64>,
    pub secrets: Array<MapData, abi::Secret>,
    pub names: Array<MapData, abi::ClassName>,
    pub gauges: Array<MapData, abi::ServiceGauges>,
    pub full: Array<MapData, abi::Set>,
    pub evidence: Array<MapData, abi::Evidences>,
    pub meters: PerCpuArray<MapData, abi::Meter>,
    pub reasons: PerCpuArray<MapData, u64>,
}

impl Object {
    /// Loads the programs over the maps pinned in `pins`, making those that are not there. The flag tells whether they were.
    pub fn load(pins: &Path, connections_max: u32, object: &[u8]) -> Result<(Self, bool), Error> {
        let adopted = pins.join(TABLES[0]).exists();
        let mut loader = EbpfLoader::new();
        loader.default_map_pin_directory(pins);
        for table in TABLES {
            loader.map_max_entries(table, connections_max);
        }
        let mut bpf = loader.load(object)?;
        let classifiers = ["service", "service_layer3", EXPLAINER];
        load_programs(&mut bpf, &classifiers, &[SWEEPER])?;
        let object = Object {
            virtuals: take(&mut bpf, "virtuals")?,
            servers: take(&mut bpf, "servers")?,
            choices: take(&mut bpf, "service_choices")?,
            tables: take(&mut bpf, "service_tables")?,
            rows: take(&mut bpf, "service_rows")?,
            answers: take(&mut bpf, "service_answers")?,
            settings: take(&mut bpf, "service_settings")?,
            clients: take(&mut bpf, "service_clients")?,
            secrets: take(&mut bpf, "service_secrets")?,
            names: take(&mut bpf, "service_names")?,
            gauges: take(&mut bpf, "service_gauges")?,
            full: take(&mut bpf, "service_full")?,
            evidence: take(&mut bpf, "service_evidence")?,
            meters: take(&mut bpf, "service_meters")?,
            reasons: take(&mut bpf, "service_reasons")?,
            bpf,
        };
        Ok((object, adopted))
    }

    /// A map that is not among these.
    pub fn take<M: TryFrom<Map, Error = MapError>>(
        &mut self,
        name: &'static str,
    ) -> Result<M, Error> {
        take(&mut self.bpf, name)
    }

    pub fn program(&mut self, name: &'static str) -> Result<&mut SchedClassifier, Error> {
        classifier(&mut self.bpf, name)
    }

    pub fn sweeper(&mut self) -> Result<&mut RawTracePoint, Error> {
        sweeper(&mut self.bpf, SWEEPER)
    }
}
