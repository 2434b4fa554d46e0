//! Devices of a namespace: virtual Ethernet pairs, addresses, routes, offloads, counters.

use std::net::IpAddr;

use serde::Serialize;
use serde_json::Value;

use super::{Namespace, NetnsError, Result};

/// What the kernel counted on a device since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Received.
    pub rx_packets: u64,
    /// Received.
    pub rx_bytes: u64,
    /// Not taken in, for want of room.
    pub rx_dropped: u64,
    /// Sent.
    pub tx_packets: u64,
    /// Sent.
    pub tx_bytes: u64,
    /// Not sent, for want of room.
    pub tx_dropped: u64,
}

impl Namespace {
    /// Makes a virtual Ethernet cable from `device` here to `peer_device` in `peer`, both ends up.
    pub fn veth(&self, device: &str, peer: &Namespace, peer_device: &str) -> Result<()> {
        self.ip(&format!(
            "link add {device} type veth peer name {peer_device} netns {}",
            peer.name()
        ))?;
        self.ip(&format!("link set {device} up"))?;
        peer.ip(&format!("link set {peer_device} up"))?;
        Ok(())
    }

    /// Gives a device an address and its network. It can be used at once: no duplicate is looked for (RFC 4862 §5.4).
    pub fn add_address(&self, device: &str, address: IpAddr, prefix_len: u8) -> Result<()> {
        let unasked = if address.is_ipv6() { " nodad" } else { "" };
        self.ip(&format!(
            "address add {address}/{prefix_len} dev {device}{unasked}"
        ))
        .map(drop)
    }

    /// Sets the largest IP packet a device carries.
    pub fn set_mtu(&self, device: &str, mtu_bytes: u32) -> Result<()> {
        self.ip(&format!("link set {device} mtu {mtu_bytes}"))
            .map(drop)
    }

    /// Switches everything that lets a packet leave `device` unfinished: segmentation, checksums, and their receiving
    /// counterparts.
    pub fn set_offloads(&self, device: &str, on: bool) -> Result<()> {
        let state = if on { "on" } else { "off" };
        let mut args = vec!["-K", device];
        for feature in ["tso", "gso", "gro", "tx"] {
            args.extend([feature, state]);
        }
        self.exec("ethtool", &args).map(drop)
    }

    /// The hardware address of a device with Ethernet.
    pub fn mac(&self, device: &str) -> Result<[u8; 6]> {
        let report = self.link_report(device)?;
        let text = report["address"].as_str().unwrap_or_default();
        let bytes = text.split(':').map(|byte| u8::from_str_radix(byte, 16));
        let bytes: Option<Vec<u8>> = bytes.map(std::result::Result::ok).collect();
        bytes
            .and_then(|bytes| bytes.try_into().ok())
            .ok_or_else(|| self.missing(device, "address"))
    }

    /// What `ip -json -s link` tells of a device.
    fn link_report(&self, device: &str) -> Result<Value> {
        let report = self.ip(&format!("-json -s link show dev {device}"))?;
        let mut report: Value =
            serde_json::from_str(&report).map_err(|_| self.missing(device, "JSON"))?;
        Ok(report[0].take())
    }

    fn missing(&self, device: &str, what: &'static str) -> NetnsError {
        NetnsError::Report {
            namespace: self.name().to_owned(),
            device: device.to_owned(),
            what,
        }
    }

    /// The device's counters (`ip -s link`).
    pub fn counters(&self, device: &str) -> Result<Counters> {
        let report = self.link_report(device)?;
        let stats = &report["stats64"];
        let read = |side: &str, what| {
            let value = stats[side][what].as_u64();
            value.ok_or_else(|| self.missing(device, what))
        };
        Ok(Counters {
            rx_packets: read("rx", "packets")?,
            rx_bytes: read("rx", "bytes")?,
            rx_dropped: read("rx", "dropped")?,
            tx_packets: read("tx", "packets")?,
            tx_bytes: read("tx", "bytes")?,
            tx_dropped: read("tx", "dropped")?,
        })
    }
}
