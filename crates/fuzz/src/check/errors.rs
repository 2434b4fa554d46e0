//! ICMP errors about a flow's packets.

use std::net::IpAddr;

use super::same::{changed_at, changed_in_header, demand_equal, header_sum, port_at};
use super::{Case, Verdict, Way, changed_address, demand_hop, end_of, ends};
use crate::memory::stream;
use crate::read::Ip;
use crate::site::{Port, is_never_forwarded, lan_of, link_of};
use crate::sum;

impl Case<'_> {
    /// An ICMP error about a flow's packet: outer and quoted header change, and the sums with them.
    pub(super) fn error(&self, way: Way) -> Verdict {
        let (came, left) = (self.came()?, self.left()?);
        let quotes = came.quote().zip(left.quote());
        let (was, is) = quotes.ok_or("the quote is cut short")?;
        demand_hop(&came, &left)?;
        demand!(
            sum::transport(&came) == Some(0xffff),
            "its ICMP checksum was wrong when it came"
        );
        demand!(
            sum::transport(&left) == Some(0xffff),
            "the ICMP checksum is wrong"
        );
        let ports = was.ports().zip(is.ports());
        let (from, to) = ports.ok_or("the quote has no ports")?;
        // What the remote end saw as source is what it quotes as source.
        let inner = way.back();
        let quoted = stream(&is).zip(was.seq());
        let is_sent = quoted.is_none_or(|(stream, seq)| self.memory.may_be_sent(stream, seq));
        // Of a LAN host's errors the programs follow more than what left.
        demand!(
            way == Way::Out || is_sent,
            "it quotes what was not sent yet"
        );
        let (local, remote) = ends(inner, &was, from);
        let flow = self.flow(was.proto(), local, remote)?;
        let address = changed_address(inner, &is);
        self.demand_end(way, &flow, (address, end_of(inner, to)))?;
        demand!(
            changed_address(way, &left) == address,
            "outer and quoted address differ"
        );
        demand_quoted_sums(&was, &is)?;
        let expected = match way {
            Way::In => self.named(&came, &left)?,
            Way::Out => came.bytes.to_vec(),
        };
        is_the_same_error(way, expected, &left, &was)
    }

    /// The error as it came, but from the link's address if it came from one that is known on one line alone, or is the site's.
    fn named(&self, came: &Ip, left: &Ip) -> Result<Vec<u8>, String> {
        let (from, named) = (came.src(), left.src());
        let mut expected = came.bytes.to_vec();
        if !is_of_line(from) && !is_of_site(from) {
            demand!(!is_never_forwarded(from), "{from} is nobody's to the LAN");
            return Ok(expected);
        }
        let is_links = matches!(self.port, Port::Link(link) if link_of(named) == Some(link));
        demand!(is_links, "{from} became {named}, which is not the link's");
        let (at, length) = came.addresses();
        expected[at..at + length].copy_from_slice(&left.bytes[at..at + length]);
        Ok(expected)
    }
}

fn is_of_site(address: IpAddr) -> bool {
    lan_of(address).is_some() || link_of(address).is_some()
}

fn is_of_line(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

fn demand_quoted_sums(was: &Ip, is: &Ip) -> Verdict {
    let before = sum::sum(&was.bytes[..was.header()]);
    let after = sum::sum(&is.bytes[..is.header()]);
    demand!(
        was.is_ipv6() || sum::is_same(before, after),
        "the quoted header's checksum does not follow"
    );
    demand!(
        sum::follows(sum::transport(was), sum::transport(is)),
        "the quoted transport checksum was not restored"
    );
    Ok(())
}

/// Nothing of what was `expected` changed but what translation does, outside and in the quote, which was `was`.
fn is_the_same_error(way: Way, mut expected: Vec<u8>, left: &Ip, was: &Ip) -> Verdict {
    let inner = way.back();
    let quote = left.header() + 8;
    let check = sum::field_of(was).filter(|at| at + 2 <= was.body().len());
    let quoted = [
        Some(changed_at(inner, was)),
        header_sum(was),
        Some((was.header() + port_at(inner, was.proto()), 2)),
        check.map(|at| (was.header() + at, 2)),
    ];
    let quoted = quoted
        .into_iter()
        .flatten()
        .map(|(at, length)| (quote + at, length));
    let message = [(left.header() + 2, 2)];
    for (at, length) in changed_in_header(way, left).chain(message).chain(quoted) {
        expected[at..at + length].copy_from_slice(&left.bytes[at..at + length]);
    }
    demand_equal(&expected, left.bytes)
}
