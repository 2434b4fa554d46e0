//! What README, ARCHITECTURE, CONTRIBUTING and the pages of docs/ claim about this tree is true: each claim that can be found in
//! their text is compared with what it is about. Tables that one crate alone knows are compared there (docs/policies.md, docs/nat.md,
//! docs/neighbours.md, docs/rules.md, docs/scenarios.md, the numbers of marks and routing tables in README.md).

mod commands;
mod configuration;
mod names;
mod numbers;
mod tables;
mod tree;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Of the checkout.
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

/// What is quoted as code, on one line.
fn quoted(text: &str) -> Vec<&str> {
    let lines = text.split("```").step_by(2).flat_map(str::lines);
    lines
        .flat_map(|line| line.split('`').skip(1).step_by(2))
        .collect()
}

/// Words of code, quoted or in blocks.
fn code(text: &str) -> Vec<&str> {
    let blocks = text.split("```").skip(1).step_by(2);
    quoted(text).into_iter().chain(blocks).collect()
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

/// What is quoted in the first cells of tables.
fn subjects(text: &str) -> BTreeSet<&str> {
    let rows = text.lines().filter_map(|line| line.strip_prefix("| "));
    rows.flat_map(|row| quoted(row.split(" |").next().unwrap()))
        .collect()
}

/// What `look` objects to, with the document's name before it.
fn missing(mut look: impl FnMut(&str, &str) -> Vec<String>) -> Vec<String> {
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

/// Else the other tests read the text between two quotes for what is quoted.
#[test]
fn what_is_quoted_stands_on_one_line() {
    let broken = missing(|_, text| {
        let lines = text.split("```").step_by(2).flat_map(str::lines);
        let broken = lines.filter(|line| line.matches('`').count() % 2 == 1);
        broken.map(str::to_owned).collect()
    });
    assert!(broken.is_empty(), "{broken:#?}");
}
