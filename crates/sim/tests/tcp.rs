//! TCP over simulated links: what must hold whatever is lost, and whatever the flow.

use anabranch_core::Time;
use anabranch_sim::dumbbell::{Dumbbell, line, one_flow};
use anabranch_sim::link::{Buffer, LinkSpec, Loss};
use anabranch_sim::tcp::{Control, Recovery, State, TcpConfig};
use anabranch_sim::world::{FlowId, Work};

const MS: u64 = 1_000_000;

fn seconds(time: Option<Time>) -> f64 {
    time.expect("the flow got there").as_nanos() as f64 / 1e9
}

/// Every recovery and control, paced and not, with and without delayed acknowledgements; RACK with all that belongs to it.
fn variants() -> Vec<TcpConfig> {
    let mut all = Vec::new();
    for recovery in [
        Recovery::Reno,
        Recovery::NewReno,
        Recovery::NewRenoSlowButSteady,
        Recovery::Sack,
        Recovery::Rack,
    ] {
        let controls = [
            (Control::Reno, false, false),
            (Control::Reno, false, true),
            (Control::Cubic, false, false),
            (Control::Cubic, true, false),
            (Control::CubicLinux, true, false),
            (Control::Bbr, false, true),
        ];
        for (control, hystart, pacing) in controls {
            for delayed_ack_ns in [None, Some(40 * MS)] {
                all.push(TcpConfig {
                    recovery,
                    dsack: recovery == Recovery::Rack,
                    ecn: recovery == Recovery::Rack,
                    control,
                    hystart,
                    pacing,
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
    assert_eq!(world.counters(there).lost.packets, 8); // and the RST
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

#[test]
fn a_queue_longer_than_the_timeout_is_not_sent_again_and_again() {
    let access = line(100_000_000, MS, Buffer::Unlimited);
    let trunk = line(500_000, 10 * MS, Buffer::Unlimited);
    let recoveries = [Recovery::NewReno, Recovery::Sack, Recovery::Rack];
    // Without timestamps and with them.
    for (recovery, header_bytes) in recoveries.into_iter().flat_map(|it| [(it, 40), (it, 52)]) {
        let tcp = TcpConfig {
            recovery,
            header_bytes,
            min_rto_ns: 200 * MS,
            ..TcpConfig::default()
        };
        let mut dumbbell = Dumbbell::new(1, trunk, access);
        let flows: Vec<FlowId> = (0..4)
            .map(|i| dumbbell.open(Time::from_millis(10 * i), Work::Endless, tcp))
            .collect();
        dumbbell.world.run_until(Time::from_millis(120_000));
        let counters = flows
            .iter()
            .map(|&flow| dumbbell.world.opener(flow).counters());
        let (sent, again) = counters.fold((0, 0), |(sent, again), counted| {
            (sent + counted.sent, again + counted.retransmitted)
        });
        assert!(
            again * 25 < sent,
            "{recovery:?} {header_bytes}: {again} of {sent}"
        );
    }
}
