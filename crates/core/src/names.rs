//! Names of servers, and what resolvers say of them.
//!
//! Each [`Question`] is asked again when its answer's time to live is over, within bounds. What was answered last holds until something
//! takes its place:
//!
//! - An error, or silence, changes nothing: a resolver that is out of order must not take servers away.
//! - That there is no such name, or no such record, has to be said several times in a row. Resolvers say that by mistake, too, while
//!   they start or load a zone. HAProxy holds servers for as long by default (`hold nx 30s`).
//!
//! [`Names`] says which question has to be asked when, and takes the answer; a question is not due again before its answer is reported.
//! What is known can be passed on to the next process.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anabranch_policy::Family;
use serde::{Deserialize, Serialize};

use crate::time::Time;

/// An answer of no lifetime is asked for once a second; one of days has to be corrected some time.
const LASTS_MIN: Duration = Duration::from_secs(1);
const LASTS_MAX: Duration = Duration::from_secs(300);
/// Time from an error to the next question.
const RETRY: Duration = Duration::from_secs(2);
/// So many denials in a row are believed, ...
const DENIALS: u32 = 3;
/// ... which come so long one after another.
const DENIED_AGAIN: Duration = Duration::from_secs(10);

/// The type of the records that are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Kind {
    /// IPv4 addresses.
    A,
    /// IPv6 addresses.
    Aaaa,
    /// The servers of a service (RFC 2782).
    Srv,
}

impl From<Family> for Kind {
    fn from(family: Family) -> Self {
        match family {
            Family::V4 => Self::A,
            Family::V6 => Self::Aaaa,
        }
    }
}

/// What resolvers are asked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Question {
    /// Without the dot at its end.
    pub name: String,
    /// Which records.
    pub kind: Kind,
    /// Who is asked, one after another; empty: those of this host.
    pub resolvers: Vec<SocketAddr>,
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::A => "A",
            Kind::Aaaa => "AAAA",
            Kind::Srv => "SRV",
        };
        write!(f, "{kind} {}", self.name)
    }
}

/// A record of an answer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Record {
    /// Of a host.
    Address(IpAddr),
    /// A server of a service, in the order of RFC 2782: the lowest priority first.
    Server {
        /// The lowest takes everything while it can.
        priority: u16,
        /// Its share among those of its priority.
        weight: u16,
        /// Where it listens.
        port: u16,
        /// Its name, as in a question.
        host: String,
    },
}

/// What a resolver has said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Empty: there is no such name, or no such record of it.
    pub records: BTreeSet<Record>,
    /// Time to live: the shortest of all records.
    pub lasts: Duration,
}

/// What is known by a question.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// The last good answer; empty before the first.
    pub records: BTreeSet<Record>,
    /// When it came; none if an earlier process has heard it.
    pub answered: Option<Time>,
    /// What came last in the place of an answer.
    pub trouble: Option<String>,
    denials: u32,
    /// When to ask again; none while it is being asked.
    due: Option<Time>,
}

/// All questions, and what is known by them.
#[derive(Clone, Debug, Default)]
pub struct Names(BTreeMap<Question, Known>);

impl Names {
    /// What an earlier process knew.
    pub fn recalled(known: impl IntoIterator<Item = (Question, BTreeSet<Record>)>) -> Self {
        let known = known.into_iter().map(|(question, records)| {
            let known = Known {
                records,
                due: Some(Time::ZERO),
                ..Known::default()
            };
            (question, known)
        });
        Self(known.collect())
    }

    /// What the next process should know.
    pub fn remembered(&self) -> impl Iterator<Item = (&Question, &BTreeSet<Record>)> {
        let known = self.known();
        known.map(|(question, known)| (question, &known.records))
    }

    /// These are to be asked from now on. Those of before keep what is known by them.
    pub fn set(&mut self, now: Time, wanted: BTreeSet<Question>) {
        self.0.retain(|question, _| wanted.contains(question));
        for question in wanted {
            self.0.entry(question).or_insert_with(|| Known {
                due: Some(now),
                ..Known::default()
            });
        }
    }

    /// When the next question is due.
    pub fn next_timeout(&self) -> Option<Time> {
        self.0.values().filter_map(|known| known.due).min()
    }

    /// The next question that is due, whose answer is then reported by [`handle`](Self::handle).
    pub fn poll_ask(&mut self, now: Time) -> Option<Question> {
        let mut all = self.0.iter_mut();
        let (question, known) = all.find(|(_, known)| known.due.is_some_and(|due| due <= now))?;
        known.due = None;
        Some(question.clone())
    }

    /// Takes an answer, or why there is none. Returns whether other records are known by it.
    pub fn handle(
        &mut self,
        now: Time,
        question: &Question,
        answer: Result<Answer, String>,
    ) -> bool {
        let Some(known) = self.0.get_mut(question) else {
            return false;
        };
        let records = match answer {
            Ok(Answer { records, lasts }) if !records.is_empty() => {
                known.trouble = None;
                known.denials = 0;
                known.answered = Some(now);
                known.due = Some(now + lasts.clamp(LASTS_MIN, LASTS_MAX));
                Some(records)
            }
            Ok(_) => {
                known.trouble = Some("there is no such name or record".to_owned());
                known.denials = known.denials.saturating_add(1);
                known.due = Some(now + DENIED_AGAIN);
                (known.denials >= DENIALS).then(BTreeSet::new)
            }
            Err(words) => {
                known.trouble = Some(words);
                known.due = Some(now + RETRY);
                None
            }
        };
        let before = records.map(|records| std::mem::replace(&mut known.records, records));
        before.is_some_and(|before| before != known.records)
    }

    /// The records that are known by a question.
    pub fn records(&self, question: &Question) -> impl Iterator<Item = &Record> {
        let known = self.0.get(question);
        known.into_iter().flat_map(|known| &known.records)
    }

    /// The same if they are addresses.
    pub fn addresses(&self, question: &Question) -> impl Iterator<Item = IpAddr> {
        self.records(question).filter_map(|record| match record {
            Record::Address(address) => Some(*address),
            Record::Server { .. } => None,
        })
    }

    /// Everything.
    pub fn known(&self) -> impl Iterator<Item = (&Question, &Known)> {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use proptest::prelude::*;

    use super::*;

    fn question() -> Question {
        Question {
            name: "web.test".to_owned(),
            kind: Kind::A,
            resolvers: Vec::new(),
        }
    }

    /// Of hosts by the last numbers of their addresses.
    fn records(hosts: &BTreeSet<u8>) -> BTreeSet<Record> {
        let address = |host: &u8| Record::Address(Ipv4Addr::new(10, 0, 0, *host).into());
        hosts.iter().map(address).collect()
    }

    fn answer(hosts: &BTreeSet<u8>, lasts_s: u64) -> Result<Answer, String> {
        Ok(Answer {
            records: records(hosts),
            lasts: Duration::from_secs(lasts_s),
        })
    }

    fn asked(now: Time) -> Names {
        let mut names = Names::default();
        names.set(now, BTreeSet::from([question()]));
        assert_eq!(names.poll_ask(now), Some(question()));
        names
    }

    #[test]
    fn a_name_is_asked_again_when_its_answer_is_over_and_not_while_it_is_asked() {
        let seconds = |s: u64| Time::from_millis(1000 * s);
        for (lasts, again) in [(0, 1), (60, 60), (86_400, 300)] {
            let mut names = asked(seconds(1));
            assert_eq!(names.next_timeout(), None);
            assert_eq!(names.poll_ask(seconds(1000)), None);
            assert!(names.handle(seconds(1), &question(), answer(&[1].into(), lasts)));
            assert_eq!(names.next_timeout(), Some(seconds(1 + again)));
            assert_eq!(names.poll_ask(seconds(again)), None);
            assert_eq!(names.poll_ask(seconds(1 + again)), Some(question()));
        }
    }

    #[test]
    fn what_is_not_wanted_any_more_is_forgotten_and_its_late_answer_is_nobodys() {
        let mut names = asked(Time::ZERO);
        names.set(Time::ZERO, BTreeSet::new());
        assert!(!names.handle(Time::ZERO, &question(), answer(&[1].into(), 1)));
        assert_eq!(names.known().count(), 0);
    }

    #[test]
    fn the_next_process_knows_what_this_one_knew_and_asks_at_once() {
        let mut names = asked(Time::ZERO);
        names.handle(Time::ZERO, &question(), answer(&[1, 2].into(), 300));
        let known = names.remembered();
        let known = known.map(|(question, records)| (question.clone(), records.clone()));
        let mut next = Names::recalled(known);
        next.set(Time::ZERO, BTreeSet::from([question()]));
        assert_eq!(next.addresses(&question()).count(), 2);
        assert_eq!(next.poll_ask(Time::ZERO), Some(question()));
    }

    proptest! {
        /// What is known is the last good answer, or nothing after three denials in a row that no good one interrupts.
        #[test]
        fn errors_change_nothing_and_denials_have_to_be_repeated(
            said in proptest::collection::vec(
                prop_oneof![
                    Just(Err("silence".to_owned())),
                    Just(Ok(BTreeSet::new())),
                    proptest::collection::btree_set(1u8..4, 1..3).prop_map(Ok),
                ],
                0..24,
            ),
        ) {
            let mut names = asked(Time::ZERO);
            let (mut good, mut denials) = (BTreeSet::new(), 0);
            for (second, said) in (0..).zip(said) {
                let before = good.clone();
                match &said {
                    Ok(none) if none.is_empty() => denials += 1,
                    Ok(hosts) => (good, denials) = (hosts.clone(), 0),
                    Err(_) => {}
                }
                if denials >= 3 {
                    good = BTreeSet::new();
                }
                let said = said.and_then(|hosts| answer(&hosts, 1));
                let is_heard = said.as_ref().is_ok_and(|one| !one.records.is_empty());
                let has_changed = names.handle(Time::from_millis(1000 * second), &question(), said);
                prop_assert_eq!(has_changed, before != good);
                let known = names.known().next().expect("a question").1;
                prop_assert_eq!(&known.records, &records(&good));
                prop_assert_eq!(known.trouble.is_none(), is_heard);
                prop_assert!(names.next_timeout().is_some());
            }
        }
    }
}
