//! Pins that a start cannot use: whatever stands under a name of ours, packets are forwarded, and it is there under another name.

use std::{
    collections::BTreeMap,
    fs::{self, DirBuilder},
    os::unix::fs::{DirBuilderExt, symlink},
    path::{Path, PathBuf},
};

use anabranch_dataplane::{Sizes, gateway_object, programs_at, trunk::trunk_object};
use anabranch_policy::abi::ABI_VERSION;
use anabranch_testbed::pins::PinFolder;
use aya::{
    EbpfLoader,
    maps::MapData,
    programs::{SchedClassifier, TcAttachType},
};
use aya_obj::{Map, Object, maps::PinningType};

use super::{connections::pair, *};
use crate::site::index_of;

const SWEEPERS: [&str; 2] = ["sweep_flows", "end_link"];
/// Of one without the others nothing can be told.
const TOGETHER: [&str; 7] = [
    "flows",
    "unconfirmed_order",
    "unordered",
    "hosts",
    "classes",
    "gauges",
    "table",
];
/// Maps of a size that is configured.
const SIZED: [&str; 5] = [
    "flows",
    "unconfirmed_order",
    "permissions",
    "hosts",
    "prefixes",
];

/// What may stand in the place of a pin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Junk {
    Folder,
    FullFolder,
    Link,
    Program,
    OtherMap,
    /// The map, with values of another size.
    OtherValues,
    /// The map, with room for more.
    OtherSize,
    /// The map, with another flag.
    OtherFlags,
    /// The map, which user space may write no more.
    Frozen,
}

const JUNK: [Junk; 9] = [
    Junk::Folder,
    Junk::FullFolder,
    Junk::Link,
    Junk::Program,
    Junk::OtherMap,
    Junk::OtherValues,
    Junk::OtherSize,
    Junk::OtherFlags,
    Junk::Frozen,
];

const BPF_MAP_FREEZE: libc::c_long = 22;
const ARRAY: u32 = 2;
const RING: u32 = 27;
/// `BPF_F_RDONLY_PROG`: of any kind of map, but where programs write they are refused.
const READ_ONLY: u32 = 1 << 7;

/// The maps that a gateway pins.
fn declared() -> BTreeMap<String, Map> {
    let maps = Object::parse(&gateway_object()).unwrap().maps.into_iter();
    maps.filter(|(_, map)| map.pinning() == PinningType::ByName)
        .collect()
}

fn pin_map(path: &Path, shape: [u32; 5]) {
    let [kind, key, value, entries, flags] = shape;
    let map = Map::new_from_params(kind, key, value, entries, flags);
    MapData::create(map, "junk", None)
        .unwrap()
        .pin(path)
        .unwrap();
}

/// A program of the kind that forwards, and its maps, apart from any instance.
fn foreign_program<T>(use_it: impl FnOnce(&mut SchedClassifier) -> T) -> T {
    let maps = PinFolder::name("foreign");
    fs::create_dir(&maps).unwrap();
    let mut bpf = EbpfLoader::new()
        .default_map_pin_directory(&maps)
        .load(&trunk_object())
        .unwrap();
    let program: &mut SchedClassifier = bpf.program_mut("trunk").unwrap().try_into().unwrap();
    program.load().unwrap();
    use_it(program)
}

impl Junk {
    /// Puts it at `path`, where a map or, where that is none, something else is wanted. Whether it differs from what is wanted.
    fn put(self, path: &Path, wanted: Option<&Map>) -> bool {
        let shape = wanted.map_or([ARRAY, 4, 4, 1, 0], |map| {
            let (key, value) = (map.key_size(), map.value_size());
            [
                map.map_type(),
                key,
                value,
                map.max_entries(),
                map.map_flags(),
            ]
        });
        let [kind, key, value, entries, flags] = shape;
        let name = path.file_name().unwrap().to_str().unwrap();
        let is_plain = wanted.is_none() || kind != RING;
        match self {
            Junk::Folder => fs::create_dir(path).unwrap(),
            Junk::FullFolder => fs::create_dir_all(path.join("something")).unwrap(),
            Junk::Link => symlink("/sys/fs/bpf/nowhere", path).unwrap(),
            Junk::Program => foreign_program(|program| program.pin(path).unwrap()),
            Junk::OtherValues if is_plain => pin_map(path, [kind, key, value + 8, entries, flags]),
            Junk::OtherSize if SIZED.contains(&name) => {
                pin_map(path, [kind, key, value, 64, flags]);
                return false;
            }
            Junk::OtherSize => pin_map(path, [kind, key, value, entries * 2, flags]),
            Junk::OtherFlags if is_plain => {
                pin_map(path, [kind, key, value, entries, flags | READ_ONLY]);
            }
            Junk::Frozen if is_plain => {
                pin_map(path, shape);
                freeze(path);
            }
            Junk::OtherMap | Junk::OtherValues | Junk::OtherFlags | Junk::Frozen => {
                pin_map(path, [ARRAY, 4, 24, 3, 0]);
            }
        }
        true
    }
}

fn freeze(path: &Path) {
    use std::os::fd::{AsFd, AsRawFd};
    let map = MapData::from_pin(path).unwrap();
    let fd = map.fd().as_fd().as_raw_fd();
    // SAFETY: the attributes of the command are the map's descriptor.
    let frozen = unsafe { libc::syscall(libc::SYS_bpf, BPF_MAP_FREEZE, &raw const fd, 4) };
    assert_eq!(frozen, 0, "{}", std::io::Error::last_os_error());
}

/// Where the gateway of a site pins.
fn folder(site: &Site) -> PathBuf {
    site.pins.join(format!("v{ABI_VERSION}"))
}

fn make_folder(path: &Path) {
    DirBuilder::new()
        .mode(0o700)
        .recursive(true)
        .create(path)
        .unwrap();
}

/// What was set aside.
fn aside(path: &Path) -> PathBuf {
    PathBuf::from(format!("{}-set-aside", path.display()))
}

/// A connection that was opened, and may be held.
#[track_caller]
fn carries(site: &Site) -> (TcpStream, TcpStream) {
    let (mut client, mut server) = pair(site, &listen(&site.internet, (SERVER, 8080)));
    echo_once(&mut client, &mut server, b"anew");
    (client, server)
}

#[test]
fn whatever_stands_under_the_name_of_a_pin_is_set_aside() {
    let maps = declared();
    // Pins are of no family: each meets every other kind.
    for junk in JUNK.into_iter().skip(FAMILY.index()).step_by(2) {
        let mut site = Site::bare(&SITE);
        make_folder(&folder(&site));
        let mut wrong = Vec::new();
        let names = maps.keys().map(String::as_str).chain(SWEEPERS);
        for name in names {
            let path = folder(&site).join(name);
            if junk.put(&path, maps.get(name)) {
                wrong.push(path);
            }
        }

        let adopted = site.start(Sizes::default());

        assert!(!adopted, "{junk:?}");
        for path in &wrong {
            assert!(aside(path).symlink_metadata().is_ok(), "{junk:?} {path:?}");
        }
        carries(&site);
        site.stop().unwrap();
        assert!(!site.pins.exists(), "{junk:?}");
    }
}

/// What counts them, and what they count against, is as it was.
#[test]
fn flows_live_where_other_pins_cannot_be_used() {
    let mut site = site();
    let (mut client, mut server) = pair(&site, &listen(&site.internet, (SERVER, 8080)));
    echo_once(&mut client, &mut server, b"before");
    drop(site.plane.take());
    let maps = declared();
    let others = maps
        .keys()
        .filter(|name| !TOGETHER.contains(&name.as_str()));
    let wrong: Vec<PathBuf> = others
        .zip(JUNK.into_iter().cycle())
        .filter_map(|(name, junk)| {
            let path = folder(&site).join(name);
            fs::remove_file(&path).unwrap();
            junk.put(&path, maps.get(name)).then_some(path)
        })
        .collect();

    assert!(site.start(Sizes::default()), "adopted");

    assert!(
        wrong
            .iter()
            .all(|path| aside(path).symlink_metadata().is_ok())
    );
    echo_once(&mut client, &mut server, b"after");
    let _held = carries(&site);
    assert_eq!(site.live(), 2);
}

#[test]
fn flows_without_their_counts_are_forgotten() {
    for (name, junk) in [
        ("flows", Some(Junk::OtherValues)),
        ("gauges", Some(Junk::Folder)),
        ("hosts", None),
    ] {
        let mut site = site();
        let (mut client, mut server) = pair(&site, &listen(&site.internet, (SERVER, 8080)));
        echo_once(&mut client, &mut server, b"before");
        drop(site.plane.take());
        let path = folder(&site).join(name);
        fs::remove_file(&path).unwrap();
        if let Some(junk) = junk {
            junk.put(&path, declared().get(name));
        }

        assert!(!site.start(Sizes::default()), "{name}");

        assert_eq!(site.live(), 0, "{name}");
        let _held = carries(&site);
        assert_eq!(site.live(), 1, "{name}");
        for device in ["lan0", "wan0", "wan1"] {
            let count = || {
                programs_at(index_of(device), TcAttachType::Ingress)
                    .unwrap()
                    .len()
            };
            assert_eq!(site.gateway.run(count).unwrap(), 1, "{name}: {device}");
        }
    }
}

/// Of a LAN device, of a link, and of devices that are not there.
#[test]
fn what_is_no_attachment_is_set_aside_and_what_is_somebody_elses_stands() {
    let site = &mut Site::bare(&SITE);
    let ours = folder(site);
    make_folder(&ours);
    let [lan, first, second] =
        ["lan0", "wan0", "wan1"].map(|device| site.gateway.run(|| index_of(device)).unwrap());
    Junk::FullFolder.put(&ours.join(format!("attach-{lan}")), None);
    foreign_program(|program| {
        let attach = || {
            anabranch_dataplane::attach(program, &ours, second, TcAttachType::Ingress).unwrap();
        };
        site.gateway.run(attach).unwrap();
    });
    let theirs = ours.join(format!("attach-{first}"));
    fs::rename(ours.join(format!("attach-{second}")), &theirs).unwrap();
    let others = [
        format!("attach-{second}"),
        format!("beside-{lan}"),
        format!("filter-{lan}"),
        format!("before-{first}"),
        "qdisc-99".to_owned(),
        "attach-98".to_owned(),
    ];
    for (name, junk) in others.iter().zip(JUNK.into_iter().skip(1)) {
        junk.put(&ours.join(name), None);
    }

    site.start(Sizes::default());

    carries(site);
    assert!(aside(&theirs).exists());
    let count = || programs_at(second, TcAttachType::Ingress).unwrap().len();
    assert_eq!(site.gateway.run(count).unwrap(), 2, "theirs and ours");
    for name in &others {
        assert!(aside(&ours.join(name)).symlink_metadata().is_ok(), "{name}");
    }
    site.stop().unwrap();
    assert!(!site.pins.exists());
}

#[test]
fn a_pin_in_the_place_of_a_folder_is_set_aside() {
    for depth in 0..2 {
        let mut site = Site::bare(&SITE);
        let path = match depth {
            0 => site.pins.to_path_buf(),
            _ => {
                make_folder(&site.pins);
                folder(&site)
            }
        };
        Junk::OtherMap.put(&path, None);
        site.start(Sizes::default());
        carries(&site);
        assert!(aside(&path).exists());
        site.stop().unwrap();
        fs::remove_file(aside(&path)).unwrap();
    }
}

/// Folders that are gone after the start, too.
#[test]
fn what_another_version_left_is_removed_whatever_it_is() {
    let mut site = Site::bare(&SITE);
    let theirs = site.pins.join("v0");
    make_folder(&theirs);
    for (number, junk) in (0..).zip([Junk::FullFolder, Junk::Link, Junk::OtherMap]) {
        for prefix in ["attach", "beside", "filter", "before", "qdisc"] {
            junk.put(&theirs.join(format!("{prefix}-{number}")), None);
        }
        junk.put(&theirs.join(format!("flows{number}")), None);
    }
    site.start(Sizes::default());
    carries(&site);
    assert!(!theirs.exists());
}

#[test]
fn so_many_of_one_name_are_kept_and_no_more() {
    let mut site = Site::bare(&SITE);
    make_folder(&folder(&site));
    let path = folder(&site).join("routes");
    for _ in 0..10 {
        Junk::Folder.put(&path, None);
        let (plane, _) = site.open(Sizes::default(), &crate::common::settings());
        drop(plane);
        fs::remove_file(&path).unwrap();
    }
    let names = fs::read_dir(folder(&site)).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let kept = names.filter(|name| name.starts_with("routes-set-aside"));
    assert_eq!(kept.count(), 8);
    site.start(Sizes::default());
    site.stop().unwrap();
}
