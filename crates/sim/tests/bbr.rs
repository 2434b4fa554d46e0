//! BBR and pacing over simulated links: what is promised of them, and what they are known for.

use anabranch_core::Time;
use anabranch_sim::dumbbell::{Dumbbell, line, one_flow};
use anabranch_sim::link::{Buffer, LinkSpec, Loss};
use anabranch_sim::tcp::{Control, Growth, Recovery, TcpConfig};
use anabranch_sim::world::{FlowId, PipeId, Work, World};

const MS: u64 = 1_000_000;
const RATE_BPS: u64 = 20_000_000;
const ONE_WAY_NS: u64 = 20 * MS;
const PACKET_BITS: u64 = 1500 * 8;
/// Full packets that the pipe holds: bandwidth × delay.
const BDP: u64 = RATE_BPS / PACKET_BITS * 2 * ONE_WAY_NS / 1_000_000_000;

/// As Linux sends and acknowledges.
fn linux(control: Control) -> TcpConfig {
    TcpConfig {
        control,
        hystart: control == Control::Cubic,
        growth: Growth::PerSegment,
        min_rto_ns: 200 * MS,
        delayed_ack_ns: Some(40 * MS),
        ..TcpConfig::default()
    }
}

fn pipe(buffer_packets: u64, loss: Loss) -> LinkSpec {
    LinkSpec {
        loss,
        ..line(RATE_BPS, ONE_WAY_NS, Buffer::Packets(buffer_packets))
    }
}

/// What part of the line `segments` in `ms` are.
fn share(segments: u32, ms: u64) -> f64 {
    u64::from(segments) as f64 * PACKET_BITS as f64 * 1e3 / (ms * RATE_BPS) as f64
}

/// Packets in the queue, ms by ms.
fn queues(world: &mut World, link: PipeId, from_ms: u64, to_ms: u64) -> Vec<u64> {
    let at = |ms| {
        world.run_until(Time::from_millis(ms));
        world.link_mut(link).backlog(Time::from_millis(ms)).packets
    };
    (from_ms..to_ms).map(at).collect()
}

/// One endless flow for 30 s: its part of the line.
fn alone(seed: u64, spec: LinkSpec, tcp: TcpConfig) -> f64 {
    let (mut world, flow, _) = one_flow(seed, spec, Work::Endless, tcp);
    world.run_until(Time::from_millis(30_000));
    assert!(world.conserves());
    share(world.opener(flow).acknowledged_segments(), 30_000)
}

#[test]
fn a_flow_fills_the_pipe_and_leaves_the_buffer_empty_which_cubic_fills() {
    for seed in 1..=5 {
        let spec = pipe(4 * BDP, Loss::None);
        let mean = |control| {
            let (mut world, flow, link) = one_flow(seed, spec, Work::Endless, linux(control));
            let queue = queues(&mut world, link, 2_000, 30_000);
            let share = share(world.opener(flow).acknowledged_segments(), 30_000);
            let mean = queue.iter().sum::<u64>() as f64 / queue.len() as f64;
            (share, mean, queue.into_iter().max())
        };
        let (share, queue, most) = mean(Control::Bbr);
        assert!(share > 0.95, "seed {seed}: {share} of the line");
        assert!(
            queue < BDP as f64 / 5. && most < Some(BDP / 2),
            "seed {seed}: {queue} packets wait on average, {most:?} at most"
        );
        assert!(mean(Control::Cubic).1 > 2. * BDP as f64);
    }
}

#[test]
fn independent_losses_take_little_from_a_flow_and_most_of_it_from_cubic() {
    for (probability, least) in [(0.01, 0.9), (0.03, 0.8)] {
        for seed in 1..=5 {
            let spec = pipe(BDP, Loss::Independent { probability });
            let bbr = [Recovery::Sack, Recovery::Rack].map(|recovery| {
                let tcp = linux(Control::Bbr);
                alone(seed, spec, TcpConfig { recovery, ..tcp })
            });
            let cubic = alone(seed, spec, linux(Control::Cubic));
            assert!(
                bbr.iter().all(|share| *share > least) && cubic < 0.35,
                "seed {seed}, loss {probability}: BBR has {bbr:?} of the line (SACK, RACK), CUBIC {cubic}"
            );
        }
    }
}

#[test]
fn a_buffer_of_a_tenth_of_the_pipe_costs_losses_and_not_the_throughput() {
    for seed in 1..=5 {
        // RACK finds lost retransmissions, for which RFC 6675 waits for a timeout.
        for (recovery, least) in [(Recovery::Sack, 0.85), (Recovery::Rack, 0.96)] {
            let tcp = linux(Control::Bbr);
            let tcp = TcpConfig { recovery, ..tcp };
            let spec = pipe(BDP / 10, Loss::None);
            let (mut world, flow, link) = one_flow(seed, spec, Work::Endless, tcp);
            world.run_until(Time::from_millis(30_000));
            let share = share(world.opener(flow).acknowledged_segments(), 30_000);
            let counters = world.counters(link);
            let lost = counters.overflowed.packets as f64 / counters.offered.packets as f64;
            assert!(
                share > least && (0.01..0.1).contains(&lost),
                "seed {seed}, {recovery:?}: {share} of the line, {lost} lost"
            );
        }
    }
}

/// Two flows that begin 3 s apart.
fn two(seed: u64) -> (World, PipeId, [FlowId; 2]) {
    let access = line(1_000_000_000, 0, Buffer::Unlimited);
    let mut dumbbell = Dumbbell::new(seed, pipe(4 * BDP, Loss::None), access);
    let flows = [0, 3_000]
        .map(|ms| dumbbell.open(Time::from_millis(ms), Work::Endless, linux(Control::Bbr)));
    let link = dumbbell.bottleneck();
    (dumbbell.world, link, flows)
}

#[test]
fn two_flows_share_the_line() {
    for seed in 1..=5 {
        let (mut world, _, flows) = two(seed);
        world.run_until(Time::from_millis(15_000));
        let before = flows.map(|flow| world.opener(flow).acknowledged_segments());
        world.run_until(Time::from_millis(75_000));
        let shares = [0, 1].map(|i| {
            let segments = world.opener(flows[i]).acknowledged_segments() - before[i];
            share(segments, 60_000)
        });
        let (least, sum) = (shares[0].min(shares[1]), shares[0] + shares[1]);
        assert!(sum > 0.9 && least > 0.3, "seed {seed}: {shares:?}");
    }
}

#[test]
fn every_ten_seconds_both_of_two_flows_let_the_queue_run_empty_to_see_the_round_trip() {
    for seed in 1..=5 {
        let (mut world, link, flows) = two(seed);
        world.run_until(Time::from_millis(20_000));
        let (mut probes, mut probing, mut stood) = (Vec::new(), false, 0);
        for ms in 20_000..80_000 {
            let queue = queues(&mut world, link, ms, ms + 1)[0];
            let small = |flow: &FlowId| world.opener(*flow).window().cwnd() <= 4.;
            let probes_now = flows.iter().all(small);
            if probes_now && !probing {
                probes.push((ms, u64::MAX));
            }
            if let Some((_, least)) = probes.last_mut().filter(|_| probes_now) {
                *least = queue.min(*least);
            }
            probing = probes_now;
            stood += u64::from(queue > BDP / 4);
        }
        assert!(
            stood > 30_000,
            "seed {seed}: a queue stood for {stood} ms of 60 s"
        );
        assert!((4..=6).contains(&probes.len()), "seed {seed}: {probes:?}");
        assert!(
            probes.iter().all(|(_, least)| *least == 0),
            "seed {seed}: {probes:?}"
        );
        let apart = |pair: &[(u64, u64)]| (10_000..12_000).contains(&(pair[1].0 - pair[0].0));
        assert!(probes.windows(2).all(apart), "seed {seed}: {probes:?}");
    }
}

#[test]
fn the_seed_draws_the_phase_in_which_bandwidth_is_probed_and_nothing_else_does() {
    let trajectory = |seed, control| {
        let spec = pipe(4 * BDP, Loss::None);
        let (mut world, ..) = one_flow(seed, spec, Work::Endless, linux(control));
        world.run_until(Time::from_millis(3_000));
        world.trajectory()
    };
    assert_eq!(trajectory(1, Control::Bbr), trajectory(1, Control::Bbr));
    let seeds = (1..=10).map(|seed| trajectory(seed, Control::Bbr));
    let others = seeds.filter(|of_seed| *of_seed != trajectory(1, Control::Bbr));
    assert!(others.count() >= 5);
    assert_eq!(trajectory(1, Control::Cubic), trajectory(2, Control::Cubic));
}

#[test]
fn a_window_that_is_paced_passes_a_buffer_that_it_would_overflow_at_once() {
    let window = BDP as u32;
    let overflowed = |pacing| {
        let tcp = TcpConfig {
            pacing,
            initial_window: window,
            ..linux(Control::Cubic)
        };
        let bytes = u64::from(window * tcp.mss_bytes);
        let spec = pipe(BDP * 2 / 3, Loss::None);
        let (mut world, _, link) = one_flow(1, spec, Work::Transfer(bytes), tcp);
        world.run_until(Time::from_millis(1_000));
        world.counters(link).overflowed.packets
    };
    assert_eq!(
        (overflowed(true), overflowed(false)),
        (0, BDP - BDP * 2 / 3)
    );
}
