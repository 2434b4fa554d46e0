//! As many flows at once as one wants through one gateway.

use std::time::Duration;

use anabranch_core::{Balancer, ClassSpec, Config, LinkSpec as Told, Time};

use crate::gateway::{Gateway, Lines};
use crate::link::{Buffer, LinkSpec, Loss};
use crate::tcp::TcpConfig;
use crate::world::{FlowSpec, Work, World};

/// All flows are open, or through, when this is over.
pub const OPENING: Duration = Duration::from_secs(10);
const LINKS: u64 = 4;
/// Each flow's part of the links.
const FLOW_BPS: u64 = 40_000;
/// No link is slower, however few flows there are.
const LEAST_BPS: u64 = 10_000_000;
const RESPONSE_BYTES: u64 = 1_000_000;

/// A gateway with four equal links and `flows` downloads of 1 MB, opened evenly within [`OPENING`] and sent over the
/// links in turn. The links give each 40 kbit/s, so that few are through before all are open.
pub fn crowd(flows: u64) -> World<Gateway> {
    let rate_bps = (flows * FLOW_BPS / LINKS).max(LEAST_BPS);
    let mut world = site(rate_bps);
    let to_gateway = world.add_path(&[Gateway::LAN]);
    let apart = OPENING / u32::try_from(flows.max(1)).unwrap_or(u32::MAX);
    let mut start = Time::ZERO;
    for _ in 0..flows {
        world.open(FlowSpec {
            start,
            work: Work::Request {
                request_bytes: crate::HEAD_BYTES,
                response_bytes: RESPONSE_BYTES,
            },
            forward: to_gateway,
            back: to_gateway,
            tcp: TcpConfig::default(),
        });
        start = start + apart;
    }
    world
}

fn site(rate_bps: u64) -> World<Gateway> {
    let line = LinkSpec {
        rate_bps,
        delay_ns: 10_000_000,
        buffer: Buffer::Bytes(rate_bps / 8 / 10), // 100 ms
        loss: Loss::None,
    };
    let mut network = World::new(1);
    let mut lines = Vec::new();
    let mut told = Vec::new();
    for i in 0..LINKS {
        lines.push(Lines {
            up: vec![network.add_link(line)],
            down: vec![network.add_link(line)],
            routed: false,
        });
        told.push(Told {
            name: i.to_string(),
            ..Told::default()
        });
    }
    let in_turn = ClassSpec::alone("RR".parse().expect("a policy of the table"));
    let balancer = Balancer::new(Time::ZERO, in_turn, told, Config::default())
        .expect("links of a policy that needs no rates");
    let mut world = network.become_site(Gateway::new(balancer, &lines, 1));
    let (gateway, net) = world.parts();
    gateway.begin(net);
    world
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_of_a_crowd_is_open_at_once_and_pays_in_proportion() {
        let places = |flows| {
            let mut world = crowd(flows);
            world.run_until(Time::ZERO + OPENING);
            assert!(world.flow_count() as u64 > flows * 9 / 10);
            assert!(world.conserves());
            (world.side_places(), world.packet_places())
        };
        let ((few, _), (many, packets)) = (places(2_000), places(8_000));
        assert!(many <= 8_000 * 2 + 2_000, "two sides a flow: {many}");
        assert!(many < few * 5 && packets < 8_000);
    }
}
