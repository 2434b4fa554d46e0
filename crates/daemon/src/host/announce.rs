//! Announces an address on a device (RFC 5227, section 3), so that neighbours update the hardware address that they have for it.

use std::io;
use std::mem::{size_of, zeroed};
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const ETHERNET: u16 = 1;
const REQUEST: u16 = 1;
const CARD_BYTES: u8 = 6;
const ADDRESS_BYTES: u8 = 4;

/// Sends the announcement from the device with this index. Does nothing if the device has no hardware addresses.
pub fn announce(ifindex: u32, address: Ipv4Addr) -> io::Result<()> {
    let socket = packet_socket(ifindex)?;
    let own = name(&socket)?;
    if own.sll_hatype != ETHERNET || own.sll_halen != CARD_BYTES {
        return Ok(());
    }
    let card = &own.sll_addr[..CARD_BYTES.into()];
    let mut message = Vec::from(ETHERNET.to_be_bytes());
    message.extend((libc::ETH_P_IP as u16).to_be_bytes());
    message.extend([CARD_BYTES, ADDRESS_BYTES]);
    message.extend(REQUEST.to_be_bytes());
    message.extend(card);
    message.extend(address.octets());
    message.extend([0; CARD_BYTES as usize]);
    message.extend(address.octets());
    let mut everybody = at(ifindex);
    everybody.sll_halen = CARD_BYTES;
    everybody.sll_addr[..CARD_BYTES.into()].fill(0xFF);
    // SAFETY: message and address outlive the call, which is told their lengths.
    let sent = unsafe {
        libc::sendto(
            socket.as_raw_fd(),
            message.as_ptr().cast(),
            message.len(),
            0,
            (&raw const everybody).cast(),
            size_of::<libc::sockaddr_ll>() as u32,
        )
    };
    if sent < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// A packet socket that receives nothing.
fn packet_socket(ifindex: u32) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers.
    let fd = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it was opened above and has no other owner.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let mut device = at(ifindex);
    device.sll_protocol = 0;
    let length = size_of::<libc::sockaddr_ll>() as u32;
    // SAFETY: the address outlives the call, which is told its length.
    match unsafe { libc::bind(socket.as_raw_fd(), (&raw const device).cast(), length) } {
        0 => Ok(socket),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The index, type and address of the device to which a socket is bound.
fn name(socket: &OwnedFd) -> io::Result<libc::sockaddr_ll> {
    // SAFETY: a structure of integers, for which zero is valid.
    let mut own: libc::sockaddr_ll = unsafe { zeroed() };
    let mut length = size_of::<libc::sockaddr_ll>() as u32;
    // SAFETY: both outlive the call, which is told how much room there is.
    match unsafe { libc::getsockname(socket.as_raw_fd(), (&raw mut own).cast(), &raw mut length) } {
        0 => Ok(own),
        _ => Err(io::Error::last_os_error()),
    }
}

fn at(ifindex: u32) -> libc::sockaddr_ll {
    // SAFETY: a structure of integers, for which zero is valid.
    let mut at: libc::sockaddr_ll = unsafe { zeroed() };
    at.sll_family = libc::AF_PACKET as u16;
    at.sll_protocol = (libc::ETH_P_ARP as u16).to_be();
    at.sll_ifindex = ifindex as i32;
    at
}
