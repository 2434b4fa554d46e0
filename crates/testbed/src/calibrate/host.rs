//! The control beside a trial: how late this machine runs threads like the emulator's at that very time.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::{monotonic_ns, sleep_until};
use crate::cpus;
use crate::emulator::{PRIORITY, prepare_thread};

const TICK_NS: u64 = 500_000;

/// The times from a thread's deadline to its running, on any CPU: in order, and apart from each other.
#[derive(Debug, Default)]
pub(super) struct Stalls(Vec<(u64, u64)>);

impl Stalls {
    /// Watches every CPU of this process until it is `over`.
    pub(super) fn watch(over: &AtomicBool) -> io::Result<Self> {
        let cpus = cpus::allowed()?.into_iter();
        let seen = thread::scope(|scope| {
            let threads: Vec<_> = cpus
                .map(|cpu| scope.spawn(move || watch_one(cpu, over)))
                .collect();
            let join = |thread: thread::ScopedJoinHandle<'_, _>| {
                thread.join().expect("watching does not panic")
            };
            threads
                .into_iter()
                .map(join)
                .collect::<io::Result<Vec<_>>>()
        });
        Ok(Self::of(seen?.concat()))
    }

    fn of(mut seen: Vec<(u64, u64)>) -> Self {
        seen.sort_unstable();
        let mut apart: Vec<(u64, u64)> = Vec::with_capacity(seen.len());
        for (from, to) in seen {
            match apart.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(to),
                _ => apart.push((from, to)),
            }
        }
        Self(apart)
    }

    /// How much of a time was stalled.
    pub(super) fn within_ns(&self, from: u64, to: u64) -> u64 {
        let first = self.0.partition_point(|stall| stall.1 <= from);
        let stalls = self.0[first..].iter().take_while(|stall| stall.0 < to);
        stalls
            .map(|stall| stall.1.min(to).saturating_sub(stall.0.max(from)))
            .sum()
    }
}

fn watch_one(cpu: usize, over: &AtomicBool) -> io::Result<Vec<(u64, u64)>> {
    cpus::pin(cpus::THIS_THREAD, cpu)?;
    // Above the emulator, which must not pass for a host that stalls.
    prepare_thread(PRIORITY + 1)?;
    let mut seen = Vec::new();
    let mut deadline_ns = monotonic_ns()?;
    while !over.load(Ordering::Relaxed) {
        deadline_ns += TICK_NS;
        sleep_until(deadline_ns)?;
        let woken_ns = monotonic_ns()?;
        seen.push((deadline_ns, woken_ns));
        deadline_ns = deadline_ns.max(woken_ns);
    }
    Ok(seen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalls_of_several_cpus_count_once_and_only_within_the_time_asked_for() {
        let stalls = Stalls::of(vec![(10, 20), (50, 60), (15, 30), (16, 18)]);
        assert_eq!(stalls.within_ns(0, 100), 30);
        assert_eq!(stalls.within_ns(12, 55), 23);
        assert_eq!(stalls.within_ns(30, 50), 0);
        assert_eq!(stalls.within_ns(20, 12), 0, "a packet that was in time");
    }
}
