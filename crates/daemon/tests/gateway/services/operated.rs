//! What operators set: limits and weights of servers, slow start, and what becomes of connections that no server takes.

use super::*;

/// A server answers sooner.
const BRIEFLY: Duration = Duration::from_millis(500);

anabranch_testbed::in_both_families!(
    Family:
    a_full_server_is_said_to_be_and_gets_a_connection_when_one_is_over,
    a_client_whom_no_server_takes_is_refused_at_once,
    a_server_that_comes_up_gets_a_small_share_at_first,
    who_asks_is_told_which_server_a_client_gets_and_has,
);

impl Site {
    /// The echo service, each of whose servers is written with these keys.
    fn write_echo_servers(&self, keys: &str) {
        self.write(SERVERS);
        self.give_keys(keys);
    }

    /// More keys for each server of the echo service, as the file has it.
    fn give_keys(&self, keys: &str) {
        let mut text = std::fs::read_to_string(self.rig.config()).unwrap();
        for number in 0..SERVERS {
            let at = format!("\"{}\"", self.echo(number));
            text = text.replace(&at, &format!("{{ at = {at}, {keys} }}"));
        }
        self.rig.write_config(&text);
    }

    fn tries_echo(&self) -> std::io::Result<TcpStream> {
        let echo_at = SocketAddr::new(self.vip().ip(), 7);
        self.rig.internet.connect(echo_at, BRIEFLY)
    }
}

fn a_full_server_is_said_to_be_and_gets_a_connection_when_one_is_over(family: Family) {
    let site = Site::new(family);
    site.write_echo_servers("limit = 1");
    let daemon = site.rig.start_up();
    let full = |daemon: &Daemon| {
        let servers = servers(daemon, "echo");
        servers.iter().filter(|server| server.is_full()).count()
    };
    let mut held: Vec<_> = (0..SERVERS).map(|_| site.held()).collect();
    assert_eq!(full(&daemon), usize::from(SERVERS));
    assert!(site.tries_echo().is_err());
    assert_eq!(daemon.end(Signal::SIGKILL), Exit::Signal(9));
    drop(held.pop());
    until("one is taken without a daemon", || {
        held.extend(site.tries_echo());
        held.len() == usize::from(SERVERS)
    });
    assert!(site.tries_echo().is_err());
    let daemon = site.rig.start();
    site.write_echo_servers("limit = 2");
    let reloaded = daemon.call(&Request::Reload);
    assert!(matches!(reloaded, Response::Done), "{reloaded:?}");
    held.extend((0..SERVERS).map(|_| site.held()));
    assert!(site.tries_echo().is_err());
    held.iter_mut()
        .for_each(|stream| echo(stream).expect("a connection of before"));
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}

fn a_client_whom_no_server_takes_is_refused_at_once(family: Family) {
    let site = Site::new(family);
    site.write_with(SERVERS, "sorry = \"reset\"\n");
    let daemon = site.rig.start_up();
    let mut held = site.held();
    site.write_with(SERVERS, "sorry = \"reset\"\n");
    site.give_keys("weight = 0");
    let reloaded = daemon.call(&Request::Reload);
    assert!(matches!(reloaded, Response::Done), "{reloaded:?}");
    let refused = site.tries_echo().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    echo(&mut held).expect("a connection of before");
    let servers = servers(&daemon, "echo");
    assert!(servers.iter().all(|server| server.drained));
    let status = daemon.instance_status().services.expect("services");
    assert_eq!(status.troubles, Vec::<String>::new());
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}

fn a_server_that_comes_up_gets_a_small_share_at_first(family: Family) {
    let site = Site::new(family);
    site.write_with(SERVERS, "policy = \"SWRR\"\nslow_start = \"10min\"\n");
    let daemon = site.rig.start_up();
    let order = |action| {
        let done = daemon.call(&Request::Server {
            service: "echo".to_owned(),
            server: site.echo(0),
            action,
        });
        assert!(matches!(done, Response::Done), "{done:?}");
    };
    let shares = || {
        let before: Vec<_> = servers(&daemon, "echo")
            .iter()
            .map(|one| one.opened)
            .collect();
        (0..2 * (20 + 20 + 2)).for_each(|_| drop(site.held()));
        let servers = servers(&daemon, "echo");
        let after = servers.iter().zip(before);
        after
            .map(|(one, before)| one.opened - before)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        shares(),
        [28, 28, 28],
        "those of the start have their whole weight"
    );
    order(ServerAction::Drain);
    order(ServerAction::Up);
    assert_eq!(shares(), [4, 40, 40]);
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}

fn who_asks_is_told_which_server_a_client_gets_and_has(family: Family) {
    let site = Site::new(family);
    let daemon = site.rig.start_up();
    let ask = |client, called| {
        daemon.call(&Request::ExplainService {
            service: "echo".to_owned(),
            client,
            called,
            proto: Proto::Tcp,
        })
    };
    let told = |client| match ask(client, None) {
        Response::Served(served) => *served,
        other => panic!("{other:?}"),
    };
    for number in 0..SERVERS {
        let address = site.rig.plans[0].address();
        let would = told(SocketAddr::new(address, 4000));
        assert_eq!(
            (would.server, &would.why[..], would.bound),
            (Some(site.echo(number)), "its turn", false)
        );
        let held = site.held();
        let has = told(held.local_addr().unwrap());
        assert_eq!((has.server, has.bound), (Some(site.echo(number)), true));
    }
    let elsewhere = ask(site.vip(), Some(site.vip()));
    assert!(
        matches!(&elsewhere, Response::Refused { message } if message.contains("no endpoint")),
        "{elsewhere:?}"
    );
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}
