//! The arrows between crates that ARCHITECTURE.md draws, as far as a build would not tell: what a crate must never link,
//! itself or by what it depends on. Dependencies of tests count too.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Deserialize;

const DRAWING: [&str; 4] = ["maud", "parquet", "plotters", "resvg"];

#[derive(Deserialize)]
struct Lock {
    package: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    #[serde(default)]
    dependencies: Vec<String>,
}

/// By the name of a package, those that it depends on.
fn graph() -> BTreeMap<String, BTreeSet<String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.lock");
    let lock: Lock = toml::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let mut graph: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in lock.package {
        // A version follows the name where there are several.
        let names = package.dependencies.iter();
        let names = names.filter_map(|dependency| dependency.split(' ').next());
        let of = graph.entry(package.name).or_default();
        of.extend(names.map(str::to_owned));
    }
    graph
}

/// How `from` comes to depend on each package, as a path of names.
fn paths<'a>(
    graph: &'a BTreeMap<String, BTreeSet<String>>,
    from: &'a str,
) -> BTreeMap<&'a str, Vec<&'a str>> {
    let mut found = BTreeMap::from([(from, vec![from])]);
    let mut next = vec![from];
    while let Some(package) = next.pop() {
        let way = found[package].clone();
        for dependency in &graph[package] {
            if !found.contains_key(dependency.as_str()) {
                found.insert(dependency, [way.clone(), vec![dependency]].concat());
                next.push(dependency);
            }
        }
    }
    found
}

fn assert_apart(from: &str, never: &[&str]) {
    let graph = graph();
    let paths = paths(&graph, from);
    for package in never {
        assert!(graph.contains_key(*package), "there is no {package}");
        if let Some(path) = paths.get(package) {
            panic!("{from} must not depend on {package}: {}", path.join(" → "));
        }
    }
}

#[test]
fn what_runs_a_scenario_neither_keeps_nor_draws_results() {
    for room in ["anabranch-scenario", "anabranch-sim"] {
        assert_apart(room, &DRAWING);
        assert_apart(room, &["anabranch-results", "anabranch-report"]);
        assert_apart(room, &["anabranch-dataplane", "anabranch-daemon"]);
    }
    assert_apart("anabranch-lab", &DRAWING);
}

#[test]
fn asking_the_daemon_takes_none_of_it() {
    for room in ["anabranch-api", "anabranch-lab"] {
        assert_apart(room, &["anabranch-daemon", "anabranch-dataplane"]);
    }
}

#[test]
fn results_draw_nothing() {
    let drawing = ["anabranch-report", "maud", "plotters", "resvg"];
    assert_apart("anabranch-results", &drawing);
}

#[test]
fn the_testbed_knows_no_gateway_and_the_product_no_laboratory() {
    let rooms = ["anabranch-scenario", "anabranch-daemon", "anabranch-lab"];
    assert_apart("anabranch-testbed", &rooms);
    assert_apart("anabranch-testbed", &["anabranch-dataplane"]);
    assert_apart("anabranch-dataplane", &rooms);
    assert_apart("anabranch-daemon", &["anabranch-scenario", "anabranch-lab"]);
}
