//! What the host's routing says of LAN packets binds new flows, whether user space tells it or the kernel is asked.

use std::net::{IpAddr, SocketAddr};

use anabranch_core::{LinkId, Proto};
use anabranch_dataplane::{Error, Role, Route, RouteTable, Verdict};
use anabranch_policy::abi;

use super::classes::only;
use super::*;

/// A device of the rig's namespace that is the one of link 1.
const LINK_DEVICE: u32 = 300;
const VPN_DEVICE: u32 = 301;

fn rig() -> Rig {
    Rig::choosing(&only(0))
}

/// Whose source a datagram has as it leaves.
#[track_caller]
fn external(rig: &mut Rig, from: SocketAddr, to: SocketAddr) -> SocketAddr {
    rig.translates_out(&udp(from, to, b"?").frame()).src()
}

#[test]
fn a_specific_route_over_a_link_binds_connections_and_datagrams() {
    let mut rig = rig();
    rig.add_link_route(SITE.host(SECOND_SERVER), 1, None);
    assert_eq!(rig.connect(client(4000), second_server(80)).link, 1);
    assert_eq!(rig.connect(client(4000), server(80)).link, 0);
    assert_eq!(
        external(&mut rig, client(4000), second_server(53)).ip(),
        EXTERNAL[1]
    );
}

/// A host that others are not near.
fn far_host(number: u32) -> IpAddr {
    match SERVER {
        IpAddr::V4(_) => IpAddr::from((0x0b00_0000 + number).to_be_bytes()),
        IpAddr::V6(_) => IpAddr::from((0x3fff_u128 << 112 | u128::from(number)).to_be_bytes()),
    }
}

/// Leads so many hosts over link 0 by as many routers, none of which a host of another `turn` has.
fn lead(table: &mut RouteTable, hosts: u32, turn: u32) -> Result<(), Error> {
    for host in 0..hosts {
        let via = Some(far_host((turn + 1) << 16 | host));
        let link = LinkId(0);
        table.set(&Route {
            prefix: SITE.host(far_host(host)),
            verdict: Verdict::Link { link, via },
        })?;
    }
    Ok(())
}

/// Routes have the number of their next hop, and there are fewer numbers than next hops over time.
#[test]
fn next_hops_that_no_route_has_make_room_for_others() {
    let mut rig = rig();
    rig.add_link_route(SITE.host(SECOND_SERVER), 1, None);
    let mut table = rig.plane().route_table().unwrap();
    let most = abi::NEXT_HOPS_MAX as u32;
    for turn in 0..3 {
        lead(&mut table, most / 2, turn).unwrap();
    }
    assert_eq!(rig.connect(client(4000), second_server(80)).link, 1);
    let error = lead(&mut table, most, 3).unwrap_err();
    assert!(error.is_full(), "{error}");
    assert_eq!(rig.connect(client(4001), second_server(80)).link, 1);
    // As another process finds it.
    let mut table = rig.plane().route_table().unwrap();
    let led: Vec<_> = (0..most).map(|host| SITE.host(far_host(host))).collect();
    table.keep_only(|prefix| !led.contains(&prefix)).unwrap();
    lead(&mut table, most / 2, 4).unwrap();
    assert_eq!(rig.connect(client(4002), second_server(80)).link, 1);
    assert_eq!(rig.connect(client(4003), server(80)).link, 0);
}

#[test]
fn a_mapping_of_another_link_is_not_for_a_destination_with_a_route() {
    let mut rig = rig();
    let route = SITE.host(SECOND_SERVER);
    rig.add_link_route(route, 1, None);
    let first = external(&mut rig, client(4000), server(53));
    let second = external(&mut rig, client(4000), second_server(53));
    assert_eq!([first.ip(), second.ip()], EXTERNAL);
    let answer = |to| udp(second_server(53), to, b"!").frame();
    rig.link_brings(0, &answer(first)).dropped("filtered-in");
    rig.translates_in(1, &answer(second));
    assert_eq!(rig.flows().len(), 2);
    // An established mapping keeps its link when the route goes.
    rig.remove_route(route);
    let kept = external(&mut rig, client(4000), second_server(53));
    assert_eq!(kept, second);
    assert_eq!(external(&mut rig, client(4000), server(53)), first);
}

#[test]
fn a_next_hop_of_its_own_on_the_same_link_has_a_mapping_of_its_own_and_the_gateway_has_not() {
    let mut rig = rig();
    rig.add_link_route(SITE.host(SECOND_SERVER), 0, Some(ISP[0]));
    let first = external(&mut rig, client(4000), server(53));
    assert_eq!(external(&mut rig, client(4000), second_server(53)), first);
    rig.remove_route(SITE.host(SECOND_SERVER));
    rig.add_link_route(SITE.host(SECOND_SERVER), 0, Some(nth(ISP[0], 7)));
    let of_old = external(&mut rig, client(4000), second_server(53));
    assert_eq!(of_old, first, "what is established stays");
    external(&mut rig, client(4001), server(53));
    let other = external(&mut rig, client(4001), second_server(53));
    assert_eq!(other.ip(), EXTERNAL[0]);
    assert_eq!(rig.flows().len(), 3);
}

/// Devices and forwarding in the rig's namespace, and rules of others that are asked.
fn with_rules() -> Rig {
    let mut rig = rig();
    rig.namespace().set_ipv6(true).unwrap();
    for (name, ifindex) in [("wan", LINK_DEVICE), ("vpn", VPN_DEVICE)] {
        rig.add_device(name, ifindex);
        // Nothing is to come from there.
        let silence = format!("net/ipv6/conf/{name}-end/disable_ipv6");
        rig.namespace().set_sysctl(&silence, "1").unwrap();
        for end in [name.to_owned(), format!("{name}-end")] {
            ip(&rig, &format!("link set {end} up"));
        }
    }
    let node = rig.namespace();
    for key in ["net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"] {
        node.set_sysctl(key, "1").unwrap();
    }
    ip(&rig, "link set lo up");
    let quiet = if SERVER.is_ipv6() { " nodad" } else { "" };
    let (_, length) = SITE.lan;
    ip(
        &rig,
        &format!("address add {}/{length} dev wan{quiet}", EXTERNAL[1]),
    );
    rig.plane()
        .attach(LINK_DEVICE, Role::Link(LinkId(1)), false, MTU)
        .unwrap();
    rig.set(|s| s.routes_kernel = abi::ROUTES_FOREIGN);
    rig
}

fn ip(rig: &Rig, line: &str) {
    let family = if SERVER.is_ipv6() { "-6" } else { "-4" };
    rig.namespace().ip(&format!("{family} {line}")).unwrap();
}

fn explained(rig: &mut Rig, from: IpAddr, to: IpAddr) -> (Option<u16>, String) {
    let (from, to) = (SocketAddr::new(from, 999), SocketAddr::new(to, 80));
    let told = rig.plane().explain(from, to, Proto::Tcp).unwrap();
    (told.link, told.why)
}

#[track_caller]
fn link_of_new(rig: &mut Rig, from: SocketAddr) -> u16 {
    rig.open(from, server(80)).link
}

#[test]
fn a_rule_for_a_source_binds_its_flows_to_the_link_of_its_table() {
    let mut rig = with_rules();
    ip(
        &rig,
        &format!("route add default via {} dev wan table 100", ISP[1]),
    );
    ip(
        &rig,
        &format!("rule add pref 1000 from {CLIENT} lookup 100"),
    );
    assert_eq!(link_of_new(&mut rig, client(4000)), 1);
    assert_eq!(
        external(&mut rig, client(4000), server(53)).ip(),
        EXTERNAL[1]
    );
    let neighbour = SocketAddr::new(SECOND_CLIENT, 4000);
    assert_eq!(link_of_new(&mut rig, neighbour), 0);
    let by_route = (Some(1), "a specific route names it".to_owned());
    assert_eq!(explained(&mut rig, CLIENT, SERVER), by_route);
    assert_eq!(explained(&mut rig, SECOND_CLIENT, SERVER).0, Some(0));
    ip(&rig, "rule del pref 1000");
    assert_eq!(link_of_new(&mut rig, client(4001)), 0);
}

#[test]
fn what_a_table_of_others_sends_elsewhere_is_the_kernels_and_established_flows_keep_their_link() {
    let mut rig = with_rules();
    let (_, host) = SITE.host(SECOND_SERVER);
    let connection = rig.connect(client(4000), second_server(80));
    let mapping = external(&mut rig, client(4000), second_server(53));
    external(&mut rig, client(4001), server(53));
    ip(
        &rig,
        &format!("route add {SECOND_SERVER}/{host} dev vpn table 52"),
    );
    ip(&rig, "rule add pref 5270 lookup 52");
    let data = connection.say("A", LOCAL_ISN + 1, REMOTE_ISN + 1);
    rig.translates_out(&data.payload(b"on").frame());
    assert_eq!(external(&mut rig, client(4000), second_server(53)), mapping);
    let syn = tcp(client(4002), second_server(80), "S", LOCAL_ISN, 0).frame();
    rig.lan_sends(&syn).passed("routing-rules");
    let rest = tcp(client(4002), second_server(80), "A", LOCAL_ISN + 1, 1).frame();
    rig.lan_sends(&rest).passed("routing-rules");
    // From a fresh socket, and from one that has a mapping for others.
    for port in [4001, 4003] {
        let query = udp(client(port), second_server(53), b"?").frame();
        rig.lan_sends(&query).passed("routing-rules");
        rig.lan_sends(&query).passed("routing-rules");
    }
    assert_eq!(link_of_new(&mut rig, client(4004)), 0);
    let words = "the host's routing rules send it another way than over a link";
    assert_eq!(
        explained(&mut rig, CLIENT, SECOND_SERVER),
        (None, words.to_owned())
    );
}

#[test]
fn a_full_tunnel_takes_all_that_the_main_table_does_not_know_and_a_refusal_is_the_kernels() {
    let mut rig = with_rules();
    ip(
        &rig,
        &format!("route add default via {} dev wan metric 100", ISP[1]),
    );
    // As wg-quick has it.
    ip(&rig, "route add default dev vpn table 51820");
    ip(&rig, "rule add not fwmark 51820 table 51820");
    ip(&rig, "rule add table main suppress_prefixlength 0");
    let hidden = if SERVER.is_ipv6() {
        abi::ROUTES_HIDDEN
    } else {
        0
    };
    rig.set(|s| s.routes_kernel = abi::ROUTES_FOREIGN | hidden);
    let syn = |port| tcp(client(port), server(80), "S", LOCAL_ISN, 0).frame();
    rig.lan_sends(&syn(4000)).passed("routing-rules");
    for refusal in ["unreachable", "prohibit", "blackhole"] {
        ip(&rig, "route flush table 51820");
        ip(&rig, &format!("route add {refusal} default table 51820"));
        rig.lan_sends(&syn(4000)).passed("routing-rules");
    }
    ip(&rig, "route flush table 51820");
    rig.set(|s| s.routes_kernel = abi::ROUTES_FOREIGN);
    assert_eq!(link_of_new(&mut rig, client(4000)), 0, "the main table's");
}

#[test]
fn rules_by_device_destination_and_service_are_heard_and_marks_are_nobodys() {
    let mut rig = with_rules();
    ip(&rig, "route add default dev vpn table 52");
    let syn = |to: SocketAddr| tcp(client(4000), to, "S", LOCAL_ISN, 0).frame();
    let (_, host) = SITE.host(SERVER);
    for (rule, taken, other) in [
        (format!("to {SERVER}/{host}"), server(80), second_server(80)),
        ("ipproto 6 dport 443".to_owned(), server(443), server(80)),
    ] {
        ip(&rig, &format!("rule add pref 1000 {rule} lookup 52"));
        rig.lan_sends(&syn(taken)).passed("routing-rules");
        rig.translates_out(&syn(other));
        ip(&rig, "rule del pref 1000");
    }
    ip(&rig, "rule add pref 1000 iif vpn lookup 52");
    ip(&rig, "rule add pref 1001 fwmark 0x80000/0xff0000 lookup 52");
    rig.translates_out(&syn(server(81)));
    ip(&rig, "rule add pref 1002 iif lo lookup 52");
    rig.lan_sends(&syn(server(82))).passed("routing-rules");
}

#[test]
fn what_may_have_a_route_that_there_was_no_room_for_is_the_kernels() {
    const MARK: u32 = 7;
    let mut rig = rig();
    let (_, host) = SITE.host(SECOND_SERVER);
    rig.add_link_route((SECOND_SERVER, host), 1, None);
    let connection = rig.connect(client(4000), server(80));
    let mapping = external(&mut rig, client(4000), server(53));
    rig.set(|s| (s.routes_kernel, s.fallback_mark) = (abi::ROUTES_BEYOND, MARK));
    let syn = |to: SocketAddr| tcp(client(4001), to, "S", LOCAL_ISN, 0).frame();
    let query = udp(client(4001), server(53), b"?").frame();
    for frame in [syn(server(80)), query] {
        rig.lan_sends(&frame).marked("fallback-routes");
    }
    let words = "more routes than there is room for, and perhaps one to here: kernel NAT";
    assert_eq!(
        explained(&mut rig, CLIENT, SERVER),
        (None, words.to_owned())
    );
    // What is known goes on, what has an entry is balanced or bound as ever.
    let data = connection.say("A", LOCAL_ISN + 1, REMOTE_ISN + 1);
    rig.translates_out(&data.payload(b"on").frame());
    assert_eq!(external(&mut rig, client(4000), server(53)), mapping);
    assert_eq!(rig.open(client(4001), second_server(80)).link, 1);
    // Without that NAT it is routed as it is.
    rig.set(|s| (s.routes_kernel, s.fallback_mark) = (abi::ROUTES_BEYOND, 0));
    rig.lan_sends(&syn(server(80))).passed("routing-rules");
    rig.set(|s| s.routes_kernel = 0);
    assert_eq!(link_of_new(&mut rig, client(4001)), 0);
}
