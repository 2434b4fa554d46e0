//! Reads `[member]` of the configuration.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anabranch_config::{BadInput, Source};
use anabranch_policy::abi::MEMBER_ADDRESSES_MAX;
use serde::Deserialize;

use crate::config::{Claim, MEMBER, check_claims, claim, is_of_one_host};

/// Assigned to GUE by IANA.
const GUE_PORT: u16 = 6080;
/// The daemon keeps no privilege for ports below.
const LOAD_PORT_MIN: u16 = 1024;

/// A valid configuration of a member.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The file, for messages.
    pub path: PathBuf,
    /// Virtual addresses of the services that this server is in.
    pub addresses: Vec<IpAddr>,
    /// Devices by which balancers reach it.
    pub devices: Vec<String>,
    /// Balancers whose tunnels are taken off; empty: all.
    pub from: Vec<IpAddr>,
    /// UDP port of GUE.
    pub gue_port: u16,
    /// UDP port at which balancers are told how many connections there are; none: they are not.
    pub load_port: Option<u16>,
}

/// Other keys belong to other roles.
#[derive(Debug, Deserialize)]
struct File {
    member: MemberTable,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MemberTable {
    #[serde(default)]
    addresses: Vec<IpAddr>,
    #[serde(default)]
    devices: Vec<String>,
    #[serde(default)]
    from: Vec<IpAddr>,
    gue_port: Option<u16>,
    load_port: Option<u16>,
}

impl Config {
    /// `path` is for messages only.
    pub fn parse(path: &Path, text: &str) -> Result<Self, BadInput> {
        let source = Source::parse(path, text)?;
        let File { member: table } = source.read()?;
        hosts(&source, "addresses", &table.addresses)?;
        hosts(&source, "from", &table.from)?;
        if table.addresses.is_empty() {
            let problem = r#"which virtual addresses does this server answer for? Write addresses = ["203.0.113.10"], as the service listens at"#;
            return Err(source.bad(&[MEMBER, "addresses"], problem));
        }
        if table.devices.is_empty() {
            let problem =
                r#"by which devices do balancers reach this server? Write devices = ["eth0"]"#;
            return Err(source.bad(&[MEMBER, "devices"], problem));
        }
        if table.gue_port == Some(0) {
            return Err(source.bad(&[MEMBER, "gue_port"], "a port from 1 on"));
        }
        if table.load_port.is_some_and(|port| port < LOAD_PORT_MIN) {
            let problem = format!("a port from {LOAD_PORT_MIN} on");
            return Err(source.bad(&[MEMBER, "load_port"], problem));
        }
        if table.load_port.is_some() && table.from.is_empty() {
            let problem = r#"who may ask? Name the balancers in from = ["10.0.0.1"]"#;
            return Err(source.bad(&[MEMBER, "load_port"], problem));
        }
        let config = Self {
            path: path.to_owned(),
            addresses: table.addresses,
            devices: table.devices,
            from: table.from,
            gue_port: table.gue_port.unwrap_or(GUE_PORT),
            load_port: table.load_port,
        };
        check_claims(&source, config.claims(), "a device is named once")?;
        Ok(config)
    }

    /// Names of the devices, to be claimed.
    pub fn device_names(&self) -> Vec<&str> {
        self.devices.iter().map(String::as_str).collect()
    }

    pub(crate) fn claims(&self) -> impl Iterator<Item = Claim<'_>> {
        (0..).zip(&self.devices).map(|(i, device)| {
            let index = i.to_string();
            claim(&[MEMBER, "devices", &index], device)
        })
    }

    /// An error about this file found by looking at the host.
    pub(super) fn bad(&self, problem: &str) -> BadInput {
        BadInput::new(format!("{}: {MEMBER}.{problem}", self.path.display()))
    }
}

/// Checks that each is the address of one host, that none is there twice, and that there are not too many.
fn hosts(source: &Source<'_>, key: &str, addresses: &[IpAddr]) -> Result<(), BadInput> {
    for (i, address) in addresses.iter().enumerate() {
        let bad = |problem: &str| Err(source.bad(&[MEMBER, key, &i.to_string()], problem));
        if !is_of_one_host(*address) {
            return bad("must be the address of one host");
        }
        if addresses[..i].contains(address) {
            return bad("this address is there twice");
        }
    }
    if addresses.len() > MEMBER_ADDRESSES_MAX {
        let problem = format!("at most {MEMBER_ADDRESSES_MAX} addresses are allowed");
        return Err(source.bad(&[MEMBER, key], problem));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(table: &str) -> Result<Config, String> {
        let text = format!("[member]\n{table}");
        Config::parse(Path::new("a.toml"), &text).map_err(|error| error.to_string())
    }

    #[test]
    fn addresses_and_devices_will_do() {
        let config =
            parse("addresses = [\"203.0.113.10\", \"2001:db8::10\"]\ndevices = [\"eth0\"]");
        let config = config.unwrap();
        assert_eq!(config.addresses.len(), 2);
        assert_eq!((config.gue_port, config.from), (6080, Vec::new()));
    }

    #[test]
    fn what_cannot_be_is_refused_with_one_line_that_names_the_key() {
        const DEVICES: &str = "devices = [\"eth0\"]";
        const ADDRESSES: &str = "addresses = [\"203.0.113.10\"]";
        for (table, says) in [
            (
                DEVICES.to_owned(),
                "member.addresses: which virtual addresses",
            ),
            (ADDRESSES.to_owned(), "member.devices: by which devices"),
            (
                format!("{DEVICES}\naddresses = [\"203.0.113.10\", \"127.0.0.1\"]"),
                "member.addresses[1] = \"127.0.0.1\": must be the address of one host",
            ),
            (
                format!("{DEVICES}\naddresses = [\"2001:db8::10\", \"2001:db8::10\"]"),
                "member.addresses[1] = \"2001:db8::10\": this address is there twice",
            ),
            (
                format!("{ADDRESSES}\n{DEVICES}\nfrom = [\"0.0.0.0\"]"),
                "member.from[0] = \"0.0.0.0\": must be",
            ),
            (
                format!("{ADDRESSES}\n{DEVICES}\ngue_port = 0"),
                "member.gue_port = 0: a port from 1 on",
            ),
            (
                format!("{ADDRESSES}\ndevices = [\"eth0\", \"eth0\"]"),
                "member.devices[1] = \"eth0\": this device is member.devices[0] already",
            ),
            (
                format!("{ADDRESSES}\n{DEVICES}\nload_port = 6090"),
                "member.load_port = 6090: who may ask? Name the balancers in from",
            ),
            (
                format!("{ADDRESSES}\n{DEVICES}\nfrom = [\"10.0.0.1\"]\nload_port = 53"),
                "member.load_port = 53: a port from 1024 on",
            ),
            (format!("{ADDRESSES}\n{DEVICES}\nport = 1"), "member.port"),
        ] {
            let said = parse(&table).unwrap_err();
            assert!(said.contains(says) && said.lines().count() == 1, "{said}");
        }
    }
}
