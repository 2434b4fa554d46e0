//! The end of the flows of one family that classes have on a link, in slices as a sweep is.
//!
//! The tables are read a thousand entries at a time; those that are the link's are named to the program `end_link`, which
//! alone knows what has become of them since. Between two slices the hosts of TCP flows are told.

use std::path::Path;
use std::time::Duration;

use anabranch_core::{ClassId, ClassSet, Ended, Family, LinkId};
use anabranch_policy::abi::{self, FlowKey};

use crate::{
    Error,
    object::Object,
    reset::Resets,
    walk::{FlowTables, Walk},
};

/// Which flows of a link end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// Every one.
    All,
    /// Those that are not TCP and have had no packet for so long: nobody notices that they move.
    Udp {
        /// Without a packet of either direction.
        idle: Duration,
    },
}

impl Which {
    fn contains(self, key: &FlowKey) -> bool {
        self == Which::All || i32::from(key.proto) != libc::IPPROTO_TCP
    }

    /// Flows with a packet since then stay.
    fn seen_before_ns(self, now_ns: u64) -> u64 {
        match self {
            Which::Udp { idle } if !idle.is_zero() => now_ns.saturating_sub(idle.as_nanos() as u64),
            _ => u64::MAX,
        }
    }
}

/// Ends flows, one link at a time.
pub struct Ending {
    tables: FlowTables,
    program: Walk<abi::Ending>,
    resets: Resets,
}

impl Ending {
    /// Over the tables pinned in `pins`, with the program of a loaded object.
    pub fn open(object: &mut Object, pins: &Path) -> Result<Self, Error> {
        Ok(Ending {
            tables: FlowTables::open(pins)?,
            program: Walk::open(
                object.sweeper("end_link")?,
                pins,
                "end_link",
                "ending",
                "doomed",
            )?,
            resets: Resets::open(pins)?,
        })
    }

    /// Those opened before a time of CLOCK_MONOTONIC. By it those are told that were idle, too.
    pub fn end_flows(
        &mut self,
        link: LinkId,
        family: Family,
        classes: ClassSet,
        which: Which,
        opened_before: Duration,
    ) -> Result<Ended, Error> {
        let now_ns = opened_before.as_nanos() as u64;
        let (program, resets) = (&mut self.program, &mut self.resets);
        let mut round = Round {
            arguments: abi::Ending {
                opened_before_ns: now_ns,
                seen_before_ns: which.seen_before_ns(now_ns),
                classes: classes.bits(),
                link: link.0.into(),
                families: family.bit(),
                ..Default::default()
            },
            doomed: Vec::with_capacity(abi::VISIT_MAX),
            tcp: 0,
        };
        self.tables.for_each(|key, flow| {
            let of_link = key.side == abi::SIDE_LAN && u16::from(flow.link) == link.0;
            let of_family = key.local.family() == family;
            if of_link && of_family && classes.contains(ClassId(flow.class)) && which.contains(&key)
            {
                round.doomed.push(key);
            }
            if round.doomed.len() < abi::VISIT_MAX {
                return Ok(());
            }
            round.end(program, resets)
        })?;
        round.end(program, resets)?;
        Ok(Ended {
            tcp: round.tcp,
            udp: round.arguments.ended.saturating_sub(round.tcp),
        })
    }
}

/// A walk under way.
struct Round {
    arguments: abi::Ending,
    /// What has been gathered.
    doomed: Vec<FlowKey>,
    /// TCP flows that ended, whether or not their hosts could be told.
    tcp: u64,
}

impl Round {
    fn end(&mut self, program: &mut Walk<abi::Ending>, resets: &mut Resets) -> Result<(), Error> {
        loop {
            self.arguments.count = self.doomed.len() as u32;
            self.arguments.unfinished = 0;
            self.arguments = program.run(&self.doomed, self.arguments)?;
            self.tcp += resets.send_all()?;
            if self.arguments.unfinished == 0 {
                self.doomed.clear();
                return Ok(());
            }
        }
    }
}
