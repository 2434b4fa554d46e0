//! What the demo does: links, load, and the cut.

use std::net::SocketAddr;
use std::time::Duration;

use anabranch_core::Algorithm;
use anabranch_lab::topology::{Lab, LabSpec, SERVER};
use anabranch_workload::client::ClientConfig;
use anabranch_workload::{Size, Workload};

use crate::table;

/// Name, down and up in bit/s, round trip in ms. 80 Mbit/s in all, so that two cores emulate them in time.
const LINKS: [(&str, u64, u64, u64); 3] = [
    ("fiber", 40_000_000, 20_000_000, 12),
    ("cable", 25_000_000, 10_000_000, 25),
    ("lte", 15_000_000, 8_000_000, 45),
];
const CUT_LINK: &str = "fiber";
const USERS: u32 = 8;
const DOWNLOADS_PER_USER: u32 = 5;
const FILE_BYTES: u64 = 250_000;
/// An open connection without a byte for so long has failed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

pub struct Plan {
    pub policy: Algorithm,
    pub duration: Duration,
    pub workload: Workload,
    pub cut_link: String,
    cut_at: Duration,
}

impl Plan {
    pub fn new(policy: Algorithm, duration: Duration) -> Self {
        Self {
            policy,
            duration,
            workload: Workload::continuous(
                USERS,
                DOWNLOADS_PER_USER,
                Size::Fixed(FILE_BYTES),
                duration,
            ),
            cut_link: CUT_LINK.to_owned(),
            cut_at: duration / 2,
        }
    }

    pub fn is_cut_due(&self, elapsed: Duration) -> bool {
        elapsed >= self.cut_at
    }

    pub fn lab(&self) -> LabSpec {
        LabSpec {
            clients: USERS as u16,
            file_bytes: vec![FILE_BYTES],
            ..LabSpec::of_lines(&LINKS)
        }
    }

    /// Lines of the gateway's configuration beside its devices. The laboratory's internet has one host to probe.
    pub fn settings(&self) -> String {
        let web = SocketAddr::from((SERVER, 80));
        format!(
            "policy = \"{}\"\nprobe.targets = [\"icmp:{SERVER}\", \"tcp:{web}\"]\n",
            self.policy
        )
    }

    pub fn client(&self, lab: &Lab) -> ClientConfig {
        ClientConfig {
            idle_timeout: IDLE_TIMEOUT,
            ..lab.client_config()
        }
    }

    pub fn introduction(&self) -> String {
        let links = LINKS.map(|(name, down_bps, up_bps, round_trip_ms)| {
            let [down, up] = [down_bps, up_bps].map(|rate_bps| table::rate(rate_bps as f64));
            format!("  {name:<6} {down} down, {up} up, {round_trip_ms} ms")
        });
        format!(
            "Three links in network namespaces, {} users with {} downloads each, policy {}, {} s:\n{}\n\n",
            self.workload.users,
            self.workload.tabs_per_user,
            self.policy,
            self.duration.as_secs(),
            links.join("\n")
        )
    }

    /// Links as capacity: name, down and up in bit/s.
    pub fn links(&self) -> impl Iterator<Item = (&'static str, u64, u64)> {
        LINKS
            .iter()
            .map(|(name, down_bps, up_bps, _)| (*name, *down_bps, *up_bps))
    }
}
