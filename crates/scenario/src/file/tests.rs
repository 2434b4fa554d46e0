use proptest::prelude::*;

use super::*;
use crate::{Buffer, Change, Direction, Line, Load, Loss, Place, Spread, World};

const MINIMAL: &str = r#"
link.fiber = { down = "40mbit", up = "20mbit", delay = "6ms" }
link.lte = { down = "15mbit", up = "8mbit", delay = "22ms" }
"#;

const TRUNK: &str = "trunk = { sublinks = 8, rate = \"44.736mbit\", delay = \"1ms\" }\n";

fn parse(text: &str) -> Result<ScenarioFile, BadInput> {
    ScenarioFile::parse(Path::new("house.toml"), text)
}

fn read(text: &str) -> Scenario {
    let file = parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    Scenario::clone(file.first())
}

fn site(scenario: &Scenario) -> &crate::Site {
    let Network::Site(site) = &scenario.network else {
        panic!("{:?} is no site", scenario.network)
    };
    site
}

/// The message of an error, which is one line.
fn error(text: &str) -> String {
    let message = parse(text).expect_err(text).to_string();
    assert_eq!(message.lines().count(), 1, "{message}");
    message
}

/// The minimal scenario with a further line, its fourth.
fn error_with(line: &str) -> String {
    error(&format!("{}\n{line}\n", MINIMAL.trim_start()))
        .replace("house.toml:4: ", "")
        .replace("house.toml: ", "")
}

#[test]
fn two_lines_are_enough_and_the_rest_is_said_by_defaults() {
    let scenario = read(MINIMAL);
    assert_eq!(scenario.name, "house");
    assert_eq!((scenario.seeds.len(), scenario.limit), (1, LENGTH_DEFAULT));
    assert_eq!(scenario.policies[0].to_string(), "WSDM");
    assert!(scenario.faults.is_empty() && site(&scenario).nat);
    let [fiber, lte] = &site(&scenario).links[..] else {
        panic!("{:?}", site(&scenario).links)
    };
    assert_eq!(
        fiber.down,
        Line {
            rate_bps: 40_000_000,
            delay: Duration::from_millis(6),
            // 100 ms of the rate.
            buffer: Buffer::Bytes(500_000),
            loss: Loss::None,
            red: None,
        }
    );
    assert_eq!((lte.up.rate_bps, lte.beyond.is_none()), (8_000_000, true));
    let Load::Pages(workload) = &scenario.load else {
        panic!("{:?}", scenario.load)
    };
    assert_eq!((workload.users, workload.tabs_per_user), (8, 5));
}

#[test]
fn cubic_has_hystart_unless_told_otherwise_and_reno_has_none() {
    let hystart = |tcp: &str| read(&format!("{MINIMAL}\n{tcp}")).tcp.hystart;
    assert!(hystart("") && hystart("tcp.control = \"cubic\""));
    assert!(!hystart("tcp.hystart = false") && !hystart("tcp.control = \"reno\""));
}

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
        beyond = { rate = "100mbit", red = { min = "15kB", max = "45kB", gentle = true }, up = { rate = "50mbit", delay = "3ms" } }
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
    let red = beyond.down.red.unwrap();
    assert_eq!((red.max_bytes, red.gentle), (45_000, true));
    let spec = link.spec();
    assert_eq!(
        (spec.rate_down_bps, spec.weight, spec.metered),
        (None, Some(3), true)
    );
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
        scenario.policies[1],
        Policy::Trunk(Spread::Flowlet {
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
            Ok(*policy),
            "a policy's name is what one writes"
        );
    }
}

#[test]
fn faults_come_in_the_order_of_time() {
    let scenario = read(&format!(
        r#"{MINIMAL}
        fault = [
            {{ at = "20s", link = "lte", change = "restore" }},
            {{ at = "10s", link = "lte", change = "cut" }},
            {{ at = "5s", link = "fiber", direction = "up", rate = "5kbit" }},
            {{ at = "6s", link = "fiber", loss = "1%" }},
        ]"#
    ));
    let changes: Vec<_> = scenario.faults.iter().map(|fault| fault.change).collect();
    assert_eq!(changes[0], Change::Rate(5_000));
    assert_eq!(
        changes[1],
        Change::Loss(Loss::Independent { probability: 0.01 })
    );
    assert_eq!(changes[2..], [Change::Cut, Change::Restore]);
    assert_eq!(scenario.faults[0].direction, Some(Direction::Up));
    assert_eq!(scenario.faults[3].place, Place::LastMile);
}

#[test]
fn workloads_of_every_kind_are_read() {
    let load = |text: &str| read(&format!("{MINIMAL}\n{text}")).load;
    let pages = load(r#"workload = { kind = "pages", users = 3, files = 3, rounds = 20 }"#);
    let Load::Pages(pages) = pages else {
        panic!("{pages:?}")
    };
    assert_eq!(pages, anabranch_workload::Workload::page_rounds(3, 3, 20));
    let mix = load(
        r#"[workload]
        kind = "mix"
        users = 10
        class.ftp = { per_user_per_s = 0.5, size = { exponential = "600kB" } }
        class.http = { per_user_per_s = 1, size = "10kB", bursts = { burst = "1s", quiet = "2s", share = "60%" } }"#,
    );
    let Load::Arrivals(mix) = mix else {
        panic!("{mix:?}")
    };
    let anabranch_workload::Pattern::Mix(mix) = mix.pattern else {
        panic!("{mix:?}")
    };
    let names: Vec<_> = mix
        .classes
        .iter()
        .map(|class| class.name.as_str())
        .collect();
    assert_eq!((names, mix.duration_s), (vec!["ftp", "http"], 30.0));
    let trace = load(
        r#"workload = { kind = "trace", connections = 4774, bytes = "218MB", duration = "20s",
        size = { pareto = 1.2, min = "1kB", max = "100MB" }, direction = "up" }"#,
    );
    assert!(matches!(trace, Load::Arrivals(_)));
    let rows = load(
        r#"workload = { kind = "rows", rows = [{ at = "1s", size = "1kB" }, { at = "2s", size = 9, user = 1 }] }"#,
    );
    let Load::Arrivals(rows) = rows else {
        panic!("{rows:?}")
    };
    assert_eq!(rows.arrivals().count(), 2);
}

#[test]
fn a_sweep_is_every_combination_and_every_run_has_its_own_hash() {
    let text = format!(
        "policies = [\"RR\", \"WSDM\"]\nseeds = 3\n{MINIMAL}\n[sweep]\nlink.fiber.down = [\"10mbit\", \"40mbit\"]\n\
         \"link.lte.delay\" = [\"22ms\", \"50ms\", \"90ms\"]\n"
    );
    let file = parse(&text).unwrap();
    let runs = file.runs();
    assert_eq!(runs.len(), 2 * 3 * 6);
    let mut hashes: Vec<_> = runs.iter().map(|run| run.hash.clone()).collect();
    hashes.sort();
    hashes.dedup();
    assert_eq!(hashes.len(), runs.len(), "no two runs are the same");
    let last = runs.last().unwrap();
    let point = [("link.fiber.down", "40mbit"), ("link.lte.delay", "90ms")];
    assert_eq!(
        last.point,
        point.map(|(key, value)| (key.to_owned(), value.to_owned()))
    );
    assert_eq!(site(&last.scenario).links[1].down.delay.as_millis(), 90);
    assert_eq!(site(&last.scenario).links[0].down.rate_bps, 40_000_000);
    assert_eq!(parse(&text).unwrap().runs(), runs);
}

#[test]
fn a_hash_is_of_what_decides_the_result() {
    let hash = |text: &str| parse(text).unwrap().runs()[0].hash.clone();
    let base = hash(MINIMAL);
    assert_eq!(
        base,
        hash(&format!(
            "name = \"other\"\nseeds = 2\npolicies = [\"WSDM\", \"RR\"]\n{MINIMAL}"
        ))
    );
    assert_eq!(base, hash(&MINIMAL.replace("40mbit", "40000kbit")));
    assert_ne!(base, hash(&MINIMAL.replace("40mbit", "41mbit")));
    assert_ne!(base, hash(&format!("seeds = [2]\n{MINIMAL}")));
    assert_ne!(base, hash(&format!("policies = [\"RR\"]\n{MINIMAL}")));
    assert_ne!(base, hash(&format!("{MINIMAL}\ntcp.control = \"reno\"")));
    assert_ne!(base, hash(&format!("length = \"31s\"\n{MINIMAL}")));
}

#[test]
fn policies_and_seeds_can_be_others_than_the_files() {
    let file = parse(MINIMAL).unwrap();
    let other = file
        .clone()
        .with_policies(&["rr".to_owned(), "LCF".to_owned()])
        .unwrap();
    let other = other.with_seeds(&[7, 5, 7]).unwrap();
    let tried: Vec<_> = other
        .runs()
        .iter()
        .map(|run| (run.policy.to_string(), run.seed))
        .collect();
    let wanted = [("RR", 5), ("RR", 7), ("LCF", 5), ("LCF", 7)];
    assert_eq!(
        tried,
        wanted.map(|(policy, seed)| (policy.to_owned(), seed))
    );
    let refused = file
        .with_policies(&["DHFV".to_owned()])
        .unwrap_err()
        .to_string();
    assert!(
        refused.starts_with("--policy: DHFV shares a trunk and this is a site"),
        "{refused}"
    );
}

#[test]
fn a_run_gives_its_load_its_seed() {
    let file = parse(&format!("seeds = [42]\n{MINIMAL}")).unwrap();
    let Load::Pages(workload) = file.runs()[0].load() else {
        panic!("pages")
    };
    assert_eq!(workload.seed, 42);
}

#[test]
fn what_is_not_toml_names_its_line() {
    let message = error("length = \"3s\"\nlink.a = {\n");
    assert!(message.starts_with("house.toml:2: not TOML: "), "{message}");
    let twice = error("link.a = { rate = \"1mbit\" }\nlink.a = { rate = \"2mbit\" }");
    assert_eq!(twice, "house.toml:2: not TOML: a is there twice");
}

#[test]
fn unknown_keys_are_named_with_those_that_exist() {
    assert_eq!(
        error("link.a = { rate = \"1mbit\", speed = 3 }"),
        "house.toml:1: link.a.speed = 3: unknown key; allowed: rate, down, up, delay, loss, buffer, red, beyond, declared, metered, weight"
    );
    assert!(
        error_with("polity = 1").starts_with("polity = 1: unknown key; allowed: name, length, ")
    );
    assert_eq!(
        error("\nlink.a = { rate = \"1mbit\", up = { bandwidth = 3 } }"),
        "house.toml:2: link.a.up.bandwidth = 3: unknown key; allowed: rate, delay, loss, buffer, red"
    );
}

#[test]
fn wrong_values_are_quoted_with_what_is_allowed() {
    let rate = r#"write it like "500mbit" (bit, kbit, mbit, gbit) or as a whole number of bit/s"#;
    for (link, message) in [
        (r#"rate = "0mbit""#, format!(r#"link.a.rate = "0mbit": a rate must be above 0: {rate}"#)),
        (r#"rate = "2000gbit""#, format!(r#"link.a.rate = "2000gbit": a rate may be at most 1000 gbit: {rate}"#)),
        (r#"down = "fast", up = 1"#, format!(r#"link.a.down = "fast": not a rate: {rate}"#)),
        (r#"rate = 1000, delay = "11s""#, r#"link.a.delay = "11s": a delay is at most 10 s"#.into()),
        (r#"rate = 1000, up = { delay = "1h" }"#, r#"link.a.up.delay = "1h": a delay is at most 10 s"#.into()),
        (r#"rate = 1000, delay = 5"#, r#"link.a.delay = 5: invalid type: integer 5, expected a time: write it like "12ms" (ns, us, ms, s, min, h)"#.into()),
        (r#"rate = 1000, loss = "101%""#, r#"link.a.loss = "101%": not a share: write it like "1%" or 0.01, from 0 to 1"#.into()),
        (
            r#"rate = 1000, buffer = "deep""#,
            r#"link.a.buffer = "deep": not a buffer: write it like "64kB", "100 packets", "100ms" (of the line's rate) or "unlimited""#.into(),
        ),
        (
            r#"rate = 1000, buffer = "100B""#,
            r#"link.a.buffer = "100B": a buffer holds one packet at least, which has 1500 bytes"#.into(),
        ),
        (
            r#"rate = 1000, red = { min = "9kB", max = "9kB" }"#,
            r#"link.a.red = { min = "9kB", max = "9kB" }: min must be less than max"#.into(),
        ),
        (r#"rate = 1000, weight = 0"#, "link.a.weight = 0: a weight is a whole number from 1 to 1000".into()),
        (r#"down = "1mbit""#, r#"link.a = { down = "1mbit" }: has no rate for up; write up = "40mbit""#.into()),
    ] {
        assert_eq!(error(&format!("link.a = {{ {link} }}")), format!("house.toml:1: {message}"));
    }
    for (line, message) in [
        ("length = \"0s\"", "length = \"0s\": must be longer than 0"),
        ("length = \"8000min\"\nsample=\"1s\"", ""),
        ("length = \"200h\"", "length = \"200h\": at most 7 days"),
        (
            "sample = \"1us\"",
            "sample = \"1us\": from 1 ms to the length of the run",
        ),
        (
            "length = \"1h\"\nsample = \"3ms\"",
            "house.toml:5: sample = \"3ms\": more than 1000000 samples in the length of the run",
        ),
        ("seeds = 0", "seeds = 0: 1 to 100000 seeds are allowed"),
        (
            "seeds = [3, 1, 3]",
            "seeds = [3, 1, 3]: seed 3 is there twice",
        ),
        (
            "name = \"a b\"",
            "name = \"a b\": a name has 1 to 64 letters, digits, '-' and '_'",
        ),
        (
            "tcp.initial_window = 0",
            "tcp.initial_window = 0: allowed: 1 to 16777216",
        ),
        ("tcp.mss = 9", "tcp.mss = 9: allowed: 64 to 9000"),
        (
            "tcp.control = \"bbr\"",
            "tcp.control = \"bbr\": allowed: reno, cubic",
        ),
        (
            "tcp = { control = \"reno\", hystart = true }",
            "tcp.hystart = true: HyStart++ is of CUBIC's slow start; leave it out beside control = \"reno\"",
        ),
        (
            "tcp.delayed_ack = true",
            "tcp.delayed_ack = true: say how long: \"40ms\"",
        ),
        (
            "tcp.min_rto = \"0ms\"",
            "tcp.min_rto = \"0ms\": allowed: 1 ms to 60 s",
        ),
        (
            "workload = { kind = \"pages\", users = 0 }",
            "workload.users = 0: 1 to 1000000 users are allowed",
        ),
        (
            "workload = { kind = \"continuous\", rounds = 3 }",
            "workload.rounds = 3: kind = \"continuous\" has no such key; allowed: users, downloads, size",
        ),
        (
            "workload = { kind = \"pages\", size = { pareto = 1.2 } }",
            "workload.size = { pareto = 1.2 }: write one of { exponential = MEAN }, { lognormal = MEDIAN, sigma = 1.5 }, { pareto = 1.2, min = \"4kB\", max = \"1MB\" }",
        ),
        (
            "workload = { kind = \"mix\", duration = \"31s\", class.a = { per_user_per_s = 1, size = 9 } }",
            "workload.duration = \"31s\": is longer than the run; make length longer",
        ),
        (
            "workload = { kind = \"mix\" }",
            "workload.class: missing; write class.NAME = { per_user_per_s = 0.1, size = \"10kB\" }",
        ),
    ] {
        if message.is_empty() {
            read(&format!("{MINIMAL}\n{line}"));
        } else {
            assert_eq!(error_with(line), message);
        }
    }
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
fn faults_that_cannot_happen_are_refused() {
    let fault = |text: &str| error_with(&format!("fault = [{{ {text} }}]"));
    assert_eq!(
        fault(r#"at = "1s", link = "dsl", change = "cut""#),
        r#"fault[0].link = "dsl": no such link; allowed: fiber, lte"#
    );
    assert_eq!(
        fault(r#"at = "30s", link = "lte", change = "cut""#),
        r#"fault[0].at = "30s": is not before the end of the run, 30 s"#
    );
    assert_eq!(
        fault(r#"at = "1s", link = "lte", place = "beyond", change = "cut""#),
        r#"fault[0].place = "beyond": link.lte has no beyond"#
    );
    assert_eq!(
        fault(r#"at = "1s", link = "lte""#),
        r#"fault[0] = { at = "1s", link = "lte" }: changes nothing; write one of change = "cut", change = "restore", rate, loss, delay"#
    );
    assert!(
        fault(r#"at = "1s", link = "lte", rate = 1000, delay = "1s""#)
            .ends_with("changes several things; write one fault for each")
    );
    assert_eq!(
        fault(r#"at = "1s", link = "lte", change = "restore""#),
        r#"fault[0].change = "restore": at 1 s, lte is not cut"#
    );
    assert_eq!(
        fault(
            r#"at = "1s", link = "lte", change = "cut" }, { at = "2s", link = "lte", direction = "up", change = "cut""#
        ),
        r#"fault[1].change = "cut": at 2 s, lte is cut already"#
    );
    assert_eq!(
        fault(r#"at = "1s", link = "lte", rate = 0"#),
        r#"fault[0].rate = 0: a rate must be above 0: write it like "500mbit" (bit, kbit, mbit, gbit) or as a whole number of bit/s"#
    );
    assert_eq!(
        fault(r#"at = "1s", link = "lte", delay = "11s""#),
        r#"fault[0].delay = "11s": a delay is at most 10 s"#
    );
    let trunk = error(&format!(
        "{TRUNK}fault = [{{ at = \"1s\", link = \"8\", change = \"cut\" }}]"
    ));
    assert!(
        trunk.ends_with("no such link; allowed: 0, 1, 2, 3, 4, 5, 6, 7"),
        "{trunk}"
    );
    let up = error(&format!(
        "{TRUNK}fault = [{{ at = \"1s\", link = \"7\", direction = \"up\", change = \"cut\" }}]"
    ));
    assert!(up.ends_with("sublinks carry traffic down only"), "{up}");
}

#[test]
fn a_policy_that_cannot_work_there_is_refused_with_the_reason() {
    assert_eq!(
        error_with("policies = [\"RR\", \"DRR\"]"),
        "policies[1] = \"DRR\": sends the packets of one connection over several links, which have different addresses behind NAT; \
         choose per connection, or write nat = false for a site whose addresses are reachable over every link"
    );
    assert!(parse(&format!("nat = false\npolicies = [\"packet\"]\n{MINIMAL}")).is_ok());
    assert!(error_with("policies = [\"DHFV\"]").starts_with("policies[0] = \"DHFV\": DHFV shares a trunk and this is a site with links; allowed: WSDM, RR, "));
    assert!(
        error_with("policies = [\"fastest\"]")
            .starts_with("policies[0] = \"fastest\": unknown policy fastest; allowed: WSDM, RR, ")
    );
    assert_eq!(
        error_with("policies = [\"RR\", \"rr\"]"),
        "policies[1] = \"rr\": RR is there already"
    );
    assert_eq!(
        error_with("policies = []"),
        "policies = []: name one policy at least"
    );
    assert!(
        error_with("policies = [{ dispatch = \"best\" }]")
            .contains("dispatch best needs a measure that ranks links")
    );
    let gateway = error(&format!("{TRUNK}policies = [\"WSDM\"]"));
    assert_eq!(
        gateway,
        "house.toml:2: policies[0] = \"WSDM\": WSDM is a gateway's policy and this is a trunk; allowed: SH, DH, DHFV, DRR, flowlet, \"flowlet 50ms\", rendezvous, single"
    );
    let whole = error(&format!(
        "{TRUNK}policies = [\"SH\", \"single\"]\nfault = [{{ at = \"1s\", link = \"0\", change = \"cut\" }}]"
    ));
    assert_eq!(
        whole,
        "house.toml:2: policies[1] = \"single\": is the undivided link, which has no sublinks for faults to happen to; leave it or the faults out"
    );
    let undeclared = error("policies = [\"MORBF\"]\nlink.a = { rate = 1000, declared = false }");
    assert_eq!(
        undeclared,
        "house.toml:1: policies[0] = \"MORBF\": MORBF needs up of every link, and link.a is not declared to the gateway; leave out declared = false"
            .replace("up of", "`up` of")
    );
}

#[test]
fn a_sweep_of_what_is_not_there_is_refused() {
    let sweep = |text: &str| error(&format!("{}[sweep]\n{text}\n", MINIMAL.trim_start()));
    assert_eq!(
        sweep("link.fiber.loss = [\"1%\"]"),
        "house.toml:4: sweep.link.fiber.loss = [\"1%\"]: no such key in the file; write it with one of the values, whose place the sweep takes"
    );
    assert!(
        sweep("link.fiber.down = \"1mbit\"")
            .ends_with("a list of values is wanted: [\"10mbit\", \"40mbit\"]")
    );
    assert!(sweep("link.fiber.down = []").ends_with("one value is wanted at least"));
    assert!(sweep("link.fiber.down = [1, 1]").ends_with("1 is there twice"));
    assert!(
        sweep("link.fiber.down = [1]\n\"link.fiber\" = [{ rate = 1 }]")
            .ends_with("are one place of the file")
    );
    assert_eq!(
        sweep("link.fiber.down = [\"1mbit\", \"0mbit\"]"),
        "house.toml:1: link.fiber.down = \"0mbit\": a rate must be above 0: write it like \"500mbit\" (bit, kbit, mbit, gbit) or as a whole number of bit/s \
         (at the point link.fiber.down = 0mbit of the sweep)"
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
fn the_laboratory_refuses_what_only_the_simulator_can_do() {
    let refused = |text: &str| {
        parse(text)
            .unwrap()
            .fits(World::Lab)
            .unwrap_err()
            .to_string()
    };
    assert!(parse(MINIMAL).unwrap().fits(World::Lab).is_ok());
    assert!(parse(TRUNK).unwrap().fits(World::Sim).is_ok());
    assert!(parse(TRUNK).unwrap().fits(World::Lab).is_ok());
    let lossy = "trunk = { sublinks = 2, rate = \"1mbit\", access.loss = \"1%\" }";
    assert!(
        refused(lossy).ends_with("access lines lose by overflow only; leave loss and red out"),
        "{}",
        refused(lossy)
    );
    let fast = refused("link.a = { rate = \"300mbit\" }");
    assert_eq!(
        fast,
        "house.toml:1: link: 600 Mbit/s over all lines and directions; the laboratory carries 500 at most"
    );
    let red = "link.a = { rate = \"1mbit\", red = { min = \"9kB\", max = \"20kB\" } }";
    assert!(refused(red).ends_with("the laboratory has drop-tail queues; leave red out"));
    assert!(
        refused("nat = false\npolicies = [\"packet\"]\nlink.a.rate = \"1mbit\"")
            .contains("leave packet out")
    );
    assert!(
        refused("nat = false\nlink.a.rate = \"1mbit\"")
            .starts_with("house.toml:1: nat = false: links of the laboratory have addresses")
    );
    assert!(
        refused("link.a.rate = \"1mbit\"\nfault = [{ at = \"1s\", link = \"a\", rate = \"2gbit\" }]")
            .contains("fault = [{ at = \"1s\", link = \"a\", rate = \"2gbit\" }]: 2000 Mbit/s over a line after a fault; the laboratory carries 500 at most")
    );
    assert!(
        refused("trunk = { sublinks = 2, rate = \"9gbit\" }")
            .ends_with("9000 Mbit/s over one direction; the laboratory carries 500 at most")
    );
}

#[test]
fn workloads_that_fit_into_no_memory_are_refused() {
    for (workload, problem) in [
        (
            "kind = \"continuous\", users = 1000000, downloads = 1000000",
            "1000000000000 transfers at once; at most 1000000",
        ),
        (
            "kind = \"pages\", users = 1000000, files = 1000000",
            "1000000000000 transfers at once; at most 1000000",
        ),
        (
            "kind = \"mix\", users = 1000000, class.x = { per_user_per_s = 1000.0, size = \"1kB\" }",
            "30000000000 transfers are expected; at most 10000000",
        ),
        (
            "kind = \"mix\", class.x = { per_user_per_s = 1.0, size = \"1kB\", bursts = { burst = \"1ns\", quiet = \"1ns\", share = \"50%\" } }",
            "35000000000 bursts; at most 1000000",
        ),
        (
            "kind = \"trace\", connections = 4294967295, bytes = \"5GB\", size = \"1kB\"",
            "4294967295 connections; at most 10000000",
        ),
    ] {
        let message = error_with(&format!("workload = {{ {workload} }}"));
        assert!(message.ends_with(problem), "{message}");
    }
    let classes = "users = 1000000, class = { a = X, b = X, c = X, d = X, e = X, f = X, g = X, h = X, i = X, j = X, k = X }";
    let rare = classes.replace('X', "{ per_user_per_s = 0.00001, size = \"1kB\" }");
    assert!(
        error_with(&format!("workload = {{ kind = \"mix\", {rare} }}"))
            .ends_with("11000000 users times classes; at most 10000000")
    );
}

#[test]
fn rows_are_within_the_run_and_of_users_that_can_be() {
    for (rows, problem) in [
        (
            "",
            "workload.rows: missing; write rows = [{ at = \"1s\", size = \"10kB\" }]",
        ),
        (
            "rows = [{ at = \"1s\", size = \"1kB\" }, { at = \"30s\", size = \"1kB\" }]",
            "workload.rows[1].at = \"30s\": is not before the end of the run, 30 s",
        ),
        (
            "rows = [{ at = \"1s\", size = \"1kB\", user = 4294967295 }]",
            "workload.rows[0].user = 4294967295: 0 to 999999 are allowed",
        ),
        (
            "rows = [{ at = \"1s\", size = \"1kB\", server = 1000000 }]",
            "workload.rows[0].server = 1000000: 0 to 999999 are allowed",
        ),
    ] {
        let comma = if rows.is_empty() { "" } else { ", " };
        let message = error_with(&format!("workload = {{ kind = \"rows\"{comma}{rows} }}"));
        assert_eq!(message, problem);
    }
}

#[test]
fn steps_and_timers_that_mean_nothing_are_refused() {
    for (line, problem) in [
        ("tcp.min_rto = \"61s\"", "allowed: 1 ms to 60 s"),
        ("tcp.min_rto = \"1ns\"", "allowed: 1 ms to 60 s"),
        (
            "tcp.delayed_ack = \"0s\"",
            "allowed: 1 ms to 500 ms (RFC 9293), or false",
        ),
        (
            "tcp.delayed_ack = \"1h\"",
            "allowed: 1 ms to 500 ms (RFC 9293), or false",
        ),
        (
            "tcp.control = \"cubik\"",
            "allowed: reno, cubic; did you mean cubic?",
        ),
        (
            "workload.kind = \"continous\"",
            "; did you mean continuous?",
        ),
        (
            "fault = [{ at = \"1s\", link = \"fibre\", change = \"cut\" }]",
            "allowed: fiber, lte; did you mean fiber?",
        ),
    ] {
        let message = error_with(line);
        assert!(message.ends_with(problem), "{message}");
    }
    let trunk = |own: &str| error(&TRUNK.replace(" }", &format!(", {own} }}")));
    for step in ["check", "slot"] {
        assert!(trunk(&format!("{step} = \"1ns\"")).ends_with("must be 1 ms at least"));
    }
    let packets = trunk("buffer = \"18446744073709551615 packets\"");
    assert!(
        packets.ends_with("at most 4294967295 packets; or write \"unlimited\""),
        "{packets}"
    );
    let flowlet = error(&format!("policies = [\"flowlet 0s\"]\n{TRUNK}"));
    assert!(flowlet.ends_with("a gap is 1 ms at least"), "{flowlet}");
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
        let text = format!("link.a = {{ rate = \"1mbit\", buffer = \"64kB\", red = {{ {red} }} }}");
        let message = error(&text);
        assert!(message.ends_with(problem), "{message}");
    }
}

#[test]
fn points_of_a_sweep_are_different_runs() {
    let same = "link.a.rate = \"1mbit\"\nname = \"x\"\nseeds = [1, 2]\n[sweep]\n";
    for (sweep, one, other) in [
        (
            "link.a.rate = [\"1mbit\", \"2mbit\", \"1000kbit\"]",
            "link.a.rate = 1mbit",
            "link.a.rate = 1000kbit",
        ),
        ("name = [\"a\", \"b\"]", "name = a", "name = b"),
        (
            "seeds = [[1, 2], [2, 3]]",
            "seeds = [1, 2]",
            "seeds = [2, 3]",
        ),
    ] {
        let expected = format!(
            "house.toml: sweep: {one} and {other} have the same runs; what differs between points has to decide a result"
        );
        assert_eq!(error(&format!("{same}{sweep}")), expected);
    }
    assert_eq!(
        parse(&format!("{same}seeds = [[1, 2], [3, 4]]"))
            .unwrap()
            .runs()
            .len(),
        4
    );
}

#[test]
fn a_sweep_of_more_points_than_can_be_counted_is_refused() {
    let mut text = String::new();
    let mut sweep = "[sweep]\n".to_owned();
    for link in 0..16 {
        text += &format!(
            "link.l{link} = {{ down = \"1mbit\", up = \"1mbit\", delay = \"1ms\", loss = \"0%\" }}\n"
        );
        sweep += &format!(
            "link.l{link} = {{ down = [1, 2], up = [1, 2], delay = [1, 2], loss = [1, 2] }}\n"
        );
    }
    // 2 to the 64th: no number of 64 bits.
    assert!(
        error(&(text + &sweep))
            .ends_with("more than 100000 points, which is the most that is allowed")
    );
}

#[test]
fn a_long_file_has_few_points() {
    let values: Vec<String> = (1..=1000).map(|value| value.to_string()).collect();
    let long = "#".repeat(300_000);
    let text = format!(
        "link.a.rate = 1\n[sweep]\nlink.a.rate = [{}]\n{long}",
        values.join(", ")
    );
    assert!(error(&text).ends_with("at most 268435456 bytes together are allowed"));
}

#[test]
fn a_swept_key_that_is_not_there_is_told_what_is_near() {
    let message = error("link.fiber.rate = \"1mbit\"\n[sweep]\nlink.fiber.rte = [\"1mbit\"]");
    assert!(
        message.ends_with("whose place the sweep takes; did you mean rate?"),
        "{message}"
    );
}

#[test]
fn the_scenarios_of_the_repository_are_right() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let file = ScenarioFile::load(&path).unwrap_or_else(|error| panic!("{error}"));
        assert!(!file.runs().is_empty());
        names.push(file.first().name.clone());
    }
    names.sort();
    assert_eq!(names, ["demo", "peng-l3-3-1", "trunk"]);
}

#[test]
fn the_examples_of_the_documentation_are_right() {
    let text = include_str!("../../../../docs/scenarios.md");
    let blocks: Vec<&str> = text
        .split("```toml")
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .collect();
    let [scenario, sweep] = blocks[..] else {
        panic!("{} blocks", blocks.len())
    };
    assert_eq!(parse(scenario).unwrap().runs().len(), 2 * 20);
    assert_eq!(
        parse(&format!("{scenario}{sweep}")).unwrap().runs().len(),
        2 * 20 * 9
    );
}

proptest! {
    #[test]
    fn no_text_makes_the_reader_panic_and_every_error_is_one_line_with_the_file(
        at in 0usize..1000, gone in 0usize..20, put in "[ -~µ\n\"]{0,12}"
    ) {
        let text = include_str!("../../../../scenarios/trunk.toml");
        let from = (at..=text.len()).find(|&i| text.is_char_boundary(i)).unwrap_or(text.len());
        let to = (from + gone..=text.len()).find(|&i| text.is_char_boundary(i)).unwrap_or(text.len());
        let mut text = text.to_owned();
        text.replace_range(from..to, &put);
        if let Err(error) = parse(&text) {
            let message = error.to_string();
            prop_assert!(message.starts_with("house.toml:") && message.lines().count() == 1, "{}", message);
        }
    }
}
