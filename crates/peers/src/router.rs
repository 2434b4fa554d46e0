//! A site's router that knows its neighbours: several default routes, or BGP.
//!
//! | peer | a last mile fails | something beyond fails |
//! |---|---|---|
//! | dead gateways | seen after a time: the next route | never seen |
//! | BGP | seen by the hold timer or by BFD: the site sends by another provider at once, the internet to it when all have heard | providers withdraw what they announced: both ends change when all have heard |
//! | BGP, injected | as BGP; what is of the lost provider is announced by another: once more as long | the same |
//! | BGP, tunnelled | the provider itself sends by another as soon as it sees it | its addresses stay lost |
//!
//! All go back when the failure has ended, in the same way. Nobody looks at load.

use std::collections::BTreeMap;
use std::time::Duration;

use anabranch_core::{LinkId, Time};

use crate::peer::{Addresses, Bgp, Peer};
use crate::watch::Watch;
use crate::ways::{Inward, Journey, Sent, Table};

/// Of the keepalives of a session; after three of them its hold time is over (RFC 4271 section 4.4).
const KEEPALIVE: Duration = Duration::from_secs(30);
/// From one packet of BFD to the next (RFC 5880); three of them are its detection time, below a second.
const BFD: Duration = Duration::from_millis(300);
/// An ARP request.
const SOLICITATION_BYTES: u32 = 28;
/// With IP and UDP headers (RFC 5880 section 4.1).
const BFD_BYTES: u32 = 52;
/// With IP and TCP headers (RFC 4271 section 4.4).
const KEEPALIVE_BYTES: u32 = 59;
/// Of what is sent each period so many may be lost.
const MISSES: u32 = 3;

/// Why a link is no way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Cause {
    LastMile,
    Beyond,
}

/// Who goes by what is known of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Site,
    Internet,
}

/// What all have heard of at its time.
#[derive(Clone, Copy, Debug)]
struct Change {
    side: Side,
    link: LinkId,
    cause: Cause,
    lost: bool,
}

#[derive(Debug)]
pub(crate) struct Router {
    bgp: Option<Bgp>,
    watches: Vec<Watch>,
    ask_bytes: u32,
    asked: u32,
    /// Of each link what stands against it: a bit for each cause.
    site: Vec<u8>,
    internet: Vec<u8>,
    /// In the order in which they were begun, where their times are the same.
    changes: BTreeMap<(Time, u64), Change>,
    begun: u64,
}

/// How often a neighbour is asked, and by how many bytes.
pub fn question(peer: Peer) -> (Duration, u32) {
    match peer {
        Peer::Bgp(bgp) if bgp.bfd => (BFD, BFD_BYTES),
        Peer::Bgp(_) => (KEEPALIVE, KEEPALIVE_BYTES),
        Peer::DeadGateway { after } => (after / MISSES, SOLICITATION_BYTES),
        _ => unreachable!("no router that watches its neighbours"),
    }
}

impl Router {
    /// Of dead gateways, or of BGP.
    pub fn new(peer: Peer, links: usize) -> Router {
        let bgp = match peer {
            Peer::Bgp(bgp) => Some(bgp),
            _ => None,
        };
        let (period, ask_bytes) = question(peer);
        Router {
            bgp,
            watches: vec![Watch::new(period, period * MISSES); links],
            ask_bytes,
            asked: 0,
            site: vec![0; links],
            internet: vec![0; links],
            changes: BTreeMap::new(),
            begun: 0,
        }
    }

    pub fn is_alive(&self, link: LinkId) -> bool {
        self.watches[link.index()].is_alive()
    }

    pub fn next_turn(&self) -> Time {
        let watches = self.watches.iter().map(Watch::next);
        let changes = self.changes.first_key_value().map(|((at, _), _)| *at);
        watches.chain(changes).min().unwrap_or_default()
    }

    pub fn turn(&mut self, now: Time) -> Vec<Sent> {
        while let Some(entry) = self
            .changes
            .first_entry()
            .filter(|entry| entry.key().0 <= now)
        {
            let change = entry.remove();
            self.carry_out(change);
        }
        let mut sent = Vec::new();
        for index in 0..self.watches.len() {
            let link = LinkId(index as u16);
            if self.watches[index].dies(now) {
                self.last_mile(now, link, true);
            }
            if self.watches[index].asks(now) {
                sent.push(self.ask(link));
            }
        }
        sent
    }

    /// The link of a question is told by its number.
    fn ask(&mut self, link: LinkId) -> Sent {
        let links = self.watches.len() as u32;
        self.asked = self.asked.wrapping_add(1) % (u32::MAX / links);
        Sent {
            link,
            journey: Journey::Neighbour,
            bytes: self.ask_bytes,
            token: self.asked * links + u32::from(link.0),
        }
    }

    pub fn arrive(&mut self, now: Time, token: u32) {
        let index = token as usize % self.watches.len();
        if self.watches[index].hear(now) {
            self.last_mile(now, LinkId(index as u16), false);
        }
    }

    /// What the last mile is has been seen just now.
    fn last_mile(&mut self, now: Time, link: LinkId, lost: bool) {
        let heard = match self.bgp {
            None => Duration::ZERO,
            Some(bgp) if bgp.addresses == Addresses::Tunnelled => Duration::ZERO,
            Some(bgp) => bgp.converge,
        };
        self.begin(now, Side::Site, link, Cause::LastMile, lost);
        self.begin(now + heard, Side::Internet, link, Cause::LastMile, lost);
    }

    /// What is beyond a provider has failed, or is whole again.
    pub fn beyond(&mut self, now: Time, link: LinkId, lost: bool) {
        let Some(bgp) = self.bgp else { return };
        let withdrawn = now + bgp.converge;
        self.begin(withdrawn, Side::Site, link, Cause::Beyond, lost);
        let heard = match bgp.addresses {
            Addresses::Independent => withdrawn,
            Addresses::Injected => withdrawn + bgp.converge,
            // The provider that would have to send them on is not reached itself.
            Addresses::Tunnelled => return,
        };
        self.begin(heard, Side::Internet, link, Cause::Beyond, lost);
    }

    fn begin(&mut self, at: Time, side: Side, link: LinkId, cause: Cause, lost: bool) {
        let change = Change {
            side,
            link,
            cause,
            lost,
        };
        self.begun += 1;
        self.changes.insert((at, self.begun), change);
    }

    fn carry_out(&mut self, change: Change) {
        let known = match change.side {
            Side::Site => &mut self.site,
            Side::Internet => &mut self.internet,
        };
        let bit = 1 << change.cause as u8;
        match change.lost {
            true => known[change.link.index()] |= bit,
            false => known[change.link.index()] &= !bit,
        }
    }

    /// The way from the site.
    pub fn table(&self) -> Table {
        let hosts = match self.has_homes() {
            true => 0..self.site.len(),
            false => 0..1,
        };
        let way = |home| LinkId(best(&self.site, home) as u16);
        Table::by_host(hosts.map(way).collect())
    }

    /// The way to a host, where the router has anything to say of it.
    pub fn inward(&self, host: u32) -> Option<Inward> {
        let bgp = self.bgp?;
        let home = match self.has_homes() {
            true => host as usize % self.internet.len(),
            false => 0,
        };
        let link = best(&self.internet, home);
        let is_sent_on = bgp.addresses == Addresses::Tunnelled && link != home;
        Some(Inward {
            link: LinkId(link as u16),
            through: is_sent_on.then_some(LinkId(home as u16)),
        })
    }

    fn has_homes(&self) -> bool {
        let addresses = self.bgp.map(|bgp| bgp.addresses);
        matches!(addresses, Some(Addresses::Injected | Addresses::Tunnelled))
    }
}

/// `home` if nothing stands against it, else the first of which that is so, else `home`.
fn best(known: &[u8], home: usize) -> usize {
    match known[home] {
        0 => home,
        _ => known
            .iter()
            .position(|against| *against == 0)
            .unwrap_or(home),
    }
}
