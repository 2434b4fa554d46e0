//! In which order packets arrive (RFC 4737, section 3: a packet is reordered if one with a higher sending number came
//! before it).
//!
//! The sending number is the IP identification: Linux counts a connection's packets in it, one by one, retransmissions
//! like others (`__ip_select_ident`, net/ipv4). So a segment that is sent again after a loss is not taken for a reordered
//! one, which by TCP's own numbers it could not be told from. IPv6 has none: there the packets of all servers are counted in the
//! flow label as they leave ([`number`]), which neither a trunk nor a host looks at.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read};
use std::ops::AddAssign;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anabranch_scenario::Family;
use socket2::{Domain, Protocol, Socket, Type};

use crate::topology::{Result, io_error};
use anabranch_testbed::netns::Namespace;

/// Counts the packets of IPv6 that leave `node` by `device` in their flow labels. What is written is the first word of the header,
/// because nftables writes whole bytes; ECN, of which senders say no more than ECT(0), is kept.
pub(super) fn number(node: &Namespace, device: &str) -> Result<()> {
    const VERSION: u32 = 6 << 28;
    let numbers = 1u32 << LABEL_BITS;
    let rules = format!(
        "table ip6 order {{\nchain number {{\ntype filter hook postrouting priority 0\noifname != \"{device}\" return\nip6 ecn ect0 meta mark set 1\n@nh,0,32 set numgen inc mod {numbers} offset {VERSION}\nmeta mark 1 ip6 ecn set ect0\n}}\n}}\n"
    );
    node.nft(&rules)?;
    Ok(())
}

const LABEL_BITS: u32 = 20;

/// The longest IP and TCP headers.
const HEADERS_BYTES: usize = 120;
/// Of the flags of a TCP header.
const SYN: u8 = 2;
const BUFFER_BYTES: usize = 8 << 20;
/// How often the thread looks whether it is to stop.
const PATIENCE: Duration = Duration::from_millis(50);

/// Counts data segments at the hosts of a namespace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Order {
    pub reordered: u64,
    /// Not seen, because this process was too slow.
    pub missed: u64,
}

impl AddAssign for Order {
    fn add_assign(&mut self, other: Self) {
        self.reordered += other.reordered;
        self.missed += other.missed;
    }
}

impl Order {
    /// Why the count cannot be trusted; empty if it can.
    pub fn problems(&self) -> Vec<String> {
        let missed = (self.missed > 0).then(|| {
            format!(
                "{} packets were not looked at for reordering: too much load for this machine",
                self.missed
            )
        });
        missed.into_iter().collect()
    }
}

/// A thread that looks at what arrives, until it is told to stop.
pub(super) struct Watcher {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Order>>,
}

impl Watcher {
    pub fn start(namespace: &Namespace, family: Family) -> Result<Self> {
        let socket = namespace.run(|| open(family))?;
        let socket = socket.map_err(io_error("opening a packet socket"))?;
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("order".into())
            .spawn(move || watch(&socket, &told))
            .map_err(io_error("starting a thread"))?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }

    /// Ends the watch.
    pub fn stop(mut self) -> Order {
        self.join().unwrap_or_default()
    }

    fn join(&mut self) -> Option<Order> {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take()?;
        Some(
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
        )
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread is told by the panic itself.
            let _ = thread.join();
        }
    }
}

/// Sees the packets of a family that arrive on any device of the thread's namespace, from their IP header on.
fn open(family: Family) -> io::Result<Socket> {
    let protocol = match family {
        Family::V4 => libc::ETH_P_IP,
        Family::V6 => libc::ETH_P_IPV6,
    };
    let protocol = i32::from((protocol as u16).to_be());
    let socket = Socket::new(Domain::PACKET, Type::DGRAM, Some(Protocol::from(protocol)))?;
    socket.set_recv_buffer_size(BUFFER_BYTES)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    Ok(socket)
}

fn watch(mut socket: &Socket, stop: &AtomicBool) -> Order {
    let mut flows = Flows::default();
    let mut order = Order::default();
    let mut packet = [0; HEADERS_BYTES];
    while !stop.load(Ordering::Relaxed) {
        match socket.read(&mut packet) {
            Ok(length) => {
                if let Some(segment) = Segment::read(&packet[..length]) {
                    order.reordered += u64::from(flows.is_late(&segment));
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => break,
        }
    }
    order.missed = missed(socket);
    order
}

/// What the socket had no room for (packet(7), PACKET_STATISTICS).
fn missed(socket: &Socket) -> u64 {
    let mut statistics = libc::tpacket_stats {
        tp_packets: 0,
        tp_drops: 0,
    };
    let mut length = size_of::<libc::tpacket_stats>() as libc::socklen_t;
    // SAFETY: the pointers lead to a structure of the length told, and to that length.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            std::ptr::from_mut(&mut statistics).cast(),
            &mut length,
        )
    };
    if result == 0 {
        statistics.tp_drops.into()
    } else {
        0
    }
}

/// Both addresses, those of IPv4 behind zeros, and both ports, as they stand in the headers.
type FlowKey = [u8; 36];

/// A TCP segment with data, or one that opens a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Segment {
    flow: FlowKey,
    /// Numbers are counted in the upper bits, so that they wrap around with the word.
    id: u32,
    opens: bool,
}

impl Segment {
    fn read(packet: &[u8]) -> Option<Self> {
        match packet.first()? >> 4 {
            4 => Self::read_v4(packet),
            6 => Self::read_v6(packet),
            _ => None,
        }
    }

    fn read_v4(packet: &[u8]) -> Option<Self> {
        let header = usize::from(packet.first()? & 15) * 4;
        let (fragment, protocol) = (word(packet, 6)?, *packet.get(9)?);
        if protocol != libc::IPPROTO_TCP as u8 || fragment & 0x3fff != 0 {
            return None;
        }
        let id = u32::from(word(packet, 4)?) << 16;
        let total = usize::from(word(packet, 2)?);
        Self::read_tcp(packet, packet.get(12..20)?, header, total, id)
    }

    /// Nobody sends extension headers here.
    fn read_v6(packet: &[u8]) -> Option<Self> {
        const HEADER_BYTES: usize = 40;
        if *packet.get(6)? != libc::IPPROTO_TCP as u8 {
            return None;
        }
        let first = u32::from_be_bytes(packet.get(..4)?.try_into().ok()?);
        let id = first << (u32::BITS - LABEL_BITS);
        let total = HEADER_BYTES + usize::from(word(packet, 4)?);
        Self::read_tcp(
            packet,
            packet.get(8..HEADER_BYTES)?,
            HEADER_BYTES,
            total,
            id,
        )
    }

    fn read_tcp(
        packet: &[u8],
        addresses: &[u8],
        header: usize,
        total: usize,
        id: u32,
    ) -> Option<Self> {
        let data_at = header + usize::from(packet.get(header + 12)? >> 4) * 4;
        let mut flow = [0; 36];
        flow[32 - addresses.len()..32].copy_from_slice(addresses);
        flow[32..].copy_from_slice(packet.get(header..header + 4)?);
        let opens = packet.get(header + 13)? & SYN != 0;
        (opens || total > data_at).then_some(Self { flow, id, opens })
    }
}

fn word(packet: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(packet.get(at..at + 2)?.try_into().ok()?))
}

/// The highest number of every flow, which wraps around.
#[derive(Debug, Default)]
struct Flows(HashMap<FlowKey, u32>);

impl Flows {
    /// A connection begins anew with its SYN: ports are used again, and each connection counts from where it likes.
    fn is_late(&mut self, segment: &Segment) -> bool {
        if segment.opens {
            self.0.remove(&segment.flow);
            return false;
        }
        let highest = self.0.entry(segment.flow).or_insert(segment.id);
        let ahead = segment.id.wrapping_sub(*highest).cast_signed();
        if ahead > 0 {
            *highest = segment.id;
        }
        ahead < 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An IPv4 packet with a TCP header and `payload` bytes.
    fn packet(id: u16, port: u8, payload: usize) -> Vec<u8> {
        let mut packet = vec![0; 40 + payload];
        packet[0] = 0x45;
        packet[2..4].copy_from_slice(&(40 + payload as u16).to_be_bytes());
        packet[4..6].copy_from_slice(&id.to_be_bytes());
        packet[6] = 0x40;
        packet[9] = 6;
        packet[12..20].copy_from_slice(&[198, 51, 100, 10, 10, 80, 1, 1]);
        packet[21] = 80;
        packet[23] = port;
        packet[32] = 0x50;
        packet
    }

    /// The same of IPv6, with a number in its flow label.
    fn packet6(number: u32, payload: usize) -> Vec<u8> {
        let mut packet = vec![0; 60 + payload];
        packet[..4].copy_from_slice(&(6 << 28 | number).to_be_bytes());
        packet[4..6].copy_from_slice(&(20 + payload as u16).to_be_bytes());
        packet[6] = 6;
        packet[8] = 0x20;
        packet[24] = 0xfd;
        packet[52] = 0x50;
        packet
    }

    #[test]
    fn packets_of_ipv6_are_numbered_by_their_flow_labels() {
        let mut flows = Flows::default();
        let mut is_late = |number| flows.is_late(&Segment::read(&packet6(number, 9)).unwrap());
        let late = [1, 9, 3, 0xf_ffff, 2].map(&mut is_late);
        // The last but one is before the first, as numbers wrap around.
        assert_eq!(late, [false, false, true, true, true]);
        assert_eq!(Segment::read(&packet6(1, 0)), None);
    }

    fn late(ids: &[u16]) -> Vec<bool> {
        let mut flows = Flows::default();
        ids.iter()
            .map(|&id| flows.is_late(&Segment::read(&packet(id, 1, 9)).unwrap()))
            .collect()
    }

    #[test]
    fn a_segment_behind_one_that_was_sent_later_is_reordered() {
        assert_eq!(late(&[1, 2, 4, 3, 5]), [false, false, false, true, false]);
        assert_eq!(late(&[1, 3, 4, 2, 2]), [false, false, false, true, true]);
    }

    #[test]
    fn numbers_wrap_around() {
        assert_eq!(
            late(&[65_534, 65_535, 0, 65_533, 1]),
            [false, false, false, true, false]
        );
    }

    #[test]
    fn flows_do_not_concern_each_other() {
        let mut flows = Flows::default();
        let mut is_late = |id, port| flows.is_late(&Segment::read(&packet(id, port, 9)).unwrap());
        assert_eq!(
            [is_late(9, 1), is_late(3, 2), is_late(8, 1)],
            [false, false, true]
        );
    }

    #[test]
    fn a_connection_that_has_the_ports_of_another_counts_anew() {
        let mut flows = Flows::default();
        let mut syn = packet(0, 1, 0);
        syn[33] = SYN;
        let packets = [packet(9, 1, 9), syn, packet(3, 1, 9), packet(2, 1, 9)];
        let late = packets.map(|packet| flows.is_late(&Segment::read(&packet).unwrap()));
        assert_eq!(late, [false, false, false, true]);
    }

    #[test]
    fn acknowledgements_fragments_and_other_protocols_are_not_looked_at() {
        assert_eq!(Segment::read(&packet(1, 1, 0)), None);
        let mut fragment = packet(1, 1, 9);
        fragment[6] = 0x20;
        assert_eq!(Segment::read(&fragment), None);
        let mut udp = packet(1, 1, 9);
        udp[9] = 17;
        assert_eq!(Segment::read(&udp), None);
        assert_eq!(Segment::read(&packet(1, 1, 9)[..30]), None);
    }
}
