//! The flow tables before and after: what changed must belong to a packet that arrived in between.

use std::collections::{HashMap, HashSet};
use std::net::Ipv4Addr;
use std::path::Path;

use anabranch_policy::abi::{self, Flow, FlowKey};
use anyhow::Result;

use crate::kernel::RawMap;
use crate::read::{Ip, TCP};
use crate::site::{LINKS, Port, link_of};

/// One end of a flow as a packet names it. Mappings have no remote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Named {
    side: u8,
    proto: u8,
    local: (Ipv4Addr, u16),
    remote: (Ipv4Addr, u16),
}

const NOBODY: (Ipv4Addr, u16) = (Ipv4Addr::UNSPECIFIED, 0);

/// The flows that packets since the last look may have changed.
#[derive(Default)]
pub struct Touched {
    flows: HashSet<Named>,
    /// Of fragments, which name no ports.
    hosts: HashSet<(u8, u8, Ipv4Addr)>,
    /// LAN hosts that may have opened a flow, and so lost an older one that nobody had answered.
    openers: HashSet<Ipv4Addr>,
}

impl Touched {
    /// By its own ports. ICMP errors change nothing (RFC 5508 section 4: they neither refresh nor end a flow).
    pub fn by(&mut self, port: Port, ip: &Ip) {
        let (side, local, remote) = match port {
            Port::Lan(_) => (abi::SIDE_LAN, ip.src(), ip.dst()),
            Port::Link(link) => (abi::side_of_link(link), ip.dst(), ip.src()),
        };
        if side == abi::SIDE_LAN {
            self.openers.insert(local);
        }
        if ip.is_fragment() {
            self.hosts.insert((side, ip.proto(), local));
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

    fn holds(&self, name: Named) -> bool {
        let host = (name.side, name.proto, name.local.0);
        self.flows.contains(&name) || self.hosts.contains(&host)
    }

    fn clear(&mut self) {
        self.flows.clear();
        self.hosts.clear();
        self.openers.clear();
    }
}

fn v4(address: abi::Addr) -> Ipv4Addr {
    match address.ip() {
        std::net::IpAddr::V4(address) => address,
        std::net::IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
    }
}

fn name_of(key: &FlowKey) -> Named {
    Named {
        side: key.side,
        proto: key.proto,
        local: (v4(key.local), key.local_port.get()),
        remote: match key.proto {
            TCP => (v4(key.remote), key.remote_port.get()),
            _ => NOBODY,
        },
    }
}

/// Of the entry on the other side.
fn other_key(key: &FlowKey, flow: &Flow) -> FlowKey {
    let side = match key.side {
        abi::SIDE_LAN => abi::side_of_link(flow.link),
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

type Entries = HashMap<FlowKey, Flow>;

/// All tables of flows, as they were at the last look.
pub struct Tables {
    maps: [RawMap; 3],
    last: Entries,
    pub touched: Touched,
}

impl Tables {
    /// Those pinned in `pins`.
    pub fn open(pins: &Path) -> Result<Self> {
        Ok(Tables {
            maps: [
                RawMap::open(&pins.join("embryos"))?,
                RawMap::open(&pins.join("flows"))?,
                RawMap::open(&pins.join("permissions"))?,
            ],
            last: Entries::new(),
            touched: Touched::default(),
        })
    }

    pub fn forget(&mut self) {
        self.last.clear();
        self.touched.clear();
    }

    /// Entries at the last look.
    pub fn entries(&self) -> usize {
        self.last.len()
    }

    /// Compares with the last look. An error in words for a flow that changed although no packet named it.
    pub fn look(&mut self) -> Result<Result<(), String>> {
        let mut now = Entries::with_capacity(self.last.len() + 64);
        for map in &mut self.maps {
            map.for_each(|key, value| {
                now.insert(read(key), read(value));
            })?;
        }
        let verdict = self.judge(&now);
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
            return self.is_mappings(key, now) || self.is_openers(flow);
        }
        self.is_named(key, flow) || before.is_some_and(|before| self.is_named(key, before))
    }

    /// Whether a permission is of a host that may have had the mapping to it meanwhile, and lost it.
    fn is_openers(&self, permission: &Flow) -> bool {
        self.touched.openers.contains(&v4(permission.other_local))
    }

    /// Whether the mapping a permission belongs to was named.
    fn is_mappings(&self, permission: &FlowKey, now: &Entries) -> bool {
        let key = FlowKey {
            remote: abi::Addr::default(),
            remote_port: abi::BePort::default(),
            ..*permission
        };
        let mapping = now.get(&key).or_else(|| self.last.get(&key));
        self.touched.holds(name_of(&key)) || mapping.is_some_and(|flow| self.is_named(&key, flow))
    }

    fn may_go(&self, key: &FlowKey, flow: &Flow, now: &Entries) -> bool {
        if is_permission(flow) {
            return self.is_mappings(key, now) || self.is_openers(flow);
        }
        let host = match key.side {
            abi::SIDE_LAN => key.local,
            _ => flow.other_local,
        };
        let is_embryo = flow.state & abi::STATE_CONFIRMED == 0;
        self.is_named(key, flow) || (is_embryo && self.touched.openers.contains(&v4(host)))
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
    let end = |(address, port): (Ipv4Addr, u16)| format!("{address}:{port}");
    format!(
        "side {side} protocol {proto} {} with {}",
        end(local),
        end(remote)
    )
}

fn read<T: aya::Pod>(bytes: &[u8]) -> T {
    assert_eq!(bytes.len(), size_of::<T>(), "the contract's size");
    // SAFETY: as long as T, and any bytes are a valid T.
    unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) }
}
