//! The resolvers that a link's lease names, from the files of those who took the lease.
//!
//! systemd-networkd, NetworkManager, dhclient, and whatever speaks with resolvconf (dhcpcd, ifupdown, pppd) write them
//! down per device. A lease that names its address must be of an address that the device has: files outlive leases, and
//! network namespaces share them.

use std::fs;
use std::net::IpAddr;
use std::path::Path;

use super::Device;

/// More of a family say nothing new.
const RESOLVERS_MAX: usize = 3;
const RESOLVCONF: [&str; 3] = [
    "run/resolvconf/interfaces",
    "run/resolvconf/interface",
    "run/dhcpcd/hook-state/resolv.conf",
];
/// Of a connection of NetworkManager, in letters.
const UUID_LENGTH: usize = 36;

/// In the order of the files; none if nobody wrote any. `root` is the root of the file system, `devices` are all of the
/// host's.
pub fn resolvers(root: &Path, name: &str, device: &Device, devices: &[String]) -> Vec<IpAddr> {
    let mut all = networkd(root, device);
    all.extend(network_manager(root, name, device));
    all.extend(dhclient(root, name, device));
    all.extend(resolvconf(root, name, devices));
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
    let is = |prefix: &super::Prefix| prefix.address.to_string() == address;
    device.addresses.iter().any(is)
}

fn addresses(words: &str) -> impl Iterator<Item = IpAddr> {
    words
        .split([' ', ',', ';', '\t'])
        .filter_map(|word| word.parse().ok())
}

fn read(root: &Path, path: &str) -> String {
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
fn of_pairs(text: &str, [address, servers]: [&str; 2], device: &Device) -> Vec<IpAddr> {
    let value = |key: &str| {
        let mut lines = text.lines();
        lines.find_map(|line| line.strip_prefix(key)?.strip_prefix('='))
    };
    if value(address).is_some_and(|address| has(device, address)) {
        addresses(value(servers).unwrap_or("")).collect()
    } else {
        Vec::new()
    }
}

fn networkd(root: &Path, device: &Device) -> Vec<IpAddr> {
    let text = read(
        root,
        &format!("run/systemd/netif/leases/{}", device.ifindex),
    );
    of_networkd(&text, device)
}

fn of_networkd(text: &str, device: &Device) -> Vec<IpAddr> {
    of_pairs(text, ["ADDRESS", "DNS"], device)
}

/// The lease in force is a section of the device's state (1.42 and newer). The lease files of its own client hold an
/// address and nothing else, but those of its first versions are like systemd-networkd's; those of dhclient, where that
/// takes the leases for it, hold all.
fn network_manager(root: &Path, name: &str, device: &Device) -> Vec<IpAddr> {
    let state = read(
        root,
        &format!("run/NetworkManager/devices/{}", device.ifindex),
    );
    let sections = state.split("\n[");
    let mut in_force = sections.filter_map(|section| section.strip_prefix("dhcp4]\n"));
    let keys = ["ip_address", "domain_name_servers"];
    let mut all = of_pairs(in_force.next().unwrap_or(""), keys, device);
    let of_device = |file: &str| {
        let lease = format!("-{name}.lease");
        let connection = file.split_once('-').map(|(_, connection)| connection);
        connection.and_then(|connection| connection.get(UUID_LENGTH..)) == Some(&lease)
    };
    for (file, text) in files(root, &["var/lib/NetworkManager"], of_device) {
        all.extend(match file.starts_with("dhclient-") {
            true => of_dhclient(&text, device),
            false => of_networkd(&text, device),
        });
    }
    all
}

fn dhclient(root: &Path, name: &str, device: &Device) -> Vec<IpAddr> {
    let text = read(root, &format!("var/lib/dhcp/dhclient.{name}.leases"));
    of_dhclient(&text, device)
}

/// The last lease of a file is the newest (dhclient.leases(5)).
fn of_dhclient(text: &str, device: &Device) -> Vec<IpAddr> {
    let Some(newest) = text.rsplit("lease {").next() else {
        return Vec::new();
    };
    let value = |key: &str| {
        let mut lines = newest.lines().map(str::trim);
        lines.find_map(|line| line.strip_prefix(key)?.strip_suffix(';'))
    };
    if value("fixed-address ").is_some_and(|address| has(device, address)) {
        addresses(value("option domain-name-servers ").unwrap_or("")).collect()
    } else {
        Vec::new()
    }
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

    fn found(root: &Path, name: &str, device: &Device) -> Vec<IpAddr> {
        resolvers(root, name, device, &[name.to_owned()])
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
