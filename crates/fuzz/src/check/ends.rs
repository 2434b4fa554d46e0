//! What may end a connection.

use anabranch_policy::abi;

use super::{Case, Verdict, Way, ends};
use crate::build::{FIN, RST};
use crate::memory::Stream;
use crate::read::{Ip, TCP};
use crate::site::Port;
use crate::tables::{ends_of, other_key};

impl Case<'_> {
    /// A RST from a link ends a connection only if it is exact.
    pub(super) fn may_end(&mut self) -> Verdict {
        let Ok(came) = self.came() else { return Ok(()) };
        let segment = came.segment();
        let has = |flag| segment.is_some_and(|segment| segment.flags & flag != 0);
        let is_last = has(RST | FIN) || self.reason.name == "NO_FLOW_OUT";
        let ended = match is_last && came.proto() == TCP {
            true => self.ended(&came),
            false => Vec::new(),
        };
        let is_false = |stream| {
            let rst = segment.filter(|segment| segment.flags & RST != 0);
            rst.is_some_and(|rst| !self.memory.is_exact(stream, &rst))
        };
        let is_from_link = matches!(self.port, Port::Link(_));
        demand!(
            !is_from_link || !ended.into_iter().any(is_false),
            "a RST ended its connection: {segment:?}"
        );
        Ok(())
    }

    /// Connections of a packet that have ended since the last that was looked at, as their LAN hosts' streams.
    fn ended(&mut self, came: &Ip) -> Vec<Stream> {
        let begun = self.memory.ports_of(self.port, came);
        let begun: Vec<_> = begun.map(|(_, ports)| ports).collect();
        let ports = came.ports().into_iter().chain(begun);
        let connections: Vec<_> = ports
            .filter_map(|ports| self.connection(came, ports))
            // One between LAN hosts is ended by either's segments.
            .filter(|(_, flow)| {
                flow.state & (abi::STATE_CLOSED | abi::STATE_HAIRPIN) == abi::STATE_CLOSED
            })
            .collect();
        let news = connections
            .into_iter()
            .filter(|(key, flow)| self.memory.end(*key, flow.opened_ns));
        news.map(|(key, _)| ends_of(&key)).collect()
    }

    /// The LAN entry of the TCP flow that has these ports, and its key.
    fn connection(&self, came: &Ip, ports: (u16, u16)) -> Option<(abi::FlowKey, abi::Flow)> {
        let way = match self.port {
            Port::Lan(_) => Way::Out,
            Port::Link(_) => Way::In,
        };
        let (local, remote) = ends(way, came, ports);
        let key = self.key(TCP, local, remote);
        let entry = self.rig.find(&key)?;
        if way == Way::Out {
            return Some((key, entry));
        }
        let key = other_key(&key, &entry);
        Some((key, self.rig.find(&key)?))
    }
}
