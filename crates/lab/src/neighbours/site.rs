//! Where neighbours meet: one box with three links, and who stands beside the gateway in it.
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

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anabranch_api::LinkState;
use anabranch_scenario::{Families, Tcp};
use nix::sys::signal::Signal;
use tempfile::TempDir;

use super::plan::{Choices, LINKS, NAMES};
use super::services::{Services, VIRTUAL, in_own_run, start_script};
use crate::daemon::Daemon;
use crate::topology::ready::within;
use crate::topology::{Anabranch, Result, host_bits, io_error, let_forward, settle, wan};
use anabranch_testbed::netns::{self, Child, Namespace};

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
const GRACE: Duration = Duration::from_secs(5);
/// The link with the smallest metric: the host's own routing leads there, with or without a gateway.
pub(super) const HOSTS_OWN: usize = 0;
/// Of the LAN host that a rule leads to a link now and then.
pub(super) const GUEST: &str = "192.168.1.12";
pub(super) const GUEST6: &str = "fd00:1::12";
/// Downloads go through it while they are shaped at the ingress.
const IFB: &str = "ifb0";
/// The last octet of what a lease gives, in turn.
const LEASES: [u8; 2] = [50, 60];
const STATIC: u8 = 2;

/// Sets the address and the default route of a lease, as the script of Debian's udhcpc does, but for the file of
/// resolvers, which is the host's.
const UDHCPC_SCRIPT: &str = r#"#!/bin/sh
case $1 in
deconfig)
    ip link set "$interface" up
    ip -4 address flush dev "$interface" ;;
bound | renew)
    ip -4 address replace "$ip/$mask" dev "$interface"
    ip -4 route replace default via "${router%% *}" dev "$interface" metric "$METRIC" ;;
esac
"#;

/// The same in the words of dhclient-script(8).
const DHCLIENT_SCRIPT: &str = r#"#!/bin/sh
case $reason in
PREINIT) ip link set "$interface" up ;;
BOUND | RENEW | REBIND | REBOOT)
    [ -z "$old_ip_address" ] || [ "$old_ip_address" = "$new_ip_address" ] || ip -4 address flush dev "$interface"
    ip -4 address replace "$new_ip_address/24" dev "$interface"
    ip -4 route replace default via "${new_routers%% *}" dev "$interface" metric "$METRIC" ;;
EXPIRE | FAIL | RELEASE | STOP) ip -4 address flush dev "$interface" ;;
TIMEOUT) exit 1 ;;
esac
exit 0
"#;

/// As Debian has it, but for what concerns this host: the address stays while dhcpcd starts again.
const DHCPCD_CONFIGURATION: &str = "duid
persistent
option domain_name_servers, classless_static_routes
require dhcp_server_identifier
ipv4only
noipv4ll
script /bin/true
";

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

/// What a link's address comes from.
enum Access {
    Leased {
        server: Child,
        client: Child,
        program: DhcpClient,
        /// Which of [`LEASES`] the server gives.
        lease: usize,
    },
    Static,
}

/// Who takes a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DhcpClient {
    Udhcpc,
    Dhclient,
    Dhcpcd,
}

/// A running site. Dropping it ends its processes, then removes its namespaces: in the order of the fields.
pub(super) struct Site {
    pub links: Links,
    pub services: Services,
    pub ground: Ground,
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

/// The gateway, and who gives its links their addresses.
pub(super) struct Links {
    pub gateway: Anabranch,
    accesses: Vec<Access>,
}

impl Site {
    /// Builds everything and waits until every link has answered a probe.
    pub fn build(binary: &Path, choices: Choices) -> Result<Self> {
        let ground = Ground::build()?;
        let accesses = (0..LINKS).map(|link| give_access(link, &ground, choices));
        let accesses = accesses.collect::<Result<Vec<_>>>()?;
        until("every link has an address", || {
            let present: Result<Vec<_>> = (0..LINKS).map(|link| ground.present(link)).collect();
            Ok(present?.iter().all(Option::is_some))
        })?;
        let services = Services::start(&ground, choices)?;
        until(
            "hosts are told a router, and one has the virtual address",
            || Ok(ground.hears_router()? && ground.is_master()?),
        )?;
        let gateway = Anabranch::start(&ground.the_box, binary, &configuration(choices))?;
        let site = Self {
            links: Links { gateway, accesses },
            services,
            ground,
        };
        until("every link up", || {
            let status = Daemon::connect(site.links.gateway.instance())?.gateway_status()?;
            Ok(status
                .links
                .iter()
                .all(|link| link.state == LinkState::Up && link.probe.round_trip_ms.is_some()))
        })?;
        Ok(site)
    }
}

impl Ground {
    fn build() -> Result<Self> {
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

impl Links {
    /// Makes the client of a link ask for its address again.
    pub fn renew(&mut self, link: usize, ground: &Ground) -> Result<()> {
        match &self.accesses[link] {
            // It has no signal for it; one that starts asks for the lease it remembers.
            Access::Leased {
                program: DhcpClient::Dhclient,
                ..
            } => self.restart_client(link, ground),
            Access::Leased { client, .. } => {
                client.signal(Signal::SIGUSR1);
                Ok(())
            }
            Access::Static => Ok(()),
        }
    }

    /// Has the server of a link give another address, and the client ask. Returns the address.
    pub fn change_lease(&mut self, link: usize, ground: &Ground) -> Result<IpAddr> {
        let Access::Leased { lease, program, .. } = &mut self.accesses[link] else {
            unreachable!("link {link} has no lease");
        };
        *lease = 1 - *lease;
        let given = address(link, LEASES[*lease]).into();
        // Bound, dhcpcd hears no refusal, since that is a broadcast: it would keep its address until it asks anybody.
        let is_deaf = *program == DhcpClient::Dhcpcd;
        self.restart_server(link, ground)?;
        match is_deaf {
            true => self.restart_client(link, ground)?,
            false => self.renew(link, ground)?,
        }
        Ok(given)
    }

    pub fn restart_client(&mut self, link: usize, ground: &Ground) -> Result<()> {
        if let Access::Leased {
            client, program, ..
        } = &mut self.accesses[link]
        {
            client
                .terminate(GRACE)
                .map_err(io_error("stopping a DHCP client"))?;
            *client = start_client(link, ground, *program)?;
        }
        Ok(())
    }

    pub fn restart_server(&mut self, link: usize, ground: &Ground) -> Result<()> {
        if let Access::Leased { server, lease, .. } = &mut self.accesses[link] {
            server
                .terminate(GRACE)
                .map_err(io_error("stopping a DHCP server"))?;
            *server = start_server(link, ground, *lease)?;
        }
        Ok(())
    }
}

impl Drop for Links {
    /// dhcpcd has processes of its own, which outlive a parent that is killed and not one that is told to end.
    fn drop(&mut self) {
        for access in &mut self.accesses {
            if let Access::Leased { client, .. } = access {
                let _ = client.terminate(GRACE);
            }
        }
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

fn give_access(link: usize, ground: &Ground, choices: Choices) -> Result<Access> {
    let the_box = &ground.the_box;
    if link == LINKS - 1 {
        let device = wan(link);
        the_box.ip(&format!(
            "address add {}/24 dev {device}",
            address(link, STATIC)
        ))?;
        the_box.ip(&format!("route add {}", route(link)))?;
        return Ok(Access::Static);
    }
    let program = match (link, choices.dhcpcd) {
        (0, _) => DhcpClient::Udhcpc,
        (_, false) => DhcpClient::Dhclient,
        (_, true) => DhcpClient::Dhcpcd,
    };
    Ok(Access::Leased {
        server: start_server(link, ground, 0)?,
        client: start_client(link, ground, program)?,
        program,
        lease: 0,
    })
}

/// dnsmasq as the ISP's DHCP server, which gives one address. Clients renew every 20 s: RFC 2132 §9.11.
fn start_server(link: usize, ground: &Ground, lease: usize) -> Result<Child> {
    let directory = ground.directory.path();
    let name = format!("dnsmasq-{}", NAMES[link]);
    let given = address(link, LEASES[lease]);
    let leases = directory.join(format!("{name}-{lease}.leases"));
    let line = format!(
        "dnsmasq -k -C /dev/null -p 0 --interface={CUSTOMER} --bind-dynamic --user=root --pid-file= \
         --dhcp-range={given},{given},255.255.255.0,120 --dhcp-option=3,{} --dhcp-option=58,20 \
         --dhcp-authoritative --no-ping --dhcp-leasefile={} --log-facility=- --log-dhcp",
        address(link, 1),
        leases.display()
    );
    program(&ground.isps[link], &line, directory, &name)
}

fn start_client(link: usize, ground: &Ground, client: DhcpClient) -> Result<Child> {
    let directory = ground.directory.path();
    let (device, metric) = (wan(link), metric(link));
    let name = format!("client-{}", NAMES[link]);
    let line = match client {
        DhcpClient::Udhcpc => {
            let script = write_script(directory, "udhcpc.sh", UDHCPC_SCRIPT)?;
            format!(
                "env METRIC={metric} udhcpc -f -i {device} -t 20 -T 1 -A 1 -s {}",
                script.display()
            )
        }
        DhcpClient::Dhclient => {
            let script = write_script(directory, "dhclient.sh", DHCLIENT_SCRIPT)?;
            let leases = directory.join("dhclient.leases");
            format!(
                "dhclient -4 -d --no-pid -e METRIC={metric} -lf {} -sf {} {device}",
                leases.display(),
                script.display()
            )
        }
        DhcpClient::Dhcpcd => return start_dhcpcd(ground, &device, metric, &name),
    };
    program(&ground.the_box, &line, directory, &name)
}

/// Its places under /run and /var/lib are fixed.
fn start_dhcpcd(ground: &Ground, device: &str, metric: usize, name: &str) -> Result<Child> {
    let directory = ground.directory.path();
    let leases = directory.join("dhcpcd");
    std::fs::create_dir_all(&leases).map_err(io_error(format!("making {}", leases.display())))?;
    let configuration = directory.join("dhcpcd.conf");
    let text = format!("{DHCPCD_CONFIGURATION}metric {metric}\n");
    let failed = io_error(format!("writing {}", configuration.display()));
    std::fs::write(&configuration, text).map_err(failed)?;
    let (leases, configuration) = (leases.display(), configuration.display());
    let line = in_own_run(&format!(
        "mount --bind {leases} /var/lib/dhcpcd && exec dhcpcd -B -d -f {configuration} {device}"
    ));
    start_script(&ground.the_box, &line, directory, name)
}

fn write_script(directory: &Path, name: &str, text: &str) -> Result<PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    let path = directory.join(name);
    let failed = || io_error(format!("writing {}", path.display()));
    // A running client may be about to start it: it is never written over.
    if !path.exists() {
        std::fs::write(&path, text).map_err(failed())?;
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).map_err(failed())?;
    }
    Ok(path)
}

/// Starts a program of words without quotes; what it says goes to a file of its name.
pub(super) fn program(
    namespace: &Namespace,
    line: &str,
    directory: &Path,
    name: &str,
) -> Result<Child> {
    let log = directory.join(format!("{name}.log"));
    let open = || File::options().create(true).append(true).open(&log);
    let failed = || io_error(format!("opening {}", log.display()));
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words).stdin(Stdio::null());
    command.stdout(open().map_err(failed())?);
    command.stderr(open().map_err(failed())?);
    Ok(namespace.spawn(command)?)
}

fn configuration(choices: Choices) -> String {
    let forwards = if choices.published { "kernel" } else { "drop" };
    let mut text = format!("lan = [\"{LAN}\"]\nnat.forwards = \"{forwards}\"\n");
    for (link, name) in NAMES.iter().enumerate() {
        let device = wan(link);
        text += &format!(
            "link.{name} = {{ device = \"{device}\", down = \"100mbit\", up = \"100mbit\" }}\n"
        );
    }
    let [v4, v6] = servers(PORT);
    // There are few servers: sessions that stay where they are would not come back to a link that has failed.
    text += "default.stick = false\n";
    // Links of this site fail every few seconds, and the gateway is to use all that work.
    text += "availability = { hold_down = \"1s\", hold_down_max = \"2s\" }\n";
    text + &format!(
        "probe.targets = [\"icmp:{}\", \"tcp:{}\", \"icmp:{}\", \"tcp:{}\"]\n",
        v4[0].ip(),
        v4[1],
        v6[0].ip(),
        v6[1]
    )
}
