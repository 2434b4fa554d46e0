//! What is a link's, whichever classes use it: whether it works, its load, what it has carried, what the operator wants.

use anabranch_policy::abi::Traffic;

use super::Event;
use crate::availability::{Answers, Availability, State, Suspicion};
use crate::bandwidth::LinkLoad;
use crate::config::Config;
use crate::link::{Admin, LinkCounters, LinkId, LinkSet, LinkSpec};
use crate::measure::Mixture;
use crate::time::Time;

#[derive(Clone, Debug)]
pub(super) struct Link {
    pub(super) spec: LinkSpec,
    pub(super) admin: Admin,
    pub(super) availability: Availability,
    pub(super) load: LinkLoad,
    pub(super) counters: LinkCounters,
    /// The first counters say what was before, and are no traffic.
    is_counted: bool,
    /// The state that was last made an event.
    told: State,
    down_since: Time,
    /// Whether it works and what is ordered, and since when.
    shown: (bool, Admin),
    pub(super) changed: Time,
    /// How often its flows have had reason to end. An adopted data path may have flows on a link that is gone.
    pub(super) losses: u64,
    /// As many of these were for good: its flows end though no other link can take them.
    pub(super) lost_for_good: u64,
}

impl Link {
    fn new(now: Time, spec: LinkSpec, config: &Config) -> Link {
        let availability = Availability::new(now, config.clone(), spec.metered);
        Link {
            admin: Admin::Up,
            load: LinkLoad::new(now, &spec, config.queue_max),
            counters: LinkCounters::default(),
            is_counted: false,
            told: availability.state(),
            down_since: now,
            shown: (false, Admin::Up),
            changed: now,
            losses: 1,
            lost_for_good: 0,
            availability,
            spec,
        }
    }

    /// Goes on as the same link under another configuration.
    fn succeed(&mut self, before: Link, config: &Config) {
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
        self.losses = before.losses;
    }

    /// Goes on with NAT where there was none, or without. Its flows have endpoints that it cannot carry any more, and it is
    /// in use again when its state is told anew, after their end.
    fn turn(&mut self, before: &Link) {
        self.admin = before.admin;
        self.lost_for_good = self.losses;
    }

    /// What it has carried since the last reading.
    fn count(&mut self, now: Time, counters: LinkCounters) -> Traffic {
        let before = std::mem::replace(&mut self.counters, counters);
        let carried = match std::mem::replace(&mut self.is_counted, true) {
            true => difference(&before.traffic, &counters.traffic),
            false => Traffic::default(),
        };
        self.load.carry(now, &carried);
        self.availability.observe(now, &carried, &self.load);
        carried
    }

    pub(super) fn set_admin(&mut self, now: Time, admin: Admin) {
        let before = std::mem::replace(&mut self.admin, admin);
        if admin == Admin::Up {
            self.availability.release(now);
        }
        self.losses += u64::from(admin == Admin::Down && before != Admin::Down);
    }

    fn is_eligible(&self) -> bool {
        self.admin == Admin::Up && self.availability.is_present()
    }

    pub(super) fn is_alive(&self) -> bool {
        self.is_eligible() && !matches!(self.availability.state(), State::Down(_))
    }

    /// Flows that are bound to it get nowhere, or are not wanted.
    pub(super) fn is_lost(&self) -> bool {
        self.admin == Admin::Down || matches!(self.availability.state(), State::Down(_))
    }

    /// A suspicion is ordinary until its first probe is lost: most end there.
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

    fn note_change(&mut self, now: Time) {
        let works = !matches!(self.availability.state(), State::Down(_));
        let shown = (works, self.admin);
        if std::mem::replace(&mut self.shown, shown) != shown {
            self.changed = now;
        }
    }

    /// What has not been told of its state.
    fn tell(&mut self, now: Time, link: LinkId) -> Option<Event> {
        let state = self.availability.state();
        let untold = matches!(state, State::PossiblyDown(_)) && !self.availability.is_losing();
        if state == self.told || untold {
            return None;
        }
        let was_down = matches!(std::mem::replace(&mut self.told, state), State::Down(_));
        match state {
            State::Up if was_down => Some(Event::LinkUp {
                link,
                down_for: now.since(self.down_since),
            }),
            State::Down(cause) if !was_down => {
                self.down_since = now;
                self.losses += 1;
                let after = now.since(self.availability.heard());
                Some(Event::LinkDown { link, after, cause })
            }
            State::PossiblyDown(suspicion) => Some(Event::Suspected { link, suspicion }),
            _ => None,
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.counters.traffic.tx_bytes + self.counters.traffic.rx_bytes
    }

    pub(super) fn packets(&self) -> u64 {
        self.counters.traffic.tx_packets + self.counters.traffic.rx_packets
    }
}

/// All links, in the order of their ids.
#[derive(Debug)]
pub(super) struct Links {
    all: Vec<Link>,
    pub(super) mixture: Mixture,
    started: Time,
    /// When the counters were last read, if ever.
    pub(super) counted: Option<Time>,
}

impl Links {
    pub(super) fn new(now: Time, specs: Vec<LinkSpec>, config: &Config) -> Links {
        let link = |spec| Link::new(now, spec, config);
        Links {
            all: specs.into_iter().map(link).collect(),
            mixture: Mixture::default(),
            started: now,
            counted: None,
        }
    }

    /// Goes on under another configuration: a link that keeps its place, its name and its NAT, as the same.
    pub(super) fn succeed(&mut self, before: Links, config: &Config) {
        self.counted = before.counted;
        self.mixture = before.mixture;
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

    /// Where answers are met: by what is configured of each link, and whether a class uses it packet by packet.
    pub(super) fn listen(&mut self, is_per_packet: impl Fn(LinkId) -> bool) {
        for (id, link) in self.iter_mut() {
            link.availability.set_answers(match link.spec.routed {
                false => Answers::Here,
                true if is_per_packet(id) => Answers::Uncounted,
                true => Answers::Anywhere,
            });
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

    /// Those that new flows may take.
    ///
    /// If probes say that every link is down, all that are present are used nevertheless. Either the probes' targets are
    /// gone and the links are not, or nothing is lost by trying: a refusal is certain to fail.
    pub(super) fn working(&self) -> LinkSet {
        let alive = self.those(Link::is_alive);
        if alive.is_empty() {
            self.those(Link::is_eligible)
        } else {
            alive
        }
    }

    /// Of those, the unmetered if any of them is alive.
    pub(super) fn preferred(&self) -> LinkSet {
        let unmetered = self.those(|link| link.is_alive() && !link.spec.metered);
        if unmetered.is_empty() {
            self.working()
        } else {
            unmetered
        }
    }

    pub(super) fn handle_counters(&mut self, now: Time, counters: &[LinkCounters]) {
        let elapsed = now.since(self.counted.replace(now).unwrap_or(self.started));
        let mut site = Traffic::default();
        for (link, &counters) in self.all.iter_mut().zip(counters) {
            site += link.count(now, counters);
        }
        self.mixture.add(elapsed, site.tx_bytes, site.rx_bytes);
    }

    /// What happened to the links, in the order of their ids.
    pub(super) fn settle(&mut self, now: Time) -> Vec<Event> {
        self.release_the_last(now);
        let mut events = Vec::new();
        for (id, link) in self.iter_mut() {
            events.extend(link.tell(now, id));
            link.note_change(now);
        }
        events
    }

    /// A link that falls again and again is better than none.
    fn release_the_last(&mut self, now: Time) {
        if self.all.iter().any(Link::is_alive) {
            return;
        }
        for link in self.all.iter_mut().filter(|link| link.is_eligible()) {
            link.availability.release(now);
        }
    }
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
