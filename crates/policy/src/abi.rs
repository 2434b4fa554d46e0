//! The contract of `bpf/include`, field by field: values of BPF maps, arguments of programs, inputs of a choice.
//!
//! The meaning and unit of each field stand in the C headers. The tests compare the size and offset of every field and
//! the value of every constant with them, in both directions, so that neither side can forget one.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The size of every per-link array.
pub const MAX_LINKS: usize = 16;
pub const WEIGHT_MIN: u32 = 1;
pub const WEIGHT_MAX: u32 = 1_000_000;
/// Pinned maps of another version are never adopted.
pub const ABI_VERSION: u32 = 5;
/// Ports of the host that [`Settings::reserved`] holds.
pub const RESERVED_MAX: usize = 16;
/// Flows that `sweep_flows` or `end_link` is asked about at once.
pub const VISIT_MAX: usize = 512;
/// Mark of what a link brought for no socket of the host: the kernel's only if its NAT knows the connection.
pub const STRAY_MARK: u32 = 0xad00_0000;
/// Under pressure closed flows keep their entries this long.
pub const PRESSED_CLOSED_NS: u64 = 1_000_000_000;
/// A host without live flows is remembered this long after its last attempt to open one.
pub const HOST_IDLE_NS: u64 = 5_000_000_000;
/// Places of devices.
pub const DEVICE_PLACES: u32 = 256;
/// Places that a device may stand at, from that of its index on.
pub const DEVICE_STEPS: u32 = 8;
/// A link without a free port is given no flow of that protocol for this long.
pub const FULL_NS: u64 = 1_000_000_000;
/// Remote ports whose connections need not stick to a link.
pub const EXCEPT_MAX: usize = 16;
/// In place of a target or link: none.
pub const NO_TARGET: u8 = 0xff;
/// Bins of a trunk's table.
pub const BINS: usize = 1024;
/// Pinned maps of a trunk of another version are never adopted.
pub const TRUNK_ABI_VERSION: u32 = 2;
/// The LAN as [`FlowKey::side`]; link `i` is [`side_of_link`]`(i)`.
pub const SIDE_LAN: u8 = 0;

/// [`FlowKey::side`] of link `link`.
pub const fn side_of_link(link: u8) -> u8 {
    link + 1
}

/// An address of 16 bytes in network order, IPv4 mapped (::ffff:a.b.c.d).
#[repr(C, align(4))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Addr(pub [u8; 16]);

impl Addr {
    /// The address as people know it: an IPv4 address if mapped.
    pub fn ip(self) -> IpAddr {
        Ipv6Addr::from(self.0).to_canonical()
    }

    /// All zero: no address.
    pub fn is_zero(self) -> bool {
        self.0 == [0; 16]
    }
}

impl From<Ipv4Addr> for Addr {
    fn from(ip: Ipv4Addr) -> Self {
        Addr(ip.to_ipv6_mapped().octets())
    }
}

impl From<Ipv6Addr> for Addr {
    fn from(ip: Ipv6Addr) -> Self {
        Addr(ip.octets())
    }
}

impl From<IpAddr> for Addr {
    fn from(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(ip) => ip.into(),
            IpAddr::V6(ip) => ip.into(),
        }
    }
}

impl From<Addr> for IpAddr {
    fn from(addr: Addr) -> Self {
        addr.ip()
    }
}

/// A port or ICMP query id in network order.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BePort(pub u16);

impl BePort {
    pub const fn new(port: u16) -> Self {
        BePort(port.to_be())
    }

    pub const fn get(self) -> u16 {
        u16::from_be(self.0)
    }
}

/// An IPv4 address in network order.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BeAddr(pub u32);

impl From<Ipv4Addr> for BeAddr {
    fn from(ip: Ipv4Addr) -> Self {
        BeAddr(u32::from_ne_bytes(ip.octets()))
    }
}

/// Declares structures of the contract and the table of their fields that the tests compare with C.
macro_rules! structures {
    ($($(#[$doc:meta])* $c:literal $name:ident { $($field:ident: $type:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[repr(C)]
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
            pub struct $name {
                $(#[doc = concat!("`", $c, ".", stringify!($field), "`")] pub $field: $type,)*
            }

            // SAFETY: repr(C), of integers and arrays of integers, without padding (a test adds the fields up).
            #[cfg(feature = "aya")]
            unsafe impl aya::Pod for $name {}
        )*

        #[cfg(test)]
        pub(crate) fn layout() -> Vec<(&'static str, &'static str, usize, usize)> {
            let mut rows = Vec::new();
            $(
                rows.push(($c, "", 0, size_of::<$name>()));
                $(
                    let sized = |s: &$name| size_of_val(&s.$field);
                    rows.push(($c, stringify!($field), std::mem::offset_of!($name, $field), sized(&$name::default())));
                )*
            )*
            rows
        }
    };
}

// SAFETY: 16 bytes, 4 bytes, 2 bytes: any bits are valid, no padding.
#[cfg(feature = "aya")]
unsafe impl aya::Pod for Addr {}
#[cfg(feature = "aya")]
unsafe impl aya::Pod for BeAddr {}
#[cfg(feature = "aya")]
unsafe impl aya::Pod for BePort {}

structures! {
    /// The targets of one choice.
    "ab_candidates" Candidates {
        count: u32,
        usable: u32,
        weight: [u32; MAX_LINKS],
        load: [u32; MAX_LINKS],
    }

    /// What is asked of a choice.
    "ab_request" Request {
        dispatch: u32,
        avoid: u32,
        hash: u32,
        random: u32,
    }

    /// What a choice says.
    "ab_decision" Decision {
        target: u8,
        why: u8,
    }

    /// One side of a flow as its map key.
    "ab_flow_key" FlowKey {
        local: Addr,
        remote: Addr,
        local_port: BePort,
        remote_port: BePort,
        proto: u8,
        side: u8,
        zero: u16,
    }

    /// Sequence numbers of one direction of a TCP flow, host order.
    "ab_flow_tcp" FlowTcp {
        isn: u32,
        ack: u32,
        end: u32,
        tries: u32,
    }

    /// One side of a flow. For UDP and ICMP echo, `tcp` holds [`Flow::first_remote`].
    "ab_flow" Flow {
        opened_ns: u64,
        seen_ns: u64,
        packets: u64,
        bytes: u64,
        other_local: Addr,
        tcp: FlowTcp,
        state: u32,
        lan_ifindex: u32,
        other_port: BePort,
        first_remote_port: BePort,
        tried: u16,
        link: u8,
        why: u8,
        mac: [u8; 6],
        turned: u8,
        zero: u8,
        host: u32,
        embryo: u32,
    }

    /// Who may open flows: a LAN host, or a LAN device as a whole.
    "ab_host_key" HostKey {
        address: Addr,
        ifindex: u32,
        mac: [u8; 6],
        zero: u16,
    }

    /// An unconfirmed flow's place among those of its host.
    "ab_embryo_key" EmbryoKey {
        host: u32,
        number: u32,
    }

    /// An ISP link as the programs know it.
    "ab_link" Link {
        external: Addr,
        gateway: Addr,
        ifindex: u32,
        mtu: u32,
        flags: u32,
        zero: u32,
    }

    /// A network device the programs are attached to.
    "ab_device" Device {
        ifindex: u32,
        role: u8,
        link: u8,
        layer3: u8,
        zero: u8,
        mtu: u32,
        address: Addr,
    }

    /// Key of the longest-prefix table of known destinations.
    "ab_route_key" RouteKey {
        prefix_len: u32,
        addr: Addr,
    }

    /// What is known of a destination.
    "ab_route" Route {
        verdict: u8,
        link: u8,
        zero: u16,
        ifindex: u32,
        via: Addr,
    }

    /// One link's part in the choice.
    "ab_target" Target {
        weight: u32,
        dispatched_base: u32,
    }

    /// Load balancing as it stands: replaced as a whole at every measuring period.
    "ab_choice" Choice {
        dispatch: u32,
        load: u32,
        count: u32,
        usable: u32,
        syn_retry: u32,
        granularity: u32,
        stick: u32,
        except: [BePort; EXCEPT_MAX],
        target: [Target; MAX_LINKS],
    }

    /// Timers, quotas and ports.
    "ab_settings" Settings {
        tcp_established_ns: u64,
        tcp_transitory_ns: u64,
        udp_ns: u64,
        icmp_ns: u64,
        embryo_ns: u64,
        forwards_kernel: u32,
        quota_per_host: u32,
        flows_max: u32,
        port_min: u16,
        port_max: u16,
        ephemeral_min: u16,
        ephemeral_max: u16,
        udp_filter_open: u32,
        fallback_mark: u32,
        embryos_per_host: u32,
        flows_per_device: u32,
        embryos_per_device: u32,
        lan_sources_loose: u32,
        zero: u32,
        reserved: [u16; RESERVED_MAX],
    }

    /// Per link and CPU.
    "ab_traffic" Traffic {
        tx_packets: u64,
        tx_bytes: u64,
        rx_packets: u64,
        rx_bytes: u64,
        rx_progress: u64,
        syn_retries: u64,
    }

    /// Flows per link, monotonic.
    "ab_gauge" Gauge {
        dispatched: u64,
        opened: u64,
        closed: u64,
    }

    /// What a LAN host, or a LAN device, holds.
    "ab_host" Host {
        opened: u64,
        closed: u64,
        opened_ns: u64,
        fallback_ns: u64,
        unknown_ns: u64,
        id: u32,
        embryo_head: u32,
        embryo_tail: u32,
        embryos: u32,
        mappings: u32,
        permissions: u32,
    }

    /// The tables as a whole.
    "ab_table" Table {
        confirmed: u64,
        forgotten: u64,
        evicted: u64,
        hosts: u64,
        fallback_ns: u64,
        secret: u64,
    }

    /// Arguments and results of `sweep_flows`.
    "ab_sweep" Sweep {
        expired: u64,
        count: u32,
        pressure: u32,
        is_last: u32,
        zero: u32,
    }

    /// Arguments and results of `end_link`.
    "ab_ending" Ending {
        ended: u64,
        opened_before_ns: u64,
        seen_before_ns: u64,
        link: u32,
        count: u32,
        unfinished: u32,
        zero: u32,
    }

    /// A TCP flow that ended with its link.
    "ab_ended" Ended {
        local: Addr,
        remote: Addr,
        local_port: BePort,
        remote_port: BePort,
        seq: u32,
        ack: u32,
        lan_ifindex: u32,
    }

    /// What `explain` is told about a packet.
    "ab_explanation" Explanation {
        reason: u8,
        link: u8,
        why: u8,
        bound: u8,
        hash: u32,
        usable: u32,
        seen: Candidates,
    }

    /// Packets of one bin with no long gap between them; all zero before its first packet.
    "ab_flowlet" Flowlet {
        seen_ns: u64,
        sublink: u32,
        begun: u32,
    }

    /// Deficit round robin over the sublinks; all zero before the first packet.
    "ab_drr" Drr {
        deficit: [u64; MAX_LINKS],
        visited: u32,
        begun: u32,
    }

    /// What the trunk program knows of the trunk as a whole.
    "ab_spreading" Spreading {
        sublinks: Candidates,
        spread: u32,
        zero: u32,
        flowlet_gap_ns: u64,
        quantum: [u32; MAX_LINKS],
    }

    /// Where a sublink leads.
    "ab_sublink" Sublink {
        ifindex: u32,
        flags: u32,
        next_hop: BeAddr,
        zero: u32,
    }

    /// What was sent over one sublink; per CPU.
    "ab_carried" Carried {
        packets: u64,
        bytes: u64,
        opened: u64,
    }
}

impl Flow {
    /// UDP and ICMP echo: the remote address that needs no permission of its own.
    pub fn first_remote(&self) -> Addr {
        let FlowTcp {
            isn,
            ack,
            end,
            tries,
        } = self.tcp;
        let mut bytes = [0; 16];
        for (chunk, word) in bytes.chunks_exact_mut(4).zip([isn, ack, end, tries]) {
            chunk.copy_from_slice(&word.to_ne_bytes());
        }
        Addr(bytes)
    }
}

impl std::ops::AddAssign for Traffic {
    /// Adds up the CPUs of one link.
    fn add_assign(&mut self, cpu: Traffic) {
        self.tx_packets += cpu.tx_packets;
        self.tx_bytes += cpu.tx_bytes;
        self.rx_packets += cpu.rx_packets;
        self.rx_bytes += cpu.rx_bytes;
        self.rx_progress += cpu.rx_progress;
        self.syn_retries += cpu.syn_retries;
    }
}

impl std::ops::AddAssign for Carried {
    /// Adds up the CPUs of one sublink.
    fn add_assign(&mut self, cpu: Carried) {
        self.packets += cpu.packets;
        self.bytes += cpu.bytes;
        self.opened += cpu.opened;
    }
}

/// A number that is no member of the enumeration it should be of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{value} is no member of enum {enumeration}: program and library are of different versions"
)]
pub struct UnknownValue {
    pub enumeration: &'static str,
    pub value: u32,
}

/// Declares enumerations of the contract; the tests compare names and values with C.
macro_rules! enumerations {
    ($($(#[$doc:meta])* $c:literal $name:ident { $($(#[$vdoc:meta])* $cname:literal $variant:ident = $value:literal,)* })*) => {
        $(
            $(#[$doc])*
            #[repr(u8)]
            #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
            pub enum $name {
                $($(#[$vdoc])* $variant = $value,)*
            }

            impl From<$name> for u32 {
                fn from(value: $name) -> u32 {
                    value as u32
                }
            }

            impl From<$name> for u8 {
                fn from(value: $name) -> u8 {
                    value as u8
                }
            }

            impl TryFrom<u32> for $name {
                type Error = UnknownValue;

                fn try_from(value: u32) -> Result<Self, UnknownValue> {
                    match value {
                        $($value => Ok($name::$variant),)*
                        _ => Err(UnknownValue { enumeration: $c, value }),
                    }
                }
            }
        )*

        #[cfg(test)]
        pub(crate) fn enumerators() -> Vec<(&'static str, u64)> {
            vec![$($(($cname, $value),)*)*]
        }
    };
}

enumerations! {
    /// How a target is chosen (Peng 2005, dispatching scheme; Guo 2004 for the hash).
    "ab_dispatch" Dispatch {
        /// argmin load / weight (Peng eq. 4)
        "AB_DISPATCH_WEIGHTED" Weighted = 0,
        /// argmax weight
        "AB_DISPATCH_BEST" Best = 1,
        /// uniform over the usable targets
        "AB_DISPATCH_RANDOM" Random = 2,
        /// flow hash modulo the number of usable targets
        "AB_DISPATCH_HASH" Hash = 3,
    }

    /// What the load of a target counts.
    "ab_load" Load {
        /// flows dispatched in the current window (Peng's SD)
        "AB_LOAD_DISPATCHED" Dispatched = 0,
        /// flows still incomplete (Peng's CSN of LCF)
        "AB_LOAD_ACTIVE" Active = 1,
    }

    /// Why a target was chosen, or why none was.
    "ab_why" Why {
        /// no target is usable
        "AB_WHY_NONE_USABLE" NoneUsable = 0,
        /// one usable target was left
        "AB_WHY_ONLY_ONE" OnlyOne = 1,
        /// least load for its weight
        "AB_WHY_WEIGHTED" Weighted = 2,
        /// greatest weight
        "AB_WHY_BEST" Best = 3,
        /// drawn at random
        "AB_WHY_RANDOM" Random = 4,
        /// by the flow's hash
        "AB_WHY_HASH" Hash = 5,
        /// every usable target had failed this flow: chosen among all of them again
        "AB_WHY_RETRIED" Retried = 6,
        /// a specific route of the host names the link
        "AB_WHY_ROUTE" Route = 7,
        /// the same pair of addresses already uses it
        "AB_WHY_SESSION" Session = 8,
        /// the same LAN host already uses it
        "AB_WHY_HOST" Host = 9,
        /// an endpoint of the flow is there already
        "AB_WHY_ENDPOINT" Endpoint = 10,
    }

    /// When a path is chosen.
    "ab_granularity" Granularity {
        /// once per connection (Peng PS_c)
        "AB_PER_CONNECTION" Connection = 0,
        /// once per pair of addresses (Peng PS_ip, Guo "session")
        "AB_PER_SESSION" Session = 1,
        /// once per LAN host (RFC 4787 REQ-2, paired pooling)
        "AB_PER_HOST" Host = 2,
    }

    /// What an answer is to a connection attempt of several tries.
    "ab_answer" Answer {
        /// of none of its tries
        "AB_ANSWER_FOREIGN" Foreign = 0,
        /// its try wins
        "AB_ANSWER_FIRST" First = 1,
        /// of the try that has won
        "AB_ANSWER_AGAIN" Again = 2,
        /// another try has won
        "AB_ANSWER_LATE" Late = 3,
        /// the tries are being changed elsewhere: as if lost on the way
        "AB_ANSWER_BUSY" Busy = 4,
    }

    /// What a network device is to the gateway.
    "ab_role" Role {
        /// not ours
        "AB_ROLE_NONE" None = 0,
        /// towards the LAN
        "AB_ROLE_LAN" Lan = 1,
        /// towards an ISP
        "AB_ROLE_LINK" Link = 2,
    }

    /// What is known of a destination.
    "ab_verdict" Verdict {
        /// the kernel's own routing
        "AB_VERDICT_KERNEL" Kernel = 0,
        /// a LAN prefix
        "AB_VERDICT_LAN" Lan = 1,
        /// a specific route through one link
        "AB_VERDICT_LINK" Link = 2,
        /// an address of this host
        "AB_VERDICT_LOCAL" Local = 3,
    }

    /// How the trunk program chooses the sublink of a packet.
    "ab_spread" Spread {
        /// flow hash modulo the number of sublinks
        "AB_SPREAD_HASH" Hash = 0,
        /// by the table of bins
        "AB_SPREAD_BINS" Bins = 1,
        /// weighted rendezvous of the flow hash
        "AB_SPREAD_RENDEZVOUS" Rendezvous = 2,
        /// weighted at random, anew after every gap of a bin
        "AB_SPREAD_FLOWLET" Flowlet = 3,
        /// packet by packet, by deficit round robin
        "AB_SPREAD_PACKET" Packet = 4,
    }

    /// What became of a packet.
    "ab_fate" Fate {
        /// forwarded by the programs
        "AB_SENT" Sent = 0,
        /// left to the kernel's own stack
        "AB_PASSED" Passed = 1,
        /// gone
        "AB_DROPPED" Dropped = 2,
        /// answered with an error
        "AB_REFUSED" Refused = 3,
    }
}

/// Declares bits of the contract; the tests compare names and values with C.
macro_rules! bits {
    ($($(#[$doc:meta])* $c:literal $name:ident = $value:expr;)*) => {
        $($(#[$doc])* pub const $name: u32 = $value;)*

        #[cfg(test)]
        pub(crate) fn bits() -> Vec<(&'static str, u64)> {
            vec![$(($c, $value),)*]
        }
    };
}

bits! {
    /// [`Flow::state`]: the remote end has answered.
    "AB_STATE_REPLIED" STATE_REPLIED = 1 << 0;
    /// [`Flow::state`]: stands in the main table.
    "AB_STATE_CONFIRMED" STATE_CONFIRMED = 1 << 1;
    /// [`Flow::state`]: the local end has sent its FIN.
    "AB_STATE_FIN_LOCAL" STATE_FIN_LOCAL = 1 << 2;
    /// [`Flow::state`]: the remote end has sent its FIN.
    "AB_STATE_FIN_REMOTE" STATE_FIN_REMOTE = 1 << 3;
    /// [`Flow::state`]: ended, kept for the transitory timer.
    "AB_STATE_CLOSED" STATE_CLOSED = 1 << 5;
    /// [`Flow::state`]: no flow, but a further remote address of a mapping.
    "AB_STATE_PERMISSION" STATE_PERMISSION = 1 << 6;
    /// [`Flow::state`]: the LAN host is behind a router of the LAN.
    "AB_STATE_VIA_ROUTER" STATE_VIA_ROUTER = 1 << 7;
    /// [`Flow::state`]: mapping or permission whose remote is one of the gateway's external addresses.
    "AB_STATE_HAIRPIN" STATE_HAIRPIN = 1 << 8;
    /// [`Flow::state`]: counted against its LAN device, too.
    "AB_STATE_SHARED" STATE_SHARED = 1 << 9;
    /// [`Flow::state`]: about to be taken out of its table.
    "AB_STATE_LEAVING" STATE_LEAVING = 1 << 10;
    /// [`Link::flags`]: device, address and gateway are known.
    "AB_LINK_PRESENT" LINK_PRESENT = 1 << 0;
    /// [`Link::flags`]: no neighbour to resolve.
    "AB_LINK_POINT_TO_POINT" LINK_POINT_TO_POINT = 1 << 1;
    /// [`Sublink::flags`]: device and next hop are known.
    "AB_SUBLINK_PRESENT" SUBLINK_PRESENT = 1 << 0;
    /// [`Sublink::flags`]: no neighbour to resolve.
    "AB_SUBLINK_POINT_TO_POINT" SUBLINK_POINT_TO_POINT = 1 << 1;
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::ffi;

    #[test]
    fn every_field_of_every_structure_stands_where_the_c_headers_put_it() {
        let rust: BTreeSet<_> = layout().into_iter().collect();
        let c: BTreeSet<_> = ffi::layout().into_iter().collect();
        let only_c: Vec<_> = c.difference(&rust).collect();
        let only_rust: Vec<_> = rust.difference(&c).collect();
        assert!(
            only_c.is_empty() && only_rust.is_empty(),
            "C alone: {only_c:?}\nRust alone: {only_rust:?}"
        );
    }

    #[test]
    fn no_structure_has_padding_so_no_field_was_forgotten_on_both_sides() {
        for (structure, _, _, size) in ffi::layout().into_iter().filter(|row| row.1.is_empty()) {
            let fields: usize = ffi::layout()
                .iter()
                .filter(|row| row.0 == structure)
                .map(|row| row.3)
                .sum();
            assert_eq!(
                fields - size,
                size,
                "{structure}: its fields must add up to its size"
            );
        }
    }

    #[test]
    fn every_enumerator_and_limit_has_the_value_of_the_c_headers() {
        let limits = [
            ("AB_ABI_VERSION", ABI_VERSION.into()),
            ("AB_MAX_LINKS", MAX_LINKS as u64),
            ("AB_WEIGHT_MIN", WEIGHT_MIN.into()),
            ("AB_WEIGHT_MAX", WEIGHT_MAX.into()),
            ("AB_NO_TARGET", NO_TARGET.into()),
            ("AB_EXCEPT_MAX", EXCEPT_MAX as u64),
            ("AB_VISIT_MAX", VISIT_MAX as u64),
            ("AB_STRAY_MARK", STRAY_MARK.into()),
            ("AB_PRESSED_CLOSED_NS", PRESSED_CLOSED_NS),
            ("AB_FULL_NS", FULL_NS),
            ("AB_RESERVED_MAX", RESERVED_MAX as u64),
            ("AB_HOST_IDLE_NS", HOST_IDLE_NS),
            ("AB_DEVICE_PLACES", DEVICE_PLACES.into()),
            ("AB_DEVICE_STEPS", DEVICE_STEPS.into()),
            ("AB_SIDE_LAN", SIDE_LAN.into()),
            ("AB_BINS", BINS as u64),
            ("AB_TRUNK_ABI_VERSION", TRUNK_ABI_VERSION.into()),
        ];
        let rust: BTreeSet<_> = enumerators()
            .into_iter()
            .chain(bits())
            .chain(limits)
            .collect();
        let c: BTreeSet<_> = ffi::constants().into_iter().collect();
        assert_eq!(rust, c);
    }

    /// Two entries a flow, a million flows: every cache line of one is 128 MB.
    #[test]
    fn an_entry_of_a_flow_is_no_longer_than_96_bytes() {
        assert!(size_of::<Flow>() <= 96, "{}", size_of::<Flow>());
    }

    #[test]
    fn no_structure_or_enumerator_of_the_headers_is_missing_from_the_tables() {
        let headers = concat!(
            include_str!("../../../bpf/include/anabranch.h"),
            include_str!("../../../bpf/include/bins.h"),
            include_str!("../../../bpf/include/choice.h"),
            include_str!("../../../bpf/include/reasons.h"),
        );
        let enumerators = headers
            .lines()
            .filter_map(|line| line.split_once(" = "))
            .map(|(name, _)| name.trim());
        let structures = headers
            .lines()
            .filter_map(|line| line.strip_prefix("struct ")?.strip_suffix(" {"));
        let known: BTreeSet<_> = ffi::constants()
            .into_iter()
            .map(|row| row.0)
            .chain(ffi::layout().into_iter().map(|row| row.0))
            .collect();
        let declared: Vec<_> = enumerators
            .filter(|name| name.starts_with("AB_"))
            .chain(structures)
            .collect();
        assert!(declared.len() > 40, "the headers were read");
        let missing: Vec<_> = declared
            .into_iter()
            .filter(|name| !known.contains(name))
            .collect();
        assert!(
            missing.is_empty(),
            "add to native.c and abi.rs: {missing:?}"
        );
    }

    #[test]
    fn an_ipv4_address_is_mapped_and_comes_back_as_ipv4() {
        let addr = Addr::from(Ipv4Addr::new(192, 0, 2, 1));
        assert_eq!(
            addr.0,
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1]
        );
        assert_eq!(IpAddr::from(addr), IpAddr::from([192, 0, 2, 1]));
    }

    #[test]
    fn an_ipv6_address_keeps_its_bytes() {
        let ip: Ipv6Addr = "2001:db8::1".parse().unwrap();
        assert_eq!(Addr::from(IpAddr::V6(ip)).ip(), IpAddr::V6(ip));
    }

    #[test]
    fn a_port_is_stored_in_network_order() {
        assert_eq!(BePort::new(0x1234).0.to_ne_bytes(), [0x12, 0x34]);
        assert_eq!(BePort::new(443).get(), 443);
    }

    #[test]
    fn the_first_remote_of_a_udp_mapping_stands_where_tcp_keeps_sequence_numbers() {
        let word = |bytes| u32::from_ne_bytes(bytes);
        let tcp = FlowTcp {
            isn: 0,
            ack: 0,
            end: word([0, 0, 0xff, 0xff]),
            tries: word([192, 0, 2, 7]),
        };
        let flow = Flow {
            tcp,
            ..Flow::default()
        };
        assert_eq!(flow.first_remote().ip(), IpAddr::from([192, 0, 2, 7]));
    }
}
