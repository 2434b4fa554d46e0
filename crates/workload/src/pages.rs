use std::fmt;
use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Serialize, Serializer};

use crate::{Size, UserId};

/// When a workload stops asking for files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Extent {
    /// Each tab runs this many rounds.
    Rounds(u32),
    /// No round starts, and no transfer continues, this long after the workload began.
    #[serde(rename = "duration_s", serialize_with = "seconds")]
    Duration(Duration),
}

/// How a tab waits between rounds. Peng's raw run (Appendix A) has no think time but starts rounds at least one
/// second apart: a round that took longer is followed at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Pacing {
    /// From the last reply of a round to the first request of the next.
    #[serde(rename = "think_s", serialize_with = "seconds")]
    pub think: Duration,
    /// Least time from the start of a round to the start of the next.
    #[serde(rename = "min_period_s", serialize_with = "seconds")]
    pub min_period: Duration,
    /// Each round, the first too, begins by up to so much later, drawn evenly: nobody's rounds keep step with a gateway's
    /// measurements for ever.
    #[serde(
        rename = "jitter_s",
        serialize_with = "seconds",
        skip_serializing_if = "Duration::is_zero"
    )]
    pub jitter: Duration,
}

fn seconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}

impl Pacing {
    /// The pacing seen in Peng's Appendix A.
    pub const PENG: Pacing = Pacing {
        think: Duration::ZERO,
        min_period: Duration::from_secs(1),
        jitter: Duration::ZERO,
    };
    /// The next round follows at once.
    pub const BACK_TO_BACK: Pacing = Pacing {
        think: Duration::ZERO,
        min_period: Duration::ZERO,
        jitter: Duration::ZERO,
    };
}

/// Users, what they ask for, and how fast: L_n(UN, SN) without its n, which belongs to the links.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Workload {
    /// UN: users, each with its own source address.
    pub users: u32,
    /// Sequences of rounds per user that do not wait for each other.
    pub tabs_per_user: u32,
    /// SN in page rounds: files asked for at once in a round.
    pub files_per_round: u32,
    /// Of a file.
    pub size: Size,
    /// When the next round of a tab begins.
    pub pacing: Pacing,
    /// When the workload ends.
    pub extent: Extent,
    /// Same seed, same sizes in the same order for each tab.
    pub seed: u64,
}

impl Workload {
    /// Peng's L_n(UN, SN): `rounds` rounds of `files_per_round` files for each of `users` users.
    pub fn page_rounds(users: u32, files_per_round: u32, rounds: u32) -> Workload {
        Workload {
            users,
            tabs_per_user: 1,
            files_per_round,
            size: Size::PENG,
            pacing: Pacing::PENG,
            extent: Extent::Rounds(rounds),
            seed: 1,
        }
    }

    /// `downloads_per_user` independent downloads per user, each followed at once by another, for `duration`.
    pub fn continuous(
        users: u32,
        downloads_per_user: u32,
        size: Size,
        duration: Duration,
    ) -> Workload {
        Workload {
            users,
            tabs_per_user: downloads_per_user,
            files_per_round: 1,
            size,
            pacing: Pacing::BACK_TO_BACK,
            extent: Extent::Duration(duration),
            seed: 1,
        }
    }

    /// All tabs of all users, in the order of users.
    pub fn tabs(&self) -> impl Iterator<Item = Tab> + '_ {
        (0..self.users).flat_map(move |user| {
            (0..self.tabs_per_user).map(move |tab| Tab::new(self, UserId(user), tab))
        })
    }

    /// Connections that are open at once when every tab is in a round.
    pub fn connections_at_once(&self) -> u64 {
        u64::from(self.users) * u64::from(self.tabs_per_user) * u64::from(self.files_per_round)
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sessions = self.tabs_per_user * self.files_per_round;
        write!(f, "L({},{sessions}), ", self.users)?;
        match self.extent {
            Extent::Rounds(rounds) => write!(f, "{rounds} rounds")?,
            Extent::Duration(duration) => write!(f, "continuous for {} s", duration.as_secs_f64())?,
        }
        write!(f, " of {}", self.size)
    }
}

/// One burst of files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Round {
    /// 0 for the first round of the tab.
    pub index: u32,
    /// Bytes of each file.
    pub sizes: Vec<u64>,
    /// When it begins, by the round before it.
    pub pacing: Pacing,
    /// Its part of the [jitter](Pacing::jitter).
    pub late: Duration,
}

/// When the last round of a tab started and when its last file arrived, since the workload began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundTimes {
    /// The first file was asked for.
    pub started: Duration,
    /// The last file arrived, or was given up.
    pub ended: Duration,
}

impl Round {
    /// When this round is due, since the workload began, given the times of the round before it.
    pub fn earliest_start(&self, previous: Option<RoundTimes>) -> Duration {
        let due = previous.map_or(Duration::ZERO, |previous| {
            (previous.ended + self.pacing.think).max(previous.started + self.pacing.min_period)
        });
        due + self.late
    }
}

/// One sequence of rounds: an iterator that ends with its last round, or never when the extent is a duration.
#[derive(Clone, Debug)]
pub struct Tab {
    /// Whose.
    pub user: UserId,
    /// Among the user's, from 0.
    pub tab: u32,
    files_per_round: u32,
    size: Size,
    pacing: Pacing,
    rounds: Option<u32>,
    next: u32,
    random: ChaCha8Rng,
}

impl Tab {
    fn new(workload: &Workload, user: UserId, tab: u32) -> Tab {
        let mut random = ChaCha8Rng::seed_from_u64(workload.seed);
        random.set_stream(u64::from(user.0) << 32 | u64::from(tab));
        Tab {
            user,
            tab,
            files_per_round: workload.files_per_round,
            size: workload.size,
            pacing: workload.pacing,
            rounds: match workload.extent {
                Extent::Rounds(rounds) => Some(rounds),
                Extent::Duration(_) => None,
            },
            next: 0,
            random,
        }
    }

    /// Without jitter nothing is drawn.
    fn late(&mut self) -> Duration {
        match self.pacing.jitter {
            Duration::ZERO => Duration::ZERO,
            jitter => jitter.mul_f64(self.random.random()),
        }
    }
}

impl Iterator for Tab {
    type Item = Round;

    fn next(&mut self) -> Option<Round> {
        if self.rounds.is_some_and(|rounds| self.next >= rounds) {
            return None;
        }
        let index = self.next;
        self.next += 1;
        let sizes = (0..self.files_per_round)
            .map(|_| self.size.draw(&mut self.random))
            .collect();
        Some(Round {
            index,
            sizes,
            pacing: self.pacing,
            late: self.late(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARETO: Size = Size::BoundedPareto {
        alpha: 1.2,
        min_bytes: 1_000,
        max_bytes: 1_000_000,
    };

    fn sizes(workload: &Workload, user: u32) -> Vec<u64> {
        workload
            .tabs()
            .filter(|tab| tab.user == UserId(user))
            .flat_map(|tab| tab.take(5))
            .flat_map(|r| r.sizes)
            .collect()
    }

    #[test]
    fn page_rounds_ask_for_users_times_files_times_rounds() {
        let workload = Workload::page_rounds(3, 3, 10);
        let rounds: Vec<Round> = workload.tabs().flatten().collect();
        assert_eq!(rounds.len(), 30);
        // Table 3 of Peng: L1(3,3) asks 450 kB per round of all users, 10 rounds.
        assert_eq!(
            rounds.iter().flat_map(|round| &round.sizes).sum::<u64>(),
            10 * 9 * 50_250
        );
    }

    #[test]
    fn continuous_downloads_are_tabs_of_single_files_without_an_end() {
        let workload = Workload::continuous(2, 4, Size::Fixed(1), Duration::from_secs(1));
        assert_eq!(workload.tabs().count(), 8);
        assert_eq!(workload.connections_at_once(), 8);
        assert!(
            workload
                .tabs()
                .all(|tab| tab.take(1000).all(|round| round.sizes.len() == 1))
        );
        assert_eq!(workload.tabs().next().unwrap().take(1000).count(), 1000);
    }

    #[test]
    fn the_same_seed_draws_the_same_sizes_and_another_seed_others() {
        let workload = Workload {
            size: PARETO,
            ..Workload::page_rounds(2, 3, 20)
        };
        assert_eq!(sizes(&workload, 1), sizes(&workload.clone(), 1));
        assert_ne!(
            sizes(&workload, 1),
            sizes(
                &Workload {
                    seed: 2,
                    ..workload.clone()
                },
                1
            )
        );
        assert_ne!(sizes(&workload, 0), sizes(&workload, 1));
    }

    #[test]
    fn adding_a_user_changes_nothing_for_the_others() {
        let few = Workload {
            size: PARETO,
            ..Workload::page_rounds(2, 3, 20)
        };
        let more = Workload {
            users: 3,
            ..few.clone()
        };
        assert_eq!(sizes(&few, 0), sizes(&more, 0));
        assert_eq!(sizes(&few, 1), sizes(&more, 1));
    }

    #[test]
    fn think_time_runs_from_the_last_reply_and_the_period_from_the_first_request() {
        let ms = Duration::from_millis;
        let due = |think, min_period, started, ended| {
            let pacing = Pacing {
                think: ms(think),
                min_period: ms(min_period),
                jitter: Duration::ZERO,
            };
            let round = Round {
                index: 1,
                sizes: vec![],
                pacing,
                late: Duration::ZERO,
            };
            round.earliest_start(Some(RoundTimes {
                started: ms(started),
                ended: ms(ended),
            }))
        };
        assert_eq!(due(200, 0, 100, 900), ms(1100));
        // Appendix A, user 1: a round of 1.47 s is followed at once, a round of 0.77 s after the rest of its second.
        assert_eq!(due(0, 1000, 0, 1466), ms(1466));
        assert_eq!(due(0, 1000, 0, 769), ms(1000));
    }

    #[test]
    fn jitter_lets_every_round_begin_later_by_a_part_of_it_that_the_seed_draws() {
        let jitter = Duration::from_millis(100);
        let starts = |seed| -> Vec<Duration> {
            let workload = Workload {
                pacing: Pacing {
                    jitter,
                    ..Pacing::PENG
                },
                seed,
                ..Workload::page_rounds(2, 1, 50)
            };
            let rounds = workload.tabs().flatten();
            rounds.map(|round| round.earliest_start(None)).collect()
        };
        let late = starts(1);
        assert!(late.iter().all(|late| *late < jitter));
        assert!(late.iter().any(|late| *late < jitter / 10));
        assert!(late.iter().any(|late| *late > jitter * 9 / 10));
        assert_eq!(late, starts(1));
        assert_ne!(late, starts(2));
    }

    #[test]
    fn a_workload_names_itself_in_the_vocabulary_of_the_paper() {
        assert_eq!(
            Workload::page_rounds(3, 1, 20).to_string(),
            "L(3,1), 20 rounds of 50250 bytes"
        );
    }
}
