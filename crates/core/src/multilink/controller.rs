//! The controller of DH and DHFV: it decides when to look at queues, and which bins to move.

use std::time::Duration;

use super::overload::{Watch, lighter, lightest};
use super::volumes::{Counters, Volumes};
use super::{BinChoice, BinId, Bins, Move, Parameters, Queue, Recipient, SublinkId, TrunkError};
use crate::time::Time;

/// What the controller waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wakeup {
    /// [`Controller::record_volumes`]
    Volumes,
    /// [`Controller::check_queues`]
    Queues,
}

/// Keeps the bins of one trunk.
///
/// - Getters: [`bins`](Self::bins), [`wakeup`](Self::wakeup).
/// - Inputs, each when `wakeup` says so: [`record_volumes`](Self::record_volumes),
///   [`check_queues`](Self::check_queues). An input before its time changes nothing; one that is late
///   by a whole period or more stands for all that were missed.
#[derive(Clone, Debug)]
pub struct Controller {
    bins: Bins,
    scheme: Scheme,
    watch: Watch,
    checks: Ticks,
}

#[derive(Clone, Debug)]
enum Scheme {
    Dh {
        moved_percent: u8,
        target: Recipient,
    },
    Dhfv {
        volumes: Volumes,
        slots: Ticks,
        bin: BinChoice,
    },
}

impl Controller {
    /// Dynamic hashing.
    pub fn dh(bins: Bins, parameters: &Parameters, now: Time) -> Result<Self, TrunkError> {
        let scheme = Scheme::Dh {
            moved_percent: parameters.moved_percent,
            target: parameters.target,
        };
        Controller::new(bins, scheme, parameters, now)
    }

    /// Dynamic hashing with flow volume. `counters` are what the bins have carried until `now`.
    pub fn dhfv(
        bins: Bins,
        parameters: &Parameters,
        now: Time,
        counters: &Counters,
    ) -> Result<Self, TrunkError> {
        let scheme = Scheme::Dhfv {
            volumes: Volumes::new(parameters.slots, counters),
            slots: Ticks::new(parameters.slot, now),
            bin: parameters.bin,
        };
        Controller::new(bins, scheme, parameters, now)
    }

    fn new(
        bins: Bins,
        scheme: Scheme,
        parameters: &Parameters,
        now: Time,
    ) -> Result<Self, TrunkError> {
        parameters.check()?;
        Ok(Controller {
            watch: Watch::new(
                bins.sublinks(),
                parameters.overload_percent,
                parameters.shrink_percent,
            ),
            checks: Ticks::new(parameters.check_period, now),
            bins,
            scheme,
        })
    }

    /// The table, all moves so far applied.
    pub fn bins(&self) -> &Bins {
        &self.bins
    }

    /// What is wanted next, and when. Volumes come before the queues that are due at the same time.
    pub fn wakeup(&self) -> (Time, Wakeup) {
        let queues = (self.checks.due, Wakeup::Queues);
        match &self.scheme {
            Scheme::Dhfv { slots, .. } if slots.due <= self.checks.due => {
                (slots.due, Wakeup::Volumes)
            }
            _ => queues,
        }
    }

    /// What every bin has carried until `now`. DH does not ask for it.
    pub fn record_volumes(&mut self, now: Time, counters: &Counters) {
        if let Scheme::Dhfv { volumes, slots, .. } = &mut self.scheme
            && slots.tick(now)
        {
            volumes.record(counters);
        }
    }

    /// The queues of all sublinks, in order. `random` draws uniformly over all values; DHFV only for
    /// [`BinChoice::Random`].
    ///
    /// # Panics
    /// If there are not as many queues as sublinks.
    pub fn check_queues(
        &mut self,
        now: Time,
        queues: &[Queue],
        mut random: impl FnMut() -> u32,
    ) -> Vec<Move> {
        assert_eq!(queues.len(), self.bins.sublinks(), "one queue per sublink");
        if !self.checks.tick(now) {
            return Vec::new();
        }
        let mut moves = Vec::new();
        for from in self.watch.check(queues) {
            let Some(to) = self.target(queues, from, &mut random) else {
                continue;
            };
            for bin in self.relieve(from, &mut random) {
                let found = Move { bin, from, to };
                self.bins.apply(found);
                moves.push(found);
            }
        }
        moves
    }

    /// The sublink to which bins of the overloaded one move; none if no sublink is lighter.
    fn target(
        &self,
        queues: &[Queue],
        from: SublinkId,
        random: &mut impl FnMut() -> u32,
    ) -> Option<SublinkId> {
        match &self.scheme {
            Scheme::Dh { target, .. } => {
                let takers = match target {
                    Recipient::Lightest => lightest(queues, from),
                    Recipient::Lighter => lighter(queues, from),
                };
                (!takers.is_empty()).then(|| takers[below(takers.len(), random)])
            }
            Scheme::Dhfv { volumes, .. } => lightest(queues, from)
                .into_iter()
                .min_by_key(|&sublink| volumes.total(&self.bins, sublink)),
        }
    }

    /// The bins that leave the overloaded sublink.
    fn relieve(&self, from: SublinkId, random: &mut impl FnMut() -> u32) -> Vec<BinId> {
        match &self.scheme {
            Scheme::Dh { moved_percent, .. } => {
                sample(self.bins.of(from).collect(), *moved_percent, random)
            }
            Scheme::Dhfv { volumes, bin, .. } => volumes
                .choose(*bin, &self.bins, from, |count| below(count, random))
                .into_iter()
                .collect(),
        }
    }
}

/// `percent` of the bins, rounded up, every set of that many equally likely (Fisher and Yates, stopped early).
fn sample(mut bins: Vec<BinId>, percent: u8, random: &mut impl FnMut() -> u32) -> Vec<BinId> {
    let wanted = (bins.len() * usize::from(percent)).div_ceil(100);
    for i in 0..wanted {
        let drawn = i + below(bins.len() - i, random);
        bins.swap(i, drawn);
    }
    bins.truncate(wanted);
    bins
}

/// A random number below `bound`, uniformly distributed.
fn below(bound: usize, random: &mut impl FnMut() -> u32) -> usize {
    ((u64::from(random()) * bound as u64) >> 32) as usize
}

/// A periodic timer.
#[derive(Clone, Copy, Debug)]
struct Ticks {
    due: Time,
    period: Duration,
}

impl Ticks {
    fn new(period: Duration, now: Time) -> Self {
        Ticks {
            due: now + period,
            period,
        }
    }

    /// Whether the period is over. Then the next one ends a period later, or a period from now if whole periods were missed.
    fn tick(&mut self, now: Time) -> bool {
        if now < self.due {
            return false;
        }
        self.due = self.due + self.period;
        if self.due <= now {
            self.due = now + self.period;
        }
        true
    }
}
