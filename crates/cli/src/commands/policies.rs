//! The catalogue: names, tuples, what they need and what they cost.

use anabranch_core::Policy;
use anabranch_core::algorithm::{Algorithm, Retry, Weighting};
use anabranch_core::catalogue::{self, Cost, Parameter, Parts, Row, Target};
use serde::Serialize;

use crate::output::{print, print_json};
use crate::table::{self, Columns};

/// A row, in the words that a configuration uses for a tuple.
#[derive(Serialize)]
struct Shown {
    name: &'static str,
    target: Target,
    /// Of its kind of target.
    default: bool,
    measure: &'static str,
    /// How far away that looks which links are compared by.
    distance: Option<&'static str>,
    dispatch: &'static str,
    granularity: &'static str,
    period_ms: Option<u128>,
    by_rate: bool,
    syn_retry: bool,
    parameters: Vec<Parameter>,
    /// What every link of a configuration has to declare, or a scenario has to be.
    needs: String,
    costs: Cost,
    meaning: &'static str,
    source: &'static str,
}

impl From<&'static Row> for Shown {
    fn from(row: &'static Row) -> Self {
        let Parts {
            measure,
            dispatch,
            granularity,
        } = row.policy.parts();
        let target = row.policy.target();
        let algorithm = algorithm(row);
        Self {
            name: row.name,
            target,
            default: catalogue::default(target) == row,
            measure,
            distance: algorithm.map(|a| a.distance().word()),
            dispatch,
            granularity,
            period_ms: algorithm.and_then(|a| Some(a.period?.as_millis())),
            by_rate: algorithm.is_some_and(|a| a.weighting == Weighting::Rate),
            syn_retry: algorithm.is_some_and(|a| a.retry == Retry::Elsewhere),
            parameters: row.policy.parameters(),
            needs: row.policy.needs().to_string(),
            costs: row.policy.cost(),
            meaning: row.meaning,
            source: row.source,
        }
    }
}

fn algorithm(row: &Row) -> Option<Algorithm> {
    match row.policy {
        Policy::Gateway(algorithm) => Some(algorithm),
        Policy::Packet | Policy::Peer(_) | Policy::Trunk(_) => None,
    }
}

pub fn run(json: bool) -> anyhow::Result<()> {
    let policies: Vec<Shown> = catalogue::rows().map(Shown::from).collect();
    if json {
        print_json(&policies)
    } else {
        print(columns(&policies))
    }
}

fn among(target: Target) -> &'static str {
    match target {
        Target::Link => "links",
        Target::Sublink => "sublinks",
    }
}

fn columns(policies: &[Shown]) -> Columns {
    let mut columns = Columns::new(&[
        "policy", "among", "measure", "dispatch", "for each", ">every", "needs", "keeps", "sends",
        "chooses", "source",
    ]);
    for policy in policies {
        let measure = if policy.by_rate {
            format!("{} / rate", policy.measure)
        } else {
            policy.measure.to_owned()
        };
        let default = if policy.default { " (default)" } else { "" };
        columns.row([
            format!("{}{default}", policy.name),
            among(policy.target).to_owned(),
            measure,
            policy.dispatch.to_owned(),
            policy.granularity.to_owned(),
            table::optional(policy.period_ms.map(|ms| format!("{ms} ms"))),
            policy.needs.replace('`', ""),
            policy.costs.state.to_owned(),
            policy.costs.probes.to_owned(),
            policy.meaning.to_owned(),
            policy.source.to_owned(),
        ]);
    }
    columns
}

#[cfg(test)]
mod tests {
    use anabranch_core::Typed;
    use anabranch_core::catalogue::ROWS;
    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize)]
    struct File {
        policy: Typed<Algorithm>,
    }

    const PAGE: &str = include_str!("../../../../docs/policies.md");

    /// Behind the words that people wrote.
    fn table() -> String {
        let mut table = "| policy | among | measure × dispatch × granularity | parameters | needs | keeps | sends | chooses | source |\n|---|---|---|---|---|---|---|---|---|\n".to_owned();
        for row in &ROWS {
            let Shown {
                name,
                measure,
                dispatch,
                granularity,
                needs,
                meaning,
                source,
                costs,
                ..
            } = Shown::from(row);
            let parameters = row.policy.parameters().into_iter();
            let parameters: Vec<_> = parameters
                .map(|parameter| format!("`{}` = {}", parameter.name, parameter.default))
                .collect();
            let parameters = parameters.join(", ");
            let Cost { state, probes } = costs;
            let among = among(row.policy.target());
            let rate = match algorithm(row).map(|a| a.weighting) {
                Some(Weighting::Rate) => " / rate",
                _ => "",
            };
            table += &format!(
                "| `{name}` | {among} | {measure}{rate} × {dispatch} × {granularity} | {parameters} | {needs} | {state} | {probes} | {meaning} | {source} |\n"
            );
        }
        table
    }

    #[test]
    fn the_page_of_policies_is_the_catalogue() {
        let table = table();
        assert!(
            PAGE.ends_with(&table),
            "docs/policies.md has to end with\n{table}"
        );
    }

    #[test]
    fn what_is_shown_of_an_algorithm_is_what_a_configuration_may_write() {
        for row in &ROWS {
            let Some(algorithm) = algorithm(row) else {
                continue;
            };
            let policy = Shown::from(row);
            let parameters: String = policy
                .parameters
                .iter()
                .map(
                    |Parameter { name, default, .. }| match default.parse::<u32>() {
                        Ok(number) => format!(", {name} = {number}"),
                        Err(_) => format!(", {name} = {default:?}"),
                    },
                )
                .collect();
            let tuple = format!(
                "policy = {{ measure = {:?}, dispatch = {:?}, granularity = {:?}, by_rate = {}, syn_retry = {}{parameters} }}",
                policy.measure,
                policy.dispatch,
                policy.granularity,
                policy.by_rate,
                policy.syn_retry
            );
            let read: File =
                toml::from_str(&tuple).unwrap_or_else(|error| panic!("{tuple}: {error}"));
            assert_eq!(read.policy.policy, algorithm, "{}", row.name);
        }
    }
}
