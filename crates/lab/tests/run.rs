//! Workloads on a lab whose gateway is the kernel's.

use std::sync::mpsc;
use std::time::Duration;

use anabranch_lab::run::{Run, Senders};
use anabranch_lab::topology::{Gateway, IspSpec, Lab, LabSpec};
use anabranch_scenario::{Change, Fault, Load, Peer, Place};
use anabranch_testbed::emulator::LinkShape;
use anabranch_workload::client::TransferEvent;
use anabranch_workload::{
    Arrival, ArrivalPlan, ClassId, Direction, Outcome, Pattern, RemoteServerId, Size, UserId,
    Workload,
};

fn lab() -> Lab {
    let shape = LinkShape::new(10_000_000, 10_000_000, 2_000);
    let isps = vec![
        IspSpec::new(0, "fiber", shape.clone()),
        IspSpec::new(1, "lte", shape),
    ];
    Lab::build(&LabSpec::new(isps), &Gateway::Peer(Peer::Nftables))
        .unwrap_or_else(|error| panic!("{error}"))
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
    let lab = lab();
    let (transfers, told) = mpsc::channel();
    let senders = Senders {
        transfers,
        ..Senders::nobody()
    };
    let run = Run {
        load: Load::Pages(workload),
        client: lab.client_config(),
        faults: vec![],
    };
    let outcome = lab.run(run, senders).unwrap();
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
    assert_eq!(outcome.lab.congestion_control["internet"], "cubic");
}

#[test]
fn a_cut_on_schedule_hurts_its_link_only() {
    let workload = Workload::continuous(2, 2, Size::PENG, Duration::from_secs(6));
    let lab = lab();
    let mut client = lab.client_config();
    // Longer than TCP needs to repeat a packet that a full queue has dropped twice.
    client.connect_timeout = Duration::from_secs(2);
    client.idle_timeout = Duration::from_secs(2);
    let fault = |change, seconds| Fault {
        at: Duration::from_secs(seconds),
        link: "lte".into(),
        place: Place::LastMile,
        direction: None,
        change,
    };
    let never = fault(Change::Restore, 1000);
    let run = Run {
        load: Load::Pages(workload),
        client,
        faults: vec![never, fault(Change::Cut, 1)],
    };
    let outcome = lab.run(run, Senders::nobody()).unwrap();
    let [cut] = &outcome.faults[..] else {
        panic!("{:?}", outcome.faults);
    };
    assert!((1.0..1.5).contains(&cut.at.as_secs_f64()), "{cut:?}");
    let lte = &outcome.lab.links[1];
    assert!(lte.down.fates.cut.packets + lte.up.fates.cut.packets > 0);
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
fn open_loop_arrivals_of_any_size_begin_on_time_in_both_directions() {
    let lab = lab();
    let rows = (0..40).map(|index| Arrival {
        at: Duration::from_millis(50 * index),
        user: UserId(index as u32 % 4),
        server: RemoteServerId(0),
        class: ClassId(0),
        bytes: 1_000 + 777 * index,
        direction: Direction::BOTH[index as usize % 2],
    });
    let plan = ArrivalPlan {
        pattern: Pattern::Rows(rows.clone().collect()),
        seed: 1,
    };
    let run = Run {
        load: Load::Arrivals(plan),
        client: lab.client_config(),
        faults: vec![],
    };
    let outcome = lab.run(run, Senders::nobody()).unwrap();
    assert_eq!(outcome.transfers.len(), 40);
    for (transfer, row) in outcome.transfers.iter().zip(rows) {
        assert_eq!((transfer.outcome, transfer.bytes), (Outcome::Ok, row.bytes));
        assert!(transfer.link.is_some());
        let after_s = transfer.planned_start_s - outcome.transfers[0].planned_start_s;
        assert!((after_s - row.at.as_secs_f64()).abs() < 1e-6);
        assert!(transfer.start_s >= transfer.planned_start_s);
    }
}
