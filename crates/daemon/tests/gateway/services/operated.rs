//! What operators set: limits of servers.

use super::*;

/// A server answers sooner.
const BRIEFLY: Duration = Duration::from_millis(500);

anabranch_testbed::in_both_families!(
    Family:
    a_full_server_is_said_to_be_and_gets_a_connection_when_one_is_over,
);

impl Site {
    /// The echo service, each of whose servers is written with these keys.
    fn write_echo_servers(&self, keys: &str) {
        self.write(SERVERS);
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
