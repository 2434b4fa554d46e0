//! The table of algorithms: names, tuples, and what they need.

use anabranch_core::algorithm::{Named, TABLE};
use serde::Serialize;

use crate::output::{print, print_json};
use crate::table::{self, Columns};

/// A row, in the words that a configuration uses for a tuple.
#[derive(Serialize)]
struct Policy {
    name: &'static str,
    default: bool,
    measure: String,
    dispatch: String,
    granularity: String,
    period_ms: Option<u128>,
    by_rate: bool,
    syn_retry: bool,
    /// What every link of a configuration has to declare.
    needs: String,
    meaning: &'static str,
    source: &'static str,
}

impl From<(usize, &'static Named)> for Policy {
    fn from((index, named): (usize, &'static Named)) -> Self {
        let algorithm = &named.algorithm;
        Self {
            name: named.name,
            default: index == 0,
            measure: kebab(algorithm.measure),
            dispatch: kebab(algorithm.dispatch),
            granularity: kebab(algorithm.granularity),
            period_ms: algorithm.period.map(|period| period.as_millis()),
            by_rate: algorithm.by_rate,
            syn_retry: algorithm.syn_retry,
            needs: algorithm.needs_rate().to_string(),
            meaning: named.meaning,
            source: named.source,
        }
    }
}

/// `StMix` as configurations write it: `st-mix`.
fn kebab(variant: impl std::fmt::Debug) -> String {
    let mut word = String::new();
    for (index, letter) in format!("{variant:?}").char_indices() {
        if letter.is_ascii_uppercase() && index > 0 {
            word.push('-');
        }
        word.push(letter.to_ascii_lowercase());
    }
    word
}

pub fn run(json: bool) -> anyhow::Result<()> {
    let policies: Vec<Policy> = TABLE.iter().enumerate().map(Policy::from).collect();
    if json {
        print_json(&policies)
    } else {
        print(columns(&policies))
    }
}

fn columns(policies: &[Policy]) -> Columns {
    let mut columns = Columns::new(&[
        "policy",
        "measure",
        "dispatch",
        ">every",
        "links declare",
        "chooses",
        "source",
    ]);
    for policy in policies {
        let measure = if policy.by_rate {
            format!("{} / rate", policy.measure)
        } else {
            policy.measure.clone()
        };
        let default = if policy.default { " (default)" } else { "" };
        columns.row([
            format!("{}{default}", policy.name),
            measure,
            policy.dispatch.clone(),
            table::optional(policy.period_ms.map(|ms| format!("{ms} ms"))),
            policy.needs.replace('`', ""),
            policy.meaning.to_owned(),
            policy.source.to_owned(),
        ]);
    }
    columns
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize)]
    struct File {
        policy: anabranch_core::Algorithm,
    }

    #[test]
    fn what_is_shown_of_an_algorithm_is_what_a_configuration_may_write() {
        for (index, named) in TABLE.iter().enumerate() {
            let policy = Policy::from((index, named));
            let period = policy
                .period_ms
                .map_or_else(String::new, |ms| format!(", period_ms = {ms}"));
            let tuple = format!(
                "policy = {{ measure = {:?}, dispatch = {:?}, granularity = {:?}, by_rate = {}, syn_retry = {}{period} }}",
                policy.measure,
                policy.dispatch,
                policy.granularity,
                policy.by_rate,
                policy.syn_retry
            );
            let read: File =
                toml::from_str(&tuple).unwrap_or_else(|error| panic!("{tuple}: {error}"));
            assert_eq!(read.policy, named.algorithm, "{}", named.name);
        }
    }
}
