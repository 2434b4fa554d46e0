//! The soak of neighbours, twice for a minute: in an order that is always the same, and in a new one.

mod common;

use std::process::Output;

use serde_json::Value;

const SECONDS: u64 = 60;

fn soak(words: &[&str]) -> (Output, Value) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("soak.json");
    let mut command = common::laboratory();
    command.args(["neighbours", "--seconds", &SECONDS.to_string()]);
    command.args(words).arg("--json").arg(&file);
    let output = command.output().expect("the command was built");
    let text = std::fs::read_to_string(&file).unwrap_or_default();
    let report = serde_json::from_str(&text).unwrap_or_default();
    (output, report)
}

fn assert_lossless(words: &[&str]) {
    let (output, report) = soak(words);
    // The seed, the events, and with a loss what came before it.
    let told = String::from_utf8_lossy(&output.stderr);
    let table = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{told}\n{table}");
    assert_eq!(report["losses"], Value::Array(vec![]), "{report}");
    assert!(report["length_ms"].as_u64().unwrap() >= SECONDS * 1000);
    assert!(report["events"].as_array().unwrap().len() > 5, "{told}");
    for row in report["rows"].as_array().unwrap() {
        assert!(row["flows"].as_u64().unwrap() > 0, "{row}");
        assert!(row["attempts"].as_u64().unwrap() > SECONDS, "{row}");
    }
}

/// One test, since two soaks at a time would be two loads on one machine.
#[test]
fn nothing_is_lost_but_flows_whose_link_failed() {
    assert_lossless(&["--seed", "1"]);
    assert_lossless(&[]);
}
