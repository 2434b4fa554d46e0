//! Links without NAT: a LAN with a network of its own, which both providers route to the gateway.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use anabranch_api::{FlowRow, LinkState, Proto, Request, Response};
use anabranch_core::Family;
use anabranch_testbed::netns::{Child, Exit};

use crate::rig::*;

static PLANS: [Plan; 2] = [
    Plan {
        server: "192.0.2.1",
        lan: ["198.51.100.1", "198.51.100.20"],
        links: [["100.64.0.2", "100.64.0.1"], ["100.64.1.2", "100.64.1.1"]],
        lengths: [24, 32],
    },
    Plan {
        server: "2001:db8:ffff::1",
        lan: ["2001:db8:51::1", "2001:db8:51::20"],
        links: [
            ["2001:db8:a::2", "2001:db8:a::1"],
            ["2001:db8:b::2", "2001:db8:b::1"],
        ],
        lengths: [64, 128],
    },
];
const LINKS: [&str; 2] = ["fiber", "lte"];
const WEB_PORT: u16 = 8000;
/// Long enough for the gateway to see a link die while it is under way.
const FILE_BYTES: usize = 16 << 20;
const PACE: &str = "4M";

/// Neither link translates.
fn both(rig: &Rig) -> String {
    let text = rig.config_text();
    text.replace("up = \"100mbit\"", "up = \"100mbit\", nat = false")
}

/// The second link translates, and is for when the first is down.
fn mixed(rig: &Rig) -> String {
    let lte = "device = \"wan1\", down = \"100mbit\", up = \"100mbit\", nat = false";
    let translating = lte.replace(", nat = false", "");
    both(rig).replace(lte, &translating) + "default = { links = [\"fiber\"], then = [\"lte\"] }\n"
}

/// A site whose network is routed to its first link, and whose gateway filters by reverse path.
fn site(family: Family, config: impl Fn(&Rig) -> String) -> Rig {
    let rig = Rig::between(vec![&PLANS[family.index()]]);
    for namespace in [&rig.internet, &rig.gateway] {
        let strict = if std::ptr::eq(namespace, &*rig.gateway) {
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
    rig.write_config(&config(&rig));
    rig.serve();
    rig
}

impl Rig {
    /// What BGP does: the site's network is beyond this link.
    fn route_by(&self, link: usize) {
        let network = match self.family() {
            Family::V4 => "198.51.100.0/24",
            Family::V6 => "2001:db8:51::/64",
        };
        let (via, server) = (self.addresses()[link], self.plan().server);
        let route = format!("route replace {network} via {via} src {server}");
        self.internet.ip(&route).unwrap();
    }

    /// Nothing passes the link in either direction, and the network is beyond the other.
    fn cut_and_reroute(&self, link: usize) {
        let far = format!("wan{link}-far");
        let cut = format!(
            "table {} cut {{\n\
             chain in {{ type filter hook prerouting priority raw; iifname {far} drop; }}\n\
             chain out {{ type filter hook postrouting priority raw; oifname {far} drop; }}\n\
             }}\n",
            words(self.family())
        );
        self.internet.nft(&cut).unwrap();
        self.route_by(1 - link);
    }

    /// A web server with one file; who asked for it is in the list.
    fn serve_file(&self) -> Arc<Mutex<Vec<SocketAddr>>> {
        let web = self.port(WEB_PORT);
        let listener = self.internet.listen(web).unwrap();
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
            .arg(format!("http://{}/", self.port(WEB_PORT)))
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

    /// Of the LAN.
    fn host(&self) -> &'static str {
        self.plan().lan[1]
    }

    /// Where it is called.
    fn service(&self) -> SocketAddr {
        SocketAddr::new(self.host().parse().unwrap(), 8080)
    }

    /// Of the gateway, towards each link.
    fn addresses(&self) -> [&'static str; 2] {
        ["wan0", "wan1"].map(|device| self.external(device))
    }

    /// A connection of somebody beyond the links to the LAN.
    fn call_from_outside(&self) -> std::io::Result<TcpStream> {
        self.internet.connect(self.service(), DEADLINE)
    }

    /// An echo server of the LAN host.
    fn serve_outside(&self) {
        let service = self.service();
        let listener = self.client.listen(service).unwrap();
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
        let to: SocketAddr = self.port(WEB_PORT).parse().unwrap();
        let stream = self.client.connect(to, DEADLINE).ok()?;
        let port = stream.local_addr().unwrap().port();
        // Where nothing translates, it keeps its port, too.
        let seen = || asked.lock().unwrap().last().copied();
        until("the server was asked", || seen().is_some());
        let address = seen()?.ip().to_string();
        (address != self.host() || seen()?.port() == port).then_some(address)
    }
}

fn file() -> Vec<u8> {
    (0..FILE_BYTES).map(|at| (at / 7) as u8).collect()
}

/// The TCP flow with this end, beyond the links or in the LAN.
fn flow(daemon: &Daemon, end: &str) -> Option<FlowRow> {
    let end: SocketAddr = end.parse().unwrap();
    let mut flows = flows(daemon).into_iter();
    flows.find(|flow| flow.proto == "tcp" && [flow.remote, flow.local].contains(&end))
}

anabranch_testbed::in_both_families!(
    Family:
    a_download_keeps_its_source_and_a_link_that_turns_gives_new_ones_its_own,
    a_server_of_the_lan_is_called_from_outside_by_whichever_link_its_network_is_beyond,
    a_download_goes_on_over_the_other_link_when_its_own_is_cut,
    packets_of_one_connection_leave_by_both_links_where_each_is_chosen_for,
    a_link_with_nat_steps_in_for_one_without_and_only_for_new_connections,
    what_is_over_its_quota_leaves_by_the_kernel_with_its_own_source,
);

fn a_download_keeps_its_source_and_a_link_that_turns_gives_new_ones_its_own(family: Family) {
    let rig = site(family, both);
    let asked = rig.serve_file();
    let daemon = rig.start_up();
    rig.check_downloaded(rig.download());
    assert_eq!(asked.lock().unwrap()[0].ip().to_string(), rig.host());

    let mut stream = rig.connect().unwrap();
    echo(&mut stream).unwrap();
    let flow = flow(&daemon, &rig.server()).expect("it is listed");
    assert_eq!(flow.external, flow.local, "its endpoint is its own");
    assert!(daemon.status().links.iter().all(|link| !link.nat));

    rig.write_config(&both(&rig).replace("nat = false", "nat = true"));
    let Response::Done = daemon.call(&Request::Reload) else {
        panic!("refused")
    };
    all_up(&daemon);
    until("connections have an address of a link", || {
        let address = rig.known_as(&asked);
        address.is_some_and(|address| rig.addresses().contains(&&*address))
    });
    let ended = echo(&mut stream).expect_err("its endpoint is nobody's any more");
    assert_eq!(ended.kind(), ErrorKind::ConnectionReset);
}

fn a_server_of_the_lan_is_called_from_outside_by_whichever_link_its_network_is_beyond(
    family: Family,
) {
    // Nothing else would loosen the filter by reverse path.
    let rig = site(family, |rig| both(rig) + "nat.fallback = \"refuse\"\n");
    rig.serve_outside();
    let daemon = rig.start_up();
    let mut call = rig.call_from_outside().unwrap();
    echo(&mut call).unwrap();
    let flow = flow(&daemon, &rig.service().to_string()).expect("its answer has opened it");
    assert_eq!(flow.external, flow.local);
    // Answers go by the link of the flow, wherever its packets come from.
    for link in [1, 0] {
        rig.route_by(link);
        echo(&mut call).unwrap();
        echo(&mut rig.call_from_outside().unwrap()).unwrap();
    }
    assert!(packets(&daemon, "routed-in") > 0);
}

fn a_download_goes_on_over_the_other_link_when_its_own_is_cut(family: Family) {
    let rig = site(family, both);
    rig.serve_file();
    let daemon = rig.start_up();
    let curl = rig.download();
    let arrived = || std::fs::metadata(rig.downloaded()).map_or(0, |file| file.len());
    until("the download is under way", || arrived() > 1 << 20);
    let cut = usize::from(flow(&daemon, &rig.port(WEB_PORT)).expect("a flow").link);
    rig.route_by(cut);
    rig.cut_and_reroute(cut);
    until("the link is down", || {
        daemon.link(LINKS[cut]).state == LinkState::Down
    });
    assert!(arrived() < FILE_BYTES as u64, "it was cut in time");
    until("the flow has joined the other link", || {
        flow(&daemon, &rig.port(WEB_PORT)).is_some_and(|flow| usize::from(flow.link) == 1 - cut)
    });
    rig.check_downloaded(curl);
}

fn packets_of_one_connection_leave_by_both_links_where_each_is_chosen_for(family: Family) {
    let rig = site(family, |rig| {
        both(rig) + "default.granularity = \"packet\"\n"
    });
    let asked = rig.serve_file();
    let daemon = rig.start_up();
    rig.check_downloaded(rig.download());
    assert_eq!(asked.lock().unwrap()[0].ip().to_string(), rig.host());
    let sent = LINKS.map(|link| daemon.link(link).traffic.tx_packets);
    // How many acknowledgements a download takes is the receiver's to say.
    let all: u64 = sent.iter().sum();
    assert!(sent.iter().all(|packets| *packets * 4 > all), "{sent:?}");
    assert!(all > 10, "{sent:?}");
    assert_eq!(flows(&daemon), [], "nothing is kept");
    assert!(packets(&daemon, "routed-out") >= all);
    let question = Request::Explain {
        from: SocketAddr::new(rig.host().parse().unwrap(), 4000),
        to: rig.port(WEB_PORT).parse().unwrap(),
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

fn a_link_with_nat_steps_in_for_one_without_and_only_for_new_connections(family: Family) {
    let rig = site(family, mixed);
    let asked = rig.serve_file();
    let daemon = rig.start_up();
    assert_eq!(rig.known_as(&asked).as_deref(), Some(rig.host()));
    let mut stream = rig.connect().unwrap();
    echo(&mut stream).unwrap();

    rig.cut_and_reroute(0);
    until("fiber is down", || {
        daemon.link("fiber").state == LinkState::Down
    });
    asked.lock().unwrap().clear();
    assert_eq!(rig.known_as(&asked).as_deref(), Some(rig.addresses()[1]));
    let ended = echo(&mut stream).expect_err("nobody knows it beyond lte");
    assert_eq!(ended.kind(), ErrorKind::ConnectionReset);

    rig.mend(&rig.families());
    rig.route_by(0);
    all_up(&daemon);
    until("new connections have their own source again", || {
        asked.lock().unwrap().clear();
        rig.known_as(&asked).as_deref() == Some(rig.host())
    });
}

fn what_is_over_its_quota_leaves_by_the_kernel_with_its_own_source(family: Family) {
    let rig = site(family, |rig| both(rig) + "limits.flows_per_host = 1\n");
    let asked = rig.serve_file();
    let daemon = rig.start_up();
    let mut within = rig.connect().unwrap();
    echo(&mut within).unwrap();
    assert_eq!(rig.known_as(&asked).as_deref(), Some(rig.host()));
    let mut beyond = rig.connect().unwrap();
    echo(&mut beyond).unwrap();
    assert!(packets(&daemon, "fallback-quota") > 0);
    let rules = rig.gateway.exec("nft", &["list", "ruleset"]).unwrap();
    assert!(!rules.contains("masquerade"), "{rules}");
}
