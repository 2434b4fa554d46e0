//! Route control as RouteScience and netVmg sold it (Guo 2004 §II): latency and loss of each prefix are measured over each link in
//! every period, and the best link is injected as the route of the prefix.
//!
//! Links are compared by latency · √loss, to which the rate of a TCP connection is inverse (Mathis et al. 1997). A route changes for
//! what is clearly better, or when its link has lost three probes in a row.

use std::collections::BTreeMap;
use std::time::Duration;

use anabranch_core::{LinkId, Time};
use anabranch_policy::paths::Prefix;

use crate::ways::{Journey, Sent, Table};

/// A TCP segment without data.
pub(crate) const PROBE_BYTES: u32 = 40;
/// What a round trip counts for in the mean (RFC 6298 section 2.3).
const GAIN: f64 = 1.0 / 8.0;
/// What a probe counts for in the share that is lost: as a packet does in RTP's jitter (RFC 3550 section 6.4.1).
const LOSS_GAIN: f64 = 1.0 / 16.0;
/// What one lost probe makes of none: that alone moves no route.
const LOSS_MIN: f64 = LOSS_GAIN;
/// After so many lost probes in a row a link is no way to the prefix.
const LOST_MAX: u32 = 3;
/// A route changes for so much of its cost at most.
const BETTER: f64 = 0.9;

/// A prefix over a link.
#[derive(Clone, Debug, Default)]
struct Measured {
    asked: Option<(u32, Time)>,
    latency_s: Option<f64>,
    loss: f64,
    lost: u32,
}

impl Measured {
    fn hear(&mut self, round_trip: Duration) {
        let sample = round_trip.as_secs_f64();
        let latency = self.latency_s.unwrap_or(sample);
        self.latency_s = Some(latency + (sample - latency) * GAIN);
        self.loss -= self.loss * LOSS_GAIN;
        self.lost = 0;
    }

    fn lose(&mut self) {
        self.loss += (1.0 - self.loss) * LOSS_GAIN;
        self.lost += 1;
    }

    /// None if it is no way, or nobody knows.
    fn cost(&self) -> Option<f64> {
        let latency_s = self.latency_s.filter(|_| self.lost < LOST_MAX)?;
        Some(latency_s * self.loss.max(LOSS_MIN).sqrt())
    }
}

#[derive(Debug)]
pub(crate) struct RouteControl {
    period: Duration,
    prefixes: Vec<Prefix>,
    links: usize,
    /// By prefix, then by link.
    measured: Vec<Measured>,
    /// By prefix.
    routes: Vec<LinkId>,
    due: Time,
    sent: u32,
}

impl RouteControl {
    /// All takes the first link until something is known.
    pub fn new(period: Duration, links: usize, prefixes: Vec<Prefix>) -> Self {
        RouteControl {
            period,
            links,
            measured: vec![Measured::default(); links * prefixes.len()],
            routes: vec![LinkId(0); prefixes.len()],
            prefixes,
            due: Time::ZERO,
            sent: 0,
        }
    }

    /// Some prefix is reached over the link, as far as anybody knows.
    pub fn is_alive(&self, link: LinkId) -> bool {
        let mut of_link = self.measured.iter().skip(link.index()).step_by(self.links);
        of_link.any(|measured| measured.lost < LOST_MAX)
    }

    pub fn next_turn(&self) -> Time {
        self.due
    }

    /// Judges by the period that ends, and asks anew.
    pub fn turn(&mut self, now: Time) -> Vec<Sent> {
        if now < self.due {
            return Vec::new();
        }
        self.due = now + self.period;
        for measured in &mut self.measured {
            if measured.asked.take().is_some() {
                measured.lose();
            }
        }
        self.choose();
        (0..self.measured.len())
            .map(|index| self.ask(now, index))
            .collect()
    }

    fn ask(&mut self, now: Time, index: usize) -> Sent {
        let count = self.measured.len() as u32;
        self.sent = self.sent.wrapping_add(1) % (u32::MAX / count);
        let token = self.sent * count + index as u32;
        self.measured[index].asked = Some((token, now));
        Sent {
            link: LinkId((index % self.links) as u16),
            journey: Journey::Far,
            bytes: PROBE_BYTES,
            token,
        }
    }

    pub fn arrive(&mut self, now: Time, token: u32) {
        let measured = &mut self.measured[token as usize % (self.links * self.prefixes.len())];
        if let Some((_, sent)) = measured.asked.take_if(|(asked, _)| *asked == token) {
            measured.hear(now.since(sent));
        }
    }

    fn choose(&mut self) {
        for (route, links) in self.routes.iter_mut().zip(self.measured.chunks(self.links)) {
            let costs = links.iter().map(Measured::cost);
            let known = costs
                .enumerate()
                .filter_map(|(link, cost)| Some((link, cost?)));
            let Some((best, cost)) = known.min_by(|one, other| one.1.total_cmp(&other.1)) else {
                continue;
            };
            let present = links[route.index()].cost();
            if present.is_none_or(|present| cost < present * BETTER) {
                *route = LinkId(best as u16);
            }
        }
    }

    pub fn table(&self) -> Table {
        let routes = self
            .prefixes
            .iter()
            .copied()
            .zip(self.routes.iter().copied());
        Table {
            hosts: vec![LinkId(0)],
            prefixes: routes.collect::<BTreeMap<_, _>>(),
        }
    }
}
