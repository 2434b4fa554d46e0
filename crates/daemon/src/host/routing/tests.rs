use std::path::Path;

use super::*;
use crate::observe::tests::host;

const CONFIG: &str = r#"
lan = ["lan0"]
policy = "rr"
link.fiber = { device = "wan0" }
link.lte = { device = "ppp0" }
"#;

const FIBER: Way = Way::Link(LinkId(0));
const LTE: Way = Way::Link(LinkId(1));

const BACKUP: &str = r#"
[[rule]]
name = "backup"
from = "self"
to = "198.51.100.0/24"
ports = [873, "5000-5010"]
protocol = "tcp"
"#;

const LAN: &str = r#"
[[rule]]
name = "lan"
from = "192.168.1.0/24"
"#;

const PING: &str = r#"
[[rule]]
name = "ping"
protocol = "icmp"
"#;

fn ids() -> Ids {
    Ids::of("default")
}

fn rule_way(place: usize, class: u8, way: Way) -> RuleWay {
    RuleWay {
        place,
        class: ClassId(class),
        way: PerFamily::from_fn(|_| way),
    }
}

/// Where these rules lead while the fiber is the first usable link.
fn derive(rules: &[&str], ways: &[RuleWay]) -> Routing {
    derive_with(rules, ways, Some(LinkId(0)))
}

fn derive_with(rules: &[&str], ways: &[RuleWay], first_usable: Option<LinkId>) -> Routing {
    let text = [CONFIG, &rules.concat()].concat();
    let config = Config::parse(Path::new("a.toml"), &text);
    let config = config.unwrap();
    let slots = Slots::default().assign(config.names());
    let desired = Desired::derive(&config, &slots, &host());
    let ways = Ways {
        first_usable: PerFamily::only(Family::V4, first_usable),
        alive: PerFamily::from_fn(|_| [LinkId(0), LinkId(1)].into_iter().collect()),
        rules: ways.to_vec(),
    };
    Routing::derive(ids(), Family::V4, &config, &slots, &desired, &ways, false)
}

/// What is there for the host's own packets, in the order in which the kernel looks.
fn own(routing: &Routing) -> Vec<(&OwnTraffic, To)> {
    let rules = routing.rules.iter().filter_map(|rule| match &rule.select {
        Select::Own(own) => Some((own, rule.to)),
        _ => None,
    });
    rules.collect()
}

fn device(routing: &Routing, table: u32) -> u32 {
    match routing.tables[&table][&Prefix::everything(Family::V4)] {
        Route::Through(route) => route.ifindex,
        _ => panic!("table {table} leads nowhere"),
    }
}

fn backup_of(ports: (u16, u16)) -> OwnTraffic {
    OwnTraffic {
        to: Some((Ipv4Addr::new(198, 51, 100, 0).into(), 24)),
        protocol: Some(6),
        ports: Some(ports),
        source_ports: None,
    }
}

#[test]
fn rules_stand_in_their_order_between_specific_routes_and_the_first_usable_link() {
    let ways = [rule_way(0, 2, LTE), rule_way(2, 1, FIBER)];
    let routing = derive(&[BACKUP, LAN, PING], &ways);
    let [backup, ping] = [2, 1].map(|class| ids().class_table(ClassId(class)));
    let everything = OwnTraffic::default();
    let echo = OwnTraffic {
        protocol: Some(1),
        ..OwnTraffic::default()
    };
    assert_eq!(
        own(&routing),
        [
            (&everything, To::Specific(TABLE_MAIN)),
            (&backup_of((873, 873)), To::Table(backup)),
            (&backup_of((5000, 5010)), To::Table(backup)),
            (&echo, To::Table(ping)),
            (&everything, To::Table(ids().first_usable_table())),
        ]
    );
    assert_eq!(
        [backup, ping].map(|table| device(&routing, table)),
        [4, 3],
        "each by its own link"
    );
}

#[test]
fn another_tier_is_another_route_and_the_same_rules() {
    let before = derive(&[BACKUP], &[rule_way(0, 1, LTE)]);
    let after = derive(&[BACKUP], &[rule_way(0, 1, FIBER)]);
    assert_eq!(before.rules, after.rules);
    let table = ids().class_table(ClassId(1));
    assert_eq!([&before, &after].map(|at| device(at, table)), [4, 3]);
}

#[test]
fn where_no_link_is_left_packets_are_refused_or_the_kernels_past_later_rules() {
    let refused = derive(&[BACKUP], &[rule_way(0, 1, Way::Refused)]);
    let table = ids().class_table(ClassId(1));
    assert_eq!(
        refused.tables[&table][&Prefix::everything(Family::V4)],
        Route::Unreachable
    );
    assert_eq!(own(&refused)[1].1, To::Table(table));

    let kernel = derive(&[BACKUP], &[rule_way(0, 1, Way::Kernel)]);
    assert!(!kernel.tables.contains_key(&table));
    assert_eq!(own(&kernel)[1].1, To::Main);
}

#[test]
fn rules_go_on_while_the_default_class_has_no_link() {
    let routing = derive_with(&[BACKUP], &[rule_way(0, 1, LTE)], None);
    let table = To::Table(ids().class_table(ClassId(1)));
    let leads: Vec<To> = own(&routing).into_iter().map(|(_, to)| to).collect();
    assert_eq!(leads, [To::Specific(TABLE_MAIN), table, table]);
}

#[test]
fn a_rule_that_comes_last_or_goes_touches_no_other() {
    let one = derive(&[BACKUP], &[rule_way(0, 1, LTE)]);
    let ways = [rule_way(0, 1, LTE), rule_way(1, 2, FIBER)];
    let two = derive(&[BACKUP, PING], &ways);
    assert!(one.rules.is_subset(&two.rules));
    assert_eq!(two.rules.len(), one.rules.len() + 1);
    let same = one
        .tables
        .iter()
        .all(|at| two.tables.get(at.0) == Some(at.1));
    assert!(same, "{one:?} {two:?}");
    assert_eq!(derive(&[BACKUP], &[]), derive(&[], &[]), "out of its hours");
}
