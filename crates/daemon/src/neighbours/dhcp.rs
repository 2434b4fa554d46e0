//! Findings about programs that take the leases of links.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anabranch_api::{Finding, Severity};

use super::{DHCP_CLIENT, DHCP_CLIENTS, finding, is_configured};
use crate::config::Config;
use crate::observe::{Device, Snapshot, lease_managers};

const BUSYBOX: &str = "busybox";
/// The script of dhclient if NetworkManager runs it.
const NETWORK_MANAGER_S_SCRIPT: &str = "nm-dhcp-helper";

/// A program that takes the leases of a device.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DhcpClient {
    /// The device whose leases it takes.
    pub device: String,
    /// Its name.
    pub program: String,
    /// Its process; none for network managers, which take leases for many devices.
    pub pid: Option<u32>,
}

pub fn findings(config: &Config, clients: &[DhcpClient]) -> Vec<Finding> {
    let mut devices: BTreeMap<&str, Vec<&DhcpClient>> = BTreeMap::new();
    let own = clients
        .iter()
        .filter(|it| is_configured(config, &it.device));
    own.for_each(|client| devices.entry(&client.device).or_default().push(client));
    let is_link = |device: &str| config.links.iter().any(|link| link.device == device);
    let found = devices
        .into_iter()
        .filter_map(|(device, clients)| match clients[..] {
            [client] => is_link(device).then(|| holder(client)),
            _ => Some(rivals(device, &clients)),
        });
    found.collect()
}

fn holder(client: &DhcpClient) -> Finding {
    let (device, program) = (&client.device, &client.program);
    finding(
        Severity::Note,
        DHCP_CLIENT,
        device,
        format!("{program} takes its leases: its IPv4 address and router are what that says"),
        "nothing to do".to_owned(),
    )
}

fn rivals(device: &str, clients: &[&DhcpClient]) -> Finding {
    let named: Vec<String> = clients.iter().map(|client| client.named()).collect();
    let all = named.join(" and ");
    finding(
        Severity::Trouble,
        DHCP_CLIENTS,
        device,
        format!(
            "{all} take leases for it: each takes away the address and the route that the other set, with their flows"
        ),
        "leave one of them, and have the others ignore the device".to_owned(),
    )
}

impl DhcpClient {
    fn named(&self) -> String {
        let program = &self.program;
        self.pid
            .map_or(program.clone(), |pid| format!("{program} (process {pid})"))
    }
}

/// The programs for all devices; `root` is the root of the file system.
pub fn clients(root: &Path, host: &Snapshot) -> Vec<DhcpClient> {
    let managed = host.devices.iter().flat_map(|(name, device)| {
        let managers = lease_managers(root, device).into_iter();
        managers.map(|program| DhcpClient {
            device: name.clone(),
            program: program.to_owned(),
            pid: None,
        })
    });
    let mut all: Vec<DhcpClient> = managed.chain(processes(root, &host.devices)).collect();
    all.sort();
    all
}

/// The processes of this network namespace that take leases.
fn processes(root: &Path, devices: &BTreeMap<String, Device>) -> Vec<DhcpClient> {
    let proc = root.join("proc");
    // Only who may trace the process can read the links of /proc/PID/ns. But each namespace has its own inodes for this file.
    let namespace = |process: &Path| Some(fs::metadata(process.join("net/dev")).ok()?.ino());
    let own = namespace(&proc.join("self"));
    let entries = fs::read_dir(&proc).into_iter().flatten().flatten();
    let found = entries.filter_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let process = entry.path();
        let command = fs::read_to_string(process.join("comm")).ok()?;
        if !["udhcpc", "dhclient", "dhcpcd", BUSYBOX].contains(&command.trim_end()) {
            return None;
        }
        let line = fs::read_to_string(process.join("cmdline")).ok()?;
        let (program, device) = taker(&line, devices)?;
        (namespace(&process) == own).then(|| DhcpClient {
            device: device.to_owned(),
            program: program.to_owned(),
            pid: Some(pid),
        })
    });
    found.collect()
}

/// Program and device in a command line, whose words end with a zero byte.
fn taker<'a>(line: &'a str, devices: &BTreeMap<String, Device>) -> Option<(&'static str, &'a str)> {
    // dhcpcd overwrites its command line with a status.
    if let Some(does) = line.strip_prefix("dhcpcd: ") {
        let device = does.split_whitespace().next()?.trim_end_matches('\0');
        return devices.contains_key(device).then_some(("dhcpcd", device));
    }
    let mut words = line.split_terminator('\0');
    let mut name = || Some(Path::new(words.next()?).file_name()?.to_str()?.to_owned());
    let program = match name()?.as_str() {
        BUSYBOX => name()?,
        program => program.to_owned(),
    };
    let words: Vec<&str> = words.collect();
    if words.contains(&"-6")
        || words
            .iter()
            .any(|word| word.contains(NETWORK_MANAGER_S_SCRIPT))
    {
        return None;
    }
    let named = |word: &&&str| devices.contains_key(**word);
    match program.as_str() {
        "udhcpc" => Some(("udhcpc", option_of_udhcpc(&words))),
        "dhclient" => Some(("dhclient", words.iter().find(named)?)),
        "dhcpcd" => Some(("dhcpcd", words.iter().find(named)?)),
        _ => None,
    }
}

/// The device of udhcpc, which is eth0 by default.
fn option_of_udhcpc<'a>(words: &[&'a str]) -> &'a str {
    let behind = words
        .windows(2)
        .find(|pair| ["-i", "--interface"].contains(&pair[0]));
    let joined = words.iter().find_map(|word| {
        let long = word.strip_prefix("--interface=");
        long.or_else(|| word.strip_prefix("-i").filter(|device| !device.is_empty()))
    });
    behind.map(|pair| pair[1]).or(joined).unwrap_or("eth0")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::tests::{device, write};

    fn run(root: &Path, pid: &str, namespace: u32, words: &[&str]) {
        let command = Path::new(words[0]).file_name().unwrap().to_str().unwrap();
        let command = command.split(':').next().unwrap();
        write(root, &format!("proc/{pid}/comm"), &format!("{command}\n"));
        write(
            root,
            &format!("proc/{pid}/cmdline"),
            &(words.join("\0") + "\0"),
        );
        let (files, own) = (
            root.join(format!("namespace{namespace}")),
            root.join(format!("proc/{pid}/net")),
        );
        write(&files, "dev", "");
        std::os::unix::fs::symlink(files, own).unwrap();
    }

    fn host() -> Snapshot {
        let named = [("eth0", 2), ("wan0", 3)];
        let devices =
            named.map(|(name, index)| (name.to_owned(), device(index, &["203.0.113.2/24"])));
        Snapshot {
            devices: devices.into(),
            ..Snapshot::default()
        }
    }

    /// Program and device of all that take leases where these run.
    fn found(all: &[&[&str]]) -> Vec<(String, String)> {
        let root = tempfile::tempdir().unwrap();
        run(root.path(), "self", 1, &["anabranch"]);
        for (index, words) in all.iter().enumerate() {
            run(root.path(), &(100 + index).to_string(), 1, words);
        }
        let clients = clients(root.path(), &host()).into_iter();
        clients.map(|it| (it.program, it.device)).collect()
    }

    #[test]
    fn programs_that_take_leases_are_known_by_their_words() {
        for (program, words) in [
            (
                "udhcpc",
                &["udhcpc", "-n", "-p", "/run/udhcpc.wan0.pid", "-i", "wan0"][..],
            ),
            ("udhcpc", &["/bin/busybox", "udhcpc", "-iwan0", "-b"]),
            ("udhcpc", &["/sbin/udhcpc", "--interface=wan0"]),
            (
                "dhclient",
                &[
                    "/sbin/dhclient",
                    "-4",
                    "-pf",
                    "/run/dhclient.wan0.pid",
                    "wan0",
                ],
            ),
            ("dhcpcd", &["/usr/sbin/dhcpcd", "-B", "wan0"]),
            ("dhcpcd", &["dhcpcd: wan0 [ip4]"]),
        ] {
            let client = (program.to_owned(), "wan0".to_owned());
            assert_eq!(found(&[words]), [client], "{words:?}");
        }
        assert_eq!(
            found(&[&["udhcpc", "-b"]]),
            [("udhcpc".to_owned(), "eth0".to_owned())]
        );
        for words in [
            &["dhclient", "-6", "wan0"][..],
            &["dhclient", "-sf", "/usr/lib/nm-dhcp-helper", "wan0"],
            &["dhcpcd: [privileged proxy] wan0 [ip4]"],
            &["dhcpcd: [manager] [ip4] [ip6]"],
            &["busybox", "sh"],
            &["sh", "udhcpc", "-i", "wan0"],
        ] {
            assert_eq!(found(&[words]), [], "{words:?}");
        }
    }

    #[test]
    fn those_of_other_network_namespaces_take_nothing_of_this() {
        let root = tempfile::tempdir().unwrap();
        run(root.path(), "self", 1, &["anabranch"]);
        run(root.path(), "100", 2, &["udhcpc", "-i", "wan0"]);
        assert_eq!(clients(root.path(), &host()), []);
    }

    #[test]
    fn network_managers_are_known_by_their_leases() {
        let root = tempfile::tempdir().unwrap();
        write(
            root.path(),
            "run/systemd/netif/leases/3",
            "ADDRESS=203.0.113.2\n",
        );
        let state = "[device]\n\n[dhcp4]\nip_address=203.0.113.2\n";
        write(root.path(), "run/NetworkManager/devices/2", state);
        write(
            root.path(),
            "run/systemd/netif/leases/2",
            "ADDRESS=203.0.113.3\n",
        );
        let clients = clients(root.path(), &host()).into_iter();
        let found: Vec<_> = clients.map(|it| (it.device, it.program)).collect();
        let expected = [("eth0", "NetworkManager"), ("wan0", "systemd-networkd")];
        assert_eq!(
            found,
            expected.map(|(device, program)| (device.to_owned(), program.to_owned()))
        );
    }
}
