//! A trunk: one logical link over parallel sublinks, spread packet by packet by the code of the real one.
//!
//! Its sending node is a site. A packet that stands there is given to a sublink; all sublinks end at the same node, so
//! the rest of its path does not depend on the choice. Who chooses:
//!
//! | spread | decision | kept per trunk |
//! |---|---|---|
//! | SH, single | [`spread::by_hash`] | nothing |
//! | DH, DHFV | [`spread::by_bin`] on the table of [`Controller`] | the bytes of every bin |
//! | DRR | [`Drr`] | deficits |
//! | MLPPP | [`Drr`], and the [`Resequencer`] at the far end | deficits, what waits there |
//! | bonding | [`spread::by_hash`] | nothing |
//! | flowlet | [`Flowlet::sublink`], a fresh one by rendezvous of a random number | a flowlet per bin |
//! | rendezvous | [`spread::by_rendezvous`] | nothing |
//!
//! A flow's hash is the [`label`](crate::net::Packet::label) of its packets: for bonding that of
//! [`spread::layer34`], for all others the CRC-32 of addresses and ports. A controller is woken when it asks to be,
//! and reads the queues as they are at that moment.

use anabranch_core::Time;
use anabranch_core::multilink::{
    self, Bins, Controller, Counters, Drr, Parameters, Queue, SublinkId, TrunkError, Wakeup,
};
use anabranch_policy::abi::{BINS, Flowlet};
use anabranch_policy::{Candidate, Sublinks, spread};
use anabranch_scenario::Spread;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::link::{Buffer, Tally};
use crate::net::{Hop, Net, Packet, PipeId, SiteId};
use crate::packet::PacketId;
use crate::resequencer::{Fate, Resequencer};
use crate::tcp::Kind;
use crate::world::{Onward, Site};

/// Between two looks at the carriers of the devices, as the daemon does it.
const CARRIERS_EVERY_NS: u64 = 50_000_000;
/// MLPPP waits so long for a packet: what a sublink of Jo 2002 holds at most.
const PATIENCE_NS: u64 = 100_000_000;
/// Wake-ups: of the controller, to look at the carriers, and to give up what the far end waits for.
const CONTROL: u32 = 0;
const CARRIERS: u32 = 1;
const OVERDUE: u32 = 2;
/// Of the trunk's seed. Links draw from streams of the same seed, numbered from 0.
const STREAM: u64 = 1 << 32;

/// One line of a trunk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sublink {
    /// Of the simulated network.
    pub link: PipeId,
    /// Bit/s.
    pub rate_bps: u64,
    /// Before it.
    pub buffer: Buffer,
}

/// More clients than a trunk with a part for its far end can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("MLPPP has at most 65535 clients in the simulator; use fewer")]
pub struct TooManyClients;

/// The sending node of a trunk.
#[derive(Debug)]
pub struct Trunk {
    sublinks: Vec<Sublink>,
    /// The lines to the clients at the far end.
    clients: Vec<PipeId>,
    /// Which sublinks take packets, and with what weights.
    candidates: Sublinks,
    way: Way,
    /// Of each sublink.
    opened: Vec<u64>,
    /// Whether its device has carrier, which the trunk may not have seen yet.
    carriers: Vec<bool>,
    unsent: Tally,
    reassignments: u64,
}

#[derive(Debug)]
enum Way {
    Hash,
    Rendezvous,
    Bins(Box<Keeper>),
    Flowlets(Box<Flowlets>),
    Packets(Drr),
    Sequenced(Box<Sequenced>),
}

/// Packet by packet, in order again at the far end.
#[derive(Debug)]
struct Sequenced {
    turns: Drr,
    sent: u64,
    /// Number and sublink of the packet in each place of the network, and where it goes on.
    tags: Vec<Tag>,
    far: Resequencer<PacketId>,
    woken_at: Option<Time>,
    late: Tally,
}

#[derive(Clone, Copy, Debug, Default)]
struct Tag {
    number: u64,
    sublink: u16,
    client: u16,
}

/// Keeps the bins.
#[derive(Debug)]
struct Keeper {
    controller: Controller,
    carried: Counters,
    random: ChaCha8Rng,
}

#[derive(Debug)]
struct Flowlets {
    of_bins: [Flowlet; BINS],
    gap_ns: u64,
    random: ChaCha8Rng,
}

impl Trunk {
    /// Where packets are spread.
    pub const NODE: SiteId = SiteId(0);

    /// [`Spread::Single`] spreads as SH does and is meant for one sublink, the undivided link. DH, DHFV and flowlets
    /// draw from a stream of `seed`.
    ///
    /// # Errors
    /// If there are no sublinks or too many, or `control` is out of range.
    pub fn new(
        sublinks: Vec<Sublink>,
        spread: Spread,
        control: &Parameters,
        seed: u64,
    ) -> Result<Self, TrunkError> {
        let bins = Bins::new(sublinks.len())?;
        let rates_bps: Vec<u64> = sublinks.iter().map(|sublink| sublink.rate_bps).collect();
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        random.set_stream(STREAM);
        let way = match spread {
            Spread::Hash | Spread::Bonding | Spread::Single => Way::Hash,
            Spread::Rendezvous => Way::Rendezvous,
            Spread::Drr => Way::Packets(Drr::new(&multilink::quanta(&rates_bps))?),
            Spread::Mlppp => {
                let rate_bps: u64 = rates_bps.iter().sum();
                let turns = Drr::new(&multilink::quanta(&rates_bps))?;
                Way::Sequenced(Box::new(Sequenced::new(turns, sublinks.len(), rate_bps)))
            }
            Spread::Dh => Keeper::way(Controller::dh(bins, control, Time::ZERO)?, random),
            Spread::Dhfv => Keeper::way(
                Controller::dhfv(bins, control, Time::ZERO, &[0; BINS])?,
                random,
            ),
            Spread::Flowlet { gap } => Way::Flowlets(Box::new(Flowlets {
                of_bins: [Flowlet::default(); BINS],
                gap_ns: u64::try_from(gap.as_nanos()).unwrap_or(u64::MAX),
                random,
            })),
        };
        let candidate = |weight| Candidate {
            weight,
            load: 0,
            usable: true,
        };
        let weights = multilink::weights(&rates_bps).into_iter();
        Ok(Trunk {
            opened: vec![0; sublinks.len()],
            carriers: vec![true; sublinks.len()],
            sublinks,
            clients: Vec::new(),
            candidates: weights.map(candidate).collect(),
            way,
            unsent: Tally::default(),
            reassignments: 0,
        })
    }

    /// Where the far end has a part in the spread, packets for a client pass it on their way: the site whose hop stands in
    /// their path after [`NODE`](Self::NODE), in place of the line `to_client`. Elsewhere that hop is the line.
    ///
    /// # Errors
    /// If there are more clients than sites can be told apart.
    pub fn client(&mut self, to_client: PipeId) -> Result<Hop, TooManyClients> {
        if !matches!(self.way, Way::Sequenced(_)) {
            return Ok(to_client.into());
        }
        self.clients.push(to_client);
        let site = u16::try_from(self.clients.len()).map_err(|_| TooManyClients)?;
        Ok(SiteId(site).into())
    }

    /// In the order of their numbers.
    pub fn sublinks(&self) -> &[Sublink] {
        &self.sublinks
    }

    /// A sublink's device loses its carrier, or has it again: the trunk sees it when it looks next.
    pub fn set_carrier(&mut self, net: &mut Net, sublink: SublinkId, on: bool) {
        self.carriers[sublink.index()] = on;
        let next_ns = net.now().as_nanos().next_multiple_of(CARRIERS_EVERY_NS);
        net.wake_at(Time::from_nanos(next_ns), CARRIERS);
    }

    /// Whether a sublink takes packets.
    pub fn is_usable(&self, sublink: SublinkId) -> bool {
        self.candidates.usable >> sublink.index() & 1 == 1
    }

    /// Lets a sublink take packets or not; every sublink begins with it.
    pub fn set_usable(&mut self, sublink: SublinkId, usable: bool) {
        let bit = 1 << sublink.index();
        self.candidates.usable &= !bit;
        self.candidates.usable |= if usable { bit } else { 0 };
    }

    /// Segments with SYN, repeated ones too, that each sublink was given: connections that began on it, in the one
    /// direction that the trunk has.
    pub fn opened(&self) -> &[u64] {
        &self.opened
    }

    /// Bins that were moved to another sublink.
    pub fn reassignments(&self) -> u64 {
        self.reassignments
    }

    /// Packets that came to the far end after it had given them up.
    pub fn late(&self) -> Tally {
        match &self.way {
            Way::Sequenced(sequenced) => sequenced.late,
            _ => Tally::default(),
        }
    }

    /// Bytes that every bin has carried; nothing where no bins are kept.
    pub fn carried(&self) -> Option<&Counters> {
        match &self.way {
            Way::Bins(keeper) => Some(&keeper.carried),
            _ => None,
        }
    }

    /// Packets that found no usable sublink.
    pub fn unsent(&self) -> Tally {
        self.unsent
    }

    /// The world is about to begin: asks for the controller's first wake-up.
    pub fn begin(&mut self, net: &mut Net) {
        if let Way::Bins(keeper) = &self.way {
            net.wake_at(keeper.controller.wakeup().0, CONTROL);
        }
    }

    fn look_at_carriers(&mut self) {
        for i in 0..self.sublinks.len() {
            self.set_usable(SublinkId(i as u16), self.carriers[i]);
        }
    }

    /// The sublink of a packet of a flow.
    fn choose(&mut self, now: Time, hash: u32, bytes: u32) -> Option<SublinkId> {
        let candidates = &self.candidates;
        let usable = candidates.usable;
        let chosen = match &mut self.way {
            Way::Hash => spread::by_hash(hash, usable),
            Way::Rendezvous => spread::by_rendezvous(candidates, hash),
            Way::Packets(turns) => return turns.choose(bytes, usable),
            Way::Sequenced(sequenced) => return sequenced.turns.choose(bytes, usable),
            Way::Bins(keeper) => {
                keeper.carried[usize::from(spread::bin(hash))] += u64::from(bytes);
                spread::by_bin(keeper.controller.bins().table(), hash, usable)
            }
            Way::Flowlets(flowlets) => {
                let Flowlets {
                    of_bins,
                    gap_ns,
                    random,
                } = &mut **flowlets;
                let fresh = || spread::by_rendezvous(candidates, random.random());
                of_bins[usize::from(spread::bin(hash))].sublink(
                    usable,
                    now.as_nanos(),
                    *gap_ns,
                    fresh,
                )
            }
        };
        chosen.map(SublinkId)
    }

    /// What a controller sees of the sublinks.
    fn queues(&self, net: &mut Net) -> Vec<Queue> {
        let now = net.now();
        let queue = |(i, sublink): (usize, &Sublink)| {
            let waiting = net.link_mut(sublink.link).backlog(now);
            let (length_bytes, buffer_bytes) = match sublink.buffer {
                Buffer::Bytes(limit_bytes) => (waiting.bytes, limit_bytes),
                // Only the part that is filled matters, in whatever unit.
                Buffer::Packets(limit) => (waiting.packets, limit),
                Buffer::Unlimited => (waiting.bytes, u64::MAX),
            };
            Queue {
                length_bytes,
                buffer_bytes,
                usable: self.is_usable(SublinkId(i as u16)),
            }
        };
        self.sublinks.iter().enumerate().map(queue).collect()
    }
}

impl Keeper {
    fn way(controller: Controller, random: ChaCha8Rng) -> Way {
        Way::Bins(Box::new(Keeper {
            controller,
            carried: [0; BINS],
            random,
        }))
    }
}

impl Sequenced {
    /// What the sublinks bring while one packet is waited for may wait.
    fn new(turns: Drr, sublinks: usize, rate_bps: u64) -> Self {
        let room_bytes = u128::from(rate_bps) * u128::from(PATIENCE_NS) / 8_000_000_000;
        let room_bytes = u64::try_from(room_bytes).unwrap_or(u64::MAX);
        Sequenced {
            turns,
            sent: 0,
            tags: Vec::new(),
            far: Resequencer::new(sublinks, room_bytes, PATIENCE_NS),
            woken_at: None,
            late: Tally::default(),
        }
    }

    /// A packet leaves over a sublink.
    fn number(&mut self, packet: PacketId, sublink: SublinkId) {
        let place = packet.0 as usize;
        if self.tags.len() <= place {
            self.tags.resize(place + 1, Tag::default());
        }
        self.tags[place] = Tag {
            number: self.sent,
            sublink: sublink.0,
            client: 0,
        };
        self.sent += 1;
    }

    /// A packet for the client of site `client` comes out of its sublink.
    fn arrive(&mut self, net: &mut Net, client: SiteId, packet: PacketId) -> Onward {
        let tag = &mut self.tags[packet.0 as usize];
        tag.client = client.0 - 1;
        let (number, sublink) = (tag.number, usize::from(tag.sublink));
        let bytes = net.packet(packet).bytes;
        match self.far.arrive(net.now(), sublink, number, bytes, packet) {
            Fate::Kept => {
                net.hold(packet);
                Onward::Kept
            }
            Fate::Late => {
                self.late.add(bytes);
                Onward::Nowhere
            }
        }
    }

    /// Sends on what need not wait, and asks to be woken for the rest.
    fn send_on(&mut self, net: &mut Net, usable: u64, clients: &[PipeId]) {
        while let Some(packet) = self.far.go_on(net.now(), usable) {
            let client = self.tags[packet.0 as usize].client;
            net.release(packet, clients[usize::from(client)]);
        }
        let Some(due) = self.far.overdue_at() else {
            return;
        };
        if self.woken_at.is_none_or(|at| at <= net.now()) {
            self.woken_at = Some(due);
            net.wake_at(due, OVERDUE);
        }
    }
}

impl Site for Trunk {
    fn pass(&mut self, net: &mut Net, site: SiteId, packet: PacketId) -> Onward {
        if let Way::Sequenced(sequenced) = &mut self.way
            && site != Trunk::NODE
        {
            let onward = sequenced.arrive(net, site, packet);
            sequenced.send_on(net, self.candidates.usable, &self.clients);
            return onward;
        }
        let &Packet {
            segment,
            label,
            bytes,
            ..
        } = net.packet(packet);
        match self.choose(net.now(), label, bytes) {
            Some(sublink) => {
                let has_syn = matches!(segment.kind, Kind::Syn | Kind::SynAck);
                self.opened[sublink.index()] += u64::from(has_syn);
                if let Way::Sequenced(sequenced) = &mut self.way {
                    sequenced.number(packet, sublink);
                }
                Onward::Over(self.sublinks[sublink.index()].link)
            }
            None => {
                self.unsent.add(bytes);
                Onward::Nowhere
            }
        }
    }

    /// What the controller waited for, a look at the carriers, or the end of a wait at the far end.
    fn wake(&mut self, net: &mut Net, token: u32) {
        if token == CARRIERS {
            return self.look_at_carriers();
        }
        if let Way::Sequenced(sequenced) = &mut self.way {
            return sequenced.send_on(net, self.candidates.usable, &self.clients);
        }
        let queues = self.queues(net);
        let Way::Bins(keeper) = &mut self.way else {
            return;
        };
        let Keeper {
            controller,
            carried,
            random,
        } = &mut **keeper;
        match controller.wakeup().1 {
            Wakeup::Volumes => controller.record_volumes(net.now(), carried),
            Wakeup::Queues => {
                let moves = controller.check_queues(net.now(), &queues, || random.random());
                self.reassignments += moves.len() as u64;
            }
        }
        net.wake_at(controller.wakeup().0, CONTROL);
    }
}
