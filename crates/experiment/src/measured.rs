//! What experiments have observed of a policy: the tables of their READMEs, which are built in.

use crate::readme::{END, README, table_begin};
use crate::{Experiment, Files, Verdict, all};

/// A claim that holds, as the README of its experiment shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
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

/// Every reproduced claim that names the policy or its alias, in the order of the experiments. An alias that is a word is nobody's.
pub fn measured(name: &str, alias: Option<&str>) -> Vec<Measured> {
    let alias = alias.filter(|alias| is_unmistakable(alias));
    let names = |claim: &str| is_about(claim, name) || alias.is_some_and(|it| is_about(claim, it));
    let claims = all().iter().flat_map(|experiment| claims(experiment));
    let reproduced = claims.filter(|shown| shown.verdict == Verdict::Reproduced.name());
    let measured = reproduced.map(|shown| shown.measured);
    measured.filter(|measured| names(measured.claim)).collect()
}

/// A name that is also a word, as `active` is, counts where the claim begins with it, behind what says of which cell it is.
fn is_about(claim: &str, name: &str) -> bool {
    let is_name = |word: &str| word == name;
    let mut words = claim.split(|c: char| !c.is_alphanumeric() && c != '-');
    if is_unmistakable(name) {
        return words.any(is_name);
    }
    let subject = claim.split_once(": ").map_or(claim, |(_, subject)| subject);
    [claim, subject]
        .iter()
        .any(|text| text.split(' ').next().is_some_and(is_name))
}

fn is_unmistakable(name: &str) -> bool {
    name.contains(char::is_uppercase)
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
    fn a_policy_has_the_reproduced_claims_that_name_it() {
        let of_wsdm = measured("WSDM", None);
        let costs = of_wsdm
            .iter()
            .filter(|measured| measured.figure == "table5");
        let observed: Vec<_> = costs.map(|measured| measured.observed).collect();
        assert_eq!(observed, ["0"], "{of_wsdm:?}");
        assert!(!measured("DHFV", None).is_empty());
        assert_eq!(measured("toy", None), []);
    }

    #[test]
    fn a_name_that_is_a_word_is_the_claims_subject_or_is_not_meant() {
        assert!(is_about("(3,1): WMORBF beats RR: ratio", "RR"));
        assert!(!is_about("(3,1): WRR beats LCF: ratio", "RR"));
        assert!(is_about("(3,1): passive beats RR: ratio", "passive"));
        assert!(!is_about("two ISPs, by hash, of the sum", "hash"));
        assert!(!is_about("fewer active flows than RR", "active"));
    }

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
