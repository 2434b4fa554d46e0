use std::collections::BTreeSet;
use std::path::Path;

use netlink_packet_route::rule::{RuleAction, RuleAttribute};

use super::*;
use crate::observe::rules::ForeignRule;
use crate::observe::rules::tests::rule as policy_rule;
use crate::observe::tests::{FIBER, LAN, device, ip, prefix, route};
use crate::observe::{Device, Hop, Master};

const CONFIG: &str = r#"
lan = ["lan0"]
policy = "rr"
link.fiber = { device = "wan0" }
link.lte = { device = "ppp0" }
"#;

fn config(more: &str) -> Config {
    Config::parse(Path::new("a.toml"), &format!("{CONFIG}{more}")).unwrap()
}

/// A box with a LAN and two links, and nothing beside them.
fn host() -> Snapshot {
    let mut host = crate::observe::tests::host();
    host.devices
        .retain(|name, _| ["lan0", "wan0", "ppp0"].contains(&name.as_str()));
    host
}

/// Severity, name and subject of everything that is found.
fn found(config: &Config, host: &Snapshot, scene: &Scene) -> Vec<(Severity, String, String)> {
    let found = findings(config, host, scene).into_iter();
    found
        .map(|finding| {
            assert!(!finding.meaning.contains('\n') && !finding.cure.is_empty());
            (finding.severity, finding.name, finding.subject)
        })
        .collect()
}

fn only(severity: Severity, name: &str, subject: &str) -> Vec<(Severity, String, String)> {
    vec![(severity, name.to_owned(), subject.to_owned())]
}

fn with_rules(rules: &str) -> Scene {
    let json = format!(r#"{{"nftables": [{rules}]}}"#);
    Scene {
        netfilter: Ruleset::parse(&json).unwrap(),
        ..Scene::default()
    }
}

fn chain(name: &str, hook: &str, policy: &str) -> String {
    format!(
        r#"{{"chain": {{"family": "inet", "table": "fw", "name": "{name}", "hook": "{hook}", "policy": "{policy}"}}}}"#
    )
}

fn rule(chain: &str, statements: &str) -> String {
    format!(
        r#"{{"rule": {{"family": "inet", "table": "fw", "chain": "{chain}", "expr": [{statements}]}}}}"#
    )
}

fn came_by(device: &str) -> String {
    format!(
        r#"{{"match": {{"op": "==", "left": {{"meta": {{"key": "iifname"}}}}, "right": "{device}"}}}}"#
    )
}

fn to_port(port: u16) -> String {
    format!(
        r#"{{"match": {{"op": "==", "left": {{"payload": {{"protocol": "udp", "field": "dport"}}}}, "right": {port}}}}}"#
    )
}

#[test]
fn a_host_of_its_own_has_no_neighbours() {
    assert_eq!(found(&config(""), &host(), &Scene::default()), []);
}

#[test]
fn a_port_of_a_bridge_is_refused_with_the_name_of_the_bridge() {
    for name in ["lan0", "wan0"] {
        let mut host = host();
        let port = host.devices.get_mut(name).unwrap();
        port.master = Some(Master {
            device: "br0".to_owned(),
            kind: "bridge".to_owned(),
        });
        let all = findings(&config(""), &host, &Scene::default());
        let refused = refuse(&config(""), &all).unwrap_err().to_string();
        assert!(refused.contains("a port of bridge br0"), "{refused}");
        assert!(refused.contains("write \"br0\" in its place"), "{refused}");
    }
}

#[test]
fn shaping_at_the_ingress_of_a_device_of_ours_is_trouble() {
    let at = |ifindex| Scene {
        ingress: vec![IngressQdisc {
            ifindex,
            kind: "ingress".to_owned(),
        }],
        ..Scene::default()
    };
    let trouble = |device| only(Severity::Trouble, "ingress-qdisc", device);
    assert_eq!(found(&config(""), &host(), &at(FIBER)), trouble("wan0"));
    assert_eq!(found(&config(""), &host(), &at(LAN)), trouble("lan0"));
    assert_eq!(found(&config(""), &host(), &at(99)), []);
    for meant in ["ingress-qdisc", "ingress-qdisc wan0"] {
        let config = config(&format!("survey.ignore = [{meant:?}]"));
        assert_eq!(found(&config, &host(), &at(FIBER)), []);
    }
    let other = config("survey.ignore = [\"ingress-qdisc ppp0\"]");
    assert_eq!(found(&other, &host(), &at(FIBER)), trouble("wan0"));
}

#[test]
fn an_unknown_finding_cannot_be_ignored() {
    let text = format!("{CONFIG}survey.ignore = \"forward-policy\"");
    let refused = Config::parse(Path::new("a.toml"), &text).unwrap_err();
    let refused = refused.to_string();
    assert!(
        refused.contains("no finding is called \"forward-policy\""),
        "{refused}"
    );
    assert!(refused.contains("forward-filter"), "{refused}");
}

#[test]
fn a_chain_that_filters_what_is_forwarded_is_trouble() {
    let drop = r#"{"drop": null}"#;
    let trouble = || {
        only(
            Severity::Trouble,
            "forward-filter",
            "chain f of table inet fw",
        )
    };
    for rules in [
        chain("f", "forward", "drop"),
        format!("{}, {}", chain("f", "forward", "accept"), rule("f", drop)),
        [
            chain("f", "forward", "accept"),
            r#"{"chain": {"family": "inet", "table": "fw", "name": "kids"}}"#.to_owned(),
            rule("f", r#"{"jump": {"target": "kids"}}"#),
            rule("kids", r#"{"reject": null}"#),
        ]
        .join(", "),
    ] {
        assert_eq!(found(&config(""), &host(), &with_rules(&rules)), trouble());
    }
}

#[test]
fn filters_between_other_devices_and_of_broken_packets_are_nobody_s_business() {
    let invalid = r#"{"match": {"op": "in", "left": {"ct": {"key": "state"}}, "right": "invalid"}}, {"drop": null}"#;
    let of_others = format!("{}, {{\"drop\": null}}", came_by("virbr0"));
    for statements in [
        invalid,
        &of_others,
        r#"{"counter": null}, {"accept": null}"#,
    ] {
        let rules = format!(
            "{}, {}",
            chain("f", "forward", "accept"),
            rule("f", statements)
        );
        assert_eq!(
            found(&config(""), &host(), &with_rules(&rules)),
            [],
            "{statements}"
        );
    }
    let ours = chain("forward", "forward", "drop").replace("\"fw\"", "\"anabranch_main\"");
    assert_eq!(found(&config(""), &host(), &with_rules(&ours)), []);
}

#[test]
fn docker_s_own_filter_is_good_to_know() {
    let docker = [
        chain("FORWARD", "forward", "drop"),
        r#"{"chain": {"family": "inet", "table": "fw", "name": "DOCKER-USER"}}"#.to_owned(),
        rule("FORWARD", r#"{"jump": {"target": "DOCKER-USER"}}"#),
    ]
    .join(", ");
    let note = only(
        Severity::Note,
        "forward-filter",
        "chain FORWARD of table inet fw",
    );
    assert_eq!(found(&config(""), &host(), &with_rules(&docker)), note);
}

#[test]
fn a_filter_at_the_ingress_is_trouble_on_devices_of_ours() {
    let at = |device: &str| {
        let hooked = chain("i", "ingress", "accept")
            .replace("\"hook\"", &format!("\"dev\": \"{device}\", \"hook\""));
        with_rules(&format!("{hooked}, {}", rule("i", r#"{"drop": null}"#)))
    };
    let trouble = only(
        Severity::Trouble,
        "ingress-filter",
        "chain i of table inet fw",
    );
    assert_eq!(found(&config(""), &host(), &at("wan0")), trouble);
    assert_eq!(found(&config(""), &host(), &at("eth9")), []);
}

#[test]
fn devices_that_json_leaves_out_are_read_from_the_text() {
    let rules = format!(
        "{}, {}",
        chain("i", "ingress", "accept"),
        rule("i", r#"{"drop": null}"#)
    );
    let mut scene = with_rules(&rules);
    let names = ["inet", "fw", "i"];
    assert!(scene.netfilter.without_devices().eq([names]));
    let text = "table inet fw {\n\tchain i {\n\t\ttype filter hook ingress devices = { \"eth8\", \"eth9\" } priority 0; policy accept;\n";
    scene.netfilter.name_devices(names, text);
    assert_eq!(found(&config(""), &host(), &scene), []);
}

#[test]
fn a_redirection_of_the_lan_works_where_a_rule_hands_it_to_the_kernel() {
    let statements = [
        came_by("lan0"),
        to_port(53),
        r#"{"redirect": {"port": 5353}}"#.to_owned(),
    ];
    let rules = format!(
        "{}, {}",
        chain("n", "prerouting", "accept"),
        rule("n", &statements.join(", "))
    );
    let scene = with_rules(&rules);
    let subject = "chain n of table inet fw, ports 53";
    let trouble = only(Severity::Trouble, "lan-redirect", subject);
    assert_eq!(found(&config(""), &host(), &scene), trouble);
    let handed_over = |ports: &str| {
        config(&format!(
            "[[rule]]\nname = \"dns\"\nports = {ports}\nlinks = []\nnone = \"kernel\"\n"
        ))
    };
    assert_eq!(found(&handed_over("[53]"), &host(), &scene), []);
    assert_eq!(found(&handed_over("[853]"), &host(), &scene), trouble);
}

#[test]
fn ports_forwarded_from_links_want_nat_forwards() {
    let statements = [
        to_port(8080),
        r#"{"dnat": {"addr": "172.17.0.2", "port": 80}}"#.to_owned(),
    ];
    let rules = format!(
        "{}, {}",
        chain("n", "prerouting", "accept"),
        rule("n", &statements.join(", "))
    );
    let scene = with_rules(&rules);
    let trouble = only(
        Severity::Trouble,
        "port-forward",
        "chain n of table inet fw",
    );
    assert_eq!(found(&config(""), &host(), &scene), trouble);
    assert_eq!(
        found(&config("nat.forwards = \"kernel\""), &host(), &scene),
        []
    );
}

fn with_rule(rule: ForeignRule) -> Snapshot {
    Snapshot {
        rules: vec![rule],
        ..host()
    }
}

#[test]
fn tables_of_others_are_told_and_rules_of_sockets_are_not() {
    let subject = "ip rule 5270: lookup 52";
    let note = only(Severity::Note, "routing-rule", subject);
    let scene = Scene::default();
    let vpn = with_rule(policy_rule(5270, 52, vec![]));
    assert_eq!(found(&config(""), &vpn, &scene), note);
    let own = RuleAttribute::Iifname("lo".to_owned());
    for quiet in [
        policy_rule(5270, 52, vec![own]),
        policy_rule(5210, 254, vec![]),
    ] {
        assert_eq!(
            found(&config(""), &with_rule(quiet.clone()), &scene),
            [],
            "{quiet}"
        );
    }
}

fn marking(mark: u32) -> Scene {
    let set = format!(r#"{{"mangle": {{"key": {{"meta": {{"key": "mark"}}}}, "value": {mark}}}}}"#);
    with_rules(&format!(
        "{}, {}",
        chain("m", "prerouting", "accept"),
        rule("m", &set)
    ))
}

#[test]
fn a_rule_for_marks_that_netfilter_sets_is_never_met() {
    let marked = with_rule(policy_rule(1001, 1, vec![RuleAttribute::FwMark(256)]));
    let trouble = only(
        Severity::Trouble,
        "mark-rule",
        "ip rule 1001: fwmark 0x100 lookup 1",
    );
    assert_eq!(found(&config(""), &marked, &marking(256)), trouble);
    assert_eq!(
        found(&config(""), &marked, &Scene::default()),
        [],
        "marks of sockets"
    );
}

#[test]
fn another_balancer_with_our_marks_is_refused() {
    let marked = with_rule(policy_rule(
        1001,
        1,
        vec![RuleAttribute::FwMark(0xab00_0001)],
    ));
    let refused = only(
        Severity::Refused,
        "our-marks",
        "ip rule 1001: fwmark 0xab000001 lookup 1",
    );
    assert_eq!(found(&config(""), &marked, &Scene::default()), refused);
    let refused = only(Severity::Refused, "our-marks", "chain m of table inet fw");
    assert_eq!(found(&config(""), &host(), &marking(0xab00_0001)), refused);
}

#[test]
fn networks_of_no_lan_are_good_to_know() {
    let mut host = host();
    let docker = Device {
        kind: "bridge".to_owned(),
        ..device(9, &["172.17.0.1/16"])
    };
    host.devices.insert("docker0".to_owned(), docker.clone());
    let note = only(Severity::Note, "unlisted-network", "docker0");
    assert_eq!(found(&config(""), &host, &Scene::default()), note);
    let idle = Device {
        running: false,
        ..docker.clone()
    };
    host.devices.insert("docker0".to_owned(), idle);
    assert_eq!(found(&config(""), &host, &Scene::default()), []);
    host.devices.insert("eth9".to_owned(), docker);
    host.devices.remove("docker0");
    host.routes
        .push(route("0.0.0.0/0", 9, Some("172.17.0.9"), 0));
    assert_eq!(
        found(&config(""), &host, &Scene::default()),
        [],
        "a line that is no link"
    );
}

#[test]
fn an_address_that_another_has_is_trouble() {
    let mut host = host();
    host.devices.get_mut("wan0").unwrap().disputed = vec![ip("2001:db8::2")];
    let disputed = only(
        Severity::Trouble,
        "duplicate-address",
        "2001:db8::2 on wan0",
    );
    assert_eq!(found(&config(""), &host, &Scene::default()), disputed);
    host.devices.get_mut("wan0").unwrap().disputed.clear();
    host.devices
        .get_mut("wan0")
        .unwrap()
        .addresses
        .push(prefix("192.168.1.1/24"));
    let twice = only(
        Severity::Trouble,
        "duplicate-address",
        "192.168.1.1 on lan0 and wan0",
    );
    assert_eq!(found(&config(""), &host, &Scene::default()), twice);
}

#[test]
fn several_next_hops_of_a_default_route_are_good_to_know() {
    let mut host = host();
    let mut default = route("0.0.0.0/0", FIBER, Some("203.0.113.1"), 0);
    let hop = default.hops[0];
    default.hops.push(Hop { ifindex: 4, ..hop });
    host.routes.insert(0, default);
    let note = only(Severity::Note, "multipath-default", "default route of IPv4");
    assert_eq!(found(&config(""), &host, &Scene::default()), note);
}

#[test]
fn links_in_one_network_are_good_to_know() {
    let mut host = host();
    let lte = |address: &str, host: &mut Snapshot| {
        host.devices.get_mut("ppp0").unwrap().addresses = vec![prefix(address)];
        found(&config(""), host, &Scene::default())
    };
    let network = host.devices["wan0"].addresses[0].network();
    let note = only(Severity::Note, "shared-segment", "wan0 and ppp0");
    assert_eq!(lte("203.0.113.77/24", &mut host), note, "{network}");
    assert_eq!(lte("203.0.114.77/24", &mut host), []);
}

#[test]
fn a_rule_that_skips_others_is_trouble_behind_ours() {
    let jumps = |priority, target| {
        let mut rule = policy_rule(priority, 0, vec![RuleAttribute::Goto(target)]);
        rule.message.header.action = RuleAction::Goto;
        found(&config(""), &with_rule(rule), &Scene::default())
    };
    let subject = "ip rule 32700: goto 32750";
    let trouble = only(Severity::Trouble, "goto-rule", subject);
    assert_eq!(jumps(32_700, 32_750), trouble);
    assert_eq!(jumps(100, 200), [], "the kernel follows it before ours");
    assert_eq!(jumps(100, 32_766), []);
}

#[test]
fn who_takes_the_lease_of_a_link_is_good_to_know_and_two_are_trouble() {
    let client = |program: &str, device: &str| DhcpClient {
        device: device.to_owned(),
        program: program.to_owned(),
        pid: Some(7),
    };
    let with = |clients: &[DhcpClient]| {
        let scene = Scene {
            dhcp_clients: clients.to_vec(),
            ..Scene::default()
        };
        found(&config(""), &host(), &scene)
    };
    let (one, other) = (client("dhclient", "wan0"), client("udhcpc", "wan0"));
    let note = only(Severity::Note, "dhcp-client", "wan0");
    assert_eq!(with(std::slice::from_ref(&one)), note);
    assert_eq!(
        with(&[one, other]),
        only(Severity::Trouble, "dhcp-clients", "wan0")
    );
    for elsewhere in ["lan0", "eth9"] {
        assert_eq!(with(&[client("udhcpc", elsewhere)]), [], "{elsewhere}");
    }
}

#[test]
fn a_setting_that_somebody_set_back_is_trouble() {
    let name = "net.ipv4.conf.wan0.rp_filter";
    let undone = Undone {
        name: name.to_owned(),
        found: "1".to_owned(),
        wanted: "2".to_owned(),
    };
    let scene = Scene {
        undone: vec![undone],
        ..Scene::default()
    };
    let trouble = only(Severity::Trouble, "setting-undone", name);
    assert_eq!(found(&config(""), &host(), &scene), trouble);
}

#[test]
fn a_full_connection_table_is_told_with_those_who_fill_it() {
    let with = |entries| Scene {
        conntrack: Some(Conntrack {
            entries,
            places: 1000,
            sources: vec![("192.168.1.66".parse().unwrap(), 650), (ip("10.0.0.1"), 3)],
        }),
        ..Scene::default()
    };
    assert_eq!(found(&config(""), &host(), &with(799)), []);
    let trouble = only(Severity::Trouble, "conntrack-full", "nf_conntrack");
    assert_eq!(found(&config(""), &host(), &with(800)), trouble);
    let told = findings(&config(""), &host(), &with(800));
    let meaning = &told[0].meaning;
    assert!(
        meaning.ends_with("of its connections 192.168.1.66 has 80 %"),
        "{meaning}"
    );
}

#[test]
fn the_log_hears_of_a_finding_once_and_again_when_it_changes_or_goes() {
    let shaped = |meaning: &str| Finding {
        severity: Severity::Trouble,
        name: "ingress-qdisc".to_owned(),
        subject: "wan0".to_owned(),
        meaning: meaning.to_owned(),
        cure: String::new(),
    };
    let mut told = Told::default();
    let first = shaped("ingress");
    assert_eq!(
        told.changes(std::slice::from_ref(&first)),
        [Change::Found(first.clone())]
    );
    assert_eq!(told.changes(&[first]), []);
    let second = shaped("clsact");
    assert_eq!(
        told.changes(std::slice::from_ref(&second)),
        [Change::Found(second.clone())]
    );
    assert_eq!(told.changes(&[]), [Change::Gone(second)]);
    assert_eq!(told.changes(&[]), []);
}

#[test]
fn a_packet_of_no_known_connection_is_nothing_to_hosts_without_firewall_or_translation() {
    let same = |json: &str| !with_rules(json).netfilter.tells_untracked_apart();
    let input = chain("input", "input", "drop");
    let of_connections = r#"{"match": {"op": "in", "left": {"ct": {"key": "state"}}, "right": ["established", "related"]}}, {"accept": null}"#;
    assert!(same(""));
    let by_ports = rule("input", &format!("{}, {{\"accept\": null}}", to_port(53)));
    assert!(same(&format!("{input}, {by_ports}")));
    let forward = chain("forward", "forward", "drop");
    assert!(same(&format!(
        "{forward}, {}",
        rule("forward", of_connections)
    )));

    for statements in [
        of_connections,
        r#"{"vmap": {"key": {"ct": {"key": "state"}}, "data": {"set": [["established", {"accept": null}]]}}}"#,
        r#"{"match": {"op": "!=", "left": {"meta": {"key": "mark"}}, "right": 51820}}, {"drop": null}"#,
        r#"{"xt": {"type": "match", "name": "conntrack"}}"#,
        r#"{"masquerade": null}"#,
        r#"{"ct count": {"val": 20, "inv": true}}, {"drop": null}"#,
    ] {
        assert!(
            !same(&format!("{input}, {}", rule("input", statements))),
            "{statements}"
        );
        let behind = r#"{"chain": {"family": "inet", "table": "fw", "name": "behind"}}"#;
        let behind = format!("{input}, {behind}, {}", rule("behind", statements));
        assert!(!same(&behind), "{statements}, in a chain without a hook");
    }
}

#[test]
fn a_full_neighbour_table_is_told_with_the_devices_that_fill_it() {
    let scene = Scene {
        full_neighbour_tables: vec![NeighbourTable {
            family: Family::V4,
            entries: 1000,
            places: 1024,
            devices: vec![("lan0".to_owned(), 970), ("wan0".to_owned(), 30)],
        }],
        ..Scene::default()
    };
    let told = findings(&config(""), &host(), &scene);
    let expected = only(Severity::Trouble, "neighbour-table-full", "net.ipv4.neigh");
    assert_eq!(found(&config(""), &host(), &scene), expected);
    assert!(
        told[0].meaning.ends_with("of its entries lan0 has 90 %"),
        "{told:?}"
    );
    assert!(
        told[0]
            .cure
            .contains("net.ipv4.neigh.default.gc_thresh3 above 1024")
    );
}

#[test]
fn the_page_on_neighbours_tells_of_every_finding() {
    let page = include_str!("../../../../docs/neighbours.md");
    let table = page.split("| finding |").nth(1).unwrap();
    let rows = table
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    let first = |row: &'static str| row.split('|').nth(1).unwrap();
    let told: BTreeSet<&str> = rows
        .flat_map(|row| first(row).split('`').skip(1).step_by(2))
        .collect();
    assert_eq!(told, NAMES.iter().copied().collect());
}
