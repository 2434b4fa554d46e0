//! Tables have a row for each thing of their kind: attacks, experiments, programs, reasons.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use anabranch_core::measure::{MEASURES, Measure};

use crate::commands::executable;
use crate::{missing, root, subjects};

fn read(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap()
}

/// What `anabranch-lab` says there is, when it is asked for what there is not.
fn allowed(arguments: &[&str], before: &str) -> BTreeSet<String> {
    let mut command = Command::new(executable("anabranch-lab"));
    let said = command
        .args(arguments)
        .arg("no-such-name")
        .output()
        .unwrap()
        .stderr;
    let said = String::from_utf8(said).unwrap();
    let (_, names) = said.split_once(before).unwrap_or_else(|| panic!("{said}"));
    names.trim().split(", ").map(str::to_owned).collect()
}

#[test]
fn every_attack_and_every_experiment_has_a_row() {
    let page = read("docs/attacks.md");
    let (_, rows) = page.split_once("| name | what is sent |").unwrap();
    let rows = rows.split("\n\n").next().unwrap();
    let named: BTreeSet<String> = subjects(rows).into_iter().map(str::to_owned).collect();
    assert_eq!(named, allowed(&["attack"], "allowed: "));
    let page = read("README.md");
    let (_, rows) = page
        .split_once("| `anabranch-lab experiment run …` |")
        .unwrap();
    let rows = rows.split("\n\n").next().unwrap();
    let named: BTreeSet<String> = subjects(rows).into_iter().map(str::to_owned).collect();
    assert_eq!(named, allowed(&["experiment", "run"], "there are: "));
}

/// A row of the table of measures in docs/policies.md.
fn documented(measure: &Measure) -> String {
    let Measure {
        name,
        meaning,
        distance,
        rates,
        by_rate,
        state,
        ..
    } = measure;
    let (distance, by_rate) = (distance.meaning(), if *by_rate { "yes" } else { "no" });
    format!("| `{name}` | {meaning} | {distance} | {rates} | {by_rate} | {state} |")
}

#[test]
fn the_table_of_measures_has_a_row_for_each_that_a_tuple_may_name() {
    let page = read("docs/policies.md");
    let (_, rows) = page.split_once("| measure | what is compared |").unwrap();
    let rows = rows.split("\n\n").next().unwrap().lines().skip(2);
    let rows: Vec<&str> = rows.collect();
    assert_eq!(rows, MEASURES.map(documented));
}

#[test]
fn every_program_that_the_verifier_measures_is_named() {
    let page = read("ARCHITECTURE.md");
    let named: BTreeSet<&str> = page
        .split(|letter: char| !letter.is_alphanumeric() && letter != '_')
        .collect();
    let measured = read("crates/dataplane/verifier.tsv");
    let programs = measured
        .lines()
        .skip(1)
        .map(|row| row.split('\t').nth(1).unwrap());
    // Those of an upgrade are the same, and its iterator.
    let programs: BTreeSet<&str> = programs
        .filter(|name| !name.ends_with(" upgrading"))
        .collect();
    assert!(programs.len() > 8, "{programs:?}");
    let missing: Vec<_> = programs.difference(&named).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// What a `status` that is shown says of packets.
fn reasons(text: &str) -> Vec<&str> {
    let blocks = text
        .split("```")
        .skip(1)
        .step_by(2)
        .flat_map(|block| block.split("\n\n"));
    let tables = blocks.filter(|block| block.trim_start().starts_with("packets  fate"));
    let rows = tables.flat_map(|table| table.trim().lines().skip(1));
    rows.map(|row| row.trim().splitn(3, "  ").nth(2).unwrap().trim())
        .collect()
}

#[test]
fn reasons_that_are_shown_are_those_of_the_programs() {
    let sources = ["reasons.h", "service.h", "member.h", "bins.h"]
        .map(|header| read(&format!("bpf/include/{header}")))
        .concat();
    let mut shown = 0;
    let missing = missing(|_, text| {
        let words = reasons(text).into_iter().inspect(|_| shown += 1);
        let lacking = words.filter(|words| !sources.contains(&format!("\"{words}\"")));
        lacking.map(str::to_owned).collect()
    });
    assert!(missing.is_empty(), "{missing:#?}");
    assert!(shown > 0);
}
