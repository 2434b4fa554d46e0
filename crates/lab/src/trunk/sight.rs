//! What the trunk and its queues tell of themselves.

use std::time::Duration;

use anabranch_api::{SublinkStatus, TrunkStatus};
use anabranch_scenario::{Counts, Event, LinkReading, LinkSeries, LinkState, Tally};

use super::nodes::Nodes;
use super::plan::{ETHERNET_BYTES, Plan};
use crate::daemon::Daemon;
use crate::topology::Result;

/// The sublinks over time.
pub(super) struct Watch {
    series: Vec<LinkSeries>,
    events: Vec<Event>,
}

impl Watch {
    pub fn new(plan: &Plan) -> Self {
        let links = plan.capacities().into_iter();
        Self {
            series: links
                .map(|link| LinkSeries::new(link.name, link.down_rate_bps, link.up_rate_bps))
                .collect(),
            events: Vec::new(),
        }
    }

    /// Samples what came out of the sublinks, and what began there.
    pub fn look(&mut self, at: Duration, daemon: &mut Daemon, nodes: &Nodes) -> Result<()> {
        let status = daemon.trunk_status()?;
        let sublinks = self.series.iter_mut().zip(&status.sublinks);
        for (i, (series, sublink)) in sublinks.enumerate() {
            let emulated = nodes.delivered(i)?;
            let state = if sublink.usable {
                LinkState::Up
            } else {
                LinkState::Down
            };
            let reading = LinkReading {
                down_bytes: emulated.unwrap_or_else(|| sent(sublink)).bytes,
                opened: sublink.opened,
                state,
                ..LinkReading::default()
            };
            series.push(at.as_secs_f64(), reading);
        }
        Ok(())
    }

    pub fn note(&mut self, event: Event) {
        self.events.push(event);
    }

    pub fn into_evidence(self) -> (Vec<LinkSeries>, Vec<Event>) {
        (self.series, self.events)
    }
}

/// Running counters of all sublinks and of the servers' TCP.
pub(super) struct Sight {
    version: String,
    status: TrunkStatus,
    lost: Tally,
    retransmitted: u64,
}

impl Sight {
    pub fn take(daemon: &mut Daemon, nodes: &Nodes) -> Result<Self> {
        Ok(Self {
            version: daemon.status()?.version,
            status: daemon.trunk_status()?,
            lost: nodes.lost()?,
            retransmitted: nodes.retransmitted()?,
        })
    }

    /// From here to `later`, in bytes of IP packets.
    pub fn counts_until(&self, later: &Self) -> Counts {
        let mut counts = Counts {
            reassignments: later.status.reassignments - self.status.reassignments,
            retransmitted: Tally {
                packets: later.retransmitted - self.retransmitted,
                bytes: 0,
            },
            lost: less(later.lost, self.lost),
            ..Counts::default()
        };
        for (before, after) in self.status.sublinks.iter().zip(&later.status.sublinks) {
            let (offered, overflowed) = (offered(before, after), dropped(before, after));
            counts.offered += offered;
            counts.overflowed += overflowed;
            counts.delivered += less(less(offered, overflowed), waiting(after));
        }
        counts.delivered = less(counts.delivered, counts.lost);
        counts
    }

    /// Per sublink, what a table of counts has no place for.
    pub fn words_until(&self, later: &Self) -> Vec<(String, String)> {
        let sublinks = self.status.sublinks.iter().zip(&later.status.sublinks);
        let mut words = vec![("trunk".to_owned(), format!("anabranch {}", later.version))];
        words.extend(sublinks.enumerate().map(|(i, (before, after))| {
            let (offered, dropped) = (offered(before, after), dropped(before, after));
            let text = format!(
                "{} bytes offered, {} packets of {} bytes dropped, {} bins at the end",
                offered.bytes, dropped.packets, dropped.bytes, after.bins
            );
            (format!("sublink {i}"), text)
        }));
        words
    }
}

/// Given to a sublink by the program.
fn offered(before: &SublinkStatus, after: &SublinkStatus) -> Tally {
    let given = |sublink: &SublinkStatus| ip(sublink.packets, sublink.bytes);
    less(given(after), given(before))
}

/// In its queue.
fn waiting(sublink: &SublinkStatus) -> Tally {
    ip(sublink.queue_packets.into(), sublink.queue_bytes)
}

/// Sent by its queue, with the few frames that ask for the next hop.
fn sent(sublink: &SublinkStatus) -> Tally {
    ip(sublink.sent_packets.into(), sublink.sent_bytes)
}

/// Frames without their Ethernet headers.
fn ip(packets: u64, bytes: u64) -> Tally {
    Tally {
        packets,
        bytes: bytes.saturating_sub(packets * ETHERNET_BYTES),
    }
}

fn less(all: Tally, part: Tally) -> Tally {
    Tally {
        packets: all.packets.saturating_sub(part.packets),
        bytes: all.bytes.saturating_sub(part.bytes),
    }
}

/// The queue counts the packets that found no room, but not their bytes: those are what was given and neither sent nor
/// waits.
fn dropped(before: &SublinkStatus, after: &SublinkStatus) -> Tally {
    let packets = after
        .dropped_packets
        .wrapping_sub(before.dropped_packets)
        .into();
    if packets == 0 {
        return Tally::default();
    }
    let given_bytes = after.bytes.saturating_sub(before.bytes);
    let sent_bytes = after.sent_bytes.saturating_sub(before.sent_bytes);
    ip(
        packets,
        given_bytes.saturating_sub(sent_bytes + after.queue_bytes),
    )
}
