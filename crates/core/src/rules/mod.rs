//! Rules, which assign flows to classes of traffic with a policy and links of their own.
//!
//! A [`Rule`] has what it [`Matches`] and the [`Class`] of such flows. A flow belongs to the first rule that matches, in the order
//! of the file; if none does, to the default class. Up to [`RULES_MAX`] rules are compiled into one structure, in which the
//! programs find a flow's class in constant time ([`compile`], `bpf/policy/rules.h`). The schedules are one word beside it
//! ([`active`]), the only part that changes with time.
//!
//! [`file`] reads rules from files; [`coverage`] finds rules that can never match, and those that an earlier one hides in part;
//! a [`Trial`] shows which rule takes a flow, and why those before it do not.

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

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// What it matches.
    pub matches: Matches,
    /// How such traffic is handled.
    pub class: Class,
}

impl Rule {
    /// Its name: that of its class.
    pub fn name(&self) -> &str {
        &self.class.name
    }
}
