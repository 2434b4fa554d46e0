mod turns;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use anabranch_config::BadInput;
use anabranch_core::multilink::{BinChoice, Parameters, Recipient, Spread};
use anabranch_core::{Family, PerFamily};
use anabranch_dataplane::trunk::{NextHop, SublinkPath};

use super::view::{Missing, View, check, check_queues};
use super::{Config, DeviceQueue};
use crate::observe::tests::device;
use crate::observe::{Device, Snapshot};

const MINIMAL: &str = r#"
[trunk]
device = "trunk0"
sublink.zulu = { device = "eth1" }
sublink.alpha = { device = "eth2", via = "192.0.2.9" }
"#;

fn parse(text: &str) -> Result<Config, BadInput> {
    Config::parse(Path::new("/etc/trunk.toml"), text)
}

/// The message of an error, without the name of the file.
fn error(text: &str) -> String {
    let message = parse(text).expect_err(text).to_string();
    assert_eq!(message.lines().count(), 1, "{message}");
    message
        .strip_prefix("/etc/trunk.toml: ")
        .unwrap_or(&message)
        .to_owned()
}

fn error_with(line: &str) -> String {
    error(&format!("{MINIMAL}\n{line}\n"))
}

#[test]
fn a_device_and_its_sublinks_are_enough_and_keep_their_order() {
    let config = parse(MINIMAL).unwrap();
    assert_eq!(config.scheme, Spread::Dhfv);
    assert_eq!(config.parameters, Parameters::default());
    let names: Vec<_> = config.sublinks.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(names, ["zulu", "alpha"]);
}

#[test]
fn everything_optional_is_read() {
    let config = parse(
        r#"
        [trunk]
        device = "trunk0"
        scheme = "DH"
        check = "50ms"
        overload = "60%"
        shrink = "5%"
        moved = 0.2
        slot = "5ms"
        slots = 7
        bin = "second"
        target = "lighter"
        flowlet_gap = "2ms"
        [trunk.sublink.a]
        device = "eth1"
        via = "192.0.2.1"
        rate = "10mbit"
        buffer = "64kB"
        "#,
    )
    .unwrap();
    let parameters = Parameters {
        check_period: Duration::from_millis(50),
        overload_percent: 60,
        shrink_percent: 5,
        moved_percent: 20,
        slot: Duration::from_millis(5),
        slots: 7,
        bin: BinChoice::Second,
        target: Recipient::Lighter,
    };
    assert_eq!((config.scheme, config.parameters), (Spread::Dh, parameters));
    assert_eq!(config.flowlet_gap, Duration::from_millis(2));
    assert_eq!(config.sublinks[0].buffer_bytes(Some(1)), Some(64_000));
}

#[test]
fn a_buffer_is_what_is_written_else_what_the_queue_says_else_100_ms() {
    let of = |more: &str| {
        let text = format!("trunk = {{ device = \"t\", sublink.a = {{ device = \"e\"{more} }} }}");
        parse(&text).unwrap().sublinks.remove(0)
    };
    assert_eq!(
        of(", rate = \"5.592mbit\"").buffer_bytes(None),
        Some(69_900)
    );
    assert_eq!(of(", rate = \"5.592mbit\"").buffer_bytes(Some(7)), Some(7));
    assert_eq!(of("").buffer_bytes(None), None);
}

#[test]
fn weights_and_quanta_follow_the_rates() {
    let config = parse(
        r#"trunk = { device = "t", sublink.a = { device = "a", rate = "10mbit" }, sublink.b = { device = "b", rate = "25mbit" } }"#,
    )
    .unwrap();
    assert_eq!(config.weights()[..3], [400_000, 1_000_000, 0]);
    assert_eq!(config.quanta()[..3], [1514, 3785, 0]);
    let alike = parse(MINIMAL).unwrap();
    assert_eq!(alike.weights()[0], alike.weights()[1]);
    assert_eq!(alike.quanta()[..2], [1514, 1514]);
}

#[test]
fn what_is_wrong_is_named_with_key_value_and_what_is_allowed() {
    for (text, expected) in [
        (
            "trunk = { device = \"t\", sublink = {} }".to_owned(),
            "trunk.sublink = {}: no sublink; write trunk.sublink.NAME = { device = \"eth1\", via = \"10.0.0.2\", rate = \"100mbit\" }",
        ),
        (
            "trunk = { device = \"t\", sublink.a = { device = \"t\" } }".to_owned(),
            "trunk.sublink.a.device = \"t\": this device is trunk.device already; a device is the trunk or one sublink",
        ),
        (
            "trunk = { device = \"t\", sublink.a = { device = \"x y\" } }".to_owned(),
            "trunk.sublink.a.device = \"x y\": not a device name: 1 to 15 characters without '/', ':' and spaces",
        ),
    ] {
        assert_eq!(error(&text), expected);
    }
    for (line, expected) in [
        (
            "scheme = \"dhvf\"",
            "trunk.scheme = \"dhvf\": allowed: SH, DH, DHFV, DRR, flowlet, rendezvous; did you mean DHFV?",
        ),
        (
            "scheme = \"single\"",
            "trunk.scheme = \"single\": allowed: SH, DH, DHFV, DRR, flowlet, rendezvous",
        ),
        (
            "scheme = \"flowlet 0ms\"",
            "trunk.scheme = \"flowlet 0ms\": a gap is 1 ms at least",
        ),
        (
            "slot = \"0ms\"",
            "trunk.slot = \"0ms\": a time from 1ms to 60s",
        ),
        (
            "slot_ms = 5",
            "trunk.slot_ms = 5: unknown key; write slot = \"5ms\"",
        ),
        (
            "check_period_ms = 25",
            "trunk.check_period_ms = 25: unknown key; write check = \"25ms\"",
        ),
        (
            "overload_percent = 40",
            "trunk.overload_percent = 40: unknown key; write overload = \"40%\"",
        ),
        (
            "overload = \"101%\"",
            "trunk.overload = \"101%\": not a share: write it like \"1%\" or 0.01, from 0 to 1",
        ),
        ("moved = 0", "trunk.moved = 0: from 1% to 100%"),
        ("slots = 0", "trunk.slots = 0: 1 to 1000 are allowed"),
        (
            "sublink.c = { device = \"eth3\", via = \"127.0.0.1\" }",
            "trunk.sublink.c.via = \"127.0.0.1\": must be the IPv4 address of one host",
        ),
        (
            "sublink.c = { device = \"eth3\", via6 = \"ff02::1\" }",
            "trunk.sublink.c.via6 = \"ff02::1\": must be the IPv6 address of one host",
        ),
        (
            "sublink.c = { device = \"eth3\", via6 = \"::ffff:192.0.2.1\" }",
            "trunk.sublink.c.via6 = \"::ffff:192.0.2.1\": must be the IPv6 address of one host",
        ),
        (
            "sublink.c = { device = \"eth3\", buffer = 0 }",
            "trunk.sublink.c.buffer = 0: a buffer holds at least one byte",
        ),
        (
            "sublink.\"c d\" = { device = \"eth3\" }",
            "trunk.sublink.\"c d\" = { device = \"eth3\" }: a sublink's name has 1 to 32 letters, digits, '-' and '_'",
        ),
    ] {
        assert_eq!(error_with(line), expected);
    }
    let unrated = error_with("sublink.c = { device = \"eth3\", rate = \"1mbit\" }");
    assert!(unrated.ends_with("give every sublink a rate, or none"));
    let many: String = (0..17)
        .map(|i| format!("sublink.s{i} = {{ device = \"e{i}\" }}\n"))
        .collect();
    let many = error(&format!("[trunk]\ndevice = \"t\"\n{many}"));
    assert!(
        many.ends_with("17 sublinks; at most 16 are allowed"),
        "{many}"
    );
    let typo = error_with("sublinks = 3");
    assert!(
        typo.starts_with("trunk.sublinks = 3: unknown key; allowed: device"),
        "{typo}"
    );
}

/// A trunk device, a sublink on a network of two, one on a larger network.
fn host() -> Snapshot {
    let trunk = Device {
        resolves: false,
        ..device(10, &["192.0.2.129/30"])
    };
    let devices = [
        ("trunk0", trunk),
        ("eth1", device(11, &["192.0.2.2/30"])),
        ("eth2", device(12, &["192.0.2.10/29"])),
    ];
    Snapshot {
        devices: devices
            .map(|(name, device)| (name.to_owned(), device))
            .into(),
        ..Snapshot::default()
    }
}

/// To at most one address of each family.
fn to(ifindex: u32, addresses: &[&str]) -> Option<SublinkPath> {
    let mut next_hop = PerFamily::default();
    for address in addresses {
        let address: IpAddr = address.parse().unwrap();
        next_hop[address.into()] = Some(address);
    }
    Some(SublinkPath {
        ifindex,
        next_hop: NextHop::Addresses(next_hop),
    })
}

#[test]
fn the_next_hop_is_as_configured_or_the_other_end_of_a_network_of_two() {
    let view = View::derive(&parse(MINIMAL).unwrap(), &host());
    let paths: Vec<_> = view.sublinks.iter().map(|sublink| sublink.path).collect();
    assert_eq!(paths, [to(11, &["192.0.2.1"]), to(12, &["192.0.2.9"])]);
    assert_eq!((view.ifindex, view.usable(Family::V4)), (Some(10), 0b11));
    for (own, other) in [
        ("192.0.2.6/31", "192.0.2.7"),
        ("2001:db8::6/127", "2001:db8::7"),
        ("2001:db8::7/127", "2001:db8::6"),
        ("2001:db8::5/126", "2001:db8::6"),
    ] {
        let mut host = host();
        host.devices
            .insert("eth1".to_owned(), device(11, &["fe80::1/64", own]));
        let view = View::derive(&parse(MINIMAL).unwrap(), &host);
        assert_eq!(view.sublinks[0].path, to(11, &[other]), "{own}");
    }
    for own in [
        "2001:db8::4/126",
        "2001:db8::7/126",
        "2001:db8::1/64",
        "2001:db8::1/128",
    ] {
        let mut host = host();
        host.devices.insert("eth1".to_owned(), device(11, &[own]));
        let view = View::derive(&parse(MINIMAL).unwrap(), &host);
        assert_eq!(view.sublinks[0].path, None, "{own}");
    }
}

#[test]
fn a_sublink_carries_the_families_of_which_a_next_hop_is_known() {
    let text = MINIMAL.replace("via =", "via6 = \"fe80::2\", via =");
    let config = parse(&text).unwrap();
    let view = View::derive(&config, &host());
    assert_eq!(view.sublinks[1].path, to(12, &["192.0.2.9", "fe80::2"]));
    let usable = Family::ALL.map(|family| view.usable(family));
    assert_eq!(usable, [0b11, 0b10]);
    let text = text.replace("via = \"192.0.2.9\"", "rate = \"1mbit\"");
    let text = text.replace("\"eth1\"", "\"eth1\", rate = \"1mbit\"");
    let view = View::derive(&parse(&text).unwrap(), &host());
    let usable = Family::ALL.map(|family| view.usable(family));
    assert_eq!(usable, [0b01, 0b10]);
}

#[test]
fn a_layer_3_sublink_needs_no_next_hop() {
    let mut host = host();
    let tunnel = Device {
        layer3: true,
        ..device(11, &[])
    };
    host.devices.insert("eth1".to_owned(), tunnel);
    let view = View::derive(&parse(MINIMAL).unwrap(), &host);
    let path = SublinkPath {
        ifindex: 11,
        next_hop: NextHop::OnlyOne,
    };
    assert_eq!(view.sublinks[0].path, Some(path));
    assert_eq!(view.usable(Family::V6), 0b01);
}

#[test]
fn a_sublink_without_carrier_keeps_its_path_and_is_not_usable() {
    let mut host = host();
    let config = parse(MINIMAL).unwrap();
    host.devices.get_mut("eth1").unwrap().running = false;
    let view = View::derive(&config, &host);
    assert_eq!(view.usable(Family::V4), 0b10);
    assert_eq!(view.sublinks[0].path, to(11, &["192.0.2.1"]));
    host.devices.remove("eth1");
    let view = View::derive(&config, &host);
    assert_eq!(view.sublinks[0].missing, Some(Missing::Device));
}

#[test]
fn a_host_that_contradicts_the_configuration_is_refused_with_what_to_do() {
    let config = parse(MINIMAL).unwrap();
    let refused = |change: &dyn Fn(&mut Snapshot)| {
        let mut host = host();
        change(&mut host);
        let message = check(&config, &host).unwrap_err().to_string();
        message.replace("/etc/trunk.toml: ", "")
    };
    check(&config, &host()).unwrap();
    assert_eq!(
        refused(&|host| drop(host.devices.remove("trunk0"))),
        "trunk.device = \"trunk0\": no such device; this host has: eth1, eth2"
    );
    assert_eq!(
        refused(&|host| host.devices.get_mut("trunk0").unwrap().resolves = true),
        "trunk.device = \"trunk0\": it would ask for neighbours that nobody answers for; run `ip link set trunk0 arp off`"
    );
    assert_eq!(
        refused(&|host| host.devices.get_mut("eth2").unwrap().mtu = 1400),
        "trunk.device = \"trunk0\": its MTU 1500 is above the 1400 of sublink alpha (eth2); run `ip link set trunk0 mtu 1400`"
    );
    assert_eq!(
        refused(&|host| host.devices.get_mut("eth1").unwrap().addresses.clear()),
        "trunk.sublink.zulu.device = \"eth1\": no next hop is known: give the sublink `via` or `via6`, or its device an address of a /30 or /31, a /126 or /127 network"
    );
}

#[test]
fn queues_that_are_to_be_watched_must_be_there_and_of_known_size() {
    let config = parse(MINIMAL).unwrap();
    let view = View::derive(&config, &host());
    let queue = |kind: &str, limit_bytes| DeviceQueue {
        kind: kind.to_owned(),
        limit_bytes,
        ..DeviceQueue::default()
    };
    let judged = |second| {
        let queues = BTreeMap::from([(11, queue("tbf", Some(1))), (12, second)]);
        check_queues(&config, &view, &queues).map_err(|error| error.to_string())
    };
    assert_eq!(judged(queue("bfifo", Some(9))), Ok(()));
    let absent = judged(queue("noqueue", None)).unwrap_err();
    assert!(
        absent.contains("DHFV watches its queue, and device eth2 keeps none"),
        "{absent}"
    );
    let unknown = judged(queue("htb", None)).unwrap_err();
    assert!(
        unknown.ends_with("trunk.sublink.alpha: DHFV must know how much its queue (htb) holds; give it `buffer` or `rate`"),
        "{unknown}"
    );
}
