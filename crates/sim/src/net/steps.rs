//! What the world does with a network, one event after the other.

use anabranch_core::Time;
use anabranch_scenario::NEAREST;

use super::flow::{Flow, FlowId, Role, Side, SideId, Stage, Work};
use super::path::{Hop, PipeId, Stop};
use super::{Event, Net, Packet};
use crate::link::{Link, Nature, Offer};
use crate::packet::PacketId;
use crate::prefetch::prefetch;
use crate::tcp::{Flags, Kind, SackBlocks, State, is_before};

/// With fewer sides there is little that is not in the cache.
const CACHED_SIDES: usize = 1000;
/// A peer that nobody speaks to and that waits for nothing is forgotten after this.
const LINGER_NS: u64 = 60_000_000_000;

impl Net {
    pub(crate) fn flow(&self, id: FlowId) -> &Flow {
        &self.flows[id.index()]
    }

    pub(crate) fn flow_mut(&mut self, id: FlowId) -> &mut Flow {
        &mut self.flows[id.index()]
    }

    pub(crate) fn side(&self, id: SideId) -> &Side {
        &self.sides[id.index()]
    }

    pub(crate) fn side_mut(&mut self, id: SideId) -> &mut Side {
        &mut self.sides[id.index()]
    }

    #[inline]
    pub(crate) fn note(&mut self, kind: u64, subject: u32) {
        self.trajectory.note(self.now, kind, subject);
    }

    #[inline]
    pub(crate) fn remove(&mut self, id: PacketId) -> Packet {
        self.taken += 1;
        self.packets.remove(id)
    }

    /// Has the cache fetch what the events after this one will touch.
    #[inline(always)]
    pub(crate) fn look_ahead(&mut self) {
        if self.sides.len() < CACHED_SIDES {
            return;
        }
        match self.events.scout() {
            Some(Event::Arrival(packet)) => prefetch(self.packets.get(packet)),
            Some(Event::Timer(place)) => prefetch(&self.sides[place as usize]),
            _ => {}
        }
        if let Some(Event::Arrival(packet)) = self.events.ahead() {
            self.fetch_way(self.packets.get(packet));
        }
    }

    /// Fetches the links that a packet will be offered to, or its side.
    #[inline(always)]
    fn fetch_way(&self, packet: &Packet) {
        let mut ends = true;
        for hop in packet.path.ahead() {
            if let Stop::Link(link) = hop.stop() {
                prefetch(&self.links[link.index()]);
                ends = false;
            }
        }
        if let Some(side) = self.sides.get(packet.to.index()).filter(|_| ends) {
            prefetch(side);
        }
    }

    /// Whether a packet arrives now, as was once expected.
    #[inline]
    pub(crate) fn arrives(&mut self, id: PacketId) -> bool {
        let packet = self.packets.get_mut(id);
        let due = packet.due_ns == self.now.as_nanos();
        if due {
            packet.due_ns = u64::MAX;
            self.note(1, id.0);
        }
        due
    }

    /// Offers a packet to a link, and at once to those after it that nothing else feeds.
    #[inline(always)]
    pub(crate) fn forward(&mut self, id: PacketId, link: PipeId) {
        debug_assert!(!link.is_fed(), "{link:?} takes packets of one link alone");
        let packet = self.packets.get_mut(id);
        let (mut at, mut link) = (self.now, link);
        loop {
            let line = &mut self.links[link.index()];
            let offer = if line.is_plain() {
                line.take_plainly(at, packet.bytes)
            } else {
                offer(line, at, packet, id, &self.sides)
            };
            match offer {
                Offer::Arrives(then) | Offer::Marked(then) => at = then,
                Offer::Waits => return self.tend(link),
                Offer::Overflowed | Offer::Lost => {
                    self.packets.remove(id);
                    return;
                }
            }
            match packet.path.next_fed() {
                Some(fed) => link = fed,
                None => break,
            }
        }
        packet.due_ns = at.as_nanos();
        self.events.push(at, Event::Arrival(id));
    }

    /// Does what follows from a change of a managed queue.
    #[inline(never)]
    pub(super) fn tend(&mut self, line: PipeId) {
        let link = &mut self.links[line.index()];
        for id in link.take_dropped() {
            self.packets.remove(id);
        }
        match link.arm(self.now) {
            Some(at) if at == self.now => self.depart(line),
            Some(at) => self.events.push(at, Event::Departure(line)),
            None => {}
        }
    }

    /// A line may be free for the next packet of its managed queue.
    #[inline(never)]
    pub(crate) fn depart(&mut self, line: PipeId) {
        let link = &mut self.links[line.index()];
        if !link.is_due(self.now) {
            return;
        }
        let (packets, sides) = (&self.packets, &self.sides);
        let Some(departure) = link.next(self.now, |id| nature(sides, packets.get(id))) else {
            return self.tend(line);
        };
        let id = departure.packet;
        self.note(4, id.0);
        let packet = self.packets.get_mut(id);
        if departure.marked {
            packet.mark();
        }
        match departure.arrives {
            Some(at) => {
                packet.due_ns = at.as_nanos();
                self.events.push(at, Event::Arrival(id));
            }
            None => drop(self.packets.remove(id)),
        }
        self.tend(line);
    }

    /// Looks for the arrivals of a line that has changed.
    pub(super) fn expect(&mut self, line: PipeId) {
        for (id, at) in self.links[line.index()].to_come(self.now) {
            let packet = self.packets.get_mut(id);
            if packet.due_ns != at.as_nanos() {
                packet.due_ns = at.as_nanos();
                self.events.push(at, Event::Arrival(id));
            }
        }
    }

    /// Starts a flow and returns its opener.
    pub(crate) fn start(&mut self, flow: FlowId) -> SideId {
        self.note(0, flow.0);
        let Flow { spec, opener, .. } = self.flows[flow.index()];
        let now_ns = self.now.as_nanos();
        let side = &mut self.sides[opener.index()];
        side.heard_ns = now_ns;
        let endpoint = &mut side.endpoint;
        endpoint.connect(now_ns);
        match spec.work {
            Work::Endless => endpoint.write_forever(&spec.tcp),
            Work::Request { request_bytes, .. } => endpoint.write(request_bytes, &spec.tcp),
            Work::Transfer(bytes) => {
                endpoint.write(bytes, &spec.tcp);
                endpoint.close();
            }
        }
        opener
    }

    /// Hands a packet to its side, which is returned unless it is gone.
    #[inline(always)]
    pub(crate) fn receive(&mut self, id: PacketId) -> Option<SideId> {
        let now_ns = self.now.as_nanos();
        let sacks = self.packets.get(id).segment.flags.has(Flags::SACK);
        let sack = sacks.then(|| &self.sacks[id.0 as usize]);
        self.taken += 1;
        let packet = self.packets.take(id);
        let to = packet.to;
        let side = self.sides.get_mut(to.index())?;
        if side.generation != to.generation || matches!(side.role, Role::Dead) {
            return None;
        }
        let tcp = &self.configs[usize::from(side.tcp)];
        if !is_before(packet.segment.stamp, side.seen) {
            side.seen = packet.segment.stamp;
        } else if packet.segment.kind == Kind::Data {
            self.reordered += 1;
        }
        side.heard_ns = now_ns;
        let endpoint = &mut side.endpoint;
        endpoint.handle_segment(&packet.segment, sack, now_ns, tcp);
        if let Role::Answers { after, bytes } = side.role
            && endpoint.received_segments() >= after
        {
            endpoint.write(bytes, tcp);
            endpoint.close();
            side.role = Role::Takes;
        }
        if endpoint.received_all() {
            endpoint.close();
        }
        Some(to)
    }

    /// The side whose timer fires now, if one does. One that fires early waits on for its deadline.
    #[inline]
    pub(crate) fn fire(&mut self, place: u32) -> Option<SideId> {
        let now_ns = self.now.as_nanos();
        let side = &mut self.sides[place as usize];
        if side.armed_ns != now_ns {
            return None;
        }
        self.trajectory.note(self.now, 2, place);
        side.armed_ns = u64::MAX;
        let id = SideId {
            index: place,
            generation: side.generation,
        };
        if side
            .endpoint
            .poll_timeout()
            .is_none_or(|at_ns| at_ns > now_ns)
        {
            self.arm(id);
            return None;
        }
        let tcp = &self.configs[usize::from(side.tcp)];
        side.endpoint.handle_timeout(now_ns, tcp);
        Some(id)
    }

    /// The next packet that a side has to say, the first hop of its path, and whether the side may have more to say.
    #[inline(always)]
    pub(crate) fn poll(&mut self, id: SideId) -> Option<(PacketId, Option<Stop>, bool)> {
        let side = &mut self.sides[id.index()];
        let tcp = &self.configs[usize::from(side.tcp)];
        let high = side.endpoint.high();
        let segment = side.endpoint.poll_segment(self.now.as_nanos(), tcp)?;
        let bytes = u32::from(segment.payload_bytes) + tcp.header_bytes;
        if segment.kind == Kind::Data && segment.number < high {
            self.retransmitted.add(bytes);
        }
        let first = side.first.map(Hop::stop);
        let sacks = segment.flags.has(Flags::SACK);
        let sack = sacks.then(|| side.endpoint.take_sack());
        let more = side.endpoint.may_go_on(segment.kind, tcp);
        let packet = self.packets.insert(Packet {
            segment,
            from: id,
            to: side.other,
            path: side.rest,
            due_ns: u64::MAX,
            bytes,
            label: side.label,
        });
        if let Some(sack) = sack {
            self.keep_blocks(packet, sack);
        }
        Some((packet, first, more))
    }

    /// Whether the host takes its time for a packet that a side has just said: then it stays there until it leaves.
    #[inline(always)]
    pub(crate) fn stays(&mut self, id: SideId, packet: PacketId) -> bool {
        let overhead = &mut self.sides[id.index()].overhead;
        let Some(overhead) = overhead else {
            return false;
        };
        let at = overhead.leaves(self.now);
        let path = &mut self.packets.get_mut(packet).path;
        *path = path.with_former();
        self.keep(packet, at);
        true
    }

    /// A packet that stayed in its host leaves it.
    pub(crate) fn leaves(&mut self, packet: PacketId) {
        self.held -= 1;
        self.note(5, packet.0);
    }

    fn keep_blocks(&mut self, packet: PacketId, sack: SackBlocks) {
        let place = packet.0 as usize;
        if self.sacks.len() <= place {
            self.sacks
                .resize(self.packets.places(), SackBlocks::default());
        }
        self.sacks[place] = sack;
    }

    #[inline(always)]
    pub(crate) fn arm(&mut self, id: SideId) {
        let side = &mut self.sides[id.index()];
        if let Some(deadline_ns) = side.endpoint.poll_timeout()
            && deadline_ns < side.armed_ns
        {
            side.armed_ns = deadline_ns;
            self.events
                .push(Time::from_nanos(deadline_ns), Event::Timer(id.index));
        }
    }

    /// The stage a side has reached, if that is news.
    #[inline]
    pub(crate) fn reached(&mut self, id: SideId) -> Option<(FlowId, Stage, Stage)> {
        let side = &mut self.sides[id.index()];
        if !side.opens() || side.stage >= Stage::Finished {
            return None;
        }
        let stage = side.reached().max(side.stage);
        let before = std::mem::replace(&mut side.stage, stage);
        (before != stage).then_some((side.flow?, before, stage))
    }

    /// The flow that ended with what happened to this side, if one did.
    #[inline]
    pub(crate) fn ended(&mut self, id: SideId) -> Option<FlowId> {
        let side = &self.sides[id.index()];
        if self.keeps || !side.is_done() {
            return None;
        }
        let Some(flow) = side.flow else {
            self.free_side(id);
            return None;
        };
        let other = self.side(side.other);
        let aborted = side.opens() && side.endpoint.state() == State::Aborted;
        (other.is_done() || aborted).then_some(flow)
    }

    /// Gives a flow's place to others.
    pub(crate) fn forget(&mut self, flow: FlowId) {
        let Flow { opener, peer, .. } = self.flows[flow.index()];
        if self.side(peer).is_done() {
            self.free_side(peer);
        } else {
            self.orphan(peer);
        }
        self.free_side(opener);
        self.free_flows.push(flow);
    }

    fn free_side(&mut self, id: SideId) {
        let side = &mut self.sides[id.index()];
        side.generation += 1;
        side.armed_ns = u64::MAX;
        side.free = true;
        self.free_sides.push(id.index);
    }

    pub(super) fn orphan(&mut self, id: SideId) {
        self.sides[id.index()].flow = None;
        self.linger(id.index);
    }

    fn linger(&mut self, place: u32) {
        let at = Time::from_nanos(self.now.as_nanos() + LINGER_NS);
        self.events.push(at, Event::Linger(place));
    }

    /// Forgets an orphan that has nothing to wait for.
    pub(crate) fn maybe_forget(&mut self, place: u32) {
        let side = &self.sides[place as usize];
        if side.free || side.flow.is_some() {
            return;
        }
        let idle_ns = self.now.as_nanos() - side.heard_ns;
        if side.endpoint.poll_timeout().is_some() || idle_ns < LINGER_NS {
            self.linger(place);
            return;
        }
        let generation = side.generation;
        self.free_side(SideId {
            index: place,
            generation,
        });
    }
}

/// Offers a packet to a link, and marks it if that is the answer.
#[inline(never)]
fn offer(line: &mut Link, at: Time, packet: &mut Packet, place: PacketId, sides: &[Side]) -> Offer {
    let nature = match line.loses_by_nature() {
        true => nature(sides, packet),
        false => Nature::ORDINARY,
    };
    let offer = line.take(at, packet.frame(place, nature));
    if matches!(offer, Offer::Marked(_)) {
        packet.mark();
    }
    offer
}

/// What is of no connection goes to the nearest, and its label says what it asks.
fn nature(sides: &[Side], packet: &Packet) -> Nature {
    let ends = [packet.from, packet.to];
    if ends == [SideId::NOBODY; 2] {
        return Nature {
            sort: packet.sort(),
            ..Nature::ORDINARY
        };
    }
    let side = ends.iter().find_map(|end| {
        let side = sides.get(end.index())?;
        (side.generation == end.generation).then_some(side)
    });
    Nature {
        hops: side.map_or(NEAREST, |side| side.hops),
        ..Nature::ORDINARY
    }
}
