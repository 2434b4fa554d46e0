//! Reads the state of the host by rtnetlink into a [`Snapshot`].

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anabranch_core::Family;
use anyhow::Context;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt, TryStreamExt};
use netlink_packet_route::AddressFamily;
use netlink_packet_route::address::{
    AddressAttribute, AddressHeaderFlags, AddressMessage, AddressScope,
};
use netlink_packet_route::link::{
    InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkLayerType, LinkMessage,
};
use netlink_packet_route::route::RouteMessage;
use rtnetlink::MulticastGroup;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::advertised::Listener;
use super::carrier::{Carriers, Running, is_running};
use super::fib::{self, Fib};
use super::lease;
use super::prefix::Prefix;
use super::{Above, Device, HostRoute, MassKey, Master, Snapshot};
use crate::plane::{Route, RouteTable, Verdict};

/// Changes come in bursts (a new device, then its addresses, then its routes). A burst is over after this time without a change.
const QUIET: Duration = Duration::from_millis(20);
/// A host whose routes change all the time is inspected this often.
const BURST_MAX: Duration = Duration::from_millis(200);
/// Does not exist on a kernel without IPv6, which would return other families instead.
pub(super) const IPV6: &str = "/proc/sys/net/ipv6";
/// Without routes, which a thread of their own follows.
const GROUPS: [MulticastGroup; 6] = [
    MulticastGroup::Link,
    MulticastGroup::Ipv4Ifaddr,
    MulticastGroup::Ipv4Rule,
    MulticastGroup::Ipv6Ifaddr,
    MulticastGroup::Ipv6Rule,
    MulticastGroup::Tc,
];

/// A netlink connection of the network namespace in which it was created, driven by a task of the current runtime.
pub struct Netlink {
    pub(crate) handle: rtnetlink::Handle,
    task: AbortHandle,
    /// Follows the routes; none: they are read for each snapshot.
    fib: OnceLock<Fib>,
    /// Receives router advertisements; none: the routers of prefixes are unknown.
    routers: OnceLock<Mutex<Listener>>,
}

impl Netlink {
    /// For the thread's network namespace.
    pub fn connect() -> anyhow::Result<Self> {
        let (connection, handle, _) =
            rtnetlink::new_connection().context("open a netlink socket")?;
        Ok(Self {
            handle,
            fib: OnceLock::new(),
            routers: OnceLock::new(),
            task: tokio::spawn(connection).abort_handle(),
        })
    }

    /// The present devices, addresses, routes and rules.
    pub async fn snapshot(&self) -> anyhow::Result<Snapshot> {
        let links: Vec<_> = self
            .handle
            .link()
            .get()
            .execute()
            .try_collect()
            .await
            .context("list devices")?;
        let addresses: Vec<_> = self
            .handle
            .address()
            .get()
            .execute()
            .try_collect()
            .await
            .context("list addresses")?;
        let known = match self.fib.get() {
            Some(fib) => fib.view().await?,
            None => fib::read()?,
        };
        let mut devices: BTreeMap<String, Device> = links.iter().filter_map(device).collect();
        tell_masters(&mut devices, &links);
        for message in &addresses {
            let of_message = |device: &&mut Device| device.ifindex == message.header.index;
            let device = devices.values_mut().find(of_message);
            if let Some((device, address)) = device.zip(disputed(message)) {
                device.disputed.push(address);
            }
        }
        for (ifindex, address) in addresses.iter().filter_map(own_address) {
            let mut devices = devices.values_mut();
            if let Some(device) = devices.find(|device| device.ifindex == ifindex) {
                device.every_address.push(address);
            }
        }
        let has_address = |above: &Above| {
            let mut all = addresses.iter();
            all.any(|address| address.header.index == above.ifindex)
        };
        let above = links.iter().filter_map(above).filter(has_address).collect();
        self.hear_routers(&mut devices, &addresses, &known.routes);
        for Addressed {
            ifindex,
            address,
            preference,
        } in by_preference(&addresses)
        {
            if let Some(device) = devices
                .values_mut()
                .find(|device| device.ifindex == ifindex)
            {
                device.addresses.push(address);
                if preference == Preference::Deprecated {
                    device.deprecated.push(address.address);
                }
            }
        }
        let names: Vec<String> = devices.keys().cloned().collect();
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH);
        let now_s = now_s.map_or(0, |now| now.as_secs());
        for (name, device) in &mut devices {
            let lease = lease::read(Path::new("/"), name, device, &names, now_s);
            (device.resolvers, device.lease_router) = (lease.resolvers, lease.router);
        }
        let rules = self.foreign_rules().await?;
        Ok(Snapshot {
            devices,
            routes: known.routes,
            masses: known.masses,
            prefixes: known.count,
            beyond_room: known.beyond,
            rules,
            above,
        })
    }

    /// Adds what routers have advertised, and sends solicitations on devices with default routes.
    fn hear_routers(
        &self,
        devices: &mut BTreeMap<String, Device>,
        addresses: &[AddressMessage],
        routes: &[HostRoute],
    ) {
        let Some(routers) = self.routers.get() else {
            return;
        };
        let mut routers = routers.lock().unwrap_or_else(PoisonError::into_inner);
        routers.hear();
        let own: Vec<(u32, IpAddr)> = addresses
            .iter()
            .filter_map(|message| Some((message.header.index, local(message)?)))
            .collect();
        routers.keep(|ifindex, prefix| {
            let mut own = own.iter();
            own.any(|(device, own)| *device == ifindex && prefix.overlaps(Prefix::host(*own)))
        });
        let is_default = |route: &&HostRoute| route.prefix == Prefix::everything(Family::V6);
        let hops = routes
            .iter()
            .filter(is_default)
            .flat_map(|route| &route.hops);
        hops.filter(|hop| hop.via.is_some())
            .for_each(|hop| routers.ask(hop.ifindex));
        for device in devices.values_mut() {
            device.advertised = routers.of(device.ifindex);
        }
    }

    /// Our own routes of a family, in our tables of all instances.
    pub(crate) async fn own_routes(&self, family: Family) -> anyhow::Result<Vec<RouteMessage>> {
        let mut own = match self.fib.get() {
            Some(fib) => fib.own().await?,
            None => fib::read_own()?,
        };
        let family = match family {
            Family::V4 => AddressFamily::Inet,
            Family::V6 => AddressFamily::Inet6,
        };
        own.retain(|route| route.header.address_family == family);
        Ok(own)
    }

    /// The thread that follows routes, which is started by the first call.
    fn fib(&self) -> anyhow::Result<&Fib> {
        if let Some(fib) = self.fib.get() {
            return Ok(fib);
        }
        let fib = Fib::follow()?;
        Ok(self.fib.get_or_init(|| fib))
    }

    /// Lets that thread write the data path's table of destinations.
    pub(crate) fn write_routes(&self, table: RouteTable) -> anyhow::Result<()> {
        self.fib()?.write(table)
    }

    /// Sets the content of that table.
    pub(crate) fn tell_routes(
        &self,
        few: &[Route],
        masses: &[(MassKey, Verdict)],
    ) -> anyhow::Result<()> {
        self.fib()?.tell(few, masses)
    }
}

impl Drop for Netlink {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Reports changes of devices, addresses, routes or rules.
pub struct Monitor {
    messages: BoxStream<'static, ()>,
    routes: Arc<Notify>,
    carriers: Carriers,
    burst: Option<Burst>,
    task: AbortHandle,
}

impl Monitor {
    /// For changes in the thread's network namespace; `netlink` follows its routes.
    pub fn connect(netlink: &Netlink) -> anyhow::Result<Self> {
        // Does not exist on a kernel without IPv6.
        if let Ok(routers) = Listener::open() {
            netlink.routers.get_or_init(|| Mutex::new(routers));
        }
        let (connection, _, messages) =
            rtnetlink::new_multicast_connection(&GROUPS).context("listen to netlink")?;
        let task = tokio::spawn(connection).abort_handle();
        Ok(Self {
            messages: messages.map(|_| ()).boxed(),
            routes: netlink.fib()?.changes(),
            carriers: Carriers::connect()?,
            burst: None,
            task,
        })
    }

    /// Polls these devices, by ifindex, so that a change is noticed within a tenth of a second. For other devices the kernel's
    /// notification is awaited.
    pub fn watch(&mut self, known: Running) {
        self.carriers.watch(known);
    }

    /// While nothing is carried, within three tenths.
    pub fn rest(&mut self, is_quiet: bool) {
        self.carriers.rest(is_quiet);
    }

    /// Returns when a burst of changes is over. A lost message (overrun) counts as a change. Cancel-safe, however often.
    pub async fn changed(&mut self) -> anyhow::Result<()> {
        loop {
            let over = self.burst.map(|burst| burst.quiet_at.min(burst.over_at));
            tokio::select! {
                message = self.messages.next() => {
                    message.context("the netlink monitor ended")?;
                    self.burst = Some(Burst::goes_on(self.burst));
                }
                () = self.routes.notified() => self.burst = Some(Burst::goes_on(self.burst)),
                () = self.carriers.differ() => return Ok(()),
                () = tokio::time::sleep_until(over.unwrap_or_else(Instant::now)), if over.is_some() => {
                    self.burst = None;
                    return Ok(());
                }
            }
        }
    }
}

/// A burst of changes: it is over after a time without a change, or when it has lasted too long.
#[derive(Debug, Clone, Copy)]
struct Burst {
    quiet_at: Instant,
    over_at: Instant,
}

impl Burst {
    fn goes_on(before: Option<Self>) -> Self {
        let now = Instant::now();
        let over_at = before.map_or(now + BURST_MAX, |burst| burst.over_at);
        Self {
            quiet_at: now + QUIET,
            over_at,
        }
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn device(message: &LinkMessage) -> Option<(String, Device)> {
    let mut name = None;
    let mut mtu = 0;
    let mut kind = String::new();
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::LinkInfo(infos) => kind = kind_of(infos).unwrap_or_default(),
            LinkAttribute::IfName(text) => name = Some(text.clone()),
            LinkAttribute::Mtu(value) => mtu = *value,
            _ => {}
        }
    }
    let device = Device {
        ifindex: message.header.index,
        running: is_running(&message.header),
        mtu,
        layer3: message.header.link_layer_type != LinkLayerType::Ether,
        resolves: !message.header.flags.contains(LinkFlags::Noarp),
        addresses: Vec::new(),
        kind,
        ..Device::default()
    };
    Some((name?, device))
}

fn kind_of(infos: &[LinkInfo]) -> Option<String> {
    infos.iter().find_map(|info| match info {
        LinkInfo::Kind(InfoKind::Other(kind)) => Some(kind.clone()),
        LinkInfo::Kind(kind) => Some(kind.to_string()),
        _ => None,
    })
}

/// Sets the masters of devices. A VRF does not count: it takes no packets from its devices, but only has them routed by another
/// table.
fn tell_masters(devices: &mut BTreeMap<String, Device>, messages: &[LinkMessage]) {
    let masters: BTreeMap<u32, Master> = devices
        .iter()
        .filter(|(_, device)| device.kind != "vrf")
        .map(|(name, device)| {
            let (device, kind) = (name.clone(), device.kind.clone());
            (devices[name].ifindex, Master { device, kind })
        })
        .collect();
    for message in messages {
        let controller = message
            .attributes
            .iter()
            .find_map(|attribute| match attribute {
                LinkAttribute::Controller(ifindex) => Some(*ifindex),
                _ => None,
            });
        let of_message = |device: &&mut Device| device.ifindex == message.header.index;
        if let Some(device) = devices.values_mut().find(of_message) {
            device.master = controller.and_then(|ifindex| masters.get(&ifindex).cloned());
        }
    }
}

/// A device on top of another one. If that is in another namespace, its index means nothing here.
fn above(message: &LinkMessage) -> Option<Above> {
    let (mut is_above, mut below, mut mac) = (false, None, None);
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::LinkInfo(info) => {
                let shares = |info: &LinkInfo| {
                    matches!(info, LinkInfo::Kind(InfoKind::MacVlan | InfoKind::MacVtap))
                };
                is_above = info.iter().any(shares);
            }
            LinkAttribute::Link(index) => below = Some(*index),
            LinkAttribute::Address(bytes) => mac = bytes.as_slice().try_into().ok(),
            LinkAttribute::LinkNetNsId(_) => return None,
            _ => {}
        }
    }
    let is_up = message.header.flags.contains(LinkFlags::Up);
    let above = Above {
        ifindex: message.header.index,
        below: below?,
        mac: mac?,
    };
    (is_above && is_up).then_some(above)
}

/// An address of a device.
struct Addressed {
    ifindex: u32,
    address: Prefix,
    preference: Preference,
}

/// Addresses for new flows. The kernel lists the youngest IPv6 address first, but the oldest is preferred here.
fn by_preference(messages: &[AddressMessage]) -> Vec<Addressed> {
    let usable = messages.iter().filter_map(address);
    let (mut all, mut v6): (Vec<_>, Vec<_>) =
        usable.partition(|usable| usable.address.family() == Family::V4);
    v6.reverse();
    all.append(&mut v6);
    all.sort_by_key(|address| address.preference);
    all
}

/// The order of a device's addresses (RFC 6724 sections 3.1 and 5): addresses that the internet can answer, and that last, come
/// first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Preference {
    Lasting,
    /// IPv6: changes every day or so, for privacy (RFC 8981).
    Temporary,
    /// IPv6: unique local (RFC 4193).
    UniqueLocal,
    /// IPv6: only for flows that have it already, or if there is no other (RFC 4862 section 5.5.4).
    Deprecated,
}

/// An address that hosts of the internet or the LAN may use: in IPv4, only primary ones; in IPv6, not those that are still being
/// checked for duplicates.
fn address(message: &AddressMessage) -> Option<Addressed> {
    let header = &message.header;
    let is = |flag: AddressHeaderFlags| header.flags.contains(flag);
    let is_v6 = header.family == AddressFamily::Inet6;
    let unusable = match is_v6 {
        true => {
            let is_tentative =
                is(AddressHeaderFlags::Tentative) && !is(AddressHeaderFlags::Optimistic);
            is_tentative || is(AddressHeaderFlags::Dadfailed)
        }
        false => is(AddressHeaderFlags::Secondary),
    };
    let is_usable = !unusable && header.scope == AddressScope::Universe;
    let address = local(message).filter(|_| is_usable)?;
    let preference = match address {
        IpAddr::V6(_) if is(AddressHeaderFlags::Deprecated) => Preference::Deprecated,
        IpAddr::V6(v6) if v6.is_unique_local() => Preference::UniqueLocal,
        // In IPv6 the flag for secondary IPv4 addresses means a temporary address (linux/if_addr.h).
        IpAddr::V6(_) if is(AddressHeaderFlags::Secondary) => Preference::Temporary,
        _ => Preference::Lasting,
    };
    Some(Addressed {
        ifindex: header.index,
        address: Prefix::new(address, header.prefix_len),
        preference,
    })
}

/// An address that another host on the segment has, too.
fn disputed(message: &AddressMessage) -> Option<IpAddr> {
    let failed = message.header.flags.contains(AddressHeaderFlags::Dadfailed);
    message
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            AddressAttribute::Address(address) if failed => Some(*address),
            _ => None,
        })
}

/// Device and address, if the address is valid beyond the segment, or will be.
fn own_address(message: &AddressMessage) -> Option<(u32, IpAddr)> {
    let header = &message.header;
    let is_taken = header.flags.contains(AddressHeaderFlags::Dadfailed);
    let is_wide = matches!(header.scope, AddressScope::Universe | AddressScope::Site);
    let address = local(message).filter(|_| is_wide && !is_taken)?;
    Some((header.index, address))
}

/// The host's own address.
fn local(message: &AddressMessage) -> Option<IpAddr> {
    let mut local = None;
    let mut peer = None;
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Local(address) => local = Some(*address),
            AddressAttribute::Address(address) => peer = Some(*address),
            _ => {}
        }
    }
    local.or(peer)
}
