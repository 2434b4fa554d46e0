//! A gateway that is a service, too: three web servers behind one address, asked by real clients from the internet, while LAN hosts use
//! the links.

mod stateless;

use std::fs::Permissions;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anabranch_api::{Request, Response, ServerAction, ServerStatus};
use anabranch_core::{Family, Proto};
use anabranch_testbed::netns::{Child, Exit, Namespace};
use nix::sys::signal::Signal;

use crate::rig::*;
use crate::serving::{cut_power, servers, web_server};

mod names;
mod operated;
mod probing;

anabranch_testbed::in_both_families!(
    Family:
    curl_gets_all_of_a_thousand_pages_through_a_kill_of_the_daemon,
    connections_stay_with_a_server_that_leaves_the_file,
    a_service_stands_before_the_gateway_by_clsact_too,
    an_endpoint_among_the_ports_of_a_link_is_refused,
    a_server_that_does_not_answer_gets_no_connections_until_it_does,
    clients_of_a_machine_that_died_are_told_and_no_others,
    a_client_whom_no_server_answers_takes_none_out_of_use,
    who_is_drained_keeps_its_connections_and_gets_no_more,
    dig_is_answered_by_udp_and_tcp_through_a_kill_of_the_daemon,
    servers_find_the_path_mtu_of_clients_behind_a_router,
    long_datagrams_come_and_go_in_fragments,
    a_range_of_ports_leads_to_the_same_ports_of_servers,
    servers_that_answer_clients_themselves_are_given_their_packets,
    a_server_behind_a_router_is_refused_where_it_is_to_answer_itself,
    a_client_of_udp_hears_that_no_program_has_the_port,
    all_connections_of_a_client_go_to_one_server_by_a_hash_of_its_address,
    a_slow_server_is_avoided_by_what_was_measured,
);

const SERVERS: u8 = 3;
const PAGES: usize = 1000;
/// Bytes: more than fit the first window of a connection.
const LONG_PAGE: usize = 1_000_000;

struct Site {
    rig: Rig,
    servers: Vec<Namespace>,
    _nginx: Vec<Child>,
}

impl Site {
    fn new(family: Family) -> Self {
        let mut site = Self {
            rig: Rig::of(family),
            servers: Vec::new(),
            _nginx: Vec::new(),
        };
        for number in 0..SERVERS {
            site.lay_server(number);
        }
        let [vip, via] = [
            site.vip().ip().to_string(),
            site.rig.external("wan0").to_owned(),
        ];
        let route = format!("route add {vip} via {via}");
        site.rig.internet.ip(&route).unwrap();
        site.write(SERVERS);
        site
    }

    fn family(&self) -> Family {
        self.rig.family()
    }

    /// Of the box (1) or the server (2) on the cable of a server.
    fn address(&self, number: u8, node: u8) -> IpAddr {
        match self.family() {
            Family::V4 => [10, 9, number, node].into(),
            Family::V6 => [0xfd09, number.into(), 0, 0, 0, 0, 0, node.into()].into(),
        }
    }

    fn vip(&self) -> SocketAddr {
        let address: IpAddr = match self.family() {
            Family::V4 => [203, 0, 113, 10].into(),
            Family::V6 => [0x2001, 0xdb8, 0xa, 0, 0, 0, 0, 0x10].into(),
        };
        SocketAddr::new(address, 80)
    }

    fn server(&self, number: u8) -> SocketAddr {
        SocketAddr::new(self.address(number, 2), 8080)
    }

    fn lay_server(&mut self, number: u8) {
        let server = namespace("server");
        let device = format!("srv{number}");
        self.rig.gateway.veth(&device, &server, "eth0").unwrap();
        let length = if self.family() == Family::V4 { 24 } else { 64 };
        let [near, far] = [1, 2].map(|node| self.address(number, node).to_string());
        address(&self.rig.gateway, &device, &near, length);
        address(&server, "eth0", &far, length);
        server.ip(&format!("route add default via {near}")).unwrap();
        let folder = self.rig.gateway.dir.path().join(&device);
        self._nginx
            .push(nginx(&server, &folder, self.server(number)));
        echo_server(&server, self.echo(number));
        self.servers.push(server);
    }

    fn echo(&self, number: u8) -> SocketAddr {
        SocketAddr::new(self.address(number, 2), 7)
    }

    /// Both services, of so many servers.
    fn write(&self, servers: u8) {
        self.write_with(servers, "");
    }

    /// The same with more lines for each.
    fn write_with(&self, servers: u8, more: &str) {
        let list = |of: fn(&Self, u8) -> SocketAddr| {
            let servers = (0..servers).map(|number| of(self, number).to_string());
            servers.collect::<Vec<_>>()
        };
        let devices = (0..SERVERS).map(|number| format!("srv{number}"));
        let devices: Vec<_> = ["lan0", "wan0", "wan1"]
            .map(str::to_owned)
            .into_iter()
            .chain(devices)
            .collect();
        let echo = SocketAddr::new(self.vip().ip(), 7);
        self.rig.write_config(&format!(
            "{}[service.web]\nlisten = \"{}\"\nservers = {:?}\ndevices = {devices:?}\n{more}[service.echo]\nlisten = [\"{echo}\"]\nservers = {:?}\n{more}",
            self.rig.config_text(),
            self.vip(),
            list(Self::server),
            list(Self::echo),
        ));
    }

    /// One more service.
    fn add(&self, text: &str) {
        let before = std::fs::read_to_string(self.rig.config()).unwrap();
        self.rig.write_config(&format!("{before}{text}"));
    }

    /// A connection of the internet's to the echo service.
    fn held(&self) -> TcpStream {
        let echo_at = SocketAddr::new(self.vip().ip(), 7);
        let mut stream = self.rig.internet.connect(echo_at, DEADLINE).unwrap();
        echo(&mut stream).unwrap();
        stream
    }

    fn cut_power(&self, number: u8) {
        cut_power(&self.servers[usize::from(number)]);
    }

    /// Asks for pages one by one, each by a connection of its own.
    fn curl(&self) -> Child {
        self.curl_pages(PAGES)
    }

    fn curl_pages(&self, pages: usize) -> Child {
        let mut command = Command::new("curl");
        let url = format!("http://{}/[1-{pages}]", self.vip());
        command
            .args([
                "-s",
                "-o",
                "/dev/null",
                "-w",
                "%{http_code}\n",
                "--max-time",
                "5",
            ])
            .args(["-H", "Connection: close", &url])
            .stdout(Stdio::piped());
        self.rig.internet.spawn(command).unwrap()
    }
}

/// Web server that says which server it is, and has a long page.
fn nginx(server: &Namespace, folder: &Path, at: SocketAddr) -> Child {
    std::fs::create_dir(folder).unwrap();
    std::fs::write(folder.join("long"), vec![7; LONG_PAGE]).unwrap();
    let pages = format!(
        "location / {{ return 200 '{at}'; }} location /long {{ root {}; }}",
        folder.display()
    );
    web_server(server, folder, at, &pages)
}

/// It gives its own address for any name. The check asks for one of IPv4.
fn dnsmasq(server: &Namespace, at: IpAddr) -> Child {
    let mut command = Command::new("dnsmasq");
    command
        .args(["-k", "-C", "/dev/null", "-u", "root", "--pid-file="])
        .args(["--no-resolv", "--no-hosts", "--bind-interfaces"])
        .arg(format!("--listen-address={at}"))
        .arg(format!("--address=/#/{at}"));
    if at.is_ipv6() {
        command.arg("--address=/#/192.0.2.53");
    }
    let child = server.spawn(command).unwrap();
    until("dnsmasq listens", || {
        server.connect((at, 53), DEADLINE).is_ok()
    });
    child
}

/// What a program prints that ends well.
fn said(mut program: Child) -> String {
    let mut said = String::new();
    let mut stdout = program.pipes().stdout.take().unwrap();
    std::io::Read::read_to_string(&mut stdout, &mut said).unwrap();
    assert_eq!(program.wait(DEADLINE).unwrap(), Some(Exit::Code(0)));
    said
}

fn opened(daemon: &Daemon) -> u64 {
    servers(daemon, "web")
        .iter()
        .map(|server| server.opened)
        .sum()
}

fn curl_gets_all_of_a_thousand_pages_through_a_kill_of_the_daemon(family: Family) {
    let site = Site::new(family);
    let before = site.rig.fingerprint();
    let daemon = site.rig.start_up();
    let held = Held::new(&site.rig, &daemon);
    let mut echoing = site.held();
    let curl = site.curl();
    until("curl is on its way", || opened(&daemon) > PAGES as u64 / 10);
    assert_eq!(daemon.end(Signal::SIGKILL), Exit::Signal(9));
    echo(&mut echoing).expect("a connection without a daemon");
    let daemon = site.rig.start();
    let said = said(curl);
    let right = said.lines().filter(|line| *line == "200").count();
    assert_eq!(right, PAGES, "{said}");
    echo(&mut echoing).expect("a connection that was taken over");
    held.go_on(&daemon);
    let shares: Vec<_> = servers(&daemon, "web")
        .iter()
        .map(|server| server.opened)
        .collect();
    assert_eq!(shares.iter().sum::<u64>(), PAGES as u64);
    assert!(
        shares
            .iter()
            .all(|share| share.abs_diff(PAGES as u64 / 3) <= 1),
        "in turn: {shares:?}"
    );
    until("all are over", || {
        servers(&daemon, "web")
            .iter()
            .all(|server| server.active == 0)
    });
    drop((held, echoing));
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
    assert_eq!(site.rig.fingerprint(), before);
}

fn connections_stay_with_a_server_that_leaves_the_file(family: Family) {
    let site = Site::new(family);
    let daemon = site.rig.start_up();
    let mut held: Vec<_> = (0..SERVERS).map(|_| site.held()).collect();
    site.write(SERVERS - 1);
    let reloaded = daemon.call(&Request::Reload);
    assert!(matches!(reloaded, Response::Done), "{reloaded:?}");
    held.iter_mut()
        .for_each(|stream| echo(stream).expect("a server that gets no more"));
    let more: Vec<_> = (0..2 * SERVERS).map(|_| site.held()).collect();
    let active: Vec<_> = servers(&daemon, "echo")
        .iter()
        .map(|server| server.active)
        .collect();
    assert_eq!(active, [4, 4]);
    drop(more);
    site.rig.gateway.ip("link set srv0 down").unwrap();
    until("the loss is told", || {
        servers(&daemon, "echo")[0].why.is_some()
    });
    for _ in 0..2 {
        site.held();
    }
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}

fn a_service_stands_before_the_gateway_by_clsact_too(family: Family) {
    let site = Site::new(family);
    let before = site.rig.fingerprint();
    let daemon = site
        .rig
        .gateway
        .start_under("env", &["ANABRANCH_ATTACH=clsact"]);
    all_up(&daemon);
    let held = Held::new(&site.rig, &daemon);
    let mut echoing = site.held();
    assert_eq!(daemon.end(Signal::SIGKILL), Exit::Signal(9));
    echo(&mut echoing).expect("a connection without a daemon");
    let daemon = site
        .rig
        .gateway
        .start_under("env", &["ANABRANCH_ATTACH=clsact"]);
    echo(&mut echoing).expect("a connection that was taken over");
    held.go_on(&daemon);
    drop((held, echoing));
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
    assert_eq!(site.rig.fingerprint(), before);
}

const OFTEN: &str = "check = { interval = \"300ms\" }\npolicy = \"LC\"\n";

fn is_usable(daemon: &Daemon, service: &str, server: usize) -> bool {
    servers(daemon, service)[server].usable
}

/// Which servers answer a few connections of the internet's, by the number in their address.
fn answering(site: &Site) -> Vec<SocketAddr> {
    let ask = || {
        let mut command = Command::new("curl");
        command
            .args(["-s", "--max-time", "2", &format!("http://{}/", site.vip())])
            .stdout(Stdio::piped());
        let text = said(site.rig.internet.spawn(command).unwrap());
        text.parse()
            .unwrap_or_else(|_| panic!("a page says {text:?}"))
    };
    (0..2 * SERVERS).map(|_| ask()).collect()
}

fn a_server_that_does_not_answer_gets_no_connections_until_it_does(family: Family) {
    let mut site = Site::new(family);
    site.write_with(SERVERS, OFTEN);
    let daemon = site.rig.start_up();
    until("its check passes", || {
        let status = servers(&daemon, "web").remove(0);
        status.check.is_some_and(|check| check.state == "up")
    });
    site._nginx[0].signal(Signal::SIGTERM);
    until("the server is out of use", || !is_usable(&daemon, "web", 0));
    let status = servers(&daemon, "web").remove(0);
    let why = status.why.unwrap();
    assert!(why.starts_with("a check fails: tcp:"), "{why}");
    assert!(!answering(&site).contains(&site.server(0)));
    assert!(
        is_usable(&daemon, "echo", 0),
        "the same host, and another port"
    );
    assert_eq!(daemon.end(Signal::SIGKILL), Exit::Signal(9));
    let daemon = site.rig.start();
    assert!(!is_usable(&daemon, "web", 0), "it is remembered");
    let folder = site.rig.gateway.dir.path().join("again");
    let again = nginx(&site.servers[0], &folder, site.server(0));
    site._nginx.push(again);
    until("the server is back", || is_usable(&daemon, "web", 0));
    until("it is given connections", || {
        answering(&site).contains(&site.server(0))
    });
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}

fn checks_pass(daemon: &Daemon) {
    until("the checks pass", || {
        let is_up =
            |server: &ServerStatus| server.check.as_ref().is_some_and(|one| one.state == "up");
        servers(daemon, "web").iter().all(is_up)
    });
}

fn clients_of_a_machine_that_died_are_told_and_no_others(family: Family) {
    let site = Site::new(family);
    let daemon = site.rig.start_up();
    let mut held: Vec<_> = (0..2 * SERVERS).map(|_| site.held()).collect();
    site.cut_power(1);
    let (alive, told): (Vec<_>, Vec<_>) = held.iter_mut().map(echo).partition(Result::is_ok);
    assert_eq!((alive.len(), told.len()), (4, 2));
    for error in told.into_iter().filter_map(Result::err) {
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
    }
    let active = || servers(&daemon, "echo").into_iter().map(|one| one.active);
    assert_eq!(active().collect::<Vec<_>>(), [2, 0, 2]);
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}

/// Its SYNs cast doubt on every server: nobody hears an answer to them.
fn a_client_whom_no_server_answers_takes_none_out_of_use(family: Family) {
    let site = Site::new(family);
    let daemon = site.rig.start_up();
    checks_pass(&daemon);
    let source = match family {
        Family::V4 => "ip saddr",
        Family::V6 => "ip6 saddr",
    };
    let client = site.held().local_addr().unwrap().ip();
    let drop = format!(
        "table inet shun {{\nchain input {{ type filter hook input priority 0; {source} {client} drop; }}\n}}"
    );
    for server in &site.servers {
        server.nft(&drop).unwrap();
    }
    for _ in 0..SERVERS {
        // The SYN is sent again after a second.
        let within = Duration::from_millis(1500);
        assert!(site.rig.internet.connect(site.vip(), within).is_err());
        assert!(servers(&daemon, "web").iter().all(|server| server.usable));
    }
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}

fn who_is_drained_keeps_its_connections_and_gets_no_more(family: Family) {
    let site = Site::new(family);
    site.write_with(SERVERS, OFTEN);
    let daemon = site.rig.start_up();
    let order = |daemon: &Daemon, action| {
        daemon.call(&Request::Server {
            service: "echo".to_owned(),
            server: site.echo(0),
            action,
        })
    };
    let mut held: Vec<_> = (0..SERVERS).map(|_| site.held()).collect();
    let drained = order(&daemon, ServerAction::Drain);
    assert!(matches!(drained, Response::Done), "{drained:?}");
    let more: Vec<_> = (0..SERVERS).map(|_| site.held()).collect();
    let active = |daemon: &Daemon| servers(daemon, "echo")[0].active;
    assert_eq!(active(&daemon), 1);
    site.write_with(SERVERS, OFTEN);
    assert!(matches!(daemon.call(&Request::Reload), Response::Done));
    assert_eq!(daemon.end(Signal::SIGKILL), Exit::Signal(9));
    let daemon = site.rig.start();
    assert!(servers(&daemon, "echo")[0].drained, "it is remembered");
    held.iter_mut()
        .for_each(|stream| echo(stream).expect("a connection of before"));
    drop(more);
    let up = order(&daemon, ServerAction::Up);
    assert!(matches!(up, Response::Done), "{up:?}");
    until("it is given connections", || {
        site.held();
        active(&daemon) > 1 || servers(&daemon, "echo")[0].opened > 1
    });
    let unknown = daemon.call(&Request::Server {
        service: "echo".to_owned(),
        server: site.server(0),
        action: ServerAction::Up,
    });
    assert!(
        matches!(&unknown, Response::Refused { message } if message.contains("has no server")),
        "{unknown:?}"
    );
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}

fn all_connections_of_a_client_go_to_one_server_by_a_hash_of_its_address(family: Family) {
    let site = Site::new(family);
    let secret = "0123456789abcdef0123456789abcdef";
    let by_source = format!("policy = \"source\"\nsecret = \"{secret}\"\n");
    site.write_with(SERVERS, &by_source);
    let daemon = site.rig.start_up();
    let one = answering(&site);
    assert!(one.iter().all(|server| *server == one[0]), "{one:?}");
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
    let daemon = site.rig.start_up();
    assert_eq!(
        answering(&site),
        one,
        "the same secret, and another balancer"
    );
    let drained = daemon.call(&Request::Server {
        service: "web".to_owned(),
        server: one[0],
        action: ServerAction::Drain,
    });
    assert!(matches!(drained, Response::Done), "{drained:?}");
    let other = answering(&site);
    assert!(
        other
            .iter()
            .all(|server| *server == other[0] && *server != one[0]),
        "{other:?}"
    );
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}

/// Whoever asks meanwhile gets the page that was there, or this one.
fn write_page(folder: &Path, takes: Duration) {
    let [new, page] = ["new", "cgi-bin/page"].map(|name| folder.join(name));
    let script = format!(
        "#!/bin/sh\nsleep {}\nprintf 'Content-Type: text/plain\\r\\n\\r\\n%s' page\n",
        takes.as_secs_f64()
    );
    std::fs::write(&new, script).unwrap();
    std::fs::set_permissions(&new, Permissions::from_mode(0o755)).unwrap();
    std::fs::rename(new, page).unwrap();
}

/// A web server whose page takes this long.
fn httpd(server: &Namespace, folder: &Path, at: SocketAddr, takes: Duration) -> Child {
    std::fs::create_dir(folder.join("cgi-bin")).unwrap();
    write_page(folder, takes);
    let mut command = Command::new("busybox");
    command.args(["httpd", "-f", "-p", &at.to_string(), "-h"]);
    command.arg(folder);
    let child = server.spawn(command).unwrap();
    until("busybox listens", || server.connect(at, DEADLINE).is_ok());
    child
}

fn a_slow_server_is_avoided_by_what_was_measured(family: Family) {
    const ASKED: u64 = 150;
    let site = Site::new(family);
    let at = |number: u8| SocketAddr::new(site.address(number, 2), 8081);
    let takes = [50, 0, 0].map(Duration::from_millis);
    let _httpd: Vec<Child> = (0..SERVERS)
        .zip(&site.servers)
        .zip(takes)
        .map(|((number, server), takes)| {
            let folder = site.rig.gateway.dir.path().join(format!("srv{number}"));
            httpd(server, &folder, at(number), takes)
        })
        .collect();
    let listen = SocketAddr::new(site.vip().ip(), 81);
    let servers: Vec<String> = (0..SERVERS).map(|number| at(number).to_string()).collect();
    site.add(&format!(
        "[service.pages]\nlisten = \"{listen}\"\nservers = {servers:?}\npolicy = \"EWMA\"\n"
    ));
    let daemon = site.rig.start_up();
    let mut command = Command::new("curl");
    let url = format!("http://{listen}/cgi-bin/page?[1-{ASKED}]");
    command
        .args(["-s", "-w", "\n", "--max-time", "5"])
        .args(["-H", "Connection: close", &url])
        .stdout(Stdio::piped());
    let pages = said(site.rig.internet.spawn(command).unwrap());
    assert_eq!(pages.matches("page").count() as u64, ASKED, "{pages}");
    let opened: Vec<u64> = self::servers(&daemon, "pages")
        .iter()
        .map(|one| one.opened)
        .collect();
    assert_eq!(opened.iter().sum::<u64>(), ASKED);
    assert!(opened[0] < ASKED / 6, "{opened:?}");
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}

fn dig_is_answered_by_udp_and_tcp_through_a_kill_of_the_daemon(family: Family) {
    let site = Site::new(family);
    let _dnsmasq: Vec<_> = (0..SERVERS)
        .map(|number| dnsmasq(&site.servers[usize::from(number)], site.address(number, 2)))
        .collect();
    let at = SocketAddr::new(site.vip().ip(), 53);
    let servers = (0..SERVERS).map(|number| SocketAddr::new(site.address(number, 2), 53));
    let servers: Vec<String> = servers.map(|server| server.to_string()).collect();
    site.add(&format!(
        "[service.dns]\nlisten = [\"udp:{at}\", \"{at}\"]\nservers = {servers:?}\ncheck = \"dns\"\n"
    ));
    let daemon = site.rig.start_up();
    until("its checks pass", || {
        let servers = self::servers(&daemon, "dns");
        let checks = servers.iter().filter_map(|server| server.check.as_ref());
        checks.filter(|check| check.state == "up").count() == usize::from(SERVERS)
    });
    let dig = |more: &[&str]| -> IpAddr {
        let kind = if family == Family::V4 { "A" } else { "AAAA" };
        let mut command = Command::new("dig");
        command
            .args([&format!("@{}", at.ip()), "+short", "+tries=1", "+timeout=2"])
            .args(more)
            .args(["example.test", kind])
            .stdout(Stdio::piped());
        let text = said(site.rig.internet.spawn(command).unwrap());
        text.trim().parse().unwrap_or_else(|_| panic!("{text:?}"))
    };
    let own = (0..SERVERS).map(|number| site.address(number, 2));
    let own: Vec<IpAddr> = own.collect();
    let in_turn: Vec<_> = own.iter().map(|_| dig(&["+notcp"])).collect();
    assert_eq!(in_turn, own);
    let of_tcp: Vec<_> = own.iter().map(|_| dig(&["+tcp"])).collect();
    assert_eq!(of_tcp, own);
    let from = format!("{}#4444", site.rig.plans[0].server);
    let by_one_port = ["+notcp", "-b", &from];
    let first = dig(&by_one_port);
    assert_eq!(dig(&by_one_port), first);
    assert_eq!(daemon.end(Signal::SIGKILL), Exit::Signal(9));
    assert_eq!(dig(&by_one_port), first, "a client without a daemon");
    let daemon = site.rig.start();
    assert_eq!(dig(&by_one_port), first, "a client that was taken over");
    let servers = self::servers(&daemon, "dns");
    let opened: u64 = servers.iter().map(|server| server.opened).sum();
    assert_eq!(opened, 7);
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}

/// How many bytes of the long page come.
fn long_page(site: &Site, client: &Namespace) -> usize {
    let url = format!("http://{}/long", site.vip());
    let mut command = Command::new("curl");
    command
        .args(["-s", "-o", "/dev/null", "-w", "%{size_download}"])
        .args(["--max-time", "10", &url])
        .stdout(Stdio::piped());
    said(client.spawn(command).unwrap()).parse().unwrap()
}

fn servers_find_the_path_mtu_of_clients_behind_a_router(family: Family) {
    let site = Site::new(family);
    let far = namespace("far");
    let internet = &site.rig.internet;
    internet.veth("far0", &far, "eth0").unwrap();
    let (ends, length, forwarding) = match family {
        Family::V4 => (["10.77.0.1", "10.77.0.2"], 24, "net/ipv4/ip_forward"),
        Family::V6 => (["fd77::1", "fd77::2"], 64, "net/ipv6/conf/all/forwarding"),
    };
    address(internet, "far0", ends[0], length);
    address(&far, "eth0", ends[1], length);
    internet.set_sysctl(forwarding, "1").unwrap();
    far.ip(&format!("route add default via {}", ends[0]))
        .unwrap();
    // The client's device has the usual one, so that its SYN does not tell.
    internet.ip("link set far0 mtu 1300").unwrap();
    let daemon = site.rig.start_up();
    assert_eq!(long_page(&site, &far), LONG_PAGE);
    let services = daemon.instance_status().services.unwrap();
    let mut reasons = services.reasons.iter();
    assert!(reasons.any(|reason| reason.name == "error-to-server"));
    site.rig.gateway.ip("link set srv0 mtu 1400").unwrap();
    site.rig.gateway.ip("link set wan0 mtu 1350").unwrap();
    for _ in 0..SERVERS {
        assert_eq!(long_page(&site, internet), LONG_PAGE);
    }
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}

fn long_datagrams_come_and_go_in_fragments(family: Family) {
    let site = Site::new(family);
    let at = SocketAddr::new(site.vip().ip(), 7);
    let server = SocketAddr::new(site.address(0, 2), 7);
    let echoing = site.servers[0].udp(server, DEADLINE).unwrap();
    std::thread::spawn(move || {
        let mut datagram = vec![0; 1 << 16];
        while let Ok((length, client)) = echoing.recv_from(&mut datagram) {
            let _ = echoing.send_to(&datagram[..length], client);
        }
    });
    site.add(&format!(
        "[service.udp]\nlisten = \"udp:{at}\"\nservers = [\"{server}\"]\n"
    ));
    let daemon = site.rig.start_up();
    let any = SocketAddr::new(site.rig.plans[0].address(), 0);
    let socket = site.rig.internet.udp(any, DEADLINE).unwrap();
    socket.connect(at).unwrap();
    let question: Vec<u8> = (0..20_000).map(|i| i as u8).collect();
    let mut answer = vec![0; 1 << 16];
    let mut asks = || {
        socket.send(&question).unwrap();
        let length = socket.recv(&mut answer).unwrap_or(0);
        answer[..length] == question
    };
    assert!(asks());
    // The server's fragments have the length of its device; those of IPv6 are answered, and the next answer has shorter ones.
    site.rig.gateway.ip("link set wan0 mtu 1400").unwrap();
    site.rig.internet.ip("link set wan0-far mtu 1400").unwrap();
    socket
        .set_read_timeout(Some(Duration::from_millis(500)))
        .unwrap();
    until("an answer in short fragments", asks);
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}

fn a_range_of_ports_leads_to_the_same_ports_of_servers(family: Family) {
    let site = Site::new(family);
    let at = |port| SocketAddr::new(site.vip().ip(), port);
    let server = site.address(0, 2);
    for port in [9000, 9009] {
        echo_server(&site.servers[0], SocketAddr::new(server, port));
    }
    site.add(&format!(
        "[service.range]\nlisten = \"{}-9009\"\nservers = [\"{server}\"]\n",
        at(9000)
    ));
    let daemon = site.rig.start_up();
    let connect = |port| site.rig.internet.connect(at(port), DEADLINE);
    for port in [9000, 9009] {
        echo(&mut connect(port).unwrap()).unwrap();
    }
    let refused = connect(9005).map_err(|error| error.kind());
    assert_eq!(refused.unwrap_err(), std::io::ErrorKind::ConnectionRefused);
    let drained = daemon.call(&Request::Server {
        service: "range".to_owned(),
        server: SocketAddr::new(server, 0),
        action: ServerAction::Drain,
    });
    assert!(matches!(drained, Response::Done), "{drained:?}");
    let status = servers(&daemon, "range").remove(0);
    assert_eq!((status.opened, status.drained), (3, true));
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}

/// Has each server answer at the virtual address, by a cable of its own to the internet.
fn answer_directly(site: &mut Site) {
    let vip = site.vip();
    for number in 0..SERVERS {
        let server = &site.servers[usize::from(number)];
        let device = format!("direct{number}");
        server.veth("eth1", &site.rig.internet, &device).unwrap();
        let (ends, length, host) = match site.family() {
            Family::V4 => (
                ["1", "2"].map(|end| format!("10.88.{number}.{end}")),
                24,
                32,
            ),
            Family::V6 => (
                ["1", "2"].map(|end| format!("fd88:{number}::{end}")),
                64,
                128,
            ),
        };
        address(server, "eth1", &ends[0], length);
        address(&site.rig.internet, &device, &ends[1], length);
        let route = format!("route replace default via {}", ends[1]);
        server.ip(&route).unwrap();
        address(server, "lo", &vip.ip().to_string(), host);
        for (node, devices) in [
            (server, ["all", "eth0"]),
            (&site.rig.internet, ["all", &device]),
        ] {
            for device in devices {
                node.set_sysctl(&format!("net/ipv4/conf/{device}/rp_filter"), "0")
                    .unwrap();
            }
        }
        let folder = site.rig.gateway.dir.path().join(&device);
        let nginx = nginx(server, &folder, vip);
        site._nginx.push(nginx);
    }
}

fn servers_that_answer_clients_themselves_are_given_their_packets(family: Family) {
    let mut site = Site::new(family);
    answer_directly(&mut site);
    let servers_at = (0..SERVERS).map(|number| site.address(number, 2).to_string());
    let servers_at: Vec<_> = servers_at.collect();
    let devices = ["wan0", "srv0", "srv1", "srv2"];
    site.rig.write_config(&format!(
        "{}[service.web]\nlisten = \"{}\"\nservers = {servers_at:?}\nforwarding = \"direct\"\ncheck = \"icmp\"\ndevices = {devices:?}\n",
        site.rig.config_text(),
        site.vip()
    ));
    let daemon = site.rig.start_up();
    let said = said(site.curl());
    assert_eq!(
        said.lines().filter(|line| *line == "200").count(),
        PAGES,
        "{said}"
    );
    let status = servers(&daemon, "web");
    let opened: Vec<_> = status.iter().map(|server| server.opened).collect();
    assert_eq!(opened.iter().sum::<u64>(), PAGES as u64);
    assert!(
        opened
            .iter()
            .all(|share| share.abs_diff(PAGES as u64 / 3) <= 1),
        "{opened:?}"
    );
    until("all are over", || {
        let status = servers(&daemon, "web");
        status.iter().all(|server| server.active == 0)
    });
    let services = daemon.instance_status().services.unwrap();
    let mut reasons = services.reasons.iter();
    assert!(reasons.all(|reason| reason.name != "to-client"));
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}

fn a_server_behind_a_router_is_refused_where_it_is_to_answer_itself(family: Family) {
    let site = Site::new(family);
    let far: IpAddr = match family {
        Family::V4 => [10, 99, 0, 7].into(),
        Family::V6 => [0xfd99, 0, 0, 0, 0, 0, 0, 7].into(),
    };
    let route = format!("route add {far} via {}", site.address(0, 2));
    site.rig.gateway.ip(&route).unwrap();
    site.rig.write_config(&format!(
        "{}[service.web]\nlisten = \"{}\"\nservers = [\"{far}\"]\nforwarding = \"direct\"\n",
        site.rig.config_text(),
        site.vip()
    ));
    let said = site.rig.gateway.refused();
    let expected =
        format!("service.web.servers: {far}: it is behind a router, and forwarding = \"direct\"");
    assert!(said.contains(&expected), "{said}");
}

fn a_client_of_udp_hears_that_no_program_has_the_port(family: Family) {
    let site = Site::new(family);
    let at = SocketAddr::new(site.vip().ip(), 9);
    let server = SocketAddr::new(site.address(0, 2), 9);
    site.add(&format!(
        "[service.nobody]\nlisten = \"udp:{at}\"\nservers = [\"{server}\"]\n"
    ));
    let daemon = site.rig.start_up();
    let any = SocketAddr::new(site.rig.plans[0].address(), 0);
    let socket = site.rig.internet.udp(any, DEADLINE).unwrap();
    socket.connect(at).unwrap();
    let refused = ask(&socket).map_err(|error| error.kind());
    assert_eq!(refused, Err(std::io::ErrorKind::ConnectionRefused));
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}

fn an_endpoint_among_the_ports_of_a_link_is_refused(family: Family) {
    let site = Site::new(family);
    let own = SocketAddr::new(site.rig.external("wan0").parse().unwrap(), 2000);
    let text = format!(
        "{}[service.web]\nlisten = \"{own}\"\nservers = [\"{}\"]\n",
        site.rig.config_text(),
        site.server(0)
    );
    site.rig.write_config(&text);
    let said = site.rig.gateway.refused();
    assert!(
        said.contains(&format!(
            "service.web.listen: {own} is a link's own address"
        )),
        "{said}"
    );
}
