//! The compiled object, loaded once per instance: its maps are found under their pins, or made there.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use anabranch_policy::abi;
use aya::{
    Ebpf, EbpfLoader, Pod, include_bytes_aligned,
    maps::{Array, HashMap, Map, MapData, MapError, PerCpuArray, lpm_trie::LpmTrie},
    programs::{Program, ProgramError, RawTracePoint, SchedClassifier},
};
use nix::mount::{MsFlags, mount};
use nix::sys::statfs::{BPF_FS_MAGIC, statfs};

use crate::{Error, Sizes, attach};

/// The BPF object as clang made it, for tests and benchmarks that run the programs themselves.
pub static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/gateway.bpf.o"));

/// Room in the main table for every flow: two entries, and as much again that stays empty, so that its chains stay short.
pub const ENTRIES_PER_FLOW: u32 = 4;

const CLASSIFIERS: [&str; 3] = ["lan", "wan", "explain"];
const SWEEPERS: [&str; 2] = ["sweep_flows", "end_link"];

/// The maps, typed. Names and types as in `bpf/lib/maps.h`.
pub struct Maps {
    pub settings: Array<MapData, abi::Settings>,
    pub choice: Array<MapData, abi::Choice>,
    pub links: Array<MapData, abi::Link>,
    pub devices: HashMap<MapData, u32, abi::Device>,
    pub routes: LpmTrie<MapData, abi::Addr, abi::Route>,
    pub traffic: PerCpuArray<MapData, abi::Traffic>,
    pub reasons: PerCpuArray<MapData, u64>,
    pub gauges: Array<MapData, abi::Gauge>,
}

impl Maps {
    fn take(bpf: &mut Ebpf) -> Result<Self, Error> {
        Ok(Maps {
            settings: take(bpf, "settings")?,
            choice: take(bpf, "choice")?,
            links: take(bpf, "links")?,
            devices: take(bpf, "devices")?,
            routes: take(bpf, "routes")?,
            traffic: take(bpf, "traffic")?,
            reasons: take(bpf, "reasons")?,
            gauges: take(bpf, "gauges")?,
        })
    }
}

/// A map of a loaded object, typed.
pub fn take<M: TryFrom<Map, Error = MapError>>(
    bpf: &mut Ebpf,
    name: &'static str,
) -> Result<M, Error> {
    let map = bpf.take_map(name).ok_or(Error::Missing { name })?;
    M::try_from(map).map_err(Error::map(name))
}

/// The loaded programs and their maps.
pub struct Object {
    bpf: Ebpf,
    pub maps: Maps,
    /// The maps were there before, with the flows of an earlier process.
    pub adopted: bool,
}

impl Object {
    /// Loads the programs over the maps pinned in `pins`, making those that are not there.
    pub fn load(pins: &Path, sizes: Sizes) -> Result<Self, Error> {
        let adopted = pins.join("flows").exists();
        let mut bpf = EbpfLoader::new()
            .default_map_pin_directory(pins)
            .map_max_entries("flows", sizes.flows_max.saturating_mul(ENTRIES_PER_FLOW))
            .map_max_entries("embryos", sizes.embryos_max.saturating_mul(2))
            .map_max_entries("hosts", sizes.hosts_max)
            .load(OBJECT)?;
        for name in CLASSIFIERS {
            classifier(&mut bpf, name)?
                .load()
                .map_err(Error::program(name))?;
        }
        for name in SWEEPERS {
            sweeper(&mut bpf, name)?
                .load()
                .map_err(Error::program(name))?;
        }
        let maps = Maps::take(&mut bpf)?;
        Ok(Object { bpf, maps, adopted })
    }

    pub fn classifier(&mut self, name: &'static str) -> Result<&mut SchedClassifier, Error> {
        classifier(&mut self.bpf, name)
    }

    pub fn sweeper(&mut self, name: &'static str) -> Result<&mut RawTracePoint, Error> {
        sweeper(&mut self.bpf, name)
    }
}

fn program<'a, P>(bpf: &'a mut Ebpf, name: &'static str) -> Result<P, Error>
where
    P: TryFrom<&'a mut Program, Error = ProgramError>,
{
    let program = bpf.program_mut(name).ok_or(Error::Missing { name })?;
    P::try_from(program).map_err(Error::program(name))
}

/// A TC program of a loaded object.
pub fn classifier<'a>(
    bpf: &'a mut Ebpf,
    name: &'static str,
) -> Result<&'a mut SchedClassifier, Error> {
    program(bpf, name)
}

fn sweeper<'a>(bpf: &'a mut Ebpf, name: &'static str) -> Result<&'a mut RawTracePoint, Error> {
    program(bpf, name)
}

/// A map that is pinned in `pins`.
pub fn pinned(pins: &Path, name: &'static str) -> Result<MapData, Error> {
    MapData::from_pin(pins.join(name)).map_err(Error::map(name))
}

/// The same, typed.
pub fn pinned_array<V: Pod>(pins: &Path, name: &'static str) -> Result<Array<MapData, V>, Error> {
    let map = Map::Array(pinned(pins, name)?);
    Array::try_from(map).map_err(Error::map(name))
}

/// The folder `name`, which tells what is pinned there and the version of its contract. An instance is one thing at a
/// time: all other pins of it are removed, so their programs detach, and what they knew is lost.
pub fn pin_folder(instance: &Path, name: &str) -> Result<PathBuf, Error> {
    let folder = instance.join(name);
    mount_bpf_file_system(instance)?;
    fs::create_dir_all(&folder).map_err(at(&folder))?;
    for entry in fs::read_dir(instance).map_err(at(instance))? {
        let path = entry.map_err(at(instance))?.path();
        if path != folder {
            tracing::warn!(path = %path.display(), "removing what another version or kind of this instance left");
            remove_pins(&path)?;
        }
    }
    Ok(folder)
}

/// Detaches what the pins of an instance's `folder` tell of, removes them, and the folder.
pub fn remove_pins(folder: &Path) -> Result<(), Error> {
    attach::detach_all(folder)?;
    fs::remove_dir_all(folder).map_err(at(folder))
}

/// The same with all folders of an instance.
pub fn remove_instance(instance: &Path) -> Result<(), Error> {
    for entry in fs::read_dir(instance).map_err(at(instance))? {
        remove_pins(&entry.map_err(at(instance))?.path())?;
    }
    fs::remove_dir(instance).map_err(at(instance))
}

fn at(path: &Path) -> impl Fn(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Pins {
        path: path.clone(),
        source,
    }
}

const BPF_FS: &str = "/sys/fs/bpf";

fn mount_bpf_file_system(below: &Path) -> Result<(), Error> {
    let root = Path::new(BPF_FS);
    if !below.starts_with(root) || statfs(root).is_ok_and(|fs| fs.filesystem_type() == BPF_FS_MAGIC)
    {
        return Ok(());
    }
    mount(
        Some("bpf"),
        root,
        Some("bpf"),
        MsFlags::empty(),
        None::<&str>,
    )
    .map_err(|errno| Error::BpfFileSystem {
        path: root.to_owned(),
        source: errno.into(),
    })
}
