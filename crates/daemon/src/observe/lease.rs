//! Reads router and resolvers from the lease of a link, in the files of DHCP clients and network managers.
//!
//! systemd-networkd, NetworkManager, dhclient, dhcpcd, and programs that use resolvconf (ifupdown, pppd) write these
//! files per device. If a lease has an address, the device must have it, too; if it has an end, it must
//! not be over: files outlive leases, and network namespaces share them.
//!
//! The router matters if there is no default route for it: a client that takes leases on several devices often installs one for the
//! first device only.

use std::fs::{self, File};
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::time::UNIX_EPOCH;

use super::{Device, Prefix};

/// Maximum number of resolvers per family; more add no information.
const RESOLVERS_MAX: usize = 3;
const RESOLVCONF: [&str; 3] = [
    "run/resolvconf/interfaces",
    "run/resolvconf/interface",
    "run/dhcpcd/hook-state/resolv.conf",
];
const DHCPCD: [&str; 2] = ["var/lib/dhcpcd", "var/lib/dhcpcd5"];
/// Number of characters in the UUID of a NetworkManager connection.
const UUID_LENGTH: usize = 36;

/// The lease of a device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lease {
    /// In the order of the files; empty if there are none.
    pub resolvers: Vec<IpAddr>,
    /// The first router that is in a network of the device.
    pub router: Option<IpAddr>,
}

/// The content of one file.
#[derive(Debug, Default)]
struct Named {
    routers: Vec<IpAddr>,
    resolvers: Vec<IpAddr>,
}

/// `root` is the root of the file system, `devices` lists all devices of the host, `now_s` is in seconds since 1970.
pub fn read(root: &Path, name: &str, device: &Device, devices: &[String], now_s: u64) -> Lease {
    let mut all = vec![networkd(root, device)];
    all.extend(network_manager(root, name, device, now_s));
    all.extend(dhclient(root, name, device, now_s));
    all.extend(dhcpcd(root, name, device, now_s));
    let routers = all.iter().flat_map(|named| &named.routers).copied();
    let is_near = |router: &IpAddr| {
        let mut networks = device.addresses.iter();
        networks.any(|network| network.overlaps(Prefix::host(*router)))
    };
    let named = all.iter().flat_map(|named| &named.resolvers).copied();
    let resolvers = named.chain(resolvconf(root, name, devices));
    Lease {
        resolvers: distinct(resolvers),
        router: routers.into_iter().find(is_near),
    }
}

fn distinct(all: impl Iterator<Item = IpAddr>) -> Vec<IpAddr> {
    let mut distinct: Vec<IpAddr> = Vec::new();
    for address in all {
        let alike = |known: &&IpAddr| known.is_ipv4() == address.is_ipv4();
        let has_room = distinct.iter().filter(alike).count() < RESOLVERS_MAX;
        if has_room && is_resolver(address) && !distinct.contains(&address) {
            distinct.push(address);
        }
    }
    distinct
}

/// Whether a probe can be sent to the address over any link. An address of the link's own segment is a host of one line only.
fn is_resolver(address: IpAddr) -> bool {
    let is_of_line = matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
    !address.is_loopback() && !is_of_line
}

fn has(device: &Device, address: &str) -> bool {
    let is = |prefix: &Prefix| prefix.address.to_string() == address;
    device.addresses.iter().any(is)
}

fn addresses(words: &str) -> impl Iterator<Item = IpAddr> {
    words
        .split([' ', ',', ';', '\t'])
        .filter_map(|word| word.parse().ok())
}

fn text_of(root: &Path, path: &str) -> String {
    fs::read_to_string(root.join(path)).unwrap_or_default()
}

/// Name and content of the files in several folders.
fn files(root: &Path, folders: &[&str], is_wanted: impl Fn(&str) -> bool) -> Vec<(String, String)> {
    let folders = folders.iter().map(|folder| fs::read_dir(root.join(folder)));
    let files = folders.flatten().flatten().flatten();
    let wanted = files.filter_map(|file| {
        let name = file.file_name().into_string().ok()?;
        let is_wanted = is_wanted(&name);
        let text = is_wanted.then(|| fs::read_to_string(file.path()))?;
        Some((name, text.ok()?))
    });
    wanted.collect()
}

/// The value of a key in a text of lines `key=value`.
fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let mut lines = text.lines();
    lines.find_map(|line| line.strip_prefix(key)?.strip_prefix('='))
}

/// Reads a lease of lines `key=value`, if its address is one of the device.
fn of_pairs(text: &str, [address, routers, resolvers]: [&str; 3], device: &Device) -> Named {
    let list = |key: &str| addresses(value(text, key).unwrap_or("")).collect();
    if value(text, address).is_some_and(|address| has(device, address)) {
        Named {
            routers: list(routers),
            resolvers: list(resolvers),
        }
    } else {
        Named::default()
    }
}

/// The network managers that have a lease of an address of the device.
pub fn managers(root: &Path, device: &Device) -> Vec<&'static str> {
    let leases = [
        ("systemd-networkd", networkd_lease(root, device), "ADDRESS"),
        (
            "NetworkManager",
            network_manager_lease(root, device),
            "ip_address",
        ),
    ];
    let held = leases
        .into_iter()
        .filter(|(_, lease, key)| value(lease, key).is_some_and(|address| has(device, address)));
    held.map(|(manager, ..)| manager).collect()
}

fn networkd_lease(root: &Path, device: &Device) -> String {
    let path = format!("run/systemd/netif/leases/{}", device.ifindex);
    text_of(root, &path)
}

fn networkd(root: &Path, device: &Device) -> Named {
    of_networkd(&networkd_lease(root, device), device)
}

fn of_networkd(text: &str, device: &Device) -> Named {
    of_pairs(text, ["ADDRESS", "ROUTER", "DNS"], device)
}

/// The current lease is a section of the device's state (1.42 and newer).
fn network_manager_lease(root: &Path, device: &Device) -> String {
    let path = format!("run/NetworkManager/devices/{}", device.ifindex);
    let state = text_of(root, &path);
    let mut sections = state.split("\n[");
    let lease = sections.find_map(|section| section.strip_prefix("dhcp4]\n"));
    lease.unwrap_or("").to_owned()
}

/// The current lease is in the device's state. The lease files of NetworkManager's own client have only an
/// address, but those of its first versions are like systemd-networkd's. If dhclient takes the leases for it, its
/// files have everything.
fn network_manager(root: &Path, name: &str, device: &Device, now_s: u64) -> Vec<Named> {
    let keys = ["ip_address", "routers", "domain_name_servers"];
    let mut all = vec![of_pairs(&network_manager_lease(root, device), keys, device)];
    let of_device = |file: &str| {
        let lease = format!("-{name}.lease");
        let connection = file.split_once('-').map(|(_, connection)| connection);
        connection.and_then(|connection| connection.get(UUID_LENGTH..)) == Some(&lease)
    };
    for (file, text) in files(root, &["var/lib/NetworkManager"], of_device) {
        all.push(match file.starts_with("dhclient-") {
            true => of_dhclient(&text, name, device, now_s),
            false => of_networkd(&text, device),
        });
    }
    all
}

/// There is a file for each device, or one file for all devices.
fn dhclient(root: &Path, name: &str, device: &Device, now_s: u64) -> Vec<Named> {
    let own = format!("dhclient.{name}.leases");
    let files = ["var/lib/dhcp", "var/lib/dhclient"]
        .iter()
        .flat_map(|folder| {
            [
                format!("{folder}/{own}"),
                format!("{folder}/dhclient.leases"),
            ]
        });
    files
        .map(|path| of_dhclient(&text_of(root, &path), name, device, now_s))
        .collect()
}

/// The last lease of a device in a file is the newest (dhclient.leases(5)).
fn of_dhclient(text: &str, name: &str, device: &Device, now_s: u64) -> Named {
    let value = |lease: &'_ str, key: &str| {
        let mut lines = lease.lines().map(str::trim);
        let value = lines.find_map(|line| line.strip_prefix(key)?.strip_suffix(';'));
        value.map(str::to_owned)
    };
    let is_own = |lease: &&str| {
        let interface = value(lease, "interface ");
        interface.is_none_or(|interface| interface.trim_matches('"') == name)
    };
    let Some(newest) = text.rsplit("lease {").find(is_own) else {
        return Named::default();
    };
    let list = |key: &str| addresses(&value(newest, key).unwrap_or_default()).collect();
    let is_over = value(newest, "expire ").is_some_and(|expire| is_past(&expire, now_s));
    let address = value(newest, "fixed-address ");
    if is_over || !address.is_some_and(|address| has(device, &address)) {
        return Named::default();
    }
    Named {
        routers: list("option routers "),
        resolvers: list("option domain-name-servers "),
    }
}

/// `never`, `epoch SECONDS`, or a weekday with a time in UTC: `3 2026/11/25 17:03:04`. A text that cannot be parsed counts as not
/// over.
fn is_past(expire: &str, now_s: u64) -> bool {
    let numbers: Vec<u64> = expire
        .split([' ', '/', ':'])
        .filter_map(|word| word.parse().ok())
        .collect();
    let ends_s = match numbers[..] {
        [seconds] if expire.starts_with("epoch") => Some(seconds),
        [_, year, month, day, hour, minute, second] => {
            days(year, month, day).map(|days| days * 86_400 + hour * 3600 + minute * 60 + second)
        }
        _ => None,
    };
    ends_s.is_some_and(|ends_s| ends_s <= now_s)
}

/// Days since 1970 in the Gregorian calendar. Years begin in March here, so that the leap day is the last.
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    let year = if month <= 2 {
        year.checked_sub(1)?
    } else {
        year
    };
    let months = (month + 9) % 12;
    let of_year = (153 * months + 2) / 5 + day.checked_sub(1)?;
    (year * 365 + year / 4 - year / 100 + year / 400 + of_year).checked_sub(719_468)
}

/// The server's answer as it was received, in a file for each device, and on wireless devices for each network. A lease begins when
/// its file is written.
fn dhcpcd(root: &Path, name: &str, device: &Device, now_s: u64) -> Vec<Named> {
    let folders = DHCPCD.map(|folder| fs::read_dir(root.join(folder)));
    let files = folders.into_iter().flatten().flatten().flatten();
    let own = files.filter(|file| {
        let file = file.file_name();
        let file = file.to_str().unwrap_or("");
        let file = file.strip_prefix("dhcpcd-").unwrap_or(file);
        let rest = file
            .strip_prefix(name)
            .and_then(|rest| rest.strip_suffix(".lease"));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    });
    let named = own.filter_map(|file| {
        let (message, begun_s) = message_of(&file.path()).ok()?;
        let message = Message::parse(&message)?;
        let ends_s = message.lasts_s.map(|lasts_s| begun_s + u64::from(lasts_s));
        let is_over = ends_s.is_some_and(|ends_s| ends_s <= now_s);
        (!is_over && device.has(message.address.into())).then_some(message.named)
    });
    named.collect()
}

/// The content of a file, and its modification time in seconds since 1970.
fn message_of(path: &Path) -> io::Result<(Vec<u8>, u64)> {
    let file = File::open(path)?;
    let written = file.metadata()?.modified()?.duration_since(UNIX_EPOCH);
    let mut message = Vec::new();
    file.take(MESSAGE_MAX).read_to_end(&mut message)?;
    Ok((message, written.map_or(0, |written| written.as_secs())))
}

/// Servers send no more than fits into an Ethernet packet, unless a client asks for it.
const MESSAGE_MAX: u64 = 1500;
/// Offsets of fields in a message (RFC 2131 section 2).
const YIADDR: usize = 16;
const SNAME: usize = 44;
const FILE: usize = 108;
const COOKIE: usize = 236;
const OPTIONS: usize = 240;
const MAGIC: [u8; 4] = [99, 130, 83, 99];
/// Options (RFC 2132).
const PAD: u8 = 0;
const ROUTERS: u8 = 3;
const RESOLVERS: u8 = 6;
const LEASE_TIME: u8 = 51;
const OVERLOAD: u8 = 52;
const END: u8 = 255;

/// A DHCP server's answer.
struct Message {
    address: Ipv4Addr,
    /// None if it is unlimited or missing.
    lasts_s: Option<u32>,
    named: Named,
}

impl Message {
    /// None if it is not a DHCP answer.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let address: [u8; 4] = bytes.get(YIADDR..YIADDR + 4)?.try_into().ok()?;
        if *bytes.get(COOKIE..OPTIONS)? != MAGIC {
            return None;
        }
        let mut all: Vec<(u8, &[u8])> = options(&bytes[OPTIONS..]).collect();
        let overload = all.iter().find(|(code, _)| *code == OVERLOAD);
        let overload = overload.and_then(|(_, value)| value.first()).copied();
        for (bit, field) in [(1, FILE..COOKIE), (2, SNAME..FILE)] {
            if overload.unwrap_or(0) & bit != 0 {
                all.extend(options(&bytes[field]));
            }
        }
        let value = |code: u8| {
            all.iter()
                .find(|(of, _)| *of == code)
                .map(|(_, value)| *value)
        };
        let addresses = |code: u8| {
            let (all, _) = value(code).unwrap_or(&[]).as_chunks();
            all.iter()
                .map(|address: &[u8; 4]| IpAddr::from(*address))
                .collect()
        };
        let lasts = value(LEASE_TIME).and_then(|value| value.try_into().ok());
        Some(Self {
            address: address.into(),
            lasts_s: lasts
                .map(u32::from_be_bytes)
                .filter(|lasts_s| *lasts_s != u32::MAX),
            named: Named {
                routers: addresses(ROUTERS),
                resolvers: addresses(RESOLVERS),
            },
        })
    }
}

/// Codes and values of the options, up to the first that is truncated.
fn options(mut bytes: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        while let [PAD, rest @ ..] = bytes {
            bytes = rest;
        }
        let [code, length, rest @ ..] = bytes else {
            return None;
        };
        let (value, rest) = rest.split_at_checked(usize::from(*length))?;
        bytes = rest;
        (*code != END).then_some((*code, value))
    })
}

fn resolvconf(root: &Path, name: &str, devices: &[String]) -> Vec<IpAddr> {
    let texts = files(root, &RESOLVCONF, |file| is_record_of(file, name, devices));
    let servers = texts.iter().flat_map(|(_, text)| {
        text.lines()
            .filter_map(|line| line.strip_prefix("nameserver "))
    });
    servers.flat_map(addresses).collect()
}

/// Files are named after device and program: `eth1.dhclient`, `eth1.dhcp`. `eth1.100` is another device, whether it exists or not.
fn is_record_of(file: &str, name: &str, devices: &[String]) -> bool {
    let is_program = |rest: &str| {
        rest.strip_prefix('.').is_some_and(|program| {
            !program.contains('.') && !program.starts_with(|c: char| c.is_ascii_digit())
        })
    };
    let is_other = || devices.iter().any(|device| device == file);
    file == name || file.strip_prefix(name).is_some_and(is_program) && !is_other()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{device, ip, write};
    use super::*;

    /// 2026-11-25 17:00:00 UTC.
    const NOW_S: u64 = 1_795_626_000;

    fn lease(root: &Path, name: &str, device: &Device) -> Lease {
        read(root, name, device, &[name.to_owned()], NOW_S)
    }

    fn found(root: &Path, name: &str, device: &Device) -> Vec<IpAddr> {
        lease(root, name, device).resolvers
    }

    #[test]
    fn whoever_took_the_lease_its_router_is_found() {
        let dhclient = |address: &str, expire: &str| {
            format!(
                "lease {{\n  interface \"wan0\";\n  fixed-address {address};\n  option routers 203.0.113.1;\n  expire {expire};\n}}\n\
                 lease {{\n  interface \"eth9\";\n  fixed-address 10.0.0.9;\n  option routers 10.0.0.1;\n}}\n"
            )
        };
        let alive = ["3 2026/11/25 17:00:01", "never", "epoch 1795626001; # Wed"];
        let networkd = "ADDRESS=203.0.113.2\nROUTER=203.0.113.1\n".to_owned();
        let state = "[dhcp4]\nip_address=203.0.113.2\nrouters=203.0.113.1\n".to_owned();
        let mut all = vec![
            ("run/systemd/netif/leases/3", networkd),
            (
                "run/NetworkManager/devices/3",
                format!("[device]\n\n{state}"),
            ),
        ];
        for file in [
            "dhcp/dhclient.wan0.leases",
            "dhcp/dhclient.leases",
            "dhclient/dhclient.leases",
        ] {
            let path: &'static str = format!("var/lib/{file}").leak();
            all.extend(alive.map(|expire| (path, dhclient("203.0.113.2", expire))));
        }
        for (path, text) in all {
            let root = tempfile::tempdir().unwrap();
            write(root.path(), path, &text);
            let wan0 = device(3, &["203.0.113.2/24"]);
            let router = lease(root.path(), "wan0", &wan0).router;
            assert_eq!(router, Some(ip("203.0.113.1")), "{path}: {text}");
            let elsewhere = device(3, &["203.0.113.2/32"]);
            assert_eq!(lease(root.path(), "wan0", &elsewhere).router, None);
        }
        for (address, expire) in [
            ("203.0.113.2", "3 2026/11/25 17:00:00"),
            ("203.0.113.2", "epoch 1795625999"),
            ("203.0.113.3", "never"),
        ] {
            let root = tempfile::tempdir().unwrap();
            let text = dhclient(address, expire);
            write(root.path(), "var/lib/dhcp/dhclient.leases", &text);
            let wan0 = device(3, &["203.0.113.2/24"]);
            assert_eq!(
                lease(root.path(), "wan0", &wan0),
                Lease::default(),
                "{text}"
            );
        }
    }

    /// The server's answer for 203.0.113.2, with these options.
    fn message(options: &[u8]) -> Vec<u8> {
        let mut message = vec![0; OPTIONS];
        message[YIADDR..YIADDR + 4].copy_from_slice(&[203, 0, 113, 2]);
        message[COOKIE..].copy_from_slice(&MAGIC);
        message.extend(options);
        message
    }

    const ACK: [u8; 3] = [53, 1, 5];
    const ROUTER: [u8; 6] = [ROUTERS, 4, 203, 0, 113, 1];

    fn kept_by_dhcpcd(file: &str, message: &[u8], now_s: u64) -> Lease {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("var/lib/dhcpcd");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(file), message).unwrap();
        let written = UNIX_EPOCH + std::time::Duration::from_secs(NOW_S);
        let file = File::options().write(true).open(folder.join(file)).unwrap();
        file.set_modified(written).unwrap();
        let wan0 = device(3, &["203.0.113.2/24"]);
        read(root.path(), "wan0", &wan0, &["wan0".to_owned()], now_s)
    }

    #[test]
    fn dhcpcd_keeps_the_server_s_answer() {
        let resolvers = [RESOLVERS, 8, 203, 0, 113, 1, 192, 0, 2, 53];
        let lasts = [LEASE_TIME, 4, 0, 0, 0, 120];
        let answer = message(&[&ACK[..], &[PAD], &lasts, &ROUTER, &resolvers, &[END]].concat());
        let whole = Lease {
            router: Some(ip("203.0.113.1")),
            resolvers: vec![ip("203.0.113.1"), ip("192.0.2.53")],
        };
        for file in ["wan0.lease", "wan0-home.lease", "dhcpcd-wan0.lease"] {
            assert_eq!(kept_by_dhcpcd(file, &answer, NOW_S + 119), whole, "{file}");
        }
        for (file, now_s) in [
            ("wan0.lease", NOW_S + 120),
            ("wan01.lease", NOW_S),
            ("wan0.lease6", NOW_S),
        ] {
            assert_eq!(
                kept_by_dhcpcd(file, &answer, now_s),
                Lease::default(),
                "{file} {now_s}"
            );
        }
        let forever = message(&[&[LEASE_TIME, 4, 255, 255, 255, 255][..], &ROUTER].concat());
        let later = NOW_S + u64::from(u32::MAX) + 1;
        assert_eq!(
            kept_by_dhcpcd("wan0.lease", &forever, later).router,
            whole.router
        );
    }

    #[test]
    fn options_of_a_message_may_stand_in_other_fields() {
        let mut answer = message(&[OVERLOAD, 1, 1, END]);
        answer[FILE..FILE + ROUTER.len()].copy_from_slice(&ROUTER);
        let lease = kept_by_dhcpcd("wan0.lease", &answer, NOW_S);
        assert_eq!(lease.router, Some(ip("203.0.113.1")));
    }

    #[test]
    fn what_is_no_message_names_nothing() {
        let answer = message(&[&ROUTER[..], &[RESOLVERS, 4, 192, 0, 2, 53]].concat());
        for length in 0..OPTIONS + ROUTER.len() {
            let lease = kept_by_dhcpcd("wan0.lease", &answer[..length], NOW_S);
            assert_eq!(lease, Lease::default(), "{length}");
        }
        let mut other = answer.clone();
        other[COOKIE] = 0;
        assert_eq!(
            kept_by_dhcpcd("wan0.lease", &other, NOW_S),
            Lease::default()
        );
    }

    #[test]
    fn whoever_took_the_lease_its_resolvers_are_found() {
        for (path, text) in [
            (
                "run/systemd/netif/leases/3",
                "# private\nADDRESS=203.0.113.2\nDNS=203.0.113.1 192.0.2.53\n",
            ),
            (
                "var/lib/dhcp/dhclient.wan0.leases",
                "lease {\n  fixed-address 10.0.0.1;\n  option domain-name-servers 10.0.0.2;\n}\nlease {\n  interface \"wan0\";\n  \
                 fixed-address 203.0.113.2;\n  option domain-name-servers 203.0.113.1,192.0.2.53;\n}\n",
            ),
            (
                "run/resolvconf/interface/wan0.dhclient",
                "domain example.org\nnameserver 203.0.113.1\nnameserver 192.0.2.53\nnameserver ::1\nnameserver 127.0.0.1\n",
            ),
            (
                "run/NetworkManager/devices/3",
                "[device]\nmanaged=true\nconnection-uuid=7e73a292-0051-3bb8-8369-5e9349961078\n\n[dhcp4]\n\
                 domain_name_servers=203.0.113.1 192.0.2.53\nip_address=203.0.113.2\nrouters=203.0.113.1\n\n\
                 [dhcp6]\nip_address=203.0.113.3\n",
            ),
            (
                "var/lib/NetworkManager/internal-7e73a292-0051-3bb8-8369-5e9349961078-wan0.lease",
                "# private\nADDRESS=203.0.113.2\nDNS=203.0.113.1 192.0.2.53\n",
            ),
            (
                "var/lib/NetworkManager/dhclient-7e73a292-0051-3bb8-8369-5e9349961078-wan0.lease",
                "lease {\n  interface \"wan0\";\n  fixed-address 203.0.113.2;\n  \
                 option domain-name-servers 203.0.113.1,192.0.2.53;\n}\n",
            ),
        ] {
            let root = tempfile::tempdir().unwrap();
            write(root.path(), path, text);
            let own = found(root.path(), "wan0", &device(3, &["203.0.113.2/24"]));
            assert_eq!(own, [ip("203.0.113.1"), ip("192.0.2.53")], "{path}");
            for name in ["wan", "0"] {
                let other = found(root.path(), name, &device(4, &["203.0.113.2/24"]));
                assert!(other.is_empty(), "{path}: of another device: {other:?}");
            }
        }
    }

    #[test]
    fn a_record_of_a_vlan_or_of_another_device_is_not_the_devices() {
        let devices = ["eth1", "eth1.lan"].map(str::to_owned);
        let is_of = |file: &str| is_record_of(file, "eth1", &devices);
        for own in ["eth1", "eth1.dhclient", "eth1.dhcp", "eth1.inet"] {
            assert!(is_of(own), "{own}");
        }
        for other in [
            "eth1.100",
            "eth1.100.dhclient",
            "eth1.lan",
            "eth1.lan.dhcp",
            "eth10.dhcp",
        ] {
            assert!(!is_of(other), "{other}");
        }
        assert!(is_record_of("eth1.100.dhclient", "eth1.100", &devices));
    }

    #[test]
    fn a_lease_of_an_address_that_the_device_has_not_is_not_its_own() {
        let root = tempfile::tempdir().unwrap();
        write(
            root.path(),
            "run/systemd/netif/leases/3",
            "ADDRESS=203.0.113.9\nDNS=203.0.113.1\n",
        );
        let found = found(root.path(), "wan0", &device(3, &["203.0.113.2/24"]));
        assert!(found.is_empty(), "{found:?}");
    }
}
