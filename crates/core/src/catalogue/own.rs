//! Rows that the running program adds to the catalogue.

use std::sync::OnceLock;

use anabranch_config::is_name;

use super::{NAME_CHARS_MAX, Policy, Row, find_any, row_of};
use crate::algorithm::Algorithm;
use crate::measure::{self, Measure};

static OWN: OnceLock<Vec<Row>> = OnceLock::new();

/// Why rows are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum ExtendError {
    #[error("own policy `{0}`: a name has 1 to {max} letters, digits, '-' and '_'", max = NAME_CHARS_MAX)]
    Name(&'static str),
    #[error("own policy `{own}`: the catalogue has a policy of the name {taken}; choose another")]
    NameTaken {
        own: &'static str,
        taken: &'static str,
    },
    #[error("own policy `{own}`: there is a measure of the name {taken} already; choose another")]
    MeasureTaken {
        own: &'static str,
        taken: &'static str,
    },
    #[error("own policy `{own}`: is {taken}, which is there already; leave it out")]
    Same {
        own: &'static str,
        taken: &'static str,
    },
    #[error("own policy `{0}`: only a gateway takes policies of one's own")]
    NotOfGateway(&'static str),
    #[error("the catalogue was extended before: a program names all its own policies at once")]
    Twice,
}

/// Adds the rows of a program's own policies to the table, all at once, before anything is read that may name them. If one is
/// refused, none is added.
///
/// # Errors
/// If a name is invalid or taken, or if rows were added before.
pub fn extend(rows: Vec<Row>) -> Result<(), ExtendError> {
    for (index, row) in rows.iter().enumerate() {
        check(row, &rows[..index])?;
    }
    OWN.set(rows).map_err(|_| ExtendError::Twice)?;
    measure::extend(own().filter_map(|row| row.policy.own_measure()).collect());
    Ok(())
}

/// The rows that were added.
pub(crate) fn own() -> impl Iterator<Item = &'static Row> {
    OWN.get().into_iter().flatten()
}

impl Row {
    /// The row of an own policy, with the name of its measure.
    pub const fn own(algorithm: Algorithm, meaning: &'static str) -> Row {
        Row {
            name: algorithm.measure.name,
            alias: None,
            policy: Policy::Gateway(algorithm),
            meaning,
            source: "this program",
        }
    }
}

impl Policy {
    /// Its measure, if it is that of an own policy.
    pub(crate) fn own_measure(&self) -> Option<&'static Measure> {
        let Policy::Gateway(algorithm) = self else {
            return None;
        };
        Some(algorithm.measure).filter(|measure| measure.is_own())
    }
}

fn check(row: &Row, before: &[Row]) -> Result<(), ExtendError> {
    let own = row.name;
    if !is_name(own, NAME_CHARS_MAX) {
        return Err(ExtendError::Name(own));
    }
    if !matches!(row.policy, Policy::Gateway(_)) {
        return Err(ExtendError::NotOfGateway(own));
    }
    let is_taken = |known: &&Row| known.name.eq_ignore_ascii_case(own);
    if let Some(Row { name: taken, .. }) = find_any(own).or(before.iter().find(is_taken)) {
        return Err(ExtendError::NameTaken { own, taken });
    }
    if let Some(measure) = row.policy.own_measure() {
        let mut known = measure::all().filter(|known| *known == measure);
        if let Some(Measure { name: taken, .. }) = known.next() {
            return Err(ExtendError::MeasureTaken { own, taken });
        }
    }
    let is_same = |known: &&Row| known.policy == row.policy;
    match row_of(&row.policy).or(before.iter().find(is_same)) {
        Some(Row { name: taken, .. }) => Err(ExtendError::Same { own, taken }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::multilink::Spread;
    use crate::own::{LinkView, OwnPolicy};
    use crate::time::Time;

    #[derive(Debug)]
    struct Nothing;

    impl OwnPolicy for Nothing {
        fn weigh(&mut self, _: Time, _: &[LinkView<'_>]) -> Vec<u64> {
            Vec::new()
        }
    }

    static MINE: Measure = Measure::own("mine", || Box::new(Nothing));
    static CARRIED: Measure = Measure::own("carried", || Box::new(Nothing));

    #[test]
    fn a_row_is_refused_for_a_name_that_is_none_or_is_taken_and_for_what_is_there_already() {
        let mine = Row::own(Algorithm::own(&MINE), "nothing");
        let named = |name| Row { name, ..mine };
        let of = |name, policy| Row {
            policy,
            ..named(name)
        };
        let rr = "RR".parse().unwrap();
        let refused = [
            (named("a b"), ExtendError::Name("a b")),
            (
                named("wllf"),
                ExtendError::NameTaken {
                    own: "wllf",
                    taken: "WLC",
                },
            ),
            (
                named("dhfv"),
                ExtendError::NameTaken {
                    own: "dhfv",
                    taken: "DHFV",
                },
            ),
            (
                named("MINE"),
                ExtendError::NameTaken {
                    own: "MINE",
                    taken: "mine",
                },
            ),
            (
                named("other"),
                ExtendError::Same {
                    own: "other",
                    taken: "mine",
                },
            ),
            (
                Row::own(Algorithm::own(&CARRIED), "nothing"),
                ExtendError::MeasureTaken {
                    own: "carried",
                    taken: "carried",
                },
            ),
            (
                of("turns", Policy::Gateway(rr)),
                ExtendError::Same {
                    own: "turns",
                    taken: "RR",
                },
            ),
            (
                of("bins", Policy::Trunk(Spread::Dh)),
                ExtendError::NotOfGateway("bins"),
            ),
        ];
        assert_eq!(check(&mine, &[]), Ok(()));
        for (row, error) in refused {
            assert_eq!(check(&row, &[mine]), Err(error));
        }
    }
}
