//! What `tc` says over netlink, as far as it concerns `clsact` and its BPF filters.

use std::io;

use aya::programs::TcAttachType;
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkBuffer,
    NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::{
    RouteNetlinkMessage,
    tc::{TcAttribute, TcBpfFlags, TcFilterBpfOption, TcHandle, TcHeader, TcMessage, TcOption},
};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use nix::errno::Errno;

use super::Rank;

/// Where a filter of ours stands at either end: before what `tc` numbers by itself, from 49152 down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub rank: Rank,
    /// Before that, while another version stands there.
    pub is_before: bool,
}

impl Place {
    fn priority(self) -> u16 {
        match (self.rank, self.is_before) {
            (Rank::First, true) => 0xa8,
            (Rank::First, false) => 0xa9,
            (Rank::Second, true) => 0xaa,
            (Rank::Second, false) => 0xab,
        }
    }
}

const HANDLE: TcHandle = TcHandle {
    major: 0,
    minor: 0xab,
};
/// All protocols, in the byte order of the wire.
const ETH_P_ALL: u16 = 0x0003_u16.to_be();

/// The port of the kernel.
const KERNEL: u32 = 0;

/// Which way packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Ingress,
    Egress,
}

impl From<TcAttachType> for End {
    fn from(end: TcAttachType) -> Self {
        match end {
            TcAttachType::Egress => End::Egress,
            _ => End::Ingress,
        }
    }
}

/// A filter of any kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    priority: u16,
    handle: TcHandle,
    /// Of BPF filters.
    pub name: Option<String>,
    /// Kernel id of a BPF filter's program.
    pub program: Option<u32>,
}

impl Filter {
    pub fn is_at(&self, place: Place) -> bool {
        (self.priority, self.handle) == (place.priority(), HANDLE)
    }

    fn read(message: &TcMessage) -> Self {
        let options = message
            .attributes
            .iter()
            .filter_map(|attribute| match attribute {
                TcAttribute::Options(options) => Some(options),
                _ => None,
            });
        let mut filter = Filter {
            priority: (message.header.info >> 16) as u16,
            handle: message.header.handle,
            name: None,
            program: None,
        };
        for option in options.flatten() {
            match option {
                TcOption::Bpf(TcFilterBpfOption::ProgName(name)) => {
                    filter.name = Some(name.clone())
                }
                TcOption::Bpf(TcFilterBpfOption::ProgId(id)) => filter.program = Some(*id),
                _ => {}
            }
        }
        filter
    }
}

/// A netlink connection of the calling thread's network namespace.
pub struct Tc(Socket);

impl Tc {
    pub fn connect() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        Ok(Tc(socket))
    }

    /// The kind of qdisc at a device's ingress hook, which `clsact` and `ingress` share.
    pub fn qdisc(&self, ifindex: u32) -> io::Result<Option<String>> {
        let ask = RouteNetlinkMessage::GetQueueDiscipline(message(ifindex, header_of_clsact()));
        let found = self.request(ask, NLM_F_DUMP)?;
        let at_hook = found.iter().find(|qdisc| {
            qdisc.header.index == ifindex as i32 && qdisc.header.parent == TcHandle::CLSACT
        });
        Ok(at_hook.and_then(kind))
    }

    pub fn add_clsact(&self, ifindex: u32) -> io::Result<()> {
        let mut clsact = message(ifindex, header_of_clsact());
        clsact.attributes.push(TcAttribute::Kind("clsact".into()));
        let add = RouteNetlinkMessage::NewQueueDiscipline(clsact);
        self.request(add, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL)
            .map(drop)
    }

    pub fn delete_clsact(&self, ifindex: u32) -> io::Result<()> {
        let clsact = message(ifindex, header_of_clsact());
        self.request(RouteNetlinkMessage::DelQueueDiscipline(clsact), NLM_F_ACK)
            .map(drop)
    }

    /// All filters at one end of a device.
    pub fn filters(&self, ifindex: u32, end: End) -> io::Result<Vec<Filter>> {
        let header = TcHeader {
            parent: parent(end),
            ..TcHeader::default()
        };
        let ask = RouteNetlinkMessage::GetTrafficFilter(message(ifindex, header));
        let found = self.request(ask, NLM_F_DUMP)?;
        Ok(found
            .iter()
            // Before the filters of a priority the kernel tells of the priority itself.
            .filter(|message| message.header.handle != TcHandle::UNSPEC)
            .map(Filter::read)
            .collect())
    }

    /// Puts a program at a place of ours: instead of what stands there, in one step, or as a filter of its own.
    pub fn set_filter(
        &self,
        ifindex: u32,
        (end, place): (End, Place),
        name: &str,
        program_fd: i32,
    ) -> io::Result<()> {
        let mut filter = message(ifindex, header_of_filter(end, place));
        filter.attributes = vec![
            TcAttribute::Kind("bpf".into()),
            TcAttribute::Options(vec![
                TcOption::Bpf(TcFilterBpfOption::ProgFd(program_fd as u32)),
                TcOption::Bpf(TcFilterBpfOption::ProgName(name.into())),
                TcOption::Bpf(TcFilterBpfOption::Flags(TcBpfFlags::DirectAction)),
            ]),
        ];
        let set = RouteNetlinkMessage::NewTrafficFilter(filter);
        self.request(set, NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE)
            .map(drop)
    }

    /// Removes what stands there.
    pub fn delete_filter(&self, ifindex: u32, (end, place): (End, Place)) -> io::Result<()> {
        let filter = message(ifindex, header_of_filter(end, place));
        self.request(RouteNetlinkMessage::DelTrafficFilter(filter), NLM_F_ACK)
            .map(drop)
    }

    fn request(&self, message: RouteNetlinkMessage, flags: u16) -> io::Result<Vec<TcMessage>> {
        let mut request = NetlinkMessage::from(message);
        request.header.flags = NLM_F_REQUEST | flags;
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        self.0.send_to(&bytes, &SocketAddr::new(KERNEL, 0), 0)?;
        let mut answers = Vec::new();
        loop {
            let (bytes, _) = self.0.recv_from_full()?;
            if read_answers(&bytes, &mut answers)? {
                return Ok(answers);
            }
        }
    }
}

/// Adds what one datagram holds. Whether it was the last of an answer.
fn read_answers(mut bytes: &[u8], answers: &mut Vec<TcMessage>) -> io::Result<bool> {
    while !bytes.is_empty() {
        let length = NetlinkBuffer::new_checked(bytes)
            .map_err(io::Error::other)?
            .length() as usize;
        let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(bytes);
        match message.map_err(io::Error::other)?.payload {
            NetlinkPayload::Done(_) => return Ok(true),
            NetlinkPayload::Error(error) => {
                return match error.code {
                    None => Ok(true),
                    Some(code) => Err(Errno::from_raw(-code.get()).into()),
                };
            }
            NetlinkPayload::InnerMessage(
                RouteNetlinkMessage::NewQueueDiscipline(message)
                | RouteNetlinkMessage::NewTrafficFilter(message),
            ) => answers.push(message),
            _ => {}
        }
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

fn message(ifindex: u32, header: TcHeader) -> TcMessage {
    let mut message = TcMessage::with_index(ifindex as i32);
    message.header = TcHeader {
        index: ifindex as i32,
        ..header
    };
    message
}

fn header_of_clsact() -> TcHeader {
    TcHeader {
        handle: TcHandle {
            minor: 0,
            ..TcHandle::CLSACT
        },
        parent: TcHandle::CLSACT,
        ..TcHeader::default()
    }
}

fn header_of_filter(end: End, place: Place) -> TcHeader {
    TcHeader {
        handle: HANDLE,
        parent: parent(end),
        info: u32::from(place.priority()) << 16 | u32::from(ETH_P_ALL),
        ..TcHeader::default()
    }
}

fn parent(end: End) -> TcHandle {
    let minor = match end {
        End::Ingress => TcHandle::MIN_INGRESS,
        End::Egress => TcHandle::MIN_EGRESS,
    };
    TcHandle {
        minor,
        ..TcHandle::CLSACT
    }
}

fn kind(message: &TcMessage) -> Option<String> {
    message
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            TcAttribute::Kind(kind) => Some(kind.clone()),
            _ => None,
        })
}
