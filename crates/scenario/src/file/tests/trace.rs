use tempfile::TempDir;

use super::*;
use crate::{Run, TraceSource, World};

#[expect(clippy::disallowed_methods, reason = "traces are files")]
fn write(folder: &TempDir, name: &str, text: &str) {
    std::fs::write(folder.path().join(name), text).unwrap();
}

/// A directory with a trace of 3 Mbit/s, a malformed one, and the scenario that is asked for.
fn folder(scenario: &str) -> (TempDir, Result<ScenarioFile, BadInput>) {
    let folder = tempfile::tempdir().unwrap();
    write(&folder, "cell.down", "4\n8\n12\n");
    write(&folder, "bad.down", "4\n3\n");
    write(&folder, "house.toml", scenario);
    let file = ScenarioFile::load(&folder.path().join("house.toml"));
    (folder, file)
}

#[test]
fn a_trace_is_a_file_beside_the_scenario_and_has_its_mean_for_a_rate() {
    let (_folder, file) = folder(
        r#"
        link.a = { down = { trace = "cell.down", buffer = "1s" }, up = "1mbit" }
        link.b = { trace = "cell.down", up = "2mbit", declared = { down = "5mbit", up = "2mbit" } }
        link.c = { rate = "1mbit", declared = "8mbit", beyond = { trace = "cell.down" } }
        "#,
    );
    let file = file.unwrap();
    let [a, b, c] = &site(file.first()).links[..] else {
        panic!("three links")
    };
    assert_eq!((a.down.rate_bps, a.up.rate_bps), (3_000_000, 1_000_000));
    assert_eq!(a.down.buffer, Buffer::Bytes(375_000));
    assert_eq!(a.declared_bps(), [Some(3_000_000), Some(1_000_000)]);
    assert!(b.down.trace.is_some() && b.up.trace.is_none());
    assert_eq!(b.declared_bps(), [Some(5_000_000), Some(2_000_000)]);
    assert_eq!(c.declared_bps(), [Some(8_000_000); 2]);
    assert!(c.beyond.as_ref().unwrap().up.trace.is_some());
    assert!(file.fits(World::Lab).is_ok());
}

#[test]
fn the_hash_of_a_run_is_of_what_the_trace_says_and_not_of_its_name() {
    let hash = |text: &str| {
        let (folder, _) = folder(text);
        write(&folder, "copy.down", "4\n8\n12\n");
        write(&folder, "other.down", "4\n8\n13\n");
        let file = ScenarioFile::load(&folder.path().join("house.toml")).unwrap();
        file.runs()[0].hash.clone()
    };
    let [one, copy, other] =
        ["cell", "copy", "other"].map(|name| hash(&format!("link.a.trace = \"{name}.down\"")));
    assert_eq!(one, copy);
    assert_ne!(one, other);
}

#[test]
fn what_is_wrong_with_a_trace_is_told_with_its_line_in_either_file() {
    for (scenario, expected) in [
        (
            "link.a = { up = \"1mbit\", down.trace = \"bad.down\" }",
            "bad.down:2: 3 ms is before the line above, 4 ms; times must not fall",
        ),
        (
            "link.a.trace = \"none.down\"",
            "none.down: No such file or directory (os error 2)",
        ),
        (
            "link.a = { rate = \"1mbit\", trace = \"cell.down\" }",
            "link.a.trace = \"cell.down\": a trace has the rate in it; leave one of the two out",
        ),
        (
            "link.a = { trace = \"cell.down\", up = \"1mbit\", down = \"1mbit\" }",
            "link.a.trace = \"cell.down\": down and up have rates of their own; leave one of the three out",
        ),
        (
            "link.a.trace = { kind = \"lte\", mean = \"20mbit\", outage = \"0s\" }",
            "outage and between are both above 0, or, without outages, both 0",
        ),
        (
            "link.a.trace = { kind = \"lte\", mean = \"20kbit\" }",
            "mean: at least 100000 bit/s",
        ),
        (
            "link.a.trace = { kind = \"cable\", steady = \"20mbit\", boost = \"10mbit\" }",
            "boost must not be less than steady",
        ),
        (
            "link.a.trace = \"cell.down\"\nfault = [{ at = \"1s\", link = \"a\", rate = \"1mbit\" }]",
            "link.a follows a trace down, which is all the rate it has",
        ),
        (
            "trunk = { sublinks = 2, rate = \"1mbit\", back.trace = \"cell.down\" }",
            "only links and what is beyond them follow traces; write a rate",
        ),
        (
            "link.a.rate = \"1mbit\"\ngroup.g = { users = 1, down.trace = \"cell.down\" }",
            "only links and what is beyond them follow traces; write a rate",
        ),
    ] {
        let error = folder(scenario).1.unwrap_err().to_string();
        assert!(error.ends_with(expected), "{error}");
        let begin = error.rsplit("house.toml:").next().unwrap();
        assert!(
            begin.starts_with("1: ") || begin.starts_with("2: "),
            "{error}"
        );
    }
}

#[test]
fn the_other_direction_of_a_link_with_a_trace_can_change_its_rate() {
    let (_folder, file) = folder(
        "link.a = { trace = \"cell.down\", up = \"1mbit\" }\n\
         fault = [{ at = \"1s\", link = \"a\", rate = \"2mbit\", direction = \"up\" }]",
    );
    file.unwrap();
}

#[test]
fn every_line_and_every_seed_draws_a_trace_of_its_own_and_equal_runs_the_same() {
    let text = r#"
        seeds = 2
        link.a.trace = { kind = "lte", mean = "20mbit" }
        link.b.trace = { kind = "lte", mean = "20mbit" }
    "#;
    let traces = |run: &Run| {
        let Network::Site(site) = run.network() else {
            panic!("a site")
        };
        let lines = site.links.iter().flat_map(|link| [&link.down, &link.up]);
        let traces = lines.map(|line| line.trace.as_ref().unwrap().trace());
        traces.collect::<Vec<_>>()
    };
    let runs = parse(text).unwrap().runs();
    let all: Vec<_> = runs.iter().flat_map(traces).collect();
    for (index, trace) in all.iter().enumerate() {
        assert!(!all[..index].contains(trace), "{index}");
    }
    let again: Vec<_> = parse(text)
        .unwrap()
        .runs()
        .iter()
        .flat_map(traces)
        .collect();
    assert_eq!(all, again);
    // Links beside it change nothing.
    let alone = parse(&text.replace("link.a.", "link.z.")).unwrap().runs();
    assert_eq!(traces(&alone[0])[2..], all[2..4]);
}

#[test]
fn a_model_has_its_defaults() {
    let scenario = read(
        "link.a = { down.trace = { kind = \"cable\", steady = \"50mbit\" }, up.trace = { kind = \"lte\", mean = \"5mbit\" } }",
    );
    let link = &site(&scenario).links[0];
    let Some(TraceSource::Cable(cable)) = &link.down.trace else {
        panic!("{:?}", link.down.trace)
    };
    assert_eq!(
        (cable.boost_bps, cable.burst_bytes),
        (100_000_000, 10_000_000)
    );
    assert_eq!(
        (link.down.rate_bps, cable.length),
        (50_000_000, LENGTH_DEFAULT)
    );
    let Some(TraceSource::Lte(lte)) = &link.up.trace else {
        panic!("{:?}", link.up.trace)
    };
    assert_eq!((lte.variation, lte.outage.as_millis()), (0.4, 200));
}
