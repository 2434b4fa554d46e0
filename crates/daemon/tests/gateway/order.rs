//! Neighbours and the gateway: whoever starts first, it comes to the same.

use std::net::SocketAddr;
use std::process::{Command, Stdio};

use anabranch_core::Family;
use anabranch_testbed::netns::{Child, Exit, Namespace};
use nix::sys::signal::Signal;

use crate::beside::{PUBLISHED_PORT, tunnel_ends};
use crate::rig::*;

pub(super) const WIREGUARD_PORT: u16 = 51820;
/// Of a table that somebody has, and of the service of a second address.
const TABLE: u32 = 100;
const SERVICE_PORT: u16 = 9090;

anabranch_testbed::in_both_families!(
    Family:
    hosts_go_into_a_tunnel_that_takes_everything,
    hosts_go_where_a_rule_sends_them,
    containers_are_forwarded_and_hosts_balanced,
    a_second_address_of_a_link_is_answered_by_it,
    clients_of_a_vpn_in_the_lan_are_balanced,
);

/// A neighbour that comes before the gateway, then one that comes after it, each in a rig of its own.
fn either_first<N>(
    family: Family,
    config: impl Fn(String) -> String,
    comes: impl Fn(&Rig) -> N,
    holds: impl Fn(&Rig, &Daemon, &N),
) {
    for neighbour_first in [true, false] {
        println!("the neighbour is first: {neighbour_first}");
        let rig = Rig::of(family);
        rig.tell_who_asks();
        rig.write_config(&config(rig.config_text()));
        let earlier = neighbour_first.then(|| comes(&rig));
        let daemon = rig.start_up();
        let neighbour = earlier.unwrap_or_else(|| comes(&rig));
        holds(&rig, &daemon, &neighbour);
        assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
    }
}

/// All connections of a host, from some moment on.
fn is_seen_as(rig: &Rig, host: &Namespace, wanted: &str) {
    const CONNECTIONS: usize = 4;
    let seen = || rig.seen_from(host).map(|seen| seen.to_string());
    until("a host is seen as it should be", || {
        seen().is_ok_and(|seen| seen == wanted)
    });
    for _ in 0..CONNECTIONS {
        assert_eq!(seen().unwrap(), wanted);
    }
}

fn hosts_go_into_a_tunnel_that_takes_everything(family: Family) {
    let ([near, _], _) = tunnel_ends(family);
    let comes = |rig: &Rig| {
        rig.tunnel_device();
        rig.tunnel_up();
        rig.nft(&format!(
            "table {} tunnel {{ chain c {{ type nat hook postrouting priority srcnat; oifname tun0 masquerade; }}; }}",
            words(family)
        ));
    };
    either_first(
        family,
        |text| text,
        comes,
        |rig, _, ()| {
            is_seen_as(rig, &rig.client, near);
            is_seen_as(rig, &rig.gateway, near);
        },
    );
}

fn hosts_go_where_a_rule_sends_them(family: Family) {
    let comes = |rig: &Rig| {
        let (host, [_, router]) = (rig.plan().lan[1], rig.plan().links[1]);
        let version = if family == Family::V4 { "-4" } else { "-6" };
        for line in [
            format!("route add default via {router} dev wan1 table {TABLE}"),
            format!("{version} rule add from {host} lookup {TABLE}"),
        ] {
            rig.gateway.ip(&line).unwrap();
        }
    };
    either_first(
        family,
        |text| text,
        comes,
        |rig, _, ()| {
            is_seen_as(rig, &rig.client, rig.external("wan1"));
            is_seen_as(rig, &rig.gateway, rig.external("wan0"));
        },
    );
}

/// What a container publishes is answered by the link that was asked.
fn containers_are_forwarded_and_hosts_balanced(family: Family) {
    let comes = |rig: &Rig| {
        rig.providers_check_sources();
        let container = rig.container();
        let at = SocketAddr::new(rig.unbound().ip(), 80);
        let service = container.listen(at).unwrap();
        (service, container)
    };
    let by_kernel = |text| format!("{text}nat.forwards = \"kernel\"\n");
    either_first(family, by_kernel, comes, |rig, daemon, (_, container)| {
        is_seen_as(rig, container, rig.external("wan0"));
        for device in ["wan0", "wan1"] {
            let at = rig.external(device).parse().unwrap();
            let published = SocketAddr::new(at, PUBLISHED_PORT);
            until("a published port is reached", || {
                rig.call_from_afar(published).is_ok()
            });
        }
        Held::new(rig, daemon).go_on(daemon);
    });
}

fn a_second_address_of_a_link_is_answered_by_it(family: Family) {
    let second = match family {
        Family::V4 => "198.51.100.3",
        Family::V6 => "2001:db8:b::3",
    };
    let comes = |rig: &Rig| {
        address(&rig.gateway, "wan1", second, rig.plan().lengths[0]);
        rig.providers_check_sources();
    };
    either_first(
        family,
        |text| text,
        comes,
        |rig, _, ()| {
            let at = SocketAddr::new(rig.unbound().ip(), SERVICE_PORT);
            let _service = rig.gateway.listen(at).unwrap();
            let [own, second] = [rig.external("wan1"), second]
                .map(|address| SocketAddr::new(address.parse().unwrap(), SERVICE_PORT));
            until("it answers", || rig.call_from_afar(second).is_ok());
            rig.call_from_afar(own).expect("the first does as well");
        },
    );
}

/// WireGuard in user space between the box and somebody beyond the internet.
struct Vpn {
    _ends: [Child; 2],
    client: Namespace,
}

/// Of the box and the client.
pub(super) fn vpn_ends(family: Family) -> ([&'static str; 2], u8) {
    match family {
        Family::V4 => (["10.9.0.1", "10.9.0.2"], 24),
        Family::V6 => (["fd00:9::1", "fd00:9::2"], 64),
    }
}

/// A host beyond the internet, and its address.
pub(super) fn warrior(rig: &Rig) -> (Namespace, &'static str) {
    let client = namespace("warrior");
    client.veth("eth0", &rig.internet, "warrior").unwrap();
    let ([at_home, router], length) = match rig.family() {
        Family::V4 => (["10.254.0.2", "10.254.0.1"], 24),
        Family::V6 => (["fd00:254::2", "fd00:254::1"], 64),
    };
    address(&client, "eth0", at_home, length);
    address(&rig.internet, "warrior", router, length);
    client
        .ip(&format!("route add default via {router}"))
        .unwrap();
    for key in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
        rig.internet.set_sysctl(&format!("net/{key}"), "1").unwrap();
    }
    (client, at_home)
}

fn vpn(rig: &Rig) -> Vpn {
    let (client, _) = warrior(rig);
    let [(secret, public), (client_secret, client_public)] = [new_key(rig), new_key(rig)];
    let ([own, far], length) = vpn_ends(rig.family());
    let endpoint = SocketAddr::new(rig.external("wan0").parse().unwrap(), WIREGUARD_PORT);
    let ends = [
        wireguard(
            &rig.gateway,
            (own, length),
            &format!(
                "[Interface]\nPrivateKey = {secret}\nListenPort = {WIREGUARD_PORT}\n\
                 [Peer]\nPublicKey = {client_public}\nAllowedIPs = {far}\n"
            ),
        ),
        wireguard(
            &client,
            (far, length),
            &format!(
                "[Interface]\nPrivateKey = {client_secret}\n\
                 [Peer]\nPublicKey = {public}\nAllowedIPs = 0.0.0.0/0, ::/0\nEndpoint = {endpoint}\n"
            ),
        ),
    ];
    let server = rig.plan().server;
    client
        .ip(&format!("route add {server} dev wg0 src {far}"))
        .unwrap();
    Vpn {
        _ends: ends,
        client,
    }
}

/// A private key and its public one.
pub(super) fn new_key(rig: &Rig) -> (String, String) {
    let secret = rig.gateway.exec("wg", &["genkey"]).unwrap();
    let public = rig
        .gateway
        .exec_with_input("wg", &["pubkey"], &secret)
        .unwrap();
    (secret.trim().to_owned(), public.trim().to_owned())
}

/// An end, whose control socket nobody else sees.
pub(super) fn wireguard(at: &Namespace, (own, length): (&str, u8), config: &str) -> Child {
    let start =
        "mkdir -p /run/wireguard && mount -t tmpfs run /run/wireguard && exec wireguard-go -f wg0";
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--propagation", "private", "sh", "-c", start])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let end = at.spawn(command).unwrap();
    let pid = end.id().to_string();
    let set = [
        "--target",
        &pid,
        "--mount",
        "wg",
        "setconf",
        "wg0",
        "/dev/stdin",
    ];
    until("it takes its configuration", || {
        at.exec_with_input("nsenter", &set, config).is_ok()
    });
    address(at, "wg0", own, length);
    at.ip("link set wg0 up").unwrap();
    end
}

fn clients_of_a_vpn_in_the_lan_are_balanced(family: Family) {
    let with_vpn = |text: String| text.replace("[\"lan0\"]", "[\"lan0\", \"wg0\"]");
    either_first(family, with_vpn, vpn, |rig, daemon, vpn| {
        let links = ["wan0", "wan1"].map(|device| rig.external(device));
        until("its connections are balanced", || {
            let seen = rig.seen_from(&vpn.client).unwrap().to_string();
            links.contains(&seen.as_str())
        });
        let held = Held::of(&vpn.client, rig, daemon);
        Held::new(rig, daemon).go_on(daemon);
        held.go_on(daemon);
    });
}

/// Hosts have their addresses and their router of what radvd says on the LAN.
#[test]
fn hosts_that_radvd_tells_of_the_box_are_balanced() {
    let comes = |rig: &Rig| {
        let key = "net/ipv6/conf/eth0/accept_ra";
        assert_eq!(rig.client.sysctl(key).unwrap(), "1");
        for line in ["addr flush dev eth0 scope global", "route flush default"] {
            rig.client.ip(&format!("-6 {line}")).unwrap();
        }
        let config = rig.dir.path().join("radvd.conf");
        let text = "interface lan0 { AdvSendAdvert on; MinRtrAdvInterval 3; MaxRtrAdvInterval 4; \
                    prefix fd00:1::/64 { }; };\n";
        std::fs::write(&config, text).unwrap();
        let pid = rig.dir.path().join("radvd.pid");
        let mut command = Command::new("radvd");
        command.args(["-n", "-m", "stderr", "-C"]).arg(config);
        command.arg("-p").arg(pid).stderr(Stdio::null());
        Advertiser(rig.gateway.spawn(command).unwrap())
    };
    either_first(
        Family::V6,
        |text| text,
        comes,
        |rig, daemon, _| {
            let is_told = || {
                let of = |line: &str| rig.client.ip(line).unwrap();
                let addresses = of("-6 addr show dev eth0 scope global -tentative");
                addresses.contains("fd00:1:") && !of("-6 route show default").is_empty()
            };
            until("the host has a router", is_told);
            Held::new(rig, daemon).go_on(daemon);
        },
    );
}

/// Its process for privileged work outlives a parent that is killed.
struct Advertiser(Child);

impl Drop for Advertiser {
    fn drop(&mut self) {
        let _ = self.0.terminate(DEADLINE);
    }
}
