//! Classes of traffic: which flows share a policy and links, as rules say.
//!
//! A [`Rule`] is what it [`Matches`] and the [`Class`] of what it matches. Of the rules, in the order written, the first that
//! matches has the flow; what none matches is of the default class. Up to [`RULES_MAX`] rules make one structure, in which the
//! programs find a flow's class in the same time however many there are ([`compile`], `bpf/policy/rules.h`). What a schedule
//! says is a word beside it ([`active`]): it alone changes as time goes by.
//!
//! [`file`] is what people write; [`coverage`] finds rules that can never match, and those an earlier one hides in part;
//! a [`Trial`] tells of a flow which rule takes it, and why not those before.

mod class;
mod compile;
pub mod coverage;
mod dscp;
pub mod file;
mod matches;
mod own;
mod packets;
mod pieces;
mod schedule;
mod trial;
mod written;

pub use crate::link::Direction;
pub use class::{Class, WhenNone};
pub use compile::{DoesNotFit, active, compile};
pub use dscp::dscp_of;
pub use matches::{BadPrefix, Matches, Origin, Prefix, protocol_name};
pub use own::{OWN_MAX, OwnTraffic};
pub use packets::review_packets;
pub use schedule::{BadSchedule, Moment, Schedule};
pub use trial::{Sample, Trial, Verdict};

use anabranch_policy::abi::MAX_CLASSES;

/// One class is the default.
pub const RULES_MAX: usize = MAX_CLASSES - 1;

/// Which traffic, and what becomes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// What it matches.
    pub matches: Matches,
    /// What it makes of that.
    pub class: Class,
}

impl Rule {
    /// As people call it: the name of its class.
    pub fn name(&self) -> &str {
        &self.class.name
    }
}
