//! What experiments have observed: the tables of their READMEs, which are built in.

use crate::readme::{END, README, table_begin};
use crate::{Experiment, Files, Verdict, all};

/// A claim, as the README of its experiment shows it.
pub(crate) struct Measured {
    /// Which experiment's.
    pub experiment: &'static str,
    /// Which figure's.
    pub figure: &'static str,
    /// Of what.
    pub claim: &'static str,
    /// With its interval and unit.
    pub observed: &'static str,
}

/// A claim as a README shows it, and its verdict there.
pub(crate) struct Shown {
    pub measured: Measured,
    pub verdict: &'static str,
}

/// What is called `EXPERIMENT/FIGURE/KEY`, if its README shows it.
pub(crate) fn shown(name: &str) -> Option<Shown> {
    let [experiment, figure, key] = name.splitn(3, '/').collect::<Vec<_>>().try_into().ok()?;
    let experiment = *all().iter().find(|known| known.name == experiment)?;
    let files = Files::of(experiment, None).ok()?;
    let expected = experiment.expected(&files).ok()?;
    let claim = &expected.claims.get(figure)?.get(key)?.claim;
    let is_it = |shown: &Shown| shown.measured.figure == figure && shown.measured.claim == claim;
    claims(experiment).find(is_it)
}

/// Every reproduced claim, a line each: experiment, figure, claim, observed. `anabranch policies NAME` shows those that name it.
pub(crate) fn observed() -> String {
    let claims = all().iter().flat_map(|experiment| claims(experiment));
    let reproduced = claims.filter(|shown| shown.verdict == Verdict::Reproduced.name());
    let line = |Shown { measured, .. }: Shown| {
        let Measured {
            experiment,
            figure,
            claim,
            observed,
        } = measured;
        format!("{experiment}\t{figure}\t{claim}\t{observed}\n")
    };
    reproduced.map(line).collect()
}

fn claims(experiment: &'static Experiment) -> impl Iterator<Item = Shown> {
    let readme = experiment.files.iter().find(|file| file.name == README);
    let text = readme.map_or("", |file| file.text);
    let begin = table_begin(text).unwrap_or(text.len());
    let table = text[begin..].split(END).next().unwrap_or_default();
    table.lines().filter_map(move |line| {
        let mut cells = line.split(" | ");
        let (figure, claim) = (cells.next()?.strip_prefix("| ")?, cells.next()?);
        let observed = cells.nth(1)?;
        let verdict = cells.next()?.split([':', ' ']).next()?;
        let measured = Measured {
            experiment: experiment.name,
            figure,
            claim,
            observed,
        };
        Some(Shown { measured, verdict })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_readme_with_a_table_is_read_whole() {
        let of = |name| all().iter().find(|experiment| experiment.name == name);
        let experiment = of("2004-guo-multihoming").expect("an experiment");
        let rows = claims(experiment).count();
        let expected = crate::Files::of(experiment, None).expect("built in");
        let stated = expected.text("expected.toml").matches("\nclaim = ").count();
        assert_eq!(rows, stated + 1, "and the titles");
    }
}
