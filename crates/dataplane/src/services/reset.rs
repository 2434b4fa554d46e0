//! RSTs to the clients of a server that died, in its service's name, by the way that their packets came.

use std::mem::{size_of, zeroed};

use anabranch_core::Family;
use anabranch_policy::abi::{Connection, Ended, FlowKey};
use socket2::{Domain, SockAddr, SockAddrStorage, Socket, Type};

use crate::{Error, reset::packets};

const HARDWARE_ADDRESS: usize = 6;

/// A packet socket that receives nothing. The kernel adds the link header.
pub struct ClientResets(Socket);

impl ClientResets {
    pub fn open() -> Result<Self, Error> {
        let socket = Socket::new(Domain::PACKET, Type::DGRAM, None);
        socket.map(Self).map_err(Error::RawSocket)
    }

    /// To the client of a connection.
    pub fn send(&self, key: &FlowKey, entry: &Connection) -> Result<(), Error> {
        let ended = Ended {
            local: key.remote,
            remote: key.local,
            local_port: key.remote_port,
            remote_port: key.local_port,
            seq: entry.end,
            ack: entry.ack,
            lan_ifindex: entry.ifindex,
        };
        let to = way_back(key.remote.family(), entry);
        for packet in packets(&ended)? {
            self.0.send_to(&packet, &to).map_err(Error::RawSocket)?;
        }
        Ok(())
    }
}

fn way_back(family: Family, entry: &Connection) -> SockAddr {
    let protocol = match family {
        Family::V4 => libc::ETH_P_IP,
        Family::V6 => libc::ETH_P_IPV6,
    };
    // SAFETY: a structure of integers, for which zero is valid.
    let mut to: libc::sockaddr_ll = unsafe { zeroed() };
    to.sll_family = libc::AF_PACKET as u16;
    to.sll_protocol = (protocol as u16).to_be();
    to.sll_ifindex = entry.ifindex as i32;
    if entry.layer3 == 0 {
        to.sll_halen = HARDWARE_ADDRESS as u8;
        to.sll_addr[..HARDWARE_ADDRESS].copy_from_slice(&entry.ethernet[HARDWARE_ADDRESS..]);
    }
    let mut storage = SockAddrStorage::zeroed();
    // SAFETY: a socket address of any family fits into the storage.
    *unsafe { storage.view_as() } = to;
    // SAFETY: the storage has an address of this length.
    unsafe { SockAddr::new(storage, size_of::<libc::sockaddr_ll>() as u32) }
}
