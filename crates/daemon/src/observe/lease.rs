//! What a link's lease names, its router and its resolvers, from the files of those who took the lease.
//!
//! systemd-networkd, NetworkManager, dhclient, and whatever speaks with resolvconf (dhcpcd, ifupdown, pppd) write them
//! down per device. A lease that names its address must be of an address that the device has, and one that names its end must
//! not be over: files outlive leases, and network namespaces share them.
//!
//! The router matters where nobody made a default route of it: whoever takes leases on several devices often makes one for the
//! first alone.

use std::fs;
use std::net::IpAddr;
use std::path::Path;

use super::{Device, Prefix};

/// More of a family say nothing new.
const RESOLVERS_MAX: usize = 3;
const RESOLVCONF: [&str; 3] = [
    "run/resolvconf/interfaces",
    "run/resolvconf/interface",
    "run/dhcpcd/hook-state/resolv.conf",
];
/// Of a connection of NetworkManager, in letters.
const UUID_LENGTH: usize = 36;

/// What the files say of a device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lease {
    /// In the order of the files; none if nobody wrote any.
    pub resolvers: Vec<IpAddr>,
    /// The first, in a network of the device.
    pub router: Option<IpAddr>,
}

/// As one file has it.
#[derive(Debug, Default)]
struct Named {
    routers: Vec<IpAddr>,
    resolvers: Vec<IpAddr>,
}

/// `root` is the root of the file system, `devices` are all of the host's, `now_s` are the seconds since 1970.
pub fn read(root: &Path, name: &str, device: &Device, devices: &[String], now_s: u64) -> Lease {
    let mut all = vec![networkd(root, device)];
    all.extend(network_manager(root, name, device, now_s));
    all.extend(dhclient(root, name, device, now_s));
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

/// What a probe can be sent to: an address of the link names a host of one line alone.
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

/// The files of several folders, by name and text.
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

/// What a lease of lines `key=value` says, if it is of an address of the device.
fn of_pairs(text: &str, [address, routers, resolvers]: [&str; 3], device: &Device) -> Named {
    let value = |key: &str| {
        let mut lines = text.lines();
        lines.find_map(|line| line.strip_prefix(key)?.strip_prefix('='))
    };
    let list = |key: &str| addresses(value(key).unwrap_or("")).collect();
    if value(address).is_some_and(|address| has(device, address)) {
        Named {
            routers: list(routers),
            resolvers: list(resolvers),
        }
    } else {
        Named::default()
    }
}

fn networkd(root: &Path, device: &Device) -> Named {
    let text = text_of(
        root,
        &format!("run/systemd/netif/leases/{}", device.ifindex),
    );
    of_networkd(&text, device)
}

fn of_networkd(text: &str, device: &Device) -> Named {
    of_pairs(text, ["ADDRESS", "ROUTER", "DNS"], device)
}

/// The lease in force is a section of the device's state (1.42 and newer). The lease files of its own client hold an
/// address and nothing else, but those of its first versions are like systemd-networkd's; those of dhclient, where that
/// takes the leases for it, hold all.
fn network_manager(root: &Path, name: &str, device: &Device, now_s: u64) -> Vec<Named> {
    let state = text_of(
        root,
        &format!("run/NetworkManager/devices/{}", device.ifindex),
    );
    let sections = state.split("\n[");
    let mut in_force = sections.filter_map(|section| section.strip_prefix("dhcp4]\n"));
    let keys = ["ip_address", "routers", "domain_name_servers"];
    let mut all = vec![of_pairs(in_force.next().unwrap_or(""), keys, device)];
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

/// Of a file for each device, or, where nobody names one, of a file for all.
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

/// `never`, `epoch SECONDS`, or a day of the week and a time of UTC: `3 2026/11/25 17:03:04`. What nobody understands is not over.
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

/// Since 1970, of the Gregorian calendar: years begin in March, so that the leap day is the last.
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

fn resolvconf(root: &Path, name: &str, devices: &[String]) -> Vec<IpAddr> {
    let texts = files(root, &RESOLVCONF, |file| is_record_of(file, name, devices));
    let servers = texts.iter().flat_map(|(_, text)| {
        text.lines()
            .filter_map(|line| line.strip_prefix("nameserver "))
    });
    servers.flat_map(addresses).collect()
}

/// Records are named after device and program: `eth1.dhclient`, `eth1.dhcp`. `eth1.100` is another device, there or not.
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
    use super::super::tests::{device, ip};
    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

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
