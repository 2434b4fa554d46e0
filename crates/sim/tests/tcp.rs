//! TCP over simulated links against exact times and closed formulas.

use anabranch_core::Time;
use anabranch_sim::dumbbell::Dumbbell;
use anabranch_sim::link::{Buffer, LinkSpec, Loss};
use anabranch_sim::tcp::{Control, Growth, Recovery, State, TcpConfig};
use anabranch_sim::world::{FlowId, FlowSpec, LinkId, Work, World};

const MS: u64 = 1_000_000;

fn line(rate_bps: u64, delay_ns: u64, buffer: Buffer) -> LinkSpec {
    LinkSpec {
        rate_bps,
        delay_ns,
        buffer,
        loss: Loss::None,
    }
}

/// One flow over `forward`, its acknowledgements over a return line that adds only delay.
fn one_flow(seed: u64, forward: LinkSpec, work: Work, tcp: TcpConfig) -> (World, FlowId, LinkId) {
    let mut world = World::new(seed);
    let there = world.add_link(forward);
    let returns = line(1_000_000_000_000, forward.delay_ns, Buffer::Unlimited);
    let back = world.add_link(returns);
    let spec = FlowSpec {
        start: Time::ZERO,
        work,
        forward: world.add_path(&[there]),
        back: world.add_path(&[back]),
        tcp,
    };
    let flow = world.open(spec);
    (world, flow, there)
}

fn seconds(time: Option<Time>) -> f64 {
    time.expect("the flow got there").as_nanos() as f64 / 1e9
}

#[test]
fn an_idle_pipe_takes_one_round_trip_to_open_and_two_to_deliver_one_segment() {
    let mut world = World::new(1);
    let symmetric = line(8_000_000, 10 * MS, Buffer::Unlimited);
    let (there, back) = (world.add_link(symmetric), world.add_link(symmetric));
    let tcp = TcpConfig {
        header_bytes: 40,
        mss_bytes: 960,
        ..TcpConfig::default()
    };
    let spec = FlowSpec {
        start: Time::from_millis(5),
        work: Work::Endless,
        forward: world.add_path(&[there]),
        back: world.add_path(&[back]),
        tcp: TcpConfig {
            receive_window: 1,
            ..tcp
        },
    };
    let flow = world.open(spec);
    let (header_ns, full_ns) = (40_000, 1_000_000);
    let opened_ns = 5 * MS + 20 * MS + 2 * header_ns;
    world.run_until(Time::from_nanos(opened_ns));
    assert_eq!(
        world.times(flow).established,
        Some(Time::from_nanos(opened_ns))
    );
    let acknowledged_ns = opened_ns + 20 * MS + full_ns + header_ns;
    world.run_until(Time::from_nanos(acknowledged_ns - 1));
    assert_eq!(world.opener(flow).acknowledged_segments(), 0);
    world.run_until(Time::from_nanos(acknowledged_ns));
    assert_eq!(world.opener(flow).acknowledged_segments(), 1);
}

#[test]
fn slow_start_from_one_segment_takes_what_the_formula_says() {
    let (segment_bytes, rtt_s, rate) = (1500f64, 0.1f64, 833.333_333f64);
    for segments in [1u32, 7, 100, 1000] {
        let tcp = TcpConfig {
            initial_window: 1,
            mss_bytes: 1500,
            header_bytes: 0,
            ..TcpConfig::default()
        };
        let forward = line(
            (rate * segment_bytes * 8.) as u64,
            50 * MS,
            Buffer::Unlimited,
        );
        let work = Work::Transfer(u64::from(segments) * 1500);
        let (mut world, flow, _) = one_flow(1, forward, work, tcp);
        let end_ns = (1..600_000)
            .map(|tenth_ms| tenth_ms * MS / 10)
            .find(|now_ns| {
                world.run_until(Time::from_nanos(*now_ns));
                world.opener(flow).acknowledged_segments() >= segments
            });
        let observed = end_ns.expect("the transfer ends") as f64 / 1e9;
        let q = (1. + rtt_s * rate).log2().floor() + 1.;
        let k = (1. + f64::from(segments)).log2().ceil();
        let (p, s) = (f64::min(q, k - 1.), 1. / rate);
        let stalls = p * (rtt_s + s) - (p.exp2() - 1.) * s;
        let expected = 2. * rtt_s + f64::from(segments) / rate + stalls;
        println!("{segments} segments: observed {observed:.4} s, expected {expected:.4} s ± 0.5 %");
        assert!((observed / expected - 1.).abs() < 0.005);
    }
}

#[test]
fn one_flow_uses_a_drop_tail_link_as_its_buffer_allows() {
    let rate_bps = 12_000_000;
    let bdp = 100.; // segments of 1500 bytes in 100 ms
    for (beta, tolerance) in [(0.25f64, 0.03), (0.5, 0.03), (1., 0.02)] {
        let buffer = Buffer::Packets((beta * bdp) as u64 + 1);
        let forward = line(rate_bps, 50 * MS, buffer);
        let (mut world, _, there) = one_flow(1, forward, Work::Endless, TcpConfig::default());
        world.run_until(Time::from_millis(50_000));
        let before = world.link(there).counters().delivered.bytes;
        world.run_until(Time::from_millis(450_000));
        let bytes = world.link(there).counters().delivered.bytes - before;
        let observed = bytes as f64 * 8. / 400. / rate_bps as f64;
        let expected = 0.75 * (1. + beta).powi(2) / (1. + beta + beta * beta);
        println!("β = {beta}: observed {observed:.4}, expected {expected:.4} ± {tolerance}");
        assert!((observed - expected).abs() < tolerance);
        assert!(world.conserves());
    }
}

/// Every recovery and control, with and without delayed acknowledgements.
fn variants() -> Vec<TcpConfig> {
    let mut all = Vec::new();
    for recovery in [Recovery::Reno, Recovery::NewReno, Recovery::Sack] {
        for control in [Control::Reno, Control::Cubic] {
            for delayed_ack_ns in [None, Some(40 * MS)] {
                all.push(TcpConfig {
                    recovery,
                    control,
                    delayed_ack_ns,
                    min_rto_ns: 200 * MS,
                    ..TcpConfig::default()
                });
            }
        }
    }
    all
}

#[test]
fn transfers_complete_through_any_loss_and_every_packet_is_accounted_for() {
    let losses = [
        Loss::Independent { probability: 0.02 },
        Loss::Independent { probability: 0.2 },
        Loss::Bursty {
            good_to_bad: 0.01,
            bad_to_good: 0.3,
            loss_good: 0.,
            loss_bad: 0.9,
        },
    ];
    for tcp in variants() {
        for (seed, loss) in (0..5).flat_map(|seed| losses.map(|loss| (seed, loss))) {
            let forward = LinkSpec {
                loss,
                ..line(10_000_000, 20 * MS, Buffer::Packets(30))
            };
            let (mut world, flow, _) = one_flow(seed, forward, Work::Transfer(300_001), tcp);
            world.run_until(Time::from_millis(3_600_000));
            let times = world.times(flow);
            assert!(
                times.finished.is_some() && times.aborted.is_none(),
                "{tcp:?} {loss:?}: {times:?}"
            );
            assert_eq!(world.receiver(flow).received_segments(), 209);
            assert!(world.conserves());
        }
    }
}

#[test]
fn a_connection_nobody_answers_is_given_up() {
    let forward = LinkSpec {
        loss: Loss::Independent { probability: 1. },
        ..line(10_000_000, 20 * MS, Buffer::Unlimited)
    };
    let (mut world, flow, there) = one_flow(1, forward, Work::Endless, TcpConfig::default());
    world.run_until(Time::from_millis(600_000));
    // SYNs at 0, 1, 3, 7, 15, 31 and 63 s; the last is given 60 s, the greatest timeout.
    assert_eq!(seconds(world.times(flow).aborted), 123.);
    assert_eq!(world.link(there).counters().lost.packets, 8); // and the RST
}

/// Goodput in segments per second of an endless flow at loss `p`, mean of 20 seeds.
fn goodput(p: f64, tcp: TcpConfig) -> f64 {
    let runs = (0..20).map(|seed| {
        let forward = LinkSpec {
            loss: Loss::Independent { probability: p },
            ..line(1_000_000_000, 25 * MS, Buffer::Unlimited)
        };
        let (mut world, flow, _) = one_flow(seed, forward, Work::Endless, tcp);
        world.run_until(Time::from_millis(20_000));
        let before = world.receiver(flow).received_segments();
        world.run_until(Time::from_millis(120_000));
        f64::from(world.receiver(flow).received_segments() - before) / 100.
    });
    runs.sum::<f64>() / 20.
}

#[test]
fn throughput_follows_mathis_where_timeouts_are_rare() {
    for p in [0.001f64, 0.002, 0.005] {
        let expected = (3. / (2. * p)).sqrt() / 0.05;
        let observed = goodput(p, TcpConfig::default());
        println!("p = {p}: observed {observed:.1} segments/s, Mathis {expected:.1} ± 10 %");
        assert!((observed / expected - 1.).abs() < 0.1);
    }
}

#[test]
fn throughput_follows_pftk_without_sack() {
    let tcp = TcpConfig {
        recovery: Recovery::Reno,
        min_rto_ns: 200 * MS,
        ..TcpConfig::default()
    };
    for p in [0.001f64, 0.01, 0.03] {
        let (rtt_s, rto_s) = (0.05, 0.2);
        let timeouts = rto_s * f64::min(1., 3. * (3. * p / 8.).sqrt()) * p * (1. + 32. * p * p);
        let expected = 1. / (rtt_s * (2. * p / 3.).sqrt() + timeouts);
        let observed = goodput(p, tcp);
        println!("p = {p}: observed {observed:.1} segments/s, PFTK {expected:.1} ± 20 %");
        assert!((observed / expected - 1.).abs() < 0.2);
    }
}

/// `flows` endless flows through one bottleneck of 45 Mbit/s, started 10 ms apart.
fn dumbbell(flows: u64, unused: bool, tcp: TcpConfig) -> (World, Vec<FlowId>) {
    let mut world = World::new(3);
    let trunk = line(45_000_000, 10 * MS, Buffer::Packets(100));
    let (there, back) = (world.add_link(trunk), world.add_link(trunk));
    let (forward, returns) = (world.add_path(&[there]), world.add_path(&[back]));
    if unused {
        let other = world.add_link(LinkSpec {
            loss: Loss::Independent { probability: 0.5 },
            ..trunk
        });
        world.add_path(&[other]);
    }
    let open = |i| FlowSpec {
        start: Time::from_millis(10 * i),
        work: Work::Endless,
        forward,
        back: returns,
        tcp,
    };
    let flows = (0..flows).map(|i| world.open(open(i))).collect();
    (world, flows)
}

#[test]
fn equal_flows_share_a_bottleneck_fairly() {
    for tcp in [
        TcpConfig::default(),
        TcpConfig {
            control: Control::Cubic,
            growth: Growth::PerSegment,
            ..TcpConfig::default()
        },
    ] {
        for n in [2, 10, 50] {
            let (mut world, flows) = dumbbell(n, false, tcp);
            world.run_until(Time::from_millis(300_000));
            let shares = flows
                .iter()
                .map(|flow| f64::from(world.receiver(*flow).received_segments()));
            let (sum, squares) =
                shares.fold((0., 0.), |(sum, squares), x| (sum + x, squares + x * x));
            let jain = sum * sum / (n as f64 * squares);
            println!(
                "{n} flows, {:?}: Jain {jain:.4}, expected ≥ 0.95",
                tcp.control
            );
            assert!(jain >= 0.95);
            assert!(world.conserves());
        }
    }
}

#[test]
fn a_run_repeats_itself_and_an_unused_link_changes_nothing() {
    let run = |unused, tcp| {
        let (mut world, _) = dumbbell(20, unused, tcp);
        world.run_until(Time::from_millis(5_000));
        world.trajectory()
    };
    let first = run(false, TcpConfig::default());
    assert!(first.events > 10_000);
    assert_eq!(first, run(false, TcpConfig::default()));
    assert_eq!(first, run(true, TcpConfig::default()));
    let slower = TcpConfig {
        initial_window: 2,
        ..TcpConfig::default()
    };
    assert_ne!(first.hash, run(false, slower).hash);
}

#[test]
fn short_transfers_beside_long_flows_all_end_and_leave_nothing_behind() {
    let access = line(100_000_000, MS, Buffer::Packets(1000));
    let trunk = line(10_000_000, 10 * MS, Buffer::Packets(50));
    for tcp in variants() {
        let mut dumbbell = Dumbbell::new(1, trunk, access);
        let long = dumbbell.open(Time::ZERO, Work::Transfer(20_000_000), tcp);
        let short: Vec<FlowId> = (0..200u64)
            .map(|i| {
                dumbbell.open(
                    Time::from_millis(50 * i),
                    Work::Transfer(1 + 997 * i % 40_000),
                    tcp,
                )
            })
            .collect();
        let world = &mut dumbbell.world;
        world.run_until(Time::from_millis(600_000));
        for flow in short.into_iter().chain([long]) {
            assert!(
                world.times(flow).finished.is_some(),
                "{flow:?} with {tcp:?}"
            );
            let states = [world.opener(flow).state(), world.receiver(flow).state()];
            assert_eq!(states, [State::Closed; 2], "{flow:?} with {tcp:?}");
        }
        assert_eq!(world.packets(), 0);
        assert!(world.conserves());
    }
}
