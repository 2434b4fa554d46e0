//! A peer at work, whichever it is.

use anabranch_core::{LinkId, Time};
use anabranch_policy::paths::Prefix;
use anabranch_policy::{Choice, Dispatch, Granularity};

use crate::peer::Peer;
use crate::ron::Overlay;
use crate::route_control::RouteControl;
use crate::router::Router;
use crate::ways::{Inward, Sent, Table};

/// A peer at work.
#[derive(Debug)]
pub struct Control {
    links: usize,
    routed: bool,
    peer: Peer,
    mind: Mind,
}

#[derive(Debug)]
enum Mind {
    /// Nothing ever changes.
    Still,
    Router(Router),
    RouteControl(RouteControl),
    Overlay(Overlay),
}

impl Control {
    /// Of a site with `links` links, all without NAT or not (`routed`), whose users ask hosts of `prefixes`.
    pub fn new(
        peer: Peer,
        links: usize,
        routed: bool,
        prefixes: Vec<Prefix>,
        random: &mut dyn FnMut() -> u64,
    ) -> Control {
        let mind = match peer {
            Peer::OneLink | Peer::Static | Peer::Nftables | Peer::Ecmp | Peer::Mptcp => Mind::Still,
            Peer::DeadGateway { .. } | Peer::Bgp(_) => Mind::Router(Router::new(peer, links)),
            Peer::RouteControl { period } => {
                Mind::RouteControl(RouteControl::new(period, links, prefixes))
            }
            Peer::Ron { metric } => Mind::Overlay(Overlay::new(metric, links, prefixes, random)),
        };
        Control {
            links,
            routed,
            peer,
            mind,
        }
    }

    /// What the packet path goes by where no [`Control::table`] says more.
    pub fn choice(&self) -> Choice {
        let dispatch = match self.peer {
            Peer::Nftables => Dispatch::Random,
            _ => Dispatch::Hash,
        };
        // Routes are asked for every packet, but translation binds a connection.
        let granularity = match self.routed && self.peer != Peer::Nftables {
            true => Granularity::Packet,
            false => Granularity::Connection,
        };
        Choice {
            dispatch: dispatch.into(),
            granularity: granularity.into(),
            ..Choice::round_robin(self.links as u32, u64::MAX >> (64 - self.links))
        }
    }

    /// The way from the site, if routes say it.
    pub fn table(&self) -> Option<Table> {
        match &self.mind {
            Mind::Still => match self.peer {
                Peer::OneLink => Some(Table::by_host(vec![LinkId(0)])),
                Peer::Static => {
                    let links = (0..self.links as u16).map(LinkId);
                    Some(Table::by_host(links.collect()))
                }
                _ => None,
            },
            Mind::Router(router) => Some(router.table()),
            Mind::RouteControl(control) => Some(control.table()),
            Mind::Overlay(overlay) => Some(overlay.table()),
        }
    }

    /// The way of the internet to a host, for what comes `from` there; none if the peer has no say in it.
    pub fn inward(&self, host: u32, from: Prefix) -> Option<Inward> {
        match &self.mind {
            Mind::Router(router) => router.inward(host),
            Mind::Overlay(overlay) => overlay.inward(from).map(|link| Inward {
                link,
                through: None,
            }),
            Mind::Still | Mind::RouteControl(_) => None,
        }
    }

    /// Whether it takes a link for alive. Those that never look take all for that.
    pub fn is_alive(&self, link: LinkId) -> bool {
        match &self.mind {
            Mind::Still => true,
            Mind::Router(router) => router.is_alive(link),
            Mind::RouteControl(control) => control.is_alive(link),
            Mind::Overlay(overlay) => overlay.is_alive(link),
        }
    }

    /// When to call [`Control::turn`], if ever.
    pub fn next_turn(&self) -> Option<Time> {
        match &self.mind {
            Mind::Still => None,
            Mind::Router(router) => Some(router.next_turn()),
            Mind::RouteControl(control) => Some(control.next_turn()),
            Mind::Overlay(overlay) => Some(overlay.next_turn()),
        }
    }

    /// Does what is due, and returns what is to be sent. `random` draws uniformly over all values.
    pub fn turn(&mut self, now: Time, random: &mut dyn FnMut() -> u64) -> Vec<Sent> {
        match &mut self.mind {
            Mind::Still => Vec::new(),
            Mind::Router(router) => router.turn(now),
            Mind::RouteControl(control) => control.turn(now),
            Mind::Overlay(overlay) => overlay.turn(now, random),
        }
    }

    /// A packet has come to the end of its journey. Returns what is to be sent for that.
    pub fn arrive(&mut self, now: Time, token: u32, random: &mut dyn FnMut() -> u64) -> Vec<Sent> {
        match &mut self.mind {
            Mind::Still => {}
            Mind::Router(router) => router.arrive(now, token),
            Mind::RouteControl(control) => control.arrive(now, token),
            Mind::Overlay(overlay) => return overlay.arrive(now, token, random),
        }
        Vec::new()
    }

    /// What is beyond the last mile of a link was cut, or is whole again: who runs it sees that.
    pub fn beyond(&mut self, now: Time, link: LinkId, lost: bool) {
        if let Mind::Router(router) = &mut self.mind {
            router.beyond(now, link, lost);
        }
    }
}
