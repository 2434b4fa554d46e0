//! The daemon's view of a real kernel, and what it changes there, in network namespaces.

use std::path::Path;
use std::time::Duration;

use anabranch_api::Paths;
use anabranch_core::{ClassId, Family, LinkId};
use anabranch_daemon::Slots;
use anabranch_daemon::config::Config;
use anabranch_daemon::host::ids::Ids;
use anabranch_daemon::host::{Host, RuleWay, Way, Ways};
use anabranch_daemon::observe::{self, Desired, Monitor, Netlink, Snapshot};
use anabranch_policy::PerFamily;
use anabranch_testbed::netns::Namespace;

const DEADLINE: Duration = Duration::from_secs(10);
const CONFIG: &str = r#"
lan = ["lan0"]
link.fiber = { device = "wan0", down = "10mbit", up = "10mbit" }
link.lte = { device = "wan1", down = "10mbit", up = "10mbit" }
"#;

/// A box with one LAN and two links; the other ends of the cables are in `outside`.
struct Rig {
    gateway: Namespace,
    outside: Namespace,
    dir: tempfile::TempDir,
}

impl Rig {
    fn new() -> Self {
        let rig = Self {
            gateway: Namespace::create("gw").unwrap(),
            outside: Namespace::create("out").unwrap(),
            dir: tempfile::tempdir().unwrap(),
        };
        for (device, address) in [
            ("lan0", "192.168.1.1/24"),
            ("wan0", "203.0.113.2/24"),
            ("wan1", "198.51.100.2/24"),
        ] {
            rig.cable(device, address);
        }
        rig.ip("route add default via 203.0.113.1 metric 100");
        rig.ip("route add default via 198.51.100.1 metric 200");
        rig.ip("route add 192.0.2.0/24 via 203.0.113.1");
        rig
    }

    fn cable(&self, device: &str, address: &str) {
        self.gateway
            .veth(device, &self.outside, &format!("{device}-far"))
            .unwrap();
        self.ip(&format!("addr add {address} dev {device}"));
        self.ip(&format!("link set {device} up"));
        self.outside
            .ip(&format!("link set {device}-far up"))
            .unwrap();
    }

    fn ip(&self, line: &str) -> String {
        self.gateway.ip(line).unwrap()
    }

    /// Runs `work` in the gateway's namespace, with a runtime.
    fn run<T: Send>(&self, work: impl AsyncFnOnce() -> T + Send) -> T {
        let on_runtime = || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                tokio::time::timeout(DEADLINE, work())
                    .await
                    .expect("in time")
            })
        };
        self.gateway.run(on_runtime).unwrap()
    }

    /// The device and gateway the kernel would send by.
    fn way(&self, question: &str) -> String {
        let answer = self.ip(&format!("route get {question}"));
        let words: Vec<&str> = answer.split_whitespace().collect();
        let after = |key| {
            words
                .iter()
                .position(|word| *word == key)
                .map(|at| words[at + 1])
        };
        format!("{} {}", after("dev").unwrap(), after("via").unwrap_or("-"))
    }

    /// Everything of the host that the daemon may change.
    fn fingerprint(&self) -> String {
        let sysctls: Vec<String> = ["ip_forward", "conf/wan0/rp_filter", "conf/wan1/rp_filter"]
            .iter()
            .map(|key| self.gateway.sysctl(&format!("net/ipv4/{key}")).unwrap())
            .collect();
        let nft = self.gateway.exec("nft", &["list", "ruleset"]).unwrap();
        format!(
            "{}{}{sysctls:?}{nft}",
            self.ip("rule list"),
            self.ip("-4 route show table all")
        )
    }
}

fn parse(text: &str) -> Config {
    Config::parse(Path::new("anabranch.toml"), text).unwrap()
}

fn config() -> Config {
    parse(CONFIG)
}

fn slots(config: &Config) -> Slots {
    Slots::default().assign(config.links.iter().map(|link| link.name.as_str()))
}

fn desired(host: &Snapshot) -> Desired {
    let config = config();
    Desired::derive(&config, &slots(&config), host)
}

/// Without rules.
fn by(first_usable: Option<LinkId>) -> Ways {
    Ways {
        first_usable: PerFamily::only(Family::V4, first_usable),
        alive: PerFamily::default(),
        rules: Vec::new(),
    }
}

/// Looks again at every change until `wanted` holds.
async fn until(
    netlink: &Netlink,
    monitor: &mut Monitor,
    wanted: impl Fn(&Snapshot) -> bool,
) -> Snapshot {
    loop {
        let snapshot = netlink.snapshot().await.unwrap();
        if wanted(&snapshot) {
            return snapshot;
        }
        monitor.changed().await.unwrap();
    }
}

#[test]
fn the_host_is_seen_as_it_is_and_followed_as_it_changes() {
    let rig = Rig::new();
    let external = |snapshot: &Snapshot, link| {
        let desired = desired(snapshot);
        desired.links[&LinkId(link)].path(Family::V4).cloned()
    };
    rig.run(async || {
        let netlink = Netlink::connect().unwrap();
        let mut monitor = Monitor::connect(&netlink).unwrap();
        let running = |snapshot: &Snapshot| snapshot.devices.values().all(|device| device.running);
        let first = until(&netlink, &mut monitor, running).await;
        observe::check(&config(), &first).unwrap();
        let fiber = external(&first, 0).unwrap();
        assert_eq!(fiber.external.to_string(), "203.0.113.2");
        assert_eq!(fiber.gateway.unwrap().to_string(), "203.0.113.1");
        assert_eq!(
            external(&first, 1).unwrap().gateway.unwrap().to_string(),
            "198.51.100.1"
        );
        assert!(!first.devices["lan0"].layer3);

        rig.ip("addr del 203.0.113.2/24 dev wan0");
        rig.ip("addr add 203.0.113.50/24 dev wan0");
        rig.ip("route add default via 203.0.113.254 metric 100");
        let renewed = until(&netlink, &mut monitor, |snapshot| {
            external(snapshot, 0)
                .is_some_and(|path| path.gateway.unwrap().to_string() == "203.0.113.254")
        })
        .await;
        assert_eq!(
            external(&renewed, 0).unwrap().external.to_string(),
            "203.0.113.50"
        );

        rig.ip("link del wan1");
        until(&netlink, &mut monitor, |snapshot| {
            external(snapshot, 1).is_none()
        })
        .await;
        rig.cable("wan1", "198.51.100.2/24");
        rig.ip("route add default via 198.51.100.1 metric 200");
        let anew = until(&netlink, &mut monitor, |snapshot| {
            external(snapshot, 1).is_some()
        })
        .await;
        assert_ne!(
            external(&anew, 1).unwrap().ifindex,
            external(&first, 1).unwrap().ifindex
        );
    });
}

#[test]
fn the_hosts_own_packets_leave_by_their_link_and_everything_is_put_back() {
    let rig = Rig::new();
    rig.gateway
        .set_sysctl("net/ipv4/conf/wan0/rp_filter", "1")
        .unwrap();
    let before = rig.fingerprint();
    let dir = tempfile::tempdir().unwrap();
    let paths = Paths::under(dir.path(), dir.path(), "host-test").unwrap();
    let apply = async |netlink: &Netlink, first_usable| {
        let mut host = Host::adopt(&paths, Ids::of(paths.instance()))
            .await
            .unwrap();
        host.set_slots(slots(&config())).unwrap();
        let mut monitor = Monitor::connect(netlink).unwrap();
        let running = |snapshot: &Snapshot| snapshot.devices.values().all(|device| device.running);
        let snapshot = until(netlink, &mut monitor, running).await;
        let failed = host
            .apply(netlink, &config(), &desired(&snapshot), &by(first_usable))
            .await;
        assert!(failed.is_empty(), "{failed:?}");
        host
    };
    rig.run(async || {
        let netlink = Netlink::connect().unwrap();
        let host = apply(&netlink, Some(LinkId(1))).await;
        assert_eq!(
            rig.way("1.1.1.1"),
            "wan1 198.51.100.1",
            "unbound: the first usable link, not the main table's default"
        );
        assert_eq!(rig.way("192.0.2.9"), "wan0 203.0.113.1", "a specific route");
        assert_eq!(rig.way("192.168.1.77"), "lan0 -", "the LAN");
        assert_eq!(
            rig.way("1.1.1.1 from 192.168.1.1"),
            "wan0 203.0.113.1",
            "bound to an address of no link: as without us"
        );
        assert_eq!(rig.way("1.1.1.1 from 198.51.100.2"), "wan1 198.51.100.1");
        assert_eq!(rig.way("1.1.1.1 from 203.0.113.2"), "wan0 203.0.113.1");
        assert_eq!(rig.way("1.1.1.1 oif wan1"), "wan1 198.51.100.1");
        let mark = format!("1.1.1.1 mark {}", host.fallback_mark(&config()));
        assert_eq!(rig.way(&mark), "wan1 198.51.100.1", "the fallback link");
        assert_eq!(
            rig.way("192.0.2.9 from 198.51.100.2"),
            "wan0 203.0.113.1",
            "a specific route wins"
        );
        assert_eq!(rig.gateway.sysctl("net/ipv4/ip_forward").unwrap(), "1");
        assert_eq!(
            rig.gateway.sysctl("net/ipv4/conf/wan0/rp_filter").unwrap(),
            "2"
        );
        let ours = rig.fingerprint();
        assert!(ours.contains("masquerade"), "{ours}");

        drop(host);
        let host = apply(&netlink, Some(LinkId(1))).await;
        assert_eq!(rig.fingerprint(), ours, "a restart changes nothing");

        rig.ip("route replace default via 198.51.100.9 metric 200");
        drop(host);
        let host = apply(&netlink, Some(LinkId(0))).await;
        assert_eq!(
            rig.way("1.1.1.1 from 198.51.100.2"),
            "wan1 198.51.100.9",
            "a moved gateway is followed"
        );
        assert_eq!(
            rig.way(&mark),
            "wan0 203.0.113.1",
            "and so is the fallback link"
        );
        assert_eq!(rig.way("1.1.1.1"), "wan0 203.0.113.1", "and the host's own");
        rig.ip("route add default dev lan0 table 51820");
        rig.ip("rule add not fwmark 0xca6c table 51820");
        assert_eq!(rig.way("1.1.1.1"), "lan0 -", "an administrator's VPN wins");
        assert_eq!(rig.way("1.1.1.1 mark 0xca6c"), "wan0 203.0.113.1");
        rig.ip("rule del table 51820");
        rig.ip("route flush table 51820");

        host.restore(&netlink).await.unwrap();
        rig.ip("route replace default via 198.51.100.1 metric 200");
        assert_eq!(rig.fingerprint(), before);
        assert!(!paths.state_of("gateway").exists());
    });
}

/// What an instance makes of the rig's host.
async fn apply(rig: &Rig, instance: &str, first_usable: Option<LinkId>) -> (Host, Netlink) {
    let paths = Paths::under(rig.dir.path(), rig.dir.path(), instance).unwrap();
    let netlink = Netlink::connect().unwrap();
    let mut host = Host::adopt(&paths, Ids::of(paths.instance()))
        .await
        .unwrap();
    host.set_slots(slots(&config())).unwrap();
    let seen = desired(&netlink.snapshot().await.unwrap());
    let ways = by(first_usable);
    let failed = host.apply(&netlink, &config(), &seen, &ways).await;
    assert!(failed.is_empty(), "{failed:?}");
    (host, netlink)
}

#[test]
fn next_hops_of_links_keep_their_places_among_the_neighbours_and_give_them_back() {
    const OTHERS: &str = "198.51.100.1 dev wan1 lladdr 02:00:00:00:00:77 PERMANENT";
    let rig = Rig::new();
    rig.ip("addr add 2001:db8:a::2/64 dev wan0 nodad");
    rig.ip("-6 route add default via 2001:db8:a::1");
    rig.ip("neigh add 198.51.100.1 dev wan1 lladdr 02:00:00:00:00:77");
    rig.outside
        .ip("addr add 203.0.113.1/24 dev wan0-far")
        .unwrap();
    let card = |address: &str| {
        rig.outside.ip("link set wan0-far down").unwrap();
        rig.outside
            .ip(&format!("link set wan0-far address {address}"))
            .unwrap();
        rig.outside.ip("link set wan0-far up").unwrap();
        rig.outside
            .ip("addr replace 2001:db8:a::1/64 dev wan0-far nodad")
            .unwrap();
    };
    let kept = |address: &str| {
        let mine = rig.ip(&format!("-details neigh show {address} dev wan0"));
        mine.contains("managed extern_learn").then_some(mine)
    };
    let both_are_at = |address: &str| {
        let begun = std::time::Instant::now();
        let is_at = |hop: &&str| kept(hop).is_some_and(|entry| entry.contains(address));
        while !["203.0.113.1", "2001:db8:a::1"].iter().all(is_at) {
            let neighbours = rig.ip("-details neigh");
            assert!(begun.elapsed() < DEADLINE, "{address}: {neighbours}");
        }
    };
    card("02:00:00:00:00:01");
    rig.run(async || {
        let (mut host, netlink) = apply(&rig, "next-hops", None).await;
        both_are_at("02:00:00:00:00:01");
        assert!(!host.has_other_settings());

        card("02:00:00:00:00:02");
        assert!(host.has_other_settings(), "another modem may be there now");
        let again = async |host: &mut Host| {
            let seen = loop {
                let seen = netlink.snapshot().await.unwrap();
                if seen.devices["wan0"].running {
                    break desired(&seen);
                }
            };
            let failed = host.apply(&netlink, &config(), &seen, &by(None)).await;
            assert!(failed.is_empty(), "{failed:?}");
        };
        again(&mut host).await;
        both_are_at("02:00:00:00:00:02");

        rig.ip("neigh del 203.0.113.1 dev wan0");
        assert!(host.has_other_settings());
        again(&mut host).await;
        both_are_at("02:00:00:00:00:02");
        assert!(
            rig.ip("neigh show dev wan1")
                .contains(&OTHERS.replace("dev wan1 ", ""))
        );

        drop(host);
        let paths = Paths::under(rig.dir.path(), rig.dir.path(), "next-hops").unwrap();
        let host = Host::adopt(&paths, Ids::of(paths.instance()))
            .await
            .unwrap();
        host.restore(&netlink).await.unwrap();
        let left = rig.ip("-details neigh");
        assert!(!left.contains("managed") && left.contains(OTHERS), "{left}");
    });
}

#[test]
fn instances_in_one_namespace_leave_each_others_rules_alone() {
    let rig = Rig::new();
    let rules = || rig.ip("rule list");
    rig.run(async || {
        let before = rules();
        let (a, netlink) = apply(&rig, "a", Some(LinkId(0))).await;
        let of_a = rules();
        let (b, _) = apply(&rig, "b", None).await;
        let of_both = rules();
        for rule in of_a.lines() {
            assert!(of_both.contains(rule), "{rule} is not in {of_both}");
        }
        let (b_again, _) = apply(&rig, "b", Some(LinkId(1))).await;
        a.restore(&netlink).await.unwrap();
        let of_b = rules();
        apply(&rig, "b", Some(LinkId(1))).await;
        assert_eq!(rules(), of_b, "all of b's rules stayed");
        drop(b);
        b_again.restore(&netlink).await.unwrap();
        assert_eq!(rules(), before);
    });
}

#[test]
fn what_the_kernel_refuses_of_one_link_keeps_nothing_from_the_other() {
    let rig = Rig::new();
    let paths = Paths::under(rig.dir.path(), rig.dir.path(), "refused-test").unwrap();
    rig.run(async || {
        let netlink = Netlink::connect().unwrap();
        let mut monitor = Monitor::connect(&netlink).unwrap();
        let running = |snapshot: &Snapshot| snapshot.devices.values().all(|device| device.running);
        let mut seen = desired(&until(&netlink, &mut monitor, running).await);
        let fiber = seen.links.get_mut(&LinkId(0)).unwrap();
        let path = fiber.paths[Family::V4].path.as_mut().unwrap();
        path.gateway = Some(path.external);
        let mut host = Host::adopt(&paths, Ids::of(paths.instance()))
            .await
            .unwrap();
        host.set_slots(slots(&config())).unwrap();
        let failed = host
            .apply(&netlink, &config(), &seen, &by(Some(LinkId(1))))
            .await;
        let [failed] = &failed[..] else {
            panic!("{failed:?}")
        };
        let said = format!("{failed:#}");
        assert!(said.contains("by 203.0.113.2 "), "{said}");
        assert_eq!(rig.way("1.1.1.1 from 198.51.100.2"), "wan1 198.51.100.1");
        assert_eq!(rig.way("1.1.1.1"), "wan1 198.51.100.1");
        assert_eq!(rig.gateway.sysctl("net/ipv4/ip_forward").unwrap(), "1");
        assert!(rig.fingerprint().contains("masquerade"));
        host.restore(&netlink).await.unwrap();
    });
}

#[test]
fn rules_where_an_earlier_version_had_them_go_away() {
    const SPECIFIC: &str = "from 0.0.0.0/32 iif lo pref 32764 table main suppress_prefixlength 0";
    let rig = Rig::new();
    rig.run(async || {
        let (host, netlink) = apply(&rig, "a", Some(LinkId(0))).await;
        let rules = rig.ip("rule list");
        let table = own_table(&rules);
        rig.ip(&format!("rule add {SPECIFIC} protocol 171"));
        let anothers = rig.ip("rule list");
        apply(&rig, "a", Some(LinkId(0))).await;
        assert_eq!(rig.ip("rule list"), anothers, "nothing of ours beside it");
        rig.ip(&format!(
            "rule add from 0.0.0.0/32 iif lo pref 32765 table {table} protocol 171"
        ));
        apply(&rig, "a", Some(LinkId(0))).await;
        assert_eq!(rig.ip("rule list"), rules);

        let of_links = priorities(&rules).find(|priority| *priority >= 20_000);
        let former = of_links.unwrap() - 20_000 + 32_636;
        let own = "from 0.0.0.0/32 iif lo protocol 171";
        rig.ip(&format!(
            "rule add {own} pref {former} table main suppress_prefixlength 0"
        ));
        rig.ip(&format!("rule add {own} pref {} table {table}", former + 1));
        apply(&rig, "a", Some(LinkId(0))).await;
        assert_eq!(rig.ip("rule list"), rules);
        host.restore(&netlink).await.unwrap();
    });
}

fn priorities(rules: &str) -> impl Iterator<Item = u32> {
    let first = |line: &str| line.split(':').next()?.parse().ok();
    rules.lines().filter_map(first)
}

/// The table of the last rule for what the host itself sends.
fn own_table(rules: &str) -> &str {
    let mut own = rules.lines().filter(|line| line.contains("iif lo"));
    let table = own
        .next_back()
        .and_then(|line| line.split("lookup ").nth(1));
    table.unwrap().split_whitespace().next().unwrap()
}

#[test]
fn two_links_may_have_gateways_of_the_same_address() {
    let rig = Rig::new();
    let config = parse(&CONFIG.replace(r#""wan1","#, r#""wan1", gateway = "203.0.113.1","#));
    let dir = tempfile::tempdir().unwrap();
    let paths = Paths::under(dir.path(), dir.path(), "twins-test").unwrap();
    rig.run(async || {
        let netlink = Netlink::connect().unwrap();
        let mut monitor = Monitor::connect(&netlink).unwrap();
        let running = |snapshot: &Snapshot| snapshot.devices.values().all(|device| device.running);
        let snapshot = until(&netlink, &mut monitor, running).await;
        let mut host = Host::adopt(&paths, Ids::of(paths.instance()))
            .await
            .unwrap();
        host.set_slots(slots(&config)).unwrap();
        let desired = Desired::derive(&config, host.slots(), &snapshot);
        let failed = host.apply(&netlink, &config, &desired, &by(None)).await;
        assert!(failed.is_empty(), "{failed:?}");
        assert_eq!(rig.way("1.1.1.1 from 203.0.113.2"), "wan0 203.0.113.1");
        assert_eq!(rig.way("1.1.1.1 from 198.51.100.2"), "wan1 203.0.113.1");
        host.restore(&netlink).await.unwrap();
    });
}

#[test]
fn every_address_of_a_link_and_what_it_answers_for_others_leave_by_it() {
    let rig = Rig::new();
    rig.ip("addr add 198.51.100.3/24 dev wan1");
    rig.ip("route add 198.18.0.0/16 via 198.51.100.9 dev wan1");
    rig.run(async || {
        let (host, netlink) = apply(&rig, "a", Some(LinkId(1))).await;
        let second = "wan1 198.51.100.1";
        assert_eq!(rig.way("1.1.1.1 from 198.51.100.3"), second);
        let rules = rig.ip("rule list");
        let mark = |kind: &str| {
            let mut lines = rules
                .lines()
                .filter_map(|line| line.split("fwmark ").nth(1));
            let mark = lines.find(|line| line.starts_with("0xa8") && line[..10].ends_with(kind));
            mark.unwrap_or_else(|| panic!("{rules}"))[..10].to_owned()
        };
        let [first, arrived] = ["0001", "0002"].map(mark);
        let with = |mark: &str, to: &str| rig.way(&format!("{to} mark {mark}"));
        assert_eq!(with(&first, "1.1.1.1"), "wan0 203.0.113.1");
        assert_eq!(with(&arrived, "1.1.1.1"), second);
        assert_eq!(with(&arrived, "198.51.100.77"), "wan1 -", "a neighbour");
        assert_eq!(with(&arrived, "198.18.0.1"), "wan1 198.51.100.9");
        let forwarded =
            |source: &str, by: &str| rig.way(&format!("1.1.1.1 from {source} iif {by}"));
        rig.cable("other", "172.17.0.1/16");
        assert_eq!(forwarded("172.17.0.2", "other"), second);
        assert_eq!(forwarded("192.168.1.9", "lan0"), "wan0 203.0.113.1");
        let public = "203.0.113.1";
        rig.ip("route add 192.0.2.128/25 dev other");
        assert_eq!(forwarded("192.0.2.129", "other"), format!("wan0 {public}"));
        host.restore(&netlink).await.unwrap();
        assert!(!rig.ip("rule list").contains("proto 171"));
        assert!(!rig.ip("route show table all").contains("proto 171"));
    });
}

#[test]
fn links_with_one_network_and_address_find_neighbours_by_their_own_cards() {
    let rig = Rig::new();
    for (device, metric) in [("wan0", 100), ("wan1", 101)] {
        rig.ip(&format!("addr flush dev {device}"));
        rig.ip(&format!("addr add 192.168.8.100/24 dev {device}"));
        rig.ip(&format!(
            "route add default via 192.168.8.1 dev {device} metric {metric}"
        ));
    }
    let arp = || {
        ["wan0", "wan1", "lan0"].map(|device| {
            ["arp_ignore", "arp_announce"].map(|key| {
                let key = format!("net/ipv4/conf/{device}/{key}");
                rig.gateway.sysctl(&key).unwrap().trim().to_owned()
            })
        })
    };
    let before = arp();
    rig.run(async || {
        for (first, device) in [(LinkId(0), "wan0"), (LinkId(1), "wan1")] {
            let (host, netlink) = apply(&rig, "a", Some(first)).await;
            let way = format!("{device} 192.168.8.1");
            assert_eq!(rig.way("1.1.1.1 from 192.168.8.100"), way);
            assert_eq!(rig.way("1.1.1.1"), way);
            let near = format!("{device} -");
            assert_eq!(rig.way("192.168.8.1 from 192.168.8.100"), near);
            assert_eq!(rig.way("192.168.8.1"), near, "a modem's resolver");
            let shared = ["1", "2"].map(str::to_owned);
            assert_eq!(arp()[..2], [shared.clone(), shared]);
            assert_eq!(arp()[2], before[2], "not elsewhere");
            host.restore(&netlink).await.unwrap();
            assert_eq!(arp(), before);
        }
    });
}

#[test]
fn what_a_rule_refuses_or_leaves_to_the_kernel_meets_no_rule_behind() {
    let rig = Rig::new();
    let rules = r#"
[[rule]]
name = "mail"
protocol = "tcp"
ports = 25
[[rule]]
name = "all"
from = "self"
"#;
    let config = parse(&format!("{CONFIG}{rules}"));
    let paths = Paths::under(rig.dir.path(), rig.dir.path(), "own-test").unwrap();
    let rule = |place, way| RuleWay {
        place,
        class: ClassId(place as u8 + 1),
        way: PerFamily::from_fn(|_| way),
    };
    let lte = LinkId(1);
    let mail = "1.1.1.1 ipproto tcp dport 25";
    rig.run(async || {
        let netlink = Netlink::connect().unwrap();
        let mut host = Host::adopt(&paths, Ids::of(paths.instance()))
            .await
            .unwrap();
        host.set_slots(slots(&config)).unwrap();
        let mut apply = async |way| {
            let seen = desired(&netlink.snapshot().await.unwrap());
            let ways = Ways {
                first_usable: PerFamily::only(Family::V4, Some(lte)),
                alive: PerFamily::default(),
                rules: vec![rule(0, way), rule(1, Way::Link(lte))],
            };
            let failed = host.apply(&netlink, &config, &seen, &ways).await;
            assert!(failed.is_empty(), "{failed:?}");
            rig.fingerprint()
        };
        let once = apply(Way::Kernel).await;
        assert_eq!(apply(Way::Kernel).await, once, "what is right stays");
        assert_eq!(rig.way(mail), "wan0 203.0.113.1", "the main table's");
        assert_eq!(rig.way("1.1.1.1"), "wan1 198.51.100.1");
        let once = apply(Way::Refused).await;
        assert_eq!(apply(Way::Refused).await, once, "what is right stays");
        assert!(rig.gateway.ip(&format!("route get {mail}")).is_err());
        assert_eq!(rig.way("1.1.1.1"), "wan1 198.51.100.1");
        apply(Way::Link(LinkId(0))).await;
        assert_eq!(rig.way(mail), "wan0 203.0.113.1");
        host.restore(&netlink).await.unwrap();
        assert!(!rig.ip("rule list").contains("proto 171"));
    });
}
