//! Links that die, and links that only look like it, in virtual time.

mod world;

use std::time::Duration;

use anabranch_core::{Config, DownCause, Event, State, Suspicion, Time};
use world::{Exchange, LINK, Load, Path, World};

const MS: fn(u64) -> Duration = Duration::from_millis;

const REQUEST: Exchange = Exchange {
    up_byte: 200,
    down_byte: 1400,
    progress: true,
};
const DOWNLOAD: Exchange = Exchange {
    up_byte: 60,
    down_byte: 1400,
    progress: false,
};
const UPLOAD: Exchange = Exchange {
    up_byte: 1400,
    down_byte: 60,
    progress: true,
};
const UDP_UP: Exchange = Exchange {
    up_byte: 1400,
    down_byte: 0,
    progress: false,
};

fn is_down(event: &Event) -> bool {
    matches!(event, Event::LinkDown { link: LINK, .. })
}

fn is_up(event: &Event) -> bool {
    matches!(event, Event::LinkUp { link: LINK, .. })
}

fn fast(round_trip: Duration) -> Path {
    Path {
        rate_bps: 100_000_000,
        buffer: MS(100),
        round_trip,
        break_distance: MS(1),
        loss_percent: 0,
    }
}

/// How long after a cut at a random moment the link was declared down.
fn detection(seed: u64, load: Load, declared: bool) -> Duration {
    let mut draw = world::Draw::new(seed);
    let round_trip = draw.ms(1, 200);
    let half_ns = round_trip.as_nanos() as u64 / 2;
    let break_distance = Duration::from_nanos(draw.below(half_ns + 1));
    let path = Path {
        break_distance,
        ..fast(round_trip)
    };
    let mut world = World::new(seed, path, declared, vec![load]);
    let cut = Time::ZERO + draw.ms(3000, 4000);
    world.cut(cut);
    let early = world.run(cut, is_down);
    assert_eq!(early, None, "seed {seed}: down before the cut");
    let detected = world.run(cut + MS(10_000), is_down);
    detected
        .unwrap_or_else(|| panic!("seed {seed}: never detected"))
        .since(cut)
}

/// Over round trips up to 200 ms, all phases of poll and traffic, breaks near and far, rates declared or not.
fn check_detection(what: &str, load: Load) {
    let mut all: Vec<_> = (0..500)
        .map(|seed| detection(seed, load, seed % 2 == 0))
        .collect();
    all.sort();
    let (median, p99, most) = (all[250], all[495], all[499]);
    println!("{what}: p50 {median:?}, p99 {p99:?}, max {most:?}");
    assert!(p99 < MS(1000), "{what}: p99 {p99:?}");
}

#[test]
fn a_blackhole_under_requests_is_declared_down_within_a_second() {
    check_detection(
        "requests",
        Load::Open {
            gap_ms: (5, 100),
            exchange: REQUEST,
        },
    );
}

#[test]
fn a_blackhole_under_a_download_is_declared_down_within_a_second_although_nothing_more_is_sent() {
    check_detection(
        "download",
        Load::Loop {
            window: 20,
            exchange: DOWNLOAD,
        },
    );
}

#[test]
fn a_blackhole_under_an_upload_is_declared_down_within_a_second() {
    check_detection(
        "upload",
        Load::Loop {
            window: 20,
            exchange: UPLOAD,
        },
    );
}

#[test]
fn a_link_whose_way_out_dies_is_found_although_packets_still_come_in() {
    for (declared, seed) in [(true, 1), (false, 2)] {
        let noise = Load::Noise {
            gap_ms: (5, 50),
            down_byte: 200,
        };
        let requests = Load::Open {
            gap_ms: (5, 100),
            exchange: REQUEST,
        };
        let mut world = World::new(seed, fast(MS(40)), declared, vec![requests, noise]);
        world.cut(Time::from_millis(3000));
        let detected = world
            .run(Time::from_millis(20_000), is_down)
            .expect("the link goes down");
        // One second without proof, then three probes; an undeclared rate allows them a queue of three seconds.
        let most = if declared { MS(2000) } else { MS(5000) };
        assert!(
            detected.since(Time::from_millis(3000)) < most,
            "{detected:?}"
        );
    }
}

#[test]
fn a_blackhole_of_an_idle_link_is_found_by_the_idle_probe() {
    let mut world = World::new(1, fast(MS(20)), true, vec![]);
    world.cut(Time::from_millis(15_000));
    let detected = world
        .run(Time::from_millis(40_000), is_down)
        .expect("the link goes down");
    assert!(
        detected.since(Time::from_millis(15_000)) < MS(2000),
        "{detected:?}"
    );
    let idle = DownCause::Unanswered(Suspicion::Idle);
    assert!(matches!(
        world.events.last().map(|e| e.1),
        Some(Event::EndFlows { link: LINK, .. })
    ));
    assert!(
        world
            .events
            .iter()
            .any(|(_, e)| matches!(e, Event::LinkDown { cause, .. } if *cause == idle))
    );
}

#[test]
fn a_link_that_comes_back_is_used_again_within_two_seconds() {
    for seed in 0..200 {
        let load = Load::Open {
            gap_ms: (5, 100),
            exchange: REQUEST,
        };
        let mut world = World::new(seed, fast(MS(50)), true, vec![load]);
        world.cut(Time::from_millis(3000));
        world.run(Time::from_millis(8000), |_| false);
        assert!(matches!(world.status().state, State::Down(_)));
        let mended = world.now;
        world.cut(Time::from_millis(1_000_000));
        let back = world
            .run(mended + MS(5000), is_up)
            .expect("the link comes back");
        assert!(
            back.since(mended) < MS(2000),
            "seed {seed}: {:?}",
            back.since(mended)
        );
    }
}

/// 1 Mbit/s with two seconds of bufferbloat.
fn bloated(round_trip: Duration) -> Path {
    Path {
        rate_bps: 1_000_000,
        buffer: MS(2000),
        ..fast(round_trip)
    }
}

fn check_stays_up(what: &str, path: fn(Duration) -> Path, declared: bool, loads: &[Load]) {
    for seed in 0..20 {
        let round_trip = world::Draw::new(seed).ms(5, 200);
        let mut world = World::new(seed, path(round_trip), declared, loads.to_vec());
        world.run(Time::from_millis(60_000), |_| false);
        let down = world.events.iter().find(|(_, event)| is_down(event));
        assert_eq!(down, None, "{what}, seed {seed}, round trip {round_trip:?}");
    }
}

#[test]
fn a_link_that_carries_packets_of_no_flow_is_not_down_for_what_comes_in_uncounted() {
    for declared in [true, false] {
        for exchange in [REQUEST, DOWNLOAD, UPLOAD] {
            for seed in 0..20 {
                let round_trip = world::Draw::new(seed).ms(5, 200);
                let load = Load::Loop {
                    window: BUFFERFUL,
                    exchange,
                };
                let mut world = World::per_packet(seed, bloated(round_trip), declared, vec![load]);
                world.run(Time::from_millis(60_000), |_| false);
                let down = world.events.iter().find(|(_, event)| is_down(event));
                assert_eq!(
                    down, None,
                    "{exchange:?}, seed {seed}, declared: {declared}"
                );
            }
        }
    }
}

#[test]
fn a_blackhole_of_packets_of_no_flow_is_found_when_their_probes_can_be_queued_no_longer() {
    for seed in 0..20 {
        let load = Load::Open {
            gap_ms: (5, 100),
            exchange: REQUEST,
        };
        let cut = Time::from_millis(3000);
        let mut world = World::per_packet(seed, fast(MS(40)), true, vec![load]);
        world.cut(cut);
        assert_eq!(world.run(cut, is_down), None, "seed {seed}");
        let detected = world.run(cut + MS(10_000), is_down);
        let after = detected.expect("the link goes down").since(cut);
        assert!(after < MS(4500), "seed {seed}: {after:?}");
    }
}

/// As many packets under way as fill the buffer.
const BUFFERFUL: u32 = 178;

#[test]
fn a_link_saturated_by_uploads_is_slow_and_not_down() {
    for declared in [true, false] {
        let load = Load::Loop {
            window: BUFFERFUL,
            exchange: UPLOAD,
        };
        check_stays_up("upload", bloated, declared, &[load]);
    }
}

#[test]
fn a_link_saturated_by_downloads_is_slow_and_not_down() {
    for declared in [true, false] {
        let load = Load::Loop {
            window: BUFFERFUL,
            exchange: DOWNLOAD,
        };
        check_stays_up("download", bloated, declared, &[load]);
    }
}

#[test]
fn a_link_saturated_in_both_directions_is_slow_and_not_down() {
    for declared in [true, false] {
        let loads = [DOWNLOAD, UPLOAD].map(|exchange| Load::Loop {
            window: BUFFERFUL / 2,
            exchange,
        });
        check_stays_up("both", bloated, declared, &loads);
    }
}

#[test]
fn a_link_saturated_by_datagrams_that_nobody_answers_is_not_down_if_its_rate_is_declared() {
    let load = Load::Open {
        gap_ms: (5, 15),
        exchange: UDP_UP,
    };
    check_stays_up("datagrams", bloated, true, &[load]);
}

#[test]
fn a_link_that_loses_every_tenth_packet_is_lossy_and_not_down() {
    let lossy = |round_trip| Path {
        loss_percent: 10,
        ..fast(round_trip)
    };
    check_stays_up(
        "loss",
        lossy,
        true,
        &[Load::Open {
            gap_ms: (5, 100),
            exchange: REQUEST,
        }],
    );
}

#[test]
fn a_slow_satellite_link_is_not_down() {
    let satellite = |_| fast(MS(700));
    check_stays_up(
        "satellite",
        satellite,
        true,
        &[Load::Open {
            gap_ms: (5, 500),
            exchange: REQUEST,
        }],
    );
    check_stays_up("satellite", satellite, true, &[]);
}

/// Readings that leave open whether the last packet sent was answered: each is a silence to be cleared by one probe.
fn doubts(world: &World) -> u64 {
    world.heard.iter().filter(|heard| heard.and_sent).count() as u64
}

/// How often nothing was heard for `idle_probe`: each costs one probe, whose answer begins the next such time.
fn idle_times(world: &World) -> u64 {
    let starts = [Time::ZERO]
        .into_iter()
        .chain(world.heard.iter().map(|heard| heard.at));
    let ends = starts.clone().skip(1).chain([world.now]);
    let idle_ns = Config::default().idle_probe.as_nanos();
    let times = starts
        .zip(ends)
        .map(|(start, end)| end.since(start).as_nanos() / idle_ns);
    times.sum::<u128>() as u64
}

#[test]
fn traffic_with_pauses_costs_few_probes() {
    let load = Load::Open {
        gap_ms: (300, 3000),
        exchange: REQUEST,
    };
    let mut world = World::new(3, fast(MS(30)), true, vec![load]);
    world.run(Time::from_millis(60_000), |_| false);
    let sent = world.status().probes_sent;
    let most = 1 + doubts(&world) + idle_times(&world);
    assert!(sent <= most, "{sent} probes, {most} explained");
}

#[test]
fn a_link_under_steady_exchanges_is_never_probed_after_the_first_answer() {
    let load = Load::Open {
        gap_ms: (5, 50),
        exchange: REQUEST,
    };
    let mut world = World::new(3, fast(MS(30)), true, vec![load]);
    world.run(Time::from_millis(60_000), |_| false);
    assert_eq!(world.status().probes_sent, 1, "{:?}", world.events);
}
