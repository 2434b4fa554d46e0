//! What a scenario with a trunk means to the nodes.

use std::fmt::Write;
use std::time::Duration;

use anabranch_core::catalogue::Facts;
use anabranch_scenario::{
    Buffer, Change, Families, Fault, Impairments, Line, Link, Loss, Network, Place, Queue, Run,
    Spread, Tcp, Trunk,
};

use crate::topology::{LabError, Result, tcp};

/// The trunk device of each node.
pub(super) const TRUNK: &str = "trunk0";
/// Bytes of an Ethernet header: shapers count them, rates and buffers of a scenario do not.
pub(super) const ETHERNET_BYTES: u64 = 14;
/// The IP packet that rates are converted for.
const PACKET_BYTES: u64 = 1500;
/// Of what stands behind a shaper: a full packet takes 12 µs.
const CABLE_BPS: u64 = 1_000_000_000;
const CLIENTS_MAX: u32 = 10_000;
const SERVERS_MAX: u32 = 200;
/// Packets of a buffer given in packets are counted as full ones: the shaper counts bytes.
pub(super) const FRAME_BYTES: u64 = PACKET_BYTES + ETHERNET_BYTES;

/// A sublink's device, the same name at both nodes.
pub(super) fn sublink(index: usize) -> String {
    format!("sub{index}")
}

/// A run that these nodes can carry out.
#[derive(Debug, Clone)]
pub(super) struct Plan<'a> {
    pub trunk: &'a Trunk,
    pub spread: Spread,
    pub tcp: &'a Tcp,
    /// Of hosts and nodes.
    pub families: Families,
    pub seed: u64,
    /// The sublinks as they are cabled: one for the undivided link.
    pub lines: Vec<&'a Line>,
    /// The line from the clients, with the propagation of the round trip over the fastest sublink.
    pub back: Line,
    /// The propagation of the fastest sublink.
    pub least_delay: Duration,
    /// Sublinks differ in delay or lose packets, from the beginning or later: cables do not.
    pub emulated: bool,
}

impl<'a> Plan<'a> {
    pub fn of(run: &'a Run) -> Result<Self> {
        let Network::Trunk(trunk) = &run.scenario.network else {
            return Err(wrong("network", "site", "a trunk is wanted here"));
        };
        let Some(spread) = run.policy.spread() else {
            return Err(wrong(
                "policies",
                run.policy,
                "a way to spread a trunk is wanted here",
            ));
        };
        if !(spread.is_configurable() || spread == Spread::Single) {
            let allowed = "one of the product's; run it in the simulator";
            return Err(wrong("policies", run.policy, allowed));
        }
        let lines = match spread {
            Spread::Single => vec![&trunk.single],
            _ => trunk.sublinks.iter().collect(),
        };
        check_hosts(trunk)?;
        check_lines(trunk, &lines)?;
        let faults = &run.scenario.faults;
        for fault in faults {
            check_fault(fault, lines.len())?;
        }
        let least_delay = least_delay(&lines, faults);
        let plain = |line: &&Line| {
            let is_impaired = line.impairments != Impairments::default();
            line.loss == Loss::None && !is_impaired && line.delay == least_delay
        };
        let stays = |fault: &Fault| {
            matches!(
                fault.change,
                Change::Cut | Change::Restore | Change::Rate(_)
            )
        };
        Ok(Self {
            back: Line {
                delay: trunk.back.delay
                    + least_delay
                    + 2 * (trunk.access.delay + trunk.server_access.delay),
                ..trunk.back.clone()
            },
            least_delay,
            emulated: !(lines.iter().all(plain) && faults.iter().all(stays)),
            trunk,
            spread,
            tcp: &run.scenario.tcp,
            families: run.scenario.families,
            seed: run.seed,
            lines,
        })
    }

    /// What an emulated sublink does to packets that its shaper has let go: their rest of propagation, and losses.
    pub fn after_shaper(&self, line: &Line) -> Line {
        Line {
            rate_bps: CABLE_BPS,
            trace: None,
            delay: line.delay - self.least_delay,
            buffer: Buffer::Unlimited,
            loss: line.loss,
            queue: Queue::DropTail,
            impairments: line.impairments,
        }
    }

    /// The configuration of the near node's trunk.
    pub fn configuration(&self) -> String {
        let control = &self.trunk.control;
        let mut text = format!(
            "[trunk]\ndevice = \"{}\"\nscheme = \"{}\"\ncheck = \"{}ms\"\noverload = \"{}%\"\nshrink = \"{}%\"\nmoved = \"{}%\"\nslot = \"{}ms\"\nslots = {}\nbin = \"{}\"\ntarget = \"{}\"\n",
            TRUNK,
            self.scheme(),
            control.check_period.as_secs_f64() * 1e3,
            control.overload_percent,
            control.shrink_percent,
            control.moved_percent,
            control.slot.as_secs_f64() * 1e3,
            control.slots,
            control.bin,
            control.target
        );
        if let Spread::Flowlet { gap } = self.spread {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "flowlet_gap = \"{}ms\"", gap.as_millis().max(1));
        }
        for (i, line) in self.lines.iter().enumerate() {
            let _ = writeln!(
                text,
                "sublink.s{i} = {{ device = \"{}\", rate = \"{}bit\" }}",
                sublink(i),
                line.rate_bps
            );
        }
        text
    }

    /// The undivided link is a trunk of one sublink, where every scheme does the same.
    fn scheme(&self) -> &'static str {
        match self.spread {
            Spread::Single => Spread::Hash.row().name,
            spread => spread.row().name,
        }
    }

    /// Sublinks by their numbers, as faults name them.
    pub fn capacities(&self) -> Vec<Link> {
        let lines = self.lines.iter().enumerate();
        lines
            .map(|(i, line)| Link {
                name: i.to_string(),
                down_rate_bps: line.rate_bps,
                up_rate_bps: 0,
            })
            .collect()
    }

    /// What is otherwise than in the scenario, and what TCP is told.
    pub fn conditions(&self) -> Vec<(String, String)> {
        let mut words = vec![
            ("spread".to_owned(), self.spread.to_string()),
            (
                "propagation".to_owned(),
                match self.emulated {
                    false => "of the whole round trip on the way back".to_owned(),
                    true => "of the fastest sublink's round trip on the way back".to_owned(),
                },
            ),
            (
                "access lines".to_owned(),
                format!(
                    "clients {} bit/s, servers {} bit/s, shaped where packets enter them",
                    self.trunk.access.rate_bps, self.trunk.server_access.rate_bps
                ),
            ),
        ];
        words.extend(tcp::conditions(self.tcp, self.families));
        let differences = tcp::differences(self.tcp, self.families).into_iter();
        words.extend(differences.map(|words| ("TCP differs".to_owned(), words.to_owned())));
        words
    }
}

/// The shaper's rate for one of IP packets: that of full frames.
pub(super) fn frame_rate_bps(rate_bps: u64) -> u64 {
    rate_bps * FRAME_BYTES / PACKET_BYTES
}

/// The shaper's limit for a buffer.
pub(super) fn frame_limit_bytes(buffer: Buffer) -> u64 {
    let bytes = match buffer {
        Buffer::Bytes(bytes) => bytes * FRAME_BYTES / PACKET_BYTES,
        Buffer::Packets(packets) => packets * FRAME_BYTES,
        // As much as the shaper can count.
        Buffer::Unlimited => u64::from(u32::MAX),
    };
    bytes.clamp(FRAME_BYTES, u32::MAX.into())
}

fn wrong(key: &'static str, value: impl ToString, allowed: &str) -> LabError {
    LabError::Spec {
        key,
        value: value.to_string(),
        allowed: allowed.to_owned(),
    }
}

fn check_hosts(trunk: &Trunk) -> Result<()> {
    if !(1..=CLIENTS_MAX).contains(&trunk.clients) {
        return Err(wrong(
            "trunk.clients",
            trunk.clients,
            "1 to 10000 in the laboratory",
        ));
    }
    if !(1..=SERVERS_MAX).contains(&trunk.servers) {
        return Err(wrong(
            "trunk.servers",
            trunk.servers,
            "1 to 200 in the laboratory",
        ));
    }
    Ok(())
}

/// Of the sublinks, from the beginning or after a fault.
fn least_delay(lines: &[&Line], faults: &[Fault]) -> Duration {
    let later = faults.iter().filter_map(|fault| match fault.change {
        Change::Delay(delay) => Some(delay),
        _ => None,
    });
    let delays = lines.iter().map(|line| line.delay).chain(later);
    delays.min().unwrap_or_default()
}

fn check_lines(trunk: &Trunk, lines: &[&Line]) -> Result<()> {
    if lines.iter().any(|line| line.queue != Queue::DropTail) {
        let allowed = "the laboratory has drop-tail queues; run it in the simulator";
        return Err(wrong("trunk.queue", "managed", allowed));
    }
    let access = [
        ("trunk.access", &trunk.access),
        ("trunk.server_access", &trunk.server_access),
    ];
    for (key, line) in access {
        if line.loss != Loss::None || line.queue != Queue::DropTail {
            let allowed =
                "access lines of the laboratory lose by overflow only; run it in the simulator";
            return Err(wrong(key, "lossy", allowed));
        }
    }
    Ok(())
}

fn check_fault(fault: &Fault, sublinks: usize) -> Result<()> {
    if sublink_of(fault).is_none_or(|i| i >= sublinks) {
        return Err(wrong(
            "faults.link",
            &fault.link,
            "a sublink by its number, from 0",
        ));
    }
    if fault.place != Place::LastMile {
        return Err(wrong("faults.place", "beyond", "a trunk has one hop"));
    }
    Ok(())
}

/// The sublink that a fault concerns.
pub(super) fn sublink_of(fault: &Fault) -> Option<usize> {
    fault.link.parse().ok()
}
