//! Orders through the command itself, and what they mean for connections that are open.

use std::collections::BTreeSet;

use anabranch_api::LinkState;
use anabranch_lab::topology::Anabranch;
use serde_json::Value;

use crate::house::{House, by_link, link, until, until_state};
use crate::programs::{Visitor, curl, seen};

fn json(house: &House, words: &[&str]) -> Value {
    serde_json::from_str(&house.gateway.ask(words).unwrap()).unwrap()
}

#[test]
fn a_drained_link_keeps_its_flows_and_takes_no_new_ones_and_one_out_of_use_ends_them() {
    let house = House::new("policy = \"RR\"");
    let House { lab, gateway, .. } = &house;
    let external = lab.external_addresses();
    let mut visitors = Visitor::many(lab, 6);
    let links: Vec<_> = visitors
        .iter_mut()
        .map(|visitor| external[&visitor.ask().unwrap()].clone())
        .collect();
    assert_eq!(
        links.iter().filter(|link| *link == "cable").count(),
        2,
        "{links:?}"
    );
    let listed = json(
        &house,
        &["flows", "--json", "--link", "cable", "--proto", "tcp"],
    );
    let locals: BTreeSet<_> = listed["flows"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|flow| flow["local"].as_str())
        .collect();
    for (visitor, link) in visitors.iter().zip(&links) {
        assert_eq!(
            locals.contains(visitor.local().to_string().as_str()),
            link == "cable"
        );
    }

    gateway.ask(&["link", "drain", "cable"]).unwrap();
    assert_eq!(link(gateway, "cable").state, LinkState::Drained);
    let taken = by_link(lab, seen(&curl(lab.clients(), &[], 100, 12)));
    assert!(!taken.contains_key("cable"), "{taken:?}");
    for (visitor, link) in visitors.iter_mut().zip(&links) {
        assert_eq!(&external[&visitor.ask().unwrap()], link);
    }

    gateway.ask(&["link", "down", "cable"]).unwrap();
    until("the flows of cable have ended", || {
        link(gateway, "cable").flows.live == 0
    });
    for (visitor, link) in visitors.iter_mut().zip(&links) {
        assert_eq!(visitor.ask().is_ok(), link != "cable", "{link}");
    }

    gateway.ask(&["link", "up", "cable"]).unwrap();
    until_state(gateway, "cable", LinkState::Up);
    let taken = by_link(lab, seen(&curl(lab.clients(), &[], 100, 12)));
    assert!(taken.contains_key("cable"), "{taken:?}");
    let refused = gateway
        .ask(&["link", "drain", "dsl"])
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains("dsl") && refused.contains("fiber, cable, lte"),
        "{refused}"
    );
}

#[test]
fn the_last_link_that_works_is_given_up_by_force_alone_and_orders_outlive_the_daemon() {
    let mut house = House::new("policy = \"RR\"");
    let House { lab, gateway, .. } = &mut house;
    gateway.ask(&["link", "drain", "fiber"]).unwrap();
    gateway.ask(&["link", "down", "cable"]).unwrap();
    for action in ["drain", "down"] {
        let refused = gateway.ask(&["link", action, "lte"]).unwrap_err();
        let refused = refused.to_string();
        assert!(
            refused.contains("lte") && refused.contains("--force"),
            "{refused}"
        );
        assert_eq!(link(gateway, "lte").state, LinkState::Up);
    }
    seen(&curl(lab.clients(), &[], 100, 3));
    gateway.ask(&["link", "drain", "lte", "--force"]).unwrap();

    let ordered = [
        ("fiber", LinkState::Drained),
        ("cable", LinkState::Disabled),
        ("lte", LinkState::Drained),
    ];
    let told = |gateway: &Anabranch| ordered.map(|(name, _)| (name, link(gateway, name).state));
    assert_eq!(told(gateway), ordered);
    gateway.kill().unwrap();
    gateway.restart(lab.gateway()).unwrap();
    assert_eq!(told(gateway), ordered, "after a crash");
    gateway.stop().unwrap();
    gateway.restart(lab.gateway()).unwrap();
    assert_eq!(told(gateway), ordered, "after a clean stop");

    for (name, _) in ordered {
        gateway.ask(&["link", "up", name]).unwrap();
    }
    for (name, _) in ordered {
        until_state(gateway, name, LinkState::Up);
    }
}
