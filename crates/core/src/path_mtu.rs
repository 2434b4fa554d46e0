//! Finds the path MTU of a link on which longer packets vanish without an error (an MTU black hole, RFC 2923 section 2.1).
//!
//! As in RFC 8899, packets of chosen length are sent that must not be fragmented, and only their answers count: here
//! they are echo requests to far hosts. One as long as the link's device allows goes out now and then. If it is not answered,
//! *pairs* follow, a long and a short one to the same host: if only the short one is answered, this is evidence against
//! that length. A length is too long when
//!
//! - so many pairs in a row are evidence against it that chance would do this once in [`CHANCE`](crate::availability::CHANCE) rows,
//!   by what the link usually loses; and
//! - they are of two hosts, if there are two, and every host was probed: on the path to a single host anything may drop long
//!   packets.
//!
//! Then the link is used with [`BASE`] at once, while a binary search finds the longest common length that comes through. One
//! answer to a long packet proves that length, however late it comes. An ICMP error proves nothing: anybody can forge it, and where
//! one arrives, hosts find the path MTU themselves. If all links show the same, the probed hosts may be the cause
//! ([`PathMtu::is_shown_by`]). The lower MTU is used all the same, since it costs little and a black hole much; the status says so.

use std::time::Duration;

use crate::targets::ProbeId;
use crate::time::Time;

/// Every IPv6 link carries this length (RFC 8200 section 5); IPv4 paths that carry less are hardly found (RFC 8899 section 5.1.2).
pub const BASE: u32 = 1280;
/// A packet without an answer after this time counts as lost, unless the answer comes later.
const PATIENCE: Duration = Duration::from_secs(2);
/// Time from one check to the next, on a link that is not metered.
pub(crate) const PERIOD: Duration = Duration::from_secs(60);
/// Time from one pair to the next.
const SPACING: Duration = Duration::from_millis(100);
/// The least number of pairs in a row that are evidence: fewer may be chance, or a router that was busy.
const PAIRS_LEAST: u32 = 3;
/// How many hosts are probed before a length is declared too long, if there are that many.
const HOSTS_ASKED: usize = 8;
/// A trial is given up after this many times the pairs it needs.
const PAIRS_TIMES: usize = 4;
/// Common lengths: those that tunnels, PPPoE and mobile networks leave of 1500 bytes, and of longer frames.
const USUAL: [u32; 28] = [
    1300, 1320, 1340, 1350, 1360, 1380, 1392, 1400, 1406, 1412, 1420, 1428, 1432, 1440, 1442, 1446,
    1450, 1454, 1460, 1468, 1472, 1476, 1480, 1488, 1492, 1500, 4000, 8000,
];

/// An echo request to send. It goes to a far host, whose answer has the same length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Long {
    pub id: ProbeId,
    pub host: usize,
    /// Length of the whole packet.
    pub bytes: u32,
    pub deadline: Time,
}

/// The search of one link and family.
#[derive(Clone, Debug)]
pub(crate) struct PathMtu {
    /// MTU of the device; 0: unknown.
    own: u32,
    hosts: usize,
    /// The path MTU that was found, if longer packets vanish.
    found: Option<u32>,
    step: Step,
    trial: Trial,
    sent: u64,
    /// The host that was probed last.
    turn: usize,
    /// Time of the next check.
    due: Time,
    /// How many pairs in a row cannot be chance, ...
    needed: u32,
    /// ... given the losses up to this time.
    now: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Wait for the next check.
    Rest,
    /// Try the next longer common length once: the path may have changed.
    Raise,
    /// Check the length in use.
    Check,
    /// Binary search: `low` arrives, `high` does not.
    Search { low: u32, high: u32 },
}

/// What is known of one length.
#[derive(Clone, Debug, Default)]
struct Trial {
    bytes: u32,
    pairs: Vec<Pair>,
    /// The host to which the short packet of a pair still has to be sent.
    short: Option<usize>,
    last: Option<Time>,
}

#[derive(Clone, Copy, Debug)]
struct Pair {
    host: usize,
    sent: Time,
    long: ProbeId,
    /// None: the long packet was sent alone.
    short: Option<ProbeId>,
    short_answered: bool,
    /// It proves nothing, because it could not be sent or its answer was too short.
    void: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Carried,
    TooLong,
    /// No answer even to short packets.
    Unknown,
}

impl Pair {
    fn speaks(&self, now: Time) -> bool {
        self.short_answered && !self.void && self.is_over(now)
    }

    fn is_over(&self, now: Time) -> bool {
        now >= self.sent + PATIENCE
    }
}

impl Trial {
    fn new(bytes: u32) -> Self {
        Trial {
            bytes,
            ..Trial::default()
        }
    }

    fn outcome(&self, now: Time, needed: u32, hosts: usize) -> Option<Outcome> {
        let speaking = || self.pairs.iter().filter(|pair| pair.speaks(now));
        let first = speaking().next();
        let others = speaking().any(|pair| Some(pair.host) != first.map(|first| first.host));
        if speaking().count() >= needed as usize && (others || hosts < 2) {
            return Some(Outcome::TooLong);
        }
        let is_over = self.pairs.iter().all(|pair| pair.is_over(now));
        let is_spent = self.pairs.len() >= needed as usize * PAIRS_TIMES;
        (is_spent && is_over).then_some(Outcome::Unknown)
    }

    fn waiting(&self, now: Time) -> usize {
        self.pairs.iter().filter(|pair| !pair.is_over(now)).count()
    }

    /// When the next pair may be sent. The first long packet of a check is sent alone.
    fn next_at(&self, now: Time, needed: u32, alone: bool) -> Option<Time> {
        let Some(last) = self.last else {
            return Some(now);
        };
        let waits = match alone && self.pairs.len() == 1 {
            true => self.waiting(now) > 0,
            false => self.waiting(now) >= needed as usize,
        };
        let is_spent = self.pairs.len() >= needed as usize * PAIRS_TIMES;
        (!waits && !is_spent).then_some(last + SPACING)
    }

    fn next_end(&self, now: Time) -> Option<Time> {
        let pairs = self.pairs.iter().filter(|pair| !pair.is_over(now));
        pairs.map(|pair| pair.sent + PATIENCE).min()
    }
}

impl PathMtu {
    pub fn new(now: Time) -> Self {
        PathMtu {
            own: 0,
            hosts: 0,
            found: None,
            step: Step::Rest,
            trial: Trial::default(),
            sent: 0,
            turn: 0,
            due: now,
            needed: PAIRS_LEAST,
            now,
        }
    }

    /// Sets the device's MTU and the number of far hosts. The path of another device has to be searched again.
    pub fn set(&mut self, now: Time, own: u32, hosts: usize) {
        if self.own != own {
            *self = PathMtu {
                sent: self.sent,
                ..PathMtu::new(now)
            };
        }
        if self.hosts != hosts {
            self.rest(now);
        }
        (self.own, self.hosts) = (own, hosts);
    }

    /// The path MTU if longer packets vanish; none if packets as long as the device allows arrive, as far as is known.
    pub fn found(&self) -> Option<u32> {
        self.found
    }

    /// Whether packets longer than `bytes` do not arrive here either; none if that cannot be probed.
    pub fn is_shown_by(&self, bytes: u32) -> Option<bool> {
        let can_tell = self.hosts > 0 && self.own > bytes;
        can_tell.then(|| self.found.is_some_and(|found| found <= bytes))
    }

    /// Drops the results of outstanding packets, because the link went away meanwhile.
    pub fn rest(&mut self, due: Time) {
        self.step = Step::Rest;
        self.trial = Trial::default();
        self.due = due;
    }

    /// When to call [`PathMtu::next`].
    pub fn next_at(&self) -> Option<Time> {
        if self.own <= BASE || self.hosts == 0 {
            return None;
        }
        match self.step {
            Step::Rest => Some(self.due),
            _ if self.trial.short.is_some() => Some(self.now),
            _ => {
                let ends = self.trial.next_end(self.now);
                self.sends_at()
                    .into_iter()
                    .chain(ends)
                    .min()
                    .or(Some(self.now))
            }
        }
    }

    fn sends_at(&self) -> Option<Time> {
        let alone = self.step.begins_alone();
        self.trial.next_at(self.now, self.needed, alone)
    }

    /// The packet to send at `now` if one is due. `row` is how many losses in a row cannot be chance on this link.
    pub fn next(&mut self, now: Time, row: u32, period: Duration) -> Option<Long> {
        let each_host = self.hosts.min(HOSTS_ASKED) as u32;
        (self.now, self.needed) = (now, row.max(PAIRS_LEAST).max(each_host));
        while self.next_at().is_some_and(|at| at <= now) {
            if self.step == Step::Rest {
                self.begin(now, period);
            } else if let Some(host) = self.trial.short.take() {
                return Some(self.send_short(now, host));
            } else if let Some(outcome) = self.outcome(now) {
                self.conclude(now, outcome, period);
            } else {
                let is_due = self.sends_at().is_some_and(|at| at <= now);
                return is_due.then(|| self.send_long(now));
            }
        }
        None
    }

    /// Reports a complete answer, in time or not.
    pub fn answer(&mut self, now: Time, id: ProbeId, period: Duration) {
        if self.trial.pairs.iter().any(|pair| pair.long == id) {
            self.conclude(now, Outcome::Carried, period);
            return;
        }
        let mut pairs = self.trial.pairs.iter_mut();
        if let Some(pair) = pairs.find(|pair| pair.short == Some(id)) {
            pair.short_answered = true;
        }
    }

    /// Reports that the packet could not be sent, or that its answer was too short.
    pub fn withdraw(&mut self, id: ProbeId) {
        let mut pairs = self.trial.pairs.iter_mut();
        if let Some(pair) = pairs.find(|pair| pair.long == id || pair.short == Some(id)) {
            pair.void = true;
        }
    }

    fn outcome(&self, now: Time) -> Option<Outcome> {
        if self.step == Step::Raise {
            let is_lost = self.trial.pairs.iter().any(|pair| pair.is_over(now));
            return is_lost.then_some(Outcome::TooLong);
        }
        self.trial.outcome(now, self.needed, self.hosts)
    }

    fn begin(&mut self, now: Time, period: Duration) {
        self.due = now + period;
        let longer = self
            .found
            .and_then(|found| self.lengths(found, self.own + 1).next());
        (self.step, self.trial) = match longer {
            Some(longer) => (Step::Raise, Trial::new(longer)),
            None => (Step::Check, Trial::new(self.own)),
        };
    }

    fn conclude(&mut self, now: Time, outcome: Outcome, period: Duration) {
        let (own, tried) = (self.own, self.trial.bytes);
        let in_use = self.found.unwrap_or(own);
        match (self.step, outcome) {
            (Step::Raise, Outcome::Carried) => self.search(now, tried, own + 1, period),
            (Step::Raise, _) if in_use > BASE => {
                (self.step, self.trial) = (Step::Check, Trial::new(in_use));
            }
            (Step::Check, Outcome::TooLong) => {
                self.found = Some(BASE);
                self.search(now, BASE, in_use, period);
            }
            (Step::Search { high, .. }, Outcome::Carried) => self.search(now, tried, high, period),
            (Step::Search { low, .. }, Outcome::TooLong) => self.search(now, low, tried, period),
            (Step::Search { low, .. }, Outcome::Unknown) => {
                self.found = Some(low);
                self.rest(now + period);
            }
            _ => self.rest(now + period),
        }
    }

    fn search(&mut self, now: Time, low: u32, high: u32, period: Duration) {
        let between: Vec<u32> = self.lengths(low, high).collect();
        let Some(middle) = between.get(between.len() / 2) else {
            self.found = Some(low).filter(|low| *low < self.own);
            self.rest(now + period);
            return;
        };
        self.step = Step::Search { low, high };
        self.trial = Trial::new(*middle);
    }

    /// The common lengths between these, in ascending order.
    fn lengths(&self, low: u32, high: u32) -> impl Iterator<Item = u32> + use<> {
        let own = self.own;
        let usual = USUAL.into_iter().filter(move |bytes| *bytes < own);
        let all = usual.chain([own]);
        all.filter(move |bytes| low < *bytes && *bytes < high)
    }

    fn send_long(&mut self, now: Time) -> Long {
        let is_alone = self.trial.pairs.is_empty() && self.step.begins_alone();
        let long = self.packet(now, self.trial.bytes, None);
        let trial = &mut self.trial;
        trial.last = Some(now);
        trial.short = (!is_alone).then_some(long.host);
        trial.pairs.push(Pair {
            host: long.host,
            sent: now,
            long: long.id,
            short: None,
            short_answered: false,
            void: false,
        });
        long
    }

    fn send_short(&mut self, now: Time, host: usize) -> Long {
        let short = self.packet(now, BASE, Some(host));
        if let Some(pair) = self.trial.pairs.last_mut() {
            pair.short = Some(short.id);
        }
        short
    }

    /// A packet to `host`, or to the next host in turn.
    fn packet(&mut self, now: Time, bytes: u32, host: Option<usize>) -> Long {
        let id = ProbeId(self.sent);
        self.sent += 1;
        Long {
            id,
            host: host.unwrap_or_else(|| self.next_host()),
            bytes,
            deadline: now + PATIENCE,
        }
    }

    fn next_host(&mut self) -> usize {
        self.turn = (self.turn + 1) % self.hosts;
        self.turn
    }
}

impl Step {
    fn begins_alone(self) -> bool {
        matches!(self, Step::Raise | Step::Check)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::multilink::tests::random;

    const MS: Duration = Duration::from_millis(1);

    /// A path of so many bytes to two hosts, 20 ms away, that loses whatever `loses` says.
    struct World<F> {
        now: Time,
        mtu: PathMtu,
        /// So many losses in a row are no chance.
        row: u32,
        carries: u32,
        loses: F,
        answers: Vec<(Time, ProbeId)>,
        sent: Vec<Long>,
    }

    impl<F: FnMut(&Long) -> bool> World<F> {
        fn new(own: u32, carries: u32, loses: F) -> Self {
            let mut mtu = PathMtu::new(Time::ZERO);
            mtu.set(Time::ZERO, own, 2);
            World {
                now: Time::ZERO,
                mtu,
                row: 3,
                carries,
                loses,
                answers: Vec::new(),
                sent: Vec::new(),
            }
        }

        fn run(&mut self, time: Duration) {
            let end = self.now + time;
            while self.now < end {
                while let Some(long) = self.mtu.next(self.now, self.row, PERIOD) {
                    self.sent.push(long);
                    if long.bytes <= self.carries && !(self.loses)(&long) {
                        self.answers.push((self.now + MS * 20, long.id));
                    }
                }
                let due = self.mtu.next_at();
                assert!(due.is_none_or(|due| due > self.now), "it stands still");
                let answer = self.answers.iter().map(|(at, _)| *at).min();
                self.now = due.into_iter().chain(answer).min().unwrap_or(end).min(end);
                let (due, later) = self.answers.iter().partition(|(at, _)| *at <= self.now);
                self.answers = later;
                let due: Vec<_> = due;
                for (_, id) in due {
                    self.mtu.answer(self.now, id, PERIOD);
                }
            }
        }
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_path_that_carries_all_costs_one_packet_a_minute() {
        let mut world = World::new(1500, 1500, |_| false);
        world.run(SECOND * 600);
        assert_eq!(world.mtu.found(), None);
        assert_eq!(world.sent.len(), 10);
    }

    #[test]
    fn a_black_hole_is_found_within_seconds_and_its_length_is_the_longest_usual_one() {
        for (own, carries, expected) in [
            (1500, 1499, 1492),
            (1500, 1492, 1492),
            (1500, 1440, 1440),
            (1500, 1300, 1300),
            (1500, 1290, 1280),
            (9000, 8999, 8000),
            (9000, 1500, 1500),
            (1420, 1419, 1412),
            (1281, 1280, 1280),
        ] {
            let mut world = World::new(own, carries, |_| false);
            world.run(SECOND * 5);
            let soon = world.mtu.found();
            assert!(
                soon.is_some_and(|found| found <= carries),
                "{carries}: {soon:?}"
            );
            world.run(SECOND * 20);
            assert_eq!(world.mtu.found(), Some(expected), "{own}, {carries}");
        }
    }

    #[test]
    fn a_path_that_carries_more_again_is_used_with_more() {
        let mut world = World::new(1500, 1400, |_| false);
        world.run(SECOND * 30);
        assert_eq!(world.mtu.found(), Some(1400));
        world.carries = 1450;
        world.run(SECOND * 75);
        assert_eq!(world.mtu.found(), Some(1450));
        world.carries = 1500;
        world.run(SECOND * 75);
        assert_eq!(world.mtu.found(), None);
        world.carries = 1380;
        world.run(SECOND * 90);
        assert_eq!(world.mtu.found(), Some(1380));
        world.carries = 1360;
        world.run(SECOND * 90);
        assert_eq!(world.mtu.found(), Some(1360));
    }

    #[test]
    fn one_host_that_answers_no_long_packet_proves_nothing() {
        let mut world = World::new(1500, 1500, |long| long.host == 0 && long.bytes > BASE);
        world.run(SECOND * 3600);
        assert_eq!(world.mtu.found(), None);
    }

    #[test]
    fn one_host_of_many_that_answers_long_packets_outweighs_those_that_do_not() {
        let mut world = World::new(1500, 1500, |long| long.host != 5 && long.bytes > BASE);
        world.mtu.set(Time::ZERO, 1500, 6);
        world.run(SECOND * 3600);
        assert_eq!(world.mtu.found(), None);
    }

    #[test]
    fn a_link_tells_whether_it_shows_a_length_only_where_it_could_carry_more() {
        let mut world = World::new(1500, 1400, |_| false);
        assert_eq!(
            world.mtu.is_shown_by(1400),
            Some(false),
            "nothing is found yet"
        );
        world.run(SECOND * 30);
        let shown = [1380, 1400, 1492, 1500].map(|bytes| world.mtu.is_shown_by(bytes));
        assert_eq!(shown, [Some(false), Some(true), Some(true), None]);
    }

    /// Of round trips that are lost by chance in either direction; 14 in a row are no chance then.
    #[test]
    fn a_link_that_loses_a_third_has_a_black_hole_only_where_it_has_one() {
        for seed in 1..=20 {
            let mut random = random(seed);
            let mut world = World::new(1500, 1500, |_| random() % 100 < 36);
            world.row = 14;
            world.run(SECOND * 3600 * 24);
            assert_eq!(world.mtu.found(), None, "seed {seed}");
            world.carries = 1450;
            world.run(SECOND * 60 * 5);
            let found = world.mtu.found();
            assert!(
                found.is_some_and(|found| found <= 1450),
                "seed {seed}: {found:?}"
            );
        }
    }

    #[test]
    fn without_answers_to_short_packets_nothing_is_known() {
        let mut world = World::new(1500, 0, |_| false);
        world.run(SECOND * 600);
        assert_eq!(world.mtu.found(), None);
        assert!(world.sent.len() < 10 * 30, "{} packets", world.sent.len());
    }

    #[test]
    fn without_hosts_or_room_nothing_is_asked() {
        for (own, hosts) in [(1500, 0), (1280, 2), (0, 2)] {
            let mut world = World::new(own, 1280, |_| false);
            world.mtu.set(Time::ZERO, own, hosts);
            world.run(SECOND * 600);
            assert!(world.sent.is_empty());
        }
    }

    #[test]
    fn what_never_left_or_came_back_in_part_speaks_against_nothing() {
        let mut mtu = PathMtu::new(Time::ZERO);
        mtu.set(Time::ZERO, 1500, 2);
        let mut now = Time::ZERO;
        for _ in 0..20_000 {
            while let Some(long) = mtu.next(now, 3, PERIOD) {
                match long.bytes > BASE {
                    true => mtu.withdraw(long.id),
                    false => mtu.answer(now, long.id, PERIOD),
                }
            }
            now = now + MS * 10;
        }
        assert_eq!(mtu.found(), None);
    }
}
