//! Workloads on a lab whose gateway is the kernel's.

use std::sync::mpsc;
use std::time::Duration;

use anabranch_lab::emulator::LinkShape;
use anabranch_lab::run::{Change, Fault, Run, files_of};
use anabranch_lab::topology::{Gateway, IspSpec, Lab, LabSpec};
use anabranch_workload::client::TransferEvent;
use anabranch_workload::{Size, Workload};

fn lab(workload: &Workload) -> Lab {
    let shape = LinkShape::new(10_000_000, 10_000_000, 2_000);
    let isps = vec![
        IspSpec::new(0, "fiber", shape),
        IspSpec::new(1, "lte", shape),
    ];
    let spec = LabSpec {
        file_bytes: files_of(workload).unwrap(),
        ..LabSpec::new(isps)
    };
    Lab::build(&spec, &Gateway::NftMasquerade).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn page_rounds_complete_over_all_links_and_every_transfer_knows_its_own() {
    let workload = Workload {
        size: Size::BoundedPareto {
            alpha: 1.2,
            min_bytes: 1_000,
            max_bytes: 100_000,
        },
        ..Workload::page_rounds(3, 5, 2)
    };
    let lab = lab(&workload);
    let (events, told) = mpsc::channel();
    let run = Run {
        workload,
        client: lab.client_config(),
        faults: vec![],
    };
    let outcome = lab.run(run, events).unwrap();
    assert_eq!(outcome.transfers.len(), 30);
    assert!(
        outcome
            .transfers
            .iter()
            .all(|transfer| transfer.outcome.is_ok())
    );
    for link in ["fiber", "lte"] {
        let carried = outcome
            .transfers
            .iter()
            .any(|transfer| transfer.link.as_deref() == Some(link));
        assert!(carried, "{link}");
    }
    let finished = told
        .iter()
        .filter(|event| matches!(event, TransferEvent::Finished(_)));
    assert_eq!(finished.count(), 30);
    assert!(
        serde_json::to_string(&outcome)
            .unwrap()
            .contains("congestion_control")
    );
}

#[test]
fn a_cut_on_schedule_hurts_its_link_only() {
    let workload = Workload::continuous(2, 2, Size::PENG, Duration::from_secs(6));
    let lab = lab(&workload);
    let (events, _) = mpsc::channel();
    let mut client = lab.client_config();
    // Longer than TCP needs to repeat a packet that a full queue has dropped twice.
    client.connect_timeout = Duration::from_secs(2);
    client.idle_timeout = Duration::from_secs(2);
    let fault = |change, at_s| Fault {
        link: "lte".into(),
        change,
        at_s,
    };
    let never = fault(Change::Restore, 1000.0);
    let run = Run {
        workload,
        client,
        faults: vec![never, fault(Change::Cut, 1.0)],
    };
    let outcome = lab.run(run, events).unwrap();
    let [cut] = &outcome.faults[..] else {
        panic!("{:?}", outcome.faults);
    };
    assert!((1.0..1.5).contains(&cut.at_s), "{cut:?}");
    assert!(
        outcome.lab.links[1].down.tally.outage_drops + outcome.lab.links[1].up.tally.outage_drops
            > 0
    );
    let failed = outcome
        .transfers
        .iter()
        .filter(|transfer| transfer.outcome.is_failure());
    let failed = failed.collect::<Vec<_>>();
    assert!(!failed.is_empty());
    assert!(
        failed
            .iter()
            .all(|transfer| transfer.link.as_deref() != Some("fiber")),
        "{failed:#?}"
    );
}

#[test]
fn a_workload_whose_files_the_server_lacks_is_refused() {
    let lab = lab(&Workload::page_rounds(1, 1, 1));
    let (events, _) = mpsc::channel();
    let run = Run {
        workload: Workload::continuous(1, 1, Size::Fixed(7), Duration::from_secs(1)),
        client: lab.client_config(),
        faults: vec![],
    };
    let error = lab.run(run, events).unwrap_err().to_string();
    assert_eq!(
        error,
        "workload: the web server has no file of 7 bytes: add it to file_bytes"
    );
}
