//! The lines between hosts and their node.
//!
//! All hosts of a side stand behind one cable. Whatever leaves a device at its ends is sorted by host (nftables gives
//! each packet its host's class), and every host has a token bucket and a queue of its own (HTB). Propagation is the
//! line back's, as that of everything else.

use std::fmt::Write;

use anabranch_scenario::{Families, Family, Hosts, Line};

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

/// Gives each of `count` hosts its line, for packets of any family that leave `node` by `device`.
pub(super) fn lay(
    node: &Namespace,
    device: &str,
    side: Host,
    (hosts, count): (Hosts, u32),
    families: Families,
    line: &Line,
) -> Result<()> {
    let rate = frame_rate_bps(line.rate_bps);
    let limit = frame_limit_bytes(line.buffer);
    let mut shapers = format!("qdisc add dev {device} root handle 1: htb\n");
    for class in 1..=count {
        // Writing to a string cannot fail.
        let _ = writeln!(
            shapers,
            "class add dev {device} parent 1: classid 1:{class:x} htb rate {rate}bit burst {BURST_BYTES} cburst {BURST_BYTES} quantum {FRAME_BYTES}\nqdisc add dev {device} parent 1:{class:x} bfifo limit {limit}"
        );
    }
    node.exec_with_input("tc", &["-batch", "-"], &shapers)?;
    let sorting = families.list().iter().map(|&family| {
        let (header, address) = match (family, side) {
            (Family::V4, Host::Source) => ("ip", "saddr"),
            (Family::V4, Host::Destination) => ("ip", "daddr"),
            (Family::V6, Host::Source) => ("ip6", "saddr"),
            (Family::V6, Host::Destination) => ("ip6", "daddr"),
        };
        let class = |number| format!("{} : 1:{:x}", hosts.address(family, number), number + 1);
        let classes: Vec<String> = (0..count).map(class).collect();
        format!(
            "oifname \"{device}\" meta priority set {header} {address} map {{ {} }}\n",
            classes.join(", ")
        )
    });
    let sorting = format!(
        "table inet access {{\nchain sort {{\ntype filter hook postrouting priority 0\n{}}}\n}}\n",
        sorting.collect::<String>()
    );
    node.nft(&sorting)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use anabranch_scenario::Buffer;

    use super::*;
    use crate::topology::{CLIENTS, lan};
    use anabranch_testbed::emulator::lossless;

    /// Two hosts' packets, of a family each, 40 kB each, at 800 kbit/s of IP packets per host.
    #[test]
    fn every_host_has_its_own_rate() {
        let [near, far] = ["near", "far"].map(|label| Namespace::create(label).unwrap());
        near.veth("lan", &far, "lan").unwrap();
        near.set_offloads("lan", false).unwrap();
        let hosts = [(Family::V4, 0), (Family::V6, 1)];
        let hosts = hosts.map(|(family, number)| CLIENTS.address(family, number));
        for (family, host) in [(Family::V4, hosts[0]), (Family::V6, hosts[1])] {
            let (own, length) = lan(family);
            near.add_address("lan", own, length).unwrap();
            far.add_address("lan", host, length).unwrap();
        }
        let line = Line {
            buffer: Buffer::Unlimited,
            ..lossless(800_000, Duration::ZERO)
        };
        let both = Families::Both;
        lay(&near, "lan", Host::Destination, (CLIENTS, 2), both, &line).unwrap();
        let receivers = far
            .run(|| hosts.map(|host| std::net::UdpSocket::bind((host, 9)).unwrap()))
            .unwrap();
        let begun = Instant::now();
        near.run(|| {
            let senders = ["0.0.0.0:0", "[::]:0"];
            let senders = senders.map(|any| std::net::UdpSocket::bind(any).unwrap());
            // Of 1000 bytes with their headers.
            let payloads: [&[u8]; 2] = [&[0; 972], &[0; 952]];
            for host in [0, 1].repeat(40) {
                let to = (hosts[host], 9);
                senders[host].send_to(payloads[host], to).unwrap();
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
