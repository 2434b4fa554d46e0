//! `[[check]]`.

use std::time::Duration;

use anabranch_core::checks::{Check, Schedule, Test};

use super::*;

fn with(check: &str) -> String {
    format!("{MINIMAL}[[check]]\nlink = \"fiber\"\n{check}\n")
}

fn check(text: &str) -> Check {
    let config = parse(&with(text)).unwrap();
    let fiber = config.link("fiber").unwrap();
    assert_eq!(config.link("lte").unwrap().checks, []);
    fiber.checks[0].clone()
}

fn tests(text: &str) -> Vec<String> {
    check(text).tests.iter().map(Test::to_string).collect()
}

#[test]
fn a_check_says_who_is_asked_and_what_is_not_said_has_a_default() {
    let least = check("ask = \"icmp:192.0.2.1\"");
    let schedule = Schedule {
        interval: Duration::from_secs(5),
        jitter: 10,
        timeout: Duration::from_secs(2),
    };
    assert_eq!(
        (least.schedule, least.rise, least.fall, least.quorum),
        (schedule, 2, 3, 1)
    );
    let all = check(
        "ask = [\"tcp:192.0.2.1:80\", \"dns:2001:db8::1\"]\ninterval = \"1s\"\njitter = 50\nrise = 1\nfall = 100\nquorum = 2",
    );
    assert_eq!((all.rise, all.fall, all.quorum), (1, 100, 2));
    assert_eq!(
        all.schedule.timeout,
        Duration::from_millis(500),
        "as long as fits"
    );
    let command = "command = [\"/bin/true\", \"a b\"]";
    assert_eq!(tests(command), ["command /bin/true a b"]);
}

#[test]
fn a_page_answers_as_it_says_as_the_check_says_or_200() {
    for (text, page) in [
        ("ask = \"http:a.example/x\"", "http:a.example/x = 200"),
        ("ask = \"http:a.example/x = 204\"", "http:a.example/x = 204"),
        (
            "ask = \"http:a.example/x\"\nexpect = { status = [200, 301], body = \"all well\" }",
            "http:a.example/x = 200,301 all well",
        ),
        (
            "ask = \"http:192.0.2.1:8443/\"\nhost = \"a.example\"\nexpect = { body = \"ok\" }",
            "http:192.0.2.1:8443/ = 200 ok as a.example",
        ),
        (
            "ask = \"https:a.example/\"\ncertificate = \"any\"",
            "https:a.example/ = 200",
        ),
    ] {
        assert_eq!(tests(text), [page], "{text}");
    }
}

#[test]
fn a_check_that_cannot_be_is_told_where_it_stands() {
    const OF_PAGES: &str = "is for pages; write ask = \"http:HOST/PATH\", or leave it out";
    for (text, wanted) in [
        (
            "rise = 2",
            ".link = \"fiber\": the check asks nothing; write ask = \"http:HOST/PATH\", or command = [\"/usr/local/bin/NAME\"]",
        ),
        (
            "ask = \"icmp:192.0.2.1\"\ncommand = [\"/bin/true\"]",
            ".command = [\"/bin/true\"]: ask is there, too; write a check for each of them",
        ),
        (
            "ask = [\"icmp:192.0.2.1\", \"icmp:here\"]",
            ".ask[1] = \"icmp:here\": not a probe target: ",
        ),
        ("ask = []", ".ask = []: 1 to 16 targets are allowed"),
        (
            "command = [\"true\"]",
            ".command = [\"true\"]: write the program's whole path and its arguments, ",
        ),
        (
            "ask = \"icmp:192.0.2.1\"\nhost = \"a.example\"",
            &format!(".host = \"a.example\": {OF_PAGES}"),
        ),
        (
            "ask = \"http:a.example/\"\ncertificate = \"any\"",
            ".certificate = \"any\": is for pages over TLS; write ask = \"https:HOST/PATH\", or leave it out",
        ),
        (
            "ask = \"https:a.example/\"\ncertificate = \"/nowhere/ca.pem\"",
            ".certificate = \"/nowhere/ca.pem\": /nowhere/ca.pem: I/O error",
        ),
        (
            "ask = \"https:a.example/\"\ncertificate = \"trustd\"",
            ".certificate = \"trustd\": trustd: no whole path; write \"trusted\", \"any\", or the path",
        ),
        (
            "command = [\"/bin/true\"]\nexpect = { status = [200] }",
            &format!(".expect = {{ status = [200] }}: {OF_PAGES}"),
        ),
        (
            "ask = \"http:a.example/ = 204\"\nexpect = { status = [200] }",
            ".expect = { status = [200] }: \"http:a.example/ = 204\" says what it expects itself; leave one of them out",
        ),
        (
            "ask = \"http:a.example/\"\nexpect = { status = [20] }",
            ".expect.status = [20]: write one status code or more, like [200, 204]",
        ),
        (
            "ask = \"http:a.example/\"\nexpect = { body = \"\" }",
            ".expect.body = \"\": a text of 1 to 1000 bytes is allowed",
        ),
        (
            "ask = \"http:a.example/\"\nhost = \"a/b\"",
            ".ask = \"http:a.example/\": host \"a/b\" is no host name; write it like \"www.example.org\"",
        ),
        (
            "ask = \"icmp:192.0.2.1\"\ninterval = \"10ms\"",
            ".interval = \"10ms\": a time from 200ms to 24h is allowed",
        ),
        (
            "ask = \"icmp:192.0.2.1\"\njitter = 60",
            ".jitter = 60: 0 to 50 percent of the interval are allowed",
        ),
        (
            "ask = \"icmp:192.0.2.1\"\ninterval = \"2s\"\ntimeout = \"2s\"",
            ".timeout = \"2s\": a time from 10ms to 1.8s is allowed: the interval less its jitter",
        ),
        (
            "ask = \"icmp:192.0.2.1\"\nfall = 0",
            ".fall = 0: 1 to 100 in a row are allowed",
        ),
        (
            "ask = \"icmp:192.0.2.1\"\nquorum = 2",
            ".quorum = 2: 1 to 1 are asked",
        ),
        (
            "asks = 1",
            ".asks = 1: unknown key; allowed: link, ask, command, ",
        ),
    ] {
        let said = error(&with(text));
        let wanted = format!("check[0]{wanted}");
        assert!(said.starts_with(&wanted), "{said}\n{wanted}");
    }
}

#[test]
fn a_check_is_of_every_link_that_it_names() {
    let named = |names: &str| {
        let check = format!("[[check]]\nlink = {names}\nask = \"icmp:192.0.2.1\"");
        parse(&format!("{MINIMAL}{check}\n{check}\n"))
    };
    let both = named("[\"lte\", \"fiber\"]").unwrap();
    assert!(both.links.iter().all(|link| link.checks.len() == 2));
    let unknown = named("[\"cable\"]").unwrap_err().to_string();
    assert!(
        unknown.ends_with(
            "check[0].link = [\"cable\"]: no link is called \"cable\"; there are: fiber, lte"
        ),
        "{unknown}"
    );
    let nobody = error_with("[[check]]\nask = \"icmp:192.0.2.1\"");
    assert!(
        nobody.contains("check[0]") && nobody.contains("link"),
        "{nobody}"
    );
}
