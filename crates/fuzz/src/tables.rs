//! The flow tables before and after: what changed must belong to a packet that arrived in between.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use anabranch_policy::abi::{self, Flow, FlowKey, HostKey};
use anyhow::Result;

use crate::build::End;
use crate::read::{ICMP6, Ip, TCP, UDP, pod};
use crate::shares::{self, Shares};
use crate::site::{LINKS, Port, Told, family_of, link_of};
use anabranch_dataplane::raw::RawMap;

/// One end of a flow as a packet names it. Mappings have no remote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Named {
    side: u8,
    proto: u8,
    local: End,
    remote: End,
}

const NOBODY: End = (IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// The flows that packets since the last look may have changed.
#[derive(Default)]
pub struct Touched {
    flows: HashSet<Named>,
    /// Of fragments, which name no ports.
    hosts: HashSet<(u8, u8, IpAddr)>,
    /// LAN hosts that may have opened a flow, and so lost an older one that nobody had answered, with their addresses.
    openers: HashMap<HostKey, HashSet<IpAddr>>,
    /// Protocol, LAN address and the address it spoke to.
    spoken: HashSet<(u8, IpAddr, IpAddr)>,
}

impl Touched {
    /// By its own ports. ICMP errors change nothing (RFC 5508 section 4: they neither refresh nor end a flow).
    pub fn by(&mut self, port: Port, ip: &Ip) {
        let (side, local, remote) = match port {
            Port::Lan(_) => (abi::SIDE_LAN, ip.src(), ip.dst()),
            Port::Link(link) => (abi::side_of_link(link), ip.dst(), ip.src()),
        };
        for proto in protos_of(ip) {
            if side == abi::SIDE_LAN {
                self.spoken.insert((proto, local, remote));
            }
            if ip.is_fragment() {
                self.hosts.insert((side, proto, local));
            }
        }
        let Some((from, to)) = ip.ports() else { return };
        let (local_port, remote_port) = match port {
            Port::Lan(_) => (from, to),
            Port::Link(_) => (to, from),
        };
        let name = |side, local, remote| Named {
            side,
            proto: ip.proto(),
            local,
            remote: if ip.proto() == TCP { remote } else { NOBODY },
        };
        let ends = ((local, local_port), (remote, remote_port));
        self.flows.insert(name(side, ends.0, ends.1));
        // From one LAN host to another by its external address: the other's flow hears it.
        if side == abi::SIDE_LAN && link_of(remote).is_some() {
            for link in 0..LINKS {
                self.flows
                    .insert(name(abi::side_of_link(link), ends.1, ends.0));
            }
            self.hosts
                .extend((0..LINKS).map(|link| (abi::side_of_link(link), ip.proto(), remote)));
        }
    }

    /// A LAN host sent something from `address`.
    pub fn by_host(&mut self, host: HostKey, address: IpAddr) {
        self.openers.entry(host).or_default().insert(address);
    }

    fn holds(&self, name: Named) -> bool {
        let host = (name.side, name.proto, name.local.0);
        self.flows.contains(&name) || self.hosts.contains(&host)
    }

    fn clear(&mut self) {
        self.flows.clear();
        self.hosts.clear();
        self.openers.clear();
        self.spoken.clear();
    }
}

/// What it may be of: a later fragment of IPv6 need not tell (RFC 8200 section 4.5).
fn protos_of(ip: &Ip) -> Vec<u8> {
    match ip.is_ipv6() && ip.is_later_fragment() {
        true => vec![TCP, UDP, ICMP6],
        false => vec![ip.proto()],
    }
}

/// Local and remote end.
pub fn ends_of(key: &FlowKey) -> (End, End) {
    let local = (key.local.ip(), key.local_port.get());
    (local, (key.remote.ip(), key.remote_port.get()))
}

fn name_of(key: &FlowKey) -> Named {
    let (local, remote) = ends_of(key);
    Named {
        side: key.side,
        proto: key.proto,
        local,
        remote: if key.proto == TCP { remote } else { NOBODY },
    }
}

/// Of the entry on the other side.
pub fn other_key(key: &FlowKey, flow: &Flow) -> FlowKey {
    let side = match key.side {
        abi::SIDE_LAN => abi::side_of_link(flow.link.into()),
        _ => abi::SIDE_LAN,
    };
    FlowKey {
        local: flow.other_local,
        local_port: flow.other_port,
        side,
        ..*key
    }
}

fn is_permission(flow: &Flow) -> bool {
    flow.state & abi::STATE_PERMISSION != 0
}

/// Whether the mapping that a permission was given to is there.
fn is_granted(key: &FlowKey, permission: &Flow, now: &Entries) -> bool {
    let mapping = FlowKey {
        remote: abi::Addr::default(),
        remote_port: abi::BePort::default(),
        ..*key
    };
    now.get(&mapping)
        .is_some_and(|mapping| mapping.opened_ns == permission.opened_ns)
}

type Entries = HashMap<FlowKey, Flow>;

/// All tables of flows, as they were at the last look.
pub struct Tables {
    maps: [RawMap; 2],
    /// What hosts and devices hold.
    pub shares: Shares,
    last: Entries,
    /// Entries changed since the last look.
    pub touched: Touched,
}

impl Tables {
    /// Those pinned in `pins`.
    pub fn open(pins: &Path) -> Result<Self> {
        Ok(Tables {
            maps: [
                RawMap::open(&pins.join("flows"))?,
                RawMap::open(&pins.join("permissions"))?,
            ],
            shares: Shares::open(pins)?,
            last: Entries::new(),
            touched: Touched::default(),
        })
    }

    /// As if nothing had been seen.
    pub fn forget(&mut self) {
        self.last.clear();
        self.touched.clear();
    }

    /// Entries at the last look.
    pub fn entries(&self) -> usize {
        self.last.len()
    }

    /// Compares with the last look, and with what is counted. An error in words for a flow that changed although no packet
    /// named it, or for one that is not counted against its host.
    pub fn look(&mut self, told: &Told) -> Result<Result<(), String>> {
        let mut now = Entries::with_capacity(self.last.len() + 64);
        for map in &mut self.maps {
            map.for_each(|key, value| {
                now.insert(pod(key), pod(value));
            })?;
        }
        let counted = self.shares.look(told, now.iter())?;
        let verdict = self.judge(&now).and(counted);
        self.last = now;
        self.touched.clear();
        Ok(verdict)
    }

    fn judge(&self, now: &Entries) -> Result<(), String> {
        for (key, flow) in now {
            let before = self.last.get(key);
            if before != Some(flow) && !self.may_change(key, flow, before, now) {
                return Err(format!(
                    "a flow changed that no packet named: {} was {before:?}, is {flow:?}",
                    words(key)
                ));
            }
            if !self.is_openers(key, flow, before) {
                return Err(format!("{} counts against another host", words(key)));
            }
            self.is_pair(key, flow, now)?;
        }
        for (key, flow) in &self.last {
            if !now.contains_key(key) && !self.may_go(key, flow, now) {
                return Err(format!(
                    "a flow is gone that no packet named: {} was {flow:?}",
                    words(key)
                ));
            }
        }
        Ok(())
    }

    fn is_named(&self, key: &FlowKey, flow: &Flow) -> bool {
        self.touched.holds(name_of(key)) || self.touched.holds(name_of(&other_key(key, flow)))
    }

    fn may_change(&self, key: &FlowKey, flow: &Flow, before: Option<&Flow>, now: &Entries) -> bool {
        if is_permission(flow) {
            let is_new = before.is_none_or(|before| before.opened_ns != flow.opened_ns);
            let was_granted = before.is_some_and(|before| is_granted(key, before, now));
            return self.is_spoken(key, flow.other_local) && !(is_new && was_granted);
        }
        self.is_named(key, flow) || before.is_some_and(|before| self.is_named(key, before))
    }

    /// Whether the LAN address `local` spoke to the remote address of a permission.
    fn is_spoken(&self, permission: &FlowKey, local: abi::Addr) -> bool {
        let spoken = (permission.proto, local.ip(), permission.remote.ip());
        self.touched.spoken.contains(&spoken)
    }

    /// Whether a new LAN entry counts against a host that sent something from its address.
    fn is_openers(&self, key: &FlowKey, flow: &Flow, before: Option<&Flow>) -> bool {
        let host = shares::holder(flow, key.local);
        let is_old = before.is_some_and(|before| shares::holder(before, key.local) == host);
        let sent_from = self.touched.openers.get(&host);
        key.side != abi::SIDE_LAN
            || is_old
            || sent_from.is_some_and(|addresses| addresses.contains(&key.local.ip()))
    }

    /// A permission stays until its place is another's, or was: then it is worth nothing.
    fn may_go(&self, key: &FlowKey, flow: &Flow, now: &Entries) -> bool {
        if is_permission(flow) {
            return !is_granted(key, flow, now) && self.is_spoken_to(key);
        }
        let local = match key.side {
            abi::SIDE_LAN => key.local,
            _ => flow.other_local,
        };
        let is_unconfirmed = flow.state & abi::STATE_CONFIRMED == 0;
        let host = shares::holder(flow, local);
        let is_evicted = is_unconfirmed && self.touched.openers.contains_key(&host);
        let has_yielded = self.has_ended(key, flow) && self.is_spoken_to(key);
        self.is_named(key, flow) || is_evicted || has_yielded || self.is_decided(key, flow)
    }

    /// Whether a packet named another try of the same SYN: the first answer ends the others.
    fn is_decided(&self, key: &FlowKey, flow: &Flow) -> bool {
        let is_try = key.proto == TCP && flow.state & abi::STATE_CONFIRMED == 0;
        let external = &family_of(key.local.ip()).external;
        let mut tries = (0..LINKS).zip(external).map(|(link, &external)| Named {
            side: abi::side_of_link(link),
            local: (external, key.local_port.get()),
            ..name_of(key)
        });
        is_try && key.side != abi::SIDE_LAN && tries.any(|name| self.touched.holds(name))
    }

    /// Whether a connection had ended at the last look: its port may be another's towards the same remote end.
    fn has_ended(&self, key: &FlowKey, flow: &Flow) -> bool {
        let lan = match key.side {
            abi::SIDE_LAN => Some(flow),
            _ => self.last.get(&other_key(key, flow)),
        };
        key.proto == TCP && lan.is_some_and(|lan| lan.state & abi::STATE_CLOSED != 0)
    }

    /// Whether anybody of the LAN spoke to the remote address of a permission or a connection.
    fn is_spoken_to(&self, key: &FlowKey) -> bool {
        let (proto, remote) = (key.proto, key.remote.ip());
        let mut spoken = self.touched.spoken.iter();
        spoken.any(|&(by, _, to)| (by, to) == (proto, remote))
    }

    /// A confirmed flow has both its entries.
    fn is_pair(&self, key: &FlowKey, flow: &Flow, now: &Entries) -> Result<(), String> {
        if is_permission(flow) || flow.state & abi::STATE_CONFIRMED == 0 {
            return Ok(());
        }
        let other = other_key(key, flow);
        let is_pair = now
            .get(&other)
            .is_some_and(|entry| other_key(&other, entry) == *key);
        match is_pair {
            true => Ok(()),
            false => Err(format!(
                "a confirmed flow is half: {} is {flow:?}",
                words(key)
            )),
        }
    }
}

fn words(key: &FlowKey) -> String {
    let Named {
        side,
        proto,
        local,
        remote,
    } = name_of(key);
    let end = |end: End| std::net::SocketAddr::from(end).to_string();
    format!(
        "side {side} protocol {proto} {} with {}",
        end(local),
        end(remote)
    )
}
