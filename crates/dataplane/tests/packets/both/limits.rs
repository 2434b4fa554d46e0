//! What is bounded: states of a host, of the table, of unfinished handshakes.

use std::{net::SocketAddr, time::Instant};

use anabranch_dataplane::Sizes;

use super::*;

fn refusal(rig: &mut Rig, local: SocketAddr) -> String {
    let syn = tcp(local, server(80), "S", LOCAL_ISN, 0);
    rig.lan_sends(&syn.frame()).reason
}

/// What was refused for `reason` was answered with ICMP type 3, code 13 (RFC 1812, 5.2.7.1).
#[track_caller]
fn is_forbidden(refused: &Outcome, reason: &str) {
    let answer = refused.answered(reason);
    assert_eq!(answer.icmp(), (SITE.prohibited, [0; 4]));
}

#[test]
fn a_host_at_its_quota_is_refused_and_no_other_host_is() {
    let mut rig = Rig::new();
    rig.set(|s| s.quota_per_host = 3);
    let held: Vec<_> = (0..3)
        .map(|i| rig.open(client(4000 + i), server(80)))
        .collect();
    assert_eq!(refusal(&mut rig, client(5000)), "refused-quota");
    held.iter().for_each(|connection| rig.confirm(connection));
    assert_eq!(refusal(&mut rig, client(5000)), "refused-quota");
    rig.connect(SocketAddr::new(SECOND_CLIENT, 4000), server(80));
    let data = held[0].say("PA", LOCAL_ISN + 1, REMOTE_ISN + 1);
    rig.translates_out(&data.payload(b"alive").frame());

    let reset = held[0].say("R", LOCAL_ISN + 1, 0);
    rig.translates_out(&reset.frame());
    rig.connect(client(5000), server(80));
}

#[test]
fn a_refused_host_is_told_that_it_is_forbidden() {
    let mut rig = Rig::new();
    rig.set(|s| s.quota_per_host = 0);
    let syn = tcp(client(4000), server(80), "S", LOCAL_ISN, 0);
    is_forbidden(&rig.lan_sends(&syn.frame()), "refused-quota");
}

#[test]
fn a_full_table_takes_no_new_flow_and_keeps_those_it_has() {
    let mut rig = Rig::new();
    rig.set(|s| s.flows_max = 4);
    let held: Vec<_> = (0..4u8)
        .map(|i| {
            let host = lan_host(10 + i);
            rig.connect(SocketAddr::new(host, 4000), server(80))
        })
        .collect();
    assert_eq!(refusal(&mut rig, client(5000)), "refused-full");
    for connection in held {
        let data = connection.say("PA", LOCAL_ISN + 1, REMOTE_ISN + 1);
        rig.translates_out(&data.payload(b"alive").frame());
    }
}

#[test]
fn a_host_takes_a_quarter_of_the_ports_and_leaves_the_others_theirs() {
    let mut rig = Rig::choosing(&round_robin(0b01));
    rig.set(|s| (s.port_min, s.port_max) = (2000, 2007));
    let ask = |rig: &mut Rig, host: u32, port| {
        let local = SocketAddr::new(lan_host(host), port);
        rig.lan_sends(&udp(local, server(53), b"x").frame())
    };
    for host in 2..6 {
        ask(&mut rig, host, 5000).sent("translated-out");
        ask(&mut rig, host, 5001).sent("translated-out");
        is_forbidden(&ask(&mut rig, host, 5002), "refused-mappings");
    }
    is_forbidden(&ask(&mut rig, 6, 5000), "refused-ports");
}

/// The same however much of it the kernel's NAT takes: what that does not is answered, and not without end.
#[test]
fn who_finds_no_port_is_told_so_at_a_bounded_rate_also_beside_the_kernels_nat() {
    let mut rig = Rig::choosing(&round_robin(0b01));
    for fallback_mark in [0, 7] {
        rig.set(|s| {
            (s.port_min, s.port_max) = (40000, 40003);
            s.fallback_mark = fallback_mark;
        });
        let reason = match fallback_mark {
            0 => "refused-ports",
            _ => "refused-rate-host",
        };
        let local = |port| SocketAddr::new(lan_host(2 + fallback_mark as u8), port);
        let begun = Instant::now();
        let (mut refused, mut answered) = (0, 0);
        // On a slow machine the kernel's NAT is given more meanwhile.
        for port in 2000..60000 {
            if refused > 1000 {
                break;
            }
            let query = udp(local(port), server(53), b"query").frame();
            let outcome = rig.lan_sends(&query);
            if outcome.reason == "fallback-ports" {
                assert_ne!(fallback_mark, 0);
                continue;
            }
            assert_eq!(outcome.reason, reason);
            refused += 1;
            if outcome.was_answered() {
                is_forbidden(&outcome, reason);
                answered += 1;
            }
        }
        // 100 at once, and 100 a second.
        let most = 101 + begun.elapsed().as_millis() / 10;
        assert!(
            refused > 1000 && (100..=most).contains(&answered),
            "{answered} of {refused}"
        );
    }
}

#[test]
fn what_is_refused_falls_back_to_the_kernel_where_it_has_a_nat() {
    let mut rig = Rig::new();
    rig.set(|s| (s.quota_per_host, s.fallback_mark) = (0, 7));
    let syn = tcp(client(4000), server(80), "S", LOCAL_ISN, 0);
    rig.lan_sends(&syn.frame()).passed("fallback-quota");
    // What follows belongs to a connection of the kernel's, as far as anybody knows.
    let ack = tcp(client(4000), server(80), "A", LOCAL_ISN + 1, REMOTE_ISN + 1);
    rig.lan_sends(&ack.frame()).passed("fallback-unknown");

    rig.set(|s| (s.flows_max, s.fallback_mark) = (0, 7));
    rig.lan_sends(&syn.frame()).passed("fallback-full");
    rig.set(|s| {
        (s.port_min, s.port_max, s.fallback_mark) = (40000, 40003, 7);
    });
    rig.lan_sends(&syn.frame()).passed("fallback-ports");
}

#[test]
fn a_hosts_flood_of_first_packets_evicts_its_own_first_packets_and_nothing_else() {
    let mut rig = Rig::sized(Sizes {
        unconfirmed_max: 512,
        hosts_max: 64,
        ..small()
    });
    let held: Vec<_> = (0..100)
        .map(|i| rig.connect(client(4000 + i), server(80)))
        .collect();
    for i in 0..5000u32 {
        let host = lan_host(2 + i % 250);
        let remote = SocketAddr::new(internet_host(i), 80);
        let local = SocketAddr::new(host, 1024 + (i % 30000) as u16);
        let syn = tcp(local, remote, "S", i, 0).frame();
        rig.translates_out(&sent_by(FLOODER, syn));
    }
    let swept = rig.sweep();
    assert!(swept.evicted > 3000, "{swept:?}");
    let present = rig.flows().len() as i64;
    assert_eq!(rig.live(), present, "evicted flows count as closed");
    for connection in held {
        let data = connection.say("PA", LOCAL_ISN + 1, REMOTE_ISN + 1);
        let sent = rig.translates_out(&data.payload(b"alive").frame());
        assert_eq!(sent.src(), connection.external);
        let data = connection.answer("PA", REMOTE_ISN + 1, LOCAL_ISN + 1);
        rig.translates_in(connection.link, &data.payload(b"alive").frame());
    }
    rig.set(|s| (s.unconfirmed_ns, s.tcp_established_ns) = (0, 0));
    rig.sweep_until(|rig, _| rig.flows().is_empty());
    rig.sweep();
    assert_eq!(rig.live(), 0);
}
