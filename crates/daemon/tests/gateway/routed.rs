//! Links without NAT: a LAN with a network of its own, which both providers route to the gateway.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use anabranch_api::{FlowRow, LinkState, Proto, Request, Response};
use anabranch_testbed::netns::{Child, Exit};

use crate::rig::*;

const LAN: &str = "198.51.100.0/24";
const HOST: &str = "198.51.100.20";
const SERVICE: &str = "198.51.100.20:8080";
static PLAN: Plan = Plan {
    server: "192.0.2.1",
    lan: ["198.51.100.1", HOST],
    links: [["100.64.0.2", "100.64.0.1"], ["100.64.1.2", "100.64.1.1"]],
    lengths: [24, 32],
};
const LINKS: [&str; 2] = ["fiber", "lte"];
/// Of the gateway, towards each link.
const ADDRESSES: [&str; 2] = ["100.64.0.2", "100.64.1.2"];
const WEB: &str = "192.0.2.1:8000";
/// Long enough for the gateway to see a link die while it is under way.
const FILE_BYTES: usize = 16 << 20;
const PACE: &str = "4M";

const BOTH: &str = r#"
lan = ["lan0"]
policy = "rr"
link.fiber = { device = "wan0", down = "100mbit", up = "100mbit", nat = false }
link.lte = { device = "wan1", down = "100mbit", up = "100mbit", nat = false }
probe.targets = ["tcp:192.0.2.1:80"]
"#;

/// The second link translates, and is for when the first is down.
fn mixed() -> String {
    let lte = "device = \"wan1\", down = \"100mbit\", up = \"100mbit\", nat = false";
    let translating = lte.replace(", nat = false", "");
    BOTH.replace(lte, &translating) + "default = { links = [\"fiber\"], then = [\"lte\"] }\n"
}

/// A site whose network is routed to its first link, and whose gateway filters by reverse path.
fn site(config: &str) -> Rig {
    let rig = Rig::between(vec![&PLAN]);
    for namespace in [&rig.internet, &rig.gateway] {
        let strict = if std::ptr::eq(namespace, &rig.gateway) {
            "1"
        } else {
            "0"
        };
        for device in ["all", "default"] {
            let key = format!("net/ipv4/conf/{device}/rp_filter");
            namespace.set_sysctl(&key, strict).unwrap();
        }
    }
    for device in ["wan0-far", "wan1-far"] {
        let key = format!("net/ipv4/conf/{device}/rp_filter");
        rig.internet.set_sysctl(&key, "0").unwrap();
    }
    rig.route_by(0);
    rig.write_config(config);
    rig.serve();
    rig
}

impl Rig {
    /// What BGP does: the site's network is beyond this link.
    fn route_by(&self, link: usize) {
        let gateway = ADDRESSES[link];
        let route = format!("route replace {LAN} via {gateway} src 192.0.2.1");
        self.internet.ip(&route).unwrap();
    }

    /// Nothing passes the link in either direction, and the network is beyond the other.
    fn cut_and_reroute(&self, link: usize) {
        let far = format!("wan{link}-far");
        let cut = format!(
            "table ip cut {{\n\
             chain in {{ type filter hook prerouting priority raw; iifname {far} drop; }}\n\
             chain out {{ type filter hook postrouting priority raw; oifname {far} drop; }}\n\
             }}\n"
        );
        self.internet
            .exec_with_input("nft", &["-f", "-"], &cut)
            .unwrap();
        self.route_by(1 - link);
    }

    /// A web server with one file; who asked for it is in the list.
    fn serve_file(&self) -> Arc<Mutex<Vec<SocketAddr>>> {
        let listener = self.internet.run(|| TcpListener::bind(WEB)).unwrap();
        let listener = listener.unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = asked.clone();
        std::thread::spawn(move || {
            for (mut stream, from) in std::iter::from_fn(|| listener.accept().ok()) {
                seen.lock().unwrap().push(from);
                std::thread::spawn(move || {
                    let mut request = [0; 1024];
                    let _ = stream.read(&mut request);
                    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {FILE_BYTES}\r\n\r\n");
                    let _ = stream.write_all(head.as_bytes());
                    let _ = stream.write_all(&file());
                });
            }
        });
        asked
    }

    /// curl on the LAN host, at a pace; what it has so far is in the file.
    fn download(&self) -> Child {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--limit-rate", PACE])
            .args(["--max-time", "60", "--output"])
            .arg(self.downloaded())
            .arg(format!("http://{WEB}/"))
            .stdout(Stdio::null());
        self.client.spawn(curl).unwrap()
    }

    fn downloaded(&self) -> std::path::PathBuf {
        self.dir.path().join("downloaded")
    }

    fn check_downloaded(&self, mut curl: Child) {
        let exit = curl.wait(DEADLINE).unwrap().expect("curl ended in time");
        assert_eq!(exit, Exit::Code(0));
        let downloaded = std::fs::read(self.downloaded()).unwrap();
        assert!(downloaded == file(), "{} bytes", downloaded.len());
    }

    /// A connection of somebody beyond the links to the LAN.
    fn call_from_outside(&self) -> std::io::Result<TcpStream> {
        let to: SocketAddr = SERVICE.parse().unwrap();
        let connect = || TcpStream::connect_timeout(&to, DEADLINE);
        self.internet.run(connect).unwrap()
    }

    /// An echo server of the LAN host.
    fn serve_outside(&self) {
        let listener = self.client.run(|| TcpListener::bind(SERVICE)).unwrap();
        let listener = listener.unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                std::thread::spawn(move || {
                    std::io::copy(&mut stream.try_clone().unwrap(), &mut { stream })
                });
            }
        });
    }

    /// The address by which the server knows the LAN host, over a new connection.
    fn known_as(&self, asked: &Mutex<Vec<SocketAddr>>) -> Option<String> {
        let to: SocketAddr = WEB.parse().unwrap();
        let connect = || TcpStream::connect_timeout(&to, DEADLINE);
        let stream = self.client.run(connect).unwrap().ok()?;
        let port = stream.local_addr().unwrap().port();
        // Where nothing translates, it keeps its port, too.
        let seen = || asked.lock().unwrap().last().copied();
        until("the server was asked", || seen().is_some());
        let address = seen()?.ip().to_string();
        (address != HOST || seen()?.port() == port).then_some(address)
    }
}

fn file() -> Vec<u8> {
    (0..FILE_BYTES).map(|at| (at / 7) as u8).collect()
}

fn all_up(daemon: &Daemon) {
    let is_up = || {
        let links = daemon.status().links;
        links.iter().all(|link| link.state == LinkState::Up)
    };
    until("all links are up", is_up);
}

fn flows(daemon: &Daemon) -> Vec<FlowRow> {
    match daemon.call(&Request::Flows { limit: 100 }) {
        Response::Flows { flows, .. } => flows,
        other => panic!("{other:?}"),
    }
}

/// The TCP flow with this end, beyond the links or in the LAN.
fn flow(daemon: &Daemon, end: &str) -> Option<FlowRow> {
    let end: SocketAddr = end.parse().unwrap();
    let mut flows = flows(daemon).into_iter();
    flows.find(|flow| flow.proto == "tcp" && [flow.remote, flow.local].contains(&end))
}

fn packets(daemon: &Daemon, reason: &str) -> u64 {
    let reasons = daemon.status().reasons;
    let known = reasons.iter().find(|known| known.name == reason);
    known.map_or(0, |known| known.packets)
}

#[test]
fn a_download_keeps_its_source_and_a_link_that_turns_gives_new_ones_its_own() {
    let rig = site(BOTH);
    let asked = rig.serve_file();
    let daemon = rig.start();
    all_up(&daemon);
    rig.check_downloaded(rig.download());
    assert_eq!(asked.lock().unwrap()[0].ip().to_string(), HOST);

    let mut stream = rig.connect().unwrap();
    echo(&mut stream).unwrap();
    let flow = flow(&daemon, SERVER).expect("it is listed");
    assert_eq!(flow.external, flow.local, "its endpoint is its own");
    assert!(daemon.status().links.iter().all(|link| !link.nat));

    rig.write_config(&BOTH.replace("nat = false", "nat = true"));
    let Response::Done = daemon.call(&Request::Reload) else {
        panic!("refused")
    };
    all_up(&daemon);
    until("connections have an address of a link", || {
        let address = rig.known_as(&asked);
        address.is_some_and(|address| ADDRESSES.contains(&&address[..]))
    });
    let ended = echo(&mut stream).expect_err("its endpoint is nobody's any more");
    assert_eq!(ended.kind(), ErrorKind::ConnectionReset);
}

#[test]
fn a_server_of_the_lan_is_called_from_outside_by_whichever_link_its_network_is_beyond() {
    // Nothing else would loosen the filter by reverse path.
    let refusing = BOTH.to_owned() + "nat.fallback = \"refuse\"\n";
    let rig = site(&refusing);
    rig.serve_outside();
    let daemon = rig.start();
    all_up(&daemon);
    let mut call = rig.call_from_outside().unwrap();
    echo(&mut call).unwrap();
    let flow = flow(&daemon, SERVICE).expect("its answer has opened it");
    assert_eq!(flow.external, flow.local);
    // Answers go by the link of the flow, wherever its packets come from.
    for link in [1, 0] {
        rig.route_by(link);
        echo(&mut call).unwrap();
        echo(&mut rig.call_from_outside().unwrap()).unwrap();
    }
    assert!(packets(&daemon, "routed-in") > 0);
}

#[test]
fn a_download_goes_on_over_the_other_link_when_its_own_is_cut() {
    let rig = site(BOTH);
    rig.serve_file();
    let daemon = rig.start();
    all_up(&daemon);
    let curl = rig.download();
    let arrived = || std::fs::metadata(rig.downloaded()).map_or(0, |file| file.len());
    until("the download is under way", || arrived() > 1 << 20);
    let cut = usize::from(flow(&daemon, WEB).expect("a flow").link);
    rig.route_by(cut);
    rig.cut_and_reroute(cut);
    until("the link is down", || {
        daemon.link(LINKS[cut]).state == LinkState::Down
    });
    assert!(arrived() < FILE_BYTES as u64, "it was cut in time");
    until("the flow has joined the other link", || {
        flow(&daemon, WEB).is_some_and(|flow| usize::from(flow.link) == 1 - cut)
    });
    rig.check_downloaded(curl);
}

#[test]
fn packets_of_one_connection_leave_by_both_links_where_each_is_chosen_for() {
    let spread = BOTH.to_owned() + "default.granularity = \"packet\"\n";
    let rig = site(&spread);
    let asked = rig.serve_file();
    let daemon = rig.start();
    all_up(&daemon);
    rig.check_downloaded(rig.download());
    assert_eq!(asked.lock().unwrap()[0].ip().to_string(), HOST);
    let sent = LINKS.map(|link| daemon.link(link).traffic.tx_packets);
    assert!(sent.iter().all(|packets| *packets > 50), "{sent:?}");
    assert_eq!(flows(&daemon), [], "nothing is kept");
    assert!(packets(&daemon, "routed-out") >= sent.iter().sum());
    let question = Request::Explain {
        from: format!("{HOST}:4000").parse().unwrap(),
        to: WEB.parse().unwrap(),
        proto: Proto::Tcp,
    };
    let Response::Explanation(explained) = daemon.call(&question) else {
        panic!("no explanation")
    };
    assert_eq!(explained.granularity, "packet");
    assert!(explained.explanation.link.is_some(), "{explained:?}");
    // Answers came by one link alone, and none was counted.
    let is_up = |link: &&str| daemon.link(link).state != LinkState::Down;
    assert!(LINKS.iter().all(is_up));
}

#[test]
fn a_link_with_nat_steps_in_for_one_without_and_only_for_new_connections() {
    let rig = site(&mixed());
    let asked = rig.serve_file();
    let daemon = rig.start();
    all_up(&daemon);
    assert_eq!(rig.known_as(&asked).as_deref(), Some(HOST));
    let mut stream = rig.connect().unwrap();
    echo(&mut stream).unwrap();

    rig.cut_and_reroute(0);
    until("fiber is down", || {
        daemon.link("fiber").state == LinkState::Down
    });
    asked.lock().unwrap().clear();
    assert_eq!(rig.known_as(&asked).as_deref(), Some(ADDRESSES[1]));
    let ended = echo(&mut stream).expect_err("nobody knows it beyond lte");
    assert_eq!(ended.kind(), ErrorKind::ConnectionReset);

    rig.mend(&rig.families());
    rig.route_by(0);
    all_up(&daemon);
    until("new connections have their own source again", || {
        asked.lock().unwrap().clear();
        rig.known_as(&asked).as_deref() == Some(HOST)
    });
}

#[test]
fn what_is_over_its_quota_leaves_by_the_kernel_with_its_own_source() {
    let quota = BOTH.to_owned() + "limits.flows_per_host = 1\n";
    let rig = site(&quota);
    let asked = rig.serve_file();
    let daemon = rig.start();
    all_up(&daemon);
    let mut within = rig.connect().unwrap();
    echo(&mut within).unwrap();
    assert_eq!(rig.known_as(&asked).as_deref(), Some(HOST));
    let mut beyond = rig.connect().unwrap();
    echo(&mut beyond).unwrap();
    assert!(packets(&daemon, "fallback-quota") > 0);
    let rules = rig.gateway.exec("nft", &["list", "ruleset"]).unwrap();
    assert!(!rules.contains("masquerade"), "{rules}");
}
