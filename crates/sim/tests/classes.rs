//! Classes of traffic in virtual time: whose links a transfer takes, and what becomes of it without one.

use std::collections::BTreeMap;
use std::path::Path;

use anabranch_scenario::{Outcome, Policy, Record, Scenario, ScenarioFile, Transfer};
use anabranch_sim::SimError;

mod common;

use common::{gateway, of, play};

fn read(text: &str) -> Scenario {
    let file = ScenarioFile::parse(Path::new("office.toml"), text);
    let file = file.unwrap_or_else(|error| panic!("{error}"));
    Scenario::clone(file.first())
}

const OFFICE: &str = include_str!("../../../scenarios/office.toml");
/// A SYN that was sent before may be answered by another link after it; the gateway knows of the cut by then.
const KNOWN_S: f64 = 3.0;

/// How many transfers of a class that began in a time ended on which link, or in which way without one.
fn fates(record: &Record, class: &str, from_s: f64, to_s: f64) -> BTreeMap<String, usize> {
    let mut fates = BTreeMap::new();
    let began = |t: &&Transfer| (from_s..to_s).contains(&t.start_s);
    let of_class = |t: &&Transfer| t.class.as_deref() == Some(class);
    for transfer in record.transfers.iter().filter(of_class).filter(began) {
        let outcome = || format!("{:?}", transfer.outcome);
        *fates
            .entry(transfer.link.clone().unwrap_or_else(outcome))
            .or_default() += 1;
    }
    fates
}

fn places(fates: &BTreeMap<String, usize>) -> Vec<&str> {
    fates.keys().map(String::as_str).collect()
}

#[test]
fn every_transfer_is_on_the_links_of_its_class_before_and_after_a_cut() {
    let record = play(&read(OFFICE), gateway("WSDM"), 1);
    let cut_s = 20.0;
    let before = |class| fates(&record, class, 0.0, cut_s);
    let after = |class| fates(&record, class, cut_s + KNOWN_S, 40.0);
    assert_eq!(places(&before("video")), ["fiber"]);
    assert_eq!(places(&after("video")), ["cable"]);
    assert_eq!(places(&before("bulk")), ["cable"]);
    assert_eq!(places(&after("bulk")), ["cable"]);
    assert_eq!(places(&before("backup")), ["fiber"]);
    assert_eq!(places(&after("backup")), ["ConnectTimeout", "Unfinished"]);
    // Every link but a metered one.
    assert_eq!(places(&before("web")), ["cable", "fiber"]);
    assert_eq!(places(&after("web")), ["cable"]);
}

/// Two links, users of `family`, and a rule for what has IPv6.
fn with_a_rule_for_ipv6(family: &str) -> Record {
    let rule = match family {
        "4" => "",
        _ => "[[rule]]\nname = \"six\"\nto = \"2001:db8::/64\"\nlinks = \"b\"",
    };
    let text = format!(
        "family = {family}
        link.a = {{ rate = \"20mbit\" }}
        link.b = {{ rate = \"20mbit\" }}
        length = \"20s\"
        [workload]
        kind = \"mix\"
        users = 4
        class.web = {{ per_user = \"1/s\", size = \"5kB\" }}
        {rule}
        [default]
        links = \"a\"",
    );
    play(&read(&text), gateway("RR"), 1)
}

#[test]
fn rules_see_the_addresses_of_the_family_that_a_connection_has() {
    for (family, has) in [
        ("4", [true, false]),
        ("6", [false, true]),
        ("\"both\"", [true, true]),
    ] {
        let record = with_a_rule_for_ipv6(family);
        let of_v6 = |transfer: &&Transfer| transfer.source.is_ipv6();
        let (v6, v4): (Vec<_>, Vec<_>) = record.transfers.iter().partition(of_v6);
        assert_eq!([!v4.is_empty(), !v6.is_empty()], has, "family {family}");
        assert!(
            v4.iter()
                .all(|transfer| transfer.link.as_deref() == Some("a"))
        );
        assert!(
            v6.iter()
                .all(|transfer| transfer.link.as_deref() == Some("b"))
        );
    }
}

#[test]
fn the_default_class_has_tiers_too_and_rules_a_policy_of_their_own() {
    let text = r#"
        link.a = { rate = "20mbit" }
        link.b = { rate = "20mbit" }
        link.c = { rate = "20mbit" }
        policies = ["RR"]
        length = "20s"
        [workload]
        kind = "mix"
        users = 4
        servers = 2
        class.rest = { per_user = "1/s", size = "5kB", server = 0 }
        class.one = { per_user = "1/s", size = "5kB", server = 1 }
        [[rule]]
        name = "one"
        to = "198.18.0.2"
        granularity = "host"
        [default]
        links = ["a"]
        then = ["b", "c"]
    "#;
    let record = play(&read(text), gateway("RR"), 1);
    assert_eq!(places(&fates(&record, "rest", 0.0, 20.0)), ["a"]);
    let one = |user: u32| {
        let those = record.transfers.iter().filter(move |t| t.user.0 == user);
        let links = those
            .filter(|t| t.class.as_deref() == Some("one"))
            .filter_map(|t| t.link.as_deref());
        let mut links: Vec<&str> = links.collect();
        links.dedup();
        links
    };
    let mut used: Vec<&str> = (0..4)
        .map(|user| {
            let links = one(user);
            assert_eq!(links.len(), 1, "a host has one link: {links:?}");
            links[0]
        })
        .collect();
    used.sort();
    used.dedup();
    assert_eq!(used, ["a", "b", "c"], "hosts take turns over all links");
}

#[test]
fn a_host_s_share_of_a_class_bounds_what_it_has_at_once_and_nothing_else() {
    let with = |quota: &str| {
        let text = format!(
            r#"
            link.a = {{ rate = "2mbit" }}
            length = "60s"
            [workload]
            kind = "rows"
            rows = [
                {{ at = "1s", size = "200kB", server = 1 }},
                {{ at = "1.1s", size = "200kB", server = 1 }},
                {{ at = "1.2s", size = "200kB", server = 1 }},
                {{ at = "1.3s", size = "200kB", server = 0 }},
                {{ at = "1.4s", size = "200kB", server = 1, user = 1 }},
            ]
            [[rule]]
            name = "few"
            to = "198.18.0.2"
            {quota}
            "#
        );
        let record = play(&read(&text), gateway("RR"), 1);
        let outcomes = record.transfers.iter().map(|t| t.outcome == Outcome::Ok);
        outcomes.collect::<Vec<_>>()
    };
    assert_eq!(with(""), [true; 5]);
    assert_eq!(
        with("flows_per_host = 2"),
        [true, true, false, true, true],
        "the third of the host, in that class"
    );
}

#[test]
fn a_class_of_the_kernel_s_cannot_be_simulated() {
    let text = "link.a.rate = \"1mbit\"\n[[rule]]\nname = \"a\"\nnone = \"kernel\"";
    let policy: Policy = gateway("RR");
    let error = anabranch_sim::run(&of(&read(text), policy, 1), &mut |_| ());
    assert!(matches!(error, Err(SimError::Kernel)), "{error:?}");
}

/// `scenarios/distance.toml`, over its lossy link alone.
#[test]
fn what_comes_from_afar_takes_longer_where_a_line_loses_by_distance() {
    let text = include_str!("../../../scenarios/distance.toml");
    let alone = |per_hop: &str| {
        let is_kept = |line: &&str| !line.starts_with("link.long") && !line.starts_with("policies");
        let lines: Vec<_> = text.lines().filter(is_kept).collect();
        let text = lines.join("\n").replace("\"0.3%\"", per_hop);
        assert!(text.contains(per_hop));
        read(&text)
    };
    let mean_s = |record: &Record, class: &str| {
        let of = |t: &&Transfer| t.class.as_deref() == Some(class) && t.outcome.is_ok();
        let of_class = record.transfers.iter().filter(of);
        let durations: Vec<_> = of_class.map(|t| t.duration_s).collect();
        assert!(durations.len() > 20, "{}", durations.len());
        durations.iter().sum::<f64>() / durations.len() as f64
    };
    for seed in 1..=3 {
        let far_over_near = |per_hop| {
            let record = play(&alone(per_hop), gateway("RR"), seed);
            mean_s(&record, "far") / mean_s(&record, "near")
        };
        let (lossy, clean) = (far_over_near("\"1%\""), far_over_near("\"0%\""));
        println!("seed {seed}: {lossy:.2}, without loss {clean:.2}");
        assert!(lossy > 1.5 && (0.8..1.25).contains(&clean));
    }
}
