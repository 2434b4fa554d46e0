//! `anabranch-bench service` from end to end, with one short turn of those contenders that every machine has.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

fn measured() -> Vec<Value> {
    let bench = Path::new(env!("CARGO_BIN_EXE_anabranch-bench"));
    let daemon = bench.with_file_name("anabranch");
    assert!(daemon.is_file(), "build the workspace's programs first");
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("service.json");
    let mut command = Command::new(bench);
    command
        .args(["service", "--quick", "--output"])
        .arg(&output);
    for measure in ["connections", "packets", "latency"] {
        command.args(["--only", measure]);
    }
    for contender in [
        "nat",
        "direct",
        "tunnel",
        "nftables",
        "forwarding",
        "redirect",
    ] {
        command.args(["--contender", contender]);
    }
    let ran = command.output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{said}");
    let text = std::fs::read_to_string(output).unwrap();
    let mut report: Value = serde_json::from_str(&text).unwrap();
    serde_json::from_value(report["rows"].take()).unwrap()
}

#[test]
fn services_are_measured_beside_what_every_machine_has() {
    let rows = measured();
    for name in [
        "connections",
        "packets nat",
        "packets direct",
        "packets tunnel",
        "latency p50",
    ] {
        let row = rows.iter().find(|row| row["name"] == name).expect(name);
        for contender in ["anabranch", "nftables", "forwarding", "redirect"] {
            assert!(row[contender].as_f64().unwrap() > 0.0, "{row}");
        }
        assert!(row["vs_nftables"].as_f64().unwrap() > 0.0, "{row}");
        assert!(
            row["haproxy"].is_null() && row["interval"] == serde_json::json!({}),
            "{row}"
        );
    }
}
