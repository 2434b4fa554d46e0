//! What a link can carry, without being told: docs/adaptive.md derives it.

use std::collections::VecDeque;
use std::time::Duration;

use super::Measure;
use crate::availability::{State, Suspicion};
use crate::own::{LinkView, OwnPolicy, PathView};
use crate::time::Time;

/// The most that a link was seen to carry while it had flows, in both directions together: while a flow is there that the link
/// holds up, it carries what it can, and while none is, nothing is learned. Nobody has to declare a rate.
pub static CAPACITY: Measure = Measure {
    meaning: "the most that each link was seen to carry",
    state: "what each link has carried in twenty half seconds",
    ..Measure::own("capacity", || Box::<Capacity>::default())
};

/// Rates are means over so long a time in which a link had something to carry: the queues of a link smooth less.
const SPAN: Duration = Duration::from_millis(500);
/// How many of these are remembered.
const SPANS: usize = 20;
/// What a link was seen to carry is forgotten when it has carried nothing for so long.
const MEMORY: Duration = Duration::from_secs(60);
/// What all links are taken for before anything is known.
const UNTOLD_BPS: u64 = 10_000_000;
/// A link that is suspected and has lost a probe is worth so much less, until it answers.
const SUSPECTED: u64 = 16;
/// A link that has come back takes its whole part after this, and a tenth at once: its queues are empty, and all that waits for a link
/// would run there.
const RETURN: Duration = Duration::from_secs(5);

/// What all links were seen to carry.
#[derive(Debug, Default)]
struct Capacity {
    links: Vec<Carried>,
    told: Option<Time>,
}

/// By one link.
#[derive(Clone, Debug, Default)]
struct Carried {
    /// In the span that goes on, and how much of that has passed.
    bit: u64,
    busy: Duration,
    /// bit/s of the last spans.
    spans: VecDeque<u64>,
    last: Time,
    was_down: bool,
    returned: Option<Time>,
}

impl OwnPolicy for Capacity {
    fn weigh(&mut self, now: Time, links: &[LinkView<'_>]) -> Vec<u64> {
        let told = self.told.replace(now);
        let elapsed = told.map_or(Duration::ZERO, |told| now.since(told));
        self.links.resize(links.len(), Carried::default());
        for (carried, link) in self.links.iter_mut().zip(links) {
            carried.observe(now, elapsed, link);
        }
        let known = self.links.iter().filter_map(Carried::most_bps).max();
        let all = self.links.iter().zip(links);
        all.map(|(carried, link)| {
            // Of an unknown link the best is hoped for: a flow there will tell.
            let bps = carried.most_bps().or(known).unwrap_or(UNTOLD_BPS);
            carried.trusted(now, link, bps).max(1)
        })
        .collect()
    }
}

impl Carried {
    fn observe(&mut self, now: Time, elapsed: Duration, link: &LinkView<'_>) {
        let mut paths = link.paths.values();
        let is_down = paths.all(|path| matches!(path.state, State::Down(_)));
        if std::mem::replace(&mut self.was_down, is_down) && !is_down {
            *self = Carried {
                returned: Some(now),
                ..Carried::default()
            };
        }
        let bps = link.up_bps + link.down_bps;
        let had_flows = link.active > 0 || link.dispatched > 0;
        if had_flows && bps > 0 {
            self.carry(now, elapsed, bps);
        } else if now.since(self.last) > MEMORY {
            self.spans.clear();
        }
    }

    fn carry(&mut self, now: Time, elapsed: Duration, bps: u64) {
        self.last = now;
        self.bit += (u128::from(bps) * elapsed.as_nanos() / 1_000_000_000) as u64;
        self.busy += elapsed;
        if self.busy < SPAN {
            return;
        }
        let bps = u128::from(self.bit) * 1_000_000_000 / self.busy.as_nanos();
        (self.bit, self.busy) = (0, Duration::ZERO);
        self.spans.push_back(bps as u64);
        if self.spans.len() > SPANS {
            self.spans.pop_front();
        }
    }

    /// None if it had nothing to carry for too long.
    fn most_bps(&self) -> Option<u64> {
        self.spans.iter().copied().max()
    }

    fn trusted(&self, now: Time, link: &LinkView<'_>, bps: u64) -> u64 {
        let returned = self.returned.map(|at| now.since(at));
        let percent = match returned.filter(|since| *since < RETURN) {
            Some(since) => 10 + 90 * since.as_millis() / RETURN.as_millis(),
            None => 100,
        };
        let bps = (u128::from(bps) * percent / 100) as u64;
        match link.paths.values().any(is_losing) {
            true => bps / SUSPECTED,
            false => bps,
        }
    }
}

/// It is suspected, and a probe was lost.
fn is_losing(path: &PathView) -> bool {
    matches!(path.state, State::PossiblyDown(suspicion) if suspicion != Suspicion::Unproven)
}

/// How much a flow of the site carries, forgetting with a time constant.
#[derive(Clone, Copy, Debug, Default)]
pub struct FlowSizes {
    byte: u64,
    milliflows: u64,
}

impl FlowSizes {
    const MEMORY: Duration = Duration::from_secs(30);
    /// The mean of a web page's objects, until some flows say otherwise.
    const PRIOR_BYTE: u64 = 50_000;
    const PRIOR_FLOWS: u64 = 4;
    /// That a sender has under way after its handshake (RFC 6928).
    const FIRST_WINDOW_BYTE: u64 = 14_600;

    pub(crate) fn add(&mut self, elapsed: Duration, byte: u64, flows: u64) {
        let kept = Self::MEMORY.saturating_sub(elapsed).as_nanos();
        let decay = |sum: u64| (u128::from(sum) * kept / Self::MEMORY.as_nanos()) as u64;
        self.byte = decay(self.byte) + byte;
        self.milliflows = decay(self.milliflows) + flows * 1000;
    }

    /// The mean, in bytes.
    pub(crate) fn mean_byte(&self) -> u64 {
        let byte = self.byte + Self::PRIOR_FLOWS * Self::PRIOR_BYTE;
        let milliflows = self.milliflows + Self::PRIOR_FLOWS * 1000;
        (u128::from(byte) * 1000 / u128::from(milliflows)) as u64
    }

    /// What such a flow takes alone on a link of this capacity, in us.
    pub(crate) fn alone_us(&self, bps: u64) -> u32 {
        let us = u128::from(self.mean_byte()) * 8 * 1_000_000 / u128::from(bps.max(1));
        us.min(60_000_000) as u32
    }

    /// Round trips of its handshake, its question, and as many as its window doubles.
    pub(crate) fn rounds(&self) -> u32 {
        2 + (1 + self.mean_byte() / Self::FIRST_WINDOW_BYTE).ilog2()
    }
}
