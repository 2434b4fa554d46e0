//! Devices that have their addresses of a DHCP server, by the clients that people have.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use anabranch_api::LinkState;
use anabranch_testbed::netns::{Child, Exit, Namespace};
use nix::sys::signal::Signal;

use crate::rig::*;

/// What clients keep and write is a test's own, and the daemon sees it. Says by which process the rest of us know this one.
const OWN_FILES: &str = "set -e\n\
    for folder in /run /var/lib/dhcp /var/lib/dhcpcd; do mkdir -p $folder; mount -t tmpfs own $folder; done\n\
    touch /run/resolv.conf\n\
    mount --bind /run/resolv.conf /etc/resolv.conf\n\
    read process rest </proc/self/stat\n\
    echo $process\n\
    exec cat\n";
/// Of udhcpc, as Debian's but for the resolvers.
const UDHCPC_SCRIPT: &str = "#!/bin/sh\n\
    case $1 in\n\
    deconfig) ip -4 addr flush dev $interface ;;\n\
    bound | renew)\n\
      ip addr replace $ip/$mask dev $interface\n\
      [ -z \"$router\" ] || ip route replace default via $router dev $interface metric 50 ;;\n\
    esac\n";
/// Not `persistent`: what it set goes when it ends, and comes back when nobody else answers for it.
const DHCPCD_CONFIG: &str = "nohook resolv.conf, hostname\n";
/// systemd-networkd sees files of its own and no udev.
const NETWORKD_SCRIPT: &str = "set -e\n\
    mount -t sysfs -o ro sys /sys\n\
    mkdir -p /run/systemd/network /run/systemd/netif/links /run/systemd/netif/leases\n\
    chown -R systemd-network /run/systemd/netif\n\
    printf '[Match]\\nName=%s\\n[Network]\\nDHCP=ipv4\\nLinkLocalAddressing=no\\nIPv6AcceptRA=no\\n[DHCPv4]\\nUseDNS=no\\nUseRoutes=%s\\n' $1 $2 \
      > /run/systemd/network/10-test.network\n\
    exec /lib/systemd/systemd-networkd\n";
/// Clients ask again so soon (RFC 2132 section 9.11). dnsmasq takes no less.
const RENEWED_S: u32 = 3;
/// And so soon ask everybody: some hear only then that they lost their lease.
const REBOUND_S: u32 = 5;
/// Far less than a link is held down for.
const AT_ONCE: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Udhcpc,
    Dhclient,
    /// By its options.
    Dhcpcd(&'static str),
    /// Whether it sets routes.
    Networkd(&'static str),
}

/// Which does not look for seconds whether anybody else has an address.
const DHCPCD: Kind = Kind::Dhcpcd("--noarp");
const NETWORKD: Kind = Kind::Networkd("yes");

/// A rig whose second link has no address, and the box's clients with the files that they keep.
struct Site {
    rig: Rig,
    /// The namespace of the files is this process's, and one of processes that end with it.
    files: String,
    _holder: Child,
}

impl Site {
    fn new() -> Self {
        let rig = Rig::new();
        rig.gateway.ip("addr flush dev wan1").unwrap();
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "--propagation", "private"])
            .args(["--pid", "--fork", "--kill-child", "sh", "-c", OWN_FILES])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut holder = rig.gateway.spawn(command).unwrap();
        let mut files = String::new();
        BufReader::new(holder.pipes().stdout.take().unwrap())
            .read_line(&mut files)
            .unwrap();
        Self {
            rig,
            files: files.trim().to_owned(),
            _holder: holder,
        }
    }

    /// The daemon sees the files.
    fn start(&self) -> Daemon {
        let arguments = ["--target", &self.files, "--mount"];
        self.rig.start_under("nsenter", &arguments)
    }

    /// Gives leases on a device of a namespace, which has `address` there, of ten addresses.
    fn leases(&self, at: &Namespace, device: &str, address: &str, first: u8) -> Child {
        let (network, _) = address.rsplit_once('.').unwrap();
        let (dir, last) = (self.rig.dir.path(), first + 9);
        let mut command = Command::new("dnsmasq");
        command
            .args(["-k", "-C", "/dev/null", "-p", "0", "--bind-interfaces"])
            .args([
                "--dhcp-authoritative",
                "--user=root",
                "--pid-file=",
                "--no-ping",
            ])
            .arg(format!("--interface={device}"))
            .arg(format!(
                "--dhcp-range={network}.{first},{network}.{last},255.255.255.0,120"
            ))
            .arg(format!("--dhcp-option=58,{RENEWED_S}"))
            .arg(format!("--dhcp-option=59,{REBOUND_S}"))
            .arg(format!("--dhcp-leasefile={}/leases-{first}", dir.display()))
            .arg(format!("--log-facility={}/dnsmasq", dir.display()))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let server = at.spawn(command).unwrap();
        let range = format!("IP range {network}.{first} ");
        until("the server runs", || self.log().contains(&range));
        server
    }

    /// Of the servers.
    fn log(&self) -> String {
        std::fs::read_to_string(self.rig.dir.path().join("dnsmasq")).unwrap_or_default()
    }

    /// How often a server has said that a client has a lease.
    fn acked(&self) -> usize {
        self.log().matches("DHCPACK(").count()
    }

    /// Starts a client of the box.
    fn asks(&self, kind: Kind, device: &str) -> Child {
        let dir = self.rig.dir.path();
        let own = |name: &str, text: &str| {
            let path = dir.join(name);
            if !path.exists() {
                std::fs::write(&path, text).unwrap();
                std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
            }
            path.display().to_string()
        };
        let line = match kind {
            Kind::Udhcpc => {
                let script = own("udhcpc", UDHCPC_SCRIPT);
                format!("udhcpc -f -t 20 -T 1 -A 1 -i {device} -s {script}")
            }
            Kind::Dhclient => format!("dhclient -4 -d {device}"),
            // Its processes for this and that outlive one that is killed.
            Kind::Dhcpcd(options) => {
                let config = own("dhcpcd", DHCPCD_CONFIG);
                format!("--pid --no-fork dhcpcd -4 -B -f {config} {options} {device}")
            }
            Kind::Networkd(routes) => {
                let script = own("networkd", NETWORKD_SCRIPT);
                format!("unshare --mount sh {script} {device} {routes}")
            }
        };
        let mut command = Command::new("nsenter");
        command
            .args(["--target", &self.files, "--mount"])
            .args(line.split_whitespace())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        self.rig.gateway.spawn(command).unwrap()
    }

    /// Udhcpc knows no other time than half of the lease's.
    fn hurries(kind: Kind, client: &Child) {
        if kind == Kind::Udhcpc {
            client.signal(Signal::SIGUSR1);
        }
    }

    fn has_lease(&self, device: &str, network: &str, first: u8) -> bool {
        let addresses = self.rig.gateway.ip(&format!("-4 addr show dev {device}"));
        let addresses = addresses.unwrap();
        let mut leased = (first..first + 10).map(|host| format!("inet {network}.{host}/"));
        leased.any(|leased| addresses.contains(&leased))
    }
}

#[test]
fn a_link_has_leases_of_udhcpc() {
    has_leases(Kind::Udhcpc);
}

#[test]
fn a_link_has_leases_of_dhclient() {
    has_leases(Kind::Dhclient);
}

#[test]
fn a_link_has_leases_of_dhcpcd() {
    has_leases(DHCPCD);
}

#[test]
fn a_link_has_leases_of_networkd() {
    has_leases(NETWORKD);
}

/// Which is taken, renewed, asked for again by a client that was killed or ended, and changed.
fn has_leases(kind: Kind) {
    let site = Site::new();
    let server = site.leases(&site.rig.internet, "wan1-far", "198.51.100.1", 50);
    let daemon = site.start();
    let mut client = site.asks(kind, "wan1");
    all_up(&daemon);
    assert!(site.has_lease("wan1", "198.51.100", 50));
    let passed = packets(&daemon, "dhcp");
    assert!(passed > 0, "some listen behind the programs");
    let mut held = Held::new(&site.rig, &daemon);

    let acked = site.acked();
    Site::hurries(kind, &client);
    until("the lease is renewed", || site.acked() > acked);
    held.go_on(&daemon);
    for signal in [Signal::SIGKILL, Signal::SIGTERM] {
        let acked = site.acked();
        client.signal(signal);
        client.wait(DEADLINE).unwrap().expect("ended in time");
        client = site.asks(kind, "wan1");
        until("the client that was started anew has the lease", || {
            site.acked() > acked && site.has_lease("wan1", "198.51.100", 50)
        });
        let used = until("it is used", || daemon.link("lte").state == LinkState::Up);
        assert!(used < AT_ONCE, "{used:?} after {signal}");
        held.go_on(&daemon);
        held.open(&site.rig.client, &site.rig, &daemon);
    }

    drop(server);
    let _server = site.leases(&site.rig.internet, "wan1-far", "198.51.100.1", 70);
    Site::hurries(kind, &client);
    until("the link has another lease", || {
        site.has_lease("wan1", "198.51.100", 70)
    });
    all_up(&daemon);
    let changed = daemon.link("lte").slot;
    held.those_end(changed);
    held.those_go_on(&daemon, |link| link != changed);
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}

#[test]
fn a_lan_device_has_its_first_lease_while_the_gateway_runs() {
    let site = Site::new();
    site.rig.gateway.ip("addr flush dev lan0").unwrap();
    let _server = site.leases(&site.rig.client, "eth0", "192.168.1.20", 50);
    let daemon = site.start();
    let _client = site.asks(Kind::Udhcpc, "lan0");
    until("the LAN device has a lease", || {
        site.has_lease("lan0", "192.168.1", 50)
    });
    assert!(
        packets(&daemon, "dhcp") > 0,
        "it listens behind the programs"
    );
}

#[test]
fn the_router_of_a_lease_is_known_whose_client_made_no_route_of_it() {
    let without_routes = [
        // Debian's gives its default route no metric, and leaves it out where there is another like that.
        Kind::Dhclient,
        Kind::Dhcpcd("--noarp --nogateway"),
        Kind::Networkd("no"),
    ];
    for kind in without_routes {
        let site = Site::new();
        let ip = |line: &str| site.rig.gateway.ip(line).unwrap();
        ip("route del default");
        ip("route add default via 203.0.113.1 dev wan0");
        let _server = site.leases(&site.rig.internet, "wan1-far", "198.51.100.1", 50);
        let daemon = site.start();
        let _client = site.asks(kind, "wan1");
        all_up(&daemon);
        assert!(!ip("route show default").contains("wan1"));
        Held::new(&site.rig, &daemon).go_on(&daemon);
        assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
    }
}

#[test]
fn a_client_may_have_its_lease_before_the_gateway_starts() {
    for kind in [Kind::Udhcpc, Kind::Dhclient, DHCPCD, NETWORKD] {
        is_first_and_starts_anew(kind, kind);
    }
}

#[test]
fn a_client_that_looks_for_seconds_who_has_its_address_costs_no_flow() {
    is_first_and_starts_anew(DHCPCD, Kind::Dhcpcd(""));
}

/// A client that has its lease before the gateway starts, and another in its place while flows are held.
fn is_first_and_starts_anew(first: Kind, anew: Kind) {
    let site = Site::new();
    let _server = site.leases(&site.rig.internet, "wan1-far", "198.51.100.1", 50);
    let mut client = site.asks(first, "wan1");
    until("the link has a lease", || {
        site.has_lease("wan1", "198.51.100", 50)
    });
    let daemon = site.start();
    all_up(&daemon);
    let held = Held::new(&site.rig, &daemon);
    client.signal(Signal::SIGTERM);
    client.wait(DEADLINE).unwrap().expect("ended in time");
    let acked = site.acked();
    let _client = site.asks(anew, "wan1");
    until("the client that was started anew has the lease", || {
        site.acked() > acked && site.has_lease("wan1", "198.51.100", 50)
    });
    held.go_on(&daemon);
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}
