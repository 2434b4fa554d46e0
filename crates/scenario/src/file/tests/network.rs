use anabranch_core::multilink::{BinChoice, Parameters, Recipient};

use super::*;
use crate::file::policies;
use crate::{
    Buffer, Change, Codel, FqCodel, Impairments, Loss, Passage, Probe, Queue, Service, Spread,
};

#[test]
fn a_link_says_each_direction_and_its_second_hop() {
    let scenario = read(
        r#"
        [link.dsl]
        rate = "10mbit"
        delay = "20ms"
        buffer = "100 packets"
        loss = { good_to_bad = "1%", bad_to_good = "25%" }
        up = { rate = "1mbit", buffer = "64kB", loss = 0 }
        beyond = { rate = "100mbit", queue = { kind = "red", min = "15kB", max = "45kB", gentle = true }, up = { rate = "50mbit", delay = "3ms" } }
        declared = false
        metered = true
        weight = 3
        [[policies]]
        dispatch = "hash"
        "#,
    );
    let link = &site(&scenario).links[0];
    assert_eq!(link.down.buffer, Buffer::Packets(100));
    let bursty = Loss::Bursty {
        good_to_bad: 0.01,
        bad_to_good: 0.25,
        loss_good: 0.0,
        loss_bad: 1.0,
    };
    assert_eq!(link.down.loss, bursty);
    assert_eq!((link.up.rate_bps, link.up.loss), (1_000_000, Loss::None));
    assert_eq!(link.up.buffer, Buffer::Bytes(64_000));
    assert_eq!(link.up.delay, Duration::from_millis(20));
    let beyond = link.beyond.as_ref().unwrap();
    assert_eq!(
        (beyond.down.rate_bps, beyond.up.rate_bps),
        (100_000_000, 50_000_000)
    );
    assert_eq!(
        (beyond.down.delay, beyond.up.delay.as_millis()),
        (Duration::ZERO, 3)
    );
    let Queue::Red(red) = beyond.down.queue else {
        panic!("{:?}", beyond.down.queue)
    };
    assert_eq!((red.max_bytes, red.gentle), (45_000, true));
    let spec = link.spec();
    assert_eq!(
        (spec.rate_down_bps, spec.weight, spec.metered),
        (None, Some(3), true)
    );
}

#[test]
fn a_line_may_hold_packets_up_drop_long_ones_and_carry_only_some() {
    let scenario = read(
        r#"
        probes = ["dns", "icmp", "gateway"]
        dead_servers = [3]
        [link.dsl]
        rate = "10mbit"
        jitter = "20ms"
        filter = "dns"
        up = { mtu = "1400B", captive = "icmp" }
        beyond = { rate = "10mbit", mtu = 1280, down = { mtu = false, filter = false } }
        "#,
    );
    let site = site(&scenario);
    assert_eq!(site.probes, [Probe::Dns, Probe::Icmp, Probe::Gateway]);
    assert_eq!(site.dead_servers, [3]);
    let link = &site.links[0];
    let jitter = Duration::from_millis(20);
    let of = |mtu_bytes, passage| Impairments {
        jitter,
        mtu_bytes,
        passage,
    };
    let filters = Passage::AllBut(Service::Dns);
    assert_eq!(link.down.impairments, of(None, filters));
    let captive = Passage::Only(Service::Icmp);
    assert_eq!(link.up.impairments, of(Some(1400), captive));
    let beyond = link.beyond.as_ref().unwrap();
    assert_eq!(beyond.down.impairments, Impairments::default());
    assert_eq!(beyond.up.impairments.mtu_bytes, Some(1280));
}

#[test]
fn impairments_that_cannot_be_are_refused_by_their_keys() {
    let line = |text: &str| error(&format!("link.a = {{ rate = \"1mbit\", {text} }}"));
    for (text, problem) in [
        ("mtu = true", r#"say how long packets may be: "1400B""#),
        (
            "mtu = \"64B\"",
            "an MTU is 68 B to 65535 B, or false for any",
        ),
        ("jitter = \"11s\"", "a jitter is at most 10 s"),
        ("captive = \"tcp\"", "allowed: dns, icmp"),
        (
            "captive = \"dns\", filter = \"dns\"",
            "a captive line carries nothing else; leave filter out",
        ),
    ] {
        let refused = line(text);
        assert!(refused.contains(problem), "{refused}");
    }
    let sublink =
        error("trunk = { sublinks = 2, rate = \"1mbit\", sublink.1 = { jitter = \"1ms\" } }");
    assert!(
        sublink.contains("only links and what is beyond them have it"),
        "{sublink}"
    );
    let near = error(&format!("probes = [\"gateway\"]\n{MINIMAL}"));
    assert!(near.contains("name one on the internet at least"), "{near}");
}

#[test]
fn a_line_may_lose_by_distance_and_by_nothing_else_then() {
    let line = |loss: &str| format!("link.a = {{ rate = \"1mbit\", loss = {loss} }}");
    let loss = |text: &str| site(&read(&line(text))).links[0].up.loss;
    let per_hop = Loss::PerHop { probability: 0.01 };
    assert_eq!(loss("{ per_hop = \"1%\" }"), per_hop);
    assert_eq!(loss("{ per_hop = 0 }"), Loss::None);
    for (loss, problem) in [
        (
            "{ per_hop = \"1%\", loss_bad = 1 }",
            "per_hop stands alone: by distance nothing is lost in bursts",
        ),
        (
            "{ per_hop = \"200%\" }",
            "not a share: write it like \"1%\" or 0.01, from 0 to 1",
        ),
        ("{ bad_to_good = \"1%\" }", "missing key good_to_bad"),
        (
            "{ hop = \"1%\" }",
            "unknown key; allowed: good_to_bad, bad_to_good, loss_good, loss_bad, per_hop",
        ),
    ] {
        let message = error(&line(loss));
        assert!(message.ends_with(problem), "{message}");
    }
    let fault = "fault = [{ at = \"1s\", link = \"a\", loss = { per_hop = \"1%\" } }]";
    let scenario = read(&format!("{}\n{fault}", line("0")));
    assert_eq!(scenario.faults[0].change, Change::Loss(per_hop));
}

#[test]
fn links_keep_the_order_in_which_they_are_written() {
    let scenario = read("link.zulu = { rate = \"1mbit\" }\nlink.alpha = { rate = \"2mbit\" }");
    let names: Vec<_> = site(&scenario)
        .links
        .iter()
        .map(|link| &link.name)
        .collect();
    assert_eq!(names, ["zulu", "alpha"]);
}

#[test]
fn a_trunk_is_divided_evenly_and_its_single_link_has_all_of_it() {
    let scenario = read(&format!(
        "{TRUNK}policies = [\"SH\", \"flowlet 5ms\", \"single\"]"
    ));
    let Network::Trunk(trunk) = &scenario.network else {
        panic!("{:?}", scenario.network)
    };
    assert_eq!(trunk.sublinks.len(), 8);
    assert_eq!(trunk.sublinks[7].rate_bps, 5_592_000);
    // Jo 2002: 559 200 bits each.
    assert_eq!(trunk.sublinks[0].buffer, Buffer::Bytes(69_900));
    assert_eq!(trunk.single.rate_bps, 44_736_000);
    assert_eq!(trunk.single.buffer, Buffer::Bytes(559_200));
    assert_eq!(trunk.single.delay, Duration::from_millis(1));
    assert_eq!(trunk.back.rate_bps, 44_736_000);
    assert_eq!(
        scenario.policies[1].policy,
        Policy::trunk(Spread::Flowlet {
            gap: Duration::from_millis(5)
        })
    );
    let ground = Ground {
        network: &scenario.network,
        faults: &[],
    };
    for policy in &scenario.policies {
        assert_eq!(
            policies::named(&policy.to_string(), ground),
            Ok(policy.clone()),
            "a policy's name is what one writes"
        );
    }
}

#[test]
fn a_trunk_says_how_bins_move_and_another_word_is_refused() {
    let with = |key: &str| TRUNK.replace(" }", &format!("{key} }}"));
    let control = |text: &str| match read(text).network {
        Network::Trunk(trunk) => trunk.control,
        other => panic!("{other:?}"),
    };
    assert_eq!(control(TRUNK), Parameters::default());
    let written = with(", shrink = \"5%\", bin = \"second\", target = \"lighter\"");
    let expected = Parameters {
        shrink_percent: 5,
        bin: BinChoice::Second,
        target: Recipient::Lighter,
        ..Parameters::default()
    };
    assert_eq!(control(&written), expected);
    let message = error(&with(", bin = \"most\""));
    assert_eq!(
        message,
        "house.toml:1: trunk.bin = \"most\": allowed: largest, second, random, smallest"
    );
}

#[test]
fn contradictory_links_are_refused() {
    assert!(error("length = \"3s\"").ends_with("link: no link; write link.NAME = { down = \"40mbit\", up = \"20mbit\", delay = \"6ms\" } or a [trunk]"));
    assert!(error_with(TRUNK.trim()).ends_with("a scenario has links or a trunk, not both"));
    assert!(
        error(&format!("nat = false\n{TRUNK}"))
            .ends_with("nat = false: a trunk has no NAT; leave it out")
    );
    let weights = "link.a = { rate = 1000, weight = 1 }\nlink.b = { rate = 1000 }";
    assert!(error(weights).ends_with(
        "link.b = { rate = 1000 }: has no weight but others have; give every link a weight, or none"
    ));
    let many: String = (0..17)
        .map(|i| format!("link.l{i}.rate = 1000\n"))
        .collect();
    assert!(error(&many).ends_with("17 links; at most 16 are allowed"));
    assert!(error("link.\"a b\" = { rate = 1 }").contains("a link's name has 1 to 32 letters"));
    let thin = "trunk = { sublinks = 8, rate = 7 }";
    assert_eq!(
        error(thin),
        "house.toml:1: trunk.rate = 7: is too little for 8 sublinks"
    );
    let wide = "trunk = { sublinks = 17, rate = \"1mbit\" }";
    assert_eq!(
        error(wide),
        "house.toml:1: trunk.sublinks = 17: a trunk has 1 to 16 sublinks"
    );
}

#[test]
fn a_sublink_may_differ_from_the_others_but_not_in_its_rate() {
    let text = |own: &str| {
        format!(
            "trunk = {{ sublinks = 3, rate = \"3mbit\", delay = \"1ms\", loss = \"1%\", sublink.{own} }}"
        )
    };
    let scenario = read(&text("2 = { delay = \"9ms\" }"));
    let Network::Trunk(trunk) = &scenario.network else {
        panic!("{:?}", scenario.network)
    };
    let delays: Vec<_> = trunk
        .sublinks
        .iter()
        .map(|line| line.delay.as_millis())
        .collect();
    assert_eq!(delays, [1, 1, 9]);
    assert!(
        trunk
            .sublinks
            .iter()
            .all(|line| line.loss == trunk.single.loss)
    );
    assert!(trunk.sublinks.iter().all(|line| line.rate_bps == 1_000_000));
    assert!(error(&text("3 = { delay = \"9ms\" }")).ends_with("no such sublink; allowed: 0, 1, 2"));
    assert!(error(&text("0.rate = \"9mbit\"")).ends_with("leave rate out"));
    assert!(error(&text("0.delay = \"11s\"")).contains(" trunk.sublink.0.delay = \"11s\": "));
}

#[test]
fn early_detection_that_never_drops_is_refused() {
    for (red, problem) in [
        (
            "min = \"9kB\", max = \"20kB\", weight = 0",
            "weight must be above 0, or nothing is dropped early",
        ),
        (
            "min = \"9kB\", max = \"20kB\", probability = 0",
            "probability must be above 0, or nothing is dropped early",
        ),
        (
            "min = \"90kB\", max = \"200kB\"",
            "min is never reached: the buffer holds 64000 bytes",
        ),
    ] {
        let queue = format!("{{ kind = \"red\", {red} }}");
        let text = format!("link.a = {{ rate = \"1mbit\", buffer = \"64kB\", queue = {queue} }}");
        let message = error(&text);
        assert!(message.ends_with(problem), "{message}");
    }
}

/// The queue of a link whose queue is written like this.
fn queue(written: &str) -> Queue {
    let text = format!("link.a = {{ rate = \"1mbit\", queue = {written} }}");
    site(&read(&text)).links[0].down.queue
}

#[test]
fn a_queue_is_a_word_or_a_kind_with_its_parameters() {
    let codel = Codel {
        target: Duration::from_millis(5),
        interval: Duration::from_millis(100),
        mtu_bytes: 1500,
        ecn: false,
    };
    assert_eq!(queue("\"drop-tail\""), Queue::DropTail);
    assert_eq!(queue("\"codel\""), Queue::Codel(codel));
    let fq = FqCodel {
        codel,
        quantum_bytes: 1500,
        flows: 1024,
    };
    assert_eq!(queue("\"fq-codel\""), Queue::FqCodel(fq));
    let written = "{ kind = \"fq-codel\", target = \"1ms\", interval = \"20ms\", quantum = \"300B\", flows = 16, ecn = true }";
    let codel = Codel {
        target: Duration::from_millis(1),
        interval: Duration::from_millis(20),
        ecn: true,
        ..codel
    };
    let fq = FqCodel {
        codel,
        quantum_bytes: 300,
        flows: 16,
    };
    assert_eq!(queue(written), Queue::FqCodel(fq));
}

#[test]
fn a_queue_with_keys_of_another_kind_or_senseless_values_is_refused() {
    for (written, problem) in [
        (
            "\"red\"",
            "RED needs its thresholds; write { kind = \"red\", min = \"15kB\", max = \"45kB\" }",
        ),
        (
            "{ kind = \"codel\", quantum = \"300B\" }",
            "unknown key; allowed: target, interval, ecn",
        ),
        ("{ kind = \"drop-tail\", ecn = true }", ": unknown key"),
        (
            "{ kind = \"codel\", target = \"100ms\" }",
            "target must be less than interval",
        ),
        (
            "{ kind = \"fq-codel\", flows = 0 }",
            "flows: allowed: 1 to 65536",
        ),
        ("\"fifo\"", "allowed: drop-tail, red, codel, fq-codel"),
    ] {
        let message = error(&format!(
            "link.a = {{ rate = \"1mbit\", queue = {written} }}"
        ));
        assert!(message.contains("house.toml:1: link.a.queue"), "{message}");
        assert!(message.ends_with(problem), "{message}");
    }
}

#[test]
fn links_have_nat_unless_they_or_the_site_say_otherwise() {
    let nat = |text: &str| -> Vec<bool> {
        let scenario = read(text);
        let links = site(&scenario).links.iter();
        links
            .map(|link| {
                assert_eq!(link.spec().routed, !link.nat);
                link.nat
            })
            .collect()
    };
    let links = "link.a = { rate = 1000, nat = false }\nlink.b = { rate = 1000 }\nlink.c = { rate = 1000, nat = true }";
    assert_eq!(nat(links), [false, true, true]);
    assert_eq!(nat(&format!("nat = false\n{links}")), [false, false, true]);
    assert_eq!(nat(&format!("nat = true\n{links}")), [false, true, true]);
}

#[test]
fn links_share_a_line_beyond_by_its_name() {
    let text = r#"
        shared.core = { rate = "20mbit", delay = "5ms" }
        link.a = { rate = "200mbit", beyond = "core" }
        link.b = { rate = "40mbit", beyond = "core" }
        link.c = { rate = "1mbit", beyond = { rate = "1mbit" } }
    "#;
    let file = parse(text).unwrap();
    let [a, b, c] = &site(file.first()).links[..] else {
        panic!("three links")
    };
    assert_eq!((&a.beyond, a.beyond_name()), (&b.beyond, "core"));
    assert_eq!(a.beyond.as_ref().unwrap().down.rate_bps, 20_000_000);
    assert_eq!(c.beyond_name(), "c");
    // 480 of a and b, 4 of c and 40 of the line they share are too much; were it two, it would be 564.
    let refused = file.fits(crate::World::Lab).unwrap_err().to_string();
    assert!(refused.contains("524 Mbit/s over all lines"), "{refused}");
    for (wrong, expected) in [
        (
            "link.a = { rate = \"1mbit\", beyond = \"cor\" }\nlink.b = { rate = \"1mbit\", beyond = \"core\" }\nshared.core.rate = \"1mbit\"",
            "house.toml:1: link.a.beyond = \"cor\": no such line; write [shared.cor]; did you mean core?",
        ),
        (
            "link.a.rate = \"1mbit\"\nshared.core.rate = \"1mbit\"",
            "no link has it; write beyond = \"core\" in those that share it",
        ),
        (
            "link.a = { rate = \"1mbit\", beyond = \"a\" }\nshared.a.rate = \"1mbit\"",
            "a link has this name; give the line another",
        ),
    ] {
        let error = error(wrong);
        assert!(error.ends_with(expected), "{error}");
    }
    let cuts = "fault = [{ at = \"1s\", link = \"a\", place = \"beyond\", change = \"cut\" }, { at = \"2s\", link = \"b\", place = \"beyond\", change = \"cut\" }]";
    assert!(error(&format!("{cuts}\n{text}")).ends_with("at 2 s, b is cut already"));
}
