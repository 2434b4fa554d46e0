//! A claim beside what was observed of it.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::expected::{Claim, Position, Region, Verdict, number};
use crate::sample::{Certainty, Observation};
use crate::{Seeds, World};

/// Of so many windows of seeds one may go astray: an interval of 95 % does one time in twenty.
const WINDOWS_PER_MISS: usize = 12;

/// Whose seeds are judged, and how.
#[derive(Clone, Debug)]
pub(crate) struct Trial {
    /// All of them.
    pub seeds: Seeds,
    /// They, cut; a window is judged by itself.
    pub windows: Vec<Seeds>,
    /// Those on which the experiment was fitted.
    pub fit: Seeds,
    /// Too short to say that a claim does not hold.
    pub quick: bool,
    pub world: World,
}

/// What is claimed, apart from whom.
#[derive(Clone, Copy, Debug)]
struct Terms {
    region: Region,
    partly: Option<Region>,
    stated: Verdict,
}

/// A claim, what was observed, and the verdict.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Check {
    /// The figure's `id`.
    pub figure: String,
    /// Its key in `expected.toml`; none if a theory gives the bounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The sentence.
    pub claim: String,
    /// The published value, if there is one.
    pub published: Option<f64>,
    /// In `unit`, over all seeds.
    pub observed: f64,
    /// The lower end of the 95 % interval; none if it has no end, or there is no interval.
    pub low: Option<f64>,
    /// The upper end, likewise.
    pub high: Option<f64>,
    /// What is claimed of the seeds: their mean, median, …
    pub statistic: &'static str,
    /// How many seeds have a part in it.
    pub seeds: usize,
    /// What was observed of each; of a ratio what is above and below the line.
    pub values: BTreeMap<u64, Vec<f64>>,
    /// `region` in words, with its unit.
    pub expected: String,
    /// What counts as reproduced.
    pub region: Region,
    /// What counts as partly reproduced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partly: Option<Region>,
    /// Empty if there is none.
    pub unit: String,
    /// Where it was observed.
    pub world: World,
    /// Today's.
    pub verdict: Verdict,
    /// What the file says.
    pub stated: Verdict,
    /// Whether today agrees with the file.
    pub pass: bool,
    /// Why the file does not call it reproduced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// In how many windows of seeds it held.
    pub held: usize,
    /// Of so many.
    pub windows: usize,
}

impl Check {
    /// Judges what was observed of a row of `expected.toml`.
    pub(crate) fn of_claim(
        figure: &str,
        key: &str,
        claim: &Claim,
        observation: &Observation,
        trial: &Trial,
    ) -> Check {
        let terms = Terms {
            region: claim.region(),
            partly: claim.partly,
            stated: claim.verdict,
        };
        Check {
            key: Some(key.into()),
            published: claim.published,
            why: claim.why.clone(),
            ..Check::new(figure, &claim.claim, &claim.unit, terms, observation, trial)
        }
    }

    /// Judges what was observed of a claim whose region was computed.
    pub(crate) fn of_theory(figure: &str, theory: &Theory, trial: &Trial) -> Check {
        let terms = Terms {
            region: theory.region,
            partly: None,
            stated: theory.stated,
        };
        let observation = &theory.observation;
        Check::new(
            figure,
            &theory.claim,
            theory.unit,
            terms,
            observation,
            trial,
        )
    }

    fn new(
        figure: &str,
        claim: &str,
        unit: &str,
        terms: Terms,
        observation: &Observation,
        trial: &Trial,
    ) -> Check {
        let estimate = observation.estimate(trial.seeds);
        let end = |end: f64| end.is_finite().then_some(end);
        let ends = estimate.interval().map(|(low, high)| (end(low), end(high)));
        let (low, high) = ends.unwrap_or_default();
        let values = observation.by_seed();
        let (verdict, held) = terms.judge(observation, trial);
        Check {
            figure: figure.into(),
            key: None,
            claim: claim.into(),
            published: None,
            observed: estimate.observed,
            low,
            high,
            statistic: observation.statistic(),
            seeds: values.len(),
            values,
            expected: with_unit(terms.region.to_string(), unit),
            region: terms.region,
            partly: terms.partly,
            unit: unit.into(),
            world: trial.world,
            verdict: terms.called(verdict, observation, trial),
            stated: terms.stated,
            pass: terms.agrees(verdict),
            why: None,
            held,
            windows: trial.windows.len(),
        }
    }

    /// The observation for reading, with its interval.
    pub fn observed_words(&self) -> String {
        let end = |end: Option<f64>| end.map_or("…".to_owned(), number);
        let observed = match (self.low, self.high) {
            (None, None) => number(self.observed),
            (low, high) => format!("{} [{}, {}]", number(self.observed), end(low), end(high)),
        };
        with_unit(observed, &self.unit)
    }
}

/// A claim whose region is itself computed: a theory evaluated at the run's parameters.
#[derive(Clone, Debug)]
pub(crate) struct Theory {
    pub claim: String,
    pub observation: Observation,
    pub region: Region,
    pub unit: &'static str,
    pub stated: Verdict,
}

impl Terms {
    /// Today's verdict, and in how many windows the claim held as it is stated.
    fn judge(&self, observation: &Observation, trial: &Trial) -> (Verdict, usize) {
        let windows = trial.windows.iter();
        let estimates: Vec<_> = windows.map(|each| observation.estimate(*each)).collect();
        let enough = estimates.len() - estimates.len() / WINDOWS_PER_MISS;
        // In how many windows it holds, and in how many it may hold.
        let count = |region: &Region| {
            let (mut holds, mut may) = (0, 0);
            for estimate in &estimates {
                let unsure = trial.quick || estimate.certainty == Certainty::Unknown;
                match region.position(estimate) {
                    Position::Inside => (holds, may) = (holds + 1, may + 1),
                    Position::Across if unsure => may += 1,
                    Position::Across | Position::Outside => {}
                }
            }
            (holds, may)
        };
        let (reproduced, may_be_reproduced) = count(&self.region);
        let (partly, may_be_partly) = self.partly.as_ref().map_or((0, 0), count);
        let verdict = match () {
            () if reproduced >= enough => Verdict::Reproduced,
            () if may_be_reproduced >= enough => Verdict::Undecided,
            () if partly >= enough => Verdict::Partly,
            () if may_be_partly >= enough => Verdict::Undecided,
            () => Verdict::NotReproduced,
        };
        match self.stated {
            Verdict::Partly => (verdict, partly),
            _ => (verdict, reproduced),
        }
    }

    /// Whether that is what the file says. Who says "partly" says that the weaker claim holds at least; what is an input or
    /// hardly a claim has to hold as well. What sets of seeds contradict each other in no single run settles.
    fn agrees(&self, verdict: Verdict) -> bool {
        use Verdict::{Calibrated, NotReproduced, Partly, Reproduced, Sanity, Undecided};
        match (self.stated, verdict) {
            (_, Undecided) | (Undecided, _) | (Partly, Partly | Reproduced) => true,
            (Reproduced | Calibrated | Sanity, verdict) => verdict == Reproduced,
            (NotReproduced, verdict) => verdict == NotReproduced,
            _ => false,
        }
    }

    /// What today's verdict is to be called.
    fn called(&self, verdict: Verdict, observation: &Observation, trial: &Trial) -> Verdict {
        match self.stated {
            Verdict::Calibrated | Verdict::Sanity if verdict == Verdict::Reproduced => self.stated,
            Verdict::Sanity => verdict,
            _ if trial.seeds.overlaps(trial.fit) && !observation.is_exact() => Verdict::Calibrated,
            _ => verdict,
        }
    }
}

pub(crate) fn with_unit(value: String, unit: &str) -> String {
    [&value, unit].join(" ").trim_end().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Sample;

    const ABOVE_1: Region = Region {
        above: Some(1.0),
        min: None,
        max: None,
        below: None,
    };

    fn seeds(text: &str) -> Seeds {
        text.parse().unwrap()
    }

    fn trial(range: &str, windows: u64) -> Trial {
        Trial {
            seeds: seeds(range),
            windows: seeds(range).windows(windows).unwrap(),
            fit: seeds("1..20"),
            quick: false,
            world: World::Sim,
        }
    }

    fn check(stated: Verdict, values: &[f64], trial: &Trial) -> Check {
        let sample: Sample = (trial.seeds.first()..)
            .zip(values.iter().copied())
            .collect();
        let terms = Terms {
            region: ABOVE_1,
            partly: Some(Region::at_least(0.5)),
            stated,
        };
        Check::new("fig1", "more", "kB", terms, &sample.mean(), trial)
    }

    #[test]
    fn a_claim_is_reproduced_if_its_whole_interval_is_in_its_region() {
        let trial = trial("101..104", 1);
        for (values, verdict) in [
            ([2.0, 2.1, 2.2, 2.1], Verdict::Reproduced),
            ([1.0, 1.0, 1.0, 1.0], Verdict::Partly),
            ([1.0, 1.2, 1.1, 1.0], Verdict::Partly),
            ([0.0, 3.0, 2.0, 1.0], Verdict::NotReproduced),
            ([0.1, 0.2, 0.1, 0.2], Verdict::NotReproduced),
            ([f64::NAN; 4], Verdict::NotReproduced),
        ] {
            let check = check(Verdict::Reproduced, &values, &trial);
            assert_eq!(check.verdict, verdict, "{values:?}");
            assert_eq!(check.pass, verdict == Verdict::Reproduced);
        }
    }

    #[test]
    fn a_run_passes_if_it_agrees_with_the_file_whatever_that_says() {
        let trial = trial("101..104", 1);
        let far = [0.1, 0.2, 0.1, 0.2];
        assert!(check(Verdict::NotReproduced, &far, &trial).pass);
        let near = [2.0, 2.1, 2.2, 2.1];
        for stated in [Verdict::Calibrated, Verdict::Sanity] {
            let held = check(stated, &near, &trial);
            assert_eq!((held.verdict, held.pass), (stated, true));
            let broken = check(stated, &far, &trial);
            assert_eq!(
                (broken.verdict, broken.pass),
                (Verdict::NotReproduced, false)
            );
        }
        assert!(!check(Verdict::NotReproduced, &near, &trial).pass);
        for values in [&near, &far] {
            assert!(check(Verdict::Undecided, values, &trial).pass);
        }
        assert!(check(Verdict::Partly, &near, &trial).pass);
        assert!(!check(Verdict::Partly, &far, &trial).pass);
    }

    #[test]
    fn a_quick_run_and_a_single_seed_leave_open_what_they_cannot_tell() {
        let across = [0.9, 3.0, 2.0, 1.0];
        let mut quick = trial("101..104", 1);
        quick.quick = true;
        let open = check(Verdict::Reproduced, &across, &quick);
        assert_eq!((open.verdict, open.pass), (Verdict::Undecided, true));
        assert!(!check(Verdict::Reproduced, &[0.1, 0.2, 0.1, 0.2], &quick).pass);
        let one = check(Verdict::Reproduced, &[0.1], &trial("101..101", 1));
        assert_eq!(
            (one.verdict, one.low, one.high),
            (Verdict::Undecided, None, None)
        );
        assert_eq!(one.observed_words(), "0.1 kB");
    }

    #[test]
    fn seeds_of_the_fit_reproduce_nothing() {
        let values = [2.0, 2.1, 2.2, 2.1];
        let fitted = check(Verdict::Reproduced, &values, &trial("20..23", 1));
        assert_eq!((fitted.verdict, fitted.pass), (Verdict::Calibrated, true));
        let terms = Terms {
            region: ABOVE_1,
            partly: None,
            stated: Verdict::Reproduced,
        };
        let exact = Observation::Exact(2.0);
        let exact = Check::new("fig1", "more", "", terms, &exact, &trial("20..23", 1));
        assert_eq!(exact.verdict, Verdict::Reproduced);
    }

    #[test]
    fn of_twelve_windows_one_may_go_astray() {
        let trial = trial("101..124", 12);
        let mut values = [2.0; 24];
        values[0] = 0.0;
        let eleven = check(Verdict::Reproduced, &values, &trial);
        assert_eq!((eleven.held, eleven.windows, eleven.pass), (11, 12, true));
        values[2] = 0.0;
        let ten = check(Verdict::Reproduced, &values, &trial);
        assert_eq!((ten.held, ten.verdict), (10, Verdict::NotReproduced));
        assert!(!ten.pass);
    }

    #[test]
    fn a_check_says_what_was_observed_and_what_is_expected() {
        let trial = trial("101..103", 1);
        let check = check(Verdict::Reproduced, &[1.0, 2.0, 3.0], &trial);
        assert_eq!(check.expected, "above 1 kB");
        assert_eq!(check.observed_words(), "2 [-0.4843, 4.484] kB");
        assert_eq!(check.values[&102], [2.0]);
    }
}
