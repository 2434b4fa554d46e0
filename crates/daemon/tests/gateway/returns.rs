//! UDP of the box itself leaves a metered link when a better one is back, in its pauses.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use anabranch_api::LinkState;
use anabranch_core::Family;
use anabranch_testbed::netns::{Child, Exit, Namespace};
use nix::sys::signal::Signal;

use crate::common::example;
use crate::cut_fiber;
use crate::order::{WIREGUARD_PORT, new_key, vpn_ends, warrior, wireguard};
use crate::privileges::UNIT;
use crate::rig::*;

const PATIENCE: Duration = Duration::from_millis(200);
const SERVICE_PORT: u16 = 9091;
const KEEPALIVE_S: u16 = 2;
/// Who is not moved by then is not moved.
const LONG: Duration = Duration::from_secs(7);
/// Then WireGuard forgets its source by itself: KEEPALIVE_TIMEOUT and REKEY_TIMEOUT.
const HANDSHAKE_FAILS: Duration = Duration::from_secs(15);

anabranch_testbed::in_both_families!(
    Family:
    sockets_of_the_box_leave_a_metered_link_in_a_pause_when_a_better_one_is_back,
    without_a_preference_sockets_of_the_box_stay_where_they_are,
    a_tunnel_of_the_box_follows_the_links_there_and_back,
    a_tunnel_that_was_called_by_a_link_answers_by_it,
);

fn metered(rig: &Rig) {
    let text = rig.config_text();
    let lte = "device = \"wan1\"";
    rig.write_config(&text.replace(lte, &format!("{lte}, metered = true")));
}

fn mend_fiber(rig: &Rig, daemon: &Daemon) {
    rig.mend(&rig.families());
    until("fiber is back", || {
        daemon.link("fiber").state == LinkState::Up
    });
}

impl Rig {
    /// Of the box.
    fn own_socket(&self, at: SocketAddr) -> UdpSocket {
        self.gateway.udp(at, PATIENCE).unwrap()
    }

    fn own_connected(&self) -> UdpSocket {
        let socket = self.own_socket(self.unbound());
        socket.connect(self.server()).unwrap();
        ask(&socket).unwrap();
        socket
    }

    fn own_address(&self, device: &str) -> IpAddr {
        self.external(device).parse().unwrap()
    }

    fn box_goes_by_lte(&self) {
        let lte = self.own_address("wan1");
        until("the box goes by lte", || {
            let socket = self.own_socket(self.unbound());
            socket.connect(self.server()).is_ok() && source(&socket) == lte
        });
    }
}

fn source(socket: &UdpSocket) -> IpAddr {
    socket.local_addr().unwrap().ip()
}

/// Until it is told that it was aborted, while `meanwhile` is done.
fn is_aborted(socket: &UdpSocket, within: Duration, meanwhile: impl Fn()) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < within {
        meanwhile();
        if socket.take_error().unwrap().is_some() {
            return true;
        }
        std::thread::sleep(LOOK_AGAIN);
    }
    false
}

fn sockets_of_the_box_leave_a_metered_link_in_a_pause_when_a_better_one_is_back(family: Family) {
    let rig = Rig::of(family);
    metered(&rig);
    let daemon = rig.start_up();
    cut_fiber(&rig, &daemon);
    rig.box_goes_by_lte();
    let lte = rig.own_address("wan1");
    let (idle, busy) = (rig.own_connected(), rig.own_connected());
    let bound = rig.own_socket(SocketAddr::new(lte, 0));
    bound.send_to(b"hello", rig.server()).unwrap();
    bound.recv(&mut [0; 16]).unwrap();
    // A service is asked by lte, and answers by it.
    let service = rig.own_socket(SocketAddr::new(rig.unbound().ip(), SERVICE_PORT));
    let asking = rig.internet.udp(rig.unbound(), PATIENCE).unwrap();
    asking.connect((lte, SERVICE_PORT)).unwrap();

    mend_fiber(&rig, &daemon);
    let keep_busy = || ask(&busy).expect("who has no pause is left alone");
    assert!(is_aborted(&idle, DEADLINE, keep_busy));
    assert_eq!(source(&rig.own_connected()), rig.own_address("wan0"));
    assert!(
        is_aborted(&busy, DEADLINE, || ()),
        "in a pause it goes as well"
    );

    bound.send_to(b"hello", rig.server()).unwrap();
    bound
        .recv(&mut [0; 16])
        .expect("what is bound to an address stays");
    let again = rig.own_socket(SocketAddr::new(lte, 0));
    again.connect(rig.server()).unwrap();
    ask(&again).unwrap();
    asking.send(b"hello").unwrap();
    let (_, from) = service.recv_from(&mut [0; 16]).unwrap();
    service.send_to(b"hello", from).unwrap();
    asking
        .recv(&mut [0; 16])
        .expect("by the link that was asked");
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}

fn without_a_preference_sockets_of_the_box_stay_where_they_are(family: Family) {
    let rig = Rig::of(family);
    let daemon = rig.start_up();
    cut_fiber(&rig, &daemon);
    rig.box_goes_by_lte();
    let socket = rig.own_connected();
    mend_fiber(&rig, &daemon);
    assert!(!is_aborted(&socket, LONG, || ()));
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}

/// WireGuard on the box and with somebody beyond the internet. It keeps the address that it was spoken to at.
struct Tunnel {
    own: Child,
    far: Child,
    far_end: Namespace,
}

impl Tunnel {
    /// One end calls the other, the box the far end or the far end an address of the box.
    fn of(rig: &Rig, called: Option<IpAddr>) -> Self {
        let (far_end, at_home) = warrior(rig);
        let [(secret, public), (far_secret, far_public)] = [new_key(rig), new_key(rig)];
        let ([own, far], length) = vpn_ends(rig.family());
        let calls = |address: IpAddr| {
            let endpoint = SocketAddr::new(address, WIREGUARD_PORT);
            format!("Endpoint = {endpoint}\nPersistentKeepalive = {KEEPALIVE_S}\n")
        };
        let config = |secret, peer, allowed, calls: String| {
            format!(
                "[Interface]\nPrivateKey = {secret}\nListenPort = {WIREGUARD_PORT}\n\
                 [Peer]\nPublicKey = {peer}\nAllowedIPs = {allowed}\n{calls}"
            )
        };
        let own_calls = match called {
            None => calls(at_home.parse().unwrap()),
            Some(_) => String::new(),
        };
        let far_calls = called.map(calls).unwrap_or_default();
        let far_config = config(far_secret, public, own, far_calls);
        let own_config = config(secret, far_public, far, own_calls);
        Self {
            far: wireguard(&far_end, (far, length), &far_config),
            own: wireguard(&rig.gateway, (own, length), &own_config),
            far_end,
        }
    }

    /// The daemon as the unit confines it, where it finds the socket of WireGuard.
    fn start(&self, rig: &Rig) -> Daemon {
        let pid = self.own.id().to_string();
        let (confined, dir) = (example("confined"), rig.dir.path());
        let [confined, dir] = [&confined, dir].map(|path| path.to_str().unwrap());
        rig.start_under(
            "nsenter",
            &["--target", &pid, "--mount", confined, UNIT, dir],
        )
    }

    fn endpoint(at: &Namespace, end: &Child) -> Option<IpAddr> {
        let pid = end.id().to_string();
        let enter = ["--target", &pid, "--mount"];
        let show = ["wg", "show", "wg0", "endpoints"];
        let told = at.exec("nsenter", &[&enter[..], &show].concat()).unwrap();
        let endpoint = told.split_whitespace().nth(1)?.parse::<SocketAddr>();
        Some(endpoint.ok()?.ip())
    }

    /// Where the far end has it from.
    fn comes_from(&self, address: IpAddr) -> bool {
        Self::endpoint(&self.far_end, &self.far) == Some(address)
    }
}

fn a_tunnel_of_the_box_follows_the_links_there_and_back(family: Family) {
    let rig = Rig::of(family);
    metered(&rig);
    let tunnel = Tunnel::of(&rig, None);
    let daemon = tunnel.start(&rig);
    all_up(&daemon);
    let [fiber, lte] = ["wan0", "wan1"].map(|device| rig.own_address(device));
    until("the tunnel is there", || tunnel.comes_from(fiber));

    cut_fiber(&rig, &daemon);
    let left = until("the tunnel goes by lte", || tunnel.comes_from(lte));
    mend_fiber(&rig, &daemon);
    let back = until("the tunnel is back", || tunnel.comes_from(fiber));
    println!("left after {left:?}, back after {back:?}");
    assert!(left < HANDSHAKE_FAILS, "sooner than by itself: {left:?}");
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}

/// Nobody but who was called is known to the network address translation in front of the caller.
fn a_tunnel_that_was_called_by_a_link_answers_by_it(family: Family) {
    let rig = Rig::of(family);
    metered(&rig);
    let lte = rig.own_address("wan1");
    let tunnel = Tunnel::of(&rig, Some(lte));
    let daemon = tunnel.start(&rig);
    all_up(&daemon);
    cut_fiber(&rig, &daemon);
    until("it is there", || {
        Tunnel::endpoint(&rig.gateway, &tunnel.own).is_some()
    });
    mend_fiber(&rig, &daemon);
    let begun = Instant::now();
    while begun.elapsed() < LONG {
        assert!(tunnel.comes_from(lte));
        std::thread::sleep(PATIENCE);
    }
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}
