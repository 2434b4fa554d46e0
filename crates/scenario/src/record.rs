//! What a world hands back. Figures, tables and pages are derived from it.

use anabranch_line::Tally;
use anabranch_workload::Transfer;
use serde::{Deserialize, Serialize};

use crate::stats::ratio;
use crate::{Direction, Event, LinkSeries};

/// Where a run took place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum World {
    /// Virtual time.
    Sim,
    /// Real kernels.
    Lab,
}

impl World {
    /// Both, the simulator first.
    pub const ALL: [World; 2] = [World::Sim, World::Lab];

    /// As people write it.
    pub fn name(self) -> &'static str {
        match self {
            World::Sim => "sim",
            World::Lab => "lab",
        }
    }

    /// In a sentence.
    pub fn place(self) -> &'static str {
        match self {
            World::Sim => "in the simulator",
            World::Lab => "in the laboratory",
        }
    }

    /// What the names of its results end with: the laboratory's stand beside the simulator's, which cost less to have
    /// again.
    pub fn suffix(self) -> &'static str {
        match self {
            World::Sim => "",
            World::Lab => "-lab",
        }
    }
}

/// A link as capacity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// As in the scenario.
    pub name: String,
    /// Towards the users, or in the trunk's direction.
    pub down_rate_bps: u64,
    /// From the users; 0 for a sublink of a trunk, which goes one way.
    pub up_rate_bps: u64,
}

impl Link {
    /// In one direction.
    pub fn rate_bps(&self, direction: Direction) -> u64 {
        match direction {
            Direction::Down => self.down_rate_bps,
            Direction::Up => self.up_rate_bps,
        }
    }
}

/// The evidence of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Where the run took place.
    pub world: World,
    /// In the order of their ids.
    pub transfers: Vec<Transfer>,
    /// In the order of `links`.
    pub series: Vec<LinkSeries>,
    /// In the order of time.
    pub events: Vec<Event>,
    /// As capacity, in the order of the scenario.
    pub links: Vec<Link>,
    /// What the world counted beside the transfers.
    pub counts: Counts,
    /// What one needs to know to repeat or to doubt the run: versions, kernel, congestion control, lateness, trajectory
    /// hash…
    pub conditions: Vec<(String, String)>,
    /// Why the run is invalid, one sentence each; empty if it is valid.
    pub problems: Vec<String>,
}

impl Record {
    /// The first part in which the evidence differs, if any.
    pub fn difference(&self, other: &Record) -> Option<&'static str> {
        let parts = [
            ("transfers", self.transfers == other.transfers),
            ("series", self.series == other.series),
            ("events", self.events == other.events),
            ("counts", self.counts == other.counts),
            ("conditions", self.conditions == other.conditions),
        ];
        let differs = parts.iter().find(|(_, same)| !same);
        differs.map(|(part, _)| *part)
    }
}

/// What a run counted that no transfer tells, over all links and both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counts {
    /// Sent by the gateway to learn of its links.
    pub probes: Tally,
    /// Those of them that the algorithm measures with; of a race, in the simulator, what goes over links that do not win. The others,
    /// which every algorithm has, ask whether links work.
    #[serde(default)]
    pub measuring: Tally,
    /// Offered to the links by hosts, retransmissions included.
    pub offered: Tally,
    /// Came out of the links.
    pub delivered: Tally,
    /// Found no room in a buffer.
    pub overflowed: Tally,
    /// Dropped by a queue's management before its buffer was full.
    pub early: Tally,
    /// Marked instead (RFC 3168), and sent on.
    #[serde(default)]
    pub marked: Tally,
    /// Lost by a line.
    pub lost: Tally,
    /// Swallowed by a cut line.
    pub cut: Tally,
    /// Data segments that TCP sent again. In the laboratory these are all segments that the servers sent again, of which
    /// the kernel does not count the bytes: they are 0.
    pub retransmitted: Tally,
    /// Data segments that arrived after one with a higher number, neither lost before nor sent again.
    pub reordered: u64,
    /// Choices that moved a flow or a bin to another link.
    pub reassignments: u64,
}

impl Counts {
    /// Packets that did not arrive, whatever became of them.
    pub fn dropped(&self) -> Tally {
        let mut dropped = Tally::default();
        for cause in [self.overflowed, self.early, self.lost, self.cut] {
            dropped += cause;
        }
        dropped
    }

    /// Share of offered packets that did not arrive.
    pub fn loss_ratio(&self) -> f64 {
        ratio(self.dropped().packets as f64, self.offered.packets as f64)
    }
}
