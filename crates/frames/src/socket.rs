//! Raw sockets of the thread's namespace.

use std::io;
use std::net::SocketAddr;

use anabranch_core::Family;
use nix::net::if_::if_nametoindex;
use socket2::{Domain, Protocol, SockAddr, SockAddrStorage, Socket, Type};

use crate::build::Ip;

/// Sends IP packets of one family with the header they have.
#[derive(Debug)]
pub struct PacketSocket(Socket);

impl PacketSocket {
    pub fn open(family: Family) -> io::Result<Self> {
        let domain = match family {
            Family::V4 => Domain::IPV4,
            Family::V6 => Domain::IPV6,
        };
        let protocol = Protocol::from(libc::IPPROTO_RAW);
        Socket::new(domain, Type::RAW, Some(protocol)).map(Self)
    }

    /// The kernel routes it by its destination.
    pub fn send(&self, packet: &Ip) -> io::Result<()> {
        let to = SocketAddr::new(packet.header.destination, 0).into();
        self.0.send_to(&packet.packet(), &to).map(drop)
    }
}

/// A socket that sends Ethernet frames out of `device`, and receives nothing.
pub fn frame_socket(device: &str) -> io::Result<Socket> {
    let socket = Socket::new(Domain::PACKET, Type::RAW, None)?;
    let mut storage = SockAddrStorage::zeroed();
    // SAFETY: sockaddr_ll fits the storage, and all its bits may be zero.
    let address = unsafe { storage.view_as::<libc::sockaddr_ll>() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_ifindex = if_nametoindex(device)? as i32;
    let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the storage holds a sockaddr_ll of this length.
    socket.bind(&unsafe { SockAddr::new(storage, length) })?;
    Ok(socket)
}
