//! `[[rule]]` and `[default]`.

use anabranch_core::rules::{Direction, WhenNone};
use anabranch_policy::Granularity;

use super::*;

/// The minimal configuration with rules behind it.
fn with(rules: &str) -> Result<Config, BadInput> {
    parse(&format!("{MINIMAL}{rules}"))
}

/// The message about these rules; the first line is the sixth of the file.
fn refusal(rules: &str) -> String {
    error(&format!("{MINIMAL}{rules}"))
        .strip_prefix("/etc/anabranch.toml:")
        .expect("with a line")
        .to_owned()
}

fn remarks(rules: &str) -> Vec<String> {
    let remarks = with(rules).unwrap().remarks;
    remarks.iter().map(Remark::to_string).collect()
}

const VIDEO: &str = r#"
[[rule]]
name = "video"
from = ["192.168.1.0/24", "self"]
to = "203.0.113.0/24"
protocol = ["tcp", "udp"]
ports = [443, "5000-5010"]
dscp = ["af41", 46]
device = "eth0"
when = ["mon-fri 08:00-18:00", "sat"]
policy = "WRR"
granularity = "host"
links = "fiber"
then = ["lte"]
none = "drop"
direction = "down"
flows_per_host = 100
on_return = "move"
stick = false
except = [5000]
"#;

#[test]
fn a_file_without_rules_has_the_default_class_alone() {
    let config = parse(MINIMAL).unwrap();
    assert!(config.rules.is_empty() && config.remarks.is_empty());
    assert_eq!(config.default.name, "default");
    assert_eq!(config.default.tiers, None);
}

#[test]
fn every_key_of_a_rule_is_read() {
    let config = with(VIDEO).unwrap();
    let [rule] = &config.rules[..] else {
        panic!("{:?}", config.rules)
    };
    let matches = &rule.matches;
    assert_eq!((matches.from.len(), matches.to.len()), (2, 1));
    assert_eq!(matches.protocols, [6, 17]);
    assert_eq!(matches.ports, [443..=443, 5000..=5010]);
    assert_eq!(matches.dscp, [34, 46]);
    assert_eq!(matches.devices, ["eth0"]);
    let when = matches.when.as_ref().unwrap();
    assert_eq!(when.to_string(), "mon-fri 08:00-18:00 or sat");
    let class = &rule.class;
    assert_eq!(class.policy.as_ref().unwrap().name, "WRR");
    assert_eq!(class.granularity, Some(Granularity::Host));
    assert_eq!(
        class.tiers,
        Some(vec![vec!["fiber".to_owned()], vec!["lte".to_owned()]])
    );
    assert_eq!(class.when_none, WhenNone::Drop);
    assert_eq!(class.direction, Some(Direction::Down));
    assert_eq!(class.flows_per_host, Some(100));
    assert_eq!(class.on_return, Some(OnReturn::Move));
    let sessions = class.sessions(&config.sessions);
    assert_eq!((sessions.stick, sessions.except), (false, vec![5000]));
}

#[test]
fn tiers_are_one_list_or_several() {
    let tiers = |then: &str| {
        let rule = format!("[[rule]]\nname = \"a\"\nlinks = [\"fiber\"]\nthen = {then}\n");
        let text =
            format!("{MINIMAL}link.radio = {{ device = \"eth2\", down = \"9mbit\" }}\n{rule}");
        parse(&text).unwrap().rules[0].class.tiers.clone().unwrap()
    };
    assert_eq!(tiers("\"lte\""), [["fiber"], ["lte"]]);
    assert_eq!(
        tiers("[\"lte\", \"radio\"]"),
        [vec!["fiber"], vec!["lte", "radio"]]
    );
    assert_eq!(
        tiers("[[\"lte\"], \"radio\"]"),
        [["fiber"], ["lte"], ["radio"]]
    );
}

#[test]
fn a_rule_may_have_no_link_if_it_says_what_happens_then() {
    let config = with("[[rule]]\nname = \"a\"\nlinks = []\nnone = \"drop\"\n").unwrap();
    assert_eq!(config.rules[0].class.tiers, Some(vec![]));
    assert_eq!(
        refusal("[[rule]]\nname = \"a\"\nlinks = []\n"),
        r#"7: rule[0].links = []: no link; leave the key out for all, or write none = "drop" or "kernel""#
    );
}

#[test]
fn a_rule_has_no_more_tiers_than_the_programs_have_room_for() {
    let then = "then = [[\"b\"], [\"c\"], [\"d\"], [\"e\"]]";
    let told = refusal(&format!(
        "[[rule]]\nname = \"a\"\nlinks = [\"fiber\"]\n{then}\n"
    ));
    assert_eq!(
        told,
        format!("8: rule[0].{then}: at most 3 tiers are allowed behind links")
    );
}

#[test]
fn a_wrong_value_of_a_rule_is_told_with_its_line_and_what_is_allowed() {
    for (line, message) in [
        (
            "from = \"lan\"",
            r#"from = "lan": write a network or a host, like "192.168.1.0/24", "192.168.1.7" or "2001:db8:1::/48"; "self" is the gateway's own traffic"#,
        ),
        (
            "to = [\"10.0.0.0/8\", \"10.0.0.1/8\"]",
            r#"to[1] = "10.0.0.1/8": has bits beyond its length; the network is 10.0.0.0/8"#,
        ),
        (
            "to = \"2001:db8::1/32\"",
            r#"to = "2001:db8::1/32": has bits beyond its length; the network is 2001:db8::/32"#,
        ),
        (
            "protocol = \"tcpp\"",
            r#"protocol = "tcpp": allowed: tcp, udp, icmp, icmp6; did you mean tcp?"#,
        ),
        (
            "ports = [80, \"90-80\"]",
            r#"ports[1] = "90-80": write a port from 1 to 65535, or a range like "5000-5010""#,
        ),
        (
            "source_ports = 0",
            r#"source_ports = 0: write a port from 1 to 65535, or a range like "5000-5010""#,
        ),
        (
            "device = \"eth1\"",
            "device = \"eth1\": not a LAN device; allowed: eth0; did you mean eth0?",
        ),
        (
            "links = [\"fibre\"]",
            "links = [\"fibre\"]: no link has the name fibre; allowed: fiber, lte; did you mean fiber?",
        ),
        (
            "links = [\"fiber\", \"fiber\"]",
            "links = [\"fiber\", \"fiber\"]: fiber is there twice",
        ),
        (
            "then = [\"lte\"]",
            "then = [\"lte\"]: write the links to use first as links = […]",
        ),
        (
            "ports = []",
            "ports = []: an empty list; leave the key out for any",
        ),
        (
            "flows_per_host = 0",
            r#"flows_per_host = 0: 1 or more; links = [] and none = "drop" refuse all"#,
        ),
    ] {
        let rule = format!("[[rule]]\nname = \"a\"\n{line}\n");
        assert_eq!(refusal(&rule), format!("7: rule[0].{message}"));
    }
    let dscp = refusal("[[rule]]\nname = \"a\"\ndscp = \"af44\"\n");
    assert!(
        dscp.starts_with("7: rule[0].dscp = \"af44\": a number from 0 to 63 or one of be, le,"),
        "{dscp}"
    );
    let when = refusal("[[rule]]\nname = \"a\"\nwhen = \"workdays\"\n");
    assert!(
        when.starts_with(r#"7: rule[0].when = "workdays": write days, times or both, like"#),
        "{when}"
    );
}

#[test]
fn names_of_rules_are_their_own() {
    let twice = refusal("[[rule]]\nname = \"a\"\nto = \"10.0.0.0/8\"\n[[rule]]\nname = \"a\"\n");
    assert_eq!(twice, "9: rule[1].name = \"a\": rule[0] has this name");
    let default = refusal("[[rule]]\nname = \"default\"\n");
    assert_eq!(
        default,
        "6: rule[0].name = \"default\": this is what no rule matches; choose another"
    );
}

#[test]
fn a_policy_needs_the_rates_of_its_own_links_alone() {
    let rule = |links: &str| {
        parse(&format!(
            "{MINIMAL}link.radio = {{ device = \"eth2\", down = \"9mbit\" }}\n[[rule]]\nname = \"a\"\npolicy = \"MORBF\"\n{links}\n"
        ))
    };
    assert!(rule("links = [\"fiber\", \"lte\"]").is_ok());
    let refused = rule("links = [\"radio\"]").unwrap_err().to_string();
    assert_eq!(
        refused,
        "/etc/anabranch.toml:8: rule[0].policy = \"MORBF\": MORBF needs `up` of every link, and link.radio has none"
    );
}

#[test]
fn a_rule_that_can_never_match_is_refused_with_who_takes_its_traffic() {
    let covered = "\
[[rule]]
name = \"web\"
protocol = \"tcp\"
ports = [80, 443]
[[rule]]
name = \"quic\"
protocol = \"udp\"
ports = 443
[[rule]]
name = \"video\"
to = \"203.0.113.0/24\"
ports = 443
";
    assert_eq!(
        refusal(covered),
        "14: rule[2].name = \"video\": can never match: all of its traffic is taken before by web (line 6), quic (line 10)"
    );
    assert_eq!(
        refusal("[[rule]]\nname = \"ping\"\nprotocol = \"icmp\"\nports = 7\n"),
        "6: rule[0].name = \"ping\": can never match: it names ports, which only TCP and UDP have"
    );
}

#[test]
fn a_rule_hidden_in_part_is_told_with_both_positions() {
    let crossing = "\
[[rule]]
name = \"guests\"
from = \"192.168.9.0/24\"
[[rule]]
name = \"video\"
ports = 443
";
    assert_eq!(
        remarks(crossing),
        [
            "warning: /etc/anabranch.toml:9: rule[1].name = \"video\": shadowed: part of its traffic is taken before by guests (line 6)"
        ]
    );
    let exception = crossing.replace("ports = 443", "from = \"192.168.0.0/16\"");
    assert_eq!(
        remarks(&exception),
        [
            "note: /etc/anabranch.toml:9: rule[1].name = \"video\": except what is taken before by guests (line 6)"
        ]
    );
}

#[test]
fn what_routing_rules_cannot_match_is_refused_for_the_gateway_itself_and_told_of_all_traffic() {
    let rule = |lines: &str| format!("[[rule]]\nname = \"own\"\n{lines}\n");
    for (lines, problem) in [
        (
            "dscp = \"ef\"",
            "8: rule[0].dscp = \"ef\": routing rules, which lead the gateway's own traffic, cannot match a code point",
        ),
        (
            "source_ports = 5060",
            "8: rule[0].source_ports = 5060: routing rules, which lead the gateway's own traffic, cannot match the source port of \
             a TCP connection, which is chosen behind its route",
        ),
        (
            "ports = \"1024-65535\"",
            "8: rule[0].ports = \"1024-65535\": routing rules, which lead the gateway's own traffic, cannot match port 65535",
        ),
    ] {
        let refused = refusal(&rule(&format!("from = \"self\"\n{lines}")));
        assert!(refused.starts_with(&format!("{problem}: ")), "{refused}");
        let told = remarks(&rule(&format!("\n{lines}")));
        let told_of = format!(
            "warning: /etc/anabranch.toml:{problem}; this is for LAN hosts alone, as from = \"0.0.0.0/0\" says"
        );
        assert_eq!(told, [told_of]);
        let of_lan = rule(&format!("from = \"0.0.0.0/0\"\n{lines}"));
        assert_eq!(remarks(&of_lan), [""; 0]);
    }
}

#[test]
fn a_rule_that_would_be_too_many_routing_rules_is_refused() {
    let with_ports = |count: u16| {
        let ports: Vec<String> = (1..=count).map(|port| (port * 2).to_string()).collect();
        format!("[[rule]]\nname = \"own\"\nports = [{}]\n", ports.join(", "))
    };
    assert_eq!(remarks(&with_ports(32)), [""; 0]);
    assert_eq!(
        refusal(&with_ports(33)),
        "6: rule[0].name = \"own\": the gateway's own traffic would take 66 routing rules, of which 64 are allowed: name fewer or \
         wider networks and port ranges, or networks in from if it is for LAN hosts alone"
    );
    assert_eq!(
        remarks(&(with_ports(33) + "from = \"0.0.0.0/0\"\n")),
        [""; 0]
    );
}

#[test]
fn keys_of_the_default_class_have_their_former_spelling_with_a_warning() {
    let text = MINIMAL.replace("metered = true", "metered = true, on_return = \"move\"")
        + "sessions.stick = false\nsessions.except = [22]\n";
    let config = parse(&text).unwrap();
    assert_eq!(config.links[1].on_return, OnReturn::Move);
    assert!(!config.sessions.stick);
    assert_eq!(config.sessions.except, [22]);
    let remarks: Vec<_> = config.remarks.iter().map(Remark::to_string).collect();
    assert_eq!(
        remarks,
        [
            "warning: /etc/anabranch.toml:4: link.lte.on_return = \"move\": is a key of the default class; write default.on_return = \"move\"",
            "warning: /etc/anabranch.toml:5: sessions.stick = false: is a key of the default class; write default.stick = false",
            "warning: /etc/anabranch.toml:6: sessions.except = [22]: is a key of the default class; write default.except = [22]",
        ]
    );
}

#[test]
fn keys_of_the_default_class_are_read_and_not_written_twice() {
    let config =
        with("[default]\nstick = false\nexcept = [22]\non_return = \"move\"\nlinks = \"fiber\"\n");
    let config = config.unwrap();
    assert!(!config.sessions.stick && config.sessions.except == [22]);
    assert!(
        config
            .links
            .iter()
            .all(|link| link.on_return == OnReturn::Move)
    );
    assert_eq!(config.default.tiers, Some(vec![vec!["fiber".to_owned()]]));
    assert!(config.remarks.is_empty(), "{:?}", config.remarks);
    assert_eq!(
        error_with("default.stick = false\nsessions.stick = true"),
        "sessions.stick = true: default.stick is there, too; leave this out"
    );
}

/// Two links without NAT, one with; then rules from line 6 on.
fn routed(rules: &str) -> Result<Config, BadInput> {
    let links = r#"
lan = ["eth0"]
link.a = { device = "eth1", down = "500mbit", up = "100mbit", nat = false }
link.b = { device = "eth2", down = "500mbit", up = "100mbit", nat = false }
link.lte = { device = "wwan0", down = "50mbit", up = "10mbit" }
"#;
    parse(&format!("{links}{rules}"))
}

fn refused(rules: &str) -> String {
    let message = routed(rules).expect_err(rules).to_string();
    assert_eq!(message.lines().count(), 1, "{message}");
    message
}

#[test]
fn links_translate_unless_the_file_says_otherwise() {
    let config = routed("").unwrap();
    let nat: Vec<bool> = config.links.iter().map(|link| link.nat).collect();
    assert_eq!(nat, [false, false, true]);
    let routed: Vec<bool> = config.links.iter().map(|link| link.spec().routed).collect();
    assert_eq!(routed, [true, true, false]);
}

#[test]
fn packets_are_sent_one_by_one_over_links_without_nat_alone() {
    let right = [
        "[[rule]]\nname = \"x\"\ngranularity = \"packet\"\nlinks = [\"a\", \"b\"]\n",
        "[[rule]]\nname = \"x\"\ngranularity = \"packet\"\nlinks = \"a\"\nthen = [\"b\"]\nnone = \"drop\"\n",
        "[default]\ngranularity = \"packet\"\nlinks = [\"a\", \"b\"]\n",
        // A rule's own granularity stands before that of the default class.
        "[default]\ngranularity = \"packet\"\nlinks = [\"a\", \"b\"]\nstick = true\n[[rule]]\nname = \"x\"\nto = \"192.0.2.0/24\"\ngranularity = \"host\"\n",
    ];
    for rules in right {
        routed(rules).unwrap_or_else(|error| panic!("{error}"));
    }
    for (rules, key, class) in [
        (
            "[[rule]]\nname = \"x\"\ngranularity = \"packet\"\n",
            "8: rule[0].granularity = \"packet\"",
            "x",
        ),
        (
            "[[rule]]\nname = \"x\"\ngranularity = \"packet\"\nlinks = [\"a\", \"b\"]\nthen = [\"lte\"]\n",
            "8: rule[0].granularity = \"packet\"",
            "x",
        ),
        (
            "[[rule]]\nname = \"x\"\npolicy = { dispatch = \"random\", granularity = \"packet\" }\n",
            "8: rule[0].policy = { dispatch = \"random\", granularity = \"packet\" }",
            "x",
        ),
        (
            "[default]\ngranularity = \"packet\"\n",
            "7: default.granularity = \"packet\"",
            "default",
        ),
        // The rule says nothing itself.
        (
            "[[rule]]\nname = \"x\"\nto = \"192.0.2.0/24\"\n[default]\ngranularity = \"packet\"\nlinks = [\"a\", \"b\"]\n",
            "10: default.granularity = \"packet\"",
            "x",
        ),
    ] {
        assert_eq!(
            refused(rules),
            format!(
                "/etc/anabranch.toml:{key}: class {class} chooses for each packet, and the packets of a connection must have one \
                 source: of its links, lte translate; name others in its links, give these nat = false, or choose another \
                 granularity"
            )
        );
    }
}

#[test]
fn what_is_about_flows_is_refused_where_each_packet_is_chosen_for() {
    let rule = |keys: &str| {
        format!("[[rule]]\nname = \"x\"\ngranularity = \"packet\"\nlinks = \"a\"\n{keys}\n")
    };
    for key in [
        "flows_per_host = 10",
        "on_return = \"move\"",
        "stick = false",
        "except = [80]",
        "forget = \"1min\"",
    ] {
        let default = rule(key).replace("[[rule]]\nname = \"x\"\n", "[default]\n");
        for rules in [rule(key), default] {
            let message = refused(&rules);
            assert!(message.contains(key), "{message}");
            let end = "it keeps no flows and remembers no choice; leave this out";
            assert!(message.ends_with(end), "{message}");
        }
    }
    let counted = refused(&rule("policy = \"LCF\""));
    assert!(counted.contains("the measure \"active\""), "{counted}");
    for (tuple, problem) in [
        (
            "measure = \"active\", dispatch = \"weighted\"",
            "counts live flows",
        ),
        (
            "dispatch = \"random\", syn_retry = true",
            "syn_retry moves flows",
        ),
    ] {
        let policy = format!("policy = {{ {tuple}, granularity = \"packet\" }}");
        let message = refused(&format!(
            "[[rule]]\nname = \"x\"\nlinks = \"a\"\n{policy}\n"
        ));
        assert!(message.contains(problem), "{message}");
    }
}
