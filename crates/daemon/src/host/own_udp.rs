//! Moves UDP conversations of the host itself away from a link.
//!
//! A socket that is neither connected nor bound to an address follows the routing rules with every datagram. Two kinds keep the
//! address of a link: connected sockets, which are aborted, and WireGuard, which is made to choose its source again. After a
//! failure this is done at once. When a better link is back, it is done for each conversation in one of its pauses, as connection
//! tracking knows them, and only for conversations that the host began: an answer leaves by the link by which the request came.
//! What tracking has forgotten has paused for long. Sockets that are bound to an address want that one and are left alone. So are
//! sockets that took the address after the better link was back, because only their own choice led there.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::sys::socket::{setsockopt, sockopt};

use super::connections::{self, Begun, Conversation};
use super::sockets::{self, Connected};
use super::sysctl::ephemeral_ports;
use super::wireguard::{self, Peer};

/// What was done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Moved {
    /// Conversations that were moved.
    pub moved: usize,
    /// Conversations that could be moved later.
    pub left: usize,
}

/// Moves all conversations away from an address at once. Returns how many there were.
pub fn leave(address: IpAddr) -> anyhow::Result<usize> {
    let mut left = 0;
    for socket in sockets::connected_from(address).context("list UDP sockets")? {
        left += usize::from(socket.abort().context("abort a UDP socket")?);
    }
    let peers = peers_of(address);
    if peers.is_empty() {
        return Ok(left);
    }
    let tracked = connections::udp(address.into())?.unwrap_or_default();
    for peer in peers {
        let latest = tracked.latest(peer.port, peer.endpoint);
        if latest.is_none_or(|latest| latest.local.ip() == address) {
            peer.forget_source().context("WireGuard")?;
            left += 1;
        }
    }
    Ok(left)
}

/// The WireGuard peers whose endpoints have the family of an address.
fn peers_of(address: IpAddr) -> Vec<Peer> {
    let mut peers = wireguard::peers();
    peers.retain(|peer| peer.endpoint.is_ipv4() == address.is_ipv4());
    peers
}

/// The return of a better link, for one address that conversations have to leave.
#[derive(Debug)]
pub struct Return {
    address: IpAddr,
    /// Cookies of the sockets that existed when it began.
    sockets: Option<BTreeSet<[u8; 8]>>,
    /// Ports and endpoints of WireGuard, and when their source address was reset.
    forgotten: BTreeMap<(u16, SocketAddr), Instant>,
}

/// The owner of a conversation.
enum Holder {
    Socket(Connected),
    WireGuard(Peer),
}

/// What can be done about a conversation now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    Never,
    Later,
    Now,
}

impl Return {
    /// Begins to leave an address.
    pub fn to_leave(address: IpAddr) -> Self {
        Self {
            address,
            sockets: None,
            forgotten: BTreeMap::new(),
        }
    }

    /// Moves the conversations that had no packet for `idle` and are `meant`. Does nothing if no packets are tracked.
    pub fn move_idle(
        &mut self,
        idle: Duration,
        is_meant: impl Fn(&Conversation) -> bool,
    ) -> anyhow::Result<Moved> {
        let mut told = Moved::default();
        let (sockets, peers) = (self.known_sockets()?, peers_of(self.address));
        if sockets.is_empty() && peers.is_empty() {
            return Ok(told);
        }
        let Some(tracked) = connections::udp(self.address.into())? else {
            return Ok(told);
        };
        let (now, chosen) = (Instant::now(), ephemeral_ports()?);
        let of_sockets = sockets.into_iter().map(|socket| {
            let conversation = tracked.between(socket.local, socket.remote);
            let turn = turn_of_socket(&conversation, idle, chosen);
            (Holder::Socket(socket), conversation, turn)
        });
        let of_peers = peers.into_iter().map(|peer| {
            let latest = tracked.latest(peer.port, peer.endpoint);
            let forgotten = self.forgotten.get(&(peer.port, peer.endpoint));
            let since = forgotten.map(|forgotten| now - *forgotten);
            let turn = turn_of_peer(self.address, latest, idle, since);
            let local = SocketAddr::new(self.address, peer.port);
            let conversation = tracked.between(local, peer.endpoint);
            (Holder::WireGuard(peer), conversation, turn)
        });
        let due: Vec<_> = of_sockets.chain(of_peers).collect();
        for (holder, conversation, turn) in due {
            let is_to_go = turn != Turn::Never && is_meant(&conversation);
            if !is_to_go || !leads_elsewhere(self.address, conversation.remote, holder.mark()) {
                continue;
            }
            // If WireGuard was silent for long, its present source address is not known.
            let is_wireguard = matches!(holder, Holder::WireGuard(_));
            let is_here = !is_wireguard || conversation.begun.is_some();
            if turn == Turn::Now {
                told.moved += usize::from(self.tell(&holder, now)? && is_here);
            }
            // As long as tracking has the old conversation, a packet of the other end may reset the source to the old address.
            told.left += usize::from(turn == Turn::Later || is_wireguard && is_here);
        }
        Ok(told)
    }

    /// The sockets with this address that existed from the beginning.
    fn known_sockets(&mut self) -> anyhow::Result<Vec<Connected>> {
        let mut sockets = sockets::connected_from(self.address).context("list UDP sockets")?;
        let cookies = || sockets.iter().map(Connected::cookie).collect();
        let known = self.sockets.get_or_insert_with(cookies);
        sockets.retain(|socket| known.contains(&socket.cookie()));
        Ok(sockets)
    }

    /// Moves it. Returns whether it still existed.
    fn tell(&mut self, holder: &Holder, now: Instant) -> anyhow::Result<bool> {
        match holder {
            Holder::Socket(socket) => socket.abort().context("abort a UDP socket"),
            Holder::WireGuard(peer) => {
                peer.forget_source().context("WireGuard")?;
                self.forgotten.insert((peer.port, peer.endpoint), now);
                Ok(true)
            }
        }
    }
}

/// `chosen` is the range from which the kernel assigns ports; a client's socket has one of these.
fn turn_of_socket(conversation: &Conversation, idle: Duration, chosen: [u16; 2]) -> Turn {
    let has_called = match conversation.begun {
        Some(begun) => begun == Begun::Here,
        None => (chosen[0]..=chosen[1]).contains(&conversation.local.port()),
    };
    match has_called {
        false => Turn::Never,
        true if conversation.idle < idle => Turn::Later,
        true => Turn::Now,
    }
}

/// `forgotten`: time since its source was reset. It can have an address of the old link again only if there was a packet since.
fn turn_of_peer(
    address: IpAddr,
    latest: Option<Conversation>,
    idle: Duration,
    forgotten: Option<Duration>,
) -> Turn {
    let is_elsewhere = |latest: &Conversation| latest.local.ip() != address;
    match latest {
        None if forgotten.is_some() => Turn::Never,
        None => Turn::Now,
        Some(latest) if is_elsewhere(&latest) || latest.begun == Some(Begun::There) => Turn::Never,
        Some(latest) if latest.idle < idle => Turn::Later,
        Some(latest) if forgotten.is_some_and(|forgotten| forgotten <= latest.idle) => Turn::Later,
        Some(_) => Turn::Now,
    }
}

impl Holder {
    fn mark(&self) -> u32 {
        match self {
            Holder::Socket(socket) => socket.mark,
            Holder::WireGuard(peer) => peer.mark,
        }
    }
}

/// Whether a socket that connects again would get another address. It depends on routing rules of others and on specific routes.
fn leads_elsewhere(address: IpAddr, to: SocketAddr, mark: u32) -> bool {
    let source = source_to(to, mark);
    source.is_ok_and(|source| source != address)
}

fn source_to(to: SocketAddr, mark: u32) -> io::Result<IpAddr> {
    let any: IpAddr = match to.ip() {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    setsockopt(&socket, sockopt::Mark, &mark)?;
    socket.connect(to)?;
    Ok(socket.local_addr()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::connections::tests::conversations;

    const LTE: &str = "198.51.100.2";
    const IDLE: Duration = Duration::from_secs(1);

    #[test]
    fn sockets_go_in_a_pause_if_they_have_called() {
        let tracked = conversations(&[
            ("198.51.100.2:40000", "192.0.2.1:53", 1),
            ("198.51.100.2:40001", "192.0.2.1:53", 0),
            ("192.0.2.9:7000", "198.51.100.2:443", 100),
        ]);
        for (local, remote, turn) in [
            (40000, "192.0.2.1:53", Turn::Now),
            (40001, "192.0.2.1:53", Turn::Later),
            (443, "192.0.2.9:7000", Turn::Never),
            // Forgotten: only those call from such a port.
            (40002, "192.0.2.1:123", Turn::Now),
            (443, "192.0.2.10:7000", Turn::Never),
        ] {
            let local = SocketAddr::new(LTE.parse().unwrap(), local);
            let conversation = tracked.between(local, remote.parse().unwrap());
            let told = turn_of_socket(&conversation, IDLE, [32_768, 60_999]);
            assert_eq!(told, turn, "{conversation:?}");
        }
    }

    #[test]
    fn wireguard_goes_from_where_it_spoke_last_and_again_only_after_a_packet() {
        let turn = |all: &[(&str, &str, u64)], forgotten: Option<u64>| {
            let latest = conversations(all).latest(51820, "192.0.2.1:4000".parse().unwrap());
            let forgotten = forgotten.map(Duration::from_secs);
            turn_of_peer(LTE.parse().unwrap(), latest, IDLE, forgotten)
        };
        let [lte, fiber, far] = ["198.51.100.2:51820", "203.0.113.2:51820", "192.0.2.1:4000"];
        assert_eq!(turn(&[(lte, far, 20), (fiber, far, 90)], None), Turn::Now);
        assert_eq!(turn(&[(lte, far, 20), (fiber, far, 2)], None), Turn::Never);
        assert_eq!(turn(&[(lte, far, 0)], None), Turn::Later);
        assert_eq!(turn(&[(far, lte, 20)], None), Turn::Never, "it was called");
        assert_eq!(turn(&[(lte, far, 9)], Some(5)), Turn::Later, "silent since");
        assert_eq!(
            turn(&[(lte, far, 2)], Some(5)),
            Turn::Now,
            "it was led back"
        );
        assert_eq!(turn(&[], None), Turn::Now, "silent for long");
        assert_eq!(turn(&[], Some(5)), Turn::Never, "that was done");
    }
}
