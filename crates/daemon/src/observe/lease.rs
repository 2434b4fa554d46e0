//! The resolvers that a link's lease names, from the files of those who took the lease.
//!
//! systemd-networkd, dhclient, and whatever speaks with resolvconf (dhcpcd, ifupdown, pppd) write them down per device. A
//! lease that names its address must be of an address that the device has: files outlive leases, and network namespaces
//! share them.

use std::fs;
use std::net::IpAddr;
use std::path::Path;

use super::Device;

/// More say nothing new.
const RESOLVERS_MAX: usize = 3;
const RESOLVCONF: [&str; 3] = [
    "run/resolvconf/interfaces",
    "run/resolvconf/interface",
    "run/dhcpcd/hook-state/resolv.conf",
];

/// In the order of the files; none if nobody wrote any. `root` is the root of the file system.
pub fn resolvers(root: &Path, name: &str, device: &Device) -> Vec<IpAddr> {
    let mut all = networkd(root, device);
    all.extend(dhclient(root, name, device));
    all.extend(resolvconf(root, name));
    let mut distinct: Vec<IpAddr> = Vec::new();
    for address in all {
        if address.is_ipv4() && !address.is_loopback() && !distinct.contains(&address) {
            distinct.push(address);
        }
    }
    distinct.truncate(RESOLVERS_MAX);
    distinct
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

fn networkd(root: &Path, device: &Device) -> Vec<IpAddr> {
    let path = root.join(format!("run/systemd/netif/leases/{}", device.ifindex));
    let text = fs::read_to_string(path).unwrap_or_default();
    let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key));
    if value("ADDRESS=").is_some_and(|address| has(device, address)) {
        addresses(value("DNS=").unwrap_or("")).collect()
    } else {
        Vec::new()
    }
}

/// The last lease of a file is the newest (dhclient.leases(5)).
fn dhclient(root: &Path, name: &str, device: &Device) -> Vec<IpAddr> {
    let path = root.join(format!("var/lib/dhcp/dhclient.{name}.leases"));
    let text = fs::read_to_string(path).unwrap_or_default();
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

/// Files are named after device and program: `eth1.dhclient`, `eth1.dhcp`.
fn resolvconf(root: &Path, name: &str) -> Vec<IpAddr> {
    let folders = RESOLVCONF.map(|folder| fs::read_dir(root.join(folder)));
    let files = folders.into_iter().flatten().flatten().flatten();
    let of_device = files.filter(|file| {
        let file = file.file_name();
        let rest = file.to_str().and_then(|file| file.strip_prefix(name));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    });
    let texts = of_device.filter_map(|file| fs::read_to_string(file.path()).ok());
    let words: Vec<String> = texts
        .flat_map(|text| {
            let servers = text
                .lines()
                .filter_map(|line| line.strip_prefix("nameserver "));
            servers.map(str::to_owned).collect::<Vec<_>>()
        })
        .collect();
    words.iter().flat_map(|words| addresses(words)).collect()
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
        ] {
            let root = tempfile::tempdir().unwrap();
            write(root.path(), path, text);
            let found = resolvers(root.path(), "wan0", &device(3, &["203.0.113.2/24"]));
            assert_eq!(found, [ip("203.0.113.1"), ip("192.0.2.53")], "{path}");
            let other = resolvers(root.path(), "wan", &device(4, &["203.0.113.3/24"]));
            assert!(other.is_empty(), "{path}: of another device: {other:?}");
        }
    }

    #[test]
    fn a_lease_of_an_address_that_the_device_has_not_is_not_its_own() {
        let root = tempfile::tempdir().unwrap();
        write(
            root.path(),
            "run/systemd/netif/leases/3",
            "ADDRESS=203.0.113.9\nDNS=203.0.113.1\n",
        );
        let found = resolvers(root.path(), "wan0", &device(3, &["203.0.113.2/24"]));
        assert!(found.is_empty(), "{found:?}");
    }
}
