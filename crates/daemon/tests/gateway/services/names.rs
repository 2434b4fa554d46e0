//! Servers by name, as a resolver answers.

use super::*;

anabranch_testbed::in_both_families!(
    Family:
    servers_are_those_that_a_name_stands_for_and_a_resolver_that_dies_takes_none_away,
);

const NAMED: &str = "named";
const OFFERED: &str = "offered";

impl Site {
    fn resolver(&self) -> IpAddr {
        self.address(2, 2)
    }

    /// Two services, by an address of `web.test` and by SRV records.
    fn add_named(&self) {
        let [vip, resolver] = [self.vip().ip(), self.resolver()];
        for (name, port, server) in [
            (NAMED, 82, "web.test:8080"),
            (OFFERED, 83, "srv:_http._tcp.web.test"),
        ] {
            let listen = SocketAddr::new(vip, port);
            self.add(&format!(
                "[service.{name}]\nlisten = \"{listen}\"\nservers = [\"{server}\"]\nresolver = \"{resolver}\"\n"
            ));
        }
    }

    /// A resolver that knows `web.test` at these servers; the first is offered, and the others are its backups.
    fn resolve(&self, servers: &[u8]) -> Child {
        let mut command = Command::new("dnsmasq");
        let at = self.resolver();
        command
            .args(["-k", "-C", "/dev/null", "-u", "root", "--pid-file="])
            .args(["--no-resolv", "--no-hosts", "--bind-interfaces"])
            .arg(format!("--listen-address={at}"));
        for (priority, number) in servers.iter().enumerate() {
            let address = self.address(*number, 2);
            let host = format!("srv{number}.test");
            command
                .arg(format!("--host-record=web.test,{address}"))
                .arg(format!("--host-record={host},{address}"))
                .arg(format!(
                    "--srv-host=_http._tcp.web.test,{host},8080,{priority},1"
                ));
        }
        let namespace = &self.servers[2];
        let child = namespace.spawn(command).unwrap();
        until("dnsmasq listens", || {
            namespace.connect((at, 53), DEADLINE).is_ok()
        });
        child
    }

    fn page(&self, port: u16) -> String {
        let at = SocketAddr::new(self.vip().ip(), port);
        let mut command = Command::new("curl");
        command
            .args(["-s", "--max-time", "5", &format!("http://{at}/")])
            .stdout(Stdio::piped());
        said(self.rig.internet.spawn(command).unwrap())
    }
}

fn end(mut resolver: Child) {
    resolver.signal(Signal::SIGKILL);
    resolver.wait(DEADLINE).unwrap();
}

fn endpoints(daemon: &Daemon, service: &str) -> Vec<SocketAddr> {
    let servers = servers(daemon, service).into_iter();
    servers.map(|server| server.endpoint).collect()
}

fn servers_are_those_that_a_name_stands_for_and_a_resolver_that_dies_takes_none_away(
    family: Family,
) {
    let site = Site::new(family);
    let at = |numbers: &[u8]| -> Vec<_> {
        let servers = numbers.iter().map(|number| site.server(*number));
        servers.collect()
    };
    site.add_named();
    let daemon = site.rig.start_up();
    assert_eq!(endpoints(&daemon, NAMED), []);
    let resolver = site.resolve(&[1, 0]);
    until("both services have servers", || {
        endpoints(&daemon, NAMED).len() == 2 && endpoints(&daemon, OFFERED).len() == 2
    });
    assert_eq!(endpoints(&daemon, NAMED), at(&[0, 1]), "in their own order");
    let backups = servers(&daemon, OFFERED).into_iter();
    let backups: Vec<_> = backups.map(|one| (one.endpoint, one.backup)).collect();
    assert_eq!(backups, [(site.server(1), false), (site.server(0), true)]);
    until("the endpoint is there", || {
        let vip = SocketAddr::new(site.vip().ip(), 83);
        site.rig.internet.connect(vip, DEADLINE).is_ok()
    });
    assert_eq!(site.page(83), site.server(1).to_string());
    let drained = daemon.call(&Request::Server {
        service: NAMED.to_owned(),
        server: site.server(0),
        action: ServerAction::Drain,
    });
    assert!(matches!(drained, Response::Done), "{drained:?}");
    assert_eq!(site.page(82), site.server(1).to_string());
    end(resolver);
    let resolver = site.resolve(&[2]);
    until("the other server is there", || {
        endpoints(&daemon, NAMED) == at(&[2]) && endpoints(&daemon, OFFERED) == at(&[2])
    });
    for port in [82, 83] {
        assert_eq!(site.page(port), site.server(2).to_string());
    }
    end(resolver);
    until("that nothing is answered is said", || {
        let troubles = daemon.instance_status().services.unwrap().troubles;
        let mut troubles = troubles.iter();
        troubles.any(|line| line.starts_with("service named: A") && line.contains(": no answer"))
    });
    assert_eq!(site.page(82), site.server(2).to_string());
    assert_eq!(daemon.end(Signal::SIGKILL), Exit::Signal(9));
    let daemon = site.rig.start();
    assert_eq!(endpoints(&daemon, NAMED), at(&[2]), "it is remembered");
    assert_eq!(site.page(82), site.server(2).to_string());
    let _resolver = site.resolve(&[0, 2]);
    until("the first is back", || {
        endpoints(&daemon, NAMED) == at(&[0, 2])
    });
    assert!(servers(&daemon, NAMED)[0].drained, "as was ordered");
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}
