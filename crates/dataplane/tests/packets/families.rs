//! The two families of one link are links of their own.

use std::net::SocketAddr;

use anabranch_core::{ClassId, DataPlane, Family, LinkId};

use crate::{
    common::round_robin,
    frame::{tcp, udp},
    rig::*,
    site::{IPV4, IPV6, SITES, Site},
};

fn query(site: &Site, port: u16) -> Vec<u8> {
    let (from, to) = (
        SocketAddr::new(site.client, port),
        SocketAddr::new(site.server, 53),
    );
    udp(from, to, b"?").frame()
}

fn connect(rig: &mut Rig, site: &Site, port: u16) -> Connection {
    let from = SocketAddr::new(site.client, port);
    rig.connect(from, SocketAddr::new(site.server, 443))
}

#[test]
fn without_a_link_of_one_family_the_other_goes_on() {
    for (without, with) in [(&IPV4, &IPV6), (&IPV6, &IPV4)] {
        let mut rig = Rig::new();
        let before = connect(&mut rig, without, 4000);
        rig.install_for(without.family, &round_robin(0));
        rig.lan_sends(&query(without, 4001)).answered("no-link");
        let syn = tcp(
            SocketAddr::new(without.client, 4002),
            SocketAddr::new(without.server, 443),
            "S",
            LOCAL_ISN,
            0,
        );
        let answer = rig.lan_sends(&syn.frame()).answered("no-link");
        assert_eq!(answer.icmp().0, without.no_route);
        connect(&mut rig, with, 4000);
        rig.translates_out(&query(with, 4001));
        // What is bound goes on.
        let data = before.say("PA", LOCAL_ISN + 1, REMOTE_ISN + 1);
        rig.translates_out(&data.frame());
    }
}

#[test]
fn a_link_that_has_one_family_is_no_link_of_the_other() {
    let mut rig = Rig::new();
    let gone = rig.plane().set_link(LinkId(0), Family::V6, None);
    gone.unwrap();
    rig.install_for(Family::V6, &round_robin(0b01));
    rig.lan_sends(&query(&IPV6, 4000)).answered("no-link");
    rig.install_for(Family::V4, &round_robin(0b01));
    assert_eq!(connect(&mut rig, &IPV4, 4000).link, 0);
}

#[test]
fn the_end_of_a_link_in_one_family_leaves_flows_of_the_other() {
    for (ended, left) in [(&IPV4, &IPV6), (&IPV6, &IPV4)] {
        let mut rig = Rig::choosing(&round_robin(0b01));
        let [_, stays] = [ended, left].map(|site| {
            rig.translates_out(&query(site, 4001));
            connect(&mut rig, site, 4000)
        });
        assert_eq!(rig.live(), 4);
        rig.plane()
            .end_flows(ClassId::DEFAULT, ended.family, LinkId(0))
            .unwrap();
        assert_eq!(rig.live(), 2);
        assert!(
            rig.flows()
                .iter()
                .all(|flow| Family::from(flow.local.ip()) == left.family)
        );
        let data = stays.say("PA", LOCAL_ISN + 1, REMOTE_ISN + 1);
        rig.translates_out(&data.frame());
    }
}

/// The load of a link is of both, what it carries is told of each.
#[test]
fn a_link_counts_the_flows_of_both_families_and_the_traffic_of_each() {
    let mut rig = Rig::choosing(&round_robin(0b01));
    for site in SITES {
        for port in 0..2 + site.family.index() as u16 {
            rig.translates_out(&query(site, 4000 + port));
        }
    }
    let counters = rig.plane().counters().unwrap();
    let link = &counters[0];
    assert_eq!((link.flows.opened, link.flows.dispatched), (5, 5));
    let sent = Family::ALL.map(|family| link.traffic[family].tx_packets);
    assert_eq!(sent, [2, 3]);
    assert_eq!(link.carried().tx_packets, 5);
}

/// Though both have the port, and may have the card.
#[test]
fn one_host_has_its_quota_once_for_both_families() {
    let mut rig = Rig::new();
    rig.set(|s| s.quota_per_host = 3);
    let sent_by_one = |rig: &mut Rig, site, port| {
        let frame = crate::frame::sent_by(FLOODER, query(site, port));
        rig.lan_sends(&frame).reason
    };
    let reasons: Vec<String> = [(&IPV4, 1), (&IPV6, 1), (&IPV6, 2), (&IPV4, 2), (&IPV6, 3)]
        .map(|(site, port)| sent_by_one(&mut rig, site, port))
        .into();
    let sent = ["translated-out"; 3];
    assert_eq!(reasons[..3], sent);
    assert_eq!(reasons[3..], ["refused-quota"; 2]);
}
