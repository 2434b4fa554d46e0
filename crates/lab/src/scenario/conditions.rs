//! What the machine counted, and what it was like.

use std::collections::BTreeMap;

use anabranch_api::GatewayStatus;
use anabranch_core::PerFamily;
use anabranch_scenario::{Counts, Direction, Family, Run, Tally};
use anabranch_workload::Transfer;
use hdrhistogram::Histogram;

use crate::daemon::Daemon;
use crate::run::Recording;
use crate::topology::{Lab, LabSpec, Result, tcp};
use anabranch_testbed::emulator::{Fates, LinkReport};
use anabranch_testbed::netns::Counters;

/// Of the gateway's ICMP echo requests, with their IP header (RFC 792, RFC 4443).
fn probe_bytes(family: Family) -> u64 {
    match family {
        Family::V4 => 28,
        Family::V6 => 48,
    }
}

/// A run whose requests began later than this is not valid: p99. A round trip over access links is some ten
/// milliseconds.
const REQUEST_LATENESS_P99_MAX_MS: f64 = 50.0;
const HOUR_US: u64 = 3_600_000_000;

/// Running counters of the whole lab.
pub(super) struct Conditions {
    /// Sent by the gateway to ask whether links work.
    probes: PerFamily<u64>,
    /// And to the fixed node.
    measuring: PerFamily<u64>,
    /// Sent by a peer.
    asked: Tally,
    /// Of all lines, both hops, both directions.
    fates: Vec<Fates>,
    /// Segments that clients and servers sent again.
    retransmitted: u64,
    /// What anabranch says of itself.
    anabranch: Option<String>,
}

impl Conditions {
    pub(super) fn read(lab: &Lab, daemon: Option<&mut Daemon>) -> Result<Self> {
        let status = daemon.map(Daemon::status).transpose()?;
        let gateway = status.as_ref().and_then(|status| status.gateway.as_deref());
        let lines = lab
            .hops()
            .flat_map(|hop| Direction::BOTH.map(|way| hop.fates(way)));
        Ok(Self {
            probes: PerFamily::from_fn(|family| {
                gateway.map_or(0, |status| probes_sent(status, family))
            }),
            measuring: PerFamily::from_fn(|family| {
                gateway.map_or(0, |status| asked(status, family))
            }),
            asked: lab.asked(),
            fates: lines.collect::<Result<_, _>>()?,
            retransmitted: tcp::retransmitted(lab.clients())? + tcp::retransmitted(lab.internet())?,
            anabranch: status.as_ref().zip(gateway).map(|(status, gateway)| {
                format!("anabranch {}, policy {}", status.version, gateway.policy)
            }),
        })
    }

    /// From here to `later`. The kernel counts neither the bytes it sends again nor reordering by its own definition;
    /// a flow behind a gateway with NAT never changes its link.
    pub(super) fn counts_until(&self, later: &Self) -> Counts {
        let mut measuring = sent(&self.measuring, &later.measuring);
        measuring += since(self.asked, later.asked);
        let mut probes = sent(&self.probes, &later.probes);
        probes += measuring;
        let mut counts = Counts {
            probes,
            measuring,
            retransmitted: Tally {
                packets: later.retransmitted - self.retransmitted,
                bytes: 0,
            },
            ..Counts::default()
        };
        for (before, after) in self.fates.iter().zip(&later.fates) {
            counts.offered += since(before.offered, after.offered);
            counts.delivered += since(before.delivered, after.delivered);
            counts.overflowed += since(before.overflowed, after.overflowed);
            counts.lost += since(before.lost, after.lost);
            counts.cut += since(before.cut, after.cut);
        }
        counts
    }
}

fn probes_sent(status: &GatewayStatus, family: Family) -> u64 {
    let paths = status.links.iter().flat_map(|link| &link.paths);
    let of_family = paths.filter(|path| path.family == family.to_string());
    of_family.map(|path| path.probe.sent).sum()
}

fn asked(status: &GatewayStatus, family: Family) -> u64 {
    let nodes = status.links.iter().filter_map(|link| link.node.as_ref());
    let of_family = nodes.filter(|node| node.family == family.to_string());
    of_family.map(|node| node.sent).sum()
}

fn sent(before: &PerFamily<u64>, after: &PerFamily<u64>) -> Tally {
    let mut sent = Tally::default();
    for family in Family::ALL {
        let packets = after[family] - before[family];
        sent += Tally {
            packets,
            bytes: packets * probe_bytes(family),
        };
    }
    sent
}

fn since(before: Tally, after: Tally) -> Tally {
    Tally {
        packets: after.packets - before.packets,
        bytes: after.bytes - before.bytes,
    }
}

/// Everything a reader needs to repeat the run, or to doubt it.
pub(super) fn words(
    run: &Run,
    at_end: &Conditions,
    recording: &Recording,
    spec: &LabSpec,
) -> Vec<(String, String)> {
    let lab = &recording.lab;
    let peer = format!("the peer {}", run.policy);
    let mut words = vec![
        (
            "gateway".to_owned(),
            at_end.anabranch.clone().unwrap_or(peer),
        ),
        ("kernel".to_owned(), lab.kernel.clone()),
        ("cores".to_owned(), lab.cores.to_string()),
    ];
    for (namespace, algorithm) in &lab.congestion_control {
        words.push((
            format!("congestion control of {namespace}"),
            algorithm.clone(),
        ));
    }
    words.extend(tcp::conditions(&spec.tcp, spec.families));
    let differences = tcp::differences(&spec.tcp, spec.families).into_iter();
    words.extend(differences.map(|words| ("TCP differs".to_owned(), words.to_owned())));
    for link in lab.links.iter().chain(&lab.beyond) {
        words.extend(lateness(link));
    }
    words.push((
        "lateness of requests".to_owned(),
        request_lateness(&recording.transfers),
    ));
    words.push((
        "packets dropped by the kernel".to_owned(),
        kernel_drops(&lab.devices),
    ));
    words.push((
        "bytes sent again, reordering".to_owned(),
        "not counted by the kernel".to_owned(),
    ));
    words
}

fn lateness(link: &LinkReport) -> [(String, String); 2] {
    [("down", &link.down), ("up", &link.up)].map(|(way, report)| {
        let lateness = report.lateness;
        let words = format!(
            "p50 {:.0} µs, p99 {:.0} µs",
            lateness.p50_us, lateness.p99_us
        );
        (format!("lateness of {} {way}", link.name), words)
    })
}

/// How late the load generator began transfers: planned against actual start.
struct RequestLateness {
    p50_ms: f64,
    p99_ms: f64,
}

impl RequestLateness {
    fn of(transfers: &[Transfer]) -> Self {
        let mut late = Histogram::<u64>::new_with_max(HOUR_US, 3).expect("an hour is in bounds");
        for transfer in transfers {
            let late_us = (transfer.start_s - transfer.planned_start_s).max(0.0) * 1e6;
            late.saturating_record(late_us as u64);
        }
        let [p50_ms, p99_ms] =
            [0.5, 0.99].map(|quantile| late.value_at_quantile(quantile) as f64 / 1e3);
        Self { p50_ms, p99_ms }
    }
}

/// Why the load was not what the scenario asks for, if it was not.
pub(super) fn problem_of_load(transfers: &[Transfer]) -> Option<String> {
    let RequestLateness { p99_ms, .. } = RequestLateness::of(transfers);
    (p99_ms > REQUEST_LATENESS_P99_MAX_MS).then(|| {
        format!(
            "requests began late, p99 {p99_ms:.0} ms, {REQUEST_LATENESS_P99_MAX_MS:.0} ms allowed: too much load for this machine"
        )
    })
}

fn request_lateness(transfers: &[Transfer]) -> String {
    let RequestLateness { p50_ms, p99_ms } = RequestLateness::of(transfers);
    format!("p50 {p50_ms:.1} ms, p99 {p99_ms:.1} ms")
}

fn kernel_drops(devices: &BTreeMap<String, Counters>) -> String {
    let dropped = devices.iter().filter_map(|(device, counters)| {
        let packets = counters.rx_dropped + counters.tx_dropped;
        (packets > 0).then(|| format!("{packets} at {device}"))
    });
    let dropped: Vec<_> = dropped.collect();
    if dropped.is_empty() {
        return "none".to_owned();
    }
    dropped.join(", ")
}
