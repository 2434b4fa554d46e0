//! Files, folders, headings, crates, tests and targets of make that are named exist.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::{anchor, between, code, missing, named_after, quoted, root};

/// Folders `kind` of the packages have a file or folder of this name.
fn is_in_packages(kind: &str, name: &str) -> bool {
    let packages = fs::read_dir(root().join("crates")).unwrap();
    let mut folders = packages.map(|package| package.unwrap().path().join(kind));
    folders.any(|folder| {
        let (file, nested) = (format!("{name}.rs"), format!("{name}/main.rs"));
        folder.join(file).exists() || folder.join(nested).exists()
    })
}

#[test]
fn links_lead_somewhere() {
    let missing = missing(|name, text| {
        let folder = root().join(Path::new(name).parent().unwrap());
        let links = between(text, "](", ")").into_iter();
        let links = links.filter(|link| !link.contains("://"));
        let leads = |link: &&str| {
            let (path, heading) = link.split_once('#').unwrap_or((link, ""));
            let file = match path {
                "" => root().join(name),
                path => folder.join(path),
            };
            let Ok(target) = fs::read_to_string(&file) else {
                return heading.is_empty() && file.exists();
            };
            let mut headings = target.lines().filter(|line| line.starts_with('#'));
            heading.is_empty() || headings.any(|line| anchor(line) == heading)
        };
        links
            .filter(|link| !leads(link))
            .map(str::to_owned)
            .collect()
    });
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn files_that_are_named_are_there() {
    const FOLDERS: [&str; 9] = [
        ".ci/",
        "bpf/",
        "crates/",
        "docs/",
        "examples/",
        "experiments/",
        "packaging/",
        "scenarios/",
        "scripts/",
    ];
    let missing = missing(|_, text| {
        let words = code(text).into_iter().flat_map(str::split_whitespace);
        let paths = words.filter(|word| FOLDERS.iter().any(|folder| word.starts_with(folder)));
        let is_whole = |path: &&str| !path.contains(['*', '…', '{', '<', '$', ':', 'N']);
        let paths = paths.map(|path| path.trim_end_matches([',', ';', '.', ')', '/']));
        paths
            .filter(is_whole)
            .filter(|path| !root().join(path).exists())
            .map(str::to_owned)
            .collect()
    });
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn commands_that_are_named_have_what_they_name() {
    let makefile = fs::read_to_string(root().join("Makefile")).unwrap();
    let is_target = |name: &str| {
        makefile
            .lines()
            .any(|line| line.starts_with(&format!("{name}:")))
    };
    let manifests = fs::read_dir(root().join("crates")).unwrap();
    let manifests = manifests.map(|package| package.unwrap().path().join("Cargo.toml"));
    let manifests: String = manifests
        .map(|manifest| fs::read_to_string(manifest).unwrap())
        .collect();
    let is_package = |name: &str| manifests.contains(&format!("name = \"{name}\""));
    let missing = missing(|_, text| {
        let lacks = |word: &str, is_there: &dyn Fn(&str) -> bool| {
            let names = named_after(text, word).into_iter();
            let lacking = names.filter(|name| !is_there(name));
            lacking
                .map(|name| format!("{word} {name}"))
                .collect::<Vec<_>>()
        };
        [
            lacks("make", &is_target),
            lacks("-p", &|name| {
                !name.starts_with("anabranch") || is_package(name)
            }),
            lacks("--test", &|name| is_in_packages("tests", name)),
            lacks("--example", &|name| is_in_packages("examples", name)),
        ]
        .concat()
    });
    assert!(missing.is_empty(), "{missing:#?}");
}

/// Paths of all files below a folder, but what git ignores.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let entries =
        entries.filter(|entry| entry.file_name() != "target" && entry.file_name() != ".git");
    let found = entries.flat_map(|entry| match entry.file_type().unwrap().is_dir() {
        true => files(&entry.path()),
        false => vec![entry.path()],
    });
    found.collect()
}

/// `open.h`, `gateway/role.rs`: the end of a path is enough.
#[test]
fn files_that_are_named_by_the_end_of_their_path_are_there() {
    const KINDS: [&str; 8] = ["bpf.c", "c", "h", "md", "rs", "service", "toml", "tsv"];
    let files = files(&root());
    let is_there = |name: &str| files.iter().any(|file| file.ends_with(name));
    let missing = missing(|name, text| {
        let names = quoted(text).into_iter().filter(|_| name != "CHANGELOG.md");
        let names =
            names.filter(|name| KINDS.iter().any(|kind| name.ends_with(&format!(".{kind}"))));
        let names = names.filter(|name| !name.starts_with('/') && !name.contains([' ', '*', '<']));
        names
            .filter(|name| !is_there(name))
            .map(str::to_owned)
            .collect()
    });
    assert!(missing.is_empty(), "{missing:#?}");
    assert!(is_there("gateway/role.rs") && !is_there("gateway/rule.rs"));
}

/// The names in ARCHITECTURE.md's block that follows `heading`, as it is written.
fn block<'a>(text: &'a str, heading: &str) -> &'a str {
    let (_, behind) = text.split_once(heading).unwrap();
    behind.split("```").nth(1).unwrap()
}

#[test]
fn the_tree_has_every_crate_and_program() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let lines = block(&text, "## Where things are").lines();
    let shown: BTreeSet<&str> = lines
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    let folders = ["crates", "bpf", "bpf/lib"].into_iter();
    let names = folders.flat_map(|folder| {
        let entries = fs::read_dir(root().join(folder)).unwrap();
        entries.map(move |entry| format!("{folder}/{}", entry.unwrap().file_name().display()))
    });
    let is_shown = |name: &String| {
        let inside = format!("{name}/");
        shown.contains(name.as_str()) || shown.iter().any(|other| other.starts_with(&inside))
    };
    let missing: Vec<String> = names.filter(|name| !is_shown(name)).collect();
    assert!(missing.is_empty(), "{missing:#?}");
}

/// What each of our packages depends on by these tables of its manifest, without "anabranch-".
fn dependencies(kinds: &[&str]) -> BTreeMap<String, BTreeSet<String>> {
    let entries = fs::read_dir(root().join("crates")).unwrap();
    let manifests = entries.map(|entry| {
        let entry = entry.unwrap();
        let text = fs::read_to_string(entry.path().join("Cargo.toml")).unwrap();
        let manifest: toml::Table = text.parse().unwrap();
        let tables = kinds
            .iter()
            .filter_map(|kind| manifest.get(*kind)?.as_table());
        let ours = tables
            .flat_map(toml::Table::keys)
            .filter_map(|name| name.strip_prefix("anabranch-"));
        (
            entry.file_name().into_string().unwrap(),
            ours.map(str::to_owned).collect(),
        )
    });
    manifests.collect()
}

/// Of `a, b ← c ← d`: c depends on a and on b, d on c.
fn arrows<'a>(drawn: &'a str, is_crate: &dyn Fn(&str) -> bool) -> BTreeSet<(&'a str, &'a str)> {
    let mut arrows = BTreeSet::new();
    for chain in drawn.split(['\n', ';']) {
        let rooms = chain.split('←').map(|rooms| rooms.split([',', ' ']));
        let rooms: Vec<Vec<&str>> = rooms
            .map(|names| names.filter(|name| is_crate(name)).collect())
            .collect();
        for pair in rooms.windows(2) {
            arrows.extend(
                pair[1]
                    .iter()
                    .flat_map(|from| pair[0].iter().map(|to| (*from, *to))),
            );
        }
    }
    arrows
}

/// Whether arrows lead from one crate to another, over others perhaps.
fn is_drawn(arrows: &BTreeSet<(&str, &str)>, from: &str, to: &str) -> bool {
    let mut next = arrows.iter().filter(|arrow| arrow.0 == from);
    next.any(|arrow| arrow.1 == to || is_drawn(arrows, arrow.1, to))
}

#[test]
fn arrows_between_crates_are_dependencies_and_all_of_them() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let all = dependencies(&["dependencies", "dev-dependencies"]);
    let arrows = arrows(block(&text, "\nDependencies,"), &|name| {
        all.contains_key(name)
    });
    let wrong: Vec<_> = arrows
        .iter()
        .filter(|(from, to)| !all[*from].contains(*to))
        .collect();
    assert!(wrong.is_empty(), "no such dependency: {wrong:?}");
    let linked = dependencies(&["dependencies"]);
    let linked = linked
        .iter()
        .flat_map(|(from, all)| all.iter().map(move |to| (from, to)));
    let missing: Vec<_> = linked
        .filter(|(from, to)| !is_drawn(&arrows, from, to))
        .collect();
    assert!(missing.is_empty(), "not drawn: {missing:?}");
}
