use super::*;

#[test]
fn unknown_keys_are_named_with_those_that_exist() {
    assert_eq!(
        error("link.a = { rate = \"1mbit\", speed = 3 }"),
        "house.toml:1: link.a.speed = 3: unknown key; allowed: rate, down, up, delay, loss, buffer, queue, trace, jitter, mtu, captive, filter, beyond, declared, metered, weight, nat"
    );
    assert!(
        error_with("polity = 1").starts_with("polity = 1: unknown key; allowed: name, length, ")
    );
    assert_eq!(
        error("\nlink.a = { rate = \"1mbit\", up = { bandwidth = 3 } }"),
        "house.toml:2: link.a.up.bandwidth = 3: unknown key; allowed: rate, delay, loss, buffer, queue, trace, jitter, mtu, captive, filter"
    );
}

#[test]
fn wrong_values_of_a_link_are_quoted_with_what_is_allowed() {
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
            r#"rate = 1000, queue = { kind = "red", min = "9kB", max = "9kB" }"#,
            r#"link.a.queue = { kind = "red", min = "9kB", max = "9kB" }: min must be less than max"#.into(),
        ),
        (r#"rate = 1000, weight = 0"#, "link.a.weight = 0: a weight is a whole number from 1 to 1000".into()),
        (r#"down = "1mbit""#, r#"link.a = { down = "1mbit" }: has no rate for up; write up = "40mbit""#.into()),
    ] {
        assert_eq!(error(&format!("link.a = {{ {link} }}")), format!("house.toml:1: {message}"));
    }
}

#[test]
fn wrong_values_of_a_run_are_quoted_with_what_is_allowed() {
    read(&format!("{MINIMAL}\nlength = \"8000min\"\nsample=\"1s\""));
    refuses(&[
        ("length = \"0s\"", "length = \"0s\": must be longer than 0"),
        ("length = \"200h\"", "length = \"200h\": at most 7 days"),
        (
            "sample = \"1us\"",
            "sample = \"1us\": from 1 ms to the length of the run",
        ),
        (
            "length = \"1h\"\nsample = \"3ms\"",
            "house.toml:5: sample = \"3ms\": more than 1000000 samples in the length of the run",
        ),
        (
            "family = 5",
            "family = 5: address families are 4, 6 or both",
        ),
        (
            "family = [4, 6]",
            r#"family = [4, 6]: invalid type: list, expected address families: 4, 6 or "both""#,
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
    ]);
}

#[test]
fn wrong_values_of_tcp_are_quoted_with_what_is_allowed() {
    refuses(&[
        (
            "tcp.initial_window = 0",
            "tcp.initial_window = 0: allowed: 1 to 16777216",
        ),
        ("tcp.mss = 9", "tcp.mss = 9: allowed: 64 B to 9000 B"),
        (
            r#"tcp.header = "1kB""#,
            r#"tcp.header = "1kB": allowed: 40 B to 120 B"#,
        ),
        (
            "tcp.control = \"vegas\"",
            "tcp.control = \"vegas\": allowed: reno, cubic, cubic-linux, bbr",
        ),
        (
            "tcp = { control = \"bbr\", recovery = \"newreno\" }",
            "tcp.recovery = \"newreno\": BBR counts what SACK says has arrived; leave it out beside control = \"bbr\"",
        ),
        (
            "tcp = { control = \"bbr\", pacing = false }",
            "tcp.pacing = false: BBR always paces; leave it out",
        ),
        (
            "tcp = { control = \"reno\", hystart = true }",
            "tcp.hystart = true: HyStart is of CUBIC's slow start; leave it out beside another control",
        ),
        (
            "tcp.delayed_ack = true",
            "tcp.delayed_ack = true: say how long: \"40ms\"",
        ),
        (
            "tcp.min_rto = \"0ms\"",
            "tcp.min_rto = \"0ms\": allowed: 1 ms to 60 s",
        ),
    ]);
}

#[test]
fn wrong_values_of_a_workload_are_quoted_with_what_is_allowed() {
    refuses(&[
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
            "workload = { kind = \"mix\", duration = \"31s\", class.a = { per_user = \"1/s\", size = 9 } }",
            "workload.duration = \"31s\": is longer than the run; make length longer",
        ),
        (
            "workload = { kind = \"mix\", class.a = { per_user_per_s = 0.5, size = 9 } }",
            "workload.class.a.per_user_per_s = 0.5: unknown key; write per_user = \"0.5/s\"",
        ),
        (
            "workload = { kind = \"mix\" }",
            "workload.class: missing; write class.NAME = { per_user = \"0.1/s\", size = \"10kB\" }",
        ),
    ]);
}

/// Lines of a scenario, and what is said of each.
#[track_caller]
fn refuses(rows: &[(&str, &str)]) {
    for (line, message) in rows {
        assert_eq!(error_with(line), *message);
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
            "allowed: reno, cubic, cubic-linux, bbr; did you mean cubic?",
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
