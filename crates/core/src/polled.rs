//! Loads that servers report themselves: a balancer asks each from time to time, and goes by what it said last (Zhang 2002 §2.3, CONN
//! by polling).
//!
//! Question and answer are datagrams of the same length ([`LEN`]), so that nobody can have a server send more than was sent to it:
//!
//! | bytes | |
//! |---|---|
//! | 0 to 3 | [`MAGIC`] |
//! | 4 | version, 1 |
//! | 5 | 1: a question, 2: an answer |
//! | 6, 7 | zero |
//! | 8 to 15 | a random number of the question, which its answer repeats: others cannot answer in the server's place |
//! | 16 to 23 | connections that the server has open, most significant byte first; zero in a question |
//!
//! [`Polls`] has what the servers of one service said. A server that leaves [`MISSED_MAX`] questions in a row unanswered has no known
//! load. It counts as having the mean of the others, neither spared nor preferred for its silence. If no load is known, none has a value
//! here, and the balancer goes by its own counts.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::time::Time;

/// Of a question and of an answer.
pub const LEN: usize = 24;
const MAGIC: [u8; 4] = *b"AbLd";
const VERSION: u8 = 1;
const QUESTION: u8 = 1;
const ANSWER: u8 = 2;
/// So many questions in a row without an answer, and the load is not known any more: one or two datagrams may be lost.
pub const MISSED_MAX: u32 = 3;

/// The question with this number.
pub fn question(number: u64) -> [u8; LEN] {
    datagram(QUESTION, number, 0)
}

/// The number of a question; none if it is something else.
pub fn read_question(bytes: &[u8]) -> Option<u64> {
    let (number, connections) = read(bytes, QUESTION)?;
    (connections == 0).then_some(number)
}

/// The answer to the question with this number.
pub fn answer(number: u64, connections: u64) -> [u8; LEN] {
    datagram(ANSWER, number, connections)
}

/// The connections in an answer to the question with this number; none if it is something else.
pub fn read_answer(bytes: &[u8], number: u64) -> Option<u64> {
    let (answered, connections) = read(bytes, ANSWER)?;
    (answered == number).then_some(connections)
}

fn datagram(kind: u8, number: u64, connections: u64) -> [u8; LEN] {
    let mut bytes = [0; LEN];
    bytes[..4].copy_from_slice(&MAGIC);
    bytes[4..6].copy_from_slice(&[VERSION, kind]);
    bytes[8..16].copy_from_slice(&number.to_be_bytes());
    bytes[16..].copy_from_slice(&connections.to_be_bytes());
    bytes
}

fn read(bytes: &[u8], kind: u8) -> Option<(u64, u64)> {
    let bytes: &[u8; LEN] = bytes.try_into().ok()?;
    let word = |at: usize| Some(u64::from_be_bytes(*bytes[at..].first_chunk()?));
    let (number, connections) = (word(8)?, word(16)?);
    (*bytes == datagram(kind, number, connections)).then_some((number, connections))
}

/// What one server said.
#[derive(Clone, Debug, Default)]
struct Said {
    connections: Option<u64>,
    /// Questions in a row without an answer, and what came of the last.
    missed: u32,
    why: String,
}

/// What the servers of a service said.
#[derive(Clone, Debug)]
pub struct Polls<S> {
    servers: BTreeMap<S, Said>,
    due: Time,
}

impl<S: Ord + Clone> Polls<S> {
    /// Nobody is known. The first questions are due at once.
    pub fn new(now: Time) -> Self {
        Self {
            servers: BTreeMap::new(),
            due: now,
        }
    }

    /// When the next questions are due.
    pub fn next_timeout(&self) -> Time {
        self.due
    }

    /// Whether all servers are to be asked now. These are the servers; what others said is forgotten.
    pub fn is_due(
        &mut self,
        now: Time,
        interval: Duration,
        servers: impl Iterator<Item = S>,
    ) -> bool {
        if now < self.due {
            return false;
        }
        self.due = now + interval;
        let mut former = std::mem::take(&mut self.servers);
        let kept = servers.map(|server| {
            let said = former.remove(&server).unwrap_or_default();
            (server, said)
        });
        self.servers = kept.collect();
        true
    }

    /// Reports the connections that a server has, or why it did not say. Whoever is not asked any more is ignored.
    pub fn handle(&mut self, server: &S, heard: Result<u64, String>) {
        let Some(said) = self.servers.get_mut(server) else {
            return;
        };
        match heard {
            Ok(connections) => {
                *said = Said {
                    connections: Some(connections),
                    ..Said::default()
                };
            }
            Err(why) => {
                said.missed = said.missed.saturating_add(1);
                said.why = why;
                if said.missed >= MISSED_MAX {
                    said.connections = None;
                }
            }
        }
    }

    /// The connections that a server said it has.
    pub fn said(&self, server: &S) -> Option<u64> {
        self.servers.get(server)?.connections
    }

    /// The connections that a server counts as having: without a word of its own the mean of the others.
    pub fn load(&self, server: &S) -> Option<u64> {
        self.said(server).or_else(|| self.mean())
    }

    fn mean(&self) -> Option<u64> {
        let known = self.servers.values().filter_map(|said| said.connections);
        let (count, sum) = known.fold((0u128, 0u128), |(count, sum), one| {
            (count + 1, sum + u128::from(one))
        });
        let mean = (sum + count / 2).checked_div(count)?;
        u64::try_from(mean).ok()
    }

    /// Servers whose load is not known although they were asked often enough, and why.
    pub fn silent(&self) -> impl Iterator<Item = (&S, &str)> {
        let silent = self.servers.iter();
        let silent = silent.filter(|(_, said)| said.missed >= MISSED_MAX);
        silent.map(|(server, said)| (server, said.why.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: Time = Time::ZERO;
    const INTERVAL: Duration = Duration::from_secs(1);

    fn asked(servers: &[&'static str]) -> Polls<&'static str> {
        let mut polls = Polls::new(NOW);
        assert!(polls.is_due(NOW, INTERVAL, servers.iter().copied()));
        polls
    }

    fn silent(polls: &mut Polls<&'static str>, server: &'static str, times: u32) {
        for _ in 0..times {
            polls.handle(&server, Err("no answer".to_owned()));
        }
    }

    #[test]
    fn all_servers_are_asked_once_in_each_interval() {
        let mut polls = asked(&["a"]);
        assert_eq!(polls.next_timeout(), NOW + INTERVAL);
        assert!(!polls.is_due(NOW + INTERVAL / 2, INTERVAL, ["a"].into_iter()));
        assert!(polls.is_due(NOW + INTERVAL, INTERVAL, ["a"].into_iter()));
    }

    #[test]
    fn whoever_says_nothing_for_long_counts_as_having_the_mean_of_the_others() {
        let mut polls = asked(&["a", "b", "c"]);
        assert_eq!(polls.load(&"a"), None, "nobody has said anything");
        for (server, connections) in [("a", 10), ("b", 21), ("c", 90)] {
            polls.handle(&server, Ok(connections));
        }
        silent(&mut polls, "c", MISSED_MAX - 1);
        assert_eq!(polls.load(&"c"), Some(90));
        assert_eq!(polls.silent().count(), 0);
        silent(&mut polls, "c", 1);
        assert_eq!((polls.said(&"c"), polls.load(&"c")), (None, Some(16)));
        assert_eq!(polls.silent().collect::<Vec<_>>(), [(&"c", "no answer")]);
        polls.handle(&"c", Ok(1));
        assert_eq!(polls.load(&"c"), Some(1));
        assert_eq!(polls.silent().count(), 0);
    }

    #[test]
    fn what_a_server_said_is_forgotten_with_it_and_kept_otherwise() {
        let mut polls = asked(&["a", "b"]);
        polls.handle(&"a", Ok(3));
        polls.handle(&"b", Ok(9));
        assert!(polls.is_due(NOW + INTERVAL, INTERVAL, ["a"].into_iter()));
        polls.handle(&"b", Ok(9));
        assert_eq!((polls.load(&"a"), polls.said(&"b")), (Some(3), None));
    }

    proptest! {
        #[test]
        fn an_answer_is_read_by_who_asked_and_by_nobody_else(number: u64, other: u64, connections: u64) {
            prop_assert_eq!(read_question(&question(number)), Some(number));
            let answer = answer(number, connections);
            prop_assert_eq!(read_answer(&answer, number), Some(connections));
            prop_assert_eq!(read_answer(&answer, other).is_some(), other == number);
            prop_assert_eq!(read_question(&answer), None);
            prop_assert_eq!(read_answer(&question(number), number), None);
        }

        #[test]
        fn a_datagram_of_another_length_or_with_another_head_is_nonsense(
            number: u64,
            connections: u64,
            (at, bit) in (0..8usize, 0..8u32),
            rest in proptest::collection::vec(any::<u8>(), 1..100),
        ) {
            let mut bytes = answer(number, connections).to_vec();
            bytes[at] ^= 1 << bit;
            prop_assert_eq!(read_answer(&bytes, number), None);
            bytes[at] ^= 1 << bit;
            prop_assert_eq!(read_answer(&bytes[..rest.len() % LEN], number), None);
            bytes.extend(&rest);
            prop_assert_eq!(read_answer(&bytes, number), None);
            read_question(&rest);
        }

        #[test]
        fn whoever_is_silent_counts_as_no_less_than_the_least_and_no_more_than_the_greatest(
            said in proptest::collection::vec(any::<u64>(), 1..20),
        ) {
            let mut polls = Polls::new(NOW);
            polls.is_due(NOW, INTERVAL, 0..=said.len());
            for (server, connections) in said.iter().enumerate() {
                polls.handle(&server, Ok(*connections));
            }
            let load = polls.load(&said.len()).unwrap();
            prop_assert!(said.iter().min() <= Some(&load) && Some(&load) <= said.iter().max());
        }
    }
}
