//! What the box itself sends, by rules.

use std::net::TcpListener;

use super::*;

const FIBER: &str = "203.0.113.2";
const LTE: &str = "198.51.100.2";
const BACKUP: &str = "192.0.2.1:873";
const MAIL: &str = "192.0.2.1:25";

const RULES: &str = r#"
[[rule]]
name = "backup"
from = "self"
protocol = "tcp"
ports = [873, "5000-5010"]
links = ["lte"]
then = ["fiber"]
[[rule]]
name = "mail"
protocol = "tcp"
ports = 25
links = ["lte"]
none = "drop"
[[rule]]
name = "rest"
from = "self"
to = "192.0.2.0/24"
ports = 25
links = ["fiber"]
"#;

/// The link's address from which the box connects, or why it cannot.
fn source(rig: &Rig, to: &str) -> Result<String, std::io::ErrorKind> {
    let patience = Duration::from_secs(1);
    let connect = || TcpStream::connect_timeout(&to.parse().unwrap(), patience);
    let stream = rig.gateway.run(connect).unwrap();
    let stream = stream.map_err(|error| error.kind())?;
    Ok(stream.local_addr().unwrap().ip().to_string())
}

fn own_rules(rig: &Rig) -> Vec<String> {
    let all = rig.gateway.ip("-4 rule").unwrap();
    let own = all.lines().filter(|line| line.contains("iif lo"));
    own.map(str::to_owned).collect()
}

#[test]
fn what_a_rule_takes_leaves_by_its_link_and_moves_when_that_dies() {
    let rig = Rig::new();
    let before = rig.fingerprint();
    rig.write_config(&format!("{CONFIG}{RULES}"));
    let listen = |to| rig.internet.run(|| TcpListener::bind(to)).unwrap().unwrap();
    let _listeners = [BACKUP, MAIL].map(listen);
    let daemon = rig.start();
    let is_from = |to, address: &str| source(&rig, to).as_deref() == Ok(address);
    until("rules lead", || is_from(BACKUP, LTE));
    assert!(is_from(MAIL, LTE) && is_from(SERVER, FIBER));
    println!("{}", own_rules(&rig).join("\n"));

    rig.internet.ip("link set wan1-far down").unwrap();
    until("the next tier leads", || is_from(BACKUP, FIBER));
    until("mail is refused", || {
        source(&rig, MAIL) == Err(std::io::ErrorKind::HostUnreachable)
    });
    assert!(is_from(SERVER, FIBER));

    rig.internet.ip("link set wan1-far up").unwrap();
    until("mail has its link again", || is_from(MAIL, LTE));
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
    assert_eq!(rig.fingerprint(), before);
}

#[test]
fn a_reload_changes_the_rules_that_differ_and_no_other() {
    let rig = Rig::new();
    rig.write_config(&format!("{CONFIG}{RULES}"));
    let daemon = rig.start();
    until("all rules lead", || {
        own_rules(&rig).len() == 1 + 2 + 1 + 2 + 1
    });
    let before = own_rules(&rig);
    let changed = RULES.replace(
        "ports = 25\nlinks = [\"lte\"]",
        "ports = 26\nlinks = [\"lte\"]",
    );
    rig.write_config(&format!("{CONFIG}{changed}"));
    assert!(matches!(daemon.call(&Request::Reload), Response::Done));
    let after = own_rules(&rig);
    let differing = before.iter().filter(|rule| !after.contains(rule)).count();
    assert_eq!((after.len(), differing), (before.len(), 1), "{after:#?}");
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
    assert_eq!(own_rules(&rig), Vec::<String>::new());
}
