//! The ground on which neighbours meet: one box with three links, and who stands beside the gateway in it.
//!
//! ```text
//!  host ───┐                     ┌ wan0, lease by udhcpc ─────────────── one ───┐
//!  user ───┤ switch ── lan0 box ─┼ wan1, lease by dhclient or dhcpcd ─── two ───┼ internet ── warrior
//!  guest ──┤           │  │  │   └ wan2, static, HTB ──────────────── three ─┘
//!  peer ───┘           │  │  └ mesh0: the router of a policy table
//!                      │  └ wg0: WireGuard to the road warrior
//!                      └ docker0: a container
//! ```
//!
//! `host` and `guest` have the box as their router, `user` the virtual address, which `peer` takes now and then. A rule leads
//! what `guest` sends to the last link, now and then. Every ISP drops sources that are not its customer's (RFC 2827).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use anabranch_scenario::{Families, Tcp};
use anabranch_testbed::netns::{self, Namespace};
use tempfile::TempDir;

use super::plan::{LINKS, NAMES};
use crate::topology::ready::within;
use crate::topology::{Result, host_bits, io_error, let_forward, settle, wan};

pub(super) const LAN: &str = "lan0";
pub(super) const BOX: &str = "192.168.1.1";
/// Towards the box.
pub(super) const CUSTOMER: &str = "customer";
const SERVERS: u8 = 8;
/// Of servers.
pub(super) const PORT: u16 = 7;
/// Of the servers that the box, containers and VPN clients ask.
pub(super) const KERNEL_PORT: u16 = 9;
const READY: Duration = Duration::from_secs(60);
/// The link with the smallest metric: the host's own routing leads there, with or without a gateway.
pub(super) const HOSTS_OWN: usize = 0;
/// Of the LAN host that a rule leads to a link now and then.
pub(super) const GUEST: &str = "192.168.1.12";
pub(super) const GUEST6: &str = "fd00:1::12";
/// Downloads go through it while they are shaped at the ingress.
const IFB: &str = "ifb0";
/// Of the box or of its peer, whoever is its master.
pub(super) const VIRTUAL: &str = "192.168.1.254";

/// The network of a link: /24 and /64.
pub(super) fn network(link: usize) -> ([u8; 3], Ipv6Addr) {
    let v4 = [[203, 0, 113], [198, 51, 100], [198, 18, 2]][link];
    let v6 = Ipv6Addr::new(0x2001, 0xdb8, 0xa + link as u16, 0, 0, 0, 0, 0);
    (v4, v6)
}

/// Of a link, by its last octet.
pub(super) fn address(link: usize, last: u8) -> Ipv4Addr {
    let [a, b, c] = network(link).0;
    Ipv4Addr::new(a, b, c, last)
}

pub(super) fn address6(link: usize, last: u16) -> Ipv6Addr {
    let [a, b, c, ..] = network(link).1.segments();
    Ipv6Addr::new(a, b, c, 0, 0, 0, 0, last)
}

/// The link that an external address belongs to.
pub(super) fn link_of(seen: IpAddr) -> Option<usize> {
    (0..LINKS).find(|&link| match seen {
        IpAddr::V4(seen) => seen.octets()[..3] == network(link).0,
        IpAddr::V6(seen) => seen.segments()[..4] == network(link).1.segments()[..4],
    })
}

/// The internet's servers, of both families.
pub(super) fn servers(port: u16) -> [Vec<SocketAddr>; 2] {
    let v4 = |number| (Ipv4Addr::new(192, 0, 2, 10 + number), port).into();
    let v6 = |number: u8| {
        let last = 0x10 + u16::from(number);
        (Ipv6Addr::new(0x2001, 0xdb8, 0x99, 0, 0, 0, 0, last), port).into()
    };
    [
        (0..SERVERS).map(v4).collect(),
        (0..SERVERS).map(v6).collect(),
    ]
}

/// The namespaces, and what is in them from the beginning.
pub(super) struct Ground {
    pub directory: TempDir,
    pub host: Namespace,
    pub user: Namespace,
    pub guest: Namespace,
    pub peer: Namespace,
    _switch: Namespace,
    pub container: Namespace,
    pub mesh: Namespace,
    pub warrior: Namespace,
    pub the_box: Namespace,
    pub isps: Vec<Namespace>,
    pub internet: Namespace,
}

impl Ground {
    pub fn build() -> Result<Self> {
        let directory = TempDir::with_prefix("anabranch-neighbours-")
            .map_err(io_error("making a directory"))?;
        let switch = namespace("switch")?;
        let [host, user] = [namespace("host")?, namespace("user")?];
        let [guest, peer] = [namespace("guest")?, namespace("peer")?];
        let the_box = namespace("box")?;
        let internet = namespace("internet")?;
        lay_lan(&switch, &the_box)?;
        for (name, address, hosts) in [
            ("host", "192.168.1.10", &host),
            ("user", "192.168.1.11", &user),
            ("guest", GUEST, &guest),
            ("peer", "192.168.1.2", &peer),
        ] {
            hosts.veth("eth0", &switch, name)?;
            switch.ip(&format!("link set {name} master br0"))?;
            hosts.ip(&format!("address add {address}/24 dev eth0"))?;
        }
        for hosts in [&host, &guest] {
            hosts.ip(&format!("route add default via {BOX}"))?;
        }
        guest.ip(&format!("address add {GUEST6}/64 dev eth0 nodad"))?;
        guest.ip("route add default via fd00:1::1")?;
        user.ip(&format!("route add default via {VIRTUAL}"))?;
        // Neither is on for those who are told their addresses.
        for key in ["accept_ra", "autoconf"] {
            host.set_sysctl(&format!("net/ipv6/conf/eth0/{key}"), "1")?;
        }
        for server in servers(PORT).concat() {
            internet.add_address("lo", server.ip(), host_bits(server.ip()))?;
        }
        let isps = (0..LINKS).map(|link| lay_link(link, &the_box, &internet));
        let isps = isps.collect::<Result<Vec<_>>>()?;
        let ground = Self {
            directory,
            host,
            user,
            guest,
            peer,
            _switch: switch,
            container: namespace("container")?,
            mesh: namespace("mesh")?,
            warrior: namespace("warrior")?,
            the_box,
            isps,
            internet,
        };
        let (warrior, internet) = (&ground.warrior, &ground.internet);
        warrior.veth("eth0", internet, "warrior")?;
        warrior.ip("address add 10.254.0.2/30 dev eth0")?;
        internet.ip("address add 10.254.0.1/30 dev warrior")?;
        warrior.ip("route add default via 10.254.0.1")?;
        ground.shape(LINKS - 1)?;
        Ok(ground)
    }

    /// Shapes what leaves by a link, as SQM scripts do.
    pub fn shape(&self, link: usize) -> Result<()> {
        let device = wan(link);
        // A shaper is not changed in place: the old one goes, if there is one.
        let _ = self.the_box.tc(&format!("qdisc del dev {device} root"));
        Ok(self.shape_egress(&device)?)
    }

    fn shape_egress(&self, device: &str) -> netns::Result<()> {
        self.the_box.tc(&format!(
            "qdisc add dev {device} root handle 1: htb default 10"
        ))?;
        let class =
            format!("class add dev {device} parent 1: classid 1:10 htb rate 50mbit burst 15k");
        self.the_box.tc(&class).map(drop)
    }

    /// Shapes what comes by a link, as SQM scripts do: at the egress of a device that it is redirected to.
    pub fn shape_ingress(&self, link: usize) -> netns::Result<()> {
        let device = wan(link);
        self.the_box.ip(&format!("link add {IFB} type ifb"))?;
        self.the_box.ip(&format!("link set {IFB} up"))?;
        self.shape_egress(IFB)?;
        self.the_box
            .tc(&format!("qdisc add dev {device} handle ffff: ingress"))?;
        let filter = format!(
            "filter add dev {device} parent ffff: protocol all u32 match u32 0 0 action mirred egress redirect dev {IFB}"
        );
        self.the_box.tc(&filter).map(drop)
    }

    pub fn unshape_ingress(&self, link: usize) -> netns::Result<()> {
        self.the_box
            .tc(&format!("qdisc del dev {} ingress", wan(link)))?;
        self.the_box.ip(&format!("link del {IFB}")).map(drop)
    }

    /// Whether the gateway's table of nftables is there.
    pub fn is_guarded(&self) -> Result<bool> {
        let tables = self.the_box.exec("nft", &["list", "tables"])?;
        Ok(tables.contains(" anabranch_"))
    }

    /// Whether the LAN host has a default route by router advertisements.
    pub fn hears_router(&self) -> Result<bool> {
        Ok(!self.host.ip("-6 route show default")?.is_empty())
    }

    /// Whether the box has the virtual address.
    pub fn is_master(&self) -> Result<bool> {
        let addresses = self.the_box.ip(&format!("-4 address show to {VIRTUAL}"))?;
        Ok(!addresses.is_empty())
    }

    /// The present IPv4 address of a link, if it has one.
    pub fn present(&self, link: usize) -> Result<Option<IpAddr>> {
        let report = self
            .the_box
            .ip(&format!("-json -4 address show dev {}", wan(link)))?;
        let report: serde_json::Value = serde_json::from_str(&report).unwrap_or_default();
        let local = report[0]["addr_info"][0]["local"].as_str();
        Ok(local.and_then(|local| local.parse().ok()))
    }
}

/// Waits until something holds, at most a minute.
pub(super) fn until(what: &str, holds: impl FnMut() -> Result<bool>) -> Result<()> {
    within(READY, what, holds)
}

fn namespace(name: &str) -> Result<Namespace> {
    let namespace = Namespace::create(name)?;
    settle(&namespace, &Tcp::default(), Families::Both)?;
    Ok(namespace)
}

fn lay_lan(switch: &Namespace, the_box: &Namespace) -> Result<()> {
    switch.ip("link add br0 type bridge forward_delay 0 mcast_snooping 0")?;
    switch.ip("link set br0 up")?;
    the_box.veth(LAN, switch, "box")?;
    switch.ip("link set box master br0")?;
    the_box.add_address(LAN, BOX.parse().expect("an address"), 24)?;
    the_box.ip(&format!("address add fd00:1::1/64 dev {LAN} nodad"))?;
    the_box.ip(&format!("address add fd00:2::1/64 dev {LAN} nodad"))?;
    let_forward(the_box, Families::Both)
}

/// An ISP between the box and the internet, which knows its customer's network and lets out nothing else.
fn lay_link(link: usize, the_box: &Namespace, internet: &Namespace) -> Result<Namespace> {
    let isp = namespace(NAMES[link])?;
    let device = wan(link);
    the_box.veth(&device, &isp, CUSTOMER)?;
    let transit = format!("isp{link}");
    isp.veth("upstream", internet, &transit)?;
    isp.ip(&format!("address add 10.255.{link}.1/30 dev upstream"))?;
    isp.ip(&format!(
        "address add fd00:255:{link}::1/64 dev upstream nodad"
    ))?;
    internet.ip(&format!("address add 10.255.{link}.2/30 dev {transit}"))?;
    internet.ip(&format!(
        "address add fd00:255:{link}::2/64 dev {transit} nodad"
    ))?;
    address_customer(link, &isp)?;
    isp.ip(&format!("route add default via 10.255.{link}.2"))?;
    isp.ip(&format!("route add default via fd00:255:{link}::2"))?;
    let (v4, v6) = (address(link, 0), network(link).1);
    internet.ip(&format!("route add {v4}/24 via 10.255.{link}.1"))?;
    internet.ip(&format!("route add {v6}/64 via fd00:255:{link}::1"))?;
    let filter = format!(
        "table inet customers {{ chain check {{ type filter hook forward priority 0;
            iifname {CUSTOMER} ip saddr != {v4}/24 counter drop
            iifname {CUSTOMER} ip6 saddr != {v6}/64 counter drop
            }}
        }}"
    );
    isp.nft(&filter)?;
    let_forward(&isp, Families::Both)?;
    let_forward(internet, Families::Both)?;
    the_box.ip(&format!(
        "address add {}/64 dev {device} nodad",
        address6(link, 2)
    ))?;
    let (router, metric) = (address6(link, 1), metric(link));
    the_box.ip(&format!(
        "route add default via {router} dev {device} metric {metric}"
    ))?;
    Ok(isp)
}

/// The addresses of the ISP's router towards its customer; a device that was down has lost that of IPv6.
pub(super) fn address_customer(link: usize, isp: &Namespace) -> netns::Result<()> {
    isp.ip(&format!(
        "address replace {}/24 dev {CUSTOMER}",
        address(link, 1)
    ))?;
    isp.ip(&format!(
        "address replace {}/64 dev {CUSTOMER} nodad",
        address6(link, 1)
    ))?;
    Ok(())
}

pub(super) fn metric(link: usize) -> usize {
    100 * (link + 1)
}

/// The default route of a link, in the words of `ip route`.
pub(super) fn route(link: usize) -> String {
    let (router, device, metric) = (address(link, 1), wan(link), metric(link));
    format!("default via {router} dev {device} metric {metric}")
}
