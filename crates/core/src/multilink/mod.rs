//! A trunk: one logical link over parallel sublinks, balanced by moving bins (Jo, Kim, Chao, Merat 2002).
//!
//! A flow must not be reordered. So its hash selects one of 1024 bins, and the data path looks up the bin's sublink in a table
//! ([`spread::by_bin`](anabranch_policy::spread::by_bin)) and counts the bin's bytes. Every 25 ms the [`Controller`] reads the
//! sublinks' queues. A sublink is *overloaded* if its queue exceeds half its buffer and does not shrink: a queue that is shorter
//! than at the last check shows that the last move already has an effect. Bins move from an overloaded sublink to another one,
//! whose queue fills less of its buffer:
//!
//! | scheme | bins that move | to |
//! |---|---|---|
//! | DH | a tenth of the sublink's bins, drawn at random | the lightest sublink, at random among equally light ones; or any lighter one at random, as [`Recipient`] says |
//! | DHFV | the bin that carried most in the last 100 ms, or as [`BinChoice`] says | the lightest sublink; of equally light ones that whose bins carried least in the last 100 ms |
//!
//! Each move may reorder the flows of its bin once. DH does not know which bin causes the load, and moves many; DHFV knows it.
//!
//! The controller reads no clock and accesses no queue. [`Controller::wakeup`] says what it needs and when. The driver calls
//! [`record_volumes`](Controller::record_volumes) and [`check_queues`](Controller::check_queues), and writes the
//! [`Move`]s into the data path's table. The controller never moves a bin to a sublink that is unusable, and leaves the bins of
//! an unusable sublink where they are: the data path uses other sublinks for them until it returns.
//!
//! [`Drr`] is the scheme for comparison: packet by packet, as even as possible, and without regard to order.

mod bins;
mod controller;
mod drr;
mod overload;
mod spread;
mod volumes;

#[cfg(test)]
mod fluid;
#[cfg(test)]
pub(crate) mod tests;

use std::fmt;
use std::time::Duration;

use anabranch_policy::abi::{BINS, MAX_LINKS};
use serde::{Deserialize, Serialize};

pub use bins::Bins;
pub use controller::{Controller, Wakeup};
pub use drr::Drr;
pub use spread::{FLOWLET_GAP, Spread};
pub use volumes::Counters;

/// A sublink by its place in the trunk, which is its number in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SublinkId(pub u16);

impl SublinkId {
    /// For tables with a place for each sublink.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for SublinkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sublink {}", self.0)
    }
}

/// A bin of a trunk, below [`BINS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BinId(u16);

impl BinId {
    /// The bin of a flow's hash.
    pub fn of_hash(hash: u32) -> Self {
        BinId(anabranch_policy::spread::bin(hash))
    }

    /// For tables with a place for each bin.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    fn all() -> impl Iterator<Item = BinId> {
        (0..BINS as u16).map(BinId)
    }
}

/// A bin's new place, to be written into the packet path's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// Which.
    pub bin: BinId,
    /// Where it was.
    pub from: SublinkId,
    /// Where its packets go from here on.
    pub to: SublinkId,
}

/// A sublink as a check finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Bytes that wait.
    pub length_bytes: u64,
    /// Bytes that can wait. Zero counts as one.
    pub buffer_bytes: u64,
    /// Whether bins may move to it.
    pub usable: bool,
}

/// Which sublink takes the bins that DH moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Recipient {
    /// The one whose queue fills the least part of its buffer.
    #[default]
    Lightest,
    /// Any whose queue fills less of its buffer than that of the overloaded one, each as likely: "a lighter traffic
    /// loaded sublink" (Jo 2002, II.A.2).
    Lighter,
}

impl fmt::Display for Recipient {
    /// As it is written in a file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Recipient::Lightest => "lightest",
            Recipient::Lighter => "lighter",
        })
    }
}

/// Which bin of an overloaded sublink DHFV moves, of those that carried anything of late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum BinChoice {
    /// The one that carried most, "Largest Flow First" (Jo 2002, II.A.3).
    #[default]
    Largest,
    /// The one that carried most but for the largest; none if there is no other.
    Second,
    /// Any, each as likely.
    Random,
    /// The one that carried least.
    Smallest,
}

impl fmt::Display for BinChoice {
    /// As it is written in a file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BinChoice::Largest => "largest",
            BinChoice::Second => "second",
            BinChoice::Random => "random",
            BinChoice::Smallest => "smallest",
        })
    }
}

/// The numbers of Jo 2002, section III.C, are the default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Between two looks at the queues.
    pub check_period: Duration,
    /// A queue above this part of its buffer is overloaded, 0 to 100.
    pub overload_percent: u8,
    /// A queue shrinks if it is shorter than at the last check, by this part of its buffer at least, 0 to 100.
    pub shrink_percent: u8,
    /// DH moves this part of an overloaded sublink's bins, rounded up, 1 to 100.
    pub moved_percent: u8,
    /// DHFV counts the bytes of every bin over this long at a time.
    pub slot: Duration,
    /// DHFV judges by this many slots, at least one.
    pub slots: usize,
    /// What DHFV moves.
    pub bin: BinChoice,
    /// Where DH's bins go.
    pub target: Recipient,
}

impl Default for Parameters {
    fn default() -> Self {
        Parameters {
            check_period: Duration::from_millis(25),
            overload_percent: 50,
            shrink_percent: 0,
            moved_percent: 10,
            slot: Duration::from_millis(10),
            slots: 10,
            bin: BinChoice::Largest,
            target: Recipient::Lightest,
        }
    }
}

impl Parameters {
    fn check(&self) -> Result<(), TrunkError> {
        let wrong = |name, allowed| Err(TrunkError::Parameter { name, allowed });
        if self.check_period.is_zero() {
            return wrong("check_period", "more than zero");
        }
        if self.overload_percent > 100 {
            return wrong("overload_percent", "0 to 100");
        }
        if self.shrink_percent > 100 {
            return wrong("shrink_percent", "0 to 100");
        }
        if !(1..=100).contains(&self.moved_percent) {
            return wrong("moved_percent", "1 to 100");
        }
        if self.slot.is_zero() {
            return wrong("slot", "more than zero");
        }
        if self.slots == 0 {
            return wrong("slots", "at least 1");
        }
        Ok(())
    }
}

/// What cannot be a trunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum TrunkError {
    #[error("a trunk has 1 to {MAX_LINKS} sublinks, not {0}")]
    Sublinks(usize),
    #[error("{0} has a quantum of no bytes: give it at least the length of a packet")]
    Quantum(SublinkId),
    #[error("parameter `{name}` of the trunk is out of range, allowed: {allowed}")]
    Parameter {
        name: &'static str,
        allowed: &'static str,
    },
}

/// What a turn of the slowest sublink is worth: an Ethernet frame of a full packet, without its FCS, which is what the
/// program at a device's egress counts. At least a packet, so that no visit is in vain (Shreedhar and Varghese 1995); no
/// more, so that the shares are as fine as that allows.
pub const QUANTUM_BYTES: u32 = 1514;

/// Quanta of [`Drr`] in the ratio of the sublinks' rates; that of the slowest is [`QUANTUM_BYTES`].
pub fn quanta(rates_bps: &[u64]) -> Vec<u32> {
    let slowest_bps = rates_bps.iter().copied().min().unwrap_or(1).max(1);
    let quantum = |&rate_bps: &u64| {
        let bytes = u128::from(QUANTUM_BYTES) * u128::from(rate_bps) / u128::from(slowest_bps);
        u32::try_from(bytes).unwrap_or(u32::MAX)
    };
    rates_bps.iter().map(quantum).collect()
}

/// Weights of rendezvous hashing in the ratio of the sublinks' rates.
pub fn weights(rates_bps: &[u64]) -> Vec<u32> {
    let fastest_bps = rates_bps.iter().copied().max().unwrap_or(1);
    let weight = |&rate_bps: &u64| crate::weights::of_more(rate_bps, fastest_bps);
    rates_bps.iter().map(weight).collect()
}

/// The number of a trunk's sublinks, if it can be one.
fn sublinks(count: usize) -> Result<u16, TrunkError> {
    if (1..=MAX_LINKS).contains(&count) {
        Ok(count as u16)
    } else {
        Err(TrunkError::Sublinks(count))
    }
}
