use super::*;
use crate::World;

#[test]
fn the_laboratory_refuses_what_only_the_simulator_can_do() {
    let refused = |text: &str| {
        parse(text)
            .unwrap()
            .fits(World::Lab)
            .unwrap_err()
            .to_string()
    };
    assert!(parse(MINIMAL).unwrap().fits(World::Lab).is_ok());
    assert!(parse(TRUNK).unwrap().fits(World::Sim).is_ok());
    assert!(parse(TRUNK).unwrap().fits(World::Lab).is_ok());
    let lossy = "trunk = { sublinks = 2, rate = \"1mbit\", access.loss = \"1%\" }";
    assert!(
        refused(lossy).ends_with("access lines lose by overflow only; leave loss and queue out"),
        "{}",
        refused(lossy)
    );
    let fast = refused("link.a = { rate = \"300mbit\" }");
    assert_eq!(
        fast,
        "house.toml:1: link: 600 Mbit/s over all lines and directions; the laboratory carries 500 at most"
    );
    let red =
        "link.a = { rate = \"1mbit\", queue = { kind = \"red\", min = \"9kB\", max = \"20kB\" } }";
    assert!(refused(red).ends_with("the laboratory has drop-tail queues; leave queue out"));
    assert!(
        refused("nat = false\npolicies = [\"packet\"]\nlink.a.rate = \"1mbit\"")
            .contains("leave packet out")
    );
    assert!(
        refused("link.a.rate = \"1mbit\"\nfault = [{ at = \"1s\", link = \"a\", rate = \"2gbit\" }]")
            .contains("fault = [{ at = \"1s\", link = \"a\", rate = \"2gbit\" }]: 2000 Mbit/s over a line after a fault; the laboratory carries 500 at most")
    );
    assert!(
        refused("trunk = { sublinks = 2, rate = \"9gbit\" }")
            .ends_with("9000 Mbit/s over one direction; the laboratory carries 500 at most")
    );
}

#[test]
fn whom_the_gateway_asks_and_dead_servers_are_for_the_simulator_and_impairments_for_both() {
    for key in ["probes = [\"dns\"]", "dead_servers = [0]"] {
        let file = parse(&format!("{key}\n{MINIMAL}")).unwrap();
        assert!(file.fits(World::Sim).is_ok());
        let refused = file.fits(World::Lab).unwrap_err().to_string();
        assert!(refused.ends_with("run it in the simulator"), "{refused}");
    }
    let impaired = "link.a = { rate = \"1mbit\", jitter = \"1ms\", mtu = 1400, captive = \"dns\" }";
    let file = parse(impaired).unwrap();
    for world in [World::Sim, World::Lab] {
        assert!(file.fits(world).is_ok());
    }
}

#[test]
fn a_peer_is_refused_where_it_is_not_and_has_no_classes() {
    let file = parse(&format!(
        "policies = [\"RR\", \"nftables\", \"RON\"]\n{MINIMAL}"
    ))
    .unwrap();
    assert!(file.fits(World::Sim).is_ok());
    let refused = file.fits(World::Lab).unwrap_err().to_string();
    assert!(
        refused.ends_with("RON is a model; run it in the simulator"),
        "{refused}"
    );
    let real = parse(&format!("policies = [\"MPTCP\"]\n{MINIMAL}")).unwrap();
    assert!(real.fits(World::Lab).is_ok());
    let refused = real.fits(World::Sim).unwrap_err().to_string();
    assert!(
        refused.ends_with("MPTCP is real; run it in the laboratory"),
        "{refused}"
    );
    let refused = error_with("policies = [\"ECMP\"]\n[default]\nstick = true");
    assert!(
        refused.ends_with("the policy ECMP asks no rules; leave it or the classes out"),
        "{refused}"
    );
    let refused = error_with("policies = [\"BGP 5s BFD\"]");
    assert!(refused.contains("nat = false"), "{refused}");
}
