//! What people and programs write to the gateway, mutated: files and control requests. Their readers never panic, and
//! what they refuse they refuse in one line that begins with the file's name.
//!
//! `FUZZ_TEXTS` sets how many texts each test tries.

use std::fmt::Display;
use std::path::Path;

use anabranch_api::{LinkAction, Request};
use anabranch_config::Source;
use anabranch_daemon::config::Configuration;
use anabranch_scenario::ScenarioFile;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

const NAME: &str = "fuzz.toml";
const TEXTS: u32 = 2000;

const GATEWAY: &str = r#"lan = ["lan0", "lan1"]
policy = "WSDM"
link.fiber = { device = "wan0", down = "40mbit", up = "20mbit", gateway = "192.0.2.1", address = "192.0.2.2" }
link.lte = { device = "wwan0", down = "15mbit", metered = true, probe = ["icmp:192.0.2.1", "dns:192.0.2.3"] }
[probe]
targets = ["tcp:192.0.2.9:443"]
[availability]
window_age = "30s"
window = 10
down_loss = 7
metered_factor = 10
[nat]
tcp_established = "124min"
udp = "5min"
ports = [1024, 65535]
udp_filter = "address-dependent"
fallback = "refuse"
[limits]
flows = 262144
flows_per_host = 8192
"#;
/// Of two roles.
const BOTH: &str = r#"
lan = ["eth0"]
link.fiber = { device = "eth1", down = "500mbit", up = "100mbit" }
[trunk]
device = "trunk0"
scheme = "DHFV"
overload = "40%"
flowlet_gap = "2ms"
sublink.a = { device = "eth2", via = "192.0.2.1", rate = "10mbit", buffer = "64kB" }
sublink.b = { device = "eth3", via6 = "2001:db8::1", rate = "10mbit" }
"#;
const TRUNK: &str = include_str!("../../../scenarios/trunk.toml");
const DEMO: &str = include_str!("../../../scenarios/demo.toml");
const PENG: &str = include_str!("../../../scenarios/peng-l3-3-1.toml");

/// What may stand where a value stood.
const VALUES: [&str; 28] = [
    "0",
    "-1",
    "1",
    "3.5",
    "1e308",
    "-0.0",
    "nan",
    "inf",
    "9223372036854775807",
    "true",
    "[]",
    "{}",
    "[[]]",
    "[0, 0]",
    "[\"\"]",
    "\"\"",
    "\"0\"",
    "\"40mbit\"",
    "\"1e99gbit\"",
    "\"-5ms\"",
    "\"999999y\"",
    "\"100%\"",
    "\"lan0\"",
    "\"../../etc\"",
    "\"192.0.2.1/33\"",
    "\"::1\"",
    "1979-05-27",
    "\"ä\\u0000\\n\"",
];

/// One thing done to a text.
#[derive(Clone, Debug)]
enum Change {
    /// The value after the nth `=`.
    Value(usize, String),
    DropLine(usize),
    CopyLine(usize, usize),
    /// A new key under whatever table is open there.
    Key(usize, String, String),
    Byte(usize, u8),
    Cut(usize),
}

impl Change {
    fn make(&self, text: &str) -> String {
        let mut lines: Vec<&str> = text.lines().collect();
        let count = lines.len().max(1);
        match self {
            Change::Value(nth, value) => return with_value(text, *nth, value),
            Change::DropLine(at) if !lines.is_empty() => drop(lines.remove(at % count)),
            Change::CopyLine(from, to) if !lines.is_empty() => {
                lines.insert(to % count, lines[from % count]);
            }
            Change::Key(at, key, value) => {
                let line = format!("{key} = {value}");
                lines.insert(at % count, &line);
                return lines.join("\n");
            }
            Change::Byte(at, value) if !text.is_empty() => {
                let mut bytes = text.as_bytes().to_vec();
                let at = at % bytes.len();
                bytes[at] = *value;
                return String::from_utf8_lossy(&bytes).into_owned();
            }
            Change::Cut(at) => {
                let at = at % (text.len() + 1);
                return String::from_utf8_lossy(&text.as_bytes()[..at]).into_owned();
            }
            _ => {}
        }
        lines.join("\n")
    }
}

fn with_value(text: &str, nth: usize, value: &str) -> String {
    let places: Vec<_> = text.match_indices('=').map(|(at, _)| at + 1).collect();
    let Some(&from) = places.get(nth % places.len().max(1)) else {
        return text.to_owned();
    };
    let rest = &text[from..];
    let length = rest.find([',', '}', '\n']).unwrap_or(rest.len());
    format!("{} {value}{}", &text[..from], &rest[length..])
}

fn change() -> impl Strategy<Value = Change> {
    let value = || proptest::sample::select(&VALUES[..]).prop_map(str::to_owned);
    let words = || "[a-z_.]{1,12}";
    prop_oneof![
        5 => (any::<usize>(), value()).prop_map(|(nth, value)| Change::Value(nth, value)),
        1 => (any::<usize>(), any::<i64>()).prop_map(|(nth, n)| Change::Value(nth, n.to_string())),
        1 => (any::<usize>(), "\\PC{0,80}").prop_map(|(nth, s)| Change::Value(nth, format!("{s:?}"))),
        2 => any::<usize>().prop_map(Change::DropLine),
        2 => any::<(usize, usize)>().prop_map(|(from, to)| Change::CopyLine(from, to)),
        2 => (any::<usize>(), words(), value()).prop_map(|(at, key, value)| Change::Key(at, key, value)),
        1 => any::<(usize, u8)>().prop_map(|(at, value)| Change::Byte(at, value)),
        1 => any::<usize>().prop_map(Change::Cut),
    ]
}

fn mutated(seeds: &'static [&'static str]) -> impl Strategy<Value = String> {
    let changes = proptest::collection::vec(change(), 1..4);
    (proptest::sample::select(seeds), changes).prop_map(|(text, changes)| {
        changes
            .iter()
            .fold(text.to_owned(), |text, change| change.make(&text))
    })
}

fn runner() -> TestRunner {
    let told = std::env::var("FUZZ_TEXTS")
        .ok()
        .and_then(|words| words.parse().ok());
    TestRunner::new(ProptestConfig {
        cases: told.unwrap_or(TEXTS),
        failure_persistence: None,
        ..ProptestConfig::default()
    })
}

/// Whether what follows the file's name, and perhaps a line's number, begins with a key: `key = value: …`, `key: …`, or
/// `missing key key`.
fn names_key(rest: &str) -> bool {
    let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    let rest = rest.trim_start_matches(':').trim_start();
    let end = ["missing key ", " = ", ": "]
        .iter()
        .filter_map(|mark| rest.find(mark))
        .min();
    end.is_some_and(|end| match &rest[..end] {
        "" => rest.starts_with("missing key "),
        // Every other piece stands in quotes.
        key => !key
            .replace("\\\"", "")
            .split('"')
            .step_by(2)
            .any(|piece| piece.contains(' ')),
    })
}

/// One line, `file: key …` or, where `text` is no TOML, `file:line: …`, and nothing a terminal would obey.
fn is_one_line(text: &str, error: &impl Display) -> Result<(), TestCaseError> {
    let words = error.to_string();
    let named = words
        .strip_prefix(NAME)
        .and_then(|rest| rest.strip_prefix(':'));
    let is_toml = Source::parse(Path::new(NAME), text).is_ok();
    prop_assert!(
        named.is_some_and(|rest| rest.trim().len() > 3 && (!is_toml || names_key(rest))),
        "names no file, or no key: {words:?}"
    );
    prop_assert!(
        !words.chars().any(char::is_control),
        "more than a line: {words:?}"
    );
    Ok(())
}

#[test]
fn a_configuration_is_read_or_refused_in_one_line() {
    let path = Path::new(NAME);
    for text in [GATEWAY, BOTH] {
        Configuration::parse(path, text).expect("the seed is right");
    }
    let outcome = runner().run(&mutated(&[GATEWAY, BOTH]), |text| {
        Configuration::parse(path, &text)
            .err()
            .as_ref()
            .map_or(Ok(()), |error| is_one_line(&text, error))
    });
    outcome.unwrap();
}

#[test]
fn a_scenario_is_read_or_refused_in_one_line() {
    let path = Path::new(NAME);
    for text in [TRUNK, DEMO, PENG] {
        ScenarioFile::parse(path, text).expect("the seed is right");
    }
    let outcome = runner().run(&mutated(&[TRUNK, DEMO, PENG]), |text| {
        ScenarioFile::parse(path, &text)
            .err()
            .as_ref()
            .map_or(Ok(()), |error| is_one_line(&text, error))
    });
    outcome.unwrap();
}

/// Requests as the command line makes them.
fn requests() -> Vec<Request> {
    let explain = serde_json::json!({
        "request": "explain", "from": "10.0.0.2:4000", "to": "[2001:db8::1]:443", "proto": "tcp"
    });
    vec![
        Request::Status,
        Request::Flows { limit: 100 },
        serde_json::from_value(explain).expect("a request"),
        Request::Link {
            name: "fiber".into(),
            action: LinkAction::Drain,
            force: false,
        },
        Request::Reload,
    ]
}

#[test]
fn a_control_request_is_read_or_refused_and_printed_as_it_was() {
    let texts: Vec<_> = requests()
        .iter()
        .map(|request| serde_json::to_string(request).expect("JSON"))
        .collect();
    for (text, request) in texts.iter().zip(requests()) {
        assert_eq!(
            serde_json::from_str::<Request>(text).expect("a request"),
            request
        );
    }
    let edits = proptest::collection::vec((any::<usize>(), any::<u8>(), 0..3), 0..6);
    let strategy = (proptest::sample::select(texts), edits).prop_map(|(text, edits)| {
        edits
            .into_iter()
            .fold(text.into_bytes(), |mut line, (at, byte, kind)| {
                let at = at % (line.len() + 1);
                match kind {
                    0 => line.insert(at, byte),
                    1 if at < line.len() => line[at] = byte,
                    _ => line.truncate(at.max(1)),
                }
                line
            })
    });
    let outcome = runner().run(&strategy, |line| {
        if let Ok(request) = serde_json::from_slice::<Request>(&line) {
            let printed = serde_json::to_vec(&request).expect("JSON");
            prop_assert_eq!(
                serde_json::from_slice::<Request>(&printed).ok(),
                Some(request)
            );
        }
        Ok(())
    });
    outcome.unwrap();
}
