//! Configurations that are shown are accepted, keys that are named exist, and each key is explained in a table.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use anabranch_daemon::config::Config;

use crate::commands::executable;
use crate::{documents, missing, quoted, subjects};

/// What is known of a configuration without a look at this host.
fn check(text: &str) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("anabranch.toml");
    fs::write(&file, text).unwrap();
    let mut command = Command::new(executable("anabranch"));
    command.args(["check", "--offline", "--config"]).arg(&file);
    command.output().unwrap()
}

/// A block is a file, or belongs to the one before it on its page, or to one like README's.
#[test]
fn configurations_that_are_shown_are_right() {
    const LAN: &str = "lan = [\"lan0\"]\n";
    const LINKS: &str =
        "policy = \"RR\"\nlink.one = { device = \"wan0\" }\nlink.two = { device = \"wan1\" }\n";
    const PAGES: [&str; 9] = [
        "README.md",
        "docs/checks.md",
        "docs/ipv6.md",
        "docs/member.md",
        "docs/neighbours.md",
        "docs/routed.md",
        "docs/rules.md",
        "docs/services.md",
        "docs/trunk.md",
    ];
    let mut shown = 0;
    let wrong = missing(|name, text| {
        let blocks = text.split("```toml\n").skip(1);
        let blocks = blocks.map(|rest| rest.split("```").next().unwrap());
        let blocks = blocks.filter(|_| PAGES.contains(&name));
        let mut before = format!("{LAN}{LINKS}");
        let mut wrong = Vec::new();
        for block in blocks {
            shown += 1;
            let alone = check(block);
            if alone.status.success() {
                before = block.to_owned();
                continue;
            }
            let files = [format!("{LAN}{block}"), format!("{before}{block}")];
            if !files.iter().any(|file| check(file).status.success()) {
                let said = String::from_utf8_lossy(&alone.stderr);
                wrong.push(format!("{said}{block}"));
            }
        }
        wrong
    });
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(shown >= PAGES.len(), "{shown}");
    assert!(!check("lan = [\"lan0\"]\nlinks = 3\n").status.success());
}

/// Tables of a file: as documents name what is in them, and how a file begins one.
const TABLES: [(&str, &str); 16] = [
    ("", ""),
    ("availability.", "[availability]"),
    ("", "[[check]]"),
    ("expect.", "[check.expect]"),
    ("", "[default]"),
    ("limits.", "[limits]"),
    ("", "[member]"),
    ("link.NAME.", "[link.one]"),
    ("nat.", "[nat]"),
    ("probe.", "[probe]"),
    ("", "[[rule]]"),
    ("service.NAME.", "[service.one]"),
    (
        "services.",
        "service.one = { listen = \"192.0.2.1:80\", servers = [\"10.0.0.1:80\"] }\n[services]",
    ),
    ("survey.", "[survey]"),
    ("", "[trunk]"),
    ("", "[trunk.sublink.one]"),
];

/// What may stand in a table, by the answer to a key that may not.
fn keys(table: &str) -> Vec<String> {
    let header = table.replace("[check.expect]", "[[check]]\n[check.expect]");
    let said = check(&format!("{header}\nno_such_key = 1\n")).stderr;
    let said = String::from_utf8(said).unwrap();
    let (_, allowed) = said
        .split_once("unknown key; allowed: ")
        .unwrap_or_else(|| panic!("{table}: {said}"));
    let allowed = allowed.split(';').next().unwrap().trim();
    allowed.split(", ").map(str::to_owned).collect()
}

#[test]
fn every_key_of_a_configuration_is_explained_in_a_table() {
    // Former spellings, which docs/rules.md tells of.
    const FORMER: [&str; 2] = ["sessions", "link.NAME.on_return"];
    let documents = documents();
    let subjects: BTreeSet<&str> = documents
        .iter()
        .flat_map(|(_, text)| subjects(text))
        .collect();
    let mut missing = Vec::new();
    for (before, table) in TABLES {
        for key in keys(table).into_iter().map(|key| format!("{before}{key}")) {
            let short = key.rsplit_once('.').map(|(_, last)| format!(".{last}"));
            let inside = format!("{key}.");
            let is_explained = |subject: &&str| {
                let subject = subject.trim_matches(['[', ']']);
                subject == key || subject.starts_with(&inside) || Some(subject) == short.as_deref()
            };
            if !subjects.iter().any(is_explained) && !FORMER.contains(&key.as_str()) {
                missing.push(key);
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

/// Whether a file may have this key, whatever its value.
fn is_key(key: &str) -> bool {
    let said = check(&format!("{} = [[[]]]\n", key.replace("NAME", "one"))).stderr;
    !String::from_utf8(said).unwrap().contains("unknown key")
}

#[test]
fn keys_that_are_named_exist() {
    let tables = keys("");
    assert!(is_key("nat.forwards") && !is_key("nat.forward") && !is_key("link.NAME.colour"));
    let missing = missing(|name, text| {
        // Scenarios have keys of their own, and the changelog tells of former ones.
        let is_of_scenarios =
            ["CHANGELOG.md", "docs/scenarios.md", "docs/experiments.md"].contains(&name);
        let named = quoted(text).into_iter().filter(|_| !is_of_scenarios);
        let named = named.map(|text| text.split(" = ").next().unwrap());
        let is_key_like = |key: &&str| {
            let letters = |letter: char| letter.is_alphanumeric() || "._".contains(letter);
            let begins = key
                .split_once('.')
                .is_some_and(|(table, _)| tables.iter().any(|known| known == table));
            begins && key.chars().all(letters) && ![".c", ".h"].iter().any(|end| key.ends_with(end))
        };
        named
            .filter(is_key_like)
            .filter(|key| !is_key(key))
            .map(str::to_owned)
            .collect()
    });
    assert!(missing.is_empty(), "{missing:#?}");
}

/// Rows of tables whose first cell is a key and whose last is its default, as a file would say it. What `[default]` says is left out:
/// it is kept as it was written, and a class takes it later.
fn defaults(text: &str) -> Vec<(&str, &str)> {
    let rows = text
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.strip_suffix("` |"));
    let rows = rows.filter_map(|row| Some((row.split_once("` | ")?.0, row.rsplit_once("| `")?.1)));
    rows.filter(|(key, value)| {
        key.contains('.') && !key.starts_with("default.") && !value.contains('`')
    })
    .collect()
}

/// What a file with a link means, if it says this, too.
fn meaning(line: &str) -> String {
    let file = format!("lan = [\"lan0\"]\nlink.one.device = \"wan0\"\npolicy = \"RR\"\n{line}\n");
    let config = Config::parse(Path::new("a.toml"), &file);
    format!(
        "{:?}",
        config.unwrap_or_else(|error| panic!("{line}: {error}"))
    )
}

#[test]
fn defaults_that_tables_state_are_those_of_the_configuration() {
    let mut stated = 0;
    let wrong = missing(|name, text| {
        let is_configuration = ["README.md", "docs/availability.md"].contains(&name);
        let lines = defaults(text).into_iter().filter(|_| is_configuration);
        let lines = lines.map(|(key, value)| format!("{} = {value}", key.replace("NAME", "one")));
        let lines = lines.inspect(|_| stated += 1);
        lines.filter(|line| meaning(line) != meaning("")).collect()
    });
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(stated > 35, "{stated}");
    assert_ne!(meaning("availability.poll = \"60ms\""), meaning(""));
}
