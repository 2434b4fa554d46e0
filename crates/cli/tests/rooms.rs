//! The arrows between crates that ARCHITECTURE.md draws, as far as a build would not tell: what a crate must never link,
//! itself or by what it depends on. Dependencies of tests count too, but where it is about what a command links.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Deserialize;

const DRAWING: [&str; 4] = ["maud", "parquet", "plotters", "resvg"];

/// By the name of a package, those that it depends on.
type Graph = BTreeMap<String, BTreeSet<String>>;

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

#[derive(Deserialize)]
struct Manifest {
    package: Named,
    #[serde(default)]
    dependencies: BTreeMap<String, toml::Value>,
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

/// By the lock file.
fn graph() -> Graph {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.lock");
    let lock: Lock = toml::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let mut graph: Graph = BTreeMap::new();
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
fn paths<'a>(graph: &'a Graph, from: &'a str) -> BTreeMap<&'a str, Vec<&'a str>> {
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

fn assert_apart(graph: &Graph, from: &str, never: &[&str]) {
    let paths = paths(graph, from);
    for package in never {
        assert!(graph.contains_key(*package), "there is no {package}");
        if let Some(path) = paths.get(package) {
            panic!("{from} must not depend on {package}: {}", path.join(" → "));
        }
    }
}

/// What a program links, by the manifests of our own packages: without what their tests and build scripts need.
fn linked() -> Graph {
    let mut graph = graph();
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for entry in std::fs::read_dir(crates).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path().join("Cargo.toml")).unwrap();
        let manifest: Manifest = toml::from_str(&text).unwrap();
        let dependencies = manifest.dependencies.into_keys().collect();
        graph.insert(manifest.package.name, dependencies);
    }
    graph
}

#[test]
fn what_runs_on_a_router_links_no_science() {
    const SCIENCE: [&str; 11] = [
        "anabranch-experiment",
        "anabranch-frames",
        "anabranch-lab",
        "anabranch-line",
        "anabranch-report",
        "anabranch-results",
        "anabranch-scenario",
        "anabranch-sim",
        "anabranch-testbed",
        "anabranch-workbench",
        "anabranch-workload",
    ];
    let graph = linked();
    assert_apart(&graph, "anabranch-cli", &SCIENCE);
    assert_apart(&graph, "anabranch-cli", &DRAWING);
    // Nor does the laboratory link the gateway: it runs the program.
    let product = ["anabranch-cli", "anabranch-daemon", "anabranch-dataplane"];
    assert_apart(&graph, "anabranch-workbench", &product);
}

#[test]
fn what_runs_a_scenario_neither_keeps_nor_draws_results() {
    let graph = graph();
    for room in ["anabranch-scenario", "anabranch-sim"] {
        assert_apart(&graph, room, &DRAWING);
        assert_apart(&graph, room, &["anabranch-results", "anabranch-report"]);
        assert_apart(&graph, room, &["anabranch-dataplane", "anabranch-daemon"]);
    }
    assert_apart(&graph, "anabranch-lab", &DRAWING);
}

#[test]
fn asking_the_daemon_takes_none_of_it() {
    let graph = graph();
    for room in ["anabranch-api", "anabranch-lab"] {
        assert_apart(&graph, room, &["anabranch-daemon", "anabranch-dataplane"]);
    }
}

#[test]
fn results_draw_nothing() {
    let graph = graph();
    let drawing = ["anabranch-report", "maud", "plotters", "resvg"];
    assert_apart(&graph, "anabranch-results", &drawing);
}

#[test]
fn the_testbed_knows_no_gateway_and_the_product_no_laboratory() {
    let graph = graph();
    let rooms = ["anabranch-scenario", "anabranch-daemon", "anabranch-lab"];
    assert_apart(&graph, "anabranch-testbed", &rooms);
    assert_apart(&graph, "anabranch-testbed", &["anabranch-dataplane"]);
    assert_apart(&graph, "anabranch-dataplane", &rooms);
    assert_apart(
        &graph,
        "anabranch-daemon",
        &["anabranch-scenario", "anabranch-lab"],
    );
}
