//! What the box itself sends, by rules.

use super::*;

const BACKUP: u16 = 873;
const MAIL: u16 = 25;

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
to = ["192.0.2.0/24", "2001:db8:ffff::/48"]
ports = 25
links = ["fiber"]
"#;

/// The link's address from which the box connects, or why it cannot.
fn source(rig: &Rig, to: &str) -> Result<String, std::io::ErrorKind> {
    let patience = Duration::from_secs(1);
    let to: SocketAddr = to.parse().unwrap();
    let stream = rig.gateway.connect(to, patience);
    let stream = stream.map_err(|error| error.kind())?;
    Ok(stream.local_addr().unwrap().ip().to_string())
}

fn own_rules(rig: &Rig) -> Vec<String> {
    let version = match rig.family() {
        Family::V4 => "-4",
        Family::V6 => "-6",
    };
    let all = rig.gateway.ip(&format!("{version} rule")).unwrap();
    let own = all.lines().filter(|line| line.contains("iif lo"));
    own.map(str::to_owned).collect()
}

anabranch_testbed::in_both_families!(
    Family:
    what_a_rule_takes_leaves_by_its_link_and_moves_when_that_dies,
    a_reload_changes_the_rules_that_differ_and_no_other
);

fn what_a_rule_takes_leaves_by_its_link_and_moves_when_that_dies(family: Family) {
    let rig = Rig::of(family);
    let before = rig.fingerprint();
    rig.write_config(&format!("{}{RULES}", rig.config_text()));
    let [backup, mail, web] = [BACKUP, MAIL, 80].map(|port| rig.port(port));
    let [fiber, lte] = ["wan0", "wan1"].map(|device| rig.external(device));
    for to in [&backup, &mail] {
        let listener = rig.internet.listen(to).unwrap();
        std::thread::spawn(move || listener.incoming().for_each(drop));
    }
    let daemon = rig.start();
    let is_from = |to: &str, address: &str| source(&rig, to).as_deref() == Ok(address);
    until("rules lead", || is_from(&backup, lte));
    assert!(is_from(&mail, lte) && is_from(&web, fiber));
    println!("{}", own_rules(&rig).join("\n"));

    rig.internet.ip("link set wan1-far down").unwrap();
    until("the next tier leads", || is_from(&backup, fiber));
    // The kernel looks again with an address, of IPv6 (docs/ipv6.md).
    if family == Family::V4 {
        until("mail is refused", || {
            source(&rig, &mail) == Err(std::io::ErrorKind::HostUnreachable)
        });
    }
    assert!(is_from(&web, fiber));

    rig.internet.ip("link set wan1-far up").unwrap();
    until("mail has its link again", || is_from(&mail, lte));
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
    assert_eq!(rig.fingerprint(), before);
}

fn a_reload_changes_the_rules_that_differ_and_no_other(family: Family) {
    let rig = Rig::of(family);
    rig.write_config(&format!("{}{RULES}", rig.config_text()));
    let daemon = rig.start();
    // What is bound to an address is led past the others: of IPv6 all of it, of IPv4 the private ones.
    let bound = if family == Family::V6 { 2 } else { 4 };
    until("all rules lead", || {
        own_rules(&rig).len() == bound + 1 + 2 + 1 + 2 + 1
    });
    let before = own_rules(&rig);
    let changed = RULES.replace(
        "ports = 25\nlinks = [\"lte\"]",
        "ports = 26\nlinks = [\"lte\"]",
    );
    rig.write_config(&format!("{}{changed}", rig.config_text()));
    assert!(matches!(daemon.call(&Request::Reload), Response::Done));
    let after = own_rules(&rig);
    let differing = before.iter().filter(|rule| !after.contains(rule)).count();
    assert_eq!((after.len(), differing), (before.len(), 1), "{after:#?}");
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
    assert_eq!(own_rules(&rig), Vec::<String>::new());
}
