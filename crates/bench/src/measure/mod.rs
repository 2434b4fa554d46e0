//! What is measured of every contender.
//!
//! The ends must cost less than the middle, or every contender looks alike: data is sent from page references
//! (sendfile) and discarded unread (`MSG_TRUNC`), connections take the fewest system calls an orderly exchange can
//! take, small packets are made and counted in the kernel. On virtual Ethernet a packet is carried all the way to the
//! receiving socket by the processor that sent it, so the gateway's work is part of what each processor does.

mod connections;
mod goodput;
mod latency;
mod packets;

use std::time::Duration;

use anabranch_policy::Family;
use anyhow::{Context, Result};

use crate::testbed::{Contender, Testbed};

pub use connections::{Calls, complete as complete_connections, while_connecting};
pub use packets::{measure as packets, measure_flows as packets_of_flows};

/// How long one run may take.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// Not counted: connections ramp up, flows are confirmed, neighbours resolved.
    pub warm_up: Duration,
    pub window: Duration,
}

/// One kind of run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    Goodput { streams: usize },
    Connections { family: Family },
    Packets,
    Latency,
}

impl Measure {
    pub const ALL: [Measure; 6] = [
        Measure::Goodput { streams: 1 },
        Measure::Goodput { streams: 4 },
        Measure::Connections { family: Family::V4 },
        Measure::Connections { family: Family::V6 },
        Measure::Packets,
        Measure::Latency,
    ];

    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Measure::Goodput { .. } => "goodput",
            Measure::Connections { .. } => "connections",
            Measure::Packets => "packets",
            Measure::Latency => "latency",
        }
    }

    /// The row it is known by.
    pub fn row(self) -> &'static str {
        match self {
            Measure::Goodput { streams: 1 } => "goodput_1_stream",
            Measure::Goodput { .. } => "goodput_4_streams",
            Measure::Connections { family: Family::V4 } => "connections",
            Measure::Connections { family: Family::V6 } => "connections_ipv6",
            Measure::Packets => "packets_64_byte",
            Measure::Latency => "latency_p50",
        }
    }

    /// With whom the gateway takes as many turns as an interval needs.
    pub fn paired_with(self) -> Option<Contender> {
        match self {
            Measure::Connections { .. } => Some(Contender::Nftables),
            Measure::Packets => Some(Contender::Redirect),
            Measure::Goodput { .. } | Measure::Latency => None,
        }
    }

    /// One run: names of rows with their values.
    pub fn run(self, bed: &Testbed, span: Span) -> Result<Vec<(&'static str, f64)>> {
        let network = &bed.network;
        let failed = || format!("{} of {:?}", self.name(), bed.contender);
        let rows = match self {
            Measure::Goodput { streams } => {
                goodput::measure(network, streams, span).map(|gbps| vec![(self.row(), gbps)])
            }
            Measure::Connections { family } => {
                let calls = Calls::through_gateway(family);
                connections::measure(network, calls, span).map(|rate| vec![(self.row(), rate)])
            }
            Measure::Packets => {
                packets::measure(network, span).map(|rate| vec![(self.row(), rate)])
            }
            Measure::Latency => latency::measure(network, span)
                .map(|(p50, p99)| vec![(self.row(), p50), ("latency_p99", p99)]),
        };
        rows.with_context(failed)
    }
}
