//! What flows tell of the way to their destinations (`bpf/policy/paths.h`).

use std::time::{Duration, Instant};

use anabranch_core::Choice;
use anabranch_dataplane::{Proto, Sizes};
use anabranch_policy::paths::{Path, Paths};

use super::*;

const LIFETIME: Duration = Duration::from_secs(60);
const TIMER: Duration = Duration::from_secs(1);

fn learning() -> Choice {
    Choice {
        lifetime_ns: LIFETIME.as_nanos() as u64,
        ..round_robin(0b11)
    }
}

fn rig() -> Rig {
    Rig::choosing(&learning())
}

/// A server of the n-th prefix after that of all others.
fn elsewhere(n: u32) -> SocketAddr {
    let address = match SITE.internet {
        IpAddr::V4(_) => internet_host(n << 8 | 1),
        IpAddr::V6(first) => IpAddr::V6((u128::from(first) + (u128::from(n) << 80) + 1).into()),
    };
    SocketAddr::new(address, 80)
}

/// Links that were answered so long ago, in so many milliseconds.
fn told(rig: &mut Rig, answers: &[(u16, Duration, u32)]) -> Paths {
    let now = rig.plane().walker().now();
    let mut paths = Paths::default();
    for &(link, ago, response_ms) in answers {
        paths.path[usize::from(link)] = Path {
            learned_ns: (now - ago).as_nanos() as u64,
            response_us: response_ms * 1000,
            samples: 1,
            ..Path::default()
        };
    }
    paths
}

fn path(rig: &Rig, link: u16) -> Path {
    rig.paths_to(SERVER).path[usize::from(link)]
}

fn known(rig: &mut Rig) -> u64 {
    rig.plane().walker().known_prefixes().unwrap()
}

/// The links of connections to `remote`, one after the other.
fn links(rig: &mut Rig, ports: std::ops::Range<u16>, remote: SocketAddr) -> Vec<u16> {
    let connect = |port| rig.connect(client(port), remote).link;
    ports.map(connect).collect()
}

#[test]
fn how_long_a_syn_waited_for_its_answer_is_known_of_its_link_and_prefix() {
    let mut rig = rig();
    let opened = rig.open(client(4000), server(80));
    rig.sent_earlier(client(4000), Duration::from_millis(30));
    rig.confirm(&opened);
    let learned = path(&rig, opened.link);
    assert_eq!((learned.samples, learned.failures), (1, 0));
    assert!(
        (30_000..1_000_000).contains(&learned.response_us),
        "{learned:?}"
    );
    assert_eq!(path(&rig, 1 - opened.link), Path::default());
    assert_eq!(rig.paths_to(SECOND_SERVER), rig.paths_to(SERVER));
    assert_eq!(known(&mut rig), 1);

    let rows = rig.plane().walker().prefixes().unwrap();
    assert_eq!(rows.len(), 1);
    let [told] = &rows[0].paths[..] else {
        panic!("{rows:?}")
    };
    assert_eq!((told.link, told.samples), (opened.link, 1));
    assert_eq!(told.response_us, Some(learned.response_us));
    let digits = if FAMILY == Family::V4 { "/24" } else { "/48" };
    assert!(rows[0].prefix.ends_with(digits), "{rows:?}");
}

#[test]
fn of_links_that_are_known_the_fastest_takes_what_goes_to_the_prefix() {
    let mut rig = rig();
    let now = Duration::from_secs(1);
    let paths = told(&mut rig, &[(0, now, 80), (1, now, 20)]);
    rig.tell_paths(SERVER, paths);
    let to_known = links(&mut rig, 4000..4004, server(80));
    assert_eq!(to_known, [1; 4]);
    let why = "least response time for the destination's prefix";
    assert_eq!(rig.flow(client(4000)).why, why);
    rig.open(client(5000), elsewhere(0));
    assert_eq!(rig.flow(client(5000)).why, "least load for its weight");
    let datagram = udp(client(6000), server(53), b"?").frame();
    rig.translates_out(&datagram);
    assert_eq!(rig.flow(client(6000)).link, 1);
}

#[test]
fn a_link_of_which_nothing_is_known_is_asked_by_one_flow() {
    for expired in [false, true] {
        let mut rig = rig();
        let second = Duration::from_secs(1);
        let mut answers = vec![(1, second, 20)];
        answers.extend(expired.then_some((0, LIFETIME, 5)));
        let paths = told(&mut rig, &answers);
        rig.tell_paths(SERVER, paths);
        for port in 4000..4004 {
            rig.open(client(port), server(80));
        }
        let taken = |port: u16, rig: &mut Rig| rig.flow(client(port)).link;
        let taken = [4000, 4001, 4002, 4003].map(|port| taken(port, &mut rig));
        assert_eq!(taken, [0, 1, 1, 1], "expired: {expired}");
        assert!(rig.flow(client(4000)).why.starts_with("to learn"));
        assert_ne!(path(&rig, 0).asked_ns, 0);
    }
}

#[test]
fn datagrams_ask_nothing() {
    let mut rig = rig();
    let paths = told(&mut rig, &[(1, Duration::from_secs(1), 20)]);
    rig.tell_paths(SERVER, paths);
    let datagram = udp(client(6000), server(53), b"?").frame();
    rig.translates_out(&datagram);
    assert_eq!(rig.flow(client(6000)).link, 1);
    assert_eq!(path(&rig, 0), Path::default());
}

#[test]
fn what_has_expired_is_followed_by_no_flow() {
    let mut rig = rig();
    let mut paths = told(&mut rig, &[(0, LIFETIME, 80), (1, LIFETIME, 20)]);
    let now = rig.plane().walker().now().as_nanos() as u64;
    for path in &mut paths.path {
        path.asked_ns = now;
    }
    rig.tell_paths(SERVER, paths);
    let mut taken = Vec::new();
    for port in 4000..4004 {
        taken.push(rig.open(client(port), server(80)).link);
    }
    taken.sort_unstable();
    assert_eq!(taken, [0, 0, 1, 1]);
}

#[test]
fn an_answer_that_does_not_fit_tells_nothing() {
    let mut rig = rig();
    let opened = rig.open(client(4000), server(80));
    for acknowledged in [LOCAL_ISN, LOCAL_ISN + 2, 0] {
        let lie = opened.answer("SA", REMOTE_ISN, acknowledged);
        // Its host judges it (RFC 9293 section 3.10.7.3).
        rig.link_brings(opened.link, &lie.frame()).sent("challenge");
    }
    // Who has seen no SYN can open simultaneously, and knows as little of its number.
    let simultaneous = opened.answer("S", REMOTE_ISN, 0);
    rig.link_brings(opened.link, &simultaneous.frame())
        .dropped("bad-handshake");
    rig.link_brings(
        opened.link,
        &opened.answer("SA", REMOTE_ISN, LOCAL_ISN + 2).frame(),
    );
    assert_eq!(known(&mut rig), 0);
    let refused = rig.open(client(4001), server(80));
    let refusal = refused.answer("RA", 0, LOCAL_ISN + 1);
    rig.translates_in(refused.link, &refusal.frame());
    assert_eq!(known(&mut rig), 0);
}

#[test]
fn a_flood_of_syns_fills_no_table() {
    let mut rig = rig();
    rig.lan_floods((0..500).map(|n| tcp(client(4000), elsewhere(n), "S", LOCAL_ISN, 0).frame()));
    assert_eq!(known(&mut rig), 0);
}

#[test]
fn a_syn_that_is_repeated_tells_of_no_response_and_neither_does_its_answer() {
    let mut rig = rig();
    rig.connect(client(4000), server(80));
    let before = [path(&rig, 0), path(&rig, 1)];
    let opened = rig.open(client(4001), server(80));
    let link = usize::from(opened.link);
    rig.sent_earlier(client(4001), TIMER);
    assert_eq!(rig.open(client(4001), server(80)).link, opened.link);
    let told = path(&rig, opened.link);
    assert_eq!(told.failures, 1);
    let known = (before[link].response_us, before[link].learned_ns);
    assert_eq!((told.response_us, told.learned_ns), known);
    rig.confirm(&opened);
    assert_eq!(path(&rig, opened.link), told, "of which of both SYNs?");
    assert_eq!(
        path(&rig, 1 - opened.link).samples,
        before[1 - link].samples
    );
}

#[test]
fn where_loss_counts_the_near_link_that_loses_more_is_left_and_a_silence_is_a_loss() {
    let mut rig = rig();
    let now = Duration::from_secs(1);
    let mut paths = told(&mut rig, &[(0, now, 40), (1, now, 30)]);
    (paths.path[0].samples, paths.path[1].samples) = (300, 290);
    paths.path[1].failures = 10;
    rig.tell_paths(SERVER, paths);
    assert_eq!(links(&mut rig, 4000..4002, server(80)), [1; 2]);

    rig.install(&Choice {
        by_loss: 1,
        ..learning()
    });
    rig.tell_paths(SERVER, paths);
    let opened = rig.open(client(4002), server(80));
    assert_eq!(opened.link, 0);
    let why = "least response time times root of loss for the destination's prefix";
    assert_eq!(rig.flow(client(4002)).why, why);
    rig.sent_earlier(client(4002), TIMER);
    rig.open(client(4002), server(80));
    let silent = path(&rig, 0);
    assert_eq!((silent.response_us, silent.failures), (40_000, 1));

    // Until that has lost as much.
    paths.path[0].failures = 10;
    rig.tell_paths(SERVER, paths);
    assert_eq!(rig.open(client(4003), server(80)).link, 1);
}

#[test]
fn a_syn_that_is_repeated_at_once_tells_nothing() {
    let mut rig = rig();
    rig.connect(client(4000), server(80));
    let opened = rig.open(client(4001), server(80));
    let before = path(&rig, opened.link);
    rig.open(client(4001), server(80));
    rig.confirm(&opened);
    assert_eq!(path(&rig, opened.link), before);
}

#[test]
fn an_attempt_that_goes_on_elsewhere_tells_of_the_link_that_answers() {
    let mut rig = rig();
    rig.connect(client(4000), server(80));
    rig.install(&Choice {
        syn_retry: 1,
        ..learning()
    });
    let first = rig.open(client(4001), server(80));
    let before = path(&rig, 1 - first.link).samples;
    rig.sent_earlier(client(4001), TIMER);
    let second = rig.open(client(4001), server(80));
    assert_eq!(second.link, 1 - first.link);
    assert_eq!(path(&rig, first.link).failures, 1);
    rig.confirm(&second);
    let told = path(&rig, second.link);
    assert_eq!((told.samples, told.failures), (before + 1, 0));
    assert!(told.response_us < 1_000_000, "{told:?}");
}

#[test]
fn the_winner_of_a_race_tells_unless_the_race_was_run_twice() {
    let mut rig = Rig::new();
    let choice = Choice {
        races: 1000,
        ..learning()
    };
    rig.race(&choice);
    let syn = tcp(client(4000), server(80), "S", LOCAL_ISN, 0).frame();
    let first = rig.translates_out(&syn).src();
    let winner = 1 - link_of(first);
    let race_copy = SocketAddr::new(EXTERNAL[usize::from(winner)], first.port());
    let answer = tcp(server(80), race_copy, "SA", REMOTE_ISN, LOCAL_ISN + 1).frame();
    rig.translates_in(winner, &answer);
    assert_eq!((path(&rig, winner).samples, known(&mut rig)), (1, 1));
    assert_eq!(path(&rig, 1 - winner), Path::default());

    let syn = tcp(client(4001), server(80), "S", LOCAL_ISN, 0).frame();
    let first = rig.translates_out(&syn).src();
    rig.sent_earlier(client(4001), TIMER);
    rig.translates_out(&syn);
    assert_eq!(path(&rig, link_of(first)).failures, 1);
    let before = rig.paths_to(SERVER);
    let race_copy = SocketAddr::new(EXTERNAL[usize::from(1 - link_of(first))], first.port());
    let answer = tcp(server(80), race_copy, "SA", REMOTE_ISN, LOCAL_ISN + 1).frame();
    rig.translates_in(link_of(race_copy), &answer);
    assert_eq!(rig.paths_to(SERVER), before);
}

#[test]
fn connections_without_nat_tell_too_and_what_does_not_fit_does_not() {
    let mut rig = Rig::routed(0b11, 0b11);
    rig.install(&learning());
    for (port, acknowledged, samples) in [(4000, LOCAL_ISN + 7, 0), (4001, LOCAL_ISN + 1, 1)] {
        let syn = tcp(client(port), server(80), "S", LOCAL_ISN, 0).frame();
        rig.translates_out(&syn);
        let link = rig.flow(client(port)).link;
        let answer = tcp(server(80), client(port), "SA", REMOTE_ISN, acknowledged).frame();
        // It may come by the other.
        rig.translates_in(1 - link, &answer);
        assert_eq!(path(&rig, link).samples, samples);
    }
}

#[test]
fn a_class_that_does_not_learn_leaves_the_table_as_it_is() {
    let mut rig = Rig::new();
    rig.connect(client(4000), server(80));
    assert_eq!(known(&mut rig), 0);
    let paths = told(&mut rig, &[(1, Duration::from_secs(1), 20)]);
    rig.tell_paths(SERVER, paths);
    let mut taken = links(&mut rig, 4001..4003, server(80));
    taken.sort_unstable();
    assert_eq!(taken, [0, 1]);
    assert_eq!(rig.paths_to(SERVER), paths);
}

#[test]
fn the_silence_of_a_port_leads_nobody_but_its_own_host_away() {
    let mut rig = rig();
    let now = Duration::from_secs(1);
    let paths = told(&mut rig, &[(0, now, 80), (1, now, 20)]);
    rig.tell_paths(SERVER, paths);
    // Filtered, or the host has made its SYNs so that nobody answers.
    for port in 4000..4024 {
        rig.open(client(port), server(81));
        rig.sent_earlier(client(port), TIMER);
        rig.open(client(port), server(81));
    }
    for (link, before) in paths.path[..2].iter().enumerate() {
        let after = path(&rig, link as u16);
        assert_eq!(after.response_us, before.response_us);
        assert!(after.failures <= 1, "of one host once: {after:?}");
    }
    let neighbour = |port| SocketAddr::new(SECOND_CLIENT, port);
    for port in 5000..5004 {
        assert_eq!(rig.open(neighbour(port), server(80)).link, 1);
    }
}

#[test]
fn a_host_leaves_the_link_that_was_silent_to_it_as_long_as_another_is_known() {
    let mut rig = rig();
    let now = Duration::from_secs(1);
    let paths = told(&mut rig, &[(0, now, 80), (1, now, 20)]);
    rig.tell_paths(SERVER, paths);
    let silent = |rig: &mut Rig, port| {
        let link = rig.open(client(port), server(80)).link;
        rig.sent_earlier(client(port), TIMER);
        rig.open(client(port), server(80));
        link
    };
    assert_eq!(silent(&mut rig, 4000), 1);
    assert_eq!(silent(&mut rig, 4001), 0, "what is known beside it");
    assert_eq!(rig.open(client(4002), server(80)).link, 1, "both are");
}

#[test]
fn one_host_makes_no_other_hosts_prefixes_forgotten() {
    const ROOM: u32 = 512;
    const OTHERS: u32 = 64;
    let mut rig = Rig::sized(Sizes {
        prefixes_max: ROOM,
        ..small()
    });
    rig.install(&learning());
    let neighbour = SocketAddr::new(SECOND_CLIENT, 4000);
    for n in 0..OTHERS {
        rig.connect(neighbour, elsewhere(n));
    }
    let begun = Instant::now();
    for n in OTHERS..2 * ROOM {
        rig.connect(client(4000), elsewhere(n));
    }
    let more = begun.elapsed().as_millis() as u64 / 250 + 1;
    let all = known(&mut rig);
    assert!(all <= u64::from(OTHERS) + 256 + more, "{all}");
    for n in 0..OTHERS {
        assert_ne!(rig.paths_to(elsewhere(n).ip()), Paths::default(), "{n}");
    }
}

#[test]
fn a_full_table_forgets_prefixes_and_connects_all_the_same() {
    const ROOM: u32 = 256;
    let mut rig = Rig::sized(Sizes {
        prefixes_max: ROOM,
        ..small()
    });
    rig.install(&learning());
    for host in 0..4 {
        let card = [2, 0, 0, 0, 1, host];
        for n in 0..ROOM {
            let remote = elsewhere(u32::from(host) * ROOM + n);
            let syn = tcp(client(4000), remote, "S", LOCAL_ISN, 0).frame();
            let sent = rig.translates_out(&sent_by(card, syn));
            let answer = tcp(remote, sent.src(), "SA", REMOTE_ISN, LOCAL_ISN + 1);
            rig.translates_in(link_of(sent.src()), &answer.frame());
        }
    }
    assert!((1..=u64::from(ROOM)).contains(&known(&mut rig)));
    let last = rig.paths_to(elsewhere(4 * ROOM - 1).ip());
    let samples: u16 = last.path.iter().map(|path| path.samples).sum();
    assert_eq!(samples, 1, "{last:?}");
}

#[test]
fn a_hundred_thousand_prefixes_take_less_than_64_megabytes() {
    let rig = Rig::sized(Sizes {
        prefixes_max: 100_000,
        ..small()
    });
    let bytes = rig.memory_of("prefixes");
    assert!(bytes <= 64_000_000, "{bytes}");
    assert!(bytes >= 100_000 * size_of::<Paths>() as u64, "{bytes}");
}

#[test]
fn what_is_explained_asks_nothing_and_shows_what_is_known() {
    let mut rig = rig();
    let paths = told(&mut rig, &[(1, Duration::from_secs(1), 20)]);
    rig.tell_paths(SERVER, paths);
    for _ in 0..2 {
        let explained = rig
            .plane()
            .explain(client(4000), server(80), Proto::Tcp)
            .unwrap();
        assert_eq!(explained.link, Some(0));
        assert!(explained.why.starts_with("to learn"), "{explained:?}");
        let response = [0, 1].map(|link: usize| explained.weighed[link].response_us);
        assert_eq!(response, [None, Some(20_000)]);
    }
    assert_eq!(rig.paths_to(SERVER), paths);
}
