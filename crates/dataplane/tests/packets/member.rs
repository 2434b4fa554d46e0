//! The programs of a member: which packets are taken out of their tunnels, what is left of them, and what clients are told.

use std::{
    net::{IpAddr, SocketAddr},
    thread,
    time::Duration,
};

use anabranch_core::Family;
use anabranch_dataplane::{Ran, member::Member};
use anabranch_policy::abi::{Addr, MEMBER_ABI_VERSION, MemberAddress};
use anabranch_testbed::{
    netns::{Entered, Namespace},
    pins::PinFolder,
};
use aya::maps::{HashMap, Map, MapData};
use etherparse::IpNumber;
use nix::{
    sys::utsname::uname,
    time::{ClockId, clock_gettime},
};

use crate::{
    frame::{Ip, Seen, mss_option, read, sent_to, tcp, udp, udp_without_checksum},
    trunk::{TC_ACT_REDIRECT, TC_ACT_SHOT, TC_ACT_UNSPEC},
};

const GUE_PORT: u16 = 6080;
/// MTU of the loopback device.
const MTU: u16 = 1500;

const KINDS: [Kind; 2] = [Kind::Ipip, Kind::Gue];
const ALL_FAMILIES: [(Family, Family); 4] = [
    (Family::V4, Family::V4),
    (Family::V4, Family::V6),
    (Family::V6, Family::V4),
    (Family::V6, Family::V6),
];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Ipip,
    Gue,
}

impl Kind {
    fn reason(self) -> &'static str {
        match self {
            Kind::Ipip => "ipip",
            Kind::Gue => "gue",
        }
    }

    fn outer_bytes(self, family: Family) -> u16 {
        let ip = if family == Family::V4 { 20 } else { 40 };
        ip + if self == Kind::Gue { 12 } else { 0 }
    }
}

fn endpoint(family: Family, v4: &str, v6: &str, port: u16) -> SocketAddr {
    let address: IpAddr = match family {
        Family::V4 => v4.parse().unwrap(),
        Family::V6 => v6.parse().unwrap(),
    };
    SocketAddr::new(address, port)
}

fn vip(family: Family) -> SocketAddr {
    endpoint(family, "203.0.113.10", "2001:db8::10", 80)
}

fn client(family: Family) -> SocketAddr {
    endpoint(family, "198.51.100.7", "2001:db8:7::7", 40_000)
}

fn balancer(family: Family) -> SocketAddr {
    endpoint(family, "10.0.0.1", "fd00::1", 50_000)
}

fn own(family: Family) -> SocketAddr {
    endpoint(family, "10.0.0.11", "fd00::11", GUE_PORT)
}

fn syn(family: Family) -> Ip {
    tcp(client(family), vip(family), "S", 7, 0)
        .options(&mss_option(1460))
        .ip()
}

fn protocol_of(family: Family) -> u8 {
    match family {
        Family::V4 => 4,
        Family::V6 => 41,
    }
}

/// A balancer's packet with `inner` inside.
fn tunnelled(kind: Kind, outer: Family, inner: &Ip) -> Ip {
    let (from, to, protocol) = (
        balancer(outer),
        own(outer),
        protocol_of(inner.header.family()),
    );
    match kind {
        Kind::Ipip => Ip::new(IpNumber(protocol), from.ip(), to.ip(), inner.packet()),
        Kind::Gue => {
            let payload = [&[0, protocol, 0, 0], &inner.packet()[..]].concat();
            udp_without_checksum(from, to, &payload)
        }
    }
}

/// Whether the kernel can be told that what a tunnel carries is of another family: since Linux 6.3.
fn kernel_changes_families() -> bool {
    let release = uname().unwrap().release().to_string_lossy().into_owned();
    let mut numbers = release
        .split(['.', '-'])
        .map_while(|one| one.parse::<u32>().ok());
    let version = [numbers.next(), numbers.next()];
    version >= [Some(6), Some(3)]
}

struct Rig {
    member: Option<Member>,
    pins: PinFolder,
    _inside: Entered,
    _namespace: Namespace,
}

impl Rig {
    fn new() -> Self {
        let namespace =
            Namespace::create("member").expect("these tests need root and network namespaces");
        namespace.set_mtu("lo", MTU.into()).unwrap();
        let inside = namespace.enter().unwrap();
        let pins = PinFolder::name("member");
        let (mut member, adopted) = Member::open(&pins).unwrap();
        assert!(!adopted);
        let addresses = Family::ALL.map(|family| vip(family).ip());
        member.set_addresses(&addresses).unwrap();
        member.set_tunnels(&[], GUE_PORT).unwrap();
        Rig {
            member: Some(member),
            pins,
            _inside: inside,
            _namespace: namespace,
        }
    }

    fn member(&mut self) -> &mut Member {
        self.member.as_mut().unwrap()
    }

    /// How a frame left, and the reasons for which it was counted.
    fn counted(&mut self, run: impl FnOnce(&mut Member) -> Ran) -> (Ran, Vec<String>) {
        let before = self.member().reasons().unwrap();
        let ran = run(self.member());
        let after = self.member().reasons().unwrap();
        let rose = after.iter().zip(&before);
        let rose = rose.filter(|(after, before)| after.packets > before.packets);
        (ran, rose.map(|(after, _)| after.name.clone()).collect())
    }

    #[track_caller]
    fn receives(&mut self, frame: &[u8], reason: &str) -> Ran {
        let (ran, counted) = self.counted(|member| member.run(frame, 1).unwrap());
        assert_eq!(counted, [reason]);
        ran
    }

    /// What a tunnel has carried. Before Linux 6.3 a packet of the other family is received once more.
    #[track_caller]
    fn taken(&mut self, frame: &[u8], kind: Kind) -> Vec<u8> {
        let (ran, counted) = self.counted(|member| member.run(frame, 1).unwrap());
        let changes_family = frame[12..14] != ran.packet[12..14];
        let expected = match changes_family && !kernel_changes_families() {
            true => (TC_ACT_REDIRECT, "sent-again"),
            false => (TC_ACT_UNSPEC, kind.reason()),
        };
        assert_eq!(
            (ran.action, &counted[..]),
            (expected.0, &[expected.1.to_owned()][..])
        );
        ran.packet
    }

    #[track_caller]
    fn takes(&mut self, frame: &[u8], kind: Kind) -> Seen {
        read(&self.taken(frame, kind))
    }

    #[track_caller]
    fn leaves(&mut self, packet: &Ip, reason: &str) {
        let frame = packet.frame();
        let ran = self.receives(&frame, reason);
        assert_eq!((ran.action, ran.packet), (TC_ACT_UNSPEC, frame), "{reason}");
    }

    /// The outer headers that an address has learned came so long ago.
    fn have_been_seen(&self, address: IpAddr, ago: Duration) {
        let now = || Duration::from(clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap());
        // On a machine that has just started nothing was so long ago.
        while now() < ago {
            thread::sleep(ago - now());
        }
        let folder = self.pins.join(format!("member-v{MEMBER_ABI_VERSION}"));
        let map = MapData::from_pin(folder.join("member_addresses")).unwrap();
        let mut known: HashMap<_, Addr, MemberAddress> = Map::HashMap(map).try_into().unwrap();
        let key = Addr::from(address);
        let learned = MemberAddress {
            seen_ns: (now() - ago).as_nanos() as u64,
            ..known.get(&key, 0).unwrap()
        };
        known.insert(key, learned, 0).unwrap();
    }

    /// The MSS that a client is told, and whether that was counted.
    fn tells(&mut self, answer: &Ip) -> (u16, bool) {
        let frame = answer.frame();
        let (ran, counted) = self.counted(|member| member.run_answer(&frame, 1).unwrap());
        assert_eq!(ran.action, TC_ACT_UNSPEC);
        (read(&ran.packet).mss().unwrap(), counted == ["syn-ack"])
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if let Some(member) = self.member.take() {
            member.close().unwrap();
        }
        assert!(!self.pins.exists());
    }
}

#[test]
fn the_kernel_receives_what_the_client_has_sent() {
    let mut rig = Rig::new();
    for (outer, inner) in ALL_FAMILIES {
        for kind in KINDS {
            for sent in [
                syn(inner),
                tcp(client(inner), vip(inner), "A", 8, 1)
                    .payload(&[7; 1300])
                    .ip(),
                // Shorter than a header of IPv6.
                udp(client(inner), vip(inner), b"?"),
            ] {
                let taken = rig.taken(&tunnelled(kind, outer, &sent).frame(), kind);
                let plain = sent.frame();
                assert_eq!(
                    taken[12..plain.len()],
                    plain[12..],
                    "{kind:?} {inner} in {outer}"
                );
                // What has to be received once more is as long as a header of IPv6.
                let is_filled = outer != inner && !kernel_changes_families();
                assert!(
                    taken.len() == plain.len() || is_filled,
                    "{kind:?} {inner} in {outer}"
                );
            }
        }
    }
}

#[test]
fn of_what_is_for_other_addresses_or_in_another_shape_nothing_is_taken() {
    let mut rig = Rig::new();
    for (outer, inner) in ALL_FAMILIES {
        for kind in KINDS {
            let mut elsewhere = syn(inner);
            elsewhere.header.destination = balancer(inner).ip();
            rig.leaves(&tunnelled(kind, outer, &elsewhere), "other-address");
            let mut cut = tunnelled(kind, outer, &syn(inner));
            // All that is left of the inner header.
            cut.body
                .truncate(if kind == Kind::Gue { 12 + 19 } else { 19 });
            rig.leaves(&cut, "other-shape");
        }
        let mut version = tunnelled(Kind::Ipip, outer, &syn(inner));
        version.body[0] = 0x50;
        rig.leaves(&version, "other-shape");
        for (at, byte) in [(8, 0x80), (8, 0x20), (8, 1), (9, 6), (10, 1), (11, 1)] {
            let mut flagged = tunnelled(Kind::Gue, outer, &syn(inner));
            flagged.body[at] = byte;
            rig.leaves(&flagged, "other-shape");
        }
    }
    let sent = tunnelled(Kind::Ipip, Family::V4, &syn(Family::V4));
    rig.leaves(&sent.clone().ip_options(&[1; 4]), "other-shape");
    rig.leaves(&sent.fragment(0, 24), "other-shape");
    rig.leaves(&syn(Family::V4), "not-tunnelled");
    let (from, to) = (balancer(Family::V4), own(Family::V4));
    rig.leaves(
        &udp(from, SocketAddr::new(to.ip(), 6081), &[0, 4, 0, 0]),
        "not-tunnelled",
    );
    // Frames for another machine.
    let frame = sent_to([2, 0, 0, 0, 0, 9], sent.frame());
    rig.receives(&frame, "not-tunnelled");
}

#[test]
fn tunnels_of_the_named_balancers_alone_are_trusted() {
    let mut rig = Rig::new();
    let sources = Family::ALL.map(|family| balancer(family).ip());
    rig.member().set_tunnels(&sources, GUE_PORT).unwrap();
    for (outer, inner) in ALL_FAMILIES {
        for kind in KINDS {
            let sent = tunnelled(kind, outer, &syn(inner));
            rig.takes(&sent.frame(), kind);
            let mut forged = sent;
            forged.header.source = client(outer).ip();
            rig.leaves(&forged, "other-source");
        }
    }
}

#[test]
fn marks_of_congestion_are_handed_on_and_checksums_stay_right() {
    // By the inner mark, in rows for the outer one (RFC 6040 figure 4): none, ECT(1), ECT(0), CE.
    const DROPPED: u8 = 9;
    const LEFT: [[u8; 4]; 4] = [[0, 1, 2, 3], [0, 1, 1, 3], [0, 1, 2, 3], [DROPPED, 3, 3, 3]];
    const DSCP: u8 = 0xb8;
    let mut rig = Rig::new();
    for (outer, inner) in ALL_FAMILIES {
        for kind in KINDS {
            for (of_outer, row) in (0u8..).zip(LEFT) {
                for (of_inner, left) in (0u8..).zip(row) {
                    let mut sent = syn(inner);
                    sent.header.traffic_class = DSCP | of_inner;
                    let mut tunnel = tunnelled(kind, outer, &sent);
                    tunnel.header.traffic_class = of_outer;
                    if left == DROPPED {
                        let ran = rig.receives(&tunnel.frame(), "congested");
                        assert_eq!(ran.action, TC_ACT_SHOT);
                        continue;
                    }
                    let seen = rig.takes(&tunnel.frame(), kind);
                    assert_eq!(
                        seen.ip.traffic_class,
                        DSCP | left,
                        "{of_inner} in {of_outer}"
                    );
                }
            }
        }
    }
}

#[test]
fn clients_are_told_of_segments_that_fit_the_longest_tunnel() {
    for (outer, inner) in ALL_FAMILIES {
        for kind in KINDS {
            let mut rig = Rig::new();
            let answer = |mss| {
                tcp(vip(inner), client(inner), "SA", 1, 8)
                    .options(&mss_option(mss))
                    .ip()
            };
            assert_eq!(rig.tells(&answer(1460)), (1460, false), "in no tunnel");
            rig.takes(&tunnelled(kind, outer, &syn(inner)).frame(), kind);
            let outer_bytes = kind.outer_bytes(outer);
            let learned = rig.member().outer_bytes(vip(inner).ip()).unwrap();
            assert_eq!(learned, u32::from(outer_bytes));
            let headers = if inner == Family::V4 { 40 } else { 60 };
            let fits = MTU - outer_bytes - headers;
            assert_eq!(rig.tells(&answer(1460)), (fits, true), "{kind:?} {outer}");
            assert_eq!(rig.tells(&answer(536)), (536, true));
            let mut others = answer(1460);
            others.header.source = own(inner).ip();
            let others = crate::frame::summed(others, 16);
            assert_eq!(rig.tells(&others), (1460, false), "of another address");
            let syn = tcp(vip(inner), client(inner), "S", 1, 0).options(&mss_option(1460));
            assert_eq!(
                rig.tells(&syn.ip()),
                (1460, false),
                "of its own connections"
            );
        }
    }
}

#[test]
fn tunnels_to_hosts_that_this_one_forwards_to_are_left_alone() {
    let mut rig = Rig::new();
    rig._namespace.ip("link set lo up").unwrap();
    for family in Family::ALL {
        let other = endpoint(family, "10.0.0.12", "fd00::12", GUE_PORT).ip();
        for command in [
            format!("address add {} dev lo", own(family).ip()),
            format!("route add {other} dev lo"),
        ] {
            rig._namespace.ip(&command).unwrap();
        }
        let name = if family == Family::V4 { "ipv4" } else { "ipv6" };
        for inner in Family::ALL {
            for kind in KINDS {
                let here = tunnelled(kind, family, &syn(inner));
                let mut there = here.clone();
                there.header.destination = other;
                for forwards in ["0", "1"] {
                    let path = format!("/proc/sys/net/{name}/conf/lo/forwarding");
                    std::fs::write(path, forwards).unwrap();
                    rig.takes(&here.frame(), kind);
                }
                rig.leaves(&there, "other-target");
            }
        }
    }
}

#[test]
fn longer_headers_that_come_no_more_are_forgotten() {
    let mut rig = Rig::new();
    let [long, short] = [(Kind::Gue, Family::V6), (Kind::Ipip, Family::V4)];
    for inner in Family::ALL {
        let learned_from = |rig: &mut Rig, (kind, outer): (Kind, Family)| {
            rig.takes(&tunnelled(kind, outer, &syn(inner)).frame(), kind);
            rig.member().outer_bytes(vip(inner).ip()).unwrap()
        };
        assert_eq!(learned_from(&mut rig, short), 20);
        assert_eq!(learned_from(&mut rig, long), 52);
        assert_eq!(learned_from(&mut rig, short), 52);
        rig.have_been_seen(vip(inner).ip(), Duration::from_secs(59));
        assert_eq!(learned_from(&mut rig, short), 52);
        assert_eq!(learned_from(&mut rig, long), 52);
        assert_eq!(learned_from(&mut rig, short), 52);
        rig.have_been_seen(vip(inner).ip(), Duration::from_secs(61));
        assert_eq!(learned_from(&mut rig, short), 20);
    }
}

#[test]
fn the_next_process_takes_over_what_was_learned() {
    let mut rig = Rig::new();
    let (family, kind) = (Family::V4, Kind::Gue);
    rig.takes(&tunnelled(kind, family, &syn(family)).frame(), kind);
    rig.member = None;
    let (member, adopted) = Member::open(&rig.pins).unwrap();
    assert!(adopted);
    rig.member = Some(member);
    rig.takes(&tunnelled(kind, family, &syn(family)).frame(), kind);
    rig.member().set_addresses(&[vip(family).ip()]).unwrap();
    let learned = rig.member().outer_bytes(vip(family).ip()).unwrap();
    assert_eq!(learned, u32::from(kind.outer_bytes(family)));
    assert!(rig.member().outer_bytes(vip(Family::V6).ip()).is_err());
}
