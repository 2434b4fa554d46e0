//! What else a box has: DHCP clients, virtual routers, networks of its own beside the LAN, and multicast.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use anabranch_core::Family;
use anabranch_testbed::netns::{Child, Namespace};

use crate::rig::*;

anabranch_testbed::in_both_families!(
    Family:
    hosts_whose_gateway_is_a_virtual_router_on_the_lan_are_balanced,
    answers_to_a_network_that_the_kernel_translates_arrive_without_a_fallback,
);

/// Of udhcpc: sets the address of the device, and nothing else on the host.
const LEASED: &str = "#!/bin/sh\n\
    case $1 in bound | renew) ip addr replace $ip/$mask dev $interface ;; esac\n";

impl Rig {
    /// Gives leases on a device of a namespace, which has `address` there, from the 50th on.
    fn leases(&self, at: &Namespace, device: &str, address: &str) -> Child {
        let (network, _) = address.rsplit_once('.').unwrap();
        let file = self.dir.path().join(format!("leases-{device}"));
        let mut command = Command::new("dnsmasq");
        command
            .args(["-k", "-C", "/dev/null", "-p", "0", "--bind-interfaces"])
            .args(["--dhcp-authoritative", "--user=root", "--pid-file="])
            .arg(format!("--interface={device}"))
            .arg(format!(
                "--dhcp-range={network}.50,{network}.60,255.255.255.0,120"
            ))
            .arg(format!("--dhcp-leasefile={}", file.display()))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        at.spawn(command).unwrap()
    }

    /// A DHCP client of the box that listens behind the programs: by a packet socket for IP alone.
    fn asks_for_a_lease(&self, device: &str) -> Child {
        let script = self.dir.path().join("leased");
        std::fs::write(&script, LEASED).unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut command = Command::new("udhcpc");
        command
            .args(["-f", "-t", "20", "-T", "1", "-A", "1", "-i", device, "-s"])
            .arg(script)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        self.gateway.spawn(command).unwrap()
    }

    /// The same of systemd-networkd, which sees files of its own and no udev.
    fn has_networkd(&self, device: &str) -> Child {
        let script = format!(
            "set -e\n\
             mount -t tmpfs run /run/systemd\n\
             mount -t sysfs -o ro sys /sys\n\
             mkdir -p /run/systemd/network /run/systemd/netif/links /run/systemd/netif/leases\n\
             chown -R systemd-network /run/systemd/netif\n\
             printf '[Match]\\nName={device}\\n[Network]\\nDHCP=ipv4\\nLinkLocalAddressing=no\\nIPv6AcceptRA=no\\n\
             [DHCPv4]\\nUseDNS=no\\nUseRoutes=no\\n' > /run/systemd/network/10-test.network\n\
             exec /lib/systemd/systemd-networkd\n"
        );
        let mut command = Command::new("unshare");
        command
            .args(["-m", "sh", "-c", &script])
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        self.gateway.spawn(command).unwrap()
    }

    fn has_lease(&self, device: &str, network: &str) -> bool {
        let addresses = self.gateway.ip(&format!("-4 addr show dev {device}"));
        (50..=60).any(|host| {
            addresses
                .as_ref()
                .unwrap()
                .contains(&format!("inet {network}.{host}/"))
        })
    }
}

/// The first, and one after the box has lost its address.
#[test]
fn a_link_has_leases_while_the_gateway_runs() {
    let rig = Rig::new();
    rig.gateway.ip("addr flush dev wan1").unwrap();
    let _server = rig.leases(&rig.internet, "wan1-far", "198.51.100.1");
    let daemon = rig.start();
    for client in [
        Rig::asks_for_a_lease,
        Rig::asks_for_a_lease,
        Rig::has_networkd,
    ] {
        let before = packets(&daemon, "dhcp");
        let client = client(&rig, "wan1");
        until("the link has a lease", || {
            rig.has_lease("wan1", "198.51.100")
        });
        assert!(
            packets(&daemon, "dhcp") > before,
            "it listens behind the programs"
        );
        drop(client);
        rig.gateway.ip("addr flush dev wan1").unwrap();
    }
}

#[test]
fn a_lan_device_has_its_first_lease_while_the_gateway_runs() {
    let rig = Rig::new();
    rig.gateway.ip("addr flush dev lan0").unwrap();
    let _server = rig.leases(&rig.client, "eth0", "192.168.1.20");
    let daemon = rig.start();
    let _client = rig.asks_for_a_lease("lan0");
    until("the LAN device has a lease", || {
        rig.has_lease("lan0", "192.168.1")
    });
    assert!(
        packets(&daemon, "dhcp") > 0,
        "it listens behind the programs"
    );
}

/// Such as keepalived's: a device above that of the LAN, with a hardware address of its own.
fn hosts_whose_gateway_is_a_virtual_router_on_the_lan_are_balanced(family: Family) {
    let rig = Rig::of(family);
    let daemon = rig.start();
    let virtual_router = rig.lan_host(51).to_string();
    let ip = |line: &str| rig.gateway.ip(line).unwrap();
    ip("link add vrrp link lan0 type macvlan mode private");
    ip("link set vrrp address 00:00:5e:00:01:33 addrgenmode none");
    ip("link set vrrp up");
    rig.client
        .ip(&format!("route replace default via {virtual_router}"))
        .unwrap();
    let neighbour = format!("neigh replace {virtual_router} lladdr 00:00:5e:00:01:33 dev eth0");
    rig.client.ip(&neighbour).unwrap();
    // It is not the master yet, which has the address.
    let patience = std::time::Duration::from_millis(300);
    let connect = || TcpStream::connect_timeout(&rig.server().parse().unwrap(), patience);
    rig.client
        .run(connect)
        .unwrap()
        .expect_err("the master would answer");
    assert!(packets(&daemon, "other-host") > 0);

    address(&rig.gateway, "vrrp", &virtual_router, rig.plan().lengths[1]);
    until("it is the master", || {
        rig.client.run(connect).unwrap().is_ok()
    });
    let opened = || ["fiber", "lte"].map(|link| daemon.link(link).flows.opened);
    let before = opened();
    (0..4).for_each(|_| echo(&mut rig.connect().unwrap()).unwrap());
    until("both links have flows", || {
        let after = opened();
        after[0] > before[0] && after[1] > before[1]
    });
}

/// Containers, or clients of a VPN: a network that is in no `lan`.
fn answers_to_a_network_that_the_kernel_translates_arrive_without_a_fallback(family: Family) {
    let rig = Rig::of(family);
    let container = namespace("container");
    cable((&rig.gateway, "apps"), (&container, "eth0"));
    let (ends, length) = match family {
        Family::V4 => (["172.17.0.1", "172.17.0.2"], 24),
        Family::V6 => (["fd00:17::1", "fd00:17::2"], 64),
    };
    address(&rig.gateway, "apps", ends[0], length);
    address(&container, "eth0", ends[1], length);
    let default = format!("route add default via {}", ends[0]);
    container.ip(&default).unwrap();
    let masquerade = "table inet theirs { chain c { type nat hook postrouting priority srcnat; \
                      iifname apps masquerade; }; }";
    rig.gateway
        .exec_with_input("nft", &["-f", "-"], masquerade)
        .unwrap();
    for fallback in ["refuse", "kernel"] {
        rig.write_config(&format!(
            "{}[nat]\nfallback = \"{fallback}\"\n",
            rig.config_text()
        ));
        let _daemon = rig.start();
        let asks = || {
            let socket = UdpSocket::bind(rig.unbound()).unwrap();
            socket.connect(rig.server()).unwrap();
            ask(&socket).is_ok()
        };
        until("a datagram is answered", || container.run(asks).unwrap());
        let connect = || {
            let mut stream = TcpStream::connect(rig.server()).unwrap();
            echo(&mut stream).unwrap();
        };
        container.run(connect).unwrap();
    }
}

/// What the box says by multicast its own listeners hear, too (RFC 1112 section 6.1).
#[test]
fn multicast_of_the_box_on_a_lan_device_is_looped_back() {
    let rig = Rig::new();
    let daemon = rig.start();
    let group = Ipv4Addr::new(239, 1, 2, 3);
    let own: Ipv4Addr = rig.plan().lan[0].parse().unwrap();
    rig.gateway.ip("route add 239.1.2.3 dev lan0").unwrap();
    let heard = rig.gateway.run(|| {
        let listener = UdpSocket::bind(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 5353)).unwrap();
        listener.join_multicast_v4(&group, &own).unwrap();
        listener.set_read_timeout(Some(DEADLINE)).unwrap();
        let speaker = UdpSocket::bind(SocketAddr::new(own.into(), 0)).unwrap();
        speaker.send_to(b"here", (group, 5353)).unwrap();
        let mut heard = [0; 16];
        listener
            .recv(&mut heard)
            .map(|length| heard[..length].to_vec())
    });
    assert_eq!(heard.unwrap().unwrap(), b"here");
    until("it is counted", || packets(&daemon, "looped-back") > 0);
    assert_eq!(packets(&daemon, "malformed"), 0);
}
