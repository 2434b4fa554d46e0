use anabranch_core::Time;
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::link::{Buffer, LinkSpec, Loss};
use crate::tcp::TcpConfig;
use crate::world::{FlowId, FlowSpec, Work, World};

use super::*;

/// One second alone on [`RATE_BPS`].
const SECOND_BYTES: u64 = 62_500;
const RATE_BPS: u64 = 500_000;

fn flow(at_s: f64, bytes: u64) -> Flow {
    Flow {
        at: Duration::from_secs_f64(at_s),
        bytes,
        direction: Direction::Down,
        hash: 0,
    }
}

fn named(name: &str) -> Sharing {
    Sharing::Chosen(
        name.parse().expect("a name of the table"),
        Counted::BothWays,
    )
}

fn durations_s(rates_bps: &[u64], sharing: Sharing, flows: &[Flow]) -> Vec<f64> {
    let served = serve(rates_bps, sharing, 1, flows.iter().copied()).expect("serves");
    served.iter().map(|served| served.duration_s).collect()
}

/// Guo 2004 figure 9: f0 and f1 at 0, f2 and f3 at 1, each one second alone.
fn figure_9() -> [Flow; 4] {
    [0.0, 0.0, 1.0, 1.0].map(|at_s| flow(at_s, SECOND_BYTES))
}

#[test]
fn four_equal_flows_of_guo_figure_9_take_twelve_seconds_on_one_link() {
    let one = durations_s(&[RATE_BPS], named("LCF"), &figure_9());
    // Two share the first second, four the next two, and the later two the fourth: 3 s each.
    assert_eq!(one, [3.0; 4]);
}

#[test]
fn four_equal_flows_of_guo_figure_9_take_four_seconds_on_two_links() {
    let two = durations_s(&[RATE_BPS; 2], named("LCF"), &figure_9());
    assert_eq!(two, [1.0; 4]);
    let pooled = durations_s(&[RATE_BPS; 2], Sharing::Pooled, &figure_9());
    assert_eq!(pooled, [1.0; 4]);
}

#[test]
fn the_fewest_flows_decide_and_the_hash_decides_whatever_the_load() {
    let flows: Vec<Flow> = (0..6)
        .map(|n| Flow {
            hash: 4,
            ..flow(f64::from(n) / 100.0, SECOND_BYTES)
        })
        .collect();
    let counts = |sharing| {
        let served = serve(&[RATE_BPS; 3], sharing, 1, flows.iter().copied()).expect("serves");
        [0, 1, 2].map(|link| {
            let on = served
                .iter()
                .filter(|served| served.link == Some(LinkId(link)));
            on.count()
        })
    };
    assert_eq!(counts(named("LCF")), [2, 2, 2]);
    assert_eq!(counts(named("RR")), [2, 2, 2]);
    assert_eq!(counts(named("hash")), [0, 6, 0], "4 mod 3 is 1");
}

#[test]
fn what_goes_the_other_way_is_in_nobodys_way_but_may_be_counted() {
    let (up, down) = (Direction::Up, Direction::Down);
    let flows = [up, down, down, up].map(|direction| Flow {
        direction,
        ..flow(0.0, SECOND_BYTES)
    });
    let served = |counted| {
        let sharing = Sharing::Chosen("LCF".parse().expect("a name"), counted);
        let served = serve(&[RATE_BPS; 2], sharing, 1, flows).expect("serves");
        served
            .iter()
            .map(|served| (served.link.expect("chosen").0, served.duration_s))
            .collect::<Vec<_>>()
    };
    let own = [(0, 1.0), (0, 1.0), (1, 1.0), (1, 1.0)];
    assert_eq!(served(Counted::OwnWay), own);
    // Up on the first, down on the second; then one of each on either.
    let both = served(Counted::BothWays);
    assert_eq!(both[..2], [(0, 1.0), (1, 1.0)]);
    let loads = [0, 1].map(|link| both.iter().filter(|(on, _)| *on == link).count());
    assert_eq!(loads, [2, 2]);
}

#[test]
fn weights_by_rate_come_from_the_balancer() {
    let flows: Vec<Flow> = (0..40)
        .map(|n| flow(f64::from(n) / 1e6, 1_000_000))
        .collect();
    let rates_bps = [3 * RATE_BPS, RATE_BPS];
    let served = serve(&rates_bps, named("WLC"), 1, flows).expect("serves");
    let first = served
        .iter()
        .filter(|served| served.link == Some(LinkId(0)));
    assert_eq!(first.count(), 30);
}

#[test]
fn what_a_fluid_cannot_do_is_refused_with_the_reason() {
    let refused = |sharing| serve(&[RATE_BPS], sharing, 1, []).unwrap_err();
    let message = refused(named("WSDM")).to_string();
    assert!(
        message.starts_with("WSDM measures links every period"),
        "{message}"
    );
    let per_session = Algorithm {
        granularity: Granularity::Session,
        ..Algorithm::default()
    };
    let hash: Algorithm = "hash".parse().expect("a name");
    let per_session = Algorithm {
        measure: hash.measure,
        dispatch: hash.dispatch,
        period: hash.period,
        ..per_session
    };
    assert!(matches!(
        refused(Sharing::Chosen(per_session, Counted::BothWays)),
        FluidError::Session(_)
    ));
    for name in ["passive", "FRRTDF"] {
        assert!(matches!(refused(named(name)), FluidError::Destination(_)));
    }
    let no_link = serve(&[], named("LCF"), 1, []).unwrap_err();
    assert!(matches!(
        no_link,
        FluidError::Build(BuildError::LinkCount(0))
    ));
}

/// Poisson arrivals on one link at `load`, with sizes that `size` makes of two uniform numbers in (0, 1].
fn poisson(count: usize, load: f64, mean_bytes: f64, size: fn(f64, f64) -> f64) -> Vec<Flow> {
    let mut random = ChaCha8Rng::seed_from_u64(11);
    let mut uniform = move || 1.0 - random.random::<f64>();
    let per_s = load * RATE_BPS as f64 / 8.0 / mean_bytes;
    let mut at_s = 0.0;
    (0..count)
        .map(|_| {
            at_s -= uniform().ln() / per_s;
            flow(at_s, (mean_bytes * size(uniform(), uniform())) as u64)
        })
        .collect()
}

/// The mean of duration over service time alone.
fn mean_slowdown(flows: &[Flow], keep: impl Fn(&Flow) -> bool) -> f64 {
    let durations_s = durations_s(&[RATE_BPS], named("LCF"), flows);
    let slowdowns: Vec<f64> = flows
        .iter()
        .zip(durations_s)
        .filter(|(flow, _)| flow.bytes > 0 && keep(flow))
        .map(|(flow, duration_s)| duration_s * RATE_BPS as f64 / 8.0 / flow.bytes as f64)
        .collect();
    slowdowns.iter().sum::<f64>() / slowdowns.len() as f64
}

#[test]
fn processor_sharing_is_insensitive_to_the_distribution_of_sizes() {
    let shapes: [fn(f64, f64) -> f64; 3] = [
        |_, _| 1.0,
        |u, _| -u.ln(),
        // Nine of ten small: squared coefficient of variation 10.
        |u, v| {
            if v < 0.9 {
                -u.ln() * 0.2
            } else {
                -u.ln() * 8.2
            }
        },
    ];
    for (load, shape) in [
        (0.5, shapes[0]),
        (0.5, shapes[1]),
        (0.5, shapes[2]),
        (0.7, shapes[1]),
    ] {
        let slowdown = mean_slowdown(&poisson(200_000, load, 20_000.0, shape), |_| true);
        let expected = 1.0 / (1.0 - load);
        // M/G/1-PS: E[T|x] = x / (1 − ρ).
        assert!(
            (slowdown / expected - 1.0).abs() < 0.03,
            "{slowdown} of {expected}"
        );
    }
}

#[test]
fn small_and_large_flows_are_slowed_down_alike() {
    let flows = poisson(400_000, 0.5, 20_000.0, |u, _| -u.ln());
    let small = mean_slowdown(&flows, |flow| flow.bytes < 5_000);
    let large = mean_slowdown(&flows, |flow| flow.bytes > 60_000);
    assert!((small / 2.0 - 1.0).abs() < 0.03, "{small}");
    assert!((large / 2.0 - 1.0).abs() < 0.03, "{large}");
}

proptest! {
    #[test]
    fn a_link_serves_all_bits_at_its_rate_while_it_has_any(
        gaps_ms in prop::collection::vec(0u32..400, 1..60), bytes in prop::collection::vec(1u64..200_000, 60)
    ) {
        let mut at_ms = 0;
        let flows: Vec<Flow> = gaps_ms.iter().zip(bytes).map(|(gap_ms, bytes)| {
            at_ms += gap_ms;
            flow(f64::from(at_ms) / 1e3, bytes)
        }).collect();
        let durations_s = durations_s(&[RATE_BPS], Sharing::Pooled, &flows);
        let ends_s = flows.iter().zip(&durations_s).map(|(flow, duration_s)| flow.at.as_secs_f64() + duration_s);
        let last_s = ends_s.fold(0.0, f64::max);
        let work_s = |flow: &Flow| flow.bytes as f64 * 8.0 / RATE_BPS as f64;
        // The last bit leaves when a queue in any order would be empty (Lindley).
        let idle_s = flows.iter().fold(0.0, |free_s: f64, flow| free_s.max(flow.at.as_secs_f64()) + work_s(flow));
        prop_assert!((last_s - idle_s).abs() < 1e-6);
        for (flow, duration_s) in flows.iter().zip(&durations_s) {
            prop_assert!(*duration_s >= work_s(flow) - 1e-9);
        }
    }
}

/// Windows so small that no flow can crowd out another, on a buffer that never overflows: each flow keeps ten segments
/// in the queue, and a queue that serves all its flows in turn shares the link.
#[test]
fn many_flows_packet_by_packet_tend_to_the_fluid() {
    let rate_bps = 100_000_000;
    let tcp = TcpConfig {
        initial_window: 10,
        receive_window: 10,
        ..TcpConfig::default()
    };
    let line = LinkSpec {
        rate_bps,
        delay_ns: 10_000,
        buffer: Buffer::Unlimited,
        loss: Loss::None,
    };
    // 1500 bytes on the wire for 1448 of payload, 600 segments on average.
    let segments = |flow: &Flow| flow.bytes.div_ceil(1448).max(1);
    let flows: Vec<Flow> = poisson(1_000, 0.6, 868_800.0, |u, _| -u.ln())
        .into_iter()
        .map(|flow| Flow {
            at: flow.at * RATE_BPS as u32 / rate_bps as u32,
            bytes: segments(&flow) * 1500,
            ..flow
        })
        .collect();
    let mut world = World::new(1);
    let [there, back] = [(); 2].map(|()| world.add_link(line));
    let (forward, back) = (world.add_path(&[there]), world.add_path(&[back]));
    let opened: Vec<FlowId> = flows
        .iter()
        .map(|flow| {
            world.open(FlowSpec {
                start: Time::ZERO + flow.at,
                work: Work::Transfer(flow.bytes / 1500 * 1448),
                forward,
                back,
                tcp,
            })
        })
        .collect();
    world.run_until(Time::from_millis(600_000));
    let packets_s = flows.iter().zip(opened).map(|(flow, opened)| {
        let finished = world.times(opened).finished.expect("all flows end");
        finished.since(Time::ZERO + flow.at).as_secs_f64()
    });
    let packets_s: f64 = packets_s.sum();
    let fluid_s: f64 = durations_s(&[rate_bps], Sharing::Pooled, &flows)
        .iter()
        .sum();
    // The handshake and the last acknowledgement wait in the queue as data does.
    let ratio = packets_s / fluid_s;
    assert!((0.97..1.06).contains(&ratio), "{ratio}");
}
