//! TCP connections through the gateway.

use std::net::SocketAddr;

use super::{Rig, site_of};
use crate::frame::{Segment, tcp};

pub const LOCAL_ISN: u32 = 1_000_000;
pub const REMOTE_ISN: u32 = 3_000_000_000;

/// The four ends of a connection through the gateway.
#[derive(Clone, Copy, Debug)]
pub struct Connection {
    pub local: SocketAddr,
    pub remote: SocketAddr,
    pub external: SocketAddr,
    pub link: u16,
}

impl Connection {
    /// A segment of the LAN host.
    pub fn say(&self, flags: &str, seq: u32, ack: u32) -> Segment {
        tcp(self.local, self.remote, flags, seq, ack)
    }

    /// A segment of the remote end, as it arrives on the link.
    pub fn answer(&self, flags: &str, seq: u32, ack: u32) -> Segment {
        tcp(self.remote, self.external, flags, seq, ack)
    }
}

impl Rig {
    /// Sends the SYN of a TCP connection through the gateway: what it was translated to, and its link.
    #[track_caller]
    pub fn open(&mut self, local: SocketAddr, remote: SocketAddr) -> Connection {
        let syn = tcp(local, remote, "S", LOCAL_ISN, 0);
        let sent = self.translates_out(&syn.frame());
        Connection {
            local,
            remote,
            external: sent.src(),
            link: link_of(sent.src()),
        }
    }

    /// The rest of the handshake of a connection whose SYN was sent.
    #[track_caller]
    pub fn confirm(&mut self, connection: &Connection) {
        let answer = connection.answer("SA", REMOTE_ISN, LOCAL_ISN + 1);
        self.translates_in(connection.link, &answer.frame());
        let ack = connection.say("A", LOCAL_ISN + 1, REMOTE_ISN + 1);
        self.translates_out(&ack.frame());
    }

    /// Opens a TCP connection through the gateway.
    #[track_caller]
    pub fn connect(&mut self, local: SocketAddr, remote: SocketAddr) -> Connection {
        let connection = self.open(local, remote);
        self.confirm(&connection);
        connection
    }
}

/// The link an external endpoint belongs to.
#[track_caller]
pub fn link_of(external: SocketAddr) -> u16 {
    let site = site_of(external.ip().into());
    let found = site
        .external
        .iter()
        .position(|address| *address == external.ip());
    found.unwrap_or_else(|| panic!("{external} is no link's")) as u16
}
