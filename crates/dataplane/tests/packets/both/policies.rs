//! The loaded program chooses as the native build does, from the numbers it was given.

use std::net::SocketAddr;

use anabranch_core::{
    Balancer, Choice, ClassSpec, Config, DataPlane, Driver, LinkId, LinkSpec, LinkState, Time,
};
use anabranch_dataplane::{Proto, Route, Verdict};
use anabranch_policy::abi::{BePort, Target, WEIGHT_MAX, WEIGHT_MIN};
use anabranch_policy::{
    Candidate, Dispatch, Granularity, NO_TABLE, Request, Set, Tried, choose, hash_vectors, vectors,
};

use super::*;

/// The choice from which the program must gather the candidates' loads: what was dispatched since a base.
fn based(mut choice: Choice, candidates: &[Candidate]) -> Choice {
    for (target, candidate) in choice.target.iter_mut().zip(candidates) {
        target.dispatched_base = candidate.load.wrapping_neg();
    }
    choice
}

#[test]
fn every_vector_of_the_native_build_is_decided_alike_by_the_loaded_program() {
    let mut rig = Rig::new();
    let (from, to) = (client(4000), server(80));
    for (number, vector) in vectors().into_iter().enumerate() {
        let (choice, gauges) = Choice::among(vector.dispatch, &vector.candidates);
        rig.install(&based(choice, &vector.candidates));
        let explained = rig.plane().explain(from, to, Proto::Tcp).unwrap();
        let told = format!("vector {number}: {vector:?}, explained {explained:?}");
        let request = Request {
            hash: explained.hash,
            ..Request::default()
        };
        let native = choose(&choice, &gauges, &NO_TABLE, &request);
        let draws = [Dispatch::Random, Dispatch::RandomTwo, Dispatch::Turns];
        if draws.contains(&vector.dispatch) {
            let is_usable = |link: u16| vector.candidates[usize::from(link)].usable;
            assert!(explained.link.is_none_or(is_usable), "{told}");
            assert_eq!(explained.link.is_some(), native.target.is_some(), "{told}");
        } else {
            assert_eq!(explained.link, native.target, "{told}");
        }
        for (weighed, candidate) in explained.weighed.iter().zip(&vector.candidates) {
            let weight = candidate.weight.clamp(WEIGHT_MIN, WEIGHT_MAX);
            assert_eq!(weighed.weight, weight, "{told}");
            assert_eq!(weighed.load, candidate.load, "{told}");
        }
    }
}

#[test]
fn every_hash_vector_comes_out_alike() {
    let mut rig = Rig::new();
    let by_crc = round_robin(0b11);
    let by_sum = Choice {
        dispatch: Dispatch::HashSum.into(),
        ..by_crc
    };
    let mut compared = 0;
    for vector in hash_vectors() {
        let (src, dst) = (vector.src.ip(), vector.dst.ip());
        if [src, dst].map(Family::from) != [FAMILY; 2] {
            continue;
        }
        let (from, to) = ((src, vector.sport).into(), (dst, vector.dport).into());
        let sum = by_sum.hash_for(vector.src, vector.dst, vector.sport, vector.dport);
        for (choice, hash) in [(&by_crc, vector.hash), (&by_sum, sum)] {
            rig.install(choice);
            for proto in [Proto::Tcp, Proto::Udp] {
                let explained = rig.plane().explain(from, to, proto).unwrap();
                assert_eq!(explained.hash, hash, "{vector:?}");
            }
        }
        compared += 1;
    }
    assert!(compared >= 50, "{compared} pairs of addresses");
}

#[test]
fn what_is_explained_is_what_happens() {
    let mut rig = Rig::new();
    for dispatch in [
        Dispatch::Weighted,
        Dispatch::Best,
        Dispatch::Hash,
        Dispatch::HashSum,
    ] {
        let mut choice = round_robin(0b11);
        choice.dispatch = dispatch.into();
        choice.target[0] = Target::new(3, 0);
        rig.install(&choice);
        for port in 0..40 {
            let (local, remote) = (client(4000 + port), server(80 + u16::from(dispatch as u8)));
            let (from, to) = (local, remote);
            let forecast = rig.plane().explain(from, to, Proto::Tcp).unwrap();
            assert!(!forecast.bound);
            let syn = tcp(local, remote, "S", LOCAL_ISN, 0);
            let sent = rig.translates_out(&syn.frame());
            assert_eq!(forecast.link, Some(link_of(sent.src())), "{forecast:?}");
            let fact = rig.plane().explain(from, to, Proto::Tcp).unwrap();
            assert!(fact.bound);
            assert_eq!((fact.link, fact.why), (forecast.link, forecast.why));
        }
    }
}

#[test]
fn round_robin_gives_every_link_its_turn_and_weights_their_share() {
    let mut rig = Rig::new();
    let mut choice = round_robin(0b11);
    (choice.target[0], choice.target[1]) = (Target::new(3, 0), Target::new(1, 0));
    rig.install(&choice);
    for port in 0..400 {
        let syn = tcp(client(4000 + port), server(80), "S", LOCAL_ISN, 0);
        rig.translates_out(&syn.frame());
    }
    let counters = rig.plane().counters().unwrap();
    assert_eq!(
        (counters[0].flows.dispatched, counters[1].flows.dispatched),
        (300, 100)
    );
}

/// No library writes them: by default a target weighs nothing.
#[test]
fn where_no_target_has_a_weight_a_flow_leaves_all_the_same() {
    for dispatch in [Dispatch::Weighted, Dispatch::Best, Dispatch::RandomTwo] {
        let mut rig = Rig::choosing(&Choice {
            dispatch: dispatch.into(),
            target: Choice::default().target,
            ..round_robin(0b11)
        });
        let syn = tcp(client(4000), server(80), "S", LOCAL_ISN, 0);
        rig.translates_out(&syn.frame());
    }
}

/// The example of `anabranch_core::catalogue`, decided by the balancer and carried out by the loaded program.
#[test]
fn a_toy_policy_by_a_toy_measure_takes_the_link_of_fewer_packets() {
    let mut rig = Rig::new();
    let links = ["a", "b"].map(|name| LinkSpec {
        name: name.into(),
        ..LinkSpec::default()
    });
    let toy = ClassSpec::alone("toy".parse().unwrap());
    let balancer = Balancer::new(Time::ZERO, toy, links.into(), Config::default()).unwrap();
    let mut driver = Driver::new(balancer);
    for link in [0, 1].map(LinkId) {
        let balancer = driver.balancer_mut();
        balancer.handle_link_state(Time::ZERO, link, FAMILY, LinkState::Present);
    }
    driver.turn(Time::ZERO, rig.plane()).unwrap();
    let mut last = rig.connect(client(4000), server(80)).link;
    for period in 1..=6u16 {
        let now = Time::from_millis(100 * u64::from(period));
        driver.turn(now, rig.plane()).unwrap();
        let next = rig.connect(client(4000 + period), server(80)).link;
        assert_ne!(next, last, "its packets were the last period's");
        last = next;
    }
}

#[test]
fn the_least_loaded_link_is_counted_by_flows_that_are_open() {
    let mut rig = Rig::choosing(&Choice {
        load: anabranch_policy::Load::Active.into(),
        ..round_robin(0b11)
    });
    let held: Vec<_> = (0..6)
        .map(|i| rig.connect(client(4000 + i), server(80)))
        .collect();
    for connection in held.iter().filter(|connection| connection.link == 1) {
        let reset = connection.say("R", LOCAL_ISN + 1, 0);
        rig.translates_out(&reset.frame());
    }
    for port in 0..3 {
        let next = rig.connect(client(5000 + port), server(80));
        assert_eq!(next.link, 1, "it has the fewest flows");
    }
}

#[test]
fn a_session_keeps_its_link_while_it_is_usable() {
    let mut rig = Rig::new();
    let mut choice = round_robin(0b11);
    choice.granularity = Granularity::Session.into();
    rig.install(&choice);
    let first = rig.connect(client(4000), server(80)).link;
    for port in 1..6 {
        assert_eq!(rig.connect(client(4000 + port), server(443)).link, first);
    }
    choice.usable = Set::of_word(0b11 & !(1 << first));
    rig.install(&choice);
    let moved = rig.connect(client(4010), server(80)).link;
    assert_ne!(moved, first);
    choice.usable = Set::of_word(0b11);
    rig.install(&choice);
    assert_eq!(rig.connect(client(4011), server(80)).link, moved);
}

/// Sessions stick, but for HTTPS.
fn sticky() -> Choice {
    let mut choice = round_robin(0b11);
    choice.stick = 1;
    choice.except[0] = BePort::new(443);
    choice
}

#[test]
fn connections_stick_to_the_link_of_their_session_but_for_independent_ports() {
    let mut rig = Rig::choosing(&sticky());
    let control = rig.connect(client(4000), server(21)).link;
    for port in 1..20 {
        let data = rig.connect(client(4000 + port), server(50_000 + port));
        assert_eq!(data.link, control, "of the control connection");
    }
    assert!(rig.flow(client(4001)).why.starts_with("session"));
    let web = [(); 4].map(|()| {
        let port = 5000 + rig.flows().len() as u16;
        rig.connect(client(port), server(443)).link
    });
    assert!(
        web.iter().any(|link| *link != control),
        "the policy chooses: {web:?}"
    );
    assert_eq!(rig.connect(client(6000), server(21)).link, control);
}

#[test]
fn what_ike_has_set_up_stays_on_its_link_though_nothing_else_sticks() {
    let mut rig = Rig::choosing(&round_robin(0b11));
    let mut link_of = |port| {
        let packet = udp(client(port), server(port), b"ike").frame();
        rig.translates_out(&packet);
        rig.flow(client(port)).link
    };
    let ike = link_of(500);
    assert_eq!(link_of(4500), ike);
    assert_ne!(link_of(4501), ike, "in its turn");
}

#[test]
fn a_session_that_a_second_try_won_stays_with_the_winner() {
    let mut rig = Rig::new();
    let mut choice = round_robin(0b11);
    (choice.stick, choice.syn_retry) = (1, 1);
    rig.install(&choice);
    let syn = tcp(client(4000), server(21), "S", LOCAL_ISN, 0).frame();
    let first = rig.translates_out(&syn).src();
    let second = rig.connect(client(4000), server(21));
    assert_ne!(second.link, link_of(first));
    let data = rig.connect(client(4001), server(50_000));
    assert_eq!(data.link, second.link);
}

#[test]
fn no_other_host_makes_a_session_forgotten() {
    let mut rig = Rig::choosing(&sticky());
    let control = rig.connect(client(4000), server(21)).link;
    // Four times the places of a host, from one other host.
    let other = SocketAddr::new(SECOND_CLIENT, 4000);
    for number in 0..4096u32 {
        let remote = SocketAddr::new(internet_host(number), 21);
        let syn = tcp(other, remote, "S", LOCAL_ISN, 0);
        rig.translates_out(&syn.frame());
    }
    rig.connect(client(4001), server(443));
    for port in 2..6 {
        assert_eq!(rig.connect(client(4000 + port), server(21)).link, control);
    }
}

/// More sessions than the table has room for, from every address of one card.
#[test]
fn one_card_with_many_addresses_makes_no_session_of_another_host_forgotten() {
    let mut rig = Rig::new();
    rig.set(|s| s.quota_per_host = u32::MAX);
    rig.install(&sticky());
    let lan = Verdict::Lan {
        ifindex: 1,
        via: None,
    };
    let prefix = (SITE.lan.0, 8);
    let lan = Route {
        prefix,
        verdict: lan,
    };
    rig.plane().set_routes(&[lan]).unwrap();
    let control = rig.connect(client(4000), server(21)).link;
    rig.lan_floods((0..70_000u32).map(|number| {
        let local = SocketAddr::new(lan_host(1000 + number % 1000), 4000);
        let remote = SocketAddr::new(internet_host(number), 21);
        sent_by(FLOODER, tcp(local, remote, "S", LOCAL_ISN, 0).frame())
    }));
    assert_eq!(rig.connect(client(4001), server(21)).link, control);
    assert!(rig.flow(client(4001)).why.starts_with("session"));
}

#[test]
fn addresses_of_one_card_have_sessions_of_their_own() {
    let mut rig = Rig::choosing(&Choice {
        granularity: Granularity::Session.into(),
        ..round_robin(0b11)
    });
    let mut links = Vec::new();
    for round in 0..3 {
        let connect = |number: u8| {
            let local = SocketAddr::new(lan_host(10 + number), 4000 + round);
            let syn = tcp(local, server(80), "S", LOCAL_ISN, 0).frame();
            let sent = rig.translates_out(&sent_by(FLOODER, syn));
            link_of(sent.src())
        };
        links.push((0..8).map(connect).collect::<Vec<_>>());
    }
    assert_eq!(links[0].iter().filter(|link| **link == 0).count(), 4);
    assert!(links.iter().all(|round| *round == links[0]), "{links:?}");
}

#[test]
fn with_granularity_host_a_host_shows_one_address_while_its_link_is_usable() {
    let mut rig = Rig::new();
    let mut choice = round_robin(0b11);
    choice.granularity = Granularity::Host.into();
    rig.install(&choice);
    let first = rig.connect(client(4000), server(80)).link;
    for port in 1..8 {
        assert_eq!(
            rig.connect(client(4000 + port), second_server(80 + port))
                .link,
            first
        );
        let query = udp(client(5000 + port), server(53), b"?").frame();
        assert_eq!(link_of(rig.translates_out(&query).src()), first);
    }
    assert_eq!(rig.flow(client(4001)).why, "the same LAN host uses it");
    let other = SocketAddr::new(SECOND_CLIENT, 4000);
    assert_ne!(
        rig.connect(other, server(80)).link,
        first,
        "hosts are spread"
    );
    choice.usable = Set::of_word(0b11 & !(1 << first));
    rig.install(&choice);
    let moved = rig.connect(client(4100), server(80)).link;
    assert_ne!(moved, first);
    choice.usable = Set::of_word(0b11);
    rig.install(&choice);
    assert_eq!(rig.connect(client(4101), server(80)).link, moved);
}

#[test]
fn a_retransmitted_syn_avoids_what_it_tried_as_the_native_build_would() {
    let mut rig = Rig::new();
    let mut choice = round_robin(0b11);
    choice.syn_retry = 1;
    choice.dispatch = Dispatch::Best.into();
    choice.target[0] = Target::new(9, 0);
    rig.install(&choice);
    let syn = tcp(client(4000), server(80), "S", LOCAL_ISN, 0).frame();
    let links: Vec<_> = (0..3)
        .map(|_| link_of(rig.translates_out(&syn).src()))
        .collect();
    let candidates = [9, 1].map(|weight| Candidate {
        weight,
        load: 0,
        usable: true,
    });
    let (choice, gauges) = Choice::among(Dispatch::Best, &candidates);
    let native = |tried| {
        let request = Request {
            tried: Tried(tried),
            ..Request::default()
        };
        choose(&choice, &gauges, &NO_TABLE, &request)
            .target
            .unwrap()
    };
    assert_eq!(links, [native(0), native(0b01), native(0b11)]);
}
