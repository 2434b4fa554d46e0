//! The trunk program, packet by packet: which sublink each takes must be what the native build of the same headers says,
//! and each must leave for one counted reason.

use std::{
    fs::DirBuilder,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    os::unix::fs::DirBuilderExt,
    path::PathBuf,
    sync::atomic::{AtomicU32, Ordering},
};

use anabranch_core::multilink::{Bins, Drr, SublinkId};
use anabranch_dataplane::{
    Ran, attach, programs_at,
    trunk::{SublinkPath, Trunk},
};
use anabranch_policy::{
    abi::{
        BINS, Flowlet, FormerSpreading, FormerTableOfBins, MAX_LINKS, SUBLINK_PRESENT, Spread,
        Spreading, Sublink, TRUNK_ABI_VERSION, TRUNK_FORMER_VERSION,
    },
    flow_hash,
    spread::{Table, bin, by_bin, by_hash, by_rendezvous},
};
use anabranch_testbed::netns::{Entered, Namespace};
use anyhow::Context;
use aya::{
    EbpfLoader, TestRun, TestRunOptions,
    maps::Array,
    programs::{SchedClassifier, TcAttachType},
};
use etherparse::IpNumber;

use crate::{
    frame::{self, Ip, mss_option, tcp, udp},
    site::IPV4,
};

const TC_ACT_SHOT: u32 = 2;
const TC_ACT_REDIRECT: u32 = 7;
const TC_ACT_UNSPEC: u32 = u32::MAX;
/// The verifier gives up at a million instructions.
const VERIFIED_INSTRUCTIONS_MAX: u32 = 100_000;

/// What became of a packet.
#[derive(Clone, Debug, PartialEq)]
struct Outcome {
    reason: String,
    action: u32,
    /// The sublink it was sent over, and the bin it was counted in.
    went: Option<(u16, u16)>,
    /// It counted as the first of a connection on that sublink.
    opened: bool,
}

impl Outcome {
    #[track_caller]
    fn sublink(&self) -> u16 {
        assert_eq!(self.action, TC_ACT_REDIRECT, "{self:?}");
        self.went.expect("what is sent is counted").0
    }

    #[track_caller]
    fn bin(&self) -> u16 {
        assert_eq!(self.action, TC_ACT_REDIRECT, "{self:?}");
        self.went.expect("what is sent is counted").1
    }

    #[track_caller]
    fn left(&self, action: u32, reason: &str) {
        assert_eq!((self.action, self.reason.as_str()), (action, reason));
        let counted = (self.went, self.opened);
        let nowhere = (None, false);
        assert_eq!(
            counted, nowhere,
            "what is not sent is counted on no sublink"
        );
    }
}

/// The loaded program, whose sublinks all lead out of the loopback device.
struct Rig {
    trunk: Option<Trunk>,
    pins: PathBuf,
    _inside: Entered,
    _namespace: Namespace,
}

impl Rig {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let namespace =
            Namespace::create("trunk").expect("these tests need root and network namespaces");
        let inside = namespace.enter().unwrap();
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let pins = PathBuf::from(format!(
            "/sys/fs/bpf/anabranch-trunk-{}-{number}",
            std::process::id()
        ));
        let (mut trunk, adopted) = Trunk::open(&pins).unwrap();
        assert!(!adopted);
        for sublink in 0..MAX_LINKS as u16 {
            let path = SublinkPath {
                ifindex: 1,
                next_hop: (sublink % 2 == 0).then_some(Ipv4Addr::new(192, 0, 2, sublink as u8)),
            };
            trunk.set_sublink(SublinkId(sublink), Some(path)).unwrap();
        }
        Rig {
            trunk: Some(trunk),
            pins,
            _inside: inside,
            _namespace: namespace,
        }
    }

    fn of(spreading: Spreading) -> Self {
        let mut rig = Rig::new();
        rig.tell(spreading);
        rig
    }

    fn trunk(&mut self) -> &mut Trunk {
        self.trunk.as_mut().expect("it lives as long as the rig")
    }

    fn tell(&mut self, spreading: Spreading) {
        self.trunk().set_spreading(&spreading).unwrap();
    }

    #[track_caller]
    fn send(&mut self, frame: &[u8]) -> Outcome {
        self.send_bytes(frame).0
    }

    #[track_caller]
    fn send_bytes(&mut self, frame: &[u8]) -> (Outcome, Ran) {
        let trunk = self.trunk();
        let (reasons, carried, volumes) = (counts(trunk), packets(trunk), trunk.volumes().unwrap());
        let before = opened(trunk);
        let ran = trunk.run(frame, 1).unwrap();
        let reason = rose(&reasons, &counts(trunk));
        let [(reason, 1)] = reason[..] else {
            panic!("every packet leaves for one counted reason: {reason:?}")
        };
        let sublinks = rose(&carried, &packets(trunk));
        let bins = rose(&volumes[..], &trunk.volumes().unwrap()[..]);
        let went = match (&sublinks[..], &bins[..]) {
            ([], []) => None,
            ([(sublink, 1)], [(bin, bytes)]) => {
                assert_eq!(*bytes, frame.len() as u64);
                Some((*sublink as u16, *bin as u16))
            }
            other => panic!("one packet is counted once: {other:?}"),
        };
        let opened = rose(&before, &opened(trunk));
        let on_its_sublink = went.is_some_and(|(sublink, _)| opened == [(sublink.into(), 1)]);
        assert!(opened.is_empty() || on_its_sublink, "{opened:?}, {went:?}");
        let outcome = Outcome {
            opened: on_its_sublink,
            reason: trunk.reasons().unwrap()[reason].name.clone(),
            action: ran.action,
            went,
        };
        (outcome, ran)
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if let Some(trunk) = self.trunk.take() {
            trunk.close().ok();
        }
        std::fs::remove_dir_all(&self.pins).ok();
    }
}

fn counts(trunk: &Trunk) -> Vec<u64> {
    let reasons = trunk.reasons().unwrap();
    reasons.iter().map(|reason| reason.packets).collect()
}

fn packets(trunk: &Trunk) -> Vec<u64> {
    let carried = trunk.carried().unwrap();
    carried.iter().map(|sublink| sublink.packets).collect()
}

fn opened(trunk: &Trunk) -> Vec<u64> {
    let carried = trunk.carried().unwrap();
    carried.iter().map(|sublink| sublink.opened).collect()
}

/// Which counters rose, and by how much.
fn rose(before: &[u64], after: &[u64]) -> Vec<(usize, u64)> {
    let pairs = before.iter().zip(after).enumerate();
    pairs
        .filter(|(_, (before, after))| before != after)
        .map(|(i, (before, after))| (i, after - before))
        .collect()
}

/// `count` sublinks of equal weight and quantum, all usable.
fn spreading(spread: Spread, count: u32) -> Spreading {
    let mut spreading = Spreading {
        spread: spread.into(),
        quantum: [1514; MAX_LINKS],
        ..Spreading::default()
    };
    spreading.sublinks.count = count;
    spreading.sublinks.usable = (1 << count) - 1;
    spreading.sublinks.weight = [1; MAX_LINKS];
    spreading
}

/// A fixed sequence of numbers, which is all that vectors need.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u32 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 32) as u32
    }
}

fn flow(draw: &mut Draw) -> (SocketAddr, SocketAddr) {
    let mut end = || SocketAddr::new(Ipv4Addr::from(draw.next()).into(), draw.next() as u16);
    (end(), end())
}

fn hash((src, dst): (SocketAddr, SocketAddr)) -> u32 {
    flow_hash(src.ip().into(), dst.ip().into(), src.port(), dst.port())
}

/// The hash of a pair of hosts without ports.
fn hash_of_hosts(src: IpAddr, dst: IpAddr) -> u32 {
    flow_hash(src.into(), dst.into(), 0, 0)
}

#[test]
fn every_flow_takes_the_sublink_that_the_native_build_names() {
    let mut rig = Rig::new();
    let mut draw = Draw(1);
    for round in 0..400 {
        let spread = [Spread::Hash, Spread::Bins, Spread::Rendezvous][round % 3];
        let mut told = spreading(spread, 1 + draw.next() % 17);
        // Bits beyond the last sublink must not matter.
        told.sublinks.usable = (draw.next() | draw.next()).into();
        let bits = [2, 8, 20, 32][draw.next() as usize % 4];
        told.sublinks.weight = std::array::from_fn(|_| draw.next() >> (32 - bits));
        let table: Table = std::array::from_fn(|_| (draw.next() % 18) as u16);
        rig.tell(told);
        rig.trunk().set_table(&table).unwrap();

        let pair = flow(&mut draw);
        let outcome = rig.send(&tcp(pair.0, pair.1, "A", 1, 1).frame());
        let (hash, count) = (hash(pair), told.sublinks.count.min(MAX_LINKS as u32));
        let usable = told.sublinks.usable & ((1 << count) - 1);
        let native = match spread {
            Spread::Bins => by_bin(&table, hash, usable),
            Spread::Rendezvous => by_rendezvous(&told.sublinks, hash),
            _ => by_hash(hash, usable),
        };
        let context = format!("round {round}: {told:?}, {pair:?}, {outcome:?}");
        match native {
            Some(sublink) => assert_eq!(outcome.went, Some((sublink, bin(hash))), "{context}"),
            None => outcome.left(TC_ACT_SHOT, "no-sublink"),
        }
    }
}

#[test]
fn packet_by_packet_the_sublinks_take_their_turns_as_in_the_native_build() {
    let mut draw = Draw(2);
    for count in [1, 2, 5, 16] {
        let mut told = spreading(Spread::Packet, count);
        told.quantum = std::array::from_fn(|_| 1 + draw.next() % 3000);
        let mut native = Drr::new(&told.quantum[..count as usize]).unwrap();
        let mut rig = Rig::of(told);
        for _ in 0..200 {
            if draw.next().is_multiple_of(8) {
                told.sublinks.usable = draw.next().into();
                rig.tell(told);
            }
            let payload = vec![0; (draw.next() % 1400) as usize];
            let packet = udp(client(1), server(2), &payload).frame();
            let expected = native.choose(packet.len() as u32, told.sublinks.usable);
            let outcome = rig.send(&packet);
            match expected {
                Some(sublink) => assert_eq!(outcome.sublink(), sublink.0, "{count} sublinks"),
                None => outcome.left(TC_ACT_SHOT, "no-sublink"),
            }
        }
    }
}

#[test]
fn a_superpacket_of_many_quanta_is_placed_in_its_turn() {
    let mut told = spreading(Spread::Packet, 4);
    told.quantum = [100; MAX_LINKS];
    let mut rig = Rig::of(told);
    let small = udp(client(1), server(2), &[0; 20]).frame();
    let large = udp(client(1), server(2), &[0; 3000]).frame();
    let mut native = Drr::new(&[100; 4]).unwrap();
    for packet in [&small, &large, &small, &small, &large, &large, &small] {
        let expected = native.choose(packet.len() as u32, 0b1111).unwrap();
        assert_eq!(rig.send(packet).sublink(), expected.0);
    }
}

#[test]
fn a_flowlet_keeps_its_sublink_through_gaps_that_are_not_longer_than_the_bound() {
    let mut told = spreading(Spread::Flowlet, 16);
    told.flowlet_gap_ns = u64::MAX / 2;
    let mut rig = Rig::of(told);
    let mut draw = Draw(3);
    for _ in 0..10 {
        let (src, dst) = flow(&mut draw);
        let packet = tcp(src, dst, "A", 1, 1).frame();
        let first = rig.send(&packet).sublink();
        for _ in 0..10 {
            assert_eq!(rig.send(&packet).sublink(), first);
        }
    }
}

/// With no gap allowed every packet is a flowlet: sublinks of weights 1 and 3 get a quarter and three quarters, within
/// five standard deviations of 400 draws.
#[test]
fn flowlets_begin_on_sublinks_in_the_ratio_of_their_weights() {
    let mut told = spreading(Spread::Flowlet, 2);
    told.sublinks.weight[1] = 3;
    told.flowlet_gap_ns = 0;
    let mut rig = Rig::of(told);
    let packet = tcp(client(1), server(2), "A", 1, 1).frame();
    let light = (0..400)
        .filter(|_| rig.send(&packet).sublink() == 0)
        .count();
    assert!((57..=143).contains(&light), "{light} of 400, 100 ± 43");
}

#[test]
fn a_flowlet_leaves_an_unusable_sublink_with_its_next_packet() {
    let mut told = spreading(Spread::Flowlet, 4);
    told.flowlet_gap_ns = u64::MAX / 2;
    let mut rig = Rig::of(told);
    let packet = tcp(client(1), server(2), "A", 1, 1).frame();
    let first = rig.send(&packet).sublink();
    told.sublinks.usable &= !(1 << first);
    rig.tell(told);
    let second = rig.send(&packet).sublink();
    assert_ne!(second, first);
    told.sublinks.usable = 0b1111;
    rig.tell(told);
    assert_eq!(rig.send(&packet).sublink(), second);
    assert_eq!(size_of::<Flowlet>(), 16);
}

#[test]
fn moving_a_bin_moves_its_flows_and_no_others() {
    let mut rig = Rig::of(spreading(Spread::Bins, 8));
    let table = *Bins::new(8).unwrap().table();
    rig.trunk().set_table(&table).unwrap();
    let mut draw = Draw(4);
    let flows: Vec<_> = (0..50).map(|_| flow(&mut draw)).collect();
    let moved = bin(hash(flows[0]));
    let to = (table[usize::from(moved)] + 1) % 8;
    let mut after = table;
    after[usize::from(moved)] = to;
    rig.trunk().set_table(&after).unwrap();
    for pair in flows {
        let outcome = rig.send(&tcp(pair.0, pair.1, "A", 1, 1).frame());
        let own = table[usize::from(outcome.bin())];
        let expected = if outcome.bin() == moved { to } else { own };
        assert_eq!(outcome.sublink(), expected);
        assert_eq!(outcome.reason, "spread");
    }
    assert_eq!(rig.trunk().table().unwrap(), after);
}

#[test]
fn bins_of_an_unusable_sublink_go_around_it_and_come_back() {
    let mut told = spreading(Spread::Bins, 4);
    let mut rig = Rig::of(told);
    rig.trunk().set_table(&[2; BINS]).unwrap();
    let packet = tcp(client(1), server(2), "A", 1, 1).frame();
    told.sublinks.usable = 0b1011;
    rig.tell(told);
    let around = rig.send(&packet);
    assert_ne!(around.sublink(), 2);
    assert_eq!(around.reason, "spread-around");
    told.sublinks.usable = 0b1111;
    rig.tell(told);
    let back = rig.send(&packet);
    assert_eq!((back.sublink(), back.reason.as_str()), (2, "spread"));
}

#[test]
fn all_fragments_of_a_datagram_are_in_the_bin_of_their_addresses() {
    let mut rig = Rig::of(spreading(Spread::Bins, 8));
    let (src, dst) = (client(4000), server(53));
    let whole = udp(src, dst, &[7; 3000]);
    let expected = bin(hash_of_hosts(src.ip(), dst.ip()));
    assert_ne!(expected, bin(hash((src, dst))));
    for (from, to) in [(0, 1400), (1400, 2800), (2800, 9999)] {
        let piece = whole.fragment(from, to).frame();
        assert_eq!(rig.send(&piece).bin(), expected, "bytes {from} to {to}");
    }
    assert_eq!(rig.send(&whole.frame()).bin(), bin(hash((src, dst))));
}

#[test]
fn every_protocol_goes_by_what_it_has() {
    let mut rig = Rig::of(spreading(Spread::Hash, 8));
    let (src, dst) = (IPV4.client, IPV4.server);
    let (from, to) = (SocketAddr::new(src, 4000), SocketAddr::new(dst, 53));
    let with_ports = bin(hash((from, to)));
    let without = bin(hash_of_hosts(src, dst));
    let with_id = bin(flow_hash(src.into(), dst.into(), 77, 77));
    let as_protocol = |number: u8| {
        let mut ip: Ip = udp(from, to, b"data");
        ip.header.protocol = IpNumber(number);
        ip.frame()
    };
    let options = udp(from, to, b"data").ip_options(&[1; 40]).frame();
    let unreachable = frame::icmp_error(src, dst, (3, 1), [0; 4], &[0; 28]).frame();
    for (what, packet, expected) in [
        ("TCP", tcp(from, to, "S", 1, 0).frame(), with_ports),
        ("UDP", udp(from, to, b"data").frame(), with_ports),
        ("UDP behind IP options", options, with_ports),
        ("DCCP", as_protocol(33), with_ports),
        ("SCTP", as_protocol(132), with_ports),
        ("UDP-Lite", as_protocol(136), with_ports),
        ("GRE", as_protocol(47), without),
        ("ESP", as_protocol(50), without),
        ("echo", frame::echo(src, dst, 77, b"x").frame(), with_id),
        (
            "echo reply",
            frame::echo_reply(src, dst, 77, b"x").frame(),
            with_id,
        ),
        ("ICMP error", unreachable, without),
    ] {
        assert_eq!(rig.send(&packet).bin(), expected, "{what}");
    }
}

#[test]
fn a_segment_with_syn_opens_a_flow_on_its_sublink_every_time_it_is_sent() {
    let mut rig = Rig::of(spreading(Spread::Packet, 8));
    let segment = |flags| tcp(client(4000), server(80), flags, 1, 1);
    for (flags, opens) in [
        ("S", true),
        ("S", true),
        ("SA", true),
        ("SF", true),
        ("", false),
        ("A", false),
        ("PA", false),
        ("FA", false),
        ("R", false),
        ("RA", false),
    ] {
        let outcome = rig.send(&segment(flags).frame());
        assert_eq!(outcome.opened, opens, "{flags:?}: {outcome:?}");
    }
    // With ECN it asks by two more flags (RFC 3168, section 6.1.1); with Fast Open it has data (RFC 7413).
    let mut ecn = segment("S");
    (ecn.header.ece, ecn.header.cwr) = (true, true);
    let with_data = segment("S").options(&mss_option(1460)).payload(&[7; 500]);
    let behind_options = segment("S").ip().ip_options(&[1; 40]).frame();
    for frame in [ecn.frame(), with_data.frame(), behind_options] {
        assert!(rig.send(&frame).opened);
    }
}

/// The byte that has TCP's flags is 2, which is SYN, in all of them.
#[test]
fn what_only_looks_like_a_syn_opens_nothing() {
    let mut rig = Rig::of(spreading(Spread::Hash, 8));
    let (from, to) = (client(4000), server(53));
    let looks_like_syn = [2; 32];
    let as_protocol = |number: u8| {
        let mut ip: Ip = udp(from, to, &looks_like_syn);
        ip.header.protocol = IpNumber(number);
        ip.frame()
    };
    for (what, frame) in [
        ("UDP", udp(from, to, &looks_like_syn).frame()),
        (
            "echo",
            frame::echo(IPV4.client, IPV4.server, 7, &looks_like_syn).frame(),
        ),
        ("DCCP", as_protocol(33)),
        ("GRE", as_protocol(47)),
        ("SCTP", as_protocol(132)),
    ] {
        assert_eq!(frame[34 + 13], 2, "{what}");
        assert!(!rig.send(&frame).opened, "{what}");
    }
    let mut cut_short = tcp(from, to, "S", 1, 0).ip();
    cut_short.body.truncate(13);
    let outcome = rig.send(&cut_short.frame());
    assert!(!outcome.opened);
    assert_eq!(outcome.bin(), bin(hash((from, to))), "its ports are there");
}

#[test]
fn of_a_fragmented_syn_the_first_fragment_alone_opens_a_flow() {
    let mut rig = Rig::of(spreading(Spread::Hash, 8));
    let (from, to) = (client(4000), server(80));
    let whole = tcp(from, to, "S", 1, 0).payload(&[2; 100]).ip();
    let hosts = bin(hash_of_hosts(IPV4.client, IPV4.server));
    for (piece, opens) in [((0, 40), true), ((40, 80), false), ((80, 999), false)] {
        let outcome = rig.send(&whole.fragment(piece.0, piece.1).frame());
        assert_eq!((outcome.opened, outcome.bin()), (opens, hosts), "{piece:?}");
    }
    // A fragment without the flags (RFC 1858, section 3) is sent, and opens nothing.
    assert!(!rig.send(&whole.fragment(0, 8).frame()).opened);
}

#[test]
fn a_packet_is_sent_as_it_is_however_odd() {
    let mut rig = Rig::of(spreading(Spread::Hash, 8));
    let mut broken = tcp(client(1), server(2), "SF", 1, 1).frame();
    broken[24] ^= 0xff; // the IP checksum
    broken[46] = 0xf0; // a TCP header longer than the packet
    for frame in [broken, tcp(client(1), server(2), "A", 1, 1).frame()] {
        let (outcome, ran) = rig.send_bytes(&frame);
        outcome.sublink();
        assert_eq!(ran.packet, frame);
    }
    // A transport header without room for ports.
    let mut short = udp(client(1), server(2), b"");
    short.body.truncate(2);
    let hosts = hash_of_hosts(IPV4.client, IPV4.server);
    assert_eq!(rig.send(&short.frame()).bin(), bin(hosts));
}

#[test]
fn what_a_trunk_cannot_carry_leaves_for_a_reason_of_its_own() {
    let mut rig = Rig::new();
    let packet = tcp(client(1), server(2), "A", 1, 1).frame();
    rig.send(&packet).left(TC_ACT_UNSPEC, "not-told");

    let mut told = spreading(Spread::Hash, 2);
    rig.tell(told);
    let mut arp = packet.clone();
    arp[12..14].copy_from_slice(&[8, 6]);
    rig.send(&arp).left(TC_ACT_UNSPEC, "not-ipv4");
    let mut multicast = packet.clone();
    multicast[0] = 1;
    rig.send(&multicast).left(TC_ACT_UNSPEC, "not-unicast");
    for (at, value) in [(14, 0x65), (14, 0x44)] {
        let mut odd = packet.clone();
        odd[at] = value;
        rig.send(&odd).left(TC_ACT_SHOT, "cut-short");
    }

    for sublink in [0, 1].map(SublinkId) {
        rig.trunk().set_sublink(sublink, None).unwrap();
    }
    rig.send(&packet).left(TC_ACT_SHOT, "no-next-hop");
    told.sublinks.usable = 0;
    rig.tell(told);
    rig.send(&packet).left(TC_ACT_SHOT, "no-sublink");
}

#[test]
fn another_process_finds_table_and_counters_as_they_were() {
    let mut rig = Rig::of(spreading(Spread::Bins, 8));
    let table: Table = std::array::from_fn(|bin| (bin / 7 % 8) as u16);
    rig.trunk().set_table(&table).unwrap();
    let packet = tcp(client(1), server(2), "A", 1, 1).frame();
    let first = rig.send(&packet);
    let (mut second, adopted) = Trunk::open(&rig.pins).unwrap();
    assert!(adopted);
    assert_eq!(second.table().unwrap(), table);
    assert_eq!(packets(&second).iter().sum::<u64>(), 1);
    second.run(&packet, 1).unwrap();
    assert_eq!(
        packets(&second)[usize::from(first.sublink())],
        2,
        "it spreads as before without being told anything"
    );
}

static FORMER: &[u8] = aya::include_bytes_aligned!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/fixtures/trunk-v2.bpf.o"
));

/// The former version's trunk in the place of `rig`'s own, at the egress of the loopback device: a table of sublink 5, and one
/// packet sent.
fn start_former(rig: &mut Rig, packet: &[u8]) -> anyhow::Result<PathBuf> {
    let folder = rig.pins.join(format!("trunk-v{TRUNK_FORMER_VERSION}"));
    rig.trunk.take().context("a trunk")?.close()?;
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&folder)?;
    let mut bpf = EbpfLoader::new()
        .default_map_pin_directory(&folder)
        .load(FORMER)?;
    let program: &mut SchedClassifier = bpf.program_mut("trunk").context("trunk")?.try_into()?;
    program.load()?;
    attach(program, &folder, 1, TcAttachType::Egress)?;
    let told = FormerSpreading {
        count: 8,
        usable: 0xff,
        weight: [1; MAX_LINKS],
        spread: Spread::Bins.into(),
        quantum: [1514; MAX_LINKS],
        ..FormerSpreading::default()
    };
    let mut spreading = Array::try_from(bpf.map_mut("spreading").context("spreading")?)?;
    spreading.set(0, told, 0)?;
    let mut bins = Array::try_from(bpf.map_mut("bins").context("bins")?)?;
    bins.set(0, FormerTableOfBins { sublink: [5; BINS] }, 0)?;
    let mut sublinks = Array::try_from(bpf.map_mut("sublinks").context("sublinks")?)?;
    let loopback = Sublink {
        ifindex: 1,
        flags: SUBLINK_PRESENT,
        ..Sublink::default()
    };
    sublinks.set(5, loopback, 0)?;
    let program: &mut SchedClassifier = bpf.program_mut("trunk").context("trunk")?.try_into()?;
    program.test_run(TestRunOptions {
        data_in: Some(packet),
        ..TestRunOptions::new()
    })?;
    Ok(folder)
}

#[test]
fn an_upgrade_goes_on_with_the_table_and_the_counters_of_the_version_before() {
    let mut rig = Rig::new();
    let packet = tcp(client(1), server(2), "A", 1, 1).frame();
    let theirs = start_former(&mut rig, &packet).unwrap();
    let former = programs_at(1, TcAttachType::Egress).unwrap();

    let (trunk, adopted) = Trunk::open(&rig.pins).unwrap();

    assert!(adopted && !theirs.exists());
    assert_eq!(trunk.table().unwrap(), [5; BINS]);
    assert_eq!(trunk.spreading().unwrap(), spreading(Spread::Bins, 8));
    assert_eq!(packets(&trunk)[5], 1);
    let ours = programs_at(1, TcAttachType::Egress).unwrap();
    assert_eq!((former.len(), ours.len()), (1, 1));
    assert_ne!(former, ours);
    rig.trunk = Some(trunk);
    assert_eq!(rig.send(&packet).sublink(), 5);
}

/// Its counters may be of another shape.
#[test]
fn what_another_version_left_is_removed_and_not_adopted() {
    let mut rig = Rig::of(spreading(Spread::Bins, 8));
    rig.trunk().set_table(&[5; BINS]).unwrap();
    drop(rig.trunk.take());
    let theirs = rig.pins.join("trunk-v1");
    let ours = rig.pins.join(format!("trunk-v{TRUNK_ABI_VERSION}"));
    std::fs::rename(&ours, &theirs).unwrap();
    let (trunk, adopted) = Trunk::open(&rig.pins).unwrap();
    assert!(!adopted && !theirs.exists() && ours.exists());
    assert_eq!(trunk.table().unwrap(), [0; BINS]);
    rig.trunk = Some(trunk);
}

#[test]
fn the_program_stays_far_below_the_verifiers_limit() {
    let loaded = || aya::programs::loaded_programs().flatten();
    let before: Vec<u32> = loaded().map(|program| program.id()).collect();
    let rig = Rig::new();
    let ours = loaded()
        .find(|program| !before.contains(&program.id()) && program.name_as_str() == Some("trunk"))
        .expect("it was loaded");
    let instructions = ours.verified_instruction_count().unwrap_or_default();
    drop(rig);
    println!("instructions verified: {instructions}");
    assert!((1..VERIFIED_INSTRUCTIONS_MAX).contains(&instructions));
}

#[test]
fn every_way_to_spread_is_timed() {
    const REPEAT: u32 = 100_000;
    let packet = tcp(client(1), server(2), "A", 1, 1);
    let packet = packet.payload(&[7; 1448]).frame();
    for spread in [
        Spread::Hash,
        Spread::Bins,
        Spread::Rendezvous,
        Spread::Flowlet,
        Spread::Packet,
    ] {
        let mut told = spreading(spread, 8);
        told.flowlet_gap_ns = 1_000_000;
        let mut rig = Rig::of(told);
        let ran = rig.trunk().run(&packet, REPEAT).unwrap();
        assert_eq!(ran.action, TC_ACT_REDIRECT);
        println!("{spread:?}: {} ns per packet", ran.took.as_nanos());
        assert!(!ran.took.is_zero());
    }
}

fn client(port: u16) -> SocketAddr {
    SocketAddr::new(IPV4.client, port)
}

fn server(port: u16) -> SocketAddr {
    SocketAddr::new(IPV4.server, port)
}
