mod checks;
mod rules;

use std::time::Duration;

use anabranch_core::algorithm::{Racing, Retry};
use anabranch_core::checks::ProbeTarget;
use anabranch_core::rules::Direction;
use anabranch_core::rules::file::Remark;
use anabranch_core::{Algorithm, Family};
use anabranch_policy::abi::{MAX_LINKS, RESERVED_MAX};

use super::*;

use crate::plane;
use crate::probe::DEFAULT_TARGETS;

const MINIMAL: &str = r#"
lan = ["eth0"]
link.fiber = { device = "eth1", down = "500mbit", up = "100mbit" }
link.lte   = { device = "wwan0", down = "50mbit", up = "10mbit", metered = true }
"#;

fn parse(text: &str) -> Result<Config, BadInput> {
    Config::parse(Path::new("/etc/anabranch.toml"), text)
}

/// The message of an error, without the name of the file.
fn error(text: &str) -> String {
    let message = parse(text).expect_err(text).to_string();
    assert_eq!(message.lines().count(), 1, "{message}");
    message
        .strip_prefix("/etc/anabranch.toml: ")
        .unwrap_or(&message)
        .to_owned()
}

/// The minimal configuration with a further line.
fn error_with(line: &str) -> String {
    error(&format!("{MINIMAL}\n{line}\n"))
}

/// A configuration whose one link is `table`.
fn error_of_link(table: &str) -> String {
    error(&format!("lan = [\"eth0\"]\nlink.fiber = {{ {table} }}\n"))
}

const TRUNK_TABLE: &str = r#"
[trunk]
device = "trunk0"
sublink.a = { device = "eth2" }
"#;

fn roles(text: &str) -> Result<Vec<&'static str>, String> {
    let read = Configuration::parse(Path::new("f.toml"), text);
    let read = read.map_err(|error| error.to_string())?;
    Ok(read.roles())
}

#[test]
fn a_file_has_the_roles_whose_keys_it_has() {
    assert_eq!(roles(MINIMAL).unwrap(), [GATEWAY]);
    assert_eq!(roles(TRUNK_TABLE).unwrap(), [TRUNK]);
    let both = format!("{MINIMAL}{TRUNK_TABLE}");
    assert_eq!(roles(&both).unwrap(), [GATEWAY, TRUNK]);
}

#[test]
fn claims_that_cannot_be_together_are_named() {
    let rule = "what comes for a trunk arrives on its sublinks and nowhere else, so no device is both the gateway's and the trunk's";
    for (device, key, taken) in [
        ("trunk0", "trunk.device", "link.lte.device"),
        ("trunk0", "trunk.device", "lan[0]"),
        ("eth2", "trunk.sublink.a.device", "link.lte.device"),
        ("eth2", "trunk.sublink.a.device", "lan[0]"),
    ] {
        let theirs = if taken == "lan[0]" { "eth0" } else { "wwan0" };
        let gateway = MINIMAL.replace(theirs, device);
        assert_eq!(
            roles(&format!("{gateway}{TRUNK_TABLE}")).unwrap_err(),
            format!("f.toml: {key} = {device:?}: this device is {taken} already; {rule}")
        );
    }
}

#[test]
fn a_section_without_what_its_role_needs_is_named() {
    for (text, says) in [
        (
            format!("policy = \"rr\"\n{TRUNK_TABLE}"),
            "policy = \"rr\": a gateway's key, and there is no gateway: write lan = [\"eth0\"] and link.NAME = { device = \"eth1\" }, or leave it out",
        ),
        (
            format!("lan = [\"eth0\"]\n{TRUNK_TABLE}"),
            "link: no link; write link.NAME = { device = \"eth1\", down = \"500mbit\", up = \"100mbit\" }",
        ),
        (
            format!("{MINIMAL}[trunk]\ndevice = \"trunk0\"\n"),
            "trunk = [trunk]: missing key sublink",
        ),
        (
            format!("{TRUNK_TABLE}[bridge]\n"),
            "bridge = [bridge]: unknown key; allowed: lan, link, ",
        ),
    ] {
        let said = roles(&text).unwrap_err();
        assert!(said.starts_with(&format!("f.toml: {says}")), "{said}");
    }
}

#[test]
fn three_lines_are_enough() {
    let config = parse(MINIMAL).unwrap();
    assert_eq!(config.lan, ["eth0"]);
    let [fiber, lte] = &config.links[..] else {
        panic!("{:?}", config.links)
    };
    assert_eq!(
        (fiber.name.as_str(), fiber.device.as_str(), fiber.metered),
        ("fiber", "eth1", false)
    );
    assert_eq!(
        (fiber.down.map(Rate::bps), fiber.up.map(Rate::bps)),
        (Some(500_000_000), Some(100_000_000))
    );
    assert_eq!(
        (
            lte.name.as_str(),
            lte.metered,
            lte.targets(Family::V4).len()
        ),
        ("lte", true, DEFAULT_TARGETS[0].len())
    );
}

#[test]
fn what_flows_do_on_a_return_is_read_and_depends_on_what_a_link_costs() {
    let on_return = |text: &str| {
        parse(text)
            .unwrap()
            .links
            .iter()
            .map(|link| link.on_return)
            .collect::<Vec<_>>()
    };
    assert_eq!(on_return(MINIMAL), [OnReturn::Stay, OnReturn::Idle]);
    let moved = MINIMAL.replace("metered = true", "metered = true, on_return = \"move\"");
    assert_eq!(on_return(&moved), [OnReturn::Stay, OnReturn::Move]);
    assert_eq!(
        error_of_link(r#"device = "eth1", on_return = "go""#),
        r#"link.fiber.on_return = "go": allowed: stay, idle, move"#
    );
}

#[test]
fn what_probes_cost_a_month_is_known() {
    let config = parse(MINIMAL).unwrap();
    let mb: Vec<u64> = config
        .links
        .iter()
        .map(|link| link.probe_bytes_a_month(Family::V4, &config.availability) / 1_000_000)
        .collect();
    assert_eq!(mb, [323, 16]);
}

#[test]
fn the_gateway_and_the_leases_resolvers_are_asked_unless_targets_are_written() {
    let found = |text: &str| {
        parse(text)
            .unwrap()
            .links
            .iter()
            .map(|link| link.written_targets(Family::V4).next().is_none())
            .collect::<Vec<_>>()
    };
    assert_eq!(found(MINIMAL), [true, true]);
    assert_eq!(
        found(&format!("{MINIMAL}probe.targets = [\"icmp:192.0.2.1\"]")),
        [false, false]
    );
    let own = MINIMAL.replace(
        "metered = true",
        "metered = true, probe = [\"icmp:192.0.2.1\"]",
    );
    assert_eq!(found(&own), [true, false]);
}

#[test]
fn links_keep_the_order_in_which_they_are_written() {
    let text = r#"
        lan = ["eth0"]
        [link.zulu]
        device = "eth1"
        up = "1mbit"
        down = "1mbit"
        [link.alpha]
        device = "eth2"
        up = "1mbit"
        down = "1mbit"
    "#;
    let names: Vec<String> = parse(text)
        .unwrap()
        .links
        .into_iter()
        .map(|link| link.name)
        .collect();
    assert_eq!(names, ["zulu", "alpha"]);
}

#[test]
fn everything_optional_is_read() {
    let text = format!(
        "{MINIMAL}
        [probe]
        targets = [\"dns:192.0.2.1\", \"tcp:192.0.2.2:443\"]
        [nat]
        tcp_established = \"100s\"
        tcp_transitory = \"20s\"
        tcp_unanswered = \"5s\"
        udp = \"30s\"
        icmp = \"10s\"
        ports = [20000, 29999]
        udp_filter = \"endpoint-independent\"
        fallback = \"refuse\"
        forwards = \"kernel\"
        lan_sources = \"loose\"
        reserved = [1194, 51820]
        [limits]
        flows = 1000
        flows_per_host = 10
        prefixes = 500"
    );
    let config = parse(&text).unwrap();
    assert_eq!(config.links[0].probe.len(), 2);
    assert_eq!(
        config.nat,
        Nat {
            tcp_established: Duration::from_secs(100),
            tcp_transitory: Duration::from_secs(20),
            tcp_unanswered: Duration::from_secs(5),
            udp: Duration::from_secs(30),
            icmp: Duration::from_secs(10),
            ports: [20_000, 29_999],
            udp_filter: UdpFilter::EndpointIndependent,
            fallback: Fallback::Refuse,
            forwards: Forwards::Kernel,
            lan_sources: LanSources::Loose,
            reserved: {
                let mut ports = [0; RESERVED_MAX];
                (ports[0], ports[1]) = (1194, 51820);
                ports
            },
        }
    );
    assert_eq!(
        config.limits,
        Limits {
            flows: 1000,
            flows_per_host: 10,
            prefixes: 500,
        }
    );
}

#[test]
fn flows_are_given_the_time_that_the_rfcs_ask_for() {
    const SECOND_NS: u64 = 1_000_000_000;
    let settings = plane::settings(&parse(MINIMAL).unwrap(), [32_768, 60_999], 0, 0, 0);
    for (timer, default_ns, least_s) in [
        (
            "RFC 5382 REQ-5, established",
            settings.tcp_established_ns,
            7440,
        ),
        (
            "RFC 5382 REQ-5, transitory",
            settings.tcp_transitory_ns,
            240,
        ),
        (
            "RFC 5382 REQ-5, partially open",
            settings.unconfirmed_ns,
            240,
        ),
        ("RFC 4787 REQ-5, recommended", settings.udp_ns, 300),
        ("RFC 5508 REQ-2", settings.icmp_ns, 60),
    ] {
        assert_eq!(default_ns, least_s * SECOND_NS, "{timer}");
    }
}

#[test]
fn what_is_not_toml_names_its_line() {
    let message = error("lan = [\"eth0\"]\nlink.fiber = { device = \"eth1\"\nlan");
    assert!(
        message.starts_with("/etc/anabranch.toml:3: not TOML: "),
        "{message}"
    );
}

#[test]
fn sessions_stick_but_on_the_ports_of_the_web_unless_the_file_says_otherwise() {
    let sessions = |more: &str| parse(&format!("{MINIMAL}{more}")).unwrap().sessions;
    let default = sessions("");
    assert!(default.stick);
    assert_eq!(default.except, [80, 443]);
    let written = sessions("[sessions]\nstick = false\nexcept = [8080]\n");
    assert!(!written.stick);
    assert_eq!(written.except, [8080]);
    for ports in ["[0]", "[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]"] {
        let problem = error_with(&format!("[sessions]\nexcept = {ports}"));
        assert!(problem.starts_with("sessions.except = "), "{problem}");
        assert!(
            problem.ends_with(": at most 16 ports from 1 to 65535 are allowed"),
            "{problem}"
        );
    }
}

#[test]
fn what_asks_web_servers_comes_down_unless_the_file_says_otherwise() {
    let direction = |keys: &str| {
        let file = format!("{MINIMAL}[[rule]]\nname = \"a\"\n{keys}\n");
        parse(&file).unwrap().rules[0].class.direction
    };
    assert_eq!(direction("ports = 443"), Some(Direction::Down));
    assert_eq!(direction("ports = [80, 443]"), Some(Direction::Down));
    assert_eq!(
        direction("ports = 443\ndirection = \"up\""),
        Some(Direction::Up)
    );
    for unknown in [
        "ports = [443, 8080]",
        "ports = \"80-443\"",
        "to = \"203.0.113.7\"",
    ] {
        assert_eq!(direction(unknown), None, "{unknown}");
    }
}

#[test]
fn unknown_keys_are_named_with_those_that_exist() {
    assert_eq!(
        error_of_link(r#"device = "eth1", speed = "1mbit""#),
        r#"link.fiber.speed = "1mbit": unknown key; allowed: device, down, up, metered, nat, weight, gateway, gateway6, address, address6, prefix6, inbound, prefixes, probe, alert, on_return"#
    );
    assert_eq!(
        error_with("[nat]\nudb = \"3s\""),
        "nat.udb = \"3s\": unknown key; allowed: tcp_established, tcp_transitory, tcp_unanswered, udp, icmp, ports, udp_filter, \
         fallback, forwards, lan_sources, reserved; did you mean udp?"
    );
    assert!(
        error_with("[wan]\na = 1").starts_with("wan = "),
        "a whole table"
    );
    let many_lines = error_with("[wan]\na = 1\nb = '''x\ny'''");
    assert!(
        many_lines.contains("unknown key; allowed: lan, link, policy, "),
        "{many_lines}"
    );
}

#[test]
fn missing_keys_are_named() {
    assert_eq!(
        error("link.a = { device = \"eth1\", down = \"1mbit\", up = \"1mbit\" }"),
        "lan: no LAN device; write lan = [\"eth0\"]"
    );
    assert_eq!(
        error("lan = [\"eth0\"]"),
        "link: no link; write link.NAME = { device = \"eth1\", down = \"500mbit\", up = \"100mbit\" }"
    );
    assert_eq!(
        error_of_link("metered = true"),
        "link.fiber = { metered = true }: missing key device"
    );
}

#[test]
fn wrong_values_are_quoted_with_what_is_allowed() {
    let rate = r#"write it like "500mbit" (bit, kbit, mbit, gbit) or as a whole number of bit/s"#;
    for (table, message) in [
        (r#"device = "eth1", down = 0"#, "link.fiber.down = 0: a rate has a unit (bit, kbit, mbit, gbit)".into()),
        (
            r#"device = "eth1", down = 500"#,
            r#"link.fiber.down = 500: a rate has a unit (bit, kbit, mbit, gbit); did you mean "500mbit"?"#.into(),
        ),
        (
            r#"device = "eth1", down = "500""#,
            r#"link.fiber.down = "500": a rate has a unit (bit, kbit, mbit, gbit); did you mean "500mbit"?"#.into(),
        ),
        (r#"device = "eth1", up = "500gbit""#, r#"link.fiber.up = "500gbit": a line has 1kbit to 400gbit"#.into()),
        (r#"device = "eth1", up = "900bit""#, r#"link.fiber.up = "900bit": a line has 1kbit to 400gbit"#.into()),
        (r#"device = "eth1", up = "fast""#, format!(r#"link.fiber.up = "fast": not a rate: {rate}"#)),
        (r#"device = "eth1", up = "2tbit""#, format!(r#"link.fiber.up = "2tbit": not a rate: {rate}"#)),
        (r#"device = "eth1", weight = 0"#, "link.fiber.weight = 0: a weight is a whole number from 1 to 1000".into()),
        (
            r#"device = "eth1", gateway = "0.0.0.0""#,
            r#"link.fiber.gateway = "0.0.0.0": must be the IPv4 address of one host"#.into(),
        ),
        (
            r#"device = "eth1", gateway = "192.0.2.1/24""#,
            r#"link.fiber.gateway = "192.0.2.1/24": write one IPv4 address, like "192.0.2.1""#.into(),
        ),
        (
            r#"device = "eth1", prefixes = ["198.51.100.1/24"]"#,
            r#"link.fiber.prefixes[0] = "198.51.100.1/24": write the network's address, like "198.51.100.0/28" or "2001:db8:a:100::/56""#.into(),
        ),
        (
            r#"device = "eth1", probe = "1.1.1.1""#,
            r#"link.fiber.probe = "1.1.1.1": not a probe target: write it as "dns:ADDRESS", "dns:ADDRESS:PORT", "icmp:ADDRESS", "tcp:ADDRESS:PORT" or "http:HOST/PATH = CODE"; IPv6 with a port as [ADDRESS]:PORT"#.into(),
        ),
        (
            r#"device = "eth1", probe = ["dns:example.org"]"#,
            r#"link.fiber.probe[0] = "dns:example.org": not a probe target: write it as "dns:ADDRESS", "dns:ADDRESS:PORT", "icmp:ADDRESS", "tcp:ADDRESS:PORT" or "http:HOST/PATH = CODE"; IPv6 with a port as [ADDRESS]:PORT"#.into(),
        ),
        (r#"device = "eth1", probe = []"#, "link.fiber.probe = []: 1 to 16 probe targets are allowed".into()),
        (
            r#"device = "a/b""#,
            r#"link.fiber.device = "a/b": not a device name: 1 to 15 characters without '/', ':' and spaces"#.into(),
        ),
    ] {
        assert_eq!(error_of_link(table), message);
    }
    for (lines, message) in [
        (
            "[nat]\nudp = \"0s\"",
            "nat.udp = \"0s\": a time from 1s to 168h",
        ),
        (
            "[nat]\ntcp_established_s = 300",
            "nat.tcp_established_s = 300: unknown key; write tcp_established = \"300s\"",
        ),
        (
            "[availability]\nhold_down_max_ms = 9000",
            "availability.hold_down_max_ms = 9000: unknown key; write hold_down_max = \"9000ms\"",
        ),
        (
            "[nat]\nports = [80, 90]",
            "nat.ports = [80, 90]: write [first, last], within 1024 to 65535, like [20000, 29999]",
        ),
        (
            "[nat]\nports = \"1024-65535\"",
            "nat.ports = \"1024-65535\": invalid type: string \"1024-65535\", expected [first, last], like [1024, 65535]",
        ),
        (
            "[nat]\nports = [3000, 2000]",
            "nat.ports = [3000, 2000]: write [first, last], within 1024 to 65535, like [20000, 29999]",
        ),
        (
            "[limits]\nflows = 0",
            "limits.flows = 0: 1 to 16000000 flows are allowed",
        ),
        (
            "[limits]\nprefixes = 100001",
            "limits.prefixes = 100001: 1 to 100000 prefixes are allowed",
        ),
        (
            "[limits]\nflows = 10\nflows_per_host = 11",
            "limits.flows_per_host = 11: 1 to limits.flows (10) are allowed",
        ),
    ] {
        assert_eq!(error_with(lines), message);
    }
    let fallback = error_with("[nat]\nfallback = \"maybe\"");
    assert_eq!(
        fallback,
        "nat.fallback = \"maybe\": allowed: kernel, refuse"
    );
}

#[test]
fn one_target_needs_no_list() {
    let config = parse(&format!("{MINIMAL}[probe]\ntargets = \"dns:192.0.2.1\"\n")).unwrap();
    assert_eq!(config.links[0].probe.len(), 1);
}

#[test]
fn a_device_has_one_role() {
    assert_eq!(
        error("lan = [\"eth0\"]\nlink.a = { device = \"eth0\" }"),
        r#"link.a.device = "eth0": this device is lan[0] already; a device is LAN or one link"#
    );
    assert_eq!(
        error_with(r#"link.c = { device = "eth1" }"#),
        r#"link.c.device = "eth1": this device is link.fiber.device already; a device is LAN or one link"#
    );
    assert_eq!(
        error("lan = []\nlink.a.device = \"eth1\""),
        r#"lan = []: no LAN device; write lan = ["eth0"]"#
    );
}

#[test]
fn names_and_numbers_of_links_are_bounded() {
    assert_eq!(
        error("lan = [\"eth0\"]\nlink.\"a b\" = { device = \"eth1\" }"),
        r#"link."a b" = { device = "eth1" }: a link's name has 1 to 32 letters, digits, '-' and '_'"#
    );
    let many: String = (0..=MAX_LINKS)
        .map(|i| format!("link.l{i}.device = \"eth{}\"\n", i + 1))
        .collect();
    assert!(
        error(&format!("lan = [\"eth0\"]\n{many}")).ends_with("17 links; at most 16 are allowed")
    );
    assert_eq!(
        error_with(r#"link.c = { device = "eth2", weight = 2 }"#),
        r#"link.fiber = { device = "eth1", down = "500mbit", up = "100mbit" }: has no weight but others have; give every link a weight, or none"#
    );
    assert!(error("lan = [\"eth0\"]\n[link]\n").contains("no link; write link.NAME"));
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let message = Config::load(Path::new("/nonexistent/a.toml"))
        .unwrap_err()
        .to_string();
    assert!(
        message.starts_with("/nonexistent/a.toml: No such file"),
        "{message}"
    );
}

#[test]
fn a_policy_is_a_name_or_a_tuple_and_has_the_rates_it_needs() {
    let text = format!(
        "{MINIMAL}policy = {{ measure = \"active\", dispatch = \"weighted\", syn_retry = true }}"
    );
    let policy = parse(&text).unwrap().policy;
    assert_eq!(policy.policy.retry, Retry::Elsewhere);
    assert!(text.ends_with(&policy.name), "as typed: {policy}");
    assert_eq!(parse(MINIMAL).unwrap().policy, Algorithm::default().into());
    let old = error_with("policy = { measure = \"st-in\", dispatch = \"best\", period_ms = 100 }");
    assert_eq!(
        old,
        "policy.period_ms = 100: unknown key; write period = \"100ms\""
    );
    let unknown = error_with("policy = \"fastest\"");
    assert!(
        unknown.starts_with("policy = \"fastest\": unknown policy fastest, allowed: WSDM, RR, "),
        "{unknown}"
    );
    let races = parse(&format!("{MINIMAL}policy = \"OFRP\""))
        .unwrap()
        .policy;
    assert_eq!(races.policy.racing, Racing::Syns { per_s: 1000 });
    let meant = error_with("policy = \"WDSM\"");
    assert!(meant.ends_with("; did you mean WSDM?"), "{meant}");
    let key = error_with("policy = { dispatch = \"hash\", speed = 1 }");
    assert!(
        key.starts_with("policy.speed = 1: unknown key; allowed: name, measure, "),
        "{key}"
    );
    let bare = "lan = [\"eth0\"]\nlink.fiber.device = \"eth1\"\n";
    assert_eq!(
        error(bare),
        "policy: the default WSDM needs `down` or `up` of every link, and link.fiber has none"
    );
    let morbf = error(&format!(
        "policy = \"morbf\"\n{bare}link.fiber.down = \"1mbit\""
    ));
    assert_eq!(
        morbf,
        "policy = \"morbf\": MORBF needs `up` of every link, and link.fiber has none"
    );
    assert!(parse(&format!("policy = \"rr\"\n{bare}")).is_ok());
    assert_eq!(
        error(&format!("policy = \"wfrrtfnf\"\n{bare}")),
        "policy = \"wfrrtfnf\": WFRRTFNF measures round trips to a fixed node; write probe.node = \"icmp:ADDRESS\", \"dns:ADDRESS\" or \"tcp:ADDRESS:PORT\""
    );
    let node = "probe.node = \"icmp:2001:db8::1\"";
    let config = parse(&format!("policy = \"wfrrtfnf\"\n{node}\n{bare}")).unwrap();
    assert_eq!(config.availability.node, Some(Family::V6));
}

#[test]
fn the_availability_machine_is_told_what_is_written_and_refuses_what_does_not_fit() {
    let config = parse(&format!(
        "{MINIMAL}[availability]\nsilence = \"500ms\"\nwindow = 20"
    ))
    .unwrap();
    assert_eq!(
        (config.availability.silence, config.availability.window),
        (Duration::from_millis(500), 20)
    );
    assert_eq!(
        error_with("[availability]\nsilence = \"10ms\""),
        "availability.silence = \"10ms\": 10ms is outside of 50ms to 60s"
    );
    assert_eq!(
        error_with("[availability]\nup_loss = 7"),
        "availability.up_loss = 7: 7 is outside of 0 to 6"
    );
}

#[test]
fn what_is_wrong_about_a_links_ipv6_is_told_with_what_is_allowed() {
    let network = r#"write the network that is routed to this link, of 16 to 64 bits, like "2001:db8:1::/56""#;
    for (key, value, problem) in [
        (
            "gateway6",
            "192.0.2.1",
            r#"write one IPv6 address, like "2001:db8::1""#,
        ),
        (
            "gateway6",
            "ff02::1",
            "must be the IPv6 address of one host",
        ),
        ("address6", "::", "must be the IPv6 address of one host"),
        (
            "address6",
            "fe80::1",
            "is known on the line alone; write one that the internet can answer to",
        ),
        ("prefix6", "2001:db8:1::", network),
        ("prefix6", "2001:db8:1::/72", network),
        ("prefix6", "2001:db8:1:1::/56", network),
        ("prefix6", "192.0.2.0/24", network),
    ] {
        let link = format!(r#"device = "eth1", {key} = "{value}""#);
        let wanted = format!(r#"link.fiber.{key} = "{value}": {problem}"#);
        assert_eq!(error_of_link(&link), wanted);
    }
    assert_eq!(
        error_of_link(r#"device = "eth1", nat = false, inbound = "allow""#),
        "link.fiber.inbound = \"allow\": is for links that translate prefixes; without NAT whoever is outside may begin: leave it out"
    );
    let unknown = error_of_link(r#"device = "eth1", inbound = "all""#);
    assert!(unknown.contains("drop"), "{unknown}");
}

#[test]
fn a_family_without_targets_of_its_own_asks_those_that_all_links_have() {
    let config = parse(&format!("{MINIMAL}probe.targets = [\"icmp:192.0.2.1\"]")).unwrap();
    let link = &config.links[0];
    assert_eq!(link.targets(Family::V4).len(), 1);
    assert_eq!(link.targets(Family::V6), DEFAULT_TARGETS[1]);
}

#[test]
fn pages_are_asked_where_they_are_written_or_portals_are_to_be_found() {
    let page = "http:check.example/204 = 204";
    let config = parse(&format!(
        "{MINIMAL}probe.targets = [\"icmp:192.0.2.1\", \"{page}\"]"
    ));
    let link = &config.unwrap().links[0];
    assert_eq!(link.targets(Family::V4)[1].to_string(), page);
    let of_v6: Vec<ProbeTarget> = link.targets(Family::V6);
    assert_eq!(of_v6.len(), 1, "a name has both families");
    let captive = parse(&format!("{MINIMAL}probe.captive = true")).unwrap();
    let targets = captive.links[0].targets(Family::V6);
    assert_eq!(targets.len(), DEFAULT_TARGETS[1].len() + 2);
    let bytes =
        |config: &Config| config.links[0].probe_bytes_a_month(Family::V4, &config.availability);
    assert_eq!(bytes(&captive), bytes(&parse(MINIMAL).unwrap()));
    let wrong = error(&format!("{MINIMAL}probe.targets = \"http:check.example\""));
    assert!(wrong.contains("not a page: write it as"), "{wrong}");
    let node = error(&format!("{MINIMAL}probe.node = \"{page}\""));
    assert!(node.contains("a page is no node"), "{node}");
}
