//! The state of a class: the links that its new flows take, the window in which flows are distributed by weight, and what happens
//! to its flows on other links.

use std::ops::BitOr;
use std::time::Duration;

use anabranch_policy::abi::{self, SPARE_MAX};
use anabranch_policy::{Choice, Dispatch, Family, Granularity, PerFamily};

use super::links::{Link, Links, difference};
use super::own::Own;
use super::{ClassStatus, Event};
use crate::algorithm::{Algorithm, Racing, Retry};
use crate::class::{ClassId, ClassSpec};
use crate::link::{LinkId, LinkSet, OnReturn};
use crate::measure::{Better, Mixture, Observed, Taken};
use crate::rules::{Direction, WhenNone};
use crate::time::Time;
use crate::weights;

/// Bound on the surplus of a link that is compensated for. Hosts that are bound to a link can cause any surplus.
const SURPLUS_MAX_MILLI: i64 = 16_000;

/// A UDP flow that was idle for this time can move to another link without its host noticing.
pub const UDP_PAUSE: Duration = Duration::from_secs(1);
/// UDP flows that never pause are moved after this.
const MOVE_WITHIN: Duration = Duration::from_secs(4);

/// The state of one link in one class.
#[derive(Clone, Debug)]
struct Share {
    /// The traffic counters at the begin of the current measuring period.
    period_carried: abi::Traffic,
    period_dispatched: u64,
    /// Thousandths of flows that it got beyond its share in earlier periods of this window.
    surplus_milli: i64,
    weight: u32,
    leaving: PerFamily<Leaving>,
}

/// What happens to the flows that a class has on a link.
#[derive(Clone, Copy, Debug, Default)]
struct Leaving {
    /// Since when better links take its new flows, and when its UDP flows were last moved.
    outranked: Option<(Time, Time)>,
    /// How many of the link's losses (`Path::losses`) have ended flows. For the others no link could take the flows yet.
    ended: u64,
}

impl Default for Share {
    fn default() -> Self {
        Share {
            period_carried: abi::Traffic::default(),
            period_dispatched: 0,
            surplus_milli: 0,
            weight: abi::WEIGHT_MAX,
            leaving: PerFamily::default(),
        }
    }
}

/// The links that flows of one family may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Paths {
    /// Links for new flows.
    pub(super) usable: LinkSet,
    /// Links for connection attempts that have failed on all links before: one set for each further tier.
    spare: [LinkSet; SPARE_MAX],
    /// Links for flows that the host's routing binds to a link.
    working: LinkSet,
    without: abi::Without,
}

impl Paths {
    fn over(usable: LinkSet, working: LinkSet, without: abi::Without) -> Paths {
        Paths {
            usable,
            spare: [LinkSet::default(); SPARE_MAX],
            working,
            without,
        }
    }

    /// The choice among them.
    fn choice(&self, shared: &Choice) -> Choice {
        let tiers = self.spare.iter().filter(|tier| !tier.is_empty());
        Choice {
            usable: self.usable.targets(),
            spare: self.spare.map(LinkSet::targets),
            spares: tiers.count() as u32,
            working: self.working.targets(),
            without: self.without.into(),
            ..*shared
        }
    }
}

/// The state of one class.
#[derive(Debug)]
pub(super) struct Class {
    spec: ClassSpec,
    shares: Vec<Share>,
    /// Its policy, if that is an [`OwnPolicy`](crate::OwnPolicy).
    own: Option<Own>,
    /// The links that work, by tier.
    found: PerFamily<Paths>,
    /// Those of them with a weight of the own policy.
    paths: PerFamily<Paths>,
    period_began: Time,
    /// What a new configuration requires at the next [`settle`](Self::settle).
    due: Due,
    installed: PerFamily<Option<Choice>>,
    pending: PerFamily<Option<Choice>>,
}

/// What a change requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    Nothing,
    /// The choice has changed.
    Offer,
    /// A new window begins: other links take part, or another algorithm distributes.
    Window,
}

impl Class {
    pub(super) fn new(now: Time, spec: ClassSpec, links: usize) -> Class {
        let none = PerFamily::from_fn(|_| {
            Paths::over(LinkSet::default(), LinkSet::default(), abi::Without::Refuse)
        });
        Class {
            own: Own::of(&spec.algorithm, links),
            spec,
            shares: vec![Share::default(); links],
            found: none,
            paths: none,
            period_began: now,
            due: Due::Window,
            installed: PerFamily::default(),
            pending: PerFamily::default(),
        }
    }

    /// Takes over the state of the same class under the former configuration; `stays` says which links are the same.
    pub(super) fn succeed(&mut self, before: Class, stays: &[bool], same_links: bool) {
        self.installed = before.installed;
        if same_links && before.spec.algorithm == self.spec.algorithm {
            self.own = before.own;
            self.found = before.found;
            self.paths = before.paths;
            self.period_began = before.period_began;
            self.shares = before.shares;
            self.due = Due::Offer;
            return;
        }
        let links = self.shares.iter_mut().zip(before.shares).zip(stays);
        for ((share, before), _) in links.filter(|(_, stays)| **stays) {
            share.leaving = before.leaving;
        }
    }

    pub(super) fn paths(&self) -> &PerFamily<Paths> {
        &self.paths
    }

    /// The links that take new flows of some family: the class distributes its flows among these.
    fn usable(&self) -> LinkSet {
        let all = self.paths.values().map(|paths| paths.usable);
        all.fold(LinkSet::default(), LinkSet::bitor)
    }

    /// Whether it distributes packets one by one, and over this link.
    pub(super) fn spreads_over(&self, link: LinkId) -> bool {
        self.spec.algorithm.granularity == Granularity::Packet && self.spec.names(link)
    }

    /// Whether its measure needs the fixed node.
    pub(super) fn needs_node(&self) -> bool {
        self.spec.algorithm.needs_node()
    }

    /// Whether its measure changes with each answer of the fixed node.
    pub(super) fn is_back_to_back(&self) -> bool {
        self.spec.algorithm.measure.is_back_to_back()
    }

    pub(super) fn weight(&self, link: LinkId) -> u32 {
        self.shares[link.index()].weight
    }

    pub(super) fn status(&self, class: ClassId) -> ClassStatus {
        ClassStatus {
            class,
            tiers: self.spec.tiers.clone(),
            usable: self.paths.map(|paths| paths.usable),
            weights: self.shares.iter().map(|share| share.weight).collect(),
        }
    }

    pub(super) fn has_pending(&self) -> bool {
        self.pending.values().any(Option::is_some)
    }

    pub(super) fn poll_choice(&mut self) -> Option<(Family, Choice)> {
        let mut pending = self.pending.iter_mut();
        let (family, choice) =
            pending.find_map(|(family, choice)| Some((family, choice.take()?)))?;
        self.installed[family] = Some(choice);
        Some((family, choice))
    }

    // ---- which links

    /// Updates the links; `default` are those of the default class, for any other class.
    pub(super) fn settle(&mut self, now: Time, links: &Links, default: Option<&PerFamily<Paths>>) {
        let found = PerFamily::from_fn(|family| {
            let default = default.map(|paths| &paths[family]);
            self.find_paths(links, family, default)
        });
        let before = std::mem::replace(&mut self.found, found);
        let due = std::mem::replace(&mut self.due, Due::Nothing);
        let usable = |paths: Paths| paths.usable;
        if due == Due::Window || before.map(usable) != found.map(usable) {
            self.begin_window(now, links);
        } else if due == Due::Offer || before != found {
            self.narrow();
            self.offer(links);
        }
    }

    fn find_paths(&self, links: &Links, family: Family, default: Option<&Paths>) -> Paths {
        let working = links.working(family);
        let without = self.without(default);
        let left = |tier: &LinkSet| Some(*tier & working).filter(|left| !left.is_empty());
        let mut tiers = self.spec.tiers.iter().flatten().filter_map(left);
        if let Some(usable) = tiers.next() {
            let mut paths = Paths::over(usable, working, without);
            for (place, tier) in paths.spare.iter_mut().zip(tiers) {
                *place = tier;
            }
            return paths;
        }
        let any = Paths::over(links.preferred(family), working, without);
        match (&self.spec.tiers, self.spec.when_none, default) {
            (Some(_), WhenNone::Any, Some(default)) => *default,
            (None, ..) | (Some(_), WhenNone::Any, None) => any,
            (Some(_), WhenNone::Drop | WhenNone::Kernel, _) => Paths {
                usable: LinkSet::default(),
                ..any
            },
        }
    }

    fn without(&self, default: Option<&Paths>) -> abi::Without {
        match self.spec.when_none {
            WhenNone::Any => default.map_or(abi::Without::Refuse, |paths| paths.without),
            WhenNone::Drop => abi::Without::Drop,
            WhenNone::Kernel => abi::Without::Kernel,
        }
    }

    // ---- flows on other links

    /// Ends flows on links that take no new ones, once other links can take them or the link is of no use to them any more.
    pub(super) fn end_flows(
        &mut self,
        class: ClassId,
        links: &Links,
        events: &mut impl Extend<Event>,
    ) {
        for ((link, state), share) in links.iter().zip(&mut self.shares) {
            for (family, leaving) in share.leaving.iter_mut() {
                let usable = self.paths[family].usable;
                let path = &state.paths[family];
                let is_due = state.is_lost(family) && leaving.ended < path.losses;
                let is_possible = leaving.ended < path.lost_for_good || !usable.is_empty();
                if is_due && is_possible && !usable.contains(link) {
                    leaving.ended = path.losses;
                    events.extend([Event::EndFlows {
                        class,
                        link,
                        family,
                    }]);
                }
            }
        }
    }

    /// Whether flows still have to end, for an event that was not polled yet. If no link can take the flows any more, the end is
    /// postponed until one can.
    pub(super) fn still_ends(&mut self, links: &Links, link: LinkId, family: Family) -> bool {
        let usable = self.paths[family].usable;
        let mut all = links.iter().zip(&mut self.shares);
        let known = all.find(|((id, _), _)| *id == link);
        let Some(((_, state), share)) = known.filter(|_| !usable.contains(link)) else {
            return false;
        };
        let path = &state.paths[family];
        let is_possible = path.lost_for_good == path.losses || !usable.is_empty();
        if !is_possible {
            let ended = &mut share.leaving[family].ended;
            *ended = path.losses.saturating_sub(1).min(*ended);
        }
        is_possible
    }

    /// What flows do when better links return is [`ClassSpec::on_return`].
    pub(super) fn move_flows(
        &mut self,
        now: Time,
        class: ClassId,
        links: &Links,
        events: &mut impl Extend<Event>,
    ) {
        for ((link, state), share) in links.iter().zip(&mut self.shares) {
            let on_return = self.spec.on_return.unwrap_or(state.spec.on_return);
            for (family, leaving) in share.leaving.iter_mut() {
                let usable = self.paths[family].usable;
                if state.is_alive(family) && !usable.contains(link) && !usable.is_empty() {
                    let leave = leaving.rest(now, on_return);
                    events.extend(leave.map(|leave| leave.event(class, link, family)));
                } else {
                    leaving.outranked = None;
                }
            }
        }
    }

    // ---- windows

    /// Begins a window without surplus, because the links that take part have changed.
    pub(super) fn begin_window(&mut self, now: Time, links: &Links) {
        self.forget_surplus();
        self.begin_period(now, links);
    }

    fn forget_surplus(&mut self) {
        for share in &mut self.shares {
            share.surplus_milli = 0;
        }
    }

    pub(super) fn has_own_policy(&self) -> bool {
        self.own.is_some()
    }

    /// When its measuring period ends; none without a period.
    pub(super) fn period_end(&self) -> Option<Time> {
        let period = self.spec.algorithm.period?;
        Some(self.period_began + period)
    }

    pub(super) fn end_period(&mut self, now: Time, links: &Links) {
        self.add_up_surplus(links);
        if let Some(own) = &mut self.own {
            own.count(now, links);
        }
        self.begin_period(now, links);
    }

    /// Adds the surplus of the period that ends: for each usable link, the flows that it got less its share.
    ///
    /// Without this, each period would begin with a flow to each link, however small its weight, before the greatest weight gets
    /// its second flow (eq. 4 with all SD = 0). And with fewer flows than periods, the greatest weight would get them all.
    fn add_up_surplus(&mut self, links: &Links) {
        let usable = self.usable();
        let all = links.iter().zip(&mut self.shares);
        let mut used: Vec<_> = all
            .filter(|((id, _), _)| usable.contains(*id))
            .map(|((_, link), share)| (share.dispatched(link), share))
            .collect();
        let flows: u64 = used.iter().map(|(given, _)| given).sum();
        let weights: u64 = used.iter().map(|(_, share)| u64::from(share.weight)).sum();
        for (given, share) in &mut used {
            let share_milli =
                u128::from(flows) * 1000 * u128::from(share.weight) / u128::from(weights);
            let given_milli = *given as i64 * 1000 - share_milli as i64;
            share.surplus_milli =
                (share.surplus_milli + given_milli).clamp(-SURPLUS_MAX_MILLI, SURPLUS_MAX_MILLI);
        }
    }

    /// The number of flows with which a link begins the period, so that eq. 4 compensates for the surplus: the surplus plus
    /// the same number of flows per weight for each link, just enough that none is negative.
    fn flows_ahead(&self, links: &Links, share: &Share) -> u32 {
        let (among, all) = (self.usable(), links.ids().zip(&self.shares));
        let usable = all.filter(|(id, _)| among.contains(*id));
        let level = |other: &Share| {
            i128::from(-other.surplus_milli) * i128::from(share.weight) / i128::from(other.weight)
        };
        let highest = usable.map(|(_, other)| level(other)).max().unwrap_or(0);
        let ahead_milli = (i128::from(share.surplus_milli) + highest).max(0);
        u32::try_from((ahead_milli + 500) / 1000).unwrap_or(u32::MAX)
    }

    /// Begins a period: measures the links, computes weights, and resets the counts of dispatched flows.
    fn begin_period(&mut self, now: Time, links: &Links) {
        self.period_began = now;
        self.ask_own(now, links);
        self.weigh(links);
        for ((_, link), share) in links.iter().zip(&mut self.shares) {
            share.period_carried = link.counters.carried();
            share.period_dispatched = link.counters.flows.dispatched;
        }
        self.offer(links);
    }

    /// Asks an own policy for the weights of links, and takes those without a weight out of use.
    fn ask_own(&mut self, now: Time, links: &Links) {
        let found = self.found.values().map(|paths| paths.usable);
        let found = found.fold(LinkSet::default(), LinkSet::bitor);
        if let Some(own) = &mut self.own {
            own.ask(now, links, found);
        }
        let before = self.usable();
        self.narrow();
        if self.usable() != before {
            self.forget_surplus();
        }
    }

    fn narrow(&mut self) {
        let own = self.own.as_ref();
        self.paths = self.found.map(|paths| Paths {
            usable: own.map_or(paths.usable, |own| own.among(paths.usable)),
            ..paths
        });
    }

    /// Peng eq. 5 over the usable links.
    fn weigh(&mut self, links: &Links) {
        let (measured, better) = self.measured(links);
        let usable = self.usable();
        let of_usable = || {
            links
                .ids()
                .filter(|&link| usable.contains(link))
                .map(|link| measured[link.index()])
        };
        let (least, most) = (
            of_usable().min().unwrap_or(0),
            of_usable().max().unwrap_or(0),
        );
        for (share, measured) in self.shares.iter_mut().zip(measured) {
            share.weight = match better {
                Better::More => weights::of_more(measured, most),
                Better::Less => weights::of_less(measured, least),
            };
        }
    }

    /// The values that the links' weights are proportional to, and which of them is better.
    fn measured(&self, links: &Links) -> (Vec<u64>, Better) {
        let Algorithm {
            measure, weighting, ..
        } = self.spec.algorithm;
        let direction = self.spec.direction;
        match measure.taken {
            Taken::EveryPeriod(take) | Taken::BackToBack(take) => {
                let mixture = match direction {
                    Some(direction) => Mixture::of(direction),
                    None => &links.mixture,
                };
                let most = links
                    .specs()
                    .map(|spec| weighting.of(spec, direction))
                    .max()
                    .unwrap_or(1);
                let all = links.iter().zip(&self.shares);
                let values = all.map(|((_, link), share)| {
                    let value = take(&share.observed(link, mixture, direction));
                    let part = weighting.of(&link.spec, direction);
                    weights::per_rate(value, part, most)
                });
                (values.collect(), measure.better)
            }
            Taken::ByPolicy(_) => {
                let own = self.own.as_ref().map(Own::weights);
                (own.unwrap_or_default().to_vec(), Better::More)
            }
            // The data path takes the measure itself, and weights are its divisors.
            Taken::AtChoice(_) | Taken::EveryWindow(_) | Taken::ByCheck(_) | Taken::Never => {
                let weights = links.specs().map(|spec| weighting.of(spec, direction));
                (weights.collect(), Better::More)
            }
        }
    }

    /// The capacity of the usable link with the greatest weight.
    fn most_bps(&self, links: &Links) -> u64 {
        let usable = self.usable();
        let weights = self.own.iter().flat_map(Own::weights);
        let all = links.ids().zip(weights);
        let used = all.filter(|(link, _)| usable.contains(*link));
        used.map(|(_, bps)| *bps).max().unwrap_or_default()
    }

    // ---- the choice

    /// Offers the present choices for installation if they differ from the installed ones. It waits for the first counters.
    pub(super) fn offer(&mut self, links: &Links) {
        if links.counted.is_none() {
            return;
        }
        let shared = self.choice(links);
        self.pending = PerFamily::from_fn(|family| {
            let choice = self.paths[family].choice(&shared);
            Some(choice).filter(|_| self.installed[family] != Some(choice))
        });
    }

    /// The part of the choice that all families share, still without links.
    fn choice(&self, links: &Links) -> Choice {
        let ClassSpec {
            algorithm,
            sessions,
            ..
        } = &self.spec;
        let mut choice = Choice {
            dispatch: algorithm.dispatch.into(),
            load: algorithm.load() as u32,
            count: links.len() as u32,
            syn_retry: u32::from(algorithm.retry == Retry::Elsewhere),
            granularity: algorithm.granularity as u32,
            races: algorithm.racing.per_s(),
            holds: matches!(algorithm.racing, Racing::Probes { .. }).into(),
            lifetime_ns: algorithm.learning.lifetime().unwrap_or_default().as_nanos() as u64,
            surveys: algorithm.learning.active().is_some().into(),
            by_loss: algorithm.learning.is_by_loss().into(),
            flows_per_host: self.spec.flows_per_host.unwrap_or(0),
            session_ns: sessions.forget.as_nanos() as u64,
            stick: sessions.stick.into(),
            except: sessions.except(),
            ..Choice::default()
        };
        if algorithm.dispatch == Dispatch::Soonest {
            choice.flow_us = links.sizes.alone_us(self.most_bps(links));
            choice.rounds = algorithm.rounds;
        }
        for (target, share) in choice.target.iter_mut().zip(&self.shares) {
            // The programs count in 32 bits and subtract modulo 2^32.
            let ahead = self.flows_ahead(links, share);
            let base = (share.period_dispatched as u32).wrapping_sub(ahead);
            *target = abi::Target::new(share.weight, base);
        }
        choice
    }
}

impl Share {
    /// Flows that the link was given in the current period, by all classes.
    fn dispatched(&self, link: &Link) -> u64 {
        let flows = link.counters.flows.dispatched;
        flows.saturating_sub(self.period_dispatched)
    }

    fn observed<'a>(
        &self,
        link: &'a Link,
        mixture: &'a Mixture,
        direction: Option<Direction>,
    ) -> Observed<'a> {
        Observed {
            load: &link.load,
            carried: difference(&self.period_carried, &link.counters.carried()),
            direction,
            response: link.rounds.last(),
            mixture,
        }
    }
}

/// What the flows of a link have to do.
enum Leave {
    AtOnce,
    /// UDP flows that were idle for this time leave the link.
    Udp {
        idle: Duration,
    },
}

impl Leave {
    fn event(self, class: ClassId, link: LinkId, family: Family) -> Event {
        match self {
            Leave::AtOnce => Event::EndFlows {
                class,
                link,
                family,
            },
            Leave::Udp { idle } => Event::MoveUdp {
                class,
                link,
                family,
                idle,
            },
        }
    }
}

impl Leaving {
    /// The flows of a link that works while better links take its new flows.
    fn rest(&mut self, now: Time, on_return: OnReturn) -> Option<Leave> {
        let first = self.outranked.is_none();
        let (since, moved) = *self.outranked.get_or_insert((now, now));
        match on_return {
            OnReturn::Stay => None,
            OnReturn::Move => first.then_some(Leave::AtOnce),
            OnReturn::Idle => {
                let is_due = now.since(moved) >= UDP_PAUSE && moved.since(since) < MOVE_WITHIN;
                is_due.then(|| {
                    self.outranked = Some((since, now));
                    let is_last = now.since(since) >= MOVE_WITHIN;
                    let idle = if is_last { Duration::ZERO } else { UDP_PAUSE };
                    Leave::Udp { idle }
                })
            }
        }
    }
}
