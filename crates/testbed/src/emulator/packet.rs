//! Frames in and out of devices: packet sockets, read and written in batches, into memory that is used again.
//!
//! Every frame is kept behind its `virtio_net_hdr` (packet(7), PACKET_VNET_HDR), because that header is what tells an
//! unfinished packet (a segmentation super-packet, a partial checksum) from one that could stand on a wire.

use std::io;
use std::mem::{size_of, zeroed};
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use anabranch_line::{Service, Sort};
use nix::net::if_::if_nametoindex;

/// Frames per system call.
pub(super) const BATCH: usize = 64;
/// The largest IP packet a link carries.
pub const MTU_MAX_BYTES: u32 = 1500;
const ETHERNET_BYTES: usize = 14;
const IPV6_BYTES: usize = 40;
const ICMP: u8 = 1;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;
/// Router and neighbour solicitation and advertisement, redirect (RFC 4861 section 4).
const NEIGHBOUR_TYPES: std::ops::RangeInclusive<u8> = 133..=137;
const DNS_PORT: [u8; 2] = 53u16.to_be_bytes();

const SLOT_BYTES: usize = 2048;
const CHUNK_SLOTS: usize = 1024;
/// `struct virtio_net_hdr` without the number of buffers: flags, gso_type, and eight bytes of lengths.
const VIRTIO_BYTES: usize = 10;
const VIRTIO_F_NEEDS_CSUM: u8 = 1;
/// A receive buffer for some 30 000 full frames: the engine may be kept off its core for a while.
const SOCKET_BUFFER_BYTES: i32 = 96 << 20;

/// A place in [`Frames`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot(u32);

/// Memory for frames: grows by whole chunks while more packets than ever before are inside, and is never given back,
/// so that a link in steady state allocates nothing.
#[derive(Debug, Default)]
pub(super) struct Frames {
    chunks: Vec<Box<[[u8; SLOT_BYTES]]>>,
    lengths: Vec<u16>,
    free: Vec<Slot>,
}

impl Frames {
    pub(super) fn take(&mut self) -> Slot {
        if self.free.is_empty() {
            self.grow();
        }
        self.free.pop().expect("a chunk was just added")
    }

    pub(super) fn give_back(&mut self, slot: Slot) {
        self.free.push(slot);
    }

    fn grow(&mut self) {
        let first = self.lengths.len() as u32;
        self.chunks
            .push(vec![[0; SLOT_BYTES]; CHUNK_SLOTS].into_boxed_slice());
        self.lengths.resize(self.lengths.len() + CHUNK_SLOTS, 0);
        self.free.reserve(self.lengths.len());
        self.free
            .extend((first..first + CHUNK_SLOTS as u32).rev().map(Slot));
    }

    fn memory(&mut self, slot: Slot) -> &mut [u8] {
        let slot = slot.0 as usize;
        &mut self.chunks[slot / CHUNK_SLOTS][slot % CHUNK_SLOTS]
    }

    /// The header and the frame, as they were received.
    fn frame(&mut self, slot: Slot) -> &mut [u8] {
        let length = usize::from(self.lengths[slot.0 as usize]);
        &mut self.memory(slot)[..length]
    }

    /// The source and the destination of the IP packet in it, if it is one.
    pub(super) fn ends(&mut self, slot: Slot) -> Option<[IpAddr; 2]> {
        let frame = self.frame(slot).get(VIRTIO_BYTES..)?;
        let (ethernet, ip) = frame.split_at_checked(ETHERNET_BYTES)?;
        match ethernet[ETHERNET_BYTES - 2..] {
            [0x08, 0x00] => {
                let end = |at: usize| ip.get(at..)?.first_chunk::<4>().copied();
                Some([end(12)?.into(), end(16)?.into()])
            }
            [0x86, 0xdd] => {
                let end = |at: usize| ip.get(at..)?.first_chunk::<16>().copied();
                Some([end(8)?.into(), end(24)?.into()])
            }
            _ => None,
        }
    }

    /// What the packet in it is to a line that tells services apart.
    pub(super) fn sort(&mut self, slot: Slot) -> Sort {
        let frame = self.frame(slot).get(VIRTIO_BYTES..);
        sort(frame.unwrap_or_default())
    }

    /// Looks at a frame of `length` that was just received, header included, and makes it ready to be sent again.
    fn admit(&mut self, slot: Slot, length: usize, mtu_bytes: u32) -> Option<Flaw> {
        self.lengths[slot.0 as usize] = length as u16;
        let header = &mut self.memory(slot)[..VIRTIO_BYTES];
        let (flags, segmentation) = (header[0], header[1]);
        header.fill(0);
        if segmentation != 0 {
            Some(Flaw::Unsegmented)
        } else if flags & VIRTIO_F_NEEDS_CSUM != 0 {
            Some(Flaw::PartialChecksum)
        } else if length > VIRTIO_BYTES + ETHERNET_BYTES + mtu_bytes as usize {
            Some(Flaw::Oversize)
        } else {
            None
        }
    }
}

/// What is wrong with a frame that no wire could carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flaw {
    /// Longer than the link's MTU.
    Oversize,
    /// A super-packet still to be cut into segments: segmentation offload is on at the sending end.
    Unsegmented,
    /// Its checksum is still to be filled in: checksum offload is on at the sending end.
    PartialChecksum,
}

/// A frame as it came from a device.
#[derive(Debug)]
pub(super) struct Received {
    pub slot: Slot,
    /// The IP packet: the frame less its Ethernet header.
    pub ip_bytes: u32,
    /// When the kernel saw it, CLOCK_REALTIME.
    pub realtime_ns: Option<u64>,
    pub flaw: Option<Flaw>,
}

/// A device opened for raw frames.
#[derive(Debug)]
pub(super) struct PacketSocket(OwnedFd);

impl PacketSocket {
    /// Opens `device` of the calling thread's namespace.
    pub(super) fn open(device: &str) -> io::Result<Self> {
        let index = if_nametoindex(device)?;
        // Protocol 0 receives nothing: frames come in when bind names the device.
        let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: plain system call; the descriptor is owned by nobody else.
        let fd = unsafe {
            let fd = check(libc::socket(libc::AF_PACKET, kind, 0))?;
            OwnedFd::from_raw_fd(fd)
        };
        let socket = Self(fd);
        socket.set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, SOCKET_BUFFER_BYTES)?;
        socket.set(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, SOCKET_BUFFER_BYTES)?;
        socket.set(libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)?;
        socket.set(libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)?;
        socket.set(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)?;
        socket.bind(index)?;
        Ok(socket)
    }

    fn bind(&self, index: u32) -> io::Result<()> {
        // SAFETY: sockaddr_ll is plain data and the length is its own.
        unsafe {
            let mut address: libc::sockaddr_ll = zeroed();
            address.sll_family = libc::AF_PACKET as u16;
            address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
            address.sll_ifindex = index as i32;
            let length = size_of::<libc::sockaddr_ll>() as u32;
            check(libc::bind(
                self.0.as_raw_fd(),
                (&raw const address).cast(),
                length,
            ))?;
        }
        Ok(())
    }

    fn set(&self, level: i32, option: i32, value: i32) -> io::Result<()> {
        // SAFETY: the kernel reads an int of the given length.
        unsafe {
            check(libc::setsockopt(
                self.0.as_raw_fd(),
                level,
                option,
                (&raw const value).cast(),
                size_of::<i32>() as u32,
            ))?;
        }
        Ok(())
    }

    /// Frames the kernel dropped because this socket's buffer was full, since the last call.
    pub(super) fn take_drops(&self) -> io::Result<u64> {
        // SAFETY: tpacket_stats is plain data; the kernel writes at most the given length.
        unsafe {
            let mut stats: libc::tpacket_stats = zeroed();
            let mut length = size_of::<libc::tpacket_stats>() as u32;
            check(libc::getsockopt(
                self.0.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut stats).cast(),
                &raw mut length,
            ))?;
            Ok(u64::from(stats.tp_drops))
        }
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Room for one cmsg with a timespec, aligned as cmsghdr wants it.
type Control = [u64; 8];

/// The arguments of recvmmsg(2) and sendmmsg(2).
struct Vectors {
    headers: Box<[libc::mmsghdr]>,
    vectors: Box<[libc::iovec]>,
    controls: Box<[Control]>,
}

// SAFETY: the pointers inside are set before, and used within, one method call on one thread.
unsafe impl Send for Vectors {}

impl Vectors {
    fn new() -> Self {
        // SAFETY: both are plain data for which zero is "empty".
        let (header, vector) = unsafe { (zeroed(), zeroed()) };
        Self {
            headers: vec![header; BATCH].into(),
            vectors: vec![vector; BATCH].into(),
            controls: vec![[0; 8]; BATCH].into(),
        }
    }

    fn point(&mut self, index: usize, bytes: &mut [u8]) {
        let vector = &mut self.vectors[index];
        vector.iov_base = bytes.as_mut_ptr().cast();
        vector.iov_len = bytes.len();
        let header = &mut self.headers[index].msg_hdr;
        header.msg_iov = vector;
        header.msg_iovlen = 1;
    }

    fn point_with_control(&mut self, index: usize, bytes: &mut [u8]) {
        self.point(index, bytes);
        let header = &mut self.headers[index].msg_hdr;
        header.msg_control = self.controls[index].as_mut_ptr().cast();
        header.msg_controllen = size_of::<Control>();
    }

    /// The kernel's time stamp on a received frame.
    fn realtime_ns(&self, index: usize) -> Option<u64> {
        let header = &raw const self.headers[index].msg_hdr;
        // SAFETY: the kernel has filled the header and its control buffer; the timespec is read unaligned.
        unsafe {
            let control = libc::CMSG_FIRSTHDR(header);
            let kind = libc::SCM_TIMESTAMPNS;
            if control.is_null() || (*control).cmsg_type != kind {
                return None;
            }
            let stamp: libc::timespec = libc::CMSG_DATA(control)
                .cast::<libc::timespec>()
                .read_unaligned();
            Some(stamp.tv_sec as u64 * 1_000_000_000 + stamp.tv_nsec as u64)
        }
    }
}

/// Reads frames, [`BATCH`] at a time.
pub(super) struct Receiver {
    vectors: Vectors,
    /// Where the next frames go.
    slots: Vec<Slot>,
}

impl Receiver {
    pub(super) fn new() -> Self {
        Self {
            vectors: Vectors::new(),
            slots: Vec::with_capacity(BATCH),
        }
    }

    /// Reads the frames that are waiting, [`BATCH`] at most, and hands them over in order. Returns how many.
    pub(super) fn receive(
        &mut self,
        socket: &PacketSocket,
        frames: &mut Frames,
        mtu_bytes: u32,
        mut each: impl FnMut(&mut Frames, Received),
    ) -> io::Result<usize> {
        for index in 0..BATCH {
            if index == self.slots.len() {
                self.slots.push(frames.take());
            }
            self.vectors
                .point_with_control(index, frames.memory(self.slots[index]));
        }
        // SAFETY: the headers point to vectors, controls and slots that outlive the call.
        let count = check(unsafe {
            libc::recvmmsg(
                socket.0.as_raw_fd(),
                self.vectors.headers.as_mut_ptr(),
                BATCH as u32,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        })? as usize;
        for index in 0..count {
            let slot = std::mem::replace(&mut self.slots[index], frames.take());
            let length = self.vectors.headers[index].msg_len as usize;
            let flaw = frames.admit(slot, length, mtu_bytes);
            let received = Received {
                slot,
                ip_bytes: length.saturating_sub(VIRTIO_BYTES + ETHERNET_BYTES) as u32,
                realtime_ns: self.vectors.realtime_ns(index),
                flaw,
            };
            each(frames, received);
        }
        Ok(count)
    }
}

/// Writes frames, [`BATCH`] at a time.
pub(super) struct Sender {
    vectors: Vectors,
}

impl Sender {
    pub(super) fn new() -> Self {
        Self {
            vectors: Vectors::new(),
        }
    }

    /// Writes `slots`, [`BATCH`] at most, in order. Frames the device does not take are handed to `refused`.
    pub(super) fn send(
        &mut self,
        socket: &PacketSocket,
        frames: &mut Frames,
        slots: &[Slot],
        mut refused: impl FnMut(io::Error),
    ) {
        for (index, &slot) in slots.iter().enumerate() {
            self.vectors.point(index, frames.frame(slot));
        }
        let mut next = 0;
        while next < slots.len() {
            let rest = &mut self.vectors.headers[next..slots.len()];
            // SAFETY: the headers point to vectors and slots that outlive the call; the kernel only reads frames.
            let sent = check(unsafe {
                libc::sendmmsg(
                    socket.0.as_raw_fd(),
                    rest.as_mut_ptr(),
                    rest.len() as u32,
                    libc::MSG_DONTWAIT,
                )
            });
            match sent {
                Ok(sent) => next += sent as usize,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    refused(error);
                    next += 1;
                }
            }
        }
    }
}

/// Of an Ethernet frame. What cannot be told (a fragment without ports, what follows extension headers) is of no service.
fn sort(frame: &[u8]) -> Sort {
    let Some((ethernet, ip)) = frame.split_at_checked(ETHERNET_BYTES) else {
        return Sort::Other;
    };
    let byte = |at: usize| ip.get(at).copied().unwrap_or_default();
    let (protocol, payload) = match ethernet[ETHERNET_BYTES - 2..] {
        [0x08, 0x06] => return Sort::Neighbours,
        [0x08, 0x00] if byte(6) & 0x1f == 0 && byte(7) == 0 => {
            (byte(9), usize::from(byte(0) & 0x0f) * 4)
        }
        [0x86, 0xdd] => (byte(6), IPV6_BYTES),
        _ => return Sort::Other,
    };
    let port = |at: usize| [byte(payload + at), byte(payload + at + 1)];
    match protocol {
        UDP if [port(0), port(2)].contains(&DNS_PORT) => Sort::Of(Service::Dns),
        ICMPV6 if NEIGHBOUR_TYPES.contains(&byte(payload)) => Sort::Neighbours,
        ICMP | ICMPV6 => Sort::Of(Service::Icmp),
        _ => Sort::Other,
    }
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admitted(header: &[u8], length: usize) -> Option<Flaw> {
        let mut frames = Frames::default();
        let slot = frames.take();
        frames.memory(slot)[..header.len()].copy_from_slice(header);
        let flaw = frames.admit(slot, length, 1500);
        assert_eq!(frames.frame(slot)[..VIRTIO_BYTES], [0; VIRTIO_BYTES]);
        flaw
    }

    #[test]
    fn only_frames_a_wire_could_carry_are_admitted() {
        let full = VIRTIO_BYTES + ETHERNET_BYTES + 1500;
        let checksum_already_verified = [2, 0];
        assert_eq!(admitted(&checksum_already_verified, full), None);
        assert_eq!(admitted(&[0, 0], full + 1), Some(Flaw::Oversize));
        assert_eq!(admitted(&[1, 0], full), Some(Flaw::PartialChecksum));
        assert_eq!(admitted(&[1, 1], full), Some(Flaw::Unsegmented));
    }

    /// Of this EtherType, with these bytes at their places in the IP packet.
    fn frame(kind: [u8; 2], bytes: &[(usize, u8)]) -> Vec<u8> {
        let mut frame = vec![0; ETHERNET_BYTES + 80];
        frame[ETHERNET_BYTES - 2..ETHERNET_BYTES].copy_from_slice(&kind);
        for (at, byte) in bytes {
            frame[ETHERNET_BYTES + at] = *byte;
        }
        frame
    }

    #[test]
    fn packets_are_sorted_by_protocol_and_port_in_both_families() {
        const V4: [u8; 2] = [0x08, 0x00];
        const V6: [u8; 2] = [0x86, 0xdd];
        let dns = Sort::Of(Service::Dns);
        let icmp = Sort::Of(Service::Icmp);
        let of_v4 = |bytes: &[(usize, u8)]| sort(&frame(V4, &[&[(0, 0x45)], bytes].concat()));
        let of_v6 = |bytes: &[(usize, u8)]| sort(&frame(V6, bytes));
        assert_eq!(of_v4(&[(9, UDP), (23, 53)]), dns, "to port 53");
        assert_eq!(of_v4(&[(9, UDP), (21, 53)]), dns, "from port 53");
        assert_eq!(
            of_v4(&[(0, 0x46), (9, UDP), (27, 53)]),
            dns,
            "with an option"
        );
        assert_eq!(of_v4(&[(9, UDP), (23, 54)]), Sort::Other);
        assert_eq!(of_v4(&[(9, 6), (23, 53)]), Sort::Other, "TCP");
        assert_eq!(
            of_v4(&[(7, 1), (9, UDP), (23, 53)]),
            Sort::Other,
            "a later fragment"
        );
        assert_eq!(of_v4(&[(9, ICMP), (20, 8)]), icmp);
        assert_eq!(of_v6(&[(6, UDP), (43, 53)]), dns);
        assert_eq!(of_v6(&[(6, ICMPV6), (40, 128)]), icmp);
        assert_eq!(of_v6(&[(6, ICMPV6), (40, 135)]), Sort::Neighbours);
        assert_eq!(sort(&frame([0x08, 0x06], &[])), Sort::Neighbours, "ARP");
        assert_eq!(sort(&[0; 5]), Sort::Other);
        let short = &frame(V4, &[(0, 0x45), (9, UDP), (23, 53)])[..ETHERNET_BYTES + 22];
        assert_eq!(sort(short), Sort::Other);
    }

    #[test]
    fn memory_given_back_is_taken_again_before_more_is_made() {
        let mut frames = Frames::default();
        for _ in 0..10 * CHUNK_SLOTS {
            let slot = frames.take();
            frames.give_back(slot);
        }
        assert_eq!(frames.chunks.len(), 1);
        let slots = (0..=CHUNK_SLOTS).map(|_| frames.take()).collect::<Vec<_>>();
        assert_eq!(frames.chunks.len(), 2);
        assert!(
            slots
                .iter()
                .all(|slot| slots.iter().filter(|other| *other == slot).count() == 1)
        );
    }
}
