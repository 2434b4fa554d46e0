//! Estimates what each link can carry, without declared rates. docs/adaptive.md derives the formula.

use std::collections::VecDeque;
use std::time::Duration;

use super::Measure;
use crate::availability::{State, Suspicion};
use crate::own::{LinkView, OwnPolicy, PathView};
use crate::time::Time;

/// The throughput of a link at times when its flows waited for it, both directions together. While flows wait for round trips, or
/// for their servers, throughput says nothing about the link.
pub static CAPACITY: Measure = Measure {
    meaning: "capacity of each link, estimated from what it carries while its flows wait for it",
    ..without("capacity", || Box::<Capacity>::default())
};
/// All links count as good as the best of them.
pub static CAPACITY_ALIKE: Measure = Measure {
    meaning: "greatest estimated capacity of any link, taken for each",
    ..without("capacity-alike", || Capacity::without(Without::Differences))
};
/// A link that is suspected and has lost a probe still counts in full.
pub static CAPACITY_TRUSTING: Measure = Measure {
    meaning: "estimated capacity of each link, in full while it is suspected",
    ..without("capacity-trusting", || {
        Capacity::without(Without::Suspicion)
    })
};
/// A link that has just come back counts in full at once.
pub static CAPACITY_AT_ONCE: Measure = Measure {
    meaning: "estimated capacity of each link, in full as soon as it has come back",
    ..without("capacity-at-once", || {
        Capacity::without(Without::SlowReturn)
    })
};

const fn without(name: &'static str, make: fn() -> Box<dyn OwnPolicy>) -> Measure {
    Measure {
        state: "what each link has carried in six half seconds",
        ..Measure::own(name, make)
    }
}

/// Length of a span, over which throughput is averaged. It is longer than the usual queue of a link, so bursts average out.
const SPAN: Duration = Duration::from_millis(500);
/// Number of spans that are remembered.
const SPANS: usize = 6;
/// A span is used only if its flows spent at most this share of their time waiting for round trips.
const WAITING_PERCENT: u128 = 10;
/// The estimate of a link is dropped if there was no new one for this long.
const MEMORY: Duration = Duration::from_secs(60);
/// Assumed of all links before anything is known.
const UNTOLD_BPS: u64 = 10_000_000;
/// The weight of a link that is suspected and has lost a probe is divided by this until it answers.
const SUSPECTED: u64 = 16;
/// A link that has come back gets a tenth of its weight at once and all of it after this time. Its queues are empty, so at full
/// weight all new flows would go there.
const RETURN: Duration = Duration::from_secs(5);

/// The estimates of all links of a class.
#[derive(Debug, Default)]
struct Capacity {
    without: Without,
    links: Vec<Carried>,
    told: Option<Time>,
}

/// A part that is left out, so that experiments can measure what it contributes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Without {
    #[default]
    Nothing,
    Differences,
    Suspicion,
    SlowReturn,
}

/// What is known of one link.
#[derive(Clone, Debug, Default)]
struct Carried {
    span: Span,
    /// bit/s: estimates of the last spans that gave one.
    spans: VecDeque<u64>,
    last: Time,
    /// None before the link has worked for the first time: that is not a return.
    is_up: Option<bool>,
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
            let own = carried.most_bps();
            let own = own.filter(|_| self.without != Without::Differences);
            // An unknown link counts as good as the best: a flow there will produce an estimate.
            let bps = own.or(known).unwrap_or(UNTOLD_BPS);
            let percent = self.percent(now, carried);
            let bps = (u128::from(bps) * percent / 100) as u64;
            (bps / self.divisor(link)).max(1)
        })
        .collect()
    }
}

impl Capacity {
    fn without(without: Without) -> Box<dyn OwnPolicy> {
        Box::new(Capacity {
            without,
            ..Capacity::default()
        })
    }

    /// The share of its capacity that a link gets, less than 100 while it returns.
    fn percent(&self, now: Time, carried: &Carried) -> u128 {
        let returned = carried.returned.map(|at| now.since(at));
        let returning = returned.filter(|since| *since < RETURN);
        match returning.filter(|_| self.without != Without::SlowReturn) {
            Some(since) => 10 + 90 * since.as_millis() / RETURN.as_millis(),
            None => 100,
        }
    }

    fn divisor(&self, link: &LinkView<'_>) -> u64 {
        let is_losing = link.paths.values().any(is_losing);
        match is_losing && self.without != Without::Suspicion {
            true => SUSPECTED,
            false => 1,
        }
    }
}

impl Carried {
    fn observe(&mut self, now: Time, elapsed: Duration, link: &LinkView<'_>) {
        self.watch(now, link);
        if link.active == 0 || link.up_bps + link.down_bps == 0 {
            self.span = Span::default();
        } else {
            self.span.go_on(elapsed, link);
        }
        if self.span.lasted >= SPAN {
            let span = std::mem::take(&mut self.span);
            self.learn(now, span.capacity_bps(round_trip(link)));
        }
        if now.since(self.last) > MEMORY {
            self.spans.clear();
        }
    }

    fn watch(&mut self, now: Time, link: &LinkView<'_>) {
        let mut paths = link.paths.values();
        let is_up = !paths.all(|path| matches!(path.state, State::Down(_)));
        if self.is_up == Some(false) && is_up {
            *self = Carried {
                returned: Some(now),
                ..Carried::default()
            };
        }
        if is_up || self.is_up.is_some() {
            self.is_up = Some(is_up);
        }
    }

    fn learn(&mut self, now: Time, bps: Option<u64>) {
        let Some(bps) = bps else { return };
        self.last = now;
        self.spans.push_back(bps);
        if self.spans.len() > SPANS {
            self.spans.pop_front();
        }
    }

    /// bit/s. None without an estimate.
    fn most_bps(&self) -> Option<u64> {
        self.spans.iter().copied().max()
    }
}

/// Sums over a time in which the link carried bytes and had flows at each sample.
#[derive(Clone, Debug, Default)]
struct Span {
    bit: u64,
    lasted: Duration,
    /// Sum of the times that its flows were open.
    flow_time: Duration,
    opened: u64,
}

impl Span {
    fn go_on(&mut self, elapsed: Duration, link: &LinkView<'_>) {
        let bps = u128::from(link.up_bps + link.down_bps);
        self.bit += (bps * elapsed.as_nanos() / 1_000_000_000) as u64;
        self.lasted += elapsed;
        self.flow_time += elapsed * u32::try_from(link.active).unwrap_or(u32::MAX);
        self.opened += link.dispatched;
    }

    /// bit/s; none if its flows waited for round trips for too much of their time. Even alone on an infinitely fast link each flow
    /// would wait for its own round trips; for the rest of the time the flows share what the link carries.
    fn capacity_bps(&self, round_trip: Duration) -> Option<u64> {
        let waits = match self.opened {
            0 => 0,
            opened => round_trip.as_nanos() * u128::from(opened * rounds_of(self.bit / 8 / opened)),
        };
        let flow_time = self.flow_time.as_nanos();
        if waits * 100 > flow_time * WAITING_PERCENT {
            return None;
        }
        let bps = u128::from(self.bit) * 1_000_000_000 / self.lasted.as_nanos();
        Some((bps * flow_time / (flow_time - waits)) as u64)
    }
}

/// Round trip of the link's probes, of the faster address family.
fn round_trip(link: &LinkView<'_>) -> Duration {
    let measured = link.paths.values().filter_map(|path| path.round_trip);
    measured.min().unwrap_or_default()
}

/// Whether the path is suspected and has lost a probe.
fn is_losing(path: &PathView) -> bool {
    matches!(path.state, State::PossiblyDown(suspicion) if suspicion != Suspicion::Unproven)
}

/// Bytes that a sender may have in flight after its handshake: ten segments (RFC 6928).
const FIRST_WINDOW_BYTE: u64 = 14_600;

/// Round trips that a flow takes alone: its handshake, its request, and one for each time that its window doubles.
fn rounds_of(byte: u64) -> u64 {
    2 + u64::from((1 + byte / FIRST_WINDOW_BYTE).ilog2())
}

/// Mean size of the site's flows, an average with exponential decay.
#[derive(Clone, Copy, Debug, Default)]
pub struct FlowSizes {
    byte: u64,
    milliflows: u64,
}

impl FlowSizes {
    const MEMORY: Duration = Duration::from_secs(30);
    /// Assumed until some flows were measured: the mean of a web page's objects.
    const PRIOR_BYTE: u64 = 50_000;
    const PRIOR_FLOWS: u64 = 4;

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

    /// Microseconds that a flow of mean size takes alone on a link of this capacity.
    pub(crate) fn alone_us(&self, bps: u64) -> u32 {
        let us = u128::from(self.mean_byte()) * 8 * 1_000_000 / u128::from(bps.max(1));
        us.min(60_000_000) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::availability::DownCause;
    use crate::link::{LinkId, LinkSpec};
    use anabranch_policy::PerFamily;

    const LOOK: Duration = Duration::from_millis(100);
    const MBIT: u64 = 1_000_000;

    /// Looks at two links, each with flows, flows opened and bit/s in every tenth of a second.
    struct Site {
        spec: LinkSpec,
        capacity: Capacity,
        now: Time,
        state: State,
        round_trip: Duration,
    }

    impl Site {
        fn new() -> Self {
            Site::without(Without::Nothing)
        }

        fn without(without: Without) -> Self {
            Site {
                spec: LinkSpec::default(),
                capacity: Capacity {
                    without,
                    ..Capacity::default()
                },
                now: Time::ZERO,
                state: State::Up,
                round_trip: Duration::from_millis(20),
            }
        }

        fn look(&mut self, times: u32, carried: [(u64, u64, u64); 2]) -> Vec<u64> {
            let mut weights = Vec::new();
            for _ in 0..times {
                let path = |state| PathView {
                    state,
                    round_trip: Some(self.round_trip),
                };
                let links: Vec<_> = (0..)
                    .zip(carried)
                    .map(|(link, (active, dispatched, bps))| LinkView {
                        link: LinkId(link),
                        spec: &self.spec,
                        takes_flows: true,
                        paths: PerFamily::from_fn(|_| {
                            path(if link == 0 { self.state } else { State::Up })
                        }),
                        up_bps: 0,
                        down_bps: bps,
                        left_up_bps: None,
                        left_down_bps: None,
                        dispatched,
                        active,
                        node_round_trip: None,
                    })
                    .collect();
                weights = self.capacity.weigh(self.now, &links);
                self.now = self.now + LOOK;
            }
            weights
        }
    }

    #[test]
    fn a_link_that_holds_its_flows_up_tells_what_it_carries() {
        let mut site = Site::new();
        let weights = site.look(20, [(16, 1, 9 * MBIT), (1, 0, 2 * MBIT)]);
        assert_eq!(weights[1], 2 * MBIT, "a long flow has what there is");
        let off = weights[0].abs_diff(10 * MBIT);
        assert!(
            off < MBIT / 2,
            "{weights:?}: sixteen flows stay 1.6 s, 0.1 s of it in round trips"
        );
    }

    #[test]
    fn flows_that_wait_for_round_trips_tell_nothing() {
        let mut site = Site::new();
        site.look(20, [(16, 1, 9 * MBIT), (0, 0, 0)]);
        let weights = site.look(20, [(16, 1, 9 * MBIT), (1, 1, MBIT)]);
        assert_eq!(weights[0], weights[1], "as good as the best is hoped for");
    }

    #[test]
    fn a_link_without_flows_tells_nothing_and_is_remembered_for_a_minute() {
        let mut site = Site::new();
        let busy = (16, 1, 9 * MBIT);
        site.look(20, [busy, (4, 0, MBIT)]);
        let weights = site.look(300, [busy, (0, 0, 0)]);
        assert_eq!(weights[1], MBIT);
        let weights = site.look(400, [busy, (0, 0, 0)]);
        assert_eq!(weights[1], weights[0]);
    }

    #[test]
    fn only_a_link_that_has_worked_before_returns() {
        let idle = [(0, 0, 0); 2];
        let mut site = Site::new();
        site.state = State::Down(DownCause::Returning);
        site.look(1, idle);
        site.state = State::Up;
        let weights = site.look(1, idle);
        assert_eq!(weights[0], weights[1], "it begins");
        site.state = State::Down(DownCause::Returning);
        site.look(1, idle);
        site.state = State::Up;
        let weights = site.look(1, idle);
        assert_eq!(weights[0] * 10, weights[1], "it returns");
        let weights = site.look(51, idle);
        assert_eq!(weights[0], weights[1]);
    }

    #[test]
    fn what_is_left_out_is_left_out_alone() {
        let lesser_first = [(2, 0, 2 * MBIT), (8, 0, 8 * MBIT)];
        let idle = [(0, 0, 0); 2];
        for (without, differs, suspected, returned) in [
            (Without::Nothing, 4, 64, 10),
            (Without::Differences, 1, 16, 10),
            (Without::Suspicion, 4, 4, 10),
            (Without::SlowReturn, 4, 64, 1),
        ] {
            let mut site = Site::without(without);
            let parts = |weights: Vec<u64>| weights[1] / weights[0];
            assert_eq!(parts(site.look(20, lesser_first)), differs, "{without:?}");
            site.state = State::PossiblyDown(Suspicion::Silent);
            assert_eq!(parts(site.look(1, idle)), suspected, "{without:?}");
            site.state = State::Down(DownCause::Returning);
            site.look(1, idle);
            site.state = State::Up;
            assert_eq!(parts(site.look(1, idle)), returned, "{without:?}");
        }
    }
}
