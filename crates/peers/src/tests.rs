use std::net::Ipv4Addr;
use std::time::Duration;

use anabranch_core::catalogue::{self as of_gateways, TargetKind};
use anabranch_core::{LinkId, Time};

use super::*;
use crate::catalogue::{ROWS, parse};

const LINKS: usize = 3;

fn prefix(last: u8) -> Prefix {
    Prefix::of(Ipv4Addr::new(198, 18, last, 1).into())
}

/// A peer whose own packets arrive at once over the links that are whole, beside what is beyond of which all hear.
struct Site {
    control: Control,
    now: Time,
    cut: Vec<LinkId>,
    state: u64,
    sent: usize,
}

impl Site {
    fn new(peer: &str) -> Site {
        let Some(Ok(peer)) = parse(peer) else {
            panic!("{peer} is no peer");
        };
        let mut random = || 7;
        let prefixes = vec![prefix(0), prefix(1)];
        Site {
            control: Control::new(peer, LINKS, true, prefixes, &mut random),
            now: Time::ZERO,
            cut: Vec::new(),
            state: 1,
            sent: 0,
        }
    }

    fn run_until(&mut self, second: u64) {
        let end = Time::from_millis(second * 1000);
        while let Some(at) = self.control.next_turn().filter(|at| *at <= end) {
            self.now = at.max(self.now + Duration::from_nanos(1));
            let state = &mut self.state;
            let mut random = || {
                *state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                *state
            };
            let sent = self.control.turn(self.now, &mut random);
            let now = self.now;
            let mut sent: Vec<_> = sent.into_iter().map(|one| (now, one)).collect();
            while let Some((at, Sent { link, token, .. })) = sent.pop() {
                self.sent += 1;
                // The farther link takes longer.
                let arrives = at + Duration::from_millis(1 + u64::from(link.0));
                if !self.cut.contains(&link) {
                    let answers = self.control.arrive(arrives, token, &mut random);
                    sent.extend(answers.into_iter().map(|one| (arrives, one)));
                }
            }
        }
        self.now = end;
    }

    fn out(&self, host: u32) -> u16 {
        let table = self.control.table().expect("routes");
        table.link(host, prefix(0)).0
    }

    fn inward(&self, host: u32) -> (u16, Option<u16>) {
        let inward = self.control.inward(host, prefix(0)).expect("a say");
        (inward.link.0, inward.through.map(|link| link.0))
    }
}

#[test]
fn what_never_looks_never_changes() {
    let one = Site::new("one-link");
    assert_eq!([0, 1, 2].map(|host| one.out(host)), [0, 0, 0]);
    let fixed = Site::new("static");
    assert_eq!([0, 1, 2, 3].map(|host| fixed.out(host)), [0, 1, 2, 0]);
    for peer in ["nftables", "ECMP"] {
        let control = Site::new(peer).control;
        assert_eq!((control.table(), control.next_turn()), (None, None));
    }
}

#[test]
fn a_dead_gateway_is_left_after_its_time_and_what_is_beyond_is_not_seen() {
    let mut site = Site::new("dead-gateway 9s");
    site.run_until(10);
    site.control.beyond(site.now, LinkId(0), true);
    site.run_until(100);
    assert_eq!(site.out(0), 0);
    site.cut = vec![LinkId(0)];
    site.run_until(105);
    assert_eq!(site.out(0), 0, "not yet");
    site.run_until(110);
    assert_eq!((site.out(0), site.out(1)), (1, 1));
    assert!(!site.control.is_alive(LinkId(0)));
    site.cut = Vec::new();
    site.run_until(114);
    assert_eq!(site.out(0), 0);
    assert_eq!(site.control.inward(0, prefix(0)), None);
}

#[test]
fn with_bfd_the_site_moves_in_a_second_and_the_internet_when_it_has_heard() {
    let mut site = Site::new("BGP 60s BFD");
    site.run_until(100);
    site.cut = vec![LinkId(0)];
    site.run_until(101);
    assert_eq!((site.out(5), site.inward(5)), (1, (0, None)));
    site.run_until(159);
    assert_eq!(site.inward(5), (0, None));
    site.run_until(162);
    assert_eq!(site.inward(5), (1, None));
    site.cut = Vec::new();
    site.run_until(163);
    assert_eq!((site.out(5), site.inward(5)), (0, (1, None)));
    site.run_until(224);
    assert_eq!(site.inward(5), (0, None));
}

#[test]
fn without_bfd_the_hold_timer_comes_first() {
    let mut site = Site::new("BGP 10s");
    site.run_until(100);
    site.cut = vec![LinkId(0)];
    site.run_until(160);
    assert_eq!(site.out(0), 0);
    site.run_until(185);
    assert_eq!((site.out(0), site.inward(0)), (1, (0, None)));
    site.run_until(195);
    assert_eq!(site.inward(0), (1, None));
}

#[test]
fn of_what_fails_beyond_both_sides_hear_when_all_have() {
    let mut site = Site::new("BGP 30s");
    site.run_until(10);
    site.control.beyond(site.now, LinkId(0), true);
    site.run_until(39);
    assert_eq!((site.out(0), site.inward(0)), (0, (0, None)));
    site.run_until(41);
    assert_eq!((site.out(0), site.inward(0)), (1, (1, None)));
    // The last mile is another matter, and ends by itself.
    site.cut = vec![LinkId(1)];
    site.run_until(200);
    assert_eq!((site.out(0), site.inward(0)), (2, (2, None)));
}

#[test]
fn a_lost_providers_addresses_are_announced_by_another_or_sent_on_by_itself() {
    let mut injected = Site::new("BGP-injected 60s BFD");
    let mut tunnelled = Site::new("BGP-tunnelled 60s BFD");
    for site in [&mut injected, &mut tunnelled] {
        site.run_until(100);
        assert_eq!([0, 1, 2, 4].map(|host| site.out(host)), [0, 1, 2, 1]);
        assert_eq!(site.inward(4), (1, None));
        site.cut = vec![LinkId(1)];
        site.run_until(101);
        assert_eq!([0, 1, 2, 4].map(|host| site.out(host)), [0, 0, 2, 0]);
    }
    assert_eq!(injected.inward(4), (1, None));
    assert_eq!(tunnelled.inward(4), (0, Some(1)));
    injected.run_until(162);
    assert_eq!(
        (injected.inward(4), injected.inward(3)),
        ((0, None), (0, None))
    );
    // Beyond a provider, its own addresses are as lost as it is; others hear of them twice as late.
    for site in [&mut injected, &mut tunnelled] {
        site.cut = Vec::new();
        site.run_until(300);
        site.control.beyond(site.now, LinkId(1), true);
        site.run_until(361);
        assert_eq!((site.out(1), site.inward(1)), (0, (1, None)));
        site.run_until(421);
    }
    assert_eq!(
        (injected.inward(1), tunnelled.inward(1)),
        ((0, None), (1, None))
    );
}

#[test]
fn route_control_takes_the_best_link_for_each_prefix_and_leaves_it_when_it_is_silent() {
    let mut site = Site::new("route-control 5s");
    site.run_until(30);
    assert_eq!(site.out(0), 0);
    assert_eq!(site.sent, 6 * LINKS * 2);
    site.cut = vec![LinkId(0)];
    site.run_until(41);
    assert_eq!(site.out(0), 0, "two lost probes are no reason");
    site.run_until(46);
    assert_eq!(site.out(0), 1);
    site.cut = Vec::new();
    site.run_until(300);
    assert_eq!(site.out(0), 0);
}

#[test]
fn an_overlay_relays_by_another_address_of_the_site_and_the_far_node_does_too() {
    let mut site = Site::new("RON");
    site.run_until(60);
    let both = |site: &Site| (site.out(0), site.inward(0));
    assert_eq!(both(&site), (0, (0, None)));
    site.cut = vec![LinkId(0)];
    site.run_until(110);
    let (out, (back, None)) = both(&site) else {
        panic!("an overlay has no tunnels");
    };
    assert!(out != 0 && back != 0, "{out} and {back}");
    assert!(!site.control.is_alive(LinkId(0)));
    site.cut = Vec::new();
    site.run_until(180);
    assert_eq!(both(&site), (0, (0, None)));
}

#[test]
fn what_stands_behind_a_name_is_read_as_it_is_shown() {
    for text in [
        "dead-gateway 7s",
        "BGP 5s",
        "BGP-injected 5s BFD",
        "route-control 60s",
        "RON loss",
    ] {
        let Some(Ok(peer)) = parse(text) else {
            panic!("{text}");
        };
        assert_eq!(peer.to_string(), text);
    }
    let refused = |text: &str| match parse(text) {
        Some(Err(problem)) => problem,
        other => panic!("{text}: {other:?}"),
    };
    let time = "such a time is 1s to 3600s, in whole seconds";
    assert_eq!(refused("BGP 500ms"), time);
    assert_eq!(refused("dead-gateway 2h"), time);
    assert!(refused("RON speed").contains("latency, loss, throughput"));
    assert!(!refused("dead-gateway 9s BFD").is_empty());
    assert!(parse("ECMP 5s").is_none());
}

#[test]
fn every_name_is_complete_and_nobody_elses() {
    for row in &ROWS {
        let page = row.page();
        assert_eq!(row.peer.to_string(), row.name);
        assert!(!page.cost.state.is_empty() && !page.parts.dispatch.is_empty());
        assert_eq!(of_gateways::find(TargetKind::Link, row.name), None);
    }
}
