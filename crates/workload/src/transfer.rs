use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use anabranch_line::Direction;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use crate::ids::{RemoteServerId, UserId};

/// Tells the draws of [`alternative`] from those of users and arrivals under the same seed.
const ALTERNATIVES: u64 = 0x616c_7465_726e_6174;

/// A transfer of a run, numbered from 0 in the order of start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TransferId(pub u64);

/// Which of `count` ways open to all transfers one of them takes: drawn from the seed of the run and its number alone.
pub fn alternative(seed: u64, id: TransferId, count: usize) -> usize {
    if count < 2 {
        return 0;
    }
    let mut random = ChaCha8Rng::seed_from_u64(seed ^ ALTERNATIVES);
    random.set_stream(id.0);
    random.random_range(0..count)
}

/// What happened to one file. Times are seconds since the epoch of the run unless they are durations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Transfer {
    /// Of no other in the run.
    pub id: TransferId,
    /// Who asked.
    pub user: UserId,
    /// The user's group, if the scenario has groups.
    pub group: Option<String>,
    /// The address that the user's connection started from.
    pub source: IpAddr,
    /// Who was asked.
    pub server: RemoteServerId,
    /// Of the workload, if it has classes.
    pub class: Option<String>,
    /// Which way the file goes.
    pub direction: Direction,
    /// Round within the tab, from 0.
    pub round: u32,
    /// When the model asked for the file. `start_s` − `planned_start_s` is the lateness of the load generator, which a
    /// reader must know to judge latencies (coordinated omission).
    pub planned_start_s: f64,
    /// When the first SYN was sent.
    pub start_s: f64,
    /// Duration of the TCP handshake, if it completed.
    pub setup_s: Option<f64>,
    /// From `start_s` to the head of the response, if it came.
    pub first_byte_s: Option<f64>,
    /// From `start_s` to the end of the transfer, however it ended.
    pub duration_s: f64,
    /// Bytes of the file that the application asked for.
    pub bytes_asked: u64,
    /// Bytes of the file that arrived.
    pub bytes: u64,
    /// The link that carried the flow; none if no response told.
    pub link: Option<String>,
    /// How it ended.
    pub outcome: Outcome,
    /// SYNs sent again before the handshake completed. The client itself never repeats a request.
    pub syn_retransmits: u32,
}

impl Transfer {
    /// When the transfer ended, in seconds since the epoch.
    pub fn end_s(&self) -> f64 {
        self.start_s + self.duration_s
    }

    /// Bits of the file that arrived per second of the transfer, set-up included.
    pub fn throughput_bps(&self) -> f64 {
        if self.duration_s > 0.0 {
            self.bytes as f64 * 8.0 / self.duration_s
        } else {
            0.0
        }
    }
}

/// How a transfer ended. Written as one word, as in the `outcome` column of the results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Outcome {
    /// All bytes arrived.
    Ok,
    /// Still running when the run ended: neither success nor failure.
    Unfinished,
    /// No handshake within the connect timeout.
    ConnectTimeout,
    /// The peer, or a gateway on its behalf, answered the SYN with a RST.
    Refused,
    /// The network answered that there is no way.
    Unreachable,
    /// A RST ended an open connection.
    Reset,
    /// No byte for the idle timeout on an open connection.
    IdleTimeout,
    /// The connection closed, or the body ended, before all bytes came.
    Short,
    /// The server answered with a status other than 200, or 206 where a range was asked for.
    HttpStatus(u16),
    /// The reply is not HTTP, or the body is longer than asked.
    Malformed,
    /// This host could not make the connection (no port, no descriptor, no source address).
    Local,
}

impl Outcome {
    /// Whether the whole file arrived.
    pub fn is_ok(self) -> bool {
        self == Outcome::Ok
    }

    /// Neither a success nor cut off by the end of the run.
    pub fn is_failure(self) -> bool {
        !matches!(self, Outcome::Ok | Outcome::Unfinished)
    }
}

const WORDS: [(Outcome, &str); 10] = [
    (Outcome::Ok, "ok"),
    (Outcome::Unfinished, "unfinished"),
    (Outcome::ConnectTimeout, "connect_timeout"),
    (Outcome::Refused, "refused"),
    (Outcome::Unreachable, "unreachable"),
    (Outcome::Reset, "reset"),
    (Outcome::IdleTimeout, "idle_timeout"),
    (Outcome::Short, "short"),
    (Outcome::Malformed, "malformed"),
    (Outcome::Local, "local"),
];

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Outcome::HttpStatus(status) = self {
            return write!(f, "http_{status}");
        }
        let word = WORDS
            .iter()
            .find(|(outcome, _)| outcome == self)
            .map_or("", |(_, word)| word);
        f.write_str(word)
    }
}

/// A word that names no outcome.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "\"{0}\" is not an outcome; allowed: ok, unfinished, connect_timeout, refused, unreachable, reset, idle_timeout, short, malformed, local, http_<status>"
)]
pub struct UnknownOutcome(pub String);

impl FromStr for Outcome {
    type Err = UnknownOutcome;

    fn from_str(word: &str) -> Result<Outcome, UnknownOutcome> {
        let named = WORDS
            .iter()
            .find(|(_, name)| *name == word)
            .map(|(outcome, _)| *outcome);
        let status = || {
            word.strip_prefix("http_")?
                .parse()
                .ok()
                .map(Outcome::HttpStatus)
        };
        named
            .or_else(status)
            .ok_or_else(|| UnknownOutcome(word.to_owned()))
    }
}

impl TryFrom<String> for Outcome {
    type Error = UnknownOutcome;

    fn try_from(word: String) -> Result<Outcome, UnknownOutcome> {
        word.parse()
    }
}

impl From<Outcome> for String {
    fn from(outcome: Outcome) -> String {
        outcome.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_reads_back_from_the_word_it_writes() {
        let all = WORDS
            .iter()
            .map(|(outcome, _)| *outcome)
            .chain([Outcome::HttpStatus(404)]);
        for outcome in all {
            assert_eq!(outcome.to_string().parse(), Ok(outcome));
        }
    }

    #[test]
    fn an_unknown_word_is_refused_with_the_words_that_are_allowed() {
        let error = "fine".parse::<Outcome>().unwrap_err().to_string();
        assert!(
            error.contains("\"fine\"") && error.contains("connect_timeout"),
            "{error}"
        );
    }

    #[test]
    fn an_unfinished_transfer_is_neither_success_nor_failure() {
        assert!(!Outcome::Unfinished.is_ok() && !Outcome::Unfinished.is_failure());
        assert!(Outcome::HttpStatus(500).is_failure());
    }
}
