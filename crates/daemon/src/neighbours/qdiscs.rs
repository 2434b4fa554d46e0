//! Findings about programs of others at the ingress of devices: mostly download shaping.

use anabranch_api::{Finding, Severity};

use super::{INGRESS_QDISC, finding, is_configured};
use crate::config::Config;
use crate::observe::Snapshot;

/// A queueing discipline at the ingress of a device, with filters that are not ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IngressQdisc {
    /// Index of the device.
    pub ifindex: u32,
    /// `ingress` or `clsact`.
    pub kind: String,
}

pub fn findings(config: &Config, host: &Snapshot, ingress: &[IngressQdisc]) -> Vec<Finding> {
    let devices = host.devices.iter();
    let ours = devices.filter(|(name, _)| is_configured(config, name));
    let shaped = ours.filter_map(|(name, device)| {
        let qdisc = ingress
            .iter()
            .find(|qdisc| qdisc.ifindex == device.ifindex)?;
        Some(bypassed(config, name, &qdisc.kind))
    });
    shaped.collect()
}

fn bypassed(config: &Config, device: &str, kind: &str) -> Finding {
    let lan = config.lan.first().map_or("the LAN device", String::as_str);
    let is_link = config.links.iter().any(|link| link.device == device);
    let cure = if is_link {
        format!(
            "shape downloads at the egress of {lan} (tc qdisc add dev {lan} root cake bandwidth RATE) and delete the {kind} qdisc"
        )
    } else {
        format!("shape uploads at the egress of the links' devices and delete the {kind} qdisc")
    };
    let meaning = format!(
        "its {kind} qdisc has filters that balanced packets pass by: they are not shaped, counted or redirected there"
    );
    finding(Severity::Trouble, INGRESS_QDISC, device, meaning, cure)
}
