//! What experiments have observed of a policy.

/// Every reproduced claim, as `anabranch-lab experiment guide` writes it: experiment, figure, claim, observed.
const OBSERVED: &str = include_str!("../../../../experiments/observed.tsv");

/// A claim that holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observed {
    /// Which experiment's.
    pub experiment: &'static str,
    /// Which figure's.
    pub figure: &'static str,
    /// Of what.
    pub claim: &'static str,
    /// With its interval and unit.
    pub value: &'static str,
}

/// Every claim that names the policy or its alias, in the order of the experiments. An alias that is a word is nobody's.
pub fn observed(name: &str, alias: Option<&str>) -> Vec<Observed> {
    let alias = alias.filter(|alias| is_unmistakable(alias));
    let names = |claim: &str| is_about(claim, name) || alias.is_some_and(|it| is_about(claim, it));
    let all = OBSERVED.lines().filter_map(read);
    all.filter(|observed| names(observed.claim)).collect()
}

fn read(line: &'static str) -> Option<Observed> {
    let mut cells = line.split('\t');
    Some(Observed {
        experiment: cells.next()?,
        figure: cells.next()?,
        claim: cells.next()?,
        value: cells.next()?,
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_has_the_reproduced_claims_that_name_it() {
        let of_wsdm = observed("WSDM", None);
        let costs = of_wsdm.iter().filter(|it| it.figure == "table5");
        let values: Vec<_> = costs.map(|it| it.value).collect();
        assert_eq!(values, ["0"], "{of_wsdm:?}");
        assert!(!observed("DHFV", None).is_empty());
        assert_eq!(observed("toy", None), []);
    }

    #[test]
    fn a_name_that_is_a_word_is_the_claims_subject_or_is_not_meant() {
        assert!(is_about("(3,1): WMORBF beats RR: ratio", "RR"));
        assert!(!is_about("(3,1): WRR beats LCF: ratio", "RR"));
        assert!(is_about("(3,1): passive beats RR: ratio", "passive"));
        assert!(!is_about("two ISPs, by hash, of the sum", "hash"));
        assert!(!is_about("fewer active flows than RR", "active"));
    }
}
