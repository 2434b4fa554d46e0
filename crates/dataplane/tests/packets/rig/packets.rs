//! Packets that go in, and what becomes of them.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use anabranch_core::{DataPlane, LinkId};
use anabranch_dataplane::{Forwards, Marked, Role};
use anabranch_policy::abi;

use super::{LOOPBACK, MTU, Rig, link_of};
use crate::frame::{self, Seen};

/// What became of a packet.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// As `anabranch status` prints it.
    pub reason: String,
    /// As the program left it: forwarded, or the answer to its sender.
    pub frame: Vec<u8>,
    action: u32,
    mark: u32,
}

const TC_ACT_SHOT: u32 = 2;
pub const TC_ACT_REDIRECT: u32 = 7;
const TC_ACT_UNSPEC: u32 = u32::MAX;

impl Outcome {
    /// The packet, which must have left for `reason`.
    #[track_caller]
    pub fn sent(&self, reason: &str) -> Seen {
        assert_eq!(
            (self.reason.as_str(), self.action),
            (reason, TC_ACT_REDIRECT)
        );
        frame::read(&self.frame)
    }

    /// The answer to the packet, which must have been refused for `reason`.
    #[track_caller]
    pub fn answered(&self, reason: &str) -> Seen {
        self.sent(reason)
    }

    /// Refusals are answered as often as the rate limit allows.
    pub fn was_answered(&self) -> bool {
        self.action == TC_ACT_REDIRECT
    }

    /// What a mark bids the kernel with the packet, which must have been passed for `reason`.
    #[track_caller]
    pub fn marked(&self, reason: &str) -> u32 {
        self.passed(reason);
        self.mark
    }

    #[track_caller]
    pub fn dropped(&self, reason: &str) {
        assert_eq!((self.reason.as_str(), self.action), (reason, TC_ACT_SHOT));
    }

    #[track_caller]
    pub fn passed(&self, reason: &str) {
        assert_eq!((self.reason.as_str(), self.action), (reason, TC_ACT_UNSPEC));
    }
}

const HAIRPINNED: Marked = Marked::ByPrograms(abi::HAIRPIN_MARK);

impl Rig {
    /// Lets frames arrive on a link, for those who run programs by themselves.
    pub fn role_of_link(&mut self, link: u16) {
        self.become_role(Role::Link(LinkId(link)));
    }

    pub(super) fn become_role(&mut self, role: Role) {
        if self.role != Some(role) {
            self.plane().attach(LOOPBACK, role, false, MTU).unwrap();
            self.role = Some(role);
        }
    }

    pub(super) fn counts(&mut self) -> Vec<u64> {
        let reasons = self.plane().reasons().unwrap();
        reasons.iter().map(|reason| reason.packets).collect()
    }

    /// A frame arrives from the LAN.
    #[track_caller]
    pub fn lan_sends(&mut self, frame: &[u8]) -> Outcome {
        self.lan_sends_marked(frame, Marked::ByOthers(0))
    }

    /// The same with a mark.
    #[track_caller]
    pub fn lan_sends_marked(&mut self, frame: &[u8], marked: Marked) -> Outcome {
        let role = self.lan_role();
        self.arrive("lan", role, frame, marked)
    }

    /// The copy for a link of a SYN that races.
    #[track_caller]
    pub fn lan_copies(&mut self, link: u16, frame: &[u8]) -> Outcome {
        let role = self.lan_role();
        self.arrive(
            "lan",
            role,
            frame,
            Marked::ByPrograms(abi::RACE_COPY_MARK | u32::from(link)),
        )
    }

    /// The copy of a SYN/ACK that has won, by the link of a losing copy.
    #[track_caller]
    pub fn link_loses(&mut self, link: u16, frame: &[u8]) -> Outcome {
        self.arrive(
            "wan",
            Role::Link(LinkId(link)),
            frame,
            Marked::ByPrograms(abi::LOSING_COPY_MARK),
        )
    }

    /// Many frames arrive from the LAN, each of which leaves it.
    #[track_caller]
    pub fn lan_floods(&mut self, frames: impl Iterator<Item = Vec<u8>>) {
        let role = self.lan_role();
        self.become_role(role);
        for frame in frames {
            let ran = self.plane().run("lan", &frame, 1).unwrap();
            assert_eq!(ran.action, TC_ACT_REDIRECT);
        }
        self.counted = self.counts();
    }

    /// Many frames arrive from the LAN: how many left for which reason.
    #[track_caller]
    pub fn lan_pours(&mut self, frames: impl Iterator<Item = Vec<u8>>) -> BTreeMap<String, u64> {
        let role = self.lan_role();
        self.pours("lan", role, frames)
    }

    /// The same of a link.
    #[track_caller]
    pub fn link_pours(
        &mut self,
        link: u16,
        frames: impl Iterator<Item = Vec<u8>>,
    ) -> BTreeMap<String, u64> {
        self.pours("wan", Role::Link(LinkId(link)), frames)
    }

    fn pours(
        &mut self,
        program: &'static str,
        role: Role,
        frames: impl Iterator<Item = Vec<u8>>,
    ) -> BTreeMap<String, u64> {
        self.become_role(role);
        for frame in frames {
            self.plane().run(program, &frame, 1).unwrap();
        }
        self.rose().into_iter().collect()
    }

    /// How often packets left for each reason since this was asked.
    fn rose(&mut self) -> Vec<(String, u64)> {
        let reasons = self.plane().reasons().unwrap();
        let counted = reasons.iter().map(|reason| reason.packets).collect();
        let before = std::mem::replace(&mut self.counted, counted);
        let rose = reasons.into_iter().zip(before);
        rose.map(|(reason, before)| (reason.name, reason.packets - before))
            .collect()
    }

    /// A frame arrives on a link.
    #[track_caller]
    pub fn link_brings(&mut self, link: u16, frame: &[u8]) -> Outcome {
        self.link_brings_marked(link, frame, Marked::ByOthers(0))
    }

    /// The same with a mark.
    #[track_caller]
    pub fn link_brings_marked(&mut self, link: u16, frame: &[u8], marked: Marked) -> Outcome {
        self.arrive("wan", Role::Link(LinkId(link)), frame, marked)
    }

    /// A frame of a LAN host to another's external address comes back, by the link of that address.
    #[track_caller]
    pub fn comes_back(&mut self, frame: &[u8]) -> Outcome {
        self.comes_back_by(link_of(frame::read(frame).dst()), frame)
    }

    /// The same by the link it was turned to.
    #[track_caller]
    pub fn comes_back_by(&mut self, link: u16, frame: &[u8]) -> Outcome {
        self.arrive("wan", Role::Link(LinkId(link)), frame, HAIRPINNED)
    }

    /// The same of a frame that may be cut: how many pieces left for which reason.
    #[track_caller]
    pub fn comes_back_in_pieces(&mut self, frame: &[u8]) -> BTreeMap<String, u64> {
        let link = link_of(frame::read(frame).dst());
        self.become_role(Role::Link(LinkId(link)));
        self.plane().run_marked("wan", frame, HAIRPINNED).unwrap();
        self.rose().into_iter().collect()
    }

    /// A frame from the LAN, which is translated and leaves by a link.
    #[track_caller]
    pub fn translates_out(&mut self, frame: &[u8]) -> Seen {
        self.lan_sends(frame).sent("translated-out")
    }

    /// A frame from a link, which is translated and goes to its LAN host.
    #[track_caller]
    pub fn translates_in(&mut self, link: u16, frame: &[u8]) -> Seen {
        self.link_brings(link, frame).sent("translated-in")
    }

    #[track_caller]
    fn arrive(
        &mut self,
        program: &'static str,
        role: Role,
        frame: &[u8],
        marked: Marked,
    ) -> Outcome {
        self.become_role(role);
        let ran = self.plane().run_marked(program, frame, marked).unwrap();
        let mut rose = self.rose();
        rose.retain(|(_, times)| *times > 0);
        let left: u64 = rose.iter().map(|(_, times)| times).sum();
        let waiting = self.fragments_waiting();
        let waited = std::mem::replace(&mut self.waiting, waiting);
        // A first fragment sends those that waited for it through the loopback device, behind itself; where that is also
        // the device they leave by, they come in once more.
        let released = waited.saturating_sub(self.waiting) as u64;
        // The same of the one copy that a race over two links sends of a SYN, or of its answer.
        let most = released + u64::from(self.races);
        assert!(
            (1 + released..=1 + 2 * most).contains(&left),
            "every packet leaves for one counted reason: {rose:?}, {released} released"
        );
        Outcome {
            reason: rose[0].0.clone(),
            frame: ran.packet,
            action: ran.action,
            mark: ran.mark,
        }
    }

    /// Mean time of the program on a frame that it leaves as it was, in nanoseconds.
    pub fn time(&mut self, program: &'static str, role: Role, frame: &[u8]) -> f64 {
        /// Each lowers the TTL, which begins at 255.
        const REPEAT: u32 = 200;
        const RUNS: u32 = 500;
        self.become_role(role);
        let mut total = Duration::ZERO;
        for _ in 0..RUNS {
            total += self.plane().run(program, frame, REPEAT).unwrap().took;
        }
        self.counted = self.counts();
        total.as_nanos() as f64 / f64::from(RUNS)
    }

    /// The kernel itself forwards a packet of `remote` to `local`, as the program at the egress of the LAN devices hears.
    pub fn kernel_forwards(&self, protocol: u8, local: SocketAddr, remote: SocketAddr) {
        let pins = self.pins.join(format!("v{}", abi::ABI_VERSION));
        let mut forwards = Forwards::open(&pins).unwrap();
        forwards.enter(protocol, local, remote).unwrap();
    }

    /// Packets and bytes sent over each link.
    pub fn sent_over(&mut self) -> [u64; 2] {
        let links = self.plane().counters().unwrap();
        [0, 1].map(|link: usize| links[link].carried().tx_packets)
    }

    /// Packets that each brought, and those that acknowledged something new.
    pub fn brought_by(&mut self) -> [(u64, u64); 2] {
        let links = self.plane().counters().unwrap();
        [0, 1].map(|link: usize| {
            let traffic = links[link].carried();
            (traffic.rx_packets, traffic.rx_progress)
        })
    }
}
