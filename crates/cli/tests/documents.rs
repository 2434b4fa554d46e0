//! What the documents say of the tree is so: links, files, targets of make, tests, examples and packages that they name.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Those that people read, with what they are called and what they say.
fn documents() -> Vec<(String, String)> {
    let in_folder = |folder: &str| {
        let entries = fs::read_dir(root().join(folder)).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let documents = names.filter(|name| name.ends_with(".md"));
        documents
            .map(|name| format!("{folder}{name}"))
            .collect::<Vec<_>>()
    };
    let names = [in_folder("./"), in_folder("docs/")].concat();
    let read = |name: String| {
        let text = fs::read_to_string(root().join(&name)).unwrap();
        (name.trim_start_matches("./").to_owned(), text)
    };
    names.into_iter().map(read).collect()
}

/// What stands between two marks, on one line.
fn between<'a>(text: &'a str, opens: &str, closes: &str) -> Vec<&'a str> {
    let lines = text.lines();
    lines
        .flat_map(|line| line.split(opens).skip(1))
        .filter_map(|rest| Some(rest.split_once(closes)?.0))
        .collect()
}

/// As GitHub names the heading of a line.
fn anchor(heading: &str) -> String {
    let heading = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = heading.chars().filter_map(|letter| match letter {
        ' ' => Some('-'),
        _ if letter.is_alphanumeric() || "-_".contains(letter) => Some(letter),
        _ => None,
    });
    kept.collect()
}

/// Words of code, quoted or in blocks.
fn code(text: &str) -> Vec<&str> {
    let quoted = text
        .lines()
        .flat_map(|line| line.split('`').skip(1).step_by(2));
    let blocks = text.split("```").skip(1).step_by(2);
    quoted.chain(blocks).collect()
}

/// Names that follow a word in code, as those of tests follow `--test`.
fn named_after<'a>(text: &'a str, word: &str) -> BTreeSet<&'a str> {
    let mut names = BTreeSet::new();
    for line in code(text).into_iter().flat_map(str::lines) {
        let words: Vec<&str> = line.split_whitespace().collect();
        // An option stands anywhere, a command at the beginning.
        let is_meant = |at: usize| at == 0 || word.starts_with('-');
        let pairs = words.windows(2).enumerate();
        let pairs = pairs.filter(|(at, pair)| pair[0] == word && is_meant(*at));
        names.extend(pairs.map(|(_, pair)| pair[1].trim_matches(|c: char| !c.is_alphanumeric())));
    }
    // `--test NAME` is for the reader to fill in.
    names.retain(|name| name.chars().any(|letter| letter.is_lowercase()));
    names
}

/// Folders `kind` of the packages have a file or folder of this name.
fn is_in_packages(kind: &str, name: &str) -> bool {
    let packages = fs::read_dir(root().join("crates")).unwrap();
    let mut folders = packages.map(|package| package.unwrap().path().join(kind));
    folders.any(|folder| {
        let (file, nested) = (format!("{name}.rs"), format!("{name}/main.rs"));
        folder.join(file).exists() || folder.join(nested).exists()
    })
}

fn missing(look: impl Fn(&str, &str) -> Vec<String>) -> Vec<String> {
    let all = documents().into_iter();
    all.flat_map(|(name, text)| {
        let missing = look(&name, &text).into_iter();
        missing
            .map(|what| format!("{name}: {what}"))
            .collect::<Vec<_>>()
    })
    .collect()
}

#[test]
fn what_is_looked_for_is_found() {
    let text = "See [a](b.md#c-d) and `crates/x`.\n```\nmake demo\ncargo test --test own -- make it\n```\n";
    assert_eq!(between(text, "](", ")"), ["b.md#c-d"]);
    assert_eq!(code(text)[0], "crates/x");
    assert_eq!(named_after(text, "make"), BTreeSet::from(["demo"]));
    assert_eq!(named_after(text, "--test"), BTreeSet::from(["own"]));
    assert_eq!(anchor("## What is *known*, not"), "what-is-known-not");
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
    const FOLDERS: [&str; 6] = ["bpf/", "crates/", "docs/", "scripts/", "examples/", ".ci/"];
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
