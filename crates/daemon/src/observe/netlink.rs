//! What the kernel says over rtnetlink, turned into a [`Snapshot`].

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

/// Changes come in bursts (a device that appears brings its addresses, then its routes): wait until one is over.
const QUIET: Duration = Duration::from_millis(20);
/// A host whose routes never rest is looked at this often all the same.
const BURST_MAX: Duration = Duration::from_millis(200);
/// Not there on a kernel without IPv6, which would tell of other families instead.
pub(super) const IPV6: &str = "/proc/sys/net/ipv6";
/// Routes are followed by a thread of their own.
const GROUPS: [MulticastGroup; 6] = [
    MulticastGroup::Link,
    MulticastGroup::Ipv4Ifaddr,
    MulticastGroup::Ipv4Rule,
    MulticastGroup::Ipv6Ifaddr,
    MulticastGroup::Ipv6Rule,
    MulticastGroup::Tc,
];

/// A netlink connection of the network namespace it was made in, driven by a task of the current runtime.
pub struct Netlink {
    pub(crate) handle: rtnetlink::Handle,
    task: AbortHandle,
    /// Of routes; none: they are read anew each time.
    fib: OnceLock<Fib>,
    /// Of routers; none: nobody knows whose prefixes are.
    routers: OnceLock<Mutex<Listener>>,
}

impl Netlink {
    /// For requests about the thread's namespace.
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

    /// Devices, addresses and routes as they stand.
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

    /// What routers have advertised, and asks those of default routes.
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

    /// Our own routes of a family, in tables of our own, of all instances.
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

    /// Begins to follow routes, if that has not begun.
    fn fib(&self) -> anyhow::Result<&Fib> {
        if let Some(fib) = self.fib.get() {
            return Ok(fib);
        }
        let fib = Fib::follow()?;
        Ok(self.fib.get_or_init(|| fib))
    }

    /// Has the data path's table of destinations written beside this.
    pub(crate) fn write_routes(&self, table: RouteTable) -> anyhow::Result<()> {
        self.fib()?.write(table)
    }

    /// What the table is to hold.
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

/// Tells when devices, addresses, routes or rules have changed.
pub struct Monitor {
    messages: BoxStream<'static, ()>,
    routes: Arc<Notify>,
    carriers: Carriers,
    burst: Option<Burst>,
    task: AbortHandle,
}

impl Monitor {
    /// For changes of the thread's namespace, of whose routes `netlink` follows.
    pub fn connect(netlink: &Netlink) -> anyhow::Result<Self> {
        // Not there on a kernel without IPv6.
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

    /// Sees within a tenth of a second when one of these devices, by ifindex, runs or stops; of all others when the kernel tells.
    pub fn watch(&mut self, known: Running) {
        self.carriers.watch(known);
    }

    /// Where nothing is carried, within three tenths.
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

/// Changes under way: over when none came for a while, or when it has lasted long enough.
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

/// Whose ports the devices are. A VRF takes no packets from its devices: it only has them routed by another table.
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

/// The index of a device below in another namespace means nothing here.
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

/// Those that new flows may have. The kernel lists the youngest of IPv6 first; the oldest was there when all worked.
fn by_preference(messages: &[AddressMessage]) -> Vec<Addressed> {
    let usable = messages.iter().filter_map(address);
    let (mut all, mut v6): (Vec<_>, Vec<_>) =
        usable.partition(|usable| usable.address.family() == Family::V4);
    v6.reverse();
    all.append(&mut v6);
    all.sort_by_key(|address| address.preference);
    all
}

/// Which of a device's addresses go first (RFC 6724 sections 3.1 and 5): what the internet may answer to, and what lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Preference {
    Lasting,
    /// Of IPv6, for a day or so, to be told less by (RFC 8981).
    Temporary,
    /// Of IPv6, for a site alone (RFC 4193).
    UniqueLocal,
    /// Of IPv6, for what has it already, and where there is no other (RFC 4862 section 5.5.4).
    Deprecated,
}

/// An address that a host of the internet or the LAN may talk to: of IPv4, primary ones only; of IPv6, none that has yet to be
/// found unique.
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
        // The flag that stands for a secondary address of IPv4 (linux/if_addr.h).
        IpAddr::V6(_) if is(AddressHeaderFlags::Secondary) => Preference::Temporary,
        _ => Preference::Lasting,
    };
    Some(Addressed {
        ifindex: header.index,
        address: Prefix::new(address, header.prefix_len),
        preference,
    })
}

/// An address that another host of the line has.
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

/// Device and address, if it is known beyond the host's own lines, or is to be.
fn own_address(message: &AddressMessage) -> Option<(u32, IpAddr)> {
    let header = &message.header;
    let is_taken = header.flags.contains(AddressHeaderFlags::Dadfailed);
    let is_wide = matches!(header.scope, AddressScope::Universe | AddressScope::Site);
    let address = local(message).filter(|_| is_wide && !is_taken)?;
    Some((header.index, address))
}

/// The host's own end.
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
