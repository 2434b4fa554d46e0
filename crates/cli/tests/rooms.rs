//! The arrows between crates that ARCHITECTURE.md draws, as far as a build would not tell: what a crate must never link,
//! itself or by what it depends on. Dependencies of tests count too, but where it is about what a command links. And those
//! between the files of a crate, and between the headers of `bpf`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::Deserialize;

const CRATES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
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
    let path = Path::new(CRATES).join("../Cargo.lock");
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
    for entry in std::fs::read_dir(CRATES).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path().join("Cargo.toml")).unwrap();
        let manifest: Manifest = toml::from_str(&text).unwrap();
        let dependencies = manifest.dependencies.into_keys().collect();
        graph.insert(manifest.package.name, dependencies);
    }
    graph
}

/// The packages whose folders stand behind this comment of the workspace's manifest.
fn group(comment: &str) -> Vec<String> {
    let text = std::fs::read_to_string(Path::new(CRATES).join("../Cargo.toml")).unwrap();
    let (_, from) = text.split_once(comment).unwrap();
    let lines = from.lines().skip(1).map(str::trim);
    let folders = lines.map_while(|line| line.strip_prefix("\"crates/")?.strip_suffix("\","));
    folders.map(|name| format!("anabranch-{name}")).collect()
}

#[test]
fn every_crate_is_of_the_product_of_science_or_of_checks() {
    let groups = ["# Product:", "# Science:", "# Checks:"]
        .map(group)
        .concat();
    let ours = linked().into_keys();
    let ours: BTreeSet<_> = ours.filter(|name| name.starts_with("anabranch-")).collect();
    assert_eq!(groups.len(), ours.len());
    assert_eq!(BTreeSet::from_iter(groups), ours);
}

#[test]
fn what_runs_on_a_router_links_no_science() {
    let graph = linked();
    let others = [group("# Science:"), group("# Checks:")].concat();
    let others: Vec<_> = others.iter().map(String::as_str).collect();
    for package in group("# Product:") {
        assert_apart(&graph, &package, &others);
    }
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

/// A module of a crate from its root, or the path of an item.
type Way = Vec<String>;

/// By each module below `folder` the paths in its file.
fn modules(root: &Path, folder: &Path) -> BTreeMap<Way, Vec<Way>> {
    let entries = std::fs::read_dir(folder).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let paths = paths.filter(|path| {
        !["tests", "main"]
            .map(Some)
            .contains(&path.file_stem().and_then(|it| it.to_str()))
    });
    let of = |path: PathBuf| {
        if path.is_dir() {
            return modules(root, &path);
        }
        let module = path.strip_prefix(root).unwrap().with_extension("");
        let words = module.iter().map(|word| word.to_str().unwrap().to_owned());
        let words = words.filter(|word| !["lib", "mod"].contains(&word.as_str()));
        let text = std::fs::read_to_string(&path).unwrap();
        BTreeMap::from([(words.collect(), paths_in(&text))])
    };
    paths.flat_map(of).collect()
}

/// What a file imports, and other paths from `crate` or `super`, its tests left out.
fn paths_in(text: &str) -> Vec<Way> {
    let lines = text.lines().map(|line| line.split("//").next().unwrap());
    let text = lines.collect::<Vec<_>>().join(" ");
    let text = text.split("mod tests").next().unwrap();
    let trees = text.split("use ").skip(1);
    let trees = trees.map(|tree| tree.split(';').next().unwrap());
    let words = text.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
    // Before a brace stands a part of an import.
    let words = words.filter(|word| !word.ends_with(':'));
    let words = words.filter(|word| word.starts_with("crate::") || word.starts_with("super::"));
    trees.chain(words).flat_map(ways).collect()
}

/// All that a tree of imports names.
fn ways(tree: &str) -> Vec<Way> {
    let (head, rest) = tree.split_once('{').unwrap_or((tree, ""));
    let head = head
        .split(" as ")
        .next()
        .unwrap()
        .split("::")
        .map(str::trim);
    let head = head.filter(|word| !["", "self"].contains(word));
    let head: Way = head.map(str::to_owned).collect();
    let mut depth = 0;
    let inner = rest.trim_end().strip_suffix('}').unwrap_or(rest);
    let parts = inner.split(|c| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && depth == 0
    });
    let parts = parts.filter(|part| !part.trim().is_empty());
    let mut all: Vec<Way> = parts.flat_map(ways).collect();
    if all.is_empty() {
        return vec![head];
    }
    all.iter_mut()
        .for_each(|tail| drop(tail.splice(..0, head.clone())));
    all
}

/// The module whose file has what `path` means in the file of `at`, through whoever names it on the way.
fn place(
    modules: &BTreeMap<Way, Vec<Way>>,
    at: &[String],
    path: &[String],
    hops: u8,
) -> Option<Way> {
    let mut place = at.to_vec();
    let mut rest = path;
    while let [first, others @ ..] = rest {
        match first.as_str() {
            "crate" => place.clear(),
            "super" => drop(place.pop()),
            _ => place.push(first.clone()),
        }
        if !place.is_empty() && !modules.contains_key(&place) {
            place.pop();
            break;
        }
        rest = others;
    }
    let named = |path: &&Way| rest.first().is_some_and(|name| path.last() == Some(name));
    match modules
        .get(&place)
        .and_then(|paths| paths.iter().find(named))
    {
        // Of another package, or of the file's own.
        _ if rest.len() == path.len() => None,
        Some(path) if place != at && hops > 0 => self::place(modules, &place, path, hops - 1),
        _ => Some(place),
    }
}

/// A module and what it consists of are one here: of these either may name the other.
#[test]
fn no_files_of_a_crate_know_each_other_in_a_circle() {
    for entry in std::fs::read_dir(CRATES).unwrap() {
        let source = entry.unwrap().path().join("src");
        let modules = modules(&source, &source);
        let known = |(module, paths): (&Way, &Vec<Way>)| {
            let known = paths
                .iter()
                .filter_map(|path| place(&modules, module, path, 4));
            let known = known.filter(|it| !it.starts_with(module) && !module.starts_with(it));
            (module.join("::"), known.map(|it| it.join("::")).collect())
        };
        let graph: Graph = modules.iter().map(known).collect();
        assert_no_circle(&source, &graph);
    }
}

fn assert_no_circle(folder: &Path, graph: &Graph) {
    for (file, known) in graph {
        for other in known {
            if let Some(path) = paths(graph, other).get(file.as_str()) {
                panic!("{}: a circle: {}", folder.display(), path.join(" → "));
            }
        }
    }
}

/// By each C file below `folder` the files that it includes, all by their paths from `root`.
fn includes(root: &Path, folder: &Path) -> Graph {
    let entries = std::fs::read_dir(folder).unwrap();
    let of = |path: PathBuf| {
        if path.is_dir() {
            return includes(root, &path);
        }
        let name = |path: &Path| path.strip_prefix(root).unwrap().display().to_string();
        let text = std::fs::read_to_string(&path).unwrap();
        let lines = text.lines();
        let files = lines.filter_map(|line| line.strip_prefix("#include \"")?.strip_suffix('"'));
        let files = files.map(|file| folder.join(file).canonicalize().unwrap());
        Graph::from([(name(&path), files.map(|file| name(&file)).collect())])
    };
    entries
        .flat_map(|entry| of(entry.unwrap().path()))
        .collect()
}

#[test]
fn the_parser_knows_no_context() {
    let parser = Path::new(CRATES).join("../bpf/lib/packet/parse.h");
    let text = std::fs::read_to_string(parser).unwrap();
    assert!(!text.contains("__sk_buff") && !text.contains("bpf_skb_") && !text.contains("skb->"));
}

#[test]
fn headers_know_their_own_room_and_those_below_it() {
    let root = Path::new(CRATES).join("../bpf").canonicalize().unwrap();
    let graph = includes(&root, &root);
    assert_no_circle(&root, &graph);
    let room = |file: &str| Path::new(file).parent().unwrap().display().to_string();
    for (file, known) in &graph {
        let below: &[&str] = match room(file).as_str() {
            "include" => &[],
            "policy" => &["include"],
            "lib/packet" => &["include", "policy"],
            "lib/gateway" | "lib/member" | "lib/service" | "lib/trunk" => {
                &["include", "policy", "lib/packet"]
            }
            // Programs, which put together what they need.
            "" => continue,
            other => panic!("{other}: which rooms may it know?"),
        };
        for other in known {
            let allowed = room(other) == room(file) || below.contains(&room(other).as_str());
            assert!(allowed, "{file} must not include {other}");
        }
    }
}
