//! Frames that tests, benchmarks and floods build and read.
//!
//! [`build`] makes packets of either family: [`tcp`], [`udp`], [`icmp`] and others return a value whose fields can be changed
//! before [`Ip::packet`] or [`Ip::frame`] turns it into bytes. [`read`] is the way back. [`socket`] sends packets past the
//! sockets of the kernel.
//!
//! Headers are those of etherparse. Checksums are computed here, so that nothing is shared with the programs in C.

pub mod build;
pub mod read;
pub mod socket;

pub use build::*;
pub use etherparse::{IpNumber, TcpHeader, UdpHeader};
pub use read::*;
pub use socket::*;

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn ends() -> [[IpAddr; 2]; 2] {
        [["10.0.0.2", "192.0.2.1"], ["fd00::2", "2001:db8::1"]]
            .map(|ends| ends.map(|end| end.parse().unwrap()))
    }

    #[test]
    fn what_is_built_is_read_with_right_checksums() {
        for [from, to] in ends() {
            let segment = tcp((from, 4000), (to, 80), "SA", 7, 9).options(&mss_option(1400));
            let seen = read(&segment.frame());
            assert_eq!(
                (seen.src(), seen.dst()),
                ((from, 4000).into(), (to, 80).into())
            );
            let header = seen.tcp();
            assert!(header.syn && header.ack && !header.fin && !header.urg);
            assert_eq!(
                (header.sequence_number, header.acknowledgment_number),
                (7, 9)
            );
            assert_eq!(seen.mss(), Some(1400));
            let error = icmp(to, from, (3, 1), [0; 4], &segment.ip().packet());
            assert_eq!(quote(&read(&error.frame())), seen);
        }
    }

    #[test]
    fn fragments_together_are_the_datagram() {
        for [from, to] in ends() {
            let whole = udp((from, 4000), (to, 53), &[7; 100]).id(5);
            let pieces = [(0, 64), (64, 200)].map(|(from, to)| {
                let seen = read(&whole.fragment(from, to).frame());
                (seen.ip.fragment.unwrap(), seen.payload().to_vec())
            });
            let [(first, head), (last, tail)] = pieces;
            assert!(first.more && !last.more && last.offset == 64);
            assert_eq!([head, tail].concat(), whole.body);
        }
    }

    #[test]
    #[should_panic(expected = "checksum")]
    fn a_wrong_checksum_is_noticed() {
        let [[from, to], _] = ends();
        let mut frame = udp((from, 4000), (to, 53), b"query").frame();
        *frame.last_mut().unwrap() ^= 1;
        read(&frame);
    }
}
