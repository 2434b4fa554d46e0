//! The compiled object, loaded once per instance: its maps are found under their pins, or made there.

use std::{
    fs::{self, DirBuilder, Permissions},
    io::{self, Read},
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use anabranch_policy::abi;
use aya::{
    Ebpf, EbpfLoader, Pod,
    maps::{Array, HashMap, Map, MapData, MapError, PerCpuArray, RingBuf},
    programs::{Program, ProgramError, RawTracePoint, SchedClassifier, TcAttachType},
};
use flate2::read::ZlibDecoder;
use nix::mount::{MsFlags, mount};
use nix::sys::statfs::{BPF_FS_MAGIC, statfs};
use nix::unistd::geteuid;

use crate::{
    Error, Sizes, attach, despite_signals,
    devices::Devices,
    leftovers::{self, Layout},
    pins::Pinned,
};

/// The gateway's object as clang made it, also for tests that run the programs themselves.
pub fn gateway_object() -> Vec<u8> {
    unpack(include_bytes!(concat!(env!("OUT_DIR"), "/gateway.bpf.o.z")))
}

/// The same as an upgrade loads it.
pub fn upgrade_object() -> Vec<u8> {
    unpack(include_bytes!(concat!(env!("OUT_DIR"), "/upgrade.bpf.o.z")))
}

/// What the build script compressed.
pub fn unpack(packed: &[u8]) -> Vec<u8> {
    let mut object = Vec::new();
    let read = ZlibDecoder::new(packed).read_to_end(&mut object);
    read.expect("the build script has compressed it");
    object
}

/// Room for every confirmed flow: two entries, and as much again, which unconfirmed flows use, or stays empty so that chains stay short.
const ENTRIES_PER_FLOW: u32 = 4;

/// The LAN's entry and one on each link that was tried (`bpf/policy/tries.h`).
const ENTRIES_PER_UNCONFIRMED: u32 = 5;

/// Entries of the unconfirmed flows that the order holds, and of those that need no place there: at most half as many
/// (`AB_UNORDERED_HOSTS`, as a host's share is half of all).
fn unconfirmed_entries(unconfirmed_max: u32) -> u32 {
    let all = unconfirmed_max.saturating_add(unconfirmed_max / 2);
    all.saturating_mul(ENTRIES_PER_UNCONFIRMED)
}

/// Entries of the table of flows.
fn flow_entries(sizes: Sizes) -> u32 {
    let unconfirmed = unconfirmed_entries(sizes.unconfirmed_max);
    let confirmed = sizes.flows_max.saturating_mul(ENTRIES_PER_FLOW);
    confirmed.max((confirmed / 2).saturating_add(unconfirmed))
}

/// Confirmed flows that the table pinned in `pins` was made for.
pub fn flows_max(pins: &Path) -> Result<u32, Error> {
    let entries = max_entries(pins, "flows")?;
    let unconfirmed = unconfirmed_entries(max_entries(pins, "unconfirmed_order")?);
    let beside_unconfirmed = entries.saturating_sub(unconfirmed) / (ENTRIES_PER_FLOW / 2);
    Ok((entries / ENTRIES_PER_FLOW).min(beside_unconfirmed))
}

/// Further remote addresses of mappings, of all hosts.
const PERMISSIONS_MAX: u32 = 1 << 18;

/// The programs of packets.
const FORWARDERS: [&str; 3] = ["lan", "lan_layer3", "wan"];
const CLASSIFIERS: [&str; 5] = ["lan", "lan_layer3", "wan", "forwarded", "explain"];
const SWEEPERS: [&str; 2] = ["sweep_flows", "end_link"];

/// What a gateway pins. Flows, what orders and counts them, and what they count against know of each other.
pub const LAYOUT: Layout = Layout {
    sized: &[
        "flows",
        "unconfirmed_order",
        "permissions",
        "hosts",
        "prefixes",
    ],
    together: &[
        "flows",
        "unconfirmed_order",
        "unordered",
        "hosts",
        "classes",
        "gauges",
        "table",
    ],
    sweepers: &["sweep_flows", "end_link", "migrate"],
    end: TcAttachType::Ingress,
};

/// The maps, typed. Names and types as in `bpf/lib/gateway/maps.h`.
pub struct Maps {
    pub settings: Array<MapData, abi::Settings>,
    pub rules: Array<MapData, abi::Rules>,
    pub classes: Array<MapData, abi::Class>,
    pub class_names: Array<MapData, abi::ClassName>,
    pub choice: Array<MapData, abi::Choice>,
    pub links: Array<MapData, abi::Link>,
    pub devices: Devices,
    pub own_macs: HashMap<MapData, abi::OwnMac, u32>,
    pub traffic: PerCpuArray<MapData, abi::Traffic>,
    pub reasons: PerCpuArray<MapData, u64>,
    pub gauges: Array<MapData, abi::Gauges>,
    pub openings: RingBuf<MapData>,
    pub questions: HashMap<MapData, abi::QuestionKey, abi::Question>,
}

impl Maps {
    fn take(bpf: &mut Ebpf) -> Result<Self, Error> {
        Ok(Maps {
            settings: take(bpf, "settings")?,
            rules: take(bpf, "rules")?,
            classes: take(bpf, "classes")?,
            class_names: take(bpf, "class_names")?,
            choice: take(bpf, "choice")?,
            links: take(bpf, "links")?,
            devices: take(bpf, "devices")?,
            own_macs: take(bpf, "own_macs")?,
            traffic: take(bpf, "traffic")?,
            reasons: take(bpf, "reasons")?,
            gauges: take(bpf, "gauges")?,
            openings: take(bpf, "openings")?,
            questions: take(bpf, "questions")?,
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
    /// Opens `object`, as clang made it, over the maps pinned in `pins`, making those that are not there. Programs of packets are
    /// loaded when they are asked for, or all together ([`Object::load_all`]).
    pub fn open(object: &[u8], pins: &Path, sizes: Sizes) -> Result<Self, Error> {
        let adopted = pins.join("flows").exists();
        let mut bpf = loader(pins, sizes).load(object)?;
        load_programs(&mut bpf, &[], &SWEEPERS)?;
        let maps = Maps::take(&mut bpf)?;
        Ok(Object { bpf, maps, adopted })
    }

    /// Loads the programs of packets.
    pub fn load_all(&mut self) -> Result<(), Error> {
        load_programs(&mut self.bpf, &CLASSIFIERS, &[])
    }

    /// The same, to take the place of the former version's programs, whose tables are pinned in `former`.
    pub fn load_beside(former: &Path, pins: &Path, sizes: Sizes) -> Result<Self, Error> {
        let mut bpf = loader(pins, sizes)
            .map_pin_path("former_flows", former.join("flows"))
            .map_pin_path("former_permissions", former.join("permissions"))
            .load(&upgrade_object())?;
        load_programs(&mut bpf, &FORWARDERS, &["migrate"])?;
        let maps = Maps::take(&mut bpf)?;
        Ok(Object {
            bpf,
            maps,
            adopted: true,
        })
    }

    /// A program of packets, which is loaded if it was not.
    pub fn classifier(&mut self, name: &'static str) -> Result<&mut SchedClassifier, Error> {
        let program = classifier(&mut self.bpf, name)?;
        if program.fd().is_err() {
            despite_signals(|| program.load()).map_err(Error::program(name))?;
        }
        Ok(program)
    }

    /// A map that is not among [`Maps`].
    pub fn take<M: TryFrom<Map, Error = MapError>>(
        &mut self,
        name: &'static str,
    ) -> Result<M, Error> {
        take(&mut self.bpf, name)
    }

    pub fn sweeper(&mut self, name: &'static str) -> Result<&mut RawTracePoint, Error> {
        sweeper(&mut self.bpf, name)
    }
}

fn loader(pins: &Path, sizes: Sizes) -> EbpfLoader<'static> {
    let mut loader = EbpfLoader::new();
    loader
        .default_map_pin_directory(pins)
        .map_max_entries("flows", flow_entries(sizes))
        .map_max_entries("unconfirmed_order", sizes.unconfirmed_max)
        .map_max_entries("permissions", sizes.flows_max.min(PERMISSIONS_MAX))
        .map_max_entries("hosts", sizes.hosts_max)
        .map_max_entries("prefixes", sizes.prefixes_max);
    loader
}

/// Loads programs of an object by their names.
pub fn load_programs(
    bpf: &mut Ebpf,
    classifiers: &[&'static str],
    sweepers: &[&'static str],
) -> Result<(), Error> {
    for &name in classifiers {
        let program = classifier(bpf, name)?;
        let loaded = despite_signals(|| program.load());
        loaded.map_err(Error::program(name))?;
    }
    for &name in sweepers {
        let program = sweeper(bpf, name)?;
        let loaded = despite_signals(|| program.load());
        loaded.map_err(Error::program(name))?;
    }
    Ok(())
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

/// The same of one that user space runs.
pub fn sweeper<'a>(bpf: &'a mut Ebpf, name: &'static str) -> Result<&'a mut RawTracePoint, Error> {
    program(bpf, name)
}

/// A sweeper of a loaded object, apart from the object: by way of a pin, since to open a program by its id takes
/// CAP_SYS_ADMIN.
pub fn own_sweeper(
    loaded: &mut RawTracePoint,
    pins: &Path,
    name: &'static str,
) -> Result<RawTracePoint, Error> {
    let path = pins.join(name);
    // Of a process that was killed on the way.
    let _ = fs::remove_file(&path);
    let pinned = loaded.pin(&path).map_err(io::Error::other);
    pinned.map_err(at(&path))?;
    let own = RawTracePoint::from_pin(&path).map_err(Error::program(name));
    fs::remove_file(&path).map_err(at(&path))?;
    own
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

/// Pins anew those of these maps that a former version has pinned.
pub fn reuse(former: &Path, folder: &Path, maps: &[String]) -> Result<(), Error> {
    for name in maps {
        let (from, to) = (former.join(name), folder.join(name));
        if from.exists() && !to.exists() {
            let opened = MapData::from_pin(&from).map_err(io::Error::other);
            let map = opened.map_err(at(&from))?;
            map.pin(&to).map_err(Error::repin(&to))?;
        }
    }
    Ok(())
}

/// How many entries a map that is pinned in `pins` holds.
pub fn max_entries(pins: &Path, name: &'static str) -> Result<u32, Error> {
    let info = pinned(pins, name)?.info().map_err(Error::map(name))?;
    Ok(info.max_entries())
}

/// Has `load` pin in the folder of `version`. Once that is loaded what other versions of the same have pinned is removed, so their
/// programs detach, and what they knew is lost. If it cannot be loaded they go on, and nothing is there that was not before.
pub fn load_in_folder<T>(
    instance: &Path,
    (kind, version): (Pinned, u32),
    load: impl FnOnce(&Path) -> Result<T, Error>,
) -> Result<T, Error> {
    let folder = kind.folder(instance, version);
    mount_bpf_file_system(instance)?;
    own_folders(&folder)?;
    let was_empty = entries(&folder)?.is_empty();
    match load(&folder) {
        Ok(loaded) => {
            remove_where(instance, |path| {
                path != folder && Pinned::of(path) == Some(kind)
            })?;
            Ok(loaded)
        }
        Err(error) => {
            if was_empty {
                remove_folder(instance, &folder).unwrap_or_else(|left| tracing::warn!("{left}"));
            }
            Err(error)
        }
    }
}

/// Removes what an earlier process of an instance has pinned of something that the instance is no more, so that its programs detach.
///
/// # Errors
/// The pins cannot be removed.
pub fn remove(instance: &Path, kind: Pinned) -> Result<(), Error> {
    if !instance.exists() {
        return Ok(());
    }
    remove_where(instance, |path| Pinned::of(path) == Some(kind))
}

fn remove_where(instance: &Path, is_meant: impl Fn(&Path) -> bool) -> Result<(), Error> {
    for path in entries(instance)?.iter().filter(|path| is_meant(path)) {
        if is_foreign(path) {
            tracing::warn!(
                "{} is none of this instance's: it stays as it is; remove it",
                path.display()
            );
            continue;
        }
        tracing::warn!(path = %path.display(), "removing what another version or another role of this instance left");
        remove_pins(path)?;
    }
    Ok(())
}

/// What an instance pins stands in folders of its own.
fn is_foreign(path: &Path) -> bool {
    !fs::symlink_metadata(path).is_ok_and(|found| found.is_dir())
}

/// Detaches what the pins of a folder tell of, removes them, the folder, and the instance's if nothing else is there.
pub fn remove_folder(instance: &Path, folder: &Path) -> Result<(), Error> {
    remove_pins(folder)?;
    if entries(instance)?.is_empty() {
        fs::remove_dir(instance).map_err(at(instance))?;
    }
    Ok(())
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let found = fs::read_dir(folder).map_err(at(folder))?;
    found
        .map(|entry| Ok(entry.map_err(at(folder))?.path()))
        .collect()
}

/// Detaches what the pins of an instance's `folder` tell of, removes them, and the folder.
pub fn remove_pins(folder: &Path) -> Result<(), Error> {
    leftovers::clear_attachments(folder)?;
    attach::detach_all(folder)?;
    fs::remove_dir_all(folder).map_err(at(folder))
}

fn at(path: &Path) -> impl Fn(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Pins {
        path: path.clone(),
        source,
    }
}

const BPF_FS: &str = "/sys/fs/bpf";
const OURS_ALONE: u32 = 0o700;

/// Makes `folder` and those above it up to the file system's root, in which anybody may make folders: one that is there
/// and is not ours alone might be changed under our hands.
fn own_folders(folder: &Path) -> Result<(), Error> {
    let made = folder.strip_prefix(BPF_FS).unwrap_or(folder).iter().count();
    let mut folders: Vec<&Path> = folder.ancestors().take(made).collect();
    folders.reverse();
    for path in folders {
        if fs::symlink_metadata(path).is_ok_and(|found| !found.is_dir()) {
            leftovers::move_aside(path, "no folder", "the folder of pins")?;
        }
        match DirBuilder::new().mode(OURS_ALONE).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(at(path)(error));
            }
            _ => own_folder(path)?,
        }
    }
    Ok(())
}

fn own_folder(path: &Path) -> Result<(), Error> {
    let found = fs::symlink_metadata(path).map_err(at(path))?;
    if !found.is_dir() || found.uid() != geteuid().as_raw() {
        return Err(Error::ForeignPins {
            path: path.to_owned(),
            owner: found.uid(),
        });
    }
    fs::set_permissions(path, Permissions::from_mode(OURS_ALONE)).map_err(at(path))
}

fn mount_bpf_file_system(below: &Path) -> Result<(), Error> {
    let root = Path::new(BPF_FS);
    if !below.starts_with(root) {
        return Ok(());
    }
    if !statfs(root).is_ok_and(|fs| fs.filesystem_type() == BPF_FS_MAGIC) {
        let (kind, flags) = (Some("bpf"), MsFlags::empty());
        mount(kind, root, kind, flags, None::<&str>).map_err(|errno| Error::BpfFileSystem {
            path: root.to_owned(),
            source: errno.into(),
        })?;
    }
    if is_passing(root) {
        tracing::warn!(
            "{BPF_FS} belongs to this mount namespace and vanishes with it: forwarding will not outlive a kill. \
             `ip netns exec` makes such namespaces, `nsenter --net=/run/netns/NAME` does not"
        );
    }
    Ok(())
}

/// Whether a process that this one descends from has another file system there. Those that cannot be asked agree.
fn is_passing(root: &Path) -> bool {
    let device = |path: &Path| fs::metadata(path).ok().map(|found| found.dev());
    let here = device(root);
    std::iter::successors(parent("self"), |pid| parent(pid)).any(|pid| {
        let there = device(Path::new(&format!("/proc/{pid}/root{BPF_FS}")));
        there.is_some() && there != here
    })
}

/// The fourth field of proc_pid_stat(5); the second is a name in parentheses.
fn parent(pid: &str) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?;
    (parent != "0").then(|| parent.to_owned())
}
