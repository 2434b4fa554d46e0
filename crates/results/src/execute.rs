//! Many runs on all cores, each on one.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use anabranch_scenario::Run;

/// A world tells how far it has come at least this many times, if it tells often enough.
const STEPS: u32 = 100;

/// What becomes of a run, by its place in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It has begun.
    Started(usize),
    /// So much of the run is over.
    At(usize, Duration),
    /// It has ended, well or not.
    Done(usize),
}

/// A run that could not be carried out.
#[derive(Debug, thiserror::Error)]
#[error("{run}: {error}")]
pub struct RunFailed<E: fmt::Display> {
    /// Scenario, policy, seed, point.
    pub run: String,
    /// Why.
    pub error: E,
}

/// Carries out `runs` on `jobs` threads (all cores if `None`), and returns what `world` made of each, in their order.
///
/// `world` is told a run and where to say how far it has come. After the first failure no run is begun; of several the
/// one that is first in the list is returned. `on_progress` is called on the caller's thread.
pub fn execute<T: Send, E: fmt::Display + Send>(
    runs: &[Run],
    jobs: Option<NonZeroUsize>,
    world: impl Fn(&Run, &mut dyn FnMut(Duration)) -> Result<T, E> + Sync,
    mut on_progress: impl FnMut(Progress),
) -> Result<Vec<T>, RunFailed<E>> {
    let jobs = jobs.or_else(|| thread::available_parallelism().ok());
    let jobs = jobs.map_or(1, NonZeroUsize::get).min(runs.len());
    let queue = Queue {
        runs,
        next: AtomicUsize::new(0),
        failed: AtomicBool::new(false),
    };
    let (sender, news) = mpsc::channel();
    let results = thread::scope(|scope| {
        for _ in 0..jobs {
            let sender = sender.clone();
            scope.spawn(|| queue.work(&world, sender));
        }
        drop(sender);
        collect(&news, runs.len(), &mut on_progress)
    });
    let done = runs.iter().zip(results).filter_map(|(run, result)| {
        let failed = |error| RunFailed {
            run: run.to_string(),
            error,
        };
        result.map(|result| result.map_err(failed))
    });
    done.collect()
}

enum News<R> {
    Progress(Progress),
    Result(usize, R),
}

struct Queue<'a> {
    runs: &'a [Run],
    next: AtomicUsize,
    failed: AtomicBool,
}

impl Queue<'_> {
    /// Takes runs until there are none, or one has failed.
    fn work<T, E>(
        &self,
        world: &impl Fn(&Run, &mut dyn FnMut(Duration)) -> Result<T, E>,
        news: Sender<News<Result<T, E>>>,
    ) {
        // The receiver lives as long as there are senders.
        let tell = |what| drop(news.send(what));
        while !self.failed.load(Ordering::Relaxed) {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(run) = self.runs.get(index) else {
                return;
            };
            tell(News::Progress(Progress::Started(index)));
            let step = run.scenario.limit / STEPS;
            let mut due = step;
            let result = world(run, &mut |now| {
                if now >= due {
                    due = now + step;
                    tell(News::Progress(Progress::At(index, now)));
                }
            });
            if result.is_err() {
                self.failed.store(true, Ordering::Relaxed);
            }
            tell(News::Result(index, result));
        }
    }
}

fn collect<T, E>(
    news: &Receiver<News<Result<T, E>>>,
    count: usize,
    on_progress: &mut impl FnMut(Progress),
) -> Vec<Option<Result<T, E>>> {
    let mut results: Vec<Option<Result<T, E>>> = (0..count).map(|_| None).collect();
    for news in news {
        match news {
            News::Progress(progress) => on_progress(progress),
            News::Result(index, result) => {
                if result.is_ok() {
                    on_progress(Progress::Done(index));
                }
                results[index] = Some(result);
            }
        }
    }
    results
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Barrier;

    use anabranch_scenario::ScenarioFile;

    use super::*;

    fn runs(seeds: usize) -> Vec<Run> {
        let text = format!("length = \"10s\"\nseeds = {seeds}\nlink.a = {{ rate = \"1mbit\" }}");
        ScenarioFile::parse(Path::new("a.toml"), &text)
            .unwrap()
            .runs()
    }

    #[test]
    fn results_come_in_the_order_of_the_runs_whatever_the_order_of_their_ends() {
        // Both threads are inside a run at the same time, or this never ends.
        let both = Barrier::new(2);
        let world = |run: &Run, _: &mut dyn FnMut(Duration)| {
            both.wait();
            Ok::<u64, String>(run.seed * 10)
        };
        let mut done = 0;
        let results = execute(&runs(8), NonZeroUsize::new(2), world, |progress| {
            done += usize::from(matches!(progress, Progress::Done(_)));
        });
        assert_eq!(results.unwrap(), [10, 20, 30, 40, 50, 60, 70, 80]);
        assert_eq!(done, 8);
    }

    #[test]
    fn a_failure_names_its_run_and_no_other_is_begun() {
        let world = |run: &Run, _: &mut dyn FnMut(Duration)| match run.seed {
            1 | 2 => Ok(()),
            seed => Err(format!("seed {seed} is not lucky")),
        };
        let (mut started, mut done) = (0, 0);
        let failed = execute(&runs(9), NonZeroUsize::new(1), world, |progress| {
            started += usize::from(matches!(progress, Progress::Started(_)));
            done += usize::from(matches!(progress, Progress::Done(_)));
        });
        let message = failed.unwrap_err().to_string();
        assert_eq!(message, "a, WSDM, seed 3: seed 3 is not lucky");
        assert_eq!((started, done), (3, 2));
    }

    #[test]
    fn progress_is_told_in_steps_and_not_for_every_event() {
        let world = |_: &Run, at: &mut dyn FnMut(Duration)| {
            (0..100_000).for_each(|i| at(Duration::from_micros(i * 100)));
            Ok::<(), String>(())
        };
        let mut told = 0;
        let at = |progress| told += usize::from(matches!(progress, Progress::At(..)));
        execute(&runs(1), None, world, at).unwrap();
        assert!((50..=100).contains(&told), "{told}");
    }
}
