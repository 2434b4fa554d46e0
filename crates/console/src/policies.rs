//! The command `policies`: names, tuples, what they need and what they cost.

mod observed;

use std::collections::BTreeSet;
use std::time::Duration;

use anabranch_config::{BadInput, did_you_mean};
use anabranch_core::catalogue::{Cost, Page, Parts, Sent, TARGETS, TargetKind, TargetRow};
use anabranch_core::measure::Distance;
use serde::Serialize;

use crate::output::{print, print_json};
use crate::table::{self, Columns, Details};
use observed::{Observed, observed};

/// A policy, in the words that a configuration uses for a tuple.
#[derive(Serialize)]
struct Shown {
    name: &'static str,
    target: TargetKind,
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

impl From<Page> for Shown {
    fn from(page: Page) -> Self {
        let Parts {
            measure,
            dispatch,
            granularity,
        } = page.parts;
        let needs = page.needs.list().into_iter();
        Self {
            name: page.name,
            target: page.target,
            measure,
            distance: page.distance.word(),
            dispatch,
            granularity,
            period_ms: page.period.map(|period| period.as_millis() as u64),
            needs: needs.map(|need| need.replace('`', "")).collect(),
            cost: Costs {
                kept: page.cost,
                sent: page.sent,
            },
            source: page.source,
        }
    }
}

/// Prints a table of `all`, or a page of each that has this name.
///
/// # Errors
/// If none has it.
pub fn run(all: Vec<Page>, name: Option<&str>, json: bool) -> anyhow::Result<()> {
    let pages = match name {
        Some(name) => named(&all, name)?,
        None => all,
    };
    match name {
        _ if json => print_json(&pages.into_iter().map(Shown::from).collect::<Vec<_>>()),
        Some(_) => print(pages.iter().map(shown).collect::<Vec<_>>().join("\n")),
        None => print(columns(&pages)),
    }
}

/// One at most of each kind of target.
fn named(all: &[Page], name: &str) -> Result<Vec<Page>, BadInput> {
    let is = |known: &str| known.eq_ignore_ascii_case(name);
    let of = |target| {
        let among = || all.iter().filter(move |page| page.target == target);
        among()
            .find(|page| is(page.name))
            .or_else(|| among().find(|page| page.alias.is_some_and(is)))
    };
    let found = TARGETS.iter().filter_map(|row| of(row.target));
    let found: Vec<_> = found.cloned().collect();
    if found.is_empty() {
        let mut names: Vec<_> = all.iter().map(|page| page.name).collect();
        let mut seen = BTreeSet::new();
        names.retain(|name| seen.insert(*name));
        let meant = did_you_mean(name, names.iter().copied());
        let allowed = names.join(", ");
        return Err(BadInput::new(format!(
            "unknown policy {name}; allowed: {allowed}{meant}"
        )));
    }
    Ok(found)
}

/// What paths are compared by, as tables have it.
pub fn measure(page: &Page) -> String {
    let Parts { measure, .. } = page.parts;
    match page.divided_by {
        Some(divisor) => format!("{measure} / {divisor}"),
        None => measure.to_owned(),
    }
}

fn default(page: &Page) -> &'static str {
    match page.is_default {
        true => " (default)",
        false => "",
    }
}

fn columns(pages: &[Page]) -> Columns {
    let mut columns = Columns::new(&[
        "policy", "among", "measure", "dispatch", "for each", ">every", "needs", "keeps", "sends",
        "chooses", "source",
    ]);
    for page in pages {
        let Parts {
            dispatch,
            granularity,
            ..
        } = page.parts;
        let Cost { state, probes } = page.cost;
        columns.row([
            format!("{}{}", page.name, default(page)),
            page.target.row().plural.to_owned(),
            measure(page),
            dispatch.to_owned(),
            granularity.to_owned(),
            table::optional(page.period.map(every)),
            page.needs.to_string().replace('`', ""),
            state.replace('`', ""),
            probes.to_owned(),
            page.meaning.replace('`', ""),
            page.source.to_owned(),
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
fn shown(page: &Page) -> String {
    let mut facts = Details::default();
    let TargetRow { plural, max, .. } = page.target.row();
    facts.add("among", format!("{plural}, at most {max}{}", default(page)));
    if let Some(key) = page.key {
        facts.add("set by", key);
    }
    if let Some(alias) = page.alias {
        facts.add("also", alias);
    }
    facts.add("chooses", page.meaning);
    if let Some(tuple) = &page.tuple {
        facts.add("tuple", tuple.clone());
    }
    facts.add("measures", measures(page));
    facts.add("holds for", format!("a {}", page.parts.granularity));
    for parameter in &page.parameters {
        let value = format!("{}: {}", parameter.default, parameter.meaning);
        facts.add(parameter.name, value);
    }
    facts.add("needs", page.needs.to_string());
    facts.add("packets", page.cost.probes);
    facts.add("bytes", page.sent.bytes.clone());
    facts.add("sockets", page.sent.sockets);
    facts.add("keeps", page.cost.state);
    for suits in &page.suits {
        facts.add("suits", *suits);
    }
    facts.add("source", page.source);
    format!("{}\n{facts}{}", table::title(page.name), figures(page))
}

fn measures(page: &Page) -> String {
    let when = match page.period {
        Some(period) => format!(", every {}", every(period)),
        None if page.distance == Distance::Node => ", anew with every answer".to_owned(),
        None => String::new(),
    };
    match page.measured {
        "none" | "nothing" => "nothing".to_owned(),
        what => format!(
            "{what}, {}{when} (D = {})",
            page.distance.meaning(),
            page.distance.word()
        ),
    }
}

/// What the experiments have observed of it.
fn figures(page: &Page) -> String {
    if !page.target.row().has_scenarios {
        return String::new();
    }
    let claims = observed(page.name, page.alias);
    if claims.is_empty() {
        return "\nNo experiment has a reproduced claim that names it.\n".to_owned();
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
    format!("\n{columns}")
}

#[cfg(test)]
mod tests {
    use anabranch_core::algorithm::{Algorithm, Retry, Weighting};
    use anabranch_core::catalogue::{self, Parameter, ROWS, Row};
    use anabranch_core::{Policy, Typed};
    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize)]
    struct File {
        policy: Typed<Algorithm>,
    }

    #[test]
    fn what_is_shown_of_an_algorithm_is_what_a_configuration_may_write() {
        for row in &ROWS {
            let Policy::Gateway(algorithm) = row.policy else {
                continue;
            };
            let page = row.page();
            let parameters: String = page
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
                "policy = {{ measure = {:?}, dispatch = {:?}, granularity = {:?}, by_rate = {}, syn_retry = {}, by_loss = {}{parameters} }}",
                page.parts.measure,
                page.parts.dispatch,
                page.parts.granularity,
                algorithm.weighting == Weighting::Rate,
                algorithm.retry == Retry::Elsewhere,
                algorithm.learning.is_by_loss()
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
            let told = serde_json::to_value(Shown::from(row.page())).unwrap();
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
        for page in catalogue::rows().map(Row::page) {
            let text = shown(&page);
            let state = page.cost.state.replace('`', "");
            for word in [
                page.name,
                page.source,
                &state,
                "packets",
                "sockets",
                "suits",
            ] {
                assert!(text.contains(word), "{word} in {text}");
            }
            assert!(!page.suits.is_empty());
        }
    }
}
