use anabranch_core::rules::WhenNone;

use super::*;
use crate::{Family, Site, World};

/// Eight users, four servers, and a rule with these keys, its name in the fifth line.
fn with_rule(keys: &str) -> String {
    format!(
        "link.fiber = {{ rate = \"40mbit\" }}\nlink.lte = {{ rate = \"15mbit\" }}
workload = {{ kind = \"mix\", users = 8, servers = 4, class.web = {{ per_user = \"1/s\", size = 9 }} }}
[[rule]]
name = \"one\"
{keys}"
    )
}

#[test]
fn a_site_has_the_rules_and_the_default_class_of_the_file() {
    let scenario = read(&format!(
        "{}\n[default]\nstick = true\nlinks = \"lte\"",
        with_rule("to = \"198.18.0.2/31\"\nlinks = \"fiber\"\nthen = \"lte\"\nnone = \"drop\"")
    ));
    let site = site(&scenario);
    let [rule] = &site.rules[..] else {
        panic!("{:?}", site.rules)
    };
    assert_eq!(rule.matches.to_string(), "to 198.18.0.2/31");
    assert_eq!(rule.class.path(), "fiber, then lte, then dropped");
    assert_eq!(site.default.path(), "lte, then any link");
    assert_eq!(site.default.stick, Some(true));
    let network = "198.18.0.2/31".parse().unwrap();
    let servers = |count| Site::SERVERS.numbers_in(network, Family::V4, count);
    assert_eq!((servers(4), servers(2)), (1..3, 1..2));
}

#[test]
fn rules_match_hosts_of_the_families_there_are() {
    let of = |family: &str, to: &str| {
        format!(
            "family = {family}\n{}",
            with_rule(&format!("to = \"{to}\""))
        )
    };
    for (family, to) in [
        ("6", "2001:db8::198.18.0.2"),
        ("6", "::/0"),
        ("\"both\"", "198.18.0.2"),
        ("\"both\"", "2001:db8::/64"),
    ] {
        read(&of(family, to));
    }
    let none = |family, to, words: &str| {
        let error = error(&of(family, to));
        assert!(
            error.ends_with(&format!("none of the servers, which have {words}")),
            "{error}"
        );
    };
    let v4 = "198.18.0.1 to 198.18.0.4";
    let v6 = "2001:db8::c612:1 to 2001:db8::c612:4";
    none("4", "2001:db8::/32", v4);
    none("6", "198.18.0.2", v6);
    none("\"both\"", "198.18.0.9", &format!("{v4} and {v6}"));
}

#[test]
fn a_family_decides_results_and_ipv4_has_the_hash_it_had() {
    let hash = |text: &str| parse(text).unwrap().runs()[0].hash.clone();
    let of = |family: &str| hash(&format!("{MINIMAL}\nfamily = {family}"));
    assert_eq!(of("4"), hash(MINIMAL));
    let mut hashes = [hash(MINIMAL), of("6"), of("\"both\"")];
    hashes.sort();
    assert!(
        hashes.windows(2).all(|pair| pair[0] != pair[1]),
        "{hashes:?}"
    );
}

#[test]
fn rules_decide_results_and_a_file_without_has_the_hash_it_had() {
    let hash = |text: &str| parse(text).unwrap().runs()[0].hash.clone();
    let plain = hash(MINIMAL);
    assert_eq!(plain, hash(&format!("{MINIMAL}\n[default]")));
    let others = [
        "[default]\nstick = true",
        "[[rule]]\nname = \"a\"",
        "[[rule]]\nname = \"a\"\nlinks = \"lte\"",
        "[[rule]]\nname = \"a\"\npolicy = \"RR\"",
    ];
    let mut hashes: Vec<String> = others
        .iter()
        .map(|more| hash(&format!("{MINIMAL}\n{more}")))
        .chain([plain])
        .collect();
    hashes.sort();
    hashes.dedup();
    assert_eq!(hashes.len(), 5);
}

#[test]
fn keys_of_rules_are_swept_by_their_number() {
    let text = with_rule("flows_per_host = 1\nlinks = [\"fiber\"]");
    let sweep = "[sweep]\nrule.0.flows_per_host = [1, 2]\nrule.0.links = [[\"fiber\"], [\"lte\"]]";
    let file = parse(&format!("{text}\n{sweep}")).unwrap();
    let classes: Vec<String> = file
        .scenarios()
        .map(|(_, scenario)| {
            let class = &site(scenario).rules[0].class;
            format!("{:?} {}", class.flows_per_host, class.path())
        })
        .collect();
    assert_eq!(
        classes,
        [
            "Some(1) fiber, then any link",
            "Some(1) lte, then any link",
            "Some(2) fiber, then any link",
            "Some(2) lte, then any link",
        ]
    );
}

#[test]
fn what_no_world_can_do_is_refused_where_it_stands() {
    for (key, problem) in [
        (
            "device = \"eth0\"",
            "users come by one device; leave it out",
        ),
        ("when = \"sat\"", "a run has no time of day; leave it out"),
        ("from = \"self\"", "the gateway opens no connections"),
        (
            "from = [\"10.0.0.10\", \"192.168.0.0/16\"]",
            "none of the users, who have 10.0.0.2 to 10.0.0.9",
        ),
        (
            "to = \"203.0.113.7\"",
            "none of the servers, which have 198.18.0.1 to 198.18.0.4",
        ),
        ("protocol = \"udp\"", "all connections are TCP"),
        ("ports = [443, \"8000-8080\"]", "servers listen on port 80"),
        (
            "source_ports = \"1-1023\"",
            "users have ports 32768 to 60999",
        ),
        ("dscp = \"ef\"", "all packets have the code point 0"),
    ] {
        let (name, _) = key.split_once(" = ").unwrap();
        let message = error(&with_rule(key));
        assert!(
            message.starts_with(&format!("house.toml:6: rule[0].{name} = ")),
            "{message}"
        );
        assert!(message.ends_with(&format!(": {problem}")), "{message}");
    }
    let twice = with_rule("[[rule]]\nname = \"two\"");
    assert_eq!(
        error(&twice),
        "house.toml:7: rule[1].name = \"two\": can never match: all of its traffic is taken before by one (line 5)"
    );
    let unknown = error(&with_rule("links = \"fibre\""));
    assert!(unknown.ends_with("did you mean fiber?"), "{unknown}");
}

#[test]
fn only_gateways_that_choose_for_flows_have_classes() {
    let rule = "[[rule]]\nname = \"a\"\n";
    let striped = format!("nat = false\npolicies = [\"packet\"]\n{MINIMAL}{rule}");
    assert!(
        error(&striped).ends_with(
            "rule = [[rule]]: the policy packet asks no rules; leave it or the classes out"
        ),
        "{}",
        error(&striped)
    );
    let routed = parse(&format!("nat = false\n{MINIMAL}{rule}")).unwrap();
    let packet = routed.with_policies(&["packet".to_owned()]).unwrap_err();
    assert!(
        packet
            .to_string()
            .ends_with("asks no rules; leave it or the classes out"),
        "{packet}"
    );
    let trunk = error(&format!("{TRUNK}{rule}"));
    assert!(
        trunk.ends_with("a trunk has no classes; leave it out"),
        "{trunk}"
    );
    let default = error(&format!("{TRUNK}[default]\nstick = true"));
    assert!(default.contains(": default"), "{default}");
}

#[test]
fn shares_of_hosts_run_in_the_simulator_alone() {
    for (classes, key) in [
        ("[[rule]]\nname = \"a\"", "rule[0]"),
        ("[default]", "default"),
    ] {
        let file = parse(&format!("{MINIMAL}{classes}\nflows_per_host = 2")).unwrap();
        assert!(file.fits(World::Sim).is_ok());
        let message = file.fits(World::Lab).unwrap_err().to_string();
        assert!(
            message.contains(&format!(": {key}.flows_per_host = 2: ")),
            "{message}"
        );
        assert!(message.ends_with("run it in the simulator"), "{message}");
    }
}

#[test]
fn what_is_left_to_the_kernel_runs_in_the_laboratory_alone() {
    for (classes, key) in [
        ("[[rule]]\nname = \"a\"\nnone = \"kernel\"", "rule[0].none"),
        ("[default]\nnone = \"kernel\"", "default.none"),
    ] {
        let file = parse(&format!("{MINIMAL}{classes}")).unwrap();
        assert!(file.fits(World::Lab).is_ok());
        let message = file.fits(World::Sim).unwrap_err().to_string();
        assert!(
            message.contains(&format!("{key} = \"kernel\": ")),
            "{message}"
        );
        assert!(message.ends_with("run it in the laboratory"), "{message}");
        let site = site(file.first());
        let mut classes = site
            .rules
            .iter()
            .map(|rule| &rule.class)
            .chain([&*site.default]);
        assert!(classes.any(|class| class.when_none == WhenNone::Kernel));
    }
}
