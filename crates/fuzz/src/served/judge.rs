//! Whether what became of a packet may be. Nothing here is shared with the programs.

use std::net::{IpAddr, SocketAddr};

use anabranch_policy::{Fate, Reason};

use super::rig::Left;
use super::shot::Shot;
use super::world::{GUE_PORT, MTU, Way, answering, called};
use crate::read::{ETHERNET, Ip, TCP, UDP, word};
use crate::sum;

const PASSED: u32 = u32::MAX;
const DROPPED: u32 = 2;
const REDIRECTED: u32 = 7;
const GUE_BYTES: usize = 12;

type Judged = Result<(), String>;

fn demand(holds: bool, words: &str) -> Judged {
    holds.then_some(()).ok_or_else(|| words.to_owned())
}

/// What must not be.
///
/// # Errors
/// It is.
pub fn judge(shot: &Shot, left: &Left) -> Judged {
    let why = left.why().ok_or("not for one reason")?;
    match why.fate {
        Fate::Passed => {
            demand(left.action == PASSED, "what passes is dropped or sent")?;
            return demand(left.frame == shot.frame, "what passes is changed");
        }
        Fate::Dropped => demand(left.action == DROPPED, "what is dropped is not")?,
        _ => {}
    }
    let ip = shot.ip().ok_or("no whole packet, and it does not pass")?;
    demand(
        shot.is_for_us(),
        "a frame for another host, and it does not pass",
    )?;
    match why.fate {
        Fate::Dropped => claim_holds(why, &ip),
        Fate::Refused => refused(why, &ip, left),
        _ => {
            demand(left.action == REDIRECTED, "what is sent is not")?;
            sent(why, &ip, left, shot.is_layer3)
        }
    }
}

fn port_to(ip: &Ip) -> Option<u16> {
    Some(ip.ports()?.1)
}

fn way_called(ip: &Ip) -> Option<Way> {
    // What a later fragment is of says only the first.
    let proto = if ip.is_later_fragment() {
        TCP
    } else {
        ip.proto()
    };
    called(proto, ip.dst(), port_to(ip))
}

fn way_answering(ip: &Ip) -> Option<Way> {
    answering(ip.src(), Some(ip.ports()?.0))
}

/// Of what is dropped.
fn claim_holds(why: &Reason, ip: &Ip) -> Judged {
    let (is_of_service, is_error) = (way_called(ip).is_some(), ip.is_icmp_error());
    let holds = match why.name {
        "TTL" => ip.ttl() <= 1,
        "BAD_ERROR" => is_error,
        "BAD_FRAGMENT" => ip.is_fragment(),
        "UNKNOWN" => way_called(ip) == Some(Way::Tunnel),
        "TOO_MANY" | "PORT_TAKEN" | "TABLE_FULL" => is_of_service,
        _ => false,
    };
    demand(holds, "dropped for a reason that does not hold")
}

/// An answer by the host that was called.
fn refused(why: &Reason, ip: &Ip, left: &Left) -> Judged {
    let is_long = ip.length() + 52 > MTU;
    demand(
        if why.name == "TOO_BIG" {
            is_long
        } else {
            way_called(ip).is_some()
        },
        "refused, and no service is called, or it is short",
    )?;
    // No error is about a later fragment or another error, and their rate is limited.
    if left.action == DROPPED {
        return Ok(());
    }
    let frame_ip = packet_of(left);
    let out = frame_ip.ok_or("an answer that is no packet")?;
    demand(left.action == REDIRECTED, "an answer that does not leave")?;
    demand(
        (out.src(), out.dst()) == (ip.dst(), ip.src()),
        "an answer that is not to its sender",
    )?;
    sums_are_right(&out)
}

/// With Ethernet or without, as the context does not tell. A header that was added is filled when the neighbour is known.
fn packet_of(left: &Left) -> Option<Ip<'_>> {
    let behind = left.frame.strip_prefix(&[0; ETHERNET]);
    let behind = behind.and_then(Ip::of);
    Ip::of_frame(&left.frame)
        .or(behind)
        .or_else(|| Ip::of(&left.frame))
}

fn sums_are_right(out: &Ip) -> Judged {
    header_is_right(out)?;
    demand(
        sum::transport(out).is_none_or(|sum| sum == 0xffff),
        "a wrong checksum",
    )
}

fn header_is_right(out: &Ip) -> Judged {
    let header = usize::from(out.bytes[0] & 15) * 4;
    demand(
        out.is_ipv6() || sum::sum(&out.bytes[..header]) == 0xffff,
        "a wrong checksum of a header",
    )
}

fn sent(why: &Reason, ip: &Ip, left: &Left, is_layer3: bool) -> Judged {
    let out = packet_of(left).ok_or("what is sent is no packet")?;
    header_is_right(&out)?;
    match why.name {
        "TO_SERVER" | "HASHED" | "FORMER" => {
            let way = way_called(ip).ok_or("sent to a server, and no service is called")?;
            match way {
                // `BPF_PROG_TEST_RUN` takes the first bytes for an Ethernet header, behind which the kernel makes room.
                Way::Tunnel if is_layer3 => Ok(()),
                Way::Tunnel => tunnelled(way, ip, &out),
                _ => {
                    let servers: Vec<SocketAddr> = way.servers(ip.dst().into()).collect();
                    translated(ip, &out, &servers, true)
                }
            }
        }
        "TO_CLIENT" | "ALIASED" => {
            let way = match ip.is_later_fragment() {
                true => answering(ip.src(), None),
                false => way_answering(ip),
            };
            let way = way.ok_or("sent to a client, and by no server")?;
            translated(ip, &out, &[way.endpoint(ip.src().into())], false)
        }
        "ERROR_TO_SERVER" | "ERROR_TO_CLIENT" => error(why, ip, &out),
        _ => Err("a fate that is not judged".to_owned()),
    }
}

/// But for one end, the time to live and what depends on them, it is as it came.
fn translated(ip: &Ip, out: &Ip, ends: &[SocketAddr], is_inbound: bool) -> Judged {
    let changed = |ip: &Ip| if is_inbound { ip.dst() } else { ip.src() };
    let kept = |ip: &Ip| if is_inbound { ip.src() } else { ip.dst() };
    let end = ends.iter().find(|end| end.ip() == changed(out));
    let end = end.ok_or("sent to, or as, somebody else")?;
    demand(kept(out) == kept(ip), "another end is changed, too")?;
    demand(
        out.ttl() == ip.ttl().wrapping_sub(1),
        "the time to live is not one less",
    )?;
    if let (Some(now), Some(before)) = (out.ports(), ip.ports()) {
        let ports = if is_inbound {
            [now.1, now.0, before.0]
        } else {
            [now.0, now.1, before.1]
        };
        demand(ports[0] == end.port(), "a port of nobody")?;
        demand(ports[1] == ports[2], "the other port is changed, too")?;
    }
    if ip.length() > MTU {
        demand(out.length() <= MTU, "longer than the device may send")?;
        return demand(out.is_fragment(), "cut, and no fragment");
    }
    if !ip.is_fragment() {
        demand(
            sum::follows(sum::transport(ip), sum::transport(out)),
            "a checksum that does not follow",
        )?;
    }
    demand(
        blank(ip) == blank(out),
        "something that translation does not change",
    )
}

/// Without what translation changes.
fn blank(ip: &Ip) -> Vec<u8> {
    let mut bytes = ip.bytes[..ip.length()].to_vec();
    let (at, size) = ip.addresses();
    bytes[at..at + 2 * size].fill(0);
    bytes[ip.ttl_at()] = 0;
    match ip.is_ipv6() {
        // The flow label is the host's own.
        true => {
            bytes[1] &= 0xf0;
            bytes[2..4].fill(0);
        }
        false => bytes[10..12].fill(0),
    }
    // Datagrams in pieces have ids of the host's own.
    if let Some(id) = ip.id_at().filter(|_| ip.is_fragment()) {
        let length = if ip.is_ipv6() { 4 } else { 2 };
        bytes[id..id + length].fill(0);
    }
    if !ip.is_later_fragment() && ip.ports().is_some() {
        let body = ip.header();
        bytes[body..body + 4].fill(0);
        if let Some(check) = sum::field(ip.proto()) {
            bytes[body + check..body + check + 2].fill(0);
        }
        if ip
            .flags()
            .is_some_and(|flags| flags & crate::build::SYN != 0)
        {
            let header = usize::from(bytes[body + 12] >> 4) * 4;
            let end = bytes.len().min(body + header.max(20));
            bytes[body + 20..end].fill(0);
        }
    }
    bytes
}

/// The packet is whole inside of another one to its server.
fn tunnelled(way: Way, ip: &Ip, out: &Ip) -> Judged {
    let mut servers = way.servers(ip.dst().into());
    let number = servers.position(|server| server.ip() == out.dst());
    let number = number.ok_or("a tunnel to nobody")?;
    let protocol = if ip.is_ipv6() { 41 } else { 4 };
    let inner = match number {
        0 => {
            let gue = out.body();
            demand(out.proto() == UDP, "GUE is of UDP")?;
            demand(
                word(gue, 2) == GUE_PORT && usize::from(word(gue, 4)) == gue.len(),
                "a wrong header of GUE",
            )?;
            demand(
                gue[8] == 0 && gue[9] == protocol && word(gue, 10) == 0,
                "GUE of something else",
            )?;
            &gue[GUE_BYTES..]
        }
        _ => {
            demand(out.proto() == protocol, "a tunnel of something else")?;
            out.body()
        }
    };
    demand(out.length() <= MTU, "longer than the device may send")?;
    if out.header() + GUE_BYTES * usize::from(number == 0) + ip.length() > MTU {
        let piece = Ip::of(inner).ok_or("no packet in a tunnel")?;
        return demand(piece.is_fragment(), "cut, and no fragment");
    }
    demand(
        inner == &ip.bytes[..ip.length()],
        "what is in a tunnel is changed",
    )
}

/// An error is as right as it was, and is to whom the packet is from that it is about.
fn error(why: &Reason, ip: &Ip, out: &Ip) -> Judged {
    demand(out.is_icmp_error(), "no error any more")?;
    sums_are_right(out)?;
    let quote = out.quote().ok_or("an error about nothing")?;
    demand(out.dst() == quote.src(), "an error to somebody else")?;
    let is_of = |address: IpAddr| answering(address, None).is_some();
    match why.name {
        "ERROR_TO_CLIENT" => {
            demand(out.dst() == ip.dst(), "to another client")?;
            demand(
                called(TCP, quote.dst(), None).is_some() && out.src() == quote.dst(),
                "an error that names the server",
            )
        }
        _ if called(TCP, ip.dst(), None) == Some(Way::Tunnel) => Ok(()),
        _ => demand(
            is_of(out.dst()) && out.src() == ip.src(),
            "an error to no server",
        ),
    }
}
