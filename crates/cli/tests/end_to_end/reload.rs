//! Another configuration while everything goes on.

use anabranch_api::{LinkAction, LinkState};
use anabranch_lab::topology::{Anabranch, LabSpec, configuration};

use crate::house::{
    House, link, logged, order, status, three_links, until, until_state, with_probes,
};
use crate::programs::{Downloads, Visitor, seen};

const DONE: &str = "configuration reloaded";
const REFUSED: &str = "configuration not reloaded";

/// SIGHUP, and the daemon's word about it.
fn reload(gateway: &Anabranch, spec: &LabSpec, settings: &str, word: &str) {
    std::fs::write(
        gateway.configuration(),
        configuration(spec, &with_probes(settings, spec.server())),
    )
    .unwrap();
    let before = logged(gateway, word).len();
    gateway.reload();
    until(word, || logged(gateway, word).len() == before + 1);
}

/// Whether a link has flows that are not over.
fn carries(gateway: &Anabranch, name: &str) -> bool {
    let text = gateway.ask(&["flows", "--json", "--link", name]).unwrap();
    let listed: serde_json::Value = serde_json::from_str(&text).unwrap();
    let flows = listed["flows"].as_array().unwrap();
    flows.iter().any(|flow| flow["state"] != "closed")
}

#[test]
fn a_reload_under_load_fails_no_transfer_whatever_changes() {
    let spec = three_links();
    let house = House::of(&spec, "policy = \"RR\"");
    let House { lab, gateway, .. } = &house;
    let ((), downloads) = Downloads::during(lab, |downloads| {
        reload(gateway, &spec, "policy = \"hash\"", DONE);
        assert_eq!(status(gateway).policy, "hash");
        downloads.more(50);

        let mut faster = spec.clone();
        faster.isps[0].shape.down.rate_bps *= 2;
        reload(gateway, &faster, "", DONE);
        assert_eq!(status(gateway).policy, "WSDM");
        assert_eq!(
            link(gateway, "fiber").rate.unwrap().down_bps,
            Some(48_000_000)
        );
        downloads.more(50);

        // Whoever removes a link drains it first: what it still carries would end with it.
        order(gateway, "lte", LinkAction::Drain);
        // The counters of `status` may be a poll old; the table is not.
        until("lte is drained", || !carries(gateway, "lte"));
        let mut without_lte = spec.clone();
        without_lte.isps.pop();
        reload(gateway, &without_lte, "", DONE);
        assert_eq!(status(gateway).links.len(), 2);
        downloads.more(50);

        reload(gateway, &spec, "policy = \"RR\"", DONE);
        until_state(gateway, "lte", LinkState::Up);
        let opened = link(gateway, "lte").flows.opened;
        until("lte takes flows again", || {
            link(gateway, "lte").flows.opened > opened + 10
        });
    });
    seen(&downloads);
}

#[test]
fn a_broken_configuration_keeps_the_old_one_and_says_so_in_one_line() {
    let spec = three_links();
    let house = House::of(&spec, "policy = \"RR\"");
    let House { lab, gateway, .. } = &house;
    let mut visitor = Visitor::new(lab);
    let link_before = visitor.ask().unwrap();
    let lines = std::fs::read_to_string(gateway.log())
        .unwrap()
        .lines()
        .count();
    reload(gateway, &spec, "policy = \"fastest\"", REFUSED);
    let line = &logged(gateway, REFUSED)[0];
    assert!(
        line.contains("anabranch.toml") && line.contains("fastest") && line.contains("WSDM"),
        "{line}"
    );
    assert_eq!(
        std::fs::read_to_string(gateway.log())
            .unwrap()
            .lines()
            .count(),
        lines + 1
    );
    assert_eq!(status(gateway).policy, "RR");
    assert_eq!(visitor.ask().unwrap(), link_before);
    reload(gateway, &spec, "policy = \"hash\"", DONE);
    assert_eq!(status(gateway).policy, "hash");
    assert_eq!(visitor.ask().unwrap(), link_before);
}
