//! An own policy in a class: the views that it gets, and its last weights.

use std::time::Duration;

use anabranch_policy::PerFamily;

use super::links::{Link, Links};
use crate::algorithm::Algorithm;
use crate::bandwidth::AvailableBandwidth;
use crate::link::{LinkCounters, LinkId, LinkSet};
use crate::measure::Taken;
use crate::own::{LinkView, OwnPolicy, PathView};
use crate::time::Time;

#[derive(Debug)]
pub(super) struct Own {
    policy: Box<dyn OwnPolicy>,
    /// When the counters were last compared; none before there are any.
    counted: Option<Time>,
    periods: Vec<Period>,
    weights: Vec<u64>,
}

/// What one link did in a period.
#[derive(Clone, Copy, Debug, Default)]
struct Period {
    /// Counters at its end.
    counters: LinkCounters,
    up_bps: u64,
    down_bps: u64,
    dispatched: u64,
}

impl Own {
    /// The own policy of an algorithm, if it has one.
    pub(super) fn of(algorithm: &Algorithm, links: usize) -> Option<Own> {
        let Taken::ByPolicy(make) = algorithm.measure.taken else {
            return None;
        };
        Some(Own {
            policy: make(),
            counted: None,
            periods: vec![Period::default(); links],
            weights: vec![0; links],
        })
    }

    /// Ends a period.
    pub(super) fn count(&mut self, now: Time, links: &Links) {
        let before = self.counted.replace(now);
        let elapsed = before.map_or(Duration::ZERO, |before| now.since(before));
        for ((_, link), period) in links.iter().zip(&mut self.periods) {
            *period = period.next(link.counters, elapsed);
        }
    }

    pub(super) fn ask(&mut self, now: Time, links: &Links, takes_flows: LinkSet) {
        if self.counted.is_none() && links.counted.is_some() {
            self.count(now, links);
        }
        let all = links.iter().zip(&self.periods);
        let views: Vec<_> = all
            .map(|((id, link), period)| period.view(id, link, takes_flows.contains(id)))
            .collect();
        self.weights = self.policy.weigh(now, &views);
        self.weights.resize(views.len(), 0);
    }

    /// Its last weights, in the order of the links' ids.
    pub(super) fn weights(&self) -> &[u64] {
        &self.weights
    }

    /// Those of `usable` that have a weight, or all of them if none has.
    pub(super) fn among(&self, usable: LinkSet) -> LinkSet {
        let weighted = (0..).map(LinkId).zip(&self.weights);
        let weighted = weighted.filter(|(_, weight)| **weight > 0);
        let kept = weighted.map(|(link, _)| link).collect::<LinkSet>() & usable;
        if kept.is_empty() { usable } else { kept }
    }
}

impl Period {
    /// The period that ends with these counters. It is empty if it has no length, or if the counters were reset.
    fn next(&self, counters: LinkCounters, elapsed: Duration) -> Period {
        let (before, now) = (self.counters.carried(), counters.carried());
        let dispatched = counters.flows.dispatched;
        let nothing = Period {
            counters,
            ..Period::default()
        };
        if elapsed.is_zero() {
            return nothing;
        }
        Period {
            up_bps: rate(now.tx_bytes.saturating_sub(before.tx_bytes), elapsed),
            down_bps: rate(now.rx_bytes.saturating_sub(before.rx_bytes), elapsed),
            dispatched: dispatched.saturating_sub(self.counters.flows.dispatched),
            ..nothing
        }
    }

    fn view<'a>(&self, id: LinkId, link: &'a Link, takes_flows: bool) -> LinkView<'a> {
        let flows = link.counters.flows;
        LinkView {
            link: id,
            spec: &link.spec,
            takes_flows,
            paths: PerFamily::from_fn(|family| {
                let path = &link.paths[family];
                PathView {
                    state: path.shown_state(),
                    round_trip: path.availability.round_trip(),
                }
            }),
            up_bps: self.up_bps,
            down_bps: self.down_bps,
            left_up_bps: link.load.up().map(AvailableBandwidth::bps),
            left_down_bps: link.load.down().map(AvailableBandwidth::bps),
            dispatched: self.dispatched,
            active: flows.opened.saturating_sub(flows.closed),
            node_round_trip: link.rounds.last(),
        }
    }
}

fn rate(bytes: u64, elapsed: Duration) -> u64 {
    let bps = u128::from(bytes) * 8 * 1_000_000_000 / elapsed.as_nanos();
    u64::try_from(bps).unwrap_or(u64::MAX)
}
