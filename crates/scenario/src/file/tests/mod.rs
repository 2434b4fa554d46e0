//! By table of the file; here what concerns the file as a whole.

mod faults;
mod groups;
mod load;
mod network;
mod policies;
mod rules;
mod sweep;
mod tcp;
mod trace;
mod worlds;
mod written;

use proptest::prelude::*;

use super::*;
use crate::{Buffer, Impairments, Line, Load, Loss, Queue};

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
    assert!(scenario.faults.is_empty() && site(&scenario).links.iter().all(|link| link.nat));
    let [fiber, lte] = &site(&scenario).links[..] else {
        panic!("{:?}", site(&scenario).links)
    };
    assert_eq!(
        fiber.down,
        Line {
            rate_bps: 40_000_000,
            trace: None,
            delay: Duration::from_millis(6),
            // 100 ms of the rate.
            buffer: Buffer::Bytes(500_000),
            loss: Loss::None,
            queue: Queue::DropTail,
            impairments: Impairments::default(),
        }
    );
    assert_eq!((lte.up.rate_bps, lte.beyond.is_none()), (8_000_000, true));
    let Load::Pages(workload) = &scenario.load else {
        panic!("{:?}", scenario.load)
    };
    assert_eq!((workload.users, workload.tabs_per_user), (8, 5));
}

#[test]
fn what_is_not_toml_names_its_line() {
    let message = error("length = \"3s\"\nlink.a = {\n");
    assert!(message.starts_with("house.toml:2: not TOML: "), "{message}");
    let twice = error("link.a = { rate = \"1mbit\" }\nlink.a = { rate = \"2mbit\" }");
    assert_eq!(twice, "house.toml:2: not TOML: a is there twice");
}

#[test]
fn the_scenarios_of_the_repository_are_right() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let mut names = Vec::new();
    #[expect(clippy::disallowed_methods, reason = "the examples are files")]
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|kind| kind != "toml") {
            continue;
        }
        let file = ScenarioFile::load(&path).unwrap_or_else(|error| panic!("{error}"));
        assert!(!file.runs().is_empty());
        names.push(file.first().name.clone());
    }
    names.sort();
    let expected = [
        "bufferbloat",
        "cellular",
        "demo",
        "distance",
        "multihomed",
        "office",
        "peng-l3-3-1",
        "reno-beside-cubic",
        "round-trips",
        "shared",
        "trunk",
    ];
    assert_eq!(names, expected);
}

#[test]
fn the_examples_of_the_documentation_are_right() {
    let text = include_str!("../../../../../docs/scenarios.md");
    let blocks: Vec<&str> = text
        .split("```toml")
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .collect();
    let [scenario, traces, rule, groups, sweep] = blocks[..] else {
        panic!("{} blocks", blocks.len())
    };
    assert_eq!(parse(scenario).unwrap().runs().len(), 2 * 20);
    let servers =
        "workload = { kind = \"mix\", servers = 2, class.a = { per_user = \"1/s\", size = 9 } }";
    let (links, _) = scenario.split_once("fault").unwrap();
    let with_rule = parse(&format!("{links}\n{servers}\n{rule}")).unwrap();
    assert_eq!(site(with_rule.first()).rules.len(), 1);
    assert!(
        site(parse(traces).unwrap().first())
            .links
            .iter()
            .all(|link| link.down.trace.is_some())
    );
    assert_eq!(parse(groups).unwrap().first().load.users(), 8);
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
        let text = include_str!("../../../../../scenarios/trunk.toml");
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
