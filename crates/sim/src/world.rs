//! A network that lives: events happen, packets move, connections speak.
//!
//! A packet carries the hops that are ahead of it. Most are links; the others are *sites*, where somebody decides on the
//! packet's way while it is on its way: the gateway that binds flows to links, the trunk that spreads packets over
//! sublinks. [`Site`] is that somebody. A world has one, known when it is compiled, so that a network of plain paths
//! pays nothing for it.

use std::ops::{Deref, DerefMut};

use anabranch_core::Time;

use crate::net::{Event, Stage, Stop};
pub use crate::net::{
    FlowId, FlowSpec, FlowTimes, Hop, MAX_HOPS, Net, News, Packet, Path, PathId, PipeId, SideId,
    SiteId, Trajectory, Work,
};
use crate::packet::PacketId;

/// Where a packet goes from a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Onward {
    /// The hops that are left in its path; to its side if there are none.
    Along,
    /// This link, and then the hops that are left.
    Over(PipeId),
    /// Nowhere.
    Nowhere,
    /// The site has it: it waits there ([`Net::hold`]) or was sent on already ([`Net::release`]).
    Kept,
}

/// Whoever decides at the sites of a network, and whoever opens flows while it runs.
pub trait Site {
    /// `packet` stands at `site`.
    fn pass(&mut self, net: &mut Net, site: SiteId, packet: PacketId) -> Onward;

    /// The time of [`Net::wake_at`] has come.
    fn wake(&mut self, net: &mut Net, token: u32) {
        let _ = (net, token);
    }

    /// Something became of a flow.
    fn told(&mut self, net: &mut Net, flow: FlowId, news: News) {
        let _ = (net, flow, news);
    }
}

/// No sites: every path consists of links.
#[derive(Clone, Copy, Debug, Default)]
pub struct Straight;

impl Site for Straight {
    fn pass(&mut self, _: &mut Net, site: SiteId, _: PacketId) -> Onward {
        panic!("a network of plain paths has no {site:?}")
    }
}

/// A network and everything that will happen in it.
///
/// Build it with [`Net::add_link`], [`Net::add_path`] and [`Net::open`], run it with [`World::run_until`]. A world of
/// plain paths keeps its flows to be asked after they have ended; one with a site forgets them when both sides are done.
#[derive(Debug)]
pub struct World<S = Straight> {
    net: Net,
    /// What stands in the packets' way, and decides.
    pub site: S,
}

impl<S> Deref for World<S> {
    type Target = Net;

    fn deref(&self) -> &Net {
        &self.net
    }
}

impl<S> DerefMut for World<S> {
    fn deref_mut(&mut self) -> &mut Net {
        &mut self.net
    }
}

impl World {
    /// An empty network whose links draw their losses from `seed`.
    pub fn new(seed: u64) -> Self {
        World {
            net: Net::new(seed, true),
            site: Straight,
        }
    }
}

impl World {
    /// The same network, with `site` at all its sites.
    pub fn become_site<S: Site>(self, site: S) -> World<S> {
        let mut net = self.net;
        net.keeps = false;
        World { net, site }
    }
}

impl<S: Site> World<S> {
    /// An empty network with `site` at all its sites.
    pub fn with_site(seed: u64, site: S) -> Self {
        World {
            net: Net::new(seed, false),
            site,
        }
    }

    /// The site and the network, both to be changed.
    pub fn parts(&mut self) -> (&mut S, &mut Net) {
        (&mut self.site, &mut self.net)
    }

    /// Takes it apart.
    pub fn into_parts(self) -> (S, Net) {
        (self.site, self.net)
    }

    /// From here on, flows are forgotten when both sides are done.
    pub fn forget_ended(&mut self) {
        self.net.keeps = false;
    }

    /// Lets everything happen that is due by `end`.
    pub fn run_until(&mut self, end: Time) {
        while let Some((time, event)) = self.net.events.pop_until(end) {
            self.net.now = time;
            self.net.look_ahead();
            self.happen(event);
            if !(self.net.local.is_empty() && self.net.eager.is_empty()) {
                self.catch_up();
            }
        }
        self.net.now = self.net.now.max(end);
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrival(packet) => {
                if self.net.arrives(packet) {
                    self.step(packet);
                }
            }
            Event::Leaves(packet) => {
                self.net.leaves(packet);
                self.step(packet);
            }
            Event::Departure(line) => self.net.depart(line),
            Event::Timer(place) => {
                if let Some(side) = self.net.fire(place) {
                    self.observe(side, News::GivenUp);
                    self.flush(side);
                }
            }
            Event::Open(flow) => {
                let opener = self.net.start(flow);
                self.flush(opener);
            }
            Event::Linger(place) => self.net.maybe_forget(place),
            Event::Wake(token) => {
                self.net.note(3, token);
                self.site.wake(&mut self.net, token);
            }
        }
    }

    /// What happens at this moment without a link or a timer.
    fn catch_up(&mut self) {
        loop {
            if let Some(packet) = self.net.local.pop_front() {
                self.receive(packet);
            } else if let Some((side, why)) = self.net.eager.pop_front() {
                if self.net.is_alive(side) {
                    self.observe(side, why);
                    self.flush(side);
                }
            } else {
                return;
            }
        }
    }

    /// A packet stands before the next hop of its path.
    fn step(&mut self, id: PacketId) {
        match self.net.packet_mut(id).path.next().map(Hop::stop) {
            None => self.receive(id),
            stop => self.go(id, stop),
        }
    }

    #[inline(always)]
    fn go(&mut self, id: PacketId, stop: Option<Stop>) {
        match stop {
            Some(Stop::Link(link)) => self.net.forward(id, link),
            Some(Stop::Site(site)) => self.pass(id, site),
            None => self.net.local.push_back(id),
        }
    }

    fn pass(&mut self, id: PacketId, site: SiteId) {
        match self.site.pass(&mut self.net, site, id) {
            Onward::Over(link) => self.net.forward(id, link),
            Onward::Nowhere => drop(self.net.remove(id)),
            Onward::Kept => {}
            Onward::Along => {
                let stop = self.net.packet_mut(id).path.next().map(Hop::stop);
                self.go(id, stop);
            }
        }
    }

    fn receive(&mut self, id: PacketId) {
        if let Some(side) = self.net.receive(id) {
            self.observe(side, News::Reset);
            self.flush(side);
        }
    }

    /// Notes what has become of a flow; `end` is what an abort at this moment means.
    #[inline(always)]
    fn observe(&mut self, side: SideId, end: News) {
        let Some((flow, before, stage)) = self.net.reached(side) else {
            return;
        };
        let now = Some(self.net.now);
        let times = &mut self.net.flow_mut(flow).times;
        if stage == Stage::Aborted {
            times.aborted = now;
            return self.site.told(&mut self.net, flow, end);
        }
        let mut news = [None; 3];
        if before < Stage::Open {
            times.established = now;
            news[0] = Some(News::Established);
        }
        if before < Stage::Answered && stage >= Stage::Answered {
            times.first_byte = now;
            news[1] = Some(News::FirstByte);
        }
        if stage == Stage::Finished {
            times.finished = now;
            news[2] = Some(News::Finished);
        }
        for news in news.into_iter().flatten() {
            self.site.told(&mut self.net, flow, news);
        }
    }

    /// Sends what a side has to say, arms its timer, and forgets the flow if it ended.
    fn flush(&mut self, side: SideId) {
        while let Some((id, first, more)) = self.net.poll(side) {
            if !self.net.stays(side, id) {
                self.go(id, first);
            }
            if !more {
                debug_assert!(self.net.poll(side).is_none(), "{side:?} had more to say");
                break;
            }
        }
        self.net.arm(side);
        if let Some(flow) = self.net.ended(side) {
            self.site.told(&mut self.net, flow, News::Gone);
            self.net.forget(flow);
        }
    }
}
