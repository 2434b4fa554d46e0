//! Packets whose way is decided on their way, and flows that leave nothing behind.

use anabranch_core::Time;
use anabranch_sim::link::{Buffer, LinkSpec, Loss};
use anabranch_sim::packet::PacketId;
use anabranch_sim::tcp::TcpConfig;
use anabranch_sim::world::{
    FlowId, FlowSpec, Hop, Net, News, Onward, PathId, PipeId, Site, SiteId, Work, World,
};

const MS: u64 = 1_000_000;

fn line(rate_bps: u64, delay_ns: u64) -> LinkSpec {
    LinkSpec {
        rate_bps,
        delay_ns,
        buffer: Buffer::Packets(100),
        loss: Loss::None,
    }
}

/// Gives the packets of a flow to `sublinks` in turn, and starts the next request when one is over.
#[derive(Default)]
struct Turns {
    sublinks: Vec<PipeId>,
    passed: Vec<u64>,
    next: Option<FlowSpec>,
    finished: u64,
    wakes: Vec<u64>,
}

impl Site for Turns {
    fn pass(&mut self, net: &mut Net, _: SiteId, packet: PacketId) -> Onward {
        assert_eq!(net.packet(packet).label, 7);
        let turn = self.passed.iter().sum::<u64>() as usize % self.sublinks.len();
        self.passed[turn] += 1;
        Onward::Over(self.sublinks[turn])
    }

    fn wake(&mut self, net: &mut Net, token: u32) {
        self.wakes.push(net.now().as_nanos());
        net.wake_at(Time::from_nanos(net.now().as_nanos() + 10 * MS), token);
    }

    fn told(&mut self, net: &mut Net, _: FlowId, news: News) {
        match news {
            News::Finished => self.finished += 1,
            News::Gone => {
                if let Some(spec) = self.next {
                    let start = net.now();
                    net.open_labelled(FlowSpec { start, ..spec }, 7);
                }
            }
            _ => {}
        }
    }
}

fn request(request_bytes: u64, response_bytes: u64) -> Work {
    Work::Request {
        request_bytes,
        response_bytes,
    }
}

/// Two sublinks between access lines; acknowledgements take a line of their own.
fn trunk() -> (World<Turns>, PathId, PathId) {
    let mut world = World::with_site(1, Turns::default());
    let sublinks = [(); 2].map(|()| world.add_link(line(10_000_000, 5 * MS)));
    let [enters, leaves, returns] = [(); 3].map(|()| world.add_link(line(100_000_000, MS)));
    let hops: [Hop; 3] = [enters.into(), SiteId(0).into(), leaves.into()];
    let there = world.add_path(&hops);
    let back = world.add_path(&[returns]);
    world.site.sublinks = sublinks.to_vec();
    world.site.passed = vec![0; 2];
    (world, there, back)
}

fn spec(work: Work, forward: PathId, back: PathId) -> FlowSpec {
    FlowSpec {
        start: Time::ZERO,
        work,
        forward,
        back,
        tcp: TcpConfig::default(),
    }
}

#[test]
fn a_site_decides_packet_by_packet_and_the_rest_of_the_path_follows() {
    let (mut world, there, back) = trunk();
    world.open_labelled(spec(Work::Transfer(1_000_000), there, back), 7);
    world.wake_at(Time::ZERO, 1);
    world.run_until(Time::from_millis(5_000));
    let passed = &world.site.passed;
    assert!(
        passed[0] > 300 && passed[0].abs_diff(passed[1]) <= 1,
        "{passed:?}"
    );
    assert_eq!(world.site.finished, 1);
    assert!(world.conserves() && world.packets() == 0);
    assert_eq!(world.site.wakes.len(), 501);
    assert_eq!(world.site.wakes[500], 5_000 * MS);
}

#[test]
fn a_response_takes_two_round_trips_and_its_transmission() {
    let mut world = World::new(1);
    let ideal = line(1_000_000_000_000, 20 * MS);
    let slow = LinkSpec {
        rate_bps: 12_000_000, // 1 ms per full segment
        ..ideal
    };
    let (up, down) = (world.add_link(ideal), world.add_link(slow));
    let (there, back) = (world.add_path(&[up]), world.add_path(&[down]));
    let flow = world.open(spec(request(200, 14_480), there, back));
    world.run_until(Time::from_millis(1_000));
    let times = world.times(flow);
    let ms = |time: Option<Time>| time.expect("it came").as_nanos() as f64 / 1e6;
    assert!((ms(times.established) - 40.03).abs() < 0.01);
    assert!((ms(times.first_byte) - 81.06).abs() < 0.04, "{times:?}");
    assert!((ms(times.finished) - 90.06).abs() < 0.05, "{times:?}");
    assert_eq!(world.opener(flow).received_segments(), 11, "10 and the FIN");
    assert_eq!(world.receiver(flow).received_segments(), 2, "1 and the FIN");
}

/// Places used after `ms` of ten requests at a time, one after the other, over a lossy trunk.
fn places(ms: u64) -> (usize, usize, u64) {
    let mut world = World::with_site(5, Turns::default());
    let lossy = LinkSpec {
        loss: Loss::Independent { probability: 0.03 },
        ..line(10_000_000, 5 * MS)
    };
    let sublinks = [(); 2].map(|()| world.add_link(lossy));
    let returns = world.add_link(lossy);
    let there = world.add_path(&[SiteId(0)]);
    let back = world.add_path(&[returns]);
    world.site.sublinks = sublinks.to_vec();
    world.site.passed = vec![0; 2];
    let spec = spec(request(200, 20_000), there, back);
    world.site.next = Some(spec);
    for _ in 0..10 {
        world.open_labelled(spec, 7);
    }
    world.run_until(Time::from_millis(ms));
    assert!(world.conserves());
    (
        world.side_places(),
        world.packet_places(),
        world.site.finished,
    )
}

#[test]
fn memory_does_not_grow_with_simulated_time() {
    let (sides, packets, few) = places(20_000);
    let (sides_later, packets_later, many) = places(200_000);
    println!(
        "sides {sides} → {sides_later}, packets {packets} → {packets_later}, flows {few} → {many}"
    );
    assert!(many > 8 * few && few > 100);
    assert!(sides_later <= sides + sides / 2 + 8);
    assert!(packets_later <= packets + packets / 2 + 32);
}
