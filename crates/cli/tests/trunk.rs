//! A trunk of eight sublinks under token buckets, real TCP over it, and the product spreading it.

use std::path::Path;

use anabranch_lab::scenario::Setup;
use anabranch_lab::trunk;
use anabranch_scenario::{Record, ScenarioFile};
use anabranch_workload::client::Stop;

const SCENARIO: &str = r#"
length = "2s"
seeds = 1
policies = ["SH", "DHFV", "DRR"]

[trunk]
sublinks = 8
rate = "44.736mbit"
delay = "1ms"
buffer = "100ms"
clients = 60
servers = 4

[workload]
kind = "mix"
users = 60
servers = 4
class.ftp = { per_user_per_s = 0.08, size = { exponential = "600kB" } }
class.http = { per_user_per_s = 0.5, size = { exponential = "10kB" } }

[tcp]
control = "reno"
"#;

fn records() -> Vec<Record> {
    let file = ScenarioFile::parse(Path::new("trunk.toml"), SCENARIO).unwrap();
    let setup = || Setup {
        binary: env!("CARGO_BIN_EXE_anabranch").into(),
        stop: Stop::default(),
    };
    let run =
        |run| trunk::run(run, &setup(), &mut |_| {}).unwrap_or_else(|error| panic!("{error}"));
    file.runs().iter().map(run).collect()
}

/// What the busiest sublink carried over what the idlest did.
fn unevenness(record: &Record) -> f64 {
    let ends = record.series.iter().map(|series| series.samples.last());
    let bytes: Vec<u64> = ends.map(|last| last.unwrap().down_bytes).collect();
    let least = bytes.iter().min().copied().unwrap_or_default();
    bytes.iter().max().copied().unwrap_or_default() as f64 / least.max(1) as f64
}

fn is_accounted_for(record: &Record) {
    let counts = &record.counts;
    let received: u64 = record.transfers.iter().map(|transfer| transfer.bytes).sum();
    assert!(received > 1_000_000, "{counts:?}");
    assert!(counts.delivered.bytes >= received, "{received}, {counts:?}");
    let (offered, overflowed) = (counts.offered, counts.overflowed);
    assert_eq!(
        offered.packets,
        counts.delivered.packets + overflowed.packets
    );
    let mean_bytes = overflowed.bytes / overflowed.packets.max(1);
    assert!(
        mean_bytes <= 1500,
        "a packet of {mean_bytes} bytes: {counts:?}"
    );
    assert_eq!(record.series.len(), 8);
}

#[test]
fn static_hashing_keeps_order_deficit_round_robin_is_even_and_dhfv_moves_bins() {
    let [hashed, moved, even] = &records()[..] else {
        panic!("one record per policy")
    };
    for record in [hashed, moved, even] {
        is_accounted_for(record);
    }
    let (hashed_counts, moved_counts, even_counts) = (hashed.counts, moved.counts, even.counts);
    assert_eq!(hashed_counts.reassignments, 0);
    assert!(
        hashed_counts.reordered * 1000 <= hashed_counts.offered.packets,
        "a flow has one sublink, and a sublink is a queue; processors may swap a few: {hashed_counts:?}"
    );
    assert!(moved_counts.reassignments > 0);
    assert_eq!(even_counts.reassignments, 0);
    assert!(even_counts.reordered > 0);
    let [hashed, moved, even] = [hashed, moved, even].map(unevenness);
    println!("busiest over idlest sublink: SH {hashed:.2}, DHFV {moved:.2}, DRR {even:.2}");
    assert!(even < 1.1, "{even}");
    assert!(hashed > moved && moved > even);
}
