use std::time::Duration;

use anabranch_core::{LinkSet, Time};

use super::*;

const CONFIG: &str = r#"
lan = ["lan0"]
policy = "rr"
link.fiber = { device = "wan0" }
link.lte = { device = "ppp0" }
"#;

pub(crate) const LAN: u32 = 2;
pub(crate) const FIBER: u32 = 3;
pub(crate) const LTE: u32 = 4;
const VPN: u32 = 5;

fn config(text: &str) -> Config {
    Config::parse(std::path::Path::new("a.toml"), text).unwrap()
}

fn slots(config: &Config) -> Slots {
    Slots::default().assign(config.links.iter().map(|link| link.name.as_str()))
}

fn derive(config: &Config, host: &Snapshot) -> Desired {
    Desired::derive(config, &slots(config), host)
}

pub(crate) fn prefix(text: &str) -> Prefix {
    let (address, length) = text.split_once('/').unwrap();
    Prefix::new(address.parse().unwrap(), length.parse().unwrap())
}

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A file below a root of its own.
pub(crate) fn write(root: &std::path::Path, path: &str, text: &str) {
    let path = root.join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

pub(crate) fn device(ifindex: u32, addresses: &[&str]) -> Device {
    let addresses: Vec<Prefix> = addresses.iter().map(|text| prefix(text)).collect();
    let every_address = addresses.iter().map(|prefix| prefix.address).collect();
    Device {
        ifindex,
        running: true,
        mtu: 1500,
        layer3: false,
        resolves: true,
        addresses,
        every_address,
        ..Device::default()
    }
}

pub(crate) fn route(to: &str, ifindex: u32, via: Option<&str>, metric: u32) -> HostRoute {
    let hops = vec![Hop {
        ifindex,
        via: via.map(ip),
    }];
    HostRoute {
        table: TABLE_MAIN,
        prefix: prefix(to),
        kind: RouteKind::Unicast,
        metric,
        source: None,
        hops,
        of_lease: false,
    }
}

fn local(address: &str) -> HostRoute {
    HostRoute {
        table: TABLE_LOCAL,
        kind: RouteKind::Kernel,
        ..route(address, 1, None, 0)
    }
}

/// A box with a LAN, a fibre line behind a gateway, a PPP line, and a VPN.
pub(crate) fn host() -> Snapshot {
    let ppp = Device {
        layer3: true,
        mtu: 1492,
        ..device(LTE, &["198.51.100.7/32"])
    };
    let devices = [
        ("lan0", device(LAN, &["192.168.1.1/24"])),
        ("wan0", device(FIBER, &["203.0.113.2/24", "203.0.113.9/24"])),
        ("ppp0", ppp),
        (
            "wg0",
            Device {
                layer3: true,
                ..device(VPN, &["10.9.0.1/24"])
            },
        ),
    ];
    let routes = vec![
        route("0.0.0.0/0", FIBER, Some("203.0.113.1"), 100),
        route("0.0.0.0/0", LTE, None, 200),
        route("192.168.1.0/24", LAN, None, 0),
        route("192.168.7.0/24", LAN, Some("192.168.1.254"), 0),
        route("203.0.113.0/24", FIBER, None, 0),
        route("10.9.0.0/24", VPN, None, 0),
        HostRoute {
            hops: route("192.168.1.1/32", LAN, None, 0).hops,
            ..local("192.168.1.1/32")
        },
        local("203.0.113.2/32"),
    ];
    Snapshot {
        devices: devices
            .into_iter()
            .map(|(name, device)| (name.to_owned(), device))
            .collect(),
        routes,
        ..Snapshot::default()
    }
}

fn path(desired: &Desired, link: u16) -> Result<LinkPath, Missing> {
    desired.links[&LinkId(link)].paths[Family::V4].path.clone()
}

fn verdict_of(desired: &Desired, to: &str) -> Option<Verdict> {
    let Prefix { address, length } = prefix(to);
    desired
        .routes
        .iter()
        .find(|route| route.prefix == (address, length))
        .map(|route| route.verdict)
}

#[test]
fn addresses_gateways_and_mtu_are_found_out() {
    let desired = derive(&config(CONFIG), &host());
    let fiber = LinkPath {
        external: ip("203.0.113.2"),
        gateway: Some(ip("203.0.113.1")),
        prefix: None,
        inbound: false,
        ifindex: FIBER,
        mtu: 1500,
        point_to_point: false,
        shares_segment: false,
    };
    let lte = LinkPath {
        external: ip("198.51.100.7"),
        gateway: None,
        prefix: None,
        inbound: false,
        ifindex: LTE,
        mtu: 1492,
        point_to_point: true,
        shares_segment: false,
    };
    assert_eq!(path(&desired, 0), Ok(fiber));
    assert_eq!(path(&desired, 1), Ok(lte));
}

fn by_link(link: u16, via: Option<&str>) -> Verdict {
    Verdict::Link {
        link: LinkId(link),
        via: via.map(ip),
    }
}

#[test]
fn a_specific_route_over_a_link_keeps_its_own_next_hop() {
    let mut host = host_with_v6();
    for (to, via) in [
        ("10.20.0.0/16", Some("203.0.113.9")),
        ("192.168.100.1/32", None),
        ("2001:db8:99::/48", Some("fe80::9")),
        ("2001:db8:a::/64", None),
    ] {
        host.routes.push(route(to, FIBER, via, 0));
        let desired = derive(&config(CONFIG), &host);
        assert_eq!(verdict_of(&desired, to), Some(by_link(0, via)), "{to}");
    }
}

#[test]
fn on_ethernet_a_default_route_without_a_gateway_makes_every_destination_a_neighbour() {
    let mut host = host_with_v6();
    let is_default = |route: &HostRoute| route.prefix.length == 0;
    let is_of = |route: &HostRoute| route.hops.iter().any(|hop| hop.ifindex == FIBER);
    host.routes
        .retain(|route| !(is_default(route) && is_of(route)));
    host.routes.push(route("0.0.0.0/0", FIBER, None, 0));
    host.routes.push(route("::/0", FIBER, None, 0));
    let desired = derive(&config(CONFIG), &host);
    for path in [path(&desired, 0).unwrap(), path_v6(&desired, 0).unwrap()] {
        assert_eq!((path.gateway, path.point_to_point), (None, false));
    }
}

#[test]
fn specific_routes_win_over_balancing() {
    let desired = derive(&config(CONFIG), &host());
    for (to, verdict) in [
        (
            "192.168.1.0/24",
            Some(Verdict::Lan {
                ifindex: LAN,
                via: None,
            }),
        ),
        (
            "192.168.7.0/24",
            Some(Verdict::Lan {
                ifindex: LAN,
                via: Some(ip("192.168.1.254")),
            }),
        ),
        ("203.0.113.0/24", Some(by_link(0, None))),
        ("10.9.0.0/24", Some(Verdict::Kernel)),
        ("192.168.1.1/32", Some(Verdict::LocalInLan { ifindex: LAN })),
        ("203.0.113.2/32", Some(Verdict::Local)),
        ("224.0.0.0/4", Some(Verdict::Kernel)),
        ("0.0.0.0/0", None),
    ] {
        assert_eq!(verdict_of(&desired, to), verdict, "{to}");
    }
}

#[test]
fn of_two_routes_to_one_prefix_the_lower_metric_wins_and_local_ones_win_over_all() {
    let mut host = host();
    host.routes.insert(0, route("10.8.0.0/16", LTE, None, 50));
    host.routes
        .insert(0, route("10.8.0.0/16", FIBER, Some("203.0.113.1"), 60));
    host.routes.insert(0, route("203.0.113.2/32", LAN, None, 0));
    let desired = derive(&config(CONFIG), &host);
    assert_eq!(verdict_of(&desired, "10.8.0.0/16"), Some(by_link(1, None)));
    assert_eq!(verdict_of(&desired, "203.0.113.2/32"), Some(Verdict::Local));
}

#[test]
fn programs_are_attached_to_the_devices_that_exist() {
    let mut host = host();
    host.devices.remove("ppp0");
    let desired = derive(&config(CONFIG), &host);
    assert_eq!(
        desired.attachments.into_iter().collect::<Vec<_>>(),
        [
            (
                LAN,
                Attachment {
                    device: "lan0".into(),
                    role: Role::lan([ip("192.168.1.1")]),
                    layer3: false,
                    mtu: 1500
                }
            ),
            (
                FIBER,
                Attachment {
                    device: "wan0".into(),
                    role: Role::Link(LinkId(0)),
                    layer3: false,
                    mtu: 1500
                }
            ),
        ]
    );
    let lte = &desired.links[&LinkId(1)];
    assert_eq!(
        (&lte.paths[Family::V4].path, lte.running),
        (&Err(Missing::Device), false)
    );
}

#[test]
fn a_renewed_address_a_moved_gateway_and_a_device_made_anew_are_followed() {
    let mut host = host();
    host.devices
        .insert("wan0".into(), device(9, &["203.0.113.77/24"]));
    host.routes[0] = route("0.0.0.0/0", 9, Some("203.0.113.254"), 100);
    let fiber = path(&derive(&config(CONFIG), &host), 0).unwrap();
    assert_eq!(
        (fiber.external, fiber.gateway, fiber.ifindex),
        (ip("203.0.113.77"), Some(ip("203.0.113.254")), 9)
    );
}

#[test]
fn the_hosts_own_preference_among_default_routes_changes_nothing() {
    let before = derive(&config(CONFIG), &host());
    let mut host = host();
    host.routes[0].metric = 300;
    assert_eq!(derive(&config(CONFIG), &host), before);
}

#[test]
fn two_links_may_have_gateways_of_the_same_address() {
    let mut host = host();
    host.devices
        .insert("ppp0".into(), device(LTE, &["203.0.114.5/24"]));
    host.routes[1] = route("0.0.0.0/0", LTE, Some("203.0.113.1"), 200);
    let desired = derive(&config(CONFIG), &host);
    let (fiber, lte) = (path(&desired, 0).unwrap(), path(&desired, 1).unwrap());
    assert_eq!(fiber.gateway, lte.gateway);
    assert_ne!(fiber.ifindex, lte.ifindex);
}

#[test]
fn a_gateway_is_also_found_in_multipath_routes_and_in_tables_of_others_but_not_in_ours() {
    let mut host = host();
    host.routes[0].hops = vec![
        Hop {
            ifindex: LTE,
            via: None,
        },
        Hop {
            ifindex: FIBER,
            via: Some(ip("203.0.113.3")),
        },
    ];
    assert_eq!(
        path(&derive(&config(CONFIG), &host), 0).unwrap().gateway,
        Some(ip("203.0.113.3"))
    );
    host.routes[0] = HostRoute {
        table: 100,
        ..route("0.0.0.0/0", FIBER, Some("203.0.113.4"), 0)
    };
    assert_eq!(
        path(&derive(&config(CONFIG), &host), 0).unwrap().gateway,
        Some(ip("203.0.113.4"))
    );
    host.routes[0].table = ids::Ids::of("default").link_table(LinkId(0));
    assert_eq!(
        path(&derive(&config(CONFIG), &host), 0),
        Err(Missing::Gateway(Family::V4))
    );
}

#[test]
fn the_configuration_may_choose_address_and_gateway() {
    let chosen = CONFIG.replace(
        r#""wan0""#,
        r#""wan0", address = "203.0.113.9", gateway = "203.0.113.8""#,
    );
    let fiber = path(&derive(&config(&chosen), &host()), 0).unwrap();
    assert_eq!(
        (fiber.external, fiber.gateway),
        (ip("203.0.113.9"), Some(ip("203.0.113.8")))
    );
    let absent = CONFIG.replace(r#""wan0""#, r#""wan0", address = "203.0.113.10""#);
    assert_eq!(
        path(&derive(&config(&absent), &host()), 0),
        Err(Missing::ConfiguredAddress(ip("203.0.113.10")))
    );
    let own = CONFIG.replace(r#""wan0""#, r#""wan0", gateway = "203.0.113.2""#);
    assert_eq!(
        path(&derive(&config(&own), &host()), 0),
        Err(Missing::OwnGateway(ip("203.0.113.2")))
    );
}

#[test]
fn a_cable_pulled_keeps_the_path_and_is_an_obstacle() {
    let mut host = host();
    host.devices.get_mut("wan0").unwrap().running = false;
    let view = derive(&config(CONFIG), &host).links[&LinkId(0)].clone();
    assert!(view.path(Family::V4).is_some());
    assert_eq!(
        view.state(Family::V4),
        LinkState::Absent(core::Missing::Carrier)
    );
}

#[test]
fn networks_on_both_sides_are_refused_with_the_place() {
    assert_eq!(check(&config(CONFIG), &host()), Ok(()));
    let mut both_sides = host();
    both_sides
        .devices
        .insert("wan0".into(), device(FIBER, &["192.168.1.20/25"]));
    assert_eq!(
        check(&config(CONFIG), &both_sides).unwrap_err().to_string(),
        "a.toml: link.fiber.device = \"wan0\": its network 192.168.1.0/25 overlaps 192.168.1.0/24 of LAN device lan0; \
         LAN and links must not share a network"
    );
}

#[test]
fn what_may_still_come_is_no_contradiction_and_is_named() {
    let absent = config(&CONFIG.replace("wan0", "wan9").replace("lan0", "eth7"));
    assert_eq!(check(&absent, &host()), Ok(()));
    assert_eq!(
        absent_devices(&absent, &host()),
        [
            r#"lan[0] = "eth7": no such device; this host has: lan0, ppp0, wan0, wg0"#,
            r#"link.fiber.device = "wan9": no such device; this host has: lan0, ppp0, wan0, wg0"#,
        ]
    );
    let mut no_lease = host();
    no_lease.routes.clear();
    no_lease.devices.insert("ppp0".into(), device(LTE, &[]));
    assert_eq!(check(&config(CONFIG), &no_lease), Ok(()));
    assert_eq!(absent_devices(&config(CONFIG), &no_lease), [""; 0]);
}

#[test]
fn gateway_and_leased_resolvers_are_asked_beside_the_public_ones_unless_others_are_written() {
    let mut host = host();
    let fiber = host.devices.get_mut("wan0").unwrap();
    fiber.resolvers = vec![ip("203.0.113.1"), ip("198.18.0.53"), ip("9.9.9.9")];
    let targets = |text: &str| {
        derive(&config(text), &host).links[&LinkId(0)].paths[Family::V4]
            .targets
            .clone()
    };
    let named: Vec<(String, Reach)> = targets(CONFIG)
        .into_iter()
        .map(|(target, reach)| (target.to_string(), reach))
        .collect();
    let named: Vec<(&str, Reach)> = named
        .iter()
        .map(|(name, reach)| (name.as_str(), *reach))
        .collect();
    assert_eq!(
        named,
        [
            ("dns:1.1.1.1", Reach::Far),
            ("tcp:8.8.8.8:443", Reach::Far),
            ("icmp:9.9.9.9", Reach::Far),
            ("dns:208.67.222.222", Reach::Far),
            ("tcp:1.1.1.1:443", Reach::Far),
            ("icmp:8.8.8.8", Reach::Far),
            ("icmp:203.0.113.1", Reach::Near),
            ("dns:203.0.113.1", Reach::Near),
            ("dns:198.18.0.53", Reach::Far),
            ("dns:9.9.9.9", Reach::Far),
        ]
    );
    let written = CONFIG.replace(r#""wan0""#, r#""wan0", probe = ["icmp:192.0.2.1"]"#);
    assert_eq!(
        targets(&written),
        [(ProbeTarget::Icmp(ip("192.0.2.1")), Reach::Far)]
    );
}

/// The same box with IPv6 on its LAN and both lines; the fibre's router is known by its address on the line.
fn host_with_v6() -> Snapshot {
    let mut host = host();
    for (name, address) in [
        ("lan0", "fd00:1::1/64"),
        ("wan0", "2001:db8:a::2/64"),
        ("ppp0", "2001:db8:b::7/64"),
    ] {
        let device = host.devices.get_mut(name).unwrap();
        device.addresses.push(prefix(address));
    }
    let line = |ifindex| route("fe80::/64", ifindex, None, 256);
    host.routes.extend([
        route("::/0", FIBER, Some("fe80::1"), 1024),
        route("::/0", LTE, None, 1024),
        route("fd00:1::/64", LAN, None, 256),
        route("fd00:2::/48", LAN, Some("fe80::99"), 1024),
        route("2001:db8:a::/64", FIBER, None, 256),
        line(FIBER),
        line(LAN),
        local("fe80::5/128"),
        local("2001:db8:a::2/128"),
    ]);
    host
}

fn path_v6(desired: &Desired, link: u16) -> Result<LinkPath, Missing> {
    desired.links[&LinkId(link)].paths[Family::V6].path.clone()
}

#[test]
fn each_family_of_a_link_has_its_address_its_gateway_and_its_targets() {
    let desired = derive(&config(CONFIG), &host_with_v6());
    let (v4, v6) = (path(&desired, 0).unwrap(), path_v6(&desired, 0).unwrap());
    assert_eq!(v4.external, ip("203.0.113.2"));
    assert_eq!(
        (v6.external, v6.gateway, v6.point_to_point),
        (ip("2001:db8:a::2"), Some(ip("fe80::1")), false)
    );
    let lte = path_v6(&desired, 1).unwrap();
    assert_eq!((lte.gateway, lte.point_to_point), (None, true));
    let view = &desired.links[&LinkId(0)];
    for (family, path) in view.paths.iter() {
        let is_of = |(target, _): &(ProbeTarget, Reach)| target.is_of(family);
        assert!(path.targets.iter().all(is_of), "{:?}", path.targets);
    }
    let gateway = (ProbeTarget::Icmp(ip("fe80::1")), Reach::Near);
    assert!(view.paths[Family::V6].targets.contains(&gateway));
}

#[test]
fn what_is_of_one_line_alone_is_no_route_of_the_lan() {
    let desired = derive(&config(CONFIG), &host_with_v6());
    let lan = |via: Option<&str>| {
        let via = via.map(ip);
        Some(Verdict::Lan { ifindex: LAN, via })
    };
    for (to, verdict) in [
        ("fe80::/10", Some(Verdict::Kernel)),
        ("ff00::/8", Some(Verdict::Kernel)),
        ("fe80::/64", None),
        ("fe80::5/128", None),
        ("fd00:1::/64", lan(None)),
        ("fd00:2::/48", lan(Some("fe80::99"))),
        ("2001:db8:a::2/128", Some(Verdict::Local)),
        ("::/0", None),
    ] {
        assert_eq!(verdict_of(&desired, to), verdict, "{to}");
    }
}

#[test]
fn a_link_may_have_one_family_alone() {
    let desired = derive(&config(CONFIG), &host());
    assert!(path(&desired, 0).is_ok());
    assert_eq!(path_v6(&desired, 0), Err(Missing::Address(Family::V6)));
    let mut host = host_with_v6();
    let of_v6 = |address: &Prefix| address.family() == Family::V6;
    host.devices
        .get_mut("wan0")
        .unwrap()
        .addresses
        .retain(of_v6);
    let desired = derive(&config(CONFIG), &host);
    assert_eq!(path(&desired, 0), Err(Missing::Address(Family::V4)));
    assert!(path_v6(&desired, 0).is_ok());
}

#[test]
fn the_configuration_may_choose_address_and_gateway_of_ipv6() {
    let mut host = host_with_v6();
    let wan = host.devices.get_mut("wan0").unwrap();
    wan.addresses.push(prefix("2001:db8:a::9/64"));
    let chosen = CONFIG.replace(
        r#""wan0""#,
        r#""wan0", address6 = "2001:db8:a::9", gateway6 = "fe80::2""#,
    );
    let fiber = path_v6(&derive(&config(&chosen), &host), 0).unwrap();
    assert_eq!(
        (fiber.external, fiber.gateway),
        (ip("2001:db8:a::9"), Some(ip("fe80::2")))
    );
    assert_eq!(
        path(&derive(&config(&chosen), &host), 0).unwrap().external,
        ip("203.0.113.2")
    );
}

/// A delegation, as whoever took it leaves it.
fn delegated(network: &str) -> HostRoute {
    HostRoute {
        kind: RouteKind::Nowhere,
        of_lease: true,
        ..route(network, 1, None, 1024)
    }
}

#[test]
fn an_unreachable_route_that_is_no_delegation_changes_nothing() {
    let mut host = host_with_v6();
    let lte = host.devices.get_mut("ppp0").unwrap();
    lte.addresses
        .retain(|address| address.family() == Family::V4);
    let has_prefix = |route: HostRoute| {
        let mut host = host.clone();
        host.routes.push(route);
        let path = path_v6(&derive(&config(CONFIG), &host), 0).unwrap();
        path.prefix.is_some()
    };
    assert!(has_prefix(delegated("2001:db8:a:100::/56")));
    for private in ["fd00:1::/48", "fc00::/7", "fec0::/10", "::/8"] {
        assert!(!has_prefix(delegated(private)), "{private}");
    }
    let by_hand = HostRoute {
        of_lease: false,
        ..delegated("2001:db8:dead::/48")
    };
    assert!(!has_prefix(by_hand), "a bogon, or all networks of a site");
}

#[test]
fn the_router_of_a_lease_is_the_gateway_where_nobody_made_a_route_of_it() {
    let mut host = host();
    host.devices.get_mut("wan0").unwrap().lease_router = Some(ip("203.0.113.254"));
    let gateway = |host: &Snapshot, text: &str| {
        let path = path(&derive(&config(text), host), 0).unwrap();
        path.gateway.unwrap().to_string()
    };
    assert_eq!(
        gateway(&host, CONFIG),
        "203.0.113.1",
        "of the default route"
    );
    host.routes
        .retain(|route| route.prefix.length > 0 || route.hops[0].ifindex != FIBER);
    assert_eq!(gateway(&host, CONFIG), "203.0.113.254");
    let chosen = CONFIG.replace(r#""wan0""#, r#""wan0", gateway = "203.0.113.9""#);
    assert_eq!(gateway(&host, &chosen), "203.0.113.9");
}

#[test]
fn a_delegated_prefix_is_the_links_that_it_can_be_of_alone() {
    let mut host = host_with_v6();
    host.routes.push(delegated("2001:db8:a:100::/56"));
    let prefixes = |host: &Snapshot| {
        let desired = derive(&config(CONFIG), host);
        [0, 1].map(|link| path_v6(&desired, link).ok().and_then(|path| path.prefix))
    };
    assert_eq!(prefixes(&host), [None, None], "both are of one provider");
    let lte = host.devices.get_mut("ppp0").unwrap();
    lte.addresses[1] = prefix("2001:db9::7/64");
    let network = Some(("2001:db8:a:100::".parse().unwrap(), 56));
    assert_eq!(prefixes(&host), [network, None]);
    host.devices
        .get_mut("lan0")
        .unwrap()
        .addresses
        .push(prefix("fd00:3::1/56"));
    assert_eq!(
        prefixes(&host),
        [None, None],
        "a network of the LAN has no room"
    );
    let of_v4 = |address: &Prefix| address.family() == Family::V4;
    host.devices.get_mut("lan0").unwrap().addresses.pop();
    host.devices
        .get_mut("wan0")
        .unwrap()
        .addresses
        .retain(of_v4);
    assert_eq!(prefixes(&host), [None, network], "the only link with IPv6");
}

#[test]
fn the_lans_networks_are_known_by_the_prefix_of_a_link_whoever_may_begin_there() {
    let host = host_with_v6();
    for (inbound, allowed) in [("", false), (r#", inbound = "allow""#, true)] {
        let key = format!(r#""wan0", prefix6 = "2001:db8:a:100::/56"{inbound}"#);
        let config = config(&CONFIG.replace(r#""wan0""#, &key));
        let desired = derive(&config, &host);
        assert_eq!(path_v6(&desired, 0).unwrap().inbound, allowed);
        let image = |route: &&Route| matches!(route.verdict, Verdict::Prefix { .. });
        let images: Vec<&Route> = desired.routes.iter().filter(image).collect();
        // A network behind a router of the LAN may have more addresses than the prefix: that is all of it, no more.
        let [all, image] = images[..] else {
            panic!("{images:?}")
        };
        assert_eq!(all.prefix.1, 56);
        let network: IpAddr = "2001:db8:a:100::".parse().unwrap();
        assert_eq!(image.prefix, (network, 64));
        assert_eq!(
            image.verdict,
            Verdict::Prefix {
                link: LinkId(0),
                lan: "fd00:1::".parse().unwrap()
            }
        );
    }
}

#[test]
fn a_prefix_without_room_for_the_lans_networks_is_refused_and_translates_nothing() {
    let with = |length: u8| {
        let key = format!(r#""wan0", prefix6 = "2001:db8:a:100::/{length}""#);
        config(&CONFIG.replace(r#""wan0""#, &key))
    };
    let host = host_with_v6();
    assert_eq!(check(&with(56), &host), Ok(()));
    let prefix_of = |config: &Config| path_v6(&derive(config, &host), 0).unwrap().prefix;
    assert!(prefix_of(&with(56)).is_some());
    assert_eq!(
        check(&with(64), &host).unwrap_err().to_string(),
        "a.toml: link.fiber.prefix6 = \"2001:db8:a:100::/64\": fd00:1::/64 of LAN device lan0 is not longer, so that hosts of the \
         LAN would become one; give the LAN longer networks, or leave prefix6 out, and they share the link's address"
    );
    assert_eq!(prefix_of(&with(64)), None);
}

/// A fibre line with IPv6 by advertisements of `fe80::1`, beside another router and its prefix, which came later.
fn host_with_two_routers() -> Snapshot {
    let mut host = host_with_v6();
    let is_of_fiber = |route: &HostRoute| route.hops.iter().any(|hop| hop.ifindex == FIBER);
    let is_default = |route: &HostRoute| route.prefix == prefix("::/0");
    for route in &mut host.routes {
        route.of_lease |= is_default(route) && is_of_fiber(route);
    }
    host.routes.push(by_advertisement("fe80::bad", 1024));
    let wan = host.devices.get_mut("wan0").unwrap();
    wan.addresses.push(prefix("2001:db8:bad::2/64"));
    wan.advertised = vec![
        advertised("fe80::1", "2001:db8:a::/64", [1, 3]),
        advertised("fe80::bad", "2001:db8:bad::/64", [2, 4]),
    ];
    host
}

fn by_advertisement(router: &str, metric: u32) -> HostRoute {
    HostRoute {
        of_lease: true,
        ..route("::/0", FIBER, Some(router), metric)
    }
}

fn advertised(router: &str, network: &str, [first, last]: [u64; 2]) -> Advertised {
    Advertised {
        router: ip(router),
        prefix: prefix(network),
        first,
        last,
    }
}

/// External address and router.
fn chosen(host: &Snapshot) -> (String, String) {
    let path = path_v6(&derive(&config(CONFIG), host), 0).unwrap();
    let gateway = path.gateway.unwrap();
    (path.external.to_string(), gateway.to_string())
}

fn is(external: &str, gateway: &str) -> (String, String) {
    (external.to_owned(), gateway.to_owned())
}

fn wan(host: &mut Snapshot) -> &mut Device {
    host.devices.get_mut("wan0").unwrap()
}

/// The next look at a host of which this was seen.
fn seen(uses: &mut Uses, host: &mut Snapshot) {
    let config = config(CONFIG);
    uses.tell(&config, &slots(&config), host);
    uses.note(host, &derive(&config, host));
}

const OURS: (&str, &str) = ("2001:db8:a::2", "fe80::1");
const ROGUE: (&str, &str) = ("2001:db8:bad::2", "fe80::bad");

#[test]
fn what_another_router_advertises_is_not_taken_while_what_is_used_is_there() {
    let mut host = host_with_two_routers();
    // In whichever order the host lists them, and with whatever preference.
    wan(&mut host).addresses.reverse();
    host.routes.insert(0, by_advertisement("fe80::bad", 512));
    assert_eq!(chosen(&host), is(ROGUE.0, ROGUE.1), "nothing was used");
    let mut uses = Uses::default();
    seen(&mut uses, &mut host_with_v6());
    for heard in [true, false] {
        let mut host = host.clone();
        if !heard {
            wan(&mut host).advertised.clear();
        }
        uses.tell(&config(CONFIG), &slots(&config(CONFIG)), &mut host);
        assert_eq!(chosen(&host), is(OURS.0, OURS.1), "heard: {heard}");
    }
}

#[test]
fn at_first_an_address_of_the_links_router_comes_before_those_of_others() {
    let mut host = host_with_two_routers();
    wan(&mut host).addresses.reverse();
    assert_eq!(chosen(&host), is(OURS.0, OURS.1));
    wan(&mut host).deprecated.push(ip(OURS.0));
    assert_eq!(chosen(&host), is(ROGUE.0, ROGUE.1));
    wan(&mut host).deprecated.push(ip(ROGUE.0));
    assert_eq!(chosen(&host), is(OURS.0, OURS.1), "there is no better");
    let written = route("::/0", FIBER, Some("fe80::7"), 1024);
    host.routes.push(written);
    assert_eq!(chosen(&host).1, "fe80::7", "somebody wrote it himself");
}

#[test]
fn an_address_that_goes_or_is_deprecated_is_replaced_with_its_router() {
    for goes in [true, false] {
        let mut uses = Uses::default();
        let mut host = host_with_two_routers();
        seen(&mut uses, &mut host);
        assert_eq!(chosen(&host), is(OURS.0, OURS.1));
        match goes {
            true => wan(&mut host)
                .addresses
                .retain(|own| own.address != ip(OURS.0)),
            false => wan(&mut host).deprecated.push(ip(OURS.0)),
        }
        assert_eq!(chosen(&host), is(ROGUE.0, ROGUE.1));
        let others = &derive(&config(CONFIG), &host).links[&LinkId(0)].paths[Family::V6].others;
        assert_eq!(others.contains(&ip(OURS.0)), !goes, "its flows linger");
    }
    let mut uses = Uses::default();
    let mut host = host_with_two_routers();
    seen(&mut uses, &mut host);
    let is_ours = |route: &HostRoute| route.hops.iter().any(|hop| hop.via == Some(ip(OURS.1)));
    host.routes.retain(|route| !is_ours(route));
    assert_eq!(chosen(&host).1, ROGUE.1, "a router that has withdrawn");
}

#[test]
fn another_prefix_of_the_same_router_is_followed_when_the_former_is_said_no_longer() {
    let mut uses = Uses::default();
    let mut host = host_with_two_routers();
    seen(&mut uses, &mut host);
    let device = wan(&mut host);
    device.addresses.push(prefix("2001:db8:aa::2/64"));
    let both = advertised(OURS.1, "2001:db8:aa::/64", [3, 3]);
    device.advertised.push(both.clone());
    assert_eq!(chosen(&host), is(OURS.0, OURS.1), "it has both");
    let device = wan(&mut host);
    device.advertised.pop();
    let alone = Advertised { first: 5, ..both };
    device.advertised.push(Advertised { last: 5, ..alone });
    assert_eq!(chosen(&host), is("2001:db8:aa::2", OURS.1));
}

#[test]
fn a_network_of_the_lan_that_is_advertised_on_a_link_changes_nothing() {
    let mut host = host_with_v6();
    let lan = prefix("fd00:1::/64");
    wan(&mut host).addresses.insert(0, prefix("fd00:1::bad/64"));
    host.routes
        .insert(0, route("fd00:1::/64", FIBER, None, 256));
    assert_eq!(chosen(&host), is(OURS.0, OURS.1));
    let desired = derive(&config(CONFIG), &host);
    let expected = Verdict::Lan {
        ifindex: LAN,
        via: None,
    };
    assert_eq!(verdict_of(&desired, &lan.to_string()), Some(expected));
    let of_v4 = |own: &Prefix| own.family() == Family::V4 || own.overlaps(lan);
    wan(&mut host).addresses.retain(of_v4);
    let missing = path_v6(&derive(&config(CONFIG), &host), 0).unwrap_err();
    assert!(matches!(missing, Missing::OverlapsLan { .. }), "{missing}");
}

#[test]
fn with_what_does_not_work_another_pair_is_tried_in_turn() {
    let (mut uses, mut now) = (Uses::default(), Time::ZERO);
    let config = config(CONFIG);
    let mut host = host_with_two_routers();
    let mut used = Vec::new();
    let mut waits = Vec::new();
    for _ in 0..3 {
        seen(&mut uses, &mut host);
        used.push(chosen(&host).1);
        let links = derive(&config, &host).links;
        assert!(!uses.turn(now, &links, LinkSet::default()));
        let begun = now;
        while !uses.turn(now, &links, LinkSet::default()) {
            now = now + Duration::from_secs(1);
        }
        waits.push(now.since(begun).as_secs());
    }
    assert_eq!(used, [OURS.1, ROGUE.1, OURS.1]);
    assert_eq!(waits, [3, 6, 12]);
    seen(&mut uses, &mut host);
    let links = derive(&config, &host).links;
    now = now + Duration::from_secs(60);
    let alive = LinkSet::from_iter([LinkId(0)]);
    assert!(!uses.turn(now, &links, alive), "it works");
}

#[test]
fn a_link_keeps_its_delegated_prefix_when_another_gets_ipv6_or_a_prefix_comes() {
    let mut uses = Uses::default();
    let mut host = host_with_v6();
    let lte = host.devices.get_mut("ppp0").unwrap();
    let v6 = lte.addresses.pop().unwrap();
    // Of another provider than its own address is.
    host.routes.push(delegated("2001:db9:100::/56"));
    seen(&mut uses, &mut host);
    let network = Some(("2001:db9:100::".parse().unwrap(), 56));
    let prefix_of = |host: &Snapshot| path_v6(&derive(&config(CONFIG), host), 0).unwrap().prefix;
    host.devices.get_mut("ppp0").unwrap().addresses.push(v6);
    assert_eq!(prefix_of(&host), None, "nobody remembers");
    uses.tell(&config(CONFIG), &slots(&config(CONFIG)), &mut host);
    assert_eq!(prefix_of(&host), network);
    host.routes.insert(0, delegated("2001:db8:a:100::/56"));
    assert_eq!(prefix_of(&host), network);
}
