//! The catalogue: names, tuples, what they need and what they cost.

mod observed;

use std::time::Duration;

use anabranch_config::{BadInput, did_you_mean};
use anabranch_console::output::{print, print_json};
use anabranch_console::table::{self, Columns, Facts};
use anabranch_core::Policy;
use anabranch_core::algorithm::{Algorithm, Weighting};
use anabranch_core::catalogue::{self, Cost, Parts, Row, Sent, Target};
use anabranch_core::measure::Distance;
use serde::Serialize;

use observed::{Observed, observed};

/// A row, in the words that a configuration uses for a tuple.
#[derive(Serialize)]
struct Shown {
    name: &'static str,
    target: Target,
    measure: &'static str,
    /// How far away that looks which paths are compared by.
    distance: &'static str,
    dispatch: &'static str,
    granularity: &'static str,
    period_ms: Option<u64>,
    /// Keys of a configuration, or what a scenario has to be.
    needs: Vec<String>,
    cost: Costs,
    source: &'static str,
}

/// All that it costs beside the choice itself.
#[derive(Serialize)]
struct Costs {
    #[serde(flatten)]
    kept: Cost,
    #[serde(flatten)]
    sent: Sent,
}

impl From<&'static Row> for Shown {
    fn from(row: &'static Row) -> Self {
        let Parts {
            measure,
            dispatch,
            granularity,
        } = row.policy.parts();
        let needs = row.policy.needs().list().into_iter();
        Self {
            name: row.name,
            target: row.policy.target(),
            measure,
            distance: row.policy.distance().word(),
            dispatch,
            granularity,
            period_ms: row.policy.period().map(|period| period.as_millis() as u64),
            needs: needs.map(|need| need.replace('`', "")).collect(),
            cost: Costs {
                kept: row.policy.cost(),
                sent: row.policy.sent(),
            },
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

/// Of all policies, or of those with this name.
pub fn run(name: Option<&str>, json: bool) -> anyhow::Result<()> {
    let rows: Vec<_> = match name {
        Some(name) => named(name)?,
        None => catalogue::rows().collect(),
    };
    match name {
        _ if json => print_json(&rows.into_iter().map(Shown::from).collect::<Vec<_>>()),
        Some(_) => print(rows.into_iter().map(page).collect::<Vec<_>>().join("\n")),
        None => print(columns(&rows)),
    }
}

/// One of links, one of sublinks, or both.
fn named(name: &str) -> Result<Vec<&'static Row>, BadInput> {
    let among = [Target::Link, Target::Sublink];
    let found = among
        .iter()
        .filter_map(|target| catalogue::find(*target, name));
    let found: Vec<_> = found.collect();
    if found.is_empty() {
        let names: Vec<_> = catalogue::rows().map(|row| row.name).collect();
        let meant = did_you_mean(name, names.iter().copied());
        let allowed = names.join(", ");
        return Err(BadInput::new(format!(
            "unknown policy {name}; allowed: {allowed}{meant}"
        )));
    }
    Ok(found)
}

fn among(target: Target) -> &'static str {
    match target {
        Target::Link => "links",
        Target::Sublink => "sublinks",
    }
}

fn measure(row: &Row) -> String {
    let Parts { measure, .. } = row.policy.parts();
    match algorithm(row).map(|algorithm| algorithm.weighting) {
        Some(Weighting::Rate) => format!("{measure} / rate"),
        _ => measure.to_owned(),
    }
}

fn default(row: &Row) -> &'static str {
    match catalogue::default(row.policy.target()) == row {
        true => " (default)",
        false => "",
    }
}

fn columns(rows: &[&'static Row]) -> Columns {
    let mut columns = Columns::new(&[
        "policy", "among", "measure", "dispatch", "for each", ">every", "needs", "keeps", "sends",
        "chooses", "source",
    ]);
    for row in rows {
        let Parts {
            dispatch,
            granularity,
            ..
        } = row.policy.parts();
        let Cost { state, probes } = row.policy.cost();
        columns.row([
            format!("{}{}", row.name, default(row)),
            among(row.policy.target()).to_owned(),
            measure(row),
            dispatch.to_owned(),
            granularity.to_owned(),
            table::optional(row.policy.period().map(every)),
            row.policy.needs().to_string().replace('`', ""),
            state.replace('`', ""),
            probes.to_owned(),
            row.meaning.replace('`', ""),
            row.source.to_owned(),
        ]);
    }
    columns
}

fn every(period: Duration) -> String {
    match period.subsec_nanos() {
        0 => format!("{} s", period.as_secs()),
        _ => format!("{} ms", period.as_millis()),
    }
}

/// All that is known of a policy.
fn page(row: &'static Row) -> String {
    let policy = &row.policy;
    let mut facts = Facts::default();
    facts.add(
        "among",
        format!("{}{}", among(policy.target()), default(row)),
    );
    if let Some(alias) = row.alias {
        facts.add("also", alias);
    }
    facts.add("chooses", row.meaning);
    if let Some(algorithm) = algorithm(row) {
        facts.add("tuple", algorithm.tuple());
    }
    facts.add("measures", measures(row));
    facts.add("holds for", format!("a {}", policy.parts().granularity));
    for parameter in policy.parameters() {
        let value = format!("{}: {}", parameter.default, parameter.meaning);
        facts.add(parameter.name, value);
    }
    facts.add("needs", policy.needs().to_string());
    let (kept, sent) = (policy.cost(), policy.sent());
    facts.add("packets", kept.probes);
    facts.add("bytes", sent.bytes);
    facts.add("sockets", sent.sockets);
    facts.add("keeps", kept.state);
    for suits in policy.suits() {
        facts.add("suits", suits);
    }
    facts.add("source", row.source);
    format!("{}\n{facts}\n{}", table::title(row.name), figures(row))
}

fn measures(row: &Row) -> String {
    let what = match algorithm(row) {
        Some(algorithm) => algorithm.measured(),
        None => row.policy.parts().measure,
    };
    let distance = row.policy.distance();
    let when = match row.policy.period() {
        Some(period) => format!(", every {}", every(period)),
        None if distance == Distance::Node => ", anew with every answer".to_owned(),
        None => String::new(),
    };
    match what {
        "none" | "nothing" => "nothing".to_owned(),
        _ => format!(
            "{what}, {}{when} (D = {})",
            distance.meaning(),
            distance.word()
        ),
    }
}

/// What the experiments have observed of it.
fn figures(row: &Row) -> String {
    let claims = observed(row.name, row.alias);
    if claims.is_empty() {
        return "No experiment has a reproduced claim that names it.\n".to_owned();
    }
    let mut columns = Columns::new(&["observed", "of", "in `anabranch-lab experiment run`"]);
    for Observed {
        experiment,
        figure,
        claim,
        value,
    } in claims
    {
        let place = format!("{experiment}/{figure}");
        columns.row([value.to_owned(), claim.to_owned(), place]);
    }
    columns.to_string()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use anabranch_core::Typed;
    use anabranch_core::algorithm::Retry;
    use anabranch_core::catalogue::Parameter;
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
            let Row {
                name,
                meaning,
                source,
                ..
            } = row;
            let Parts {
                dispatch,
                granularity,
                ..
            } = row.policy.parts();
            let parameters = row.policy.parameters().into_iter();
            let parameters: Vec<_> = parameters
                .map(|parameter| format!("`{}` = {}", parameter.name, parameter.default))
                .collect();
            let parameters = parameters.join(", ");
            let Cost { state, probes } = row.policy.cost();
            let among = among(row.policy.target());
            let (measure, needs) = (measure(row), row.policy.needs());
            table += &format!(
                "| `{name}` | {among} | {measure} × {dispatch} × {granularity} | {parameters} | {needs} | {state} | {probes} | {meaning} | {source} |\n"
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
            let parameters: String = row
                .policy
                .parameters()
                .iter()
                .map(
                    |Parameter { name, default, .. }| match default.parse::<u32>() {
                        Ok(number) => format!(", {name} = {number}"),
                        Err(_) => format!(", {name} = {default:?}"),
                    },
                )
                .collect();
            let tuple = format!(
                "policy = {{ measure = {:?}, dispatch = {:?}, granularity = {:?}, by_rate = {}, syn_retry = {}, by_loss = {}{parameters} }}",
                policy.measure,
                policy.dispatch,
                policy.granularity,
                algorithm.weighting == Weighting::Rate,
                algorithm.retry == Retry::Elsewhere,
                algorithm.by_loss
            );
            let read: File =
                toml::from_str(&tuple).unwrap_or_else(|error| panic!("{tuple}: {error}"));
            assert_eq!(read.policy.policy, algorithm, "{}", row.name);
        }
    }

    #[test]
    fn programs_are_told_the_same_keys_of_every_policy() {
        const KEYS: [&str; 10] = [
            "name",
            "target",
            "measure",
            "distance",
            "dispatch",
            "granularity",
            "period_ms",
            "needs",
            "cost",
            "source",
        ];
        for row in catalogue::rows() {
            let told = serde_json::to_value(Shown::from(row)).unwrap();
            let keys = |value: &serde_json::Value| {
                let object = value.as_object().expect("an object");
                object.keys().cloned().collect::<BTreeSet<_>>()
            };
            assert_eq!(keys(&told), KEYS.map(str::to_owned).into(), "{}", row.name);
            let cost = &told["cost"];
            let costs = ["probes", "bytes", "sockets", "state"];
            assert_eq!(keys(cost), costs.map(str::to_owned).into(), "{}", row.name);
            let words = |key: &str| cost[key].as_str().expect("words").to_owned();
            let sends = words("probes") != "none";
            assert_eq!(words("bytes") != "none", sends, "{}", row.name);
            assert!(told["distance"].is_string() && told["needs"].is_array());
        }
    }

    #[test]
    fn every_policy_has_a_page_with_its_cost_and_what_it_suits() {
        for row in catalogue::rows() {
            let page = page(row);
            for word in [
                row.name,
                row.source,
                &row.policy.cost().state.replace('`', ""),
                "packets",
                "sockets",
                "suits",
            ] {
                assert!(page.contains(word), "{word} in {page}");
            }
            assert!(!row.policy.suits().is_empty());
        }
    }
}
