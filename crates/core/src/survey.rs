//! Active measurement (Akella et al. in Peng 2005, section 2.3): the destinations to which a class opens most connections are
//! probed over each link that takes new flows of the class, each destination once in a period. Destinations that never answer are
//! probed rarely, all others that are not listed never.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use anabranch_policy::abi::MAX_LINKS;
use anabranch_policy::paths::Prefix;

use crate::algorithm::Active;
use crate::class::ClassId;
use crate::link::{LinkId, LinkSet};
use crate::popular::Popular;
use crate::time::Time;

/// Popularity counts are halved after this many periods.
const FADES: u32 = 10;

/// A destination whose last probes, over any links, have had no answer this many times ...
const SILENT_MAX: u32 = 6;
/// ... is probed only in one round of this many.
const TRIED_AGAIN: u32 = 32;

/// A connection that was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening {
    /// Its class.
    pub class: ClassId,
    /// Its remote end.
    pub to: SocketAddr,
}

/// A probe that has to be sent now: a TCP segment with SYN and ACK, which the destination answers with a RST.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// The class for which it is sent.
    pub class: ClassId,
    /// The link over which it is sent.
    pub link: LinkId,
    /// The remote end of the last connection into the prefix.
    pub to: SocketAddr,
}

/// The survey of one class.
#[derive(Clone, Debug)]
pub(crate) struct Survey {
    active: Active,
    popular: Popular<Prefix, SocketAddr>,
    /// Destinations of the present round that are still to be probed, and how many the round has in all.
    round: VecDeque<SocketAddr>,
    size: u32,
    began: Time,
    rounds: u32,
    /// Links over which the present destination is still to be probed.
    links: VecDeque<(LinkId, SocketAddr)>,
    asked: u64,
    /// Per prefix, the probes without an answer since the last answer.
    silent: BTreeMap<Prefix, u32>,
}

impl Survey {
    pub(crate) fn new(now: Time, active: Active) -> Self {
        Survey {
            active,
            popular: Popular::new(active.listed as usize),
            round: VecDeque::new(),
            size: 0,
            began: now,
            rounds: 0,
            links: VecDeque::new(),
            asked: 0,
            silent: BTreeMap::new(),
        }
    }

    pub(crate) fn active(&self) -> Active {
        self.active
    }

    pub(crate) fn listed(&self) -> impl Iterator<Item = Prefix> {
        self.popular.iter().map(|one| one.key)
    }

    pub(crate) fn asked(&self) -> u64 {
        self.asked
    }

    pub(crate) fn note(&mut self, to: SocketAddr) {
        self.popular.note(Prefix::of(to.ip()), to);
    }

    /// Reports whether the previous probe to this destination over the same link was answered.
    pub(crate) fn hear(&mut self, to: SocketAddr, answered: bool) {
        let prefix = Prefix::of(to.ip());
        match answered {
            true => drop(self.silent.remove(&prefix)),
            false => *self.silent.entry(prefix).or_default() += 1,
        }
    }

    /// When the next destination is due. The destinations of a round are spread evenly over the period.
    pub(crate) fn due(&self) -> Time {
        let taken = self.size - self.round.len() as u32;
        match self.round.is_empty() {
            true => self.began + self.active.period(),
            false => self.began + self.active.period() * taken / self.size,
        }
    }

    /// The next probe if one is due. `usable` returns the links over which an address is probed.
    pub(crate) fn poll(
        &mut self,
        now: Time,
        usable: impl Fn(SocketAddr) -> LinkSet,
    ) -> Option<(LinkId, SocketAddr)> {
        while self.links.is_empty() {
            if self.due() > now {
                return None;
            }
            if self.round.is_empty() {
                self.begin_round(now);
            }
            let to = self.round.pop_front()?;
            let usable = usable(to);
            let links = (0..MAX_LINKS as u16).map(LinkId);
            let over = links.filter(|link| usable.contains(*link));
            self.links.extend(over.map(|link| (link, to)));
        }
        self.asked += 1;
        self.links.pop_front()
    }

    fn begin_round(&mut self, now: Time) {
        self.began = now;
        self.rounds += 1;
        if self.rounds.is_multiple_of(FADES) {
            self.popular.fade();
        }
        let listed: Vec<Prefix> = self.listed().collect();
        self.silent.retain(|prefix, _| listed.contains(prefix));
        let tries_all = self.rounds.is_multiple_of(TRIED_AGAIN);
        let silent = |prefix: &Prefix| {
            self.silent
                .get(prefix)
                .is_some_and(|probes| *probes >= SILENT_MAX)
        };
        let asked = self.popular.iter();
        let asked = asked.filter(|one| tries_all || !silent(&one.key));
        self.round = asked.map(|one| one.value).collect();
        self.size = self.round.len() as u32;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::ops::Range;
    use std::time::Duration;

    use super::*;

    const PERIOD: Duration = Duration::from_secs(10);

    fn address(prefix: u8, host: u8, port: u16) -> SocketAddr {
        SocketAddr::from(([203, 0, prefix, host], port))
    }

    fn survey(listed: u32) -> Survey {
        Survey::new(
            Time::ZERO,
            Active {
                period_s: PERIOD.as_secs() as u32,
                listed,
            },
        )
    }

    /// What is asked up to `end`, and when.
    fn questions(
        survey: &mut Survey,
        links: LinkSet,
        end: Time,
    ) -> Vec<(Time, LinkId, SocketAddr)> {
        let mut asked = Vec::new();
        loop {
            let at = survey.due();
            if at > end {
                return asked;
            }
            while let Some((link, to)) = survey.poll(at, |_| links) {
                asked.push((at, link, to));
            }
        }
    }

    #[test]
    fn every_listed_destination_is_asked_over_every_link_once_in_a_period() {
        let links = LinkSet::from_iter([LinkId(0), LinkId(2), LinkId(3)]);
        let mut survey = survey(300);
        (0..=255).for_each(|prefix| survey.note(address(prefix, 1, 80)));
        let end = Time::ZERO + PERIOD * 4;
        let asked = questions(&mut survey, links, end);
        let mut times: BTreeMap<_, Vec<Time>> = BTreeMap::new();
        for (at, link, to) in asked {
            times.entry((link, to)).or_default().push(at);
        }
        assert_eq!(times.len(), 3 * 256);
        for times in times.values() {
            assert!((3..=4).contains(&times.len()), "{times:?}");
            assert!(times.is_sorted_by(|at, next| next.since(*at) >= PERIOD));
        }
    }

    #[test]
    fn the_last_remote_end_in_a_prefix_is_asked_and_no_more_than_are_listed() {
        let mut survey = survey(2);
        for (prefix, host, port) in [(1, 1, 80), (2, 1, 80), (2, 7, 443), (3, 1, 80), (3, 1, 80)] {
            survey.note(address(prefix, host, port));
        }
        let links = LinkSet::from_iter([LinkId(1)]);
        let asked = questions(&mut survey, links, Time::ZERO + PERIOD + PERIOD / 2);
        let asked: Vec<_> = asked.into_iter().map(|(_, link, to)| (link, to)).collect();
        let expected = [address(3, 1, 80), address(2, 7, 443)];
        assert_eq!(asked, expected.map(|to| (LinkId(1), to)));
        assert_eq!((survey.asked(), survey.listed().count()), (2, 2));
    }

    #[test]
    fn a_destination_that_never_answers_is_rarely_asked_until_it_does() {
        let mut survey = survey(2);
        let [silent, other] = [1, 2].map(|prefix| address(prefix, 1, 443));
        [silent, other].into_iter().for_each(|to| survey.note(to));
        let links = LinkSet::from_iter([LinkId(0), LinkId(1)]);
        let asked_in = |survey: &mut Survey, rounds: Range<u32>| -> [usize; 2] {
            let mut asked = [0; 2];
            for round in rounds {
                let end = Time::ZERO + PERIOD * round;
                while let Some((_, to)) = survey.poll(end, |_| links) {
                    survey.hear(to, to != silent);
                    asked[usize::from(to == other)] += 1;
                    // As long as they are used they are listed.
                    survey.note(silent);
                    survey.note(other);
                }
            }
            asked
        };
        let [vain, answered] = asked_in(&mut survey, 1..201);
        assert!(answered > 300, "{answered}");
        assert!(vain < 30, "{vain} of {answered}");
        survey.hear(silent, true);
        // The round that is under way goes on without it.
        let [again, _] = asked_in(&mut survey, 201..205);
        assert!(again > 2, "{again}: it has answered");
    }

    #[test]
    fn where_nothing_is_listed_or_usable_nothing_is_asked() {
        let mut survey = survey(10);
        let end = Time::ZERO + PERIOD * 3;
        assert!(questions(&mut survey, LinkSet::from_iter([LinkId(0)]), end).is_empty());
        survey.note(address(1, 1, 80));
        assert!(questions(&mut survey, LinkSet::default(), end + PERIOD * 3).is_empty());
    }
}
