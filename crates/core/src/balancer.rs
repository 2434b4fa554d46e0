//! The balancer as a state machine: counters, probe results and link states in; choices, probes and events out.

use std::collections::VecDeque;
use std::time::Duration;

use anabranch_policy::abi::{self, Choice, Traffic};

use crate::algorithm::{Algorithm, Retry};
use crate::availability::{Availability, DownCause, Probe, ProbeId, State, Suspicion};
use crate::bandwidth::{AvailableBandwidth, LinkLoad};
use crate::config::{Config, ConfigError};
use crate::link::{Admin, LinkCounters, LinkId, LinkSet, LinkSpec, LinkState, OnReturn, RateNeed};
use crate::measure::{Better, Mixture, Observed, Taken};
use crate::sessions::Sessions;
use crate::targets::{Reach, TargetRecord};
use crate::time::Time;
use crate::weights;

/// A surplus that hosts bound to one link have caused is made up for no further than this.
const SURPLUS_MAX_MILLI: i64 = 16_000;

/// A UDP flow without a packet for so long is moved without its host noticing.
const PAUSE: Duration = Duration::from_secs(1);
/// UDP flows without a pause are moved after this.
const MOVE_WITHIN: Duration = Duration::from_secs(4);

/// Why no balancer can be built of a configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum BuildError {
    #[error("there are {0} links, allowed: 1 to {max}", max = abi::MAX_LINKS)]
    LinkCount(usize),
    #[error(
        "policy `{algorithm}` needs {need} of link `{link}`: declare it, or choose a policy that needs no rate"
    )]
    RateMissing {
        algorithm: String,
        link: String,
        need: RateNeed,
    },
    #[error("link `{link}` has a rate of 0, allowed: 1 bit/s and more, or none")]
    RateZero { link: String },
    #[error("link `{link}` has weight {weight}, allowed: {min} to {max}", min = abi::WEIGHT_MIN, max = abi::WEIGHT_MAX)]
    WeightRange { link: String, weight: u32 },
    #[error("link `{link}` has no weight but others have: give every link a weight, or none")]
    WeightsMixed { link: String },
    #[error(transparent)]
    Config(#[from] ConfigError),
}

/// A probe to send over its link at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeRequest {
    /// Over which it is sent.
    pub link: LinkId,
    /// Of no other probe of this link.
    pub id: ProbeId,
    /// The balancer counts it as lost from here on, or [`Config::queue_max`] later on a loaded link. It wants to hear of
    /// answers up to then and for as long again.
    pub deadline: Time,
    /// In the list of [`Balancer::set_targets`].
    pub target_index: usize,
}

/// What people and the data path should hear of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The link has missed a probe, and is still used.
    Suspected {
        /// Which.
        link: LinkId,
        /// Why.
        suspicion: Suspicion,
    },
    /// The link is used again.
    LinkUp {
        /// Which.
        link: LinkId,
        /// Since it went down.
        down_for: Duration,
    },
    /// `after`: since it was last heard.
    LinkDown {
        /// Which.
        link: LinkId,
        /// Since it was last heard.
        after: Duration,
        /// Why.
        cause: DownCause,
    },
    /// End this link's flows: another link takes them, and the choice that says so was polled before.
    EndFlows {
        /// Whose.
        link: LinkId,
    },
    /// Forget this link's UDP flows that had no packet for `idle`: their next one binds them to a better link.
    MoveUdp {
        /// Whose.
        link: LinkId,
        /// Without a packet of either direction.
        idle: Duration,
    },
}

/// Why the balancer wants to be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wakeup {
    /// Read the counters: [`Balancer::handle_counters`].
    Counters,
    /// A probe is due: [`Balancer::poll_probe`].
    Probe(LinkId),
    /// A deadline or a patience ends: [`Balancer::handle_timeout`].
    Availability(LinkId),
}

/// One link for display.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkStatus {
    /// Which.
    pub link: LinkId,
    /// As configured.
    pub name: String,
    /// A suspicion shows when its first probe is lost, as in [`Event::Suspected`].
    pub state: State,
    /// When it was last taken away, or came back, by itself or by order. Suspicions change nothing.
    pub since: Time,
    /// What the operator wants of it.
    pub admin: Admin,
    /// Takes new flows.
    pub usable: bool,
    /// As configured.
    pub metered: bool,
    /// What is left in each direction (Peng eq. 6); none where no rate is declared.
    pub available_up_bps: Option<u64>,
    /// The same towards the LAN.
    pub available_down_bps: Option<u64>,
    /// As it stands in the choice, without a unit.
    pub weight: u32,
    /// Lost and all probes of the window.
    pub probes_lost: usize,
    /// The size of that window so far.
    pub probes_judged: usize,
    /// All that were ever sent.
    pub probes_sent: u64,
    /// Smoothed; none before the first answer.
    pub round_trip: Option<Duration>,
    /// In the order of [`Balancer::set_targets`].
    pub targets: Vec<TargetRecord>,
    /// Nothing beyond the access line answers.
    pub near_only: bool,
    /// Until when it answers without being used.
    pub held_until: Option<Time>,
    /// How often it went down of late, and the first of those times.
    pub falls: usize,
    /// None without a fall.
    pub first_fall: Option<Time>,
    /// As of the last reading.
    pub counters: LinkCounters,
}

#[derive(Clone, Debug)]
struct Slot {
    spec: LinkSpec,
    admin: Admin,
    availability: Availability,
    load: LinkLoad,
    counters: LinkCounters,
    /// The first counters say what was before, and are no traffic.
    is_counted: bool,
    /// When the current measuring period began.
    period_bytes: u64,
    period_packets: u64,
    period_dispatched: u64,
    /// What it was given beyond its share in this window's earlier periods, in thousandths of a flow.
    surplus_milli: i64,
    weight: u32,
    /// The state that was last made an event.
    told: State,
    down_since: Time,
    /// Whether it works and what is ordered, and since when.
    shown: (bool, Admin),
    changed: Time,
    /// Since when better links take its new flows, and when its UDP flows were last moved.
    outranked: Option<(Time, Time)>,
    /// If it is lost, its flows are to end as soon as another link can take them.
    owes_end: bool,
}

impl Slot {
    fn new(now: Time, spec: LinkSpec, config: &Config) -> Slot {
        let availability = Availability::new(now, config.clone(), spec.metered);
        Slot {
            admin: Admin::Up,
            load: LinkLoad::new(now, &spec, config.queue_max),
            counters: LinkCounters::default(),
            is_counted: false,
            period_bytes: 0,
            period_packets: 0,
            period_dispatched: 0,
            surplus_milli: 0,
            weight: abi::WEIGHT_MAX,
            told: availability.state(),
            down_since: now,
            shown: (false, Admin::Up),
            changed: now,
            outranked: None,
            // An adopted data path may have flows on a link that is gone.
            owes_end: true,
            availability,
            spec,
        }
    }

    /// Goes on as the same link under another configuration.
    fn succeed(&mut self, before: Slot, config: &Config) {
        let same_rates = before.spec.rate_up_bps == self.spec.rate_up_bps
            && before.spec.rate_down_bps == self.spec.rate_down_bps;
        if same_rates {
            self.load = before.load;
        }
        self.admin = before.admin;
        self.availability = before.availability;
        self.availability
            .configure(config.clone(), self.spec.metered);
        self.told = before.told;
        self.down_since = before.down_since;
        self.shown = before.shown;
        self.changed = before.changed;
        self.outranked = before.outranked;
        self.owes_end = before.owes_end;
    }

    fn is_eligible(&self) -> bool {
        self.admin == Admin::Up && self.availability.is_present()
    }

    fn note_change(&mut self, now: Time) {
        let works = !matches!(self.availability.state(), State::Down(_));
        let shown = (works, self.admin);
        if std::mem::replace(&mut self.shown, shown) != shown {
            self.changed = now;
        }
    }

    /// Flows that are bound to it get nowhere, or are not wanted.
    fn is_lost(&self) -> bool {
        self.admin == Admin::Down || matches!(self.availability.state(), State::Down(_))
    }

    /// A suspicion is ordinary until its first probe is lost: most end there.
    fn is_merely_suspected(&self) -> bool {
        let unproven = State::PossiblyDown(Suspicion::Unproven);
        let state = self.availability.state();
        matches!(state, State::PossiblyDown(_))
            && state != unproven
            && !self.availability.is_losing()
    }

    fn is_alive(&self) -> bool {
        self.is_eligible() && !matches!(self.availability.state(), State::Down(_))
    }

    fn bytes(&self) -> u64 {
        self.counters.traffic.tx_bytes + self.counters.traffic.rx_bytes
    }

    fn packets(&self) -> u64 {
        self.counters.traffic.tx_packets + self.counters.traffic.rx_packets
    }

    fn observed<'a>(&'a self, mixture: &'a Mixture) -> Observed<'a> {
        Observed {
            load: &self.load,
            carried_bytes: self.bytes().saturating_sub(self.period_bytes),
            carried_packets: self.packets().saturating_sub(self.period_packets),
            mixture,
        }
    }
}

/// The balancer of one gateway.
///
/// Four kinds of methods, none of which blocks, reads a clock or does IO:
/// - *getters*: [`status`](Self::status), [`usable`](Self::usable), [`algorithm`](Self::algorithm);
/// - *`handle_…`* take what happened, each with the time it happened at;
/// - *commands* take what the operator wants: [`set_admin`](Self::set_admin), [`reconfigure`](Self::reconfigure);
/// - *`poll_…`* say what is to be done.
///
/// After any `handle_…` or command, poll in this order until each is empty: [`poll_choice`](Self::poll_choice) (install
/// it), [`poll_probe`](Self::poll_probe) (send it), [`poll_event`](Self::poll_event) (it holds events back while a choice
/// waits, so that no flow ends before the links that take its successor are known), and wait until
/// [`poll_timeout`](Self::poll_timeout). At the start, tell every link's state, then the counters: there is no choice
/// before the first counters.
#[derive(Debug)]
pub struct Balancer {
    algorithm: Algorithm,
    sessions: Sessions,
    config: Config,
    slots: Vec<Slot>,
    mixture: Mixture,
    usable: LinkSet,
    /// When the counters were last read, if ever.
    counted: Option<Time>,
    started: Time,
    period_began: Time,
    installed: Option<Choice>,
    pending: Option<Choice>,
    events: VecDeque<Event>,
}

impl Balancer {
    /// A balancer over `links`, in the order of their ids, all absent.
    pub fn new(
        now: Time,
        algorithm: Algorithm,
        links: Vec<LinkSpec>,
        config: Config,
    ) -> Result<Self, BuildError> {
        config.validate()?;
        check_links(&algorithm, &links)?;
        Ok(Balancer {
            algorithm,
            sessions: Sessions::default(),
            slots: links
                .into_iter()
                .map(|spec| Slot::new(now, spec, &config))
                .collect(),
            mixture: Mixture::default(),
            usable: LinkSet::default(),
            counted: None,
            started: now,
            period_began: now,
            installed: None,
            pending: None,
            events: VecDeque::new(),
            config,
        })
    }

    // ---- getters

    /// As it was built with.
    pub fn algorithm(&self) -> &Algorithm {
        &self.algorithm
    }

    /// The links that take new flows.
    pub fn usable(&self) -> LinkSet {
        self.usable
    }

    /// New flows find no link that works without this one.
    pub fn is_last(&self, link: LinkId) -> bool {
        let mut others = self.ids().zip(&self.slots).filter(|(id, _)| *id != link);
        self.usable.contains(link) && !others.any(|(_, slot)| slot.is_alive())
    }

    /// Every link for display, in the order of their ids.
    pub fn status(&self, now: Time) -> Vec<LinkStatus> {
        self.ids()
            .zip(&self.slots)
            .map(|(link, slot)| self.link_status(now, link, slot))
            .collect()
    }

    fn link_status(&self, now: Time, link: LinkId, slot: &Slot) -> LinkStatus {
        let (probes_lost, probes_judged) = slot.availability.loss();
        let (falls, first_fall) = slot.availability.falls(now);
        LinkStatus {
            link,
            name: slot.spec.name.clone(),
            state: if slot.is_merely_suspected() {
                State::Up
            } else {
                slot.availability.state()
            },
            since: slot.changed,
            admin: slot.admin,
            usable: self.usable.contains(link),
            metered: slot.spec.metered,
            available_up_bps: slot.load.up().map(AvailableBandwidth::bps),
            available_down_bps: slot.load.down().map(AvailableBandwidth::bps),
            weight: slot.weight,
            probes_lost,
            probes_judged,
            probes_sent: slot.availability.probes_sent(),
            round_trip: slot.availability.round_trip(),
            targets: slot.availability.targets().to_vec(),
            near_only: slot.availability.is_near_only(now),
            held_until: slot.availability.held_until(),
            falls,
            first_fall,
            counters: slot.counters,
        }
    }

    // ---- what happened

    /// The counters of every link, in the order of their ids. Counters that run backwards begin anew.
    pub fn handle_counters(&mut self, now: Time, counters: &[LinkCounters]) {
        let first = self.counted.is_none();
        let elapsed = now.since(self.counted.replace(now).unwrap_or(self.started));
        let mut site = Traffic::default();
        for (slot, &counters) in self.slots.iter_mut().zip(counters) {
            let before = std::mem::replace(&mut slot.counters, counters);
            let carried = match std::mem::replace(&mut slot.is_counted, true) {
                true => difference(&before.traffic, &counters.traffic),
                false => Traffic::default(),
            };
            slot.load.carry(now, &carried);
            slot.availability.observe(now, &carried, &slot.load);
            site += carried;
        }
        self.mixture.add(elapsed, site.tx_bytes, site.rx_bytes);
        let period_ends = self
            .algorithm
            .period
            .is_some_and(|period| self.period_began + period <= now);
        if first {
            self.begin_window(now);
        } else if period_ends {
            self.add_up_surplus();
            self.begin_period(now);
        }
        self.settle(now);
    }

    /// A probe was answered, in time or not: anything came back that only its target could have sent. Nothing needs to
    /// be told of probes without an answer.
    pub fn handle_answer(&mut self, now: Time, link: LinkId, id: ProbeId, round_trip: Duration) {
        let Some(slot) = self.slots.get_mut(link.index()) else {
            return;
        };
        slot.availability.answer(now, id, round_trip);
        self.settle(now);
    }

    /// A link's device, carrier, address or gateway came or went.
    pub fn handle_link_state(&mut self, now: Time, link: LinkId, state: LinkState) {
        let Some(slot) = self.slots.get_mut(link.index()) else {
            return;
        };
        slot.availability.set_link_state(now, state);
        self.settle(now);
    }

    /// Whom probes over this link may ask; at least one. A link begins with one far target.
    pub fn set_targets(&mut self, link: LinkId, reaches: &[Reach]) {
        if let Some(slot) = self.slots.get_mut(link.index()) {
            slot.availability.set_targets(reaches);
        }
    }

    /// The time of [`poll_timeout`](Self::poll_timeout) has come.
    pub fn handle_timeout(&mut self, now: Time) {
        for slot in &mut self.slots {
            slot.availability.tick(now, &slot.load);
        }
        self.settle(now);
    }

    // ---- what the operator wants

    /// Takes a link out of use, or back, even if it is held down. A link the operator drains or takes down is not used even if no other is left.
    pub fn set_admin(&mut self, now: Time, link: LinkId, admin: Admin) {
        let Some(slot) = self.slots.get_mut(link.index()) else {
            return;
        };
        let before = std::mem::replace(&mut slot.admin, admin);
        if admin == Admin::Up {
            slot.availability.release(now);
        }
        let taken_down = admin == Admin::Down && before != Admin::Down;
        slot.owes_end = taken_down
            || (slot.owes_end && (admin == Admin::Down || matches!(slot.told, State::Down(_))));
        self.settle(now);
    }

    /// Which connections stick to the link of their session; by default the algorithm's granularity is all.
    pub fn set_sessions(&mut self, now: Time, sessions: Sessions) {
        self.sessions = sessions;
        self.begin_window(now);
    }

    /// Another algorithm, other links, other windows. A link that keeps its place and its name goes on as it is: known
    /// to be up or down, taken away or not. If the new configuration is refused, nothing changes.
    pub fn reconfigure(
        &mut self,
        now: Time,
        algorithm: Algorithm,
        links: Vec<LinkSpec>,
        config: Config,
    ) -> Result<(), BuildError> {
        let before = std::mem::replace(self, Balancer::new(now, algorithm, links, config)?);
        self.sessions = before.sessions;
        self.counted = before.counted;
        self.installed = before.installed;
        self.mixture = before.mixture;
        self.events = before.events;
        for (slot, before) in self.slots.iter_mut().zip(before.slots) {
            slot.counters = before.counters;
            slot.is_counted = before.is_counted;
            if slot.spec.name == before.spec.name {
                slot.succeed(before, &self.config);
            }
        }
        self.usable = self.take_usable();
        self.begin_window(now);
        self.settle(now);
        Ok(())
    }

    // ---- what is to be done

    /// The choice to install, if it differs from the last.
    pub fn poll_choice(&mut self) -> Option<Choice> {
        let choice = self.pending.take()?;
        self.installed = Some(choice);
        Some(choice)
    }

    /// The next probe that is due.
    pub fn poll_probe(&mut self, now: Time) -> Option<ProbeRequest> {
        self.ids().zip(&mut self.slots).find_map(|(link, slot)| {
            let Probe {
                id,
                deadline,
                target_index,
            } = slot.availability.next_probe(now, &slot.load)?;
            Some(ProbeRequest {
                link,
                id,
                deadline,
                target_index,
            })
        })
    }

    /// The next event; none while a choice waits to be polled.
    pub fn poll_event(&mut self) -> Option<Event> {
        if self.pending.is_some() {
            None
        } else {
            self.events.pop_front()
        }
    }

    /// When to call next, and why.
    pub fn poll_timeout(&self) -> (Time, Wakeup) {
        let counters = self
            .counted
            .map_or(self.started, |counted| counted + self.config.poll);
        let links = self.ids().zip(&self.slots).flat_map(|(link, slot)| {
            let probe = slot
                .availability
                .probe_due()
                .map(|at| (at, Wakeup::Probe(link)));
            let availability = slot
                .availability
                .next_timeout()
                .map(|at| (at, Wakeup::Availability(link)));
            [probe, availability].into_iter().flatten()
        });
        links
            .chain(self.period_end())
            .fold((counters, Wakeup::Counters), Ord::min)
    }

    fn period_end(&self) -> Option<(Time, Wakeup)> {
        let period = self.algorithm.period?;
        self.counted
            .map(|_| (self.period_began + period, Wakeup::Counters))
    }

    // ---- rules

    fn ids(&self) -> impl Iterator<Item = LinkId> + use<> {
        (0..self.slots.len() as u16).map(LinkId)
    }

    /// Brings events and choice up to date with the links' states.
    fn settle(&mut self, now: Time) {
        self.release_the_last(now);
        for link in self.ids() {
            self.tell_state(now, link);
            self.slots[link.index()].note_change(now);
        }
        let usable = self.take_usable();
        if usable != self.usable {
            self.usable = usable;
            self.begin_window(now);
        }
        self.end_flows();
        self.move_flows(now);
    }

    /// A link that falls again and again is better than none.
    fn release_the_last(&mut self, now: Time) {
        if self.slots.iter().any(Slot::is_alive) {
            return;
        }
        for slot in self.slots.iter_mut().filter(|slot| slot.is_eligible()) {
            slot.availability.release(now);
        }
    }

    fn tell_state(&mut self, now: Time, link: LinkId) {
        let slot = &mut self.slots[link.index()];
        let state = slot.availability.state();
        let untold = matches!(state, State::PossiblyDown(_)) && !slot.availability.is_losing();
        if state == slot.told || untold {
            return;
        }
        let was_down = matches!(std::mem::replace(&mut slot.told, state), State::Down(_));
        match state {
            State::Up | State::PossiblyDown(_) if was_down => {
                slot.owes_end &= slot.admin == Admin::Down
            }
            State::Down(_) if !was_down => {
                slot.down_since = now;
                slot.owes_end = true;
            }
            _ => {}
        }
        self.events.extend(match state {
            State::Up if was_down => Some(Event::LinkUp {
                link,
                down_for: now.since(slot.down_since),
            }),
            State::Down(cause) if !was_down => {
                let after = now.since(slot.availability.heard());
                Some(Event::LinkDown { link, after, cause })
            }
            State::PossiblyDown(suspicion) => Some(Event::Suspected { link, suspicion }),
            _ => None,
        });
    }

    /// The links that take new flows: those that are not down, unmetered before metered.
    ///
    /// If probes say that every link is down, all that are present are used nevertheless. Either the probes' targets are
    /// gone and the links are not, or nothing is lost by trying: a refusal is certain to fail.
    fn take_usable(&self) -> LinkSet {
        let those = |is: &dyn Fn(&Slot) -> bool| -> LinkSet {
            self.ids()
                .filter(|link| is(&self.slots[link.index()]))
                .collect()
        };
        let tiers = [
            those(&|slot| slot.is_alive() && !slot.spec.metered),
            those(&Slot::is_alive),
            those(&Slot::is_eligible),
        ];
        tiers
            .into_iter()
            .find(|tier| !tier.is_empty())
            .unwrap_or_default()
    }

    /// Flows end where no new ones begin. A link that is used again before anybody heard of their end keeps them.
    fn end_flows(&mut self) {
        if self.counted.is_none() {
            return;
        }
        let usable = self.usable;
        self.events
            .retain(|event| !matches!(event, Event::EndFlows { link } | Event::MoveUdp { link, .. } if usable.contains(*link)));
        for link in self.ids() {
            let others = self
                .ids()
                .any(|other| other != link && self.usable.contains(other));
            let slot = &mut self.slots[link.index()];
            if slot.owes_end && slot.is_lost() && others && !self.usable.contains(link) {
                slot.owes_end = false;
                self.events.push_back(Event::EndFlows { link });
            }
        }
    }

    /// What flows on a link do when better links return is [`LinkSpec::on_return`].
    fn move_flows(&mut self, now: Time) {
        if self.counted.is_none() {
            return;
        }
        for (link, slot) in self.ids().zip(&mut self.slots) {
            let rests = slot.is_alive() && !self.usable.contains(link) && !self.usable.is_empty();
            if !rests {
                slot.outranked = None;
                continue;
            }
            let first = slot.outranked.is_none();
            let (since, moved) = *slot.outranked.get_or_insert((now, now));
            let moves = match slot.spec.on_return {
                OnReturn::Stay => None,
                OnReturn::Move => first.then_some(Event::EndFlows { link }),
                OnReturn::Idle => {
                    let is_due = now.since(moved) >= PAUSE && moved.since(since) < MOVE_WITHIN;
                    is_due.then(|| {
                        slot.outranked = Some((since, now));
                        let is_last = now.since(since) >= MOVE_WITHIN;
                        let idle = if is_last { Duration::ZERO } else { PAUSE };
                        Event::MoveUdp { link, idle }
                    })
                }
            };
            self.events.extend(moves);
        }
    }

    /// Nobody is owed anything: the links that take part have changed.
    fn begin_window(&mut self, now: Time) {
        for slot in &mut self.slots {
            slot.surplus_milli = 0;
        }
        self.begin_period(now);
    }

    /// What each usable link was given in the period that ends, less its share.
    ///
    /// Without this, every period would begin with a flow to each link, however small its weight, before the greatest
    /// gets its second (eq. 4 with all SD = 0); and where flows are fewer than periods, the greatest would get them all.
    fn add_up_surplus(&mut self) {
        let usable = self.usable;
        let links = self.ids().zip(&mut self.slots);
        let mut slots: Vec<_> = links
            .filter(|(link, _)| usable.contains(*link))
            .map(|(_, slot)| slot)
            .collect();
        let dispatched = |slot: &Slot| {
            slot.counters
                .flows
                .dispatched
                .saturating_sub(slot.period_dispatched)
        };
        let flows: u64 = slots.iter().map(|slot| dispatched(slot)).sum();
        let weights: u64 = slots.iter().map(|slot| u64::from(slot.weight)).sum();
        for slot in &mut slots {
            let share_milli =
                u128::from(flows) * 1000 * u128::from(slot.weight) / u128::from(weights);
            let given_milli = dispatched(slot) as i64 * 1000 - share_milli as i64;
            slot.surplus_milli =
                (slot.surplus_milli + given_milli).clamp(-SURPLUS_MAX_MILLI, SURPLUS_MAX_MILLI);
        }
    }

    /// How many flows a link begins the period with, so that eq. 4 makes up for the surplus: the surplus, and on top the
    /// same number of flows per weight for every link, just so many that none is negative.
    fn flows_ahead(&self, slot: &Slot) -> u32 {
        let usable = self
            .ids()
            .zip(&self.slots)
            .filter(|(link, _)| self.usable.contains(*link));
        let level = |other: &Slot| {
            i128::from(-other.surplus_milli) * i128::from(slot.weight) / i128::from(other.weight)
        };
        let highest = usable.map(|(_, other)| level(other)).max().unwrap_or(0);
        let ahead_milli = (i128::from(slot.surplus_milli) + highest).max(0);
        u32::try_from((ahead_milli + 500) / 1000).unwrap_or(u32::MAX)
    }

    /// Measures, weighs, and counts dispatched flows from here on.
    fn begin_period(&mut self, now: Time) {
        if self.counted.is_none() {
            return;
        }
        self.period_began = now;
        self.weigh();
        for slot in &mut self.slots {
            slot.period_bytes = slot.bytes();
            slot.period_packets = slot.packets();
            slot.period_dispatched = slot.counters.flows.dispatched;
        }
        let choice = self.choice();
        self.pending = Some(choice).filter(|choice| self.installed.as_ref() != Some(choice));
    }

    /// Peng eq. 5 over the usable links.
    fn weigh(&mut self) {
        let (measured, better) = self.measured();
        let of_usable = || {
            self.ids()
                .filter(|&link| self.usable.contains(link))
                .map(|link| measured[link.index()])
        };
        let (least, most) = (
            of_usable().min().unwrap_or(0),
            of_usable().max().unwrap_or(0),
        );
        for (slot, measured) in self.slots.iter_mut().zip(measured) {
            slot.weight = match better {
                Better::More => weights::of_more(measured, most),
                Better::Less => weights::of_less(measured, least),
            };
        }
    }

    /// What the links' weights are in the ratio of, and which value of it is better.
    fn measured(&self) -> (Vec<u64>, Better) {
        let Algorithm {
            measure, weighting, ..
        } = self.algorithm;
        let slots = self.slots.iter();
        match measure.taken {
            Taken::EveryPeriod(take) => {
                let values = slots.map(|slot| take(&slot.observed(&self.mixture)));
                (values.collect(), measure.better)
            }
            // The data path has the measure; weights say by what it is divided.
            Taken::AtChoice(_) | Taken::Never => {
                let weights = slots.map(|slot| weighting.of(&slot.spec));
                (weights.collect(), Better::More)
            }
        }
    }

    fn choice(&self) -> Choice {
        let mut choice = Choice {
            dispatch: self.algorithm.dispatch.into(),
            load: self.algorithm.load() as u32,
            count: self.slots.len() as u32,
            usable: self.usable.targets(),
            working: self.usable.targets(),
            syn_retry: u32::from(self.algorithm.retry == Retry::Elsewhere),
            granularity: self.algorithm.granularity as u32,
            stick: self.sessions.stick.into(),
            except: self.sessions.except(),
            ..Choice::default()
        };
        for (target, slot) in choice.target.iter_mut().zip(&self.slots) {
            // The programs count in 32 bits and subtract modulo 2^32.
            let base = (slot.period_dispatched as u32).wrapping_sub(self.flows_ahead(slot));
            *target = abi::Target::new(slot.weight, base);
        }
        choice
    }
}

fn check_links(algorithm: &Algorithm, links: &[LinkSpec]) -> Result<(), BuildError> {
    if links.is_empty() || links.len() > abi::MAX_LINKS {
        return Err(BuildError::LinkCount(links.len()));
    }
    let weighted = links.iter().any(|spec| spec.weight.is_some());
    for spec in links {
        let link = spec.name.clone();
        if spec.rate_up_bps == Some(0) || spec.rate_down_bps == Some(0) {
            return Err(BuildError::RateZero { link });
        }
        match spec.weight {
            Some(weight) if !(abi::WEIGHT_MIN..=abi::WEIGHT_MAX).contains(&weight) => {
                return Err(BuildError::WeightRange { link, weight });
            }
            None if weighted => return Err(BuildError::WeightsMixed { link }),
            _ => {}
        }
        let need = algorithm.needs_rate();
        if !need.is_met_by(spec) {
            return Err(BuildError::RateMissing {
                algorithm: algorithm.to_string(),
                link,
                need,
            });
        }
    }
    Ok(())
}

/// What was counted between two readings; nothing if the counters began anew.
fn difference(before: &Traffic, after: &Traffic) -> Traffic {
    let of = |field: fn(&Traffic) -> u64| field(after).checked_sub(field(before));
    let all = || {
        Some(Traffic {
            tx_packets: of(|t| t.tx_packets)?,
            tx_bytes: of(|t| t.tx_bytes)?,
            rx_packets: of(|t| t.rx_packets)?,
            rx_bytes: of(|t| t.rx_bytes)?,
            rx_progress: of(|t| t.rx_progress)?,
            syn_retries: of(|t| t.syn_retries)?,
        })
    };
    all().unwrap_or_default()
}
