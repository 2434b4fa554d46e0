//! The trunk program, its life beside that of its processes; and the rig on which either family's packets are sent.

use std::{
    net::{IpAddr, SocketAddr},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::Duration,
};

use anabranch_core::{PerFamily, multilink::SublinkId};
use anabranch_dataplane::{
    Pinned, Ran, programs_at,
    trunk::{NextHop, SublinkPath, Trunk, trunk_object},
};
use anabranch_policy::{
    abi::{BINS, MAX_LINKS, Spread, Spreading, TRUNK_ABI_VERSION, TRUNK_FORMER_VERSION},
    spread::Table,
};
use anabranch_testbed::{
    netns::{Entered, Namespace},
    pins::PinFolder,
};
use aya::programs::TcAttachType;
use aya_obj::maps::PinningType;

use crate::{
    frame::tcp,
    site::{IPV4, SITES, nth},
};

pub const TC_ACT_SHOT: u32 = 2;
pub const TC_ACT_REDIRECT: u32 = 7;
pub const TC_ACT_UNSPEC: u32 = u32::MAX;
/// The device that the trunk stands at, and all sublinks lead out of.
const LOOPBACK: u32 = 1;
/// The verifier gives up at a million instructions.
const VERIFIED_INSTRUCTIONS_MAX: u32 = 100_000;

/// What became of a packet.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    pub reason: String,
    pub action: u32,
    /// The sublink it was sent over, and the bin it was counted in.
    pub went: Option<(u16, u16)>,
    /// It counted as the first of a connection on that sublink.
    pub opened: bool,
}

impl Outcome {
    #[track_caller]
    pub fn sublink(&self) -> u16 {
        assert_eq!(self.action, TC_ACT_REDIRECT, "{self:?}");
        self.went.expect("what is sent is counted").0
    }

    #[track_caller]
    pub fn bin(&self) -> u16 {
        assert_eq!(self.action, TC_ACT_REDIRECT, "{self:?}");
        self.went.expect("what is sent is counted").1
    }

    #[track_caller]
    pub fn left(&self, action: u32, reason: &str) {
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
pub struct Rig {
    trunk: Option<Trunk>,
    pins: PinFolder,
    _inside: Entered,
    _namespace: Namespace,
}

impl Rig {
    pub fn new() -> Self {
        let namespace =
            Namespace::create("trunk").expect("these tests need root and network namespaces");
        let inside = namespace.enter().unwrap();
        let pins = PinFolder::name("trunk");
        let (mut trunk, adopted) = Trunk::open(&pins).unwrap();
        assert!(!adopted);
        for sublink in 0..MAX_LINKS as u16 {
            let path = SublinkPath {
                ifindex: LOOPBACK,
                next_hop: match sublink % 2 {
                    0 => NextHop::Addresses(other_ends(sublink.into())),
                    _ => NextHop::OnlyOne,
                },
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

    pub fn of(spreading: Spreading) -> Self {
        let mut rig = Rig::new();
        rig.tell(spreading);
        rig
    }

    pub fn trunk(&mut self) -> &mut Trunk {
        self.trunk.as_mut().expect("it lives as long as the rig")
    }

    pub fn tell(&mut self, spreading: Spreading) {
        self.trunk().set_spreading(&spreading).unwrap();
    }

    #[track_caller]
    pub fn send(&mut self, frame: &[u8]) -> Outcome {
        self.send_bytes(frame).0
    }

    #[track_caller]
    pub fn send_bytes(&mut self, frame: &[u8]) -> (Outcome, Ran) {
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

/// Of a sublink, one of each family.
pub fn other_ends(sublink: u32) -> PerFamily<Option<IpAddr>> {
    PerFamily::from_fn(|family| {
        let site = SITES[family.index()];
        Some(nth(site.isp[0], sublink))
    })
}

/// `count` sublinks of equal weight and quantum, all usable.
pub fn spreading(spread: Spread, count: u32) -> Spreading {
    let mut spreading = Spreading {
        spread: spread.into(),
        quantum: [1514; MAX_LINKS],
        ..Spreading::default()
    };
    for sublinks in &mut spreading.sublinks {
        sublinks.count = count;
        sublinks.usable = (1 << count) - 1;
        sublinks.weight = [1; MAX_LINKS];
    }
    spreading
}

/// A fixed sequence of numbers, which is all that vectors need.
pub struct Draw(pub u64);

impl Draw {
    pub fn next(&mut self) -> u32 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 32) as u32
    }
}

fn packet() -> Vec<u8> {
    let [from, to] = [(IPV4.client, 1), (IPV4.server, 2)].map(SocketAddr::from);
    tcp(from, to, "A", 1, 1).frame()
}

#[test]
fn another_process_finds_table_and_counters_as_they_were() {
    let mut rig = Rig::of(spreading(Spread::Bins, 8));
    let table: Table = std::array::from_fn(|bin| (bin / 7 % 8) as u16);
    rig.trunk().set_table(&table).unwrap();
    let packet = packet();
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

#[test]
fn an_upgrade_goes_on_with_the_table_and_the_counters_of_the_version_before() {
    let mut rig = Rig::of(spreading(Spread::Bins, 8));
    rig.trunk().set_table(&[5; BINS]).unwrap();
    rig.trunk().attach(LOOPBACK).unwrap();
    let packet = packet();
    rig.send(&packet);
    let former = programs_at(LOOPBACK, TcAttachType::Egress).unwrap();
    drop(rig.trunk.take());
    let [ours, theirs] = [TRUNK_ABI_VERSION, TRUNK_FORMER_VERSION]
        .map(|version| Pinned::Trunk.folder(&rig.pins, version));
    std::fs::rename(&ours, &theirs).unwrap();

    let (trunk, adopted) = Trunk::open(&rig.pins).unwrap();

    assert!(adopted && !theirs.exists());
    assert_eq!(trunk.table().unwrap(), [5; BINS]);
    assert_eq!(trunk.spreading().unwrap(), spreading(Spread::Bins, 8));
    assert_eq!(packets(&trunk)[5], 1);
    let ours = programs_at(LOOPBACK, TcAttachType::Egress).unwrap();
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
fn whatever_stands_under_the_name_of_a_pin_is_set_aside() {
    let maps = aya_obj::Object::parse(&trunk_object()).unwrap().maps;
    let pinned = |map: &aya_obj::Map| map.pinning() == PinningType::ByName;
    let pinned = maps.iter().filter(|(_, map)| pinned(map));
    for lost in pinned.map(|(name, _)| name.as_str()) {
        let mut rig = Rig::of(spreading(Spread::Bins, 8));
        rig.trunk().set_table(&[5; BINS]).unwrap();
        drop(rig.trunk.take());
        let ours = rig.pins.join(format!("trunk-v{TRUNK_ABI_VERSION}"));
        std::fs::remove_file(ours.join(lost)).unwrap();
        std::fs::create_dir(ours.join(lost)).unwrap();

        let (trunk, adopted) = Trunk::open(&rig.pins).unwrap();

        assert!(ours.join(format!("{lost}-set-aside")).exists());
        let tells_of_sublinks = ["bins", "sublinks", "spreading"].contains(&lost);
        assert_eq!(adopted, !tells_of_sublinks, "{lost}");
        let table = if adopted { [5; BINS] } else { [0; BINS] };
        assert_eq!(trunk.table().unwrap(), table, "{lost}");
        trunk.close().unwrap();
        assert!(!rig.pins.exists());
    }
}

/// A map of somebody's among the folders, which is missing in ours.
#[test]
fn what_others_pinned_among_the_folders_is_left_and_keeps_nobody_from_starting_or_ending() {
    let mut rig = Rig::new();
    drop(rig.trunk.take());
    let ours = rig.pins.join(format!("trunk-v{TRUNK_ABI_VERSION}"));
    let foreign = rig.pins.join("somebodys");
    std::fs::rename(ours.join("carried"), &foreign).unwrap();
    let (trunk, _) = Trunk::open(&rig.pins).unwrap();
    assert!(foreign.exists());
    trunk.close().unwrap();
    assert!(foreign.exists() && !ours.exists());
    std::fs::remove_file(&foreign).unwrap();
    std::fs::remove_dir(&rig.pins).unwrap();
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
fn runs_go_on_when_their_thread_is_sent_signals() {
    const REPEAT: u32 = 20_000;
    const RUNS: u32 = 100;
    /// Fewer than a run is tried again.
    const SIGNALS_PER_RUN: u32 = 4;
    extern "C" fn ignore(_: libc::c_int) {}
    let ignore = ignore as extern "C" fn(libc::c_int);
    // SAFETY: the handler does nothing, and no other test uses this signal.
    unsafe { libc::signal(libc::SIGURG, ignore as libc::sighandler_t) };
    let mut rig = Rig::of(spreading(Spread::Hash, 2));
    let packet = packet();
    // SAFETY: it only names this thread.
    let this_thread = unsafe { libc::pthread_self() };
    let begun = AtomicU32::new(0);
    let begin_and_run = |n| {
        begun.store(n, Ordering::Relaxed);
        rig.trunk().run(&packet, REPEAT)
    };
    let ran: Result<Vec<_>, _> = thread::scope(|threads| {
        threads.spawn(|| {
            let mut sent = [0; 1 + RUNS as usize];
            let mut last = 0;
            while last < RUNS {
                last = begun.load(Ordering::Relaxed);
                let sent = &mut sent[last as usize];
                if last > 0 && *sent < SIGNALS_PER_RUN {
                    *sent += 1;
                    // SAFETY: the thread waits for this one at the end of the scope.
                    unsafe { libc::pthread_kill(this_thread, libc::SIGURG) };
                }
                thread::sleep(Duration::from_micros(200));
            }
        });
        let ran = (1..=RUNS).map(begin_and_run).collect();
        begun.store(RUNS, Ordering::Relaxed);
        ran
    });
    assert!(ran.unwrap().iter().all(|ran| ran.action == TC_ACT_REDIRECT));
}
