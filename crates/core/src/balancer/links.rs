//! The state of links, which all classes share: whether a link works for each family, its load, what it has carried, and the
//! operator's orders.

use std::time::Duration;

use anabranch_policy::abi::Traffic;
use anabranch_policy::{Family, PerFamily};

use super::{Event, FoundMtu};
use crate::availability::{Answers, Availability, DownCause, Others, State, Suspicion};
use crate::bandwidth::LinkLoad;
use crate::config::Config;
use crate::link::{Admin, LinkCounters, LinkId, LinkSet, LinkSpec, Missing};
use crate::measure::{FlowSizes, Mixture};
use crate::path_mtu::{Long, PERIOD, PathMtu};
use crate::quality::Flows;
use crate::rounds::{PACE, Rounds};
use crate::time::Time;

/// After this time without a packet on any link the gateway counts as quiet.
const QUIET: Duration = Duration::from_secs(1);
/// A quiet gateway reads its counters this many times less often: each reading wakes a processor.
const QUIET_POLLS: u32 = 4;
/// Links that fall silent within this time count as falling silent together.
const AT_ONCE: Duration = Duration::from_secs(3);
/// Flows do not end while the carrier is missing for less than this: a plug is moved, or a switch negotiates again.
const BOUNCE: Duration = Duration::from_millis(400);
/// How long a link may take to answer after its carrier is back, and to come back after the others if it failed together with them.
const FOLLOW: Duration = Duration::from_secs(3);

#[derive(Clone, Debug)]
pub(super) struct Link {
    pub(super) spec: LinkSpec,
    pub(super) admin: Admin,
    pub(super) paths: PerFamily<Path>,
    pub(super) load: LinkLoad,
    pub(super) counters: LinkCounters,
    pub(super) recent: Flows,
    /// Round trips to the fixed node, measured while [`Links::node`] is set.
    pub(super) rounds: Rounds,
    /// False until the first counters. These include earlier traffic, which says nothing about the present.
    is_counted: bool,
}

/// A link for one address family.
#[derive(Clone, Debug)]
pub(super) struct Path {
    pub(super) availability: Availability,
    pub(super) mtu: PathMtu,
    /// The path MTU of the last event.
    told_mtu: Option<FoundMtu>,
    /// The state of the last event.
    told: State,
    down_since: Time,
    /// Why and since when its flows have reason to end, while the cause may be temporary.
    leaving: Option<Leaving>,
    /// Whether it works and the operator's order, as of the time in `changed`.
    shown: (bool, Admin),
    pub(super) changed: Time,
    /// How often its flows have had reason to end; an adopted data path may have flows on a link that is gone.
    pub(super) losses: u64,
    /// How many of these are final: its flows end even if no other link can take them.
    pub(super) lost_for_good: u64,
}

/// What a path that is down waits for before its flows end, since it may come back.
#[derive(Clone, Copy, Debug)]
struct Leaving {
    /// Since when it has been in this state. If it failed together with all links: since when another link has been there to take
    /// its flows.
    since: Time,
    state: State,
    /// It failed while all others were silent, or as the last of those that failed together.
    with_all: bool,
}

impl Link {
    fn new(now: Time, spec: LinkSpec, config: &Config) -> Link {
        Link {
            admin: Admin::Up,
            paths: PerFamily::from_fn(|_| Path::new(now, config, &spec)),
            load: LinkLoad::new(now, &spec, config.queue_max),
            counters: LinkCounters::default(),
            recent: Flows::default(),
            rounds: Rounds::new(PACE * config.times_rarer(spec.metered)),
            is_counted: false,
            spec,
        }
    }

    /// Keeps its state as the same link under another configuration.
    fn succeed(&mut self, before: Link, config: &Config) {
        let same_rates = before.spec.rate_up_bps == self.spec.rate_up_bps
            && before.spec.rate_down_bps == self.spec.rate_down_bps;
        if same_rates {
            self.load = before.load;
        }
        self.admin = before.admin;
        self.recent = before.recent;
        self.rounds.succeed(before.rounds);
        self.paths = before.paths;
        for path in self.paths.values_mut() {
            let availability = &mut path.availability;
            availability.configure(config.clone(), self.spec.metered);
        }
    }

    /// Handles a change between NAT and no NAT. The link cannot carry its flows any more. It is used again when its
    /// state is reported, which must be after their end.
    fn turn(&mut self, before: &Link) {
        self.admin = before.admin;
        for (family, path) in self.paths.iter_mut() {
            if before.paths[family].availability.was_present() {
                path.lost_for_good = path.losses;
            }
        }
    }

    /// The traffic since the last reading.
    fn count(&mut self, now: Time, counters: LinkCounters) -> Traffic {
        let before = std::mem::replace(&mut self.counters, counters);
        let was_counted = std::mem::replace(&mut self.is_counted, true);
        let carried = LinkCounters {
            traffic: PerFamily::from_fn(|family| match was_counted {
                true => difference(&before.traffic[family], &counters.traffic[family]),
                false => Traffic::default(),
            }),
            ..counters
        };
        let all = carried.carried();
        if was_counted {
            let opened = counters.flows.opened.checked_sub(before.flows.opened);
            self.recent
                .add(now, opened.unwrap_or_default(), all.syn_retries);
        }
        self.load.carry(now, &all);
        for (family, path) in self.paths.iter_mut() {
            let carried = &carried.traffic[family];
            path.availability.observe(now, carried, &self.load);
        }
        all
    }

    pub(super) fn set_admin(&mut self, now: Time, admin: Admin) {
        let before = std::mem::replace(&mut self.admin, admin);
        let is_lost = admin == Admin::Down && before != Admin::Down;
        for path in self.paths.values_mut() {
            if admin == Admin::Up {
                path.availability.release(now);
            }
            path.losses += u64::from(is_lost);
        }
    }

    /// Time between two checks of the path MTU.
    pub(super) fn length_period(&self, config: &Config) -> Duration {
        PERIOD * config.times_rarer(self.spec.metered)
    }

    pub(super) fn is_eligible(&self, family: Family) -> bool {
        let availability = &self.paths[family].availability;
        self.admin == Admin::Up && availability.is_present() && !availability.is_changing()
    }

    pub(super) fn is_alive(&self, family: Family) -> bool {
        self.is_eligible(family) && self.paths[family].works()
    }

    fn fell_lately(&self, now: Time, family: Family) -> bool {
        let path = &self.paths[family];
        let is_down = matches!(path.told, State::Down(DownCause::Unanswered(_)));
        is_down && now.since(path.down_since) < AT_ONCE
    }

    /// Whether it carries new connections of users, as far as is known.
    fn carries(&self, family: Family) -> bool {
        self.is_eligible(family) && self.paths[family].carries()
    }

    /// Whether the flows bound to it cannot or must not continue there.
    pub(super) fn is_lost(&self, family: Family) -> bool {
        self.admin == Admin::Down || !self.paths[family].works()
    }
}

impl Path {
    fn new(now: Time, config: &Config, spec: &LinkSpec) -> Path {
        let availability = Availability::new(now, config.clone(), spec.metered);
        Path {
            mtu: PathMtu::new(now),
            told_mtu: None,
            told: availability.state(),
            down_since: now,
            leaving: None,
            shown: (false, Admin::Up),
            changed: now,
            losses: 1,
            lost_for_good: 0,
            availability,
        }
    }

    fn works(&self) -> bool {
        !matches!(self.availability.state(), State::Down(_))
    }

    fn carries(&self) -> bool {
        self.works() && self.availability.state() != State::Captive
    }

    /// The state for display. A suspicion is shown only when its first probe is lost, because most suspicions end before.
    pub(super) fn shown_state(&self) -> State {
        match self.availability.state() {
            State::PossiblyDown(suspicion)
                if suspicion != Suspicion::Unproven && !self.availability.is_losing() =>
            {
                State::Up
            }
            state => state,
        }
    }

    /// The next packet that searches for the path MTU, if it is time.
    pub(super) fn next_length(&mut self, now: Time, period: Duration) -> Option<Long> {
        if !self.works() {
            self.mtu.rest(now);
            return None;
        }
        // Computed only if it is needed: it looks at all probes of a minute, and this is called in every turn.
        self.mtu.next_at().filter(|due| *due <= now)?;
        let row = self.availability.beyond_chance(now);
        self.mtu.next(now, row, period)
    }

    /// When the next packet that searches for the path MTU is due.
    pub(super) fn length_due(&self) -> Option<Time> {
        self.mtu.next_at().filter(|_| self.works())
    }

    /// The event of a changed path MTU, if it was not returned yet.
    fn tell_length(
        &mut self,
        link: LinkId,
        family: Family,
        found: Option<FoundMtu>,
    ) -> Option<Event> {
        let is_new = std::mem::replace(&mut self.told_mtu, found) != found;
        is_new.then_some(Event::PathMtu {
            link,
            family,
            found,
        })
    }

    fn leave(&mut self, now: Time, others_fell: bool) {
        let state = self.availability.state();
        let is_alone = self.availability.is_alone();
        let with_all = self.availability.fell_unseen() || is_alone && others_fell;
        self.leaving = Some(Leaving {
            since: now,
            state,
            with_all,
        });
    }

    /// Ends its flows when a cause that may be temporary has lasted too long. `others`: another link can take them.
    fn end_flows_in_time(&mut self, now: Time, others: bool) {
        let state = self.availability.state();
        let Some(mut leaving) = self.leaving.filter(|_| !self.works()) else {
            self.leaving = None;
            return;
        };
        if leaving.state != state || (leaving.with_all && !others) {
            (leaving.since, leaving.state) = (now, state);
        }
        let patience = match state {
            _ if leaving.with_all => FOLLOW,
            State::Down(DownCause::Absent(Missing::Carrier)) => BOUNCE,
            State::Down(DownCause::Returning) => FOLLOW,
            _ => Duration::ZERO,
        };
        self.leaving = Some(leaving);
        if now >= leaving.since + patience && (others || !leaving.with_all) {
            self.losses += 1;
            self.leaving = None;
        }
    }

    fn note_change(&mut self, now: Time, admin: Admin) {
        let shown = (self.carries(), admin);
        if std::mem::replace(&mut self.shown, shown) != shown {
            self.changed = now;
        }
    }

    /// The event of a changed state, if it was not returned yet.
    fn tell(
        &mut self,
        now: Time,
        link: LinkId,
        family: Family,
        others_fell: bool,
    ) -> Option<Event> {
        let state = self.availability.state();
        let untold = matches!(state, State::PossiblyDown(_)) && !self.availability.is_losing();
        if state == self.told || untold {
            return None;
        }
        let before = std::mem::replace(&mut self.told, state);
        let was_down = matches!(before, State::Down(_));
        match state {
            State::Up if was_down || before == State::Captive => Some(Event::LinkUp {
                link,
                family,
                down_for: now.since(self.down_since),
            }),
            State::Down(cause) if !was_down => {
                self.down_since = now;
                self.leave(now, others_fell);
                Some(Event::LinkDown {
                    link,
                    family,
                    after: now.since(self.availability.heard()),
                    cause,
                })
            }
            State::Captive => {
                self.down_since = now;
                Some(Event::Captive { link, family })
            }
            State::PossiblyDown(suspicion) => Some(Event::Suspected {
                link,
                family,
                suspicion,
            }),
            _ => None,
        }
    }
}

/// All links, in the order of their ids.
#[derive(Debug)]
pub(super) struct Links {
    all: Vec<Link>,
    pub(super) mixture: Mixture,
    pub(super) sizes: FlowSizes,
    /// The family of the fixed node, if a class's measure asks it.
    pub(super) node: Option<Family>,
    started: Time,
    /// When the counters were last read, if ever.
    pub(super) counted: Option<Time>,
    /// When they last showed a packet.
    busy: Time,
    /// Since when all links of a family have been silent, without an answer from beyond a gateway.
    all_silent: PerFamily<Option<Time>>,
}

impl Links {
    pub(super) fn new(now: Time, specs: Vec<LinkSpec>, config: &Config) -> Links {
        let link = |spec| Link::new(now, spec, config);
        Links {
            all: specs.into_iter().map(link).collect(),
            mixture: Mixture::default(),
            sizes: FlowSizes::default(),
            node: None,
            started: now,
            counted: None,
            busy: now,
            all_silent: PerFamily::default(),
        }
    }

    /// Takes over the state of links under the former configuration: of each with the same place, name and NAT.
    pub(super) fn succeed(&mut self, before: Links, config: &Config) {
        self.counted = before.counted;
        self.all_silent = before.all_silent;
        self.mixture = before.mixture;
        self.sizes = before.sizes;
        for (link, before) in self.all.iter_mut().zip(before.all) {
            link.counters = before.counters;
            link.is_counted = before.is_counted;
            if link.spec.name != before.spec.name {
                continue;
            }
            match link.spec.routed == before.spec.routed {
                true => link.succeed(before, config),
                false => link.turn(&before),
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = LinkId> + use<> {
        (0..self.all.len() as u16).map(LinkId)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (LinkId, &Link)> {
        self.ids().zip(&self.all)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (LinkId, &mut Link)> {
        self.ids().zip(&mut self.all)
    }

    /// Sets over which links the answers of each link come back. That depends on its NAT, and on whether a class uses it packet by
    /// packet.
    pub(super) fn listen(&mut self, is_per_packet: impl Fn(LinkId) -> bool) {
        for (id, link) in self.iter_mut() {
            let answers = match link.spec.routed {
                false => Answers::Here,
                true if is_per_packet(id) => Answers::Uncounted,
                true => Answers::Anywhere,
            };
            for path in link.paths.values_mut() {
                path.availability.set_answers(answers);
            }
        }
    }

    pub(super) fn specs(&self) -> impl Iterator<Item = &LinkSpec> {
        self.all.iter().map(|link| &link.spec)
    }

    pub(super) fn get_mut(&mut self, link: LinkId) -> Option<&mut Link> {
        self.all.get_mut(link.index())
    }

    fn those(&self, is: impl Fn(&Link) -> bool) -> LinkSet {
        let fit = self.iter().filter(|(_, link)| is(link));
        fit.map(|(id, _)| id).collect()
    }

    /// The links that new flows of a family may take.
    ///
    /// Captive links are among them if there are no others. If probes say that every link is down, all links that are present are
    /// used nevertheless: either only the probes' targets have failed, or nothing is lost by trying, because a refused flow would
    /// fail for certain.
    pub(super) fn working(&self, family: Family) -> LinkSet {
        let carry = self.those(|link| link.carries(family));
        let alive = || self.those(|link| link.is_alive(family));
        let eligible = || self.those(|link| link.is_eligible(family));
        let some = |links: LinkSet| (!links.is_empty()).then_some(links);
        some(carry)
            .or_else(|| some(alive()))
            .unwrap_or_else(eligible)
    }

    /// Of those, only the unmetered ones, if any of them works.
    pub(super) fn preferred(&self, family: Family) -> LinkSet {
        let unmetered = self.those(|link| link.carries(family) && !link.spec.metered);
        if unmetered.is_empty() {
            self.working(family)
        } else {
            unmetered
        }
    }

    pub(super) fn handle_counters(&mut self, now: Time, counters: &[LinkCounters]) {
        let elapsed = now.since(self.counted.replace(now).unwrap_or(self.started));
        let mut site = Traffic::default();
        let mut opened = 0;
        for (link, &counters) in self.all.iter_mut().zip(counters) {
            opened += counters
                .flows
                .opened
                .saturating_sub(link.counters.flows.opened);
            site += link.count(now, counters);
        }
        if site.tx_packets + site.rx_packets > 0 {
            self.busy = now;
        }
        self.mixture.add(elapsed, site.tx_bytes, site.rx_bytes);
        self.sizes
            .add(elapsed, site.tx_bytes + site.rx_bytes, opened);
    }

    /// When to read the counters next.
    pub(super) fn read_due(&self, poll: Duration) -> Time {
        let Some(counted) = self.counted else {
            return self.started;
        };
        counted + poll * if self.is_quiet() { QUIET_POLLS } else { 1 }
    }

    /// Whether no link has carried a packet lately.
    pub(super) fn is_quiet(&self) -> bool {
        self.counted
            .is_some_and(|counted| counted.since(self.busy) >= QUIET)
    }

    /// Brings the states of links up to date, and returns the events, in the order of the links' ids.
    pub(super) fn settle(&mut self, now: Time) -> Vec<Event> {
        for family in Family::ALL {
            self.compare(now, family);
            self.release_the_last(now, family);
        }
        let alive = PerFamily::from_fn(|family| self.those(|link| link.is_alive(family)));
        let fell = PerFamily::from_fn(|family| self.those(|link| link.fell_lately(now, family)));
        let mut events = Vec::new();
        for (id, link) in self.iter_mut() {
            for (family, path) in link.paths.iter_mut() {
                events.extend(path.tell(now, id, family, !fell[family].is_empty()));
                path.end_flows_in_time(now, !alive[family].is_empty());
                path.note_change(now, link.admin);
            }
        }
        events
    }

    /// The path MTU of a link, if longer packets vanish, and whether other links show the same.
    pub(super) fn found_mtu(&self, id: LinkId, family: Family) -> Option<FoundMtu> {
        let bytes = self.all.get(id.index())?.paths[family].mtu.found()?;
        let others = self.iter().filter(|(other, _)| *other != id);
        let others = others.filter(|(_, link)| link.is_alive(family));
        let shown: Vec<bool> = others
            .filter_map(|(_, link)| link.paths[family].mtu.is_shown_by(bytes))
            .collect();
        let is_alike = !shown.is_empty() && shown.iter().all(|is_shown| *is_shown);
        Some(FoundMtu { bytes, is_alike })
    }

    /// The events of changed path MTUs that were not returned yet.
    pub(super) fn tell_lengths(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        for (id, family) in self
            .ids()
            .flat_map(|id| Family::ALL.map(|family| (id, family)))
        {
            let found = self.found_mtu(id, family);
            let path = &mut self.all[id.index()].paths[family];
            events.extend(path.tell_length(id, family, found));
        }
        events
    }

    /// Gives every link the state of the others. When one begins to lose probes, those others are probed from which nothing came
    /// since.
    fn compare(&mut self, now: Time, family: Family) {
        self.follow_silence(now, family);
        let all_silent = self.all_silent[family].is_some();
        let fares: Vec<_> = self
            .all
            .iter()
            .map(|link| {
                let path = &link.paths[family].availability;
                link.is_alive(family).then_some((
                    path.silent_since(),
                    Others {
                        heard: Some(path.heard()),
                        carried: path.progressed(),
                        all_silent,
                        kinds: path.kinds_heard(),
                        complained: path.complaint_to_compare(),
                    },
                ))
            })
            .collect();
        let doubted = fares.iter().flatten().filter_map(|fare| fare.0).max();
        for (place, link) in self.all.iter_mut().enumerate() {
            let others = fares.iter().enumerate();
            let others = others.filter_map(|(other, fare)| fare.filter(|_| other != place));
            let none = Others {
                all_silent,
                ..Others::default()
            };
            let others = others.fold(none, |all, (_, one)| all.with(one));
            let path = &mut link.paths[family].availability;
            path.set_others(now, others);
            if doubted.is_some_and(|since| path.heard() < since) {
                path.ask_soon(now);
            }
        }
    }

    /// Updates since when all links of a family are silent, which fell silent together and had no answer from beyond their gateways
    /// since.
    fn follow_silence(&mut self, now: Time, family: Family) {
        let eligible = self.all.iter().filter(|link| link.is_eligible(family));
        let paths = || {
            eligible
                .clone()
                .map(|link| &link.paths[family].availability)
        };
        if let Some(since) = self.all_silent[family] {
            let is_heard = paths().any(|path| path.far_heard() > Some(since));
            self.all_silent[family] = Some(since).filter(|_| !is_heard && paths().count() > 1);
            return;
        }
        let silent: Option<Vec<Time>> = paths().map(Availability::silent_since).collect();
        let span = silent.and_then(|all| Some((*all.iter().min()?, *all.iter().max()?, all.len())));
        let is_at_once =
            |(first, last, count): (Time, Time, usize)| count > 1 && last.since(first) < AT_ONCE;
        self.all_silent[family] = span.filter(|span| is_at_once(*span)).map(|_| now);
    }

    /// Ends the hold-down of the last link: a link that fails again and again is better than none.
    fn release_the_last(&mut self, now: Time, family: Family) {
        if self.all.iter().any(|link| link.is_alive(family)) {
            return;
        }
        let all = self.all.iter_mut();
        for link in all.filter(|link| link.is_eligible(family)) {
            link.paths[family].availability.release(now);
        }
    }
}

/// The traffic between two readings; zero if the counters were reset.
pub(super) fn difference(before: &Traffic, after: &Traffic) -> Traffic {
    let of = |field: fn(&Traffic) -> u64| field(after).checked_sub(field(before));
    let all = || {
        Some(Traffic {
            tx_packets: of(|t| t.tx_packets)?,
            tx_bytes: of(|t| t.tx_bytes)?,
            rx_packets: of(|t| t.rx_packets)?,
            rx_bytes: of(|t| t.rx_bytes)?,
            rx_progress: of(|t| t.rx_progress)?,
            syn_retries: of(|t| t.syn_retries)?,
            retrying_hosts: of(|t| t.retrying_hosts)?,
            retried_ends: of(|t| t.retried_ends)?,
        })
    };
    all().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counters_of_a_gateway_that_carries_nothing_are_read_a_quarter_as_often() {
        const POLL: Duration = Duration::from_millis(50);
        let mut links = Links::new(Time::ZERO, vec![LinkSpec::default()], &Config::default());
        let mut counters = LinkCounters::default();
        let mut readings = |packets: u64, links: &mut Links| {
            let begun = links.read_due(POLL);
            let mut count = 0;
            while links.read_due(POLL) < begun + Duration::from_secs(2) {
                counters.traffic[Family::V6].rx_packets += packets;
                links.handle_counters(links.read_due(POLL), &[counters]);
                count += 1;
            }
            count
        };
        assert_eq!(readings(1, &mut links), 40);
        assert_eq!(readings(0, &mut links), 20 + 5);
        assert_eq!(readings(0, &mut links), 10);
        assert_eq!(readings(1, &mut links), 40, "at the first packet as before");
    }
}
