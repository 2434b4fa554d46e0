//! Policies of somebody's own decide what virtual users get.

use std::collections::BTreeSet;
use std::path::Path;

use anabranch_core::catalogue::{self, Row};
use anabranch_core::measure::Measure;
use anabranch_core::{Algorithm, LinkId, LinkView, OwnPolicy, Time};
use anabranch_scenario::{Record, ScenarioFile};

#[derive(Debug)]
struct Second;

impl OwnPolicy for Second {
    fn weigh(&mut self, _: Time, links: &[LinkView<'_>]) -> Vec<u64> {
        let is_second = |link: &LinkView<'_>| link.link == LinkId(1);
        links.iter().map(|link| is_second(link).into()).collect()
    }
}

static SECOND: Measure = Measure::own("second", || Box::new(Second));

const HOUSE: &str = r#"
    length = "20s"
    policies = ["second", "RR", { name = "mine", measure = "second", dispatch = "best", granularity = "session" }]
    link.a = { rate = "20mbit", delay = "5ms" }
    link.b = { rate = "5mbit", delay = "20ms" }
    fault = [{ at = "10s", link = "b", change = "cut" }]
    [workload]
    kind = "mix"
    users = 4
    class.web = { per_user = "2/s", size = "5kB" }
"#;

/// The links of the transfers that began in a time.
fn links(record: &Record, from_s: f64, to_s: f64) -> BTreeSet<&str> {
    let all = record.transfers.iter();
    let began = all.filter(|transfer| (from_s..to_s).contains(&transfer.start_s));
    began
        .map(|transfer| transfer.link.as_deref().unwrap_or("none"))
        .collect()
}

#[test]
fn a_policy_that_weighs_the_second_link_alone_sends_everything_there_until_it_is_cut() {
    let own = Row::own(Algorithm::own(&SECOND), "the second link");
    catalogue::extend(vec![own]).unwrap();
    let file = ScenarioFile::parse(Path::new("house.toml"), HOUSE).unwrap();
    for run in file.runs() {
        let record = anabranch_sim::run(&run, &mut |_| {}).unwrap();
        let expected = match run.policy_name.as_str() {
            "RR" => BTreeSet::from(["a", "b"]),
            _ => BTreeSet::from(["b"]),
        };
        assert_eq!(links(&record, 0.0, 9.0), expected, "{run}");
        assert_eq!(links(&record, 13.0, 18.0), BTreeSet::from(["a"]), "{run}");
        let again = anabranch_sim::run(&run, &mut |_| {}).unwrap();
        assert_eq!(record.transfers, again.transfers, "{run}");
    }
}
