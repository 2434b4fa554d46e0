//! The server that answers its check first gets the connections.

use std::time::Duration;

use super::*;

anabranch_testbed::in_both_families!(
    Family: whoever_answers_its_check_first_gets_all_connections_until_another_does,
);

const PAGES: u64 = 5;
/// Far more than a page takes on a busy machine.
const SLOW: Duration = Duration::from_millis(300);

fn whoever_answers_its_check_first_gets_all_connections_until_another_does(family: Family) {
    let site = Site::new(family);
    let at = |number: u8| SocketAddr::new(site.address(number, 2), 8081);
    let folder = |number: u8| site.rig.gateway.dir.path().join(format!("srv{number}"));
    let takes = [SLOW, Duration::ZERO, SLOW];
    let _httpd: Vec<Child> = (0..SERVERS)
        .zip(&site.servers)
        .zip(takes)
        .map(|((number, server), takes)| httpd(server, &folder(number), at(number), takes))
        .collect();
    let listen = SocketAddr::new(site.vip().ip(), 81);
    let servers: Vec<String> = (0..SERVERS).map(|number| at(number).to_string()).collect();
    site.add(&format!(
        "[service.pages]\nlisten = \"{listen}\"\nservers = {servers:?}\npolicy = \"probing\"\ncheck = {{ ask = \"http:/cgi-bin/page\", interval = \"500ms\" }}\n"
    ));
    let daemon = site.rig.start_up();
    let all = || self::servers(&daemon, "pages");
    until("all have answered", || {
        let passes = |one: &ServerStatus| one.check.as_ref().is_some_and(|check| check.succeeds);
        all().iter().all(passes)
    });
    let opened = || -> Vec<u64> { all().iter().map(|one| one.opened).collect() };
    let ask = || {
        let url = format!("http://{listen}/cgi-bin/page?[1-{PAGES}]");
        let mut command = Command::new("curl");
        command
            .args(["-s", "--max-time", "5", "-H", "Connection: close", &url])
            .stdout(Stdio::piped());
        said(site.rig.internet.spawn(command).unwrap())
    };
    ask();
    assert_eq!(opened(), [0, PAGES, 0]);
    write_page(&folder(1), SLOW);
    write_page(&folder(2), Duration::ZERO);
    until("the other is first", || {
        ask();
        opened()[2] > 0
    });
    assert_eq!(opened()[0], 0);
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}
