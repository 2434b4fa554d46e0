//! What the policies of links say of themselves, all of it from their parts.

use std::time::Duration;

use anabranch_policy::Dispatch;

use super::{Cost, Facts, Needs, Parameter, Parts, Sent, TargetKind, in_ms, in_s};
use crate::algorithm::{Algorithm, Retry, Weighting};
use crate::link::RateNeed;
use crate::measure::{self, Distance};
use crate::multilink::Spread;

/// A segment without data or options, over IPv4.
const SEGMENT_BYTES: u32 = 40;

/// [`Policy::Packet`](super::Policy::Packet): what DRR does over sublinks, over the links of a site.
pub(super) struct PacketByPacket;

impl Facts for PacketByPacket {
    fn target(&self) -> TargetKind {
        TargetKind::Link
    }

    fn parts(&self) -> Parts {
        Spread::Drr.parts()
    }

    fn cost(&self) -> Cost {
        Spread::Drr.cost()
    }

    fn suits(&self) -> Vec<&'static str> {
        vec![
            "a site whose own addresses all providers route to it, and whose hosts bear packets out of order",
        ]
    }

    fn is_configurable(&self) -> bool {
        false
    }

    fn needs(&self) -> Needs {
        Needs {
            no_nat: true,
            ..Needs::NOTHING
        }
    }
}

impl Facts for Algorithm {
    fn target(&self) -> TargetKind {
        TargetKind::Link
    }

    fn parts(&self) -> Parts {
        Parts {
            measure: self.measure.name,
            dispatch: self.dispatch_word(),
            granularity: self.granularity_word(),
        }
    }

    fn cost(&self) -> Cost {
        Cost {
            state: self.state(),
            probes: self.probes(),
        }
    }

    fn suits(&self) -> Vec<&'static str> {
        let mut suits = vec![self.suits_by_reach()];
        if self.measure.is_periodic() && self.dispatch == Dispatch::Best {
            suits.push("few flows at a time: all that open between two measurements take one link");
        }
        if self.measure.is_periodic() && self.dispatch == Dispatch::Weighted {
            suits.push("many flows at a time: they are spread between two measurements, too");
        }
        if self.weighting == Weighting::Rate {
            suits.push("links of unequal rates");
        }
        if self.by_loss {
            suits.push("links that lose more than a packet of a hundred, each another part");
        }
        if self.retry == Retry::Elsewhere {
            suits.push(
                "links that fail beyond what availability sees: a SYN sent again goes elsewhere",
            );
        }
        suits
    }

    fn asks_rules(&self) -> bool {
        true
    }

    fn tuple(&self) -> Option<String> {
        Some(Algorithm::tuple(self))
    }

    fn is_by_rate(&self) -> bool {
        self.weighting == Weighting::Rate
    }

    fn measured(&self) -> &'static str {
        match self.distance() {
            _ if self.dispatch == Dispatch::Soonest => {
                "what links were seen to carry, and how long SYNs wait for their answers"
            }
            Distance::Destination if self.by_loss => {
                "how long SYNs wait for their answers, and how many have none"
            }
            Distance::Destination if self.races_per_s.is_some() => {
                "which link's SYN is answered first"
            }
            Distance::Destination if self.probes_per_s.is_some() => {
                "which link's probe is answered first"
            }
            Distance::Destination if self.active.is_some() => {
                "how long probes wait for their answers"
            }
            Distance::Destination => "how long SYNs wait for their answers",
            Distance::Local | Distance::LastMile | Distance::Node => self.measure.meaning,
        }
    }

    fn distance(&self) -> Distance {
        let looks_far = [self.races_per_s, self.probes_per_s]
            .iter()
            .any(Option::is_some);
        match looks_far || self.lifetime().is_some() {
            true => Distance::Destination,
            false => self.measure.distance,
        }
    }

    fn period(&self) -> Option<Duration> {
        let active = self.active.map(|active| active.period());
        self.period.or(active)
    }

    fn parameters(&self) -> Vec<Parameter> {
        let period = self.period.map(|period| Parameter {
            name: "period",
            default: in_ms(period),
            meaning: "between two measurements",
        });
        let race = self.races_per_s.map(|races| Parameter {
            name: "race",
            default: format!("{races}/s"),
            meaning: "connections at most whose SYN takes all links",
        });
        let probe = self.probes_per_s.map(|probes| Parameter {
            name: "probe",
            default: format!("{probes}/s"),
            meaning: "connections at most that wait for probes of their destination",
        });
        let passive = self.passive.map(|lifetime| Parameter {
            name: "passive",
            default: in_s(lifetime),
            meaning: "for which a response time that a flow has met is known",
        });
        let active = self.active.map(|active| Parameter {
            name: "active",
            default: in_s(active.period()),
            meaning: "in which each listed destination is probed once over each link",
        });
        let listed = self.active.map(|active| Parameter {
            name: "listed",
            default: active.listed.to_string(),
            meaning: "destinations at most that are probed",
        });
        let is_soonest = self.dispatch == Dispatch::Soonest;
        let rounds = is_soonest.then(|| Parameter {
            name: "rounds",
            default: self.rounds.to_string(),
            meaning: "response times that a flow waits for whatever its link carries",
        });
        let all = [period, race, probe, passive, active, listed, rounds];
        all.into_iter().flatten().collect()
    }

    fn needs(&self) -> Needs {
        Needs {
            rates: self.needs_rate(),
            node: self.needs_node(),
            ..Needs::NOTHING
        }
    }

    fn sent(&self) -> Sent {
        if self.races_per_s.is_some() {
            let bytes =
                format!("of a SYN what the host's has, of a RST {SEGMENT_BYTES}; IPv6 20 more");
            return Sent::new(bytes, "none");
        }
        if self.probes_per_s.is_some() {
            let bytes = format!("{SEGMENT_BYTES} a segment, as many in answer; IPv6 20 more");
            return Sent::new(bytes, "none");
        }
        if let Some(active) = self.active {
            let a_second = active.listed * SEGMENT_BYTES / active.period_s;
            let bytes = format!(
                "{SEGMENT_BYTES} a segment: {a_second} a second over each link, as many in answer; IPv6 20 more"
            );
            return Sent::new(bytes, "one, while a segment leaves");
        }
        match self.measure.distance {
            Distance::Node => Sent::new(
                "of a question and its answer 56 (ICMP), 144 (DNS) or 212 (TCP); IPv6 20 more a packet",
                "one for each link, while an answer is out",
            ),
            Distance::Local | Distance::LastMile | Distance::Destination => Sent::nothing(),
        }
    }
}

impl Algorithm {
    fn state(&self) -> &'static str {
        if self.dispatch == Dispatch::Turns {
            return "one counter for all links";
        }
        if self.probes_per_s.is_some() {
            return "SYNs that wait, at most 4096 of 180 bytes, of all classes";
        }
        match self.lifetime() {
            Some(_) => "460 bytes for each of `limits.prefixes`, of all classes",
            None => self.measure.state,
        }
    }

    fn probes(&self) -> &'static str {
        match (self.races_per_s, self.passive) {
            (Some(_), Some(_)) => {
                "for a connection to each prefix in a lifetime a SYN and a RST over each other link"
            }
            (Some(_), None) => "for each connection a SYN and a RST over each other link",
            _ if self.probes_per_s.is_some() => "for each connection a segment over each link",
            _ if self.active.is_some() => {
                "in a period a segment over each link to each listed destination"
            }
            _ => self.measure.probes(),
        }
    }

    fn suits_by_reach(&self) -> &'static str {
        match self.distance() {
            Distance::Destination if self.dispatch == Dispatch::Soonest => {
                "links whose rates nobody knows, with destinations near over some and far over others"
            }
            Distance::Destination if self.races_per_s.is_some() => {
                "destinations that are nearer over some links, whoever they are; servers see SYNs that are reset"
            }
            Distance::Destination if self.probes_per_s.is_some() => {
                "destinations that are nearer over some links, where connections may wait a round trip more"
            }
            Distance::Destination if self.active.is_some() => {
                "destinations that are nearer over some links, where a list of them takes most connections"
            }
            Distance::Destination => {
                "destinations that are nearer over some links and are asked again and again; nothing is sent"
            }
            Distance::Node => {
                "links that are slow before the fixed node; what is beyond it is not seen"
            }
            Distance::LastMile if self.measure.rates != RateNeed::None => {
                "links whose declared rates are what they carry, and that are the bottleneck; what is beyond them is not seen"
            }
            Distance::LastMile => "links that are the bottleneck; what is beyond them is not seen",
            Distance::Local if *self.measure == measure::NONE => {
                "links that are alike, and many small flows"
            }
            Distance::Local if self.measure.counts_live_flows() => {
                "links whose rates nobody knows: on a slow one flows stay open, and so it gets fewer"
            }
            Distance::Local => "links that are alike, and flows that are, too",
        }
    }
}
