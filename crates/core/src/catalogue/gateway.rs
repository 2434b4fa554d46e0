//! The facts about policies of links, which follow from their parts.

use std::time::Duration;

use anabranch_policy::Dispatch;

use super::{Cost, Facts, Needs, Parameter, Parts, Sent, TargetKind, in_ms, in_s};
use crate::algorithm::{Algorithm, Learning, Racing, Retry, Weighting};
use crate::link::RateNeed;
use crate::measure::{self, Distance};
use crate::multilink::Spread;

/// Length of a segment without data or options, over IPv4.
const SEGMENT_BYTES: u32 = 40;

/// [`Policy::Packet`](super::Policy::Packet): deficit round robin over the links of a site.
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
        if self.learning.is_by_loss() {
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

    fn divided_by(&self) -> Option<&'static str> {
        (self.weighting == Weighting::Rate).then_some("rate")
    }

    fn measured(&self) -> &'static str {
        match (self.racing, self.learning) {
            _ if self.dispatch == Dispatch::Soonest => {
                "what links were seen to carry, and how long SYNs wait for their answers"
            }
            (_, Learning::Passive { by_loss: true, .. }) => {
                "how long SYNs wait for their answers, and how many have none"
            }
            (Racing::Syns { .. }, _) => "which link's SYN is answered first",
            (Racing::Probes { .. }, _) => "which link's probe is answered first",
            (Racing::None, Learning::Active(_)) => "how long probes wait for their answers",
            (Racing::None, Learning::Passive { .. }) => "how long SYNs wait for their answers",
            (Racing::None, Learning::None) => self.measure.meaning,
        }
    }

    fn distance(&self) -> Distance {
        match (self.racing, self.learning) {
            (Racing::None, Learning::None) => self.measure.distance,
            _ => Distance::Destination,
        }
    }

    fn period(&self) -> Option<Duration> {
        let active = self.learning.active();
        self.period.or(active.map(|active| active.period()))
    }

    fn parameters(&self) -> Vec<Parameter> {
        let period = self.period.map(|period| Parameter {
            name: "period",
            default: in_ms(period),
            meaning: "between two measurements",
        });
        let racing = match self.racing {
            Racing::None => None,
            Racing::Syns { per_s } => Some(Parameter {
                name: "race",
                default: format!("{per_s}/s"),
                meaning: "connections at most whose SYN takes all links",
            }),
            Racing::Probes { per_s } => Some(Parameter {
                name: "probe",
                default: format!("{per_s}/s"),
                meaning: "connections at most that wait for probes of their destination",
            }),
        };
        let learning = match self.learning {
            Learning::None => vec![],
            Learning::Passive { lifetime, .. } => vec![Parameter {
                name: "passive",
                default: in_s(lifetime),
                meaning: "for which a response time that a flow has met is known",
            }],
            Learning::Active(active) => vec![
                Parameter {
                    name: "active",
                    default: in_s(active.period()),
                    meaning: "in which each listed destination is probed once over each link",
                },
                Parameter {
                    name: "listed",
                    default: active.listed.to_string(),
                    meaning: "destinations at most that are probed",
                },
            ],
        };
        let is_soonest = self.dispatch == Dispatch::Soonest;
        let rounds = is_soonest.then(|| Parameter {
            name: "rounds",
            default: self.rounds.to_string(),
            meaning: "response times that a flow waits for whatever its link carries",
        });
        let all = period.into_iter().chain(racing).chain(learning);
        all.chain(rounds).collect()
    }

    fn needs(&self) -> Needs {
        Needs {
            rates: self.needs_rate(),
            node: self.needs_node(),
            ..Needs::NOTHING
        }
    }

    fn sent(&self) -> Sent {
        match (self.racing, self.learning, self.measure.distance) {
            (Racing::Syns { .. }, ..) => Sent::new(
                format!("of a SYN what the host's has, of a RST {SEGMENT_BYTES}; IPv6 20 more"),
                "none",
            ),
            (Racing::Probes { .. }, ..) => Sent::new(
                format!("{SEGMENT_BYTES} a segment, as many in answer; IPv6 20 more"),
                "none",
            ),
            (Racing::None, Learning::Active(active), _) => {
                let a_second = active.listed * SEGMENT_BYTES / active.period_s;
                let bytes = format!(
                    "{SEGMENT_BYTES} a segment: {a_second} a second over each link, as many in answer; IPv6 20 more"
                );
                Sent::new(bytes, "one, while a segment leaves")
            }
            (.., Distance::Node) => Sent::new(
                "of a question and its answer 56 (ICMP), 144 (DNS) or 212 (TCP); IPv6 20 more a packet",
                "one for each link, while an answer is out",
            ),
            _ => Sent::nothing(),
        }
    }
}

impl Algorithm {
    fn state(&self) -> &'static str {
        if self.dispatch == Dispatch::Turns {
            return "one counter for all links";
        }
        match (self.racing, self.learning) {
            (Racing::Probes { .. }, _) => {
                "SYNs that wait, at most 4096 of 180 bytes, of all classes"
            }
            (_, Learning::None) => self.measure.state,
            (_, Learning::Passive { .. } | Learning::Active(_)) => {
                "460 bytes for each of `limits.prefixes`, of all classes"
            }
        }
    }

    fn probes(&self) -> &'static str {
        match (self.racing, self.learning) {
            (Racing::Syns { .. }, Learning::Passive { .. }) => {
                "for a connection to each prefix in a lifetime a SYN and a RST over each other link"
            }
            (Racing::Syns { .. }, _) => "for each connection a SYN and a RST over each other link",
            (Racing::Probes { .. }, _) => "for each connection a segment over each link",
            (Racing::None, Learning::Active(_)) => {
                "in a period a segment over each link to each listed destination"
            }
            (Racing::None, _) => self.measure.probes(),
        }
    }

    fn suits_by_reach(&self) -> &'static str {
        match (self.racing, self.learning, self.measure.distance) {
            _ if self.dispatch == Dispatch::Soonest && self.distance() == Distance::Destination => {
                "links whose rates nobody knows, with destinations near over some and far over others"
            }
            (Racing::Syns { .. }, ..) => {
                "destinations that are nearer over some links, whoever they are; servers see SYNs that are reset"
            }
            (Racing::Probes { .. }, ..) => {
                "destinations that are nearer over some links, where connections may wait a round trip more"
            }
            (_, Learning::Active(_), _) => {
                "destinations that are nearer over some links, where a list of them takes most connections"
            }
            (_, Learning::Passive { .. }, _) | (.., Distance::Destination) => {
                "destinations that are nearer over some links and are asked again and again; nothing is sent"
            }
            (.., Distance::Node) => {
                "links that are slow before the fixed node; what is beyond it is not seen"
            }
            (.., Distance::LastMile) if self.measure.rates != RateNeed::None => {
                "links whose declared rates are what they carry, and that are the bottleneck; what is beyond them is not seen"
            }
            (.., Distance::LastMile) => {
                "links that are the bottleneck; what is beyond them is not seen"
            }
            (.., Distance::Local) if *self.measure == measure::NONE => {
                "links that are alike, and many small flows"
            }
            (.., Distance::Local) if self.measure.counts_live_flows() => {
                "links whose rates nobody knows: on a slow one flows stay open, and so it gets fewer"
            }
            (.., Distance::Local) => "links that are alike, and flows that are, too",
        }
    }
}
