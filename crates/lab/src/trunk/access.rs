//! The lines between hosts and their node.
//!
//! All hosts of a side stand behind one cable. Whatever leaves a device at its ends is sorted by host (nftables gives
//! each packet its host's class), and every host has a token bucket and a queue of its own (HTB). Propagation is the
//! line back's, as that of everything else.

use std::fmt::Write;
use std::net::Ipv4Addr;

use anabranch_scenario::Line;

use super::plan::{FRAME_BYTES, frame_limit_bytes, frame_rate_bps};
use crate::topology::Result;
use anabranch_testbed::netns::Namespace;

/// What a token bucket lets go at once: a frame and the shaper's rounding.
pub(super) const BURST_BYTES: u64 = 1600;

/// Which address of a packet is the host's.
#[derive(Debug, Clone, Copy)]
pub(super) enum Host {
    /// The packet is on its way from the host.
    Source,
    /// To the host.
    Destination,
}

/// Gives every host its line, for packets that leave `node` by `device`.
pub(super) fn lay(
    node: &Namespace,
    device: &str,
    side: Host,
    hosts: impl Iterator<Item = Ipv4Addr>,
    line: &Line,
) -> Result<()> {
    let rate = frame_rate_bps(line.rate_bps);
    let limit = frame_limit_bytes(line.buffer);
    let mut shapers = format!("qdisc add dev {device} root handle 1: htb\n");
    let mut classes = Vec::new();
    for (host, class) in hosts.zip(1..) {
        // Writing to a string cannot fail.
        let _ = writeln!(
            shapers,
            "class add dev {device} parent 1: classid 1:{class:x} htb rate {rate}bit burst {BURST_BYTES} cburst {BURST_BYTES} quantum {FRAME_BYTES}\nqdisc add dev {device} parent 1:{class:x} bfifo limit {limit}"
        );
        classes.push(format!("{host} : 1:{class:x}"));
    }
    node.exec_with_input("tc", &["-batch", "-"], &shapers)?;
    let address = match side {
        Host::Source => "saddr",
        Host::Destination => "daddr",
    };
    let sorting = format!(
        "table ip access {{\nchain sort {{\ntype filter hook postrouting priority 0\noifname \"{device}\" meta priority set ip {address} map {{ {} }}\n}}\n}}\n",
        classes.join(", ")
    );
    node.exec_with_input("nft", &["-f", "-"], &sorting)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use anabranch_scenario::Buffer;

    use super::*;
    use anabranch_testbed::emulator::lossless;

    /// Two hosts' packets, 40 kB each, at 800 kbit/s of IP packets per host.
    #[test]
    fn every_host_has_its_own_rate() {
        let [near, far] = ["near", "far"].map(|label| Namespace::create(label).unwrap());
        near.veth("lan", &far, "lan").unwrap();
        near.set_offloads("lan", false).unwrap();
        let hosts = [1, 2].map(|host| Ipv4Addr::new(10, 80, 1, host));
        near.ip("address add 10.80.0.1/16 dev lan").unwrap();
        for host in hosts {
            far.ip(&format!("address add {host}/16 dev lan")).unwrap();
        }
        let line = Line {
            buffer: Buffer::Unlimited,
            ..lossless(800_000, Duration::ZERO)
        };
        lay(&near, "lan", Host::Destination, hosts.into_iter(), &line).unwrap();
        let receivers = far
            .run(|| hosts.map(|host| std::net::UdpSocket::bind((host, 9)).unwrap()))
            .unwrap();
        let begun = Instant::now();
        near.run(|| {
            let sender = std::net::UdpSocket::bind("10.80.0.1:0").unwrap();
            for host in [0, 1].repeat(40) {
                sender.send_to(&[0; 972], (hosts[host], 9)).unwrap();
            }
        })
        .unwrap();
        let last = receivers.map(|socket| {
            socket
                .set_read_timeout(Some(Duration::from_secs(10)))
                .unwrap();
            for _ in 0..40 {
                socket.recv(&mut [0; 2000]).unwrap();
            }
            begun.elapsed().as_secs_f64()
        });
        println!("40 packets of 1000 bytes at 800 kbit/s after {last:?} s");
        // 40 · 8000 bit / 800 kbit/s = 0.4 s, less the first frame, and a frame is converted as if it were a full one.
        assert!(last.iter().all(|s| (0.37..0.8).contains(s)), "{last:?}");
    }
}
