//! The flood rig, at a rate that any machine carries: what it prints and what it writes.

mod common;

use std::path::Path;
use std::process::Output;

use anabranch_lab::attack::ATTACKS;
use serde_json::Value;

fn attack(words: &[&str]) -> Output {
    let mut command = common::laboratory();
    command.arg("attack").args(words);
    command.output().expect("the command was built")
}

const RATE_PPS: u64 = 2000;

/// Whole numbers that every row carries.
const NUMBERS: [&str; 12] = [
    "rate_pps",
    "rtt_ms",
    "flows_live",
    "flows_lost",
    "connects_tried",
    "connects_ok",
    "queries_tried",
    "queries_ok",
    "own_pings_ok",
    "softnet_drops",
    "device_drops",
    "passed",
];

/// Carries out an attack, and returns the printed table and the written rows.
fn carried_out(words: &str, file: &Path) -> (String, Vec<Value>) {
    let words = format!("{words} --quick --rtt 0 --rate {RATE_PPS} --json");
    let mut words: Vec<_> = words.split(' ').collect();
    words.push(file.to_str().unwrap());
    let output = attack(&words);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{error}");
    let text = std::fs::read_to_string(file).unwrap();
    let mut report: Value = serde_json::from_str(&text).unwrap();
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    (
        table,
        serde_json::from_value(report["rows"].take()).unwrap(),
    )
}

#[test]
fn a_gentle_flood_costs_nobody_anything_and_is_counted() {
    let directory = tempfile::tempdir().unwrap();
    let (table, rows) = carried_out("syn --seconds 3", &directory.path().join("rows.json"));
    let subjects: Vec<_> = rows.iter().map(|row| &row["subject"]).collect();
    assert_eq!(subjects, ["anabranch", "nftables"]);
    for row in &rows {
        assert_row(row, "syn");
        assert!(row["passed"].as_u64().unwrap() > 0, "{row}");
    }
    assert_eq!(table.lines().count(), 3, "{table}");
}

#[test]
fn a_gentle_flood_of_a_service_costs_nobody_anything() {
    let directory = tempfile::tempdir().unwrap();
    let names = ATTACKS.iter().map(|attack| attack.name);
    let of_services: Vec<_> = names.filter(|name| name.starts_with("service-")).collect();
    assert_eq!(of_services.len(), 8);
    for name in of_services {
        let words = format!("{name} --seconds 2 --subject anabranch");
        let (_, rows) = carried_out(&words, &directory.path().join("rows.json"));
        assert_row(&rows[0], name);
        // Also the servers were not taken for lost, and the flood was seen.
        assert_eq!(rows[0]["verdicts"]["falsely_lost"], 0, "{}", rows[0]);
        let reasons = rows[0]["reasons"].as_array().unwrap().iter();
        let mut seen = reasons.map(|reason| reason["packets"].as_u64().unwrap());
        assert!(seen.any(|packets| packets > RATE_PPS), "{}", rows[0]);
    }
}

fn assert_row(row: &Value, name: &str) {
    let number = |key: &str| {
        row[key]
            .as_u64()
            .unwrap_or_else(|| panic!("{key} in {row}"))
    };
    for key in NUMBERS {
        number(key);
    }
    assert_eq!(row["attack"], name);
    assert!(row["invalid"].is_boolean(), "{row}");
    assert_eq!(
        (number("flows_live"), number("flows_lost")),
        (1000, 0),
        "{row}"
    );
    assert_eq!(number("connects_ok"), 80, "{row}");
    assert_eq!(number("queries_ok"), 100, "{row}");
    assert_eq!(number("own_pings_ok"), 5, "{row}");
    // A machine that is busy sends less, and nothing catches up beyond the rate.
    assert!((1..=RATE_PPS).contains(&number("rate_pps")), "{row}");
}

#[test]
fn an_unknown_attack_is_told_what_there_is() {
    let output = attack(&["syn-spoofed"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    let beginning = "anabranch-lab: unknown attack `syn-spoofed`, allowed: syn, syn-spoofed-mac, ";
    assert!(error.starts_with(beginning), "{error}");
    assert!(error.contains("did you mean syn-spoofed-"), "{error}");
}
