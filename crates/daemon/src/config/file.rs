//! The configuration as written: every key once.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use serde::Deserialize;

use anabranch_config::Rate;
use anabranch_core::Algorithm;

use super::{Fallback, Forwards, OnReturn, UdpFilter};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub lan: Vec<String>,
    pub link: BTreeMap<String, LinkTable>,
    pub policy: Option<Algorithm>,
    #[serde(default)]
    pub availability: AvailabilityTable,
    #[serde(default)]
    pub probe: ProbeTable,
    #[serde(default)]
    pub nat: NatTable,
    #[serde(default)]
    pub limits: LimitsTable,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LinkTable {
    pub device: String,
    pub down: Option<Rate>,
    pub up: Option<Rate>,
    #[serde(default)]
    pub metered: bool,
    pub weight: Option<u32>,
    pub gateway: Option<Ipv4Addr>,
    pub address: Option<Ipv4Addr>,
    #[serde(default)]
    pub prefixes: Vec<String>,
    pub probe: Option<Vec<String>>,
    pub on_return: Option<OnReturn>,
}

/// The fields of [`anabranch_core::Config`], times in milliseconds.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AvailabilityTable {
    pub poll_ms: Option<u64>,
    pub silence_ms: Option<u64>,
    pub one_way_ms: Option<u64>,
    pub idle_probe_ms: Option<u64>,
    pub probe_interval_ms: Option<u64>,
    pub down_interval_ms: Option<u64>,
    pub metered_factor: Option<u32>,
    pub far_silence_ms: Option<u64>,
    pub hold_down_ms: Option<u64>,
    pub hold_down_max_ms: Option<u64>,
    pub hold_forget_ms: Option<u64>,
    pub deadline_min_ms: Option<u64>,
    pub deadline_unmeasured_ms: Option<u64>,
    pub deadline_max_ms: Option<u64>,
    pub queue_max_ms: Option<u64>,
    pub window: Option<usize>,
    pub window_age_ms: Option<u64>,
    pub down_loss: Option<usize>,
    pub down_consecutive: Option<u32>,
    pub up_loss: Option<usize>,
    pub up_consecutive: Option<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProbeTable {
    pub targets: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NatTable {
    pub tcp_established_s: Option<u64>,
    pub tcp_transitory_s: Option<u64>,
    pub tcp_unanswered_s: Option<u64>,
    pub udp_s: Option<u64>,
    pub icmp_s: Option<u64>,
    pub ports: Option<[u16; 2]>,
    pub udp_filter: Option<UdpFilter>,
    pub fallback: Option<Fallback>,
    pub forwards: Option<Forwards>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LimitsTable {
    pub flows: Option<u32>,
    pub flows_per_host: Option<u32>,
}
