//! How far many runs have come: a bar on a terminal, a line per run elsewhere.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use anabranch_results::{Progress, Sweep};
use anabranch_scenario::Run;
use indicatif::{ProgressBar, ProgressStyle};

const BAR: &str = "{bar:40} {percent:>3} %  {msg}  {eta} left";

/// Tells which results are there already, and which of them are not used.
pub fn resumed(sweep: &Sweep, mut tell: impl FnMut(String)) {
    let of = sweep.runs().len();
    match sweep.outdated() {
        0 => {}
        runs => tell(format!(
            "{runs} of {of} runs were made by another build of anabranch: they are run again"
        )),
    }
    match sweep.done() {
        0 => {}
        runs => tell(format!("{runs} of {of} runs were complete before")),
    }
}

/// Progress of the runs of a sweep that are to be carried out; on standard error.
pub struct Trials {
    bar: ProgressBar,
    missing: Vec<Run>,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    done: usize,
    /// Of runs that are over, and of those that are on.
    over: Duration,
    on: BTreeMap<usize, Duration>,
}

impl Trials {
    pub fn new(sweep: &Sweep) -> Self {
        let missing: Vec<Run> = sweep.missing().cloned().collect();
        let all: Duration = missing.iter().map(|run| run.scenario.limit).sum();
        let bar = ProgressBar::new(all.as_millis() as u64);
        let style =
            ProgressStyle::with_template(BAR).unwrap_or_else(|_| ProgressStyle::default_bar());
        bar.set_style(style.progress_chars("█▉▊▋▌▍▎▏ "));
        resumed(sweep, |line| eprintln!("{line}"));
        Self {
            bar,
            missing,
            state: RefCell::default(),
        }
    }

    pub fn show(&self, progress: Progress) {
        let mut state = self.state.borrow_mut();
        match progress {
            Progress::Started(index) => drop(state.on.insert(index, Duration::ZERO)),
            Progress::At(index, now) => drop(state.on.insert(index, now)),
            Progress::Done(index) => {
                state.on.remove(&index);
                state.over += self.missing[index].scenario.limit;
                state.done += 1;
                if self.bar.is_hidden() {
                    let of = self.missing.len();
                    eprintln!("{} of {of} runs: {}", state.done, self.missing[index]);
                }
            }
        }
        let simulated = state.over + state.on.values().sum::<Duration>();
        self.bar.set_position(simulated.as_millis() as u64);
        self.bar
            .set_message(format!("{} of {} runs", state.done, self.missing.len()));
    }

    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
