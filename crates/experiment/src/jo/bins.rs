//! Section II.A.3: which bin DHFV moves, and whether what a bin carried says what it will carry.

use std::cmp::Reverse;
use std::time::Duration;

use anabranch_core::multilink::Counters;
use anabranch_report::chart::Bars;
use anabranch_scenario::Run;
use anabranch_scenario::stats::mean;

use super::runs::{DHFV, JO, KB, Outcomes, trials, words};
use crate::{Context, ExperimentError, Findings, Sample};

const CHOICES: [&str; 4] = ["largest", "second", "random", "smallest"];
/// Over which DHFV judges a bin.
const WINDOW: Duration = Duration::from_millis(100);
/// One in a hundred of all bins.
const FEW: usize = 10;

pub(super) fn choice(context: &Context) -> Result<Findings, ExperimentError> {
    let file = context.files.swept(JO, "trunk.bin", &CHOICES)?;
    let outcomes = Outcomes::of(context, file, &[DHFV])?;
    let lost = |choice: &str| outcomes.sample_at(DHFV, choice, |o| o.lost_bytes / KB);
    let moved = |choice: &str| outcomes.sample_at(DHFV, choice, |o| o.reassignments);
    let mut findings = Findings::default();
    for other in ["random", "smallest"] {
        let key = format!("largest_lost_of_{other}");
        findings.observe(key, lost("largest").over(&lost(other)));
    }
    for choice in CHOICES {
        findings.note(format!(
            "{choice}: lost {} kB, moved {} bins",
            words(&lost(choice), 1),
            words(&moved(choice), 0)
        ));
    }
    let title = "Bytes lost in 20 s by the bin that DHFV moves";
    let chart = Bars::new(title, "kB", CHOICES.map(str::to_owned));
    let chart = chart.series("lost", CHOICES.map(|choice| lost(choice).plotted()));
    findings.plot("choice", chart);
    Ok(findings)
}

/// What becomes, in the next [`WINDOW`], of the bin that carried most in one; on average over a run.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Persistence {
    /// Of all windows, those after which it is among the [`FEW`] that carry most.
    stays: f64,
    /// Of what it carried, what it carries.
    carries: f64,
    /// As `stays`, of the bin that carried the median of those that carried anything.
    median_stays: f64,
}

pub(super) fn persistence(context: &Context) -> Result<Findings, ExperimentError> {
    let runs = trials(context.files.scenario(JO)?, &[DHFV], &context.seeds())?;
    let of_run = |run: &Run| -> Result<(u64, Persistence), ExperimentError> {
        // Only who moves bins counts them, and what is broken may be just that.
        let broken = (context.mutation.run)(run);
        let run = Run::new(broken.scenario, run.policy, run.seed, broken.point);
        let persistence = context.numbers(&format!("bins of {run}"), run.seed, || {
            let volumes = anabranch_sim::bin_volumes(&run, WINDOW)
                .map_err(|error| ExperimentError::run("the simulator", error))?;
            Ok(Persistence::of(&volumes))
        })?;
        Ok((run.seed, persistence))
    };
    let all: Vec<(u64, Persistence)> = runs.iter().map(of_run).collect::<Result<_, _>>()?;
    let sample = |of: fn(&Persistence) -> f64| {
        let each = all.iter();
        each.map(|(seed, one)| (*seed, of(one))).collect::<Sample>()
    };
    let stays = sample(|one| 100.0 * one.stays);
    let median_stays = sample(|one| 100.0 * one.median_stays);
    let mut findings = Findings::default();
    findings.observe("largest_stays", stays.mean());
    findings.observe("largest_carries", sample(|one| one.carries).mean());
    findings.note(format!(
        "among the {FEW} largest of the next 100 ms: the largest bin in {} % of the windows, the median bin in {} %",
        words(&stays, 1),
        words(&median_stays, 1)
    ));
    let title = "Among the ten largest bins 100 ms later";
    let chart = Bars::new(
        title,
        "% of the windows",
        ["largest", "median"].map(str::to_owned),
    );
    let chart = chart.series("stays", [stays.plotted(), median_stays.plotted()]);
    findings.plot("persistence", chart);
    Ok(findings)
}

impl Persistence {
    fn of(volumes: &[Box<Counters>]) -> Persistence {
        let pairs = || volumes.windows(2).map(|pair| (&pair[0], &pair[1]));
        let ranked: Vec<_> = pairs()
            .map(|(before, after)| (busy(before), busy(after), before, after))
            .filter(|(before, ..)| !before.is_empty())
            .collect();
        let stays = |place: fn(usize) -> usize| {
            let stays = ranked.iter().map(|(before, after, ..)| {
                let bin = before[place(before.len())];
                f64::from(u8::from(after.iter().take(FEW).any(|&other| other == bin)))
            });
            mean(&stays.collect::<Vec<_>>())
        };
        let carries = ranked.iter().map(|(bins, _, before, after)| {
            let bin = bins[0];
            after[bin] as f64 / before[bin] as f64
        });
        Persistence {
            stays: stays(|_| 0),
            carries: mean(&carries.collect::<Vec<_>>()),
            median_stays: stays(|count| count / 2),
        }
    }
}

/// The bins that carried anything, the largest first.
fn busy(volume: &Counters) -> Vec<usize> {
    let mut bins: Vec<usize> = (0..volume.len()).filter(|&bin| volume[bin] > 0).collect();
    bins.sort_by_key(|&bin| Reverse(volume[bin]));
    bins
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(of: &[(usize, u64)]) -> Box<Counters> {
        let mut volume = Box::new([0; 1024]);
        for &(bin, bytes) in of {
            volume[bin] = bytes;
        }
        volume
    }

    /// Bin 5 stays and then goes; the median is bin 6, and then bin 7, which nobody overtakes at first.
    #[test]
    fn the_largest_bin_of_a_window_is_looked_for_in_the_next() {
        let others: Vec<(usize, u64)> = (100..110).map(|bin| (bin, 50)).collect();
        let windows = [
            volume(&[(5, 100), (6, 20), (7, 10)]),
            volume(&[(5, 50), (6, 20), (7, 10)]),
            volume(&others),
        ];
        let found = Persistence::of(&windows);
        assert_eq!((found.stays, found.carries), (0.5, 0.25));
        assert_eq!(found.median_stays, 0.5);
    }
}
