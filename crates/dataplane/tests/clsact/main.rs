//! Attachments where the kernel has no TCX, or is not to use it: filters of `clsact` that outlive the process, are
//! replaced in place, and leave what others have put on the device alone.

#[path = "../common/site.rs"]
#[allow(dead_code, reason = "addresses for other tests too")]
mod addresses;
#[path = "../common/mod.rs"]
mod common;
#[path = "../common/former.rs"]
mod former;
#[path = "../forwarding/site.rs"]
#[allow(dead_code, reason = "a site for other tests too")]
mod site;

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, TcpStream},
    path::{Path, PathBuf},
    sync::Once,
    thread,
    time::Duration,
};

use anabranch_dataplane::{Gateway, Role, Sizes, programs_at, trunk::Trunk};
use anabranch_policy::abi::ABI_VERSION;
use anabranch_testbed::netns::Namespace;
use aya::programs::TcAttachType;
use common::*;
use nix::net::if_::if_nametoindex;
use site::{Site, echo_once};

/// Of every wait: enough for an emulated processor.
const PATIENCE: Duration = Duration::from_secs(60);
const DEVICES: [&str; 3] = ["lan0", "wan0", "wan1"];
const SMALL: Sizes = Sizes {
    flows_max: 4096,
    unconfirmed_max: 1024,
    hosts_max: 64,
    prefixes_max: 64,
};

/// A site without its gateway, on a kernel that has no TCX as far as we know.
fn bare() -> Site {
    static FORCE: Once = Once::new();
    // SAFETY: nothing in this process reads the environment but by std, which takes turns.
    FORCE.call_once(|| unsafe { std::env::set_var("ANABRANCH_ATTACH", "clsact") });
    Site::bare(&addresses::IPV4)
}

fn site() -> Site {
    let mut site = bare();
    site.start(SMALL);
    site
}

fn tc(namespace: &Namespace, words: &str) -> String {
    namespace.tc(words).unwrap()
}

fn qdiscs(site: &Site, device: &str) -> String {
    tc(&site.gateway, &format!("qdisc show dev {device}"))
}

fn filters(site: &Site, device: &str) -> String {
    tc(&site.gateway, &format!("filter show dev {device} ingress"))
}

fn programs(namespace: &Namespace, device: &str, end: TcAttachType) -> Vec<u32> {
    namespace
        .run(|| programs_at(if_nametoindex(device).unwrap(), end).unwrap())
        .unwrap()
}

/// A connection through the gateway.
fn connect(site: &Site) -> (TcpStream, TcpStream) {
    let at = (SERVER, 8080);
    let listener = site.internet.listen(at).unwrap();
    let client = site.client.connect(at, PATIENCE).unwrap();
    let (server, _) = listener.accept().unwrap();
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    server.set_write_timeout(Some(PATIENCE)).unwrap();
    (client, server)
}

#[track_caller]
fn echo((client, server): &mut (TcpStream, TcpStream), word: &[u8]) {
    echo_once(client, server, word);
}

#[test]
fn a_filter_outlives_its_process_and_the_next_one_replaces_it_under_load() {
    let mut site = site();
    let mut connection = connect(&site);
    echo(&mut connection, b"first");
    let before = DEVICES.map(|device| {
        assert!(filters(&site, device).contains("direct-action"), "{device}");
        programs(&site.gateway, device, TcAttachType::Ingress)
    });
    assert!(before.iter().all(|programs| programs.len() == 1));

    // What a kill -9 leaves: pins and filters.
    drop(site.plane.take());
    echo(&mut connection, b"without a process");

    let (mut client, mut server) = connection;
    let load = thread::spawn(move || {
        let mut sent = 0_u64;
        while client.write_all(&[7; 4096]).is_ok() {
            sent += 4096;
        }
        sent
    });
    let mut buffer = [0; 4096];
    server.read_exact(&mut buffer).unwrap();
    for _ in 0..3 {
        assert!(site.start(SMALL), "adopted");
        server.read_exact(&mut buffer).unwrap();
    }
    drop(server);
    assert!(load.join().unwrap() > 0);
    assert_eq!(site.reason("no-flow-out"), 0);
    for (device, before) in DEVICES.iter().zip(before) {
        let after = programs(&site.gateway, device, TcAttachType::Ingress);
        assert_eq!(after.len(), 1, "{device}");
        assert_ne!(after, before, "{device}");
    }
}

#[test]
fn the_program_that_hears_forwards_is_a_filter_at_the_egress_and_goes_alone() {
    let mut site = site();
    let mut connection = connect(&site);
    let heard = |site: &Site| programs(&site.gateway, "lan0", TcAttachType::Egress).len();
    for forwards in [true, false, true] {
        let mut settings = settings();
        settings.forwards_kernel = forwards.into();
        site.in_gateway(|plane| plane.set_settings(&settings).unwrap());
        assert_eq!(heard(&site), usize::from(forwards));
        echo(&mut connection, b"past it");
    }
    drop(site.plane.take());
    assert!(site.start(SMALL), "adopted");
    assert_eq!(heard(&site), 0, "the next one's kernel forwards nothing");
    echo(&mut connection, b"past nothing");
}

#[test]
fn an_upgrade_takes_the_place_of_the_former_filters_and_keeps_their_qdiscs() {
    let mut site = bare();
    site.start_former(SMALL, &settings());
    assert!(filters(&site, "lan0").contains("pref 171"));
    let mut connection = connect(&site);
    echo(&mut connection, b"formerly");

    assert!(site.start(SMALL), "adopted");

    echo(&mut connection, b"upgraded");
    assert!(!former::folder(&site.pins).exists());
    for device in DEVICES {
        let filters = filters(&site, device);
        assert!(filters.contains("pref 171"), "{device}: {filters}");
        let programs = programs(&site.gateway, device, TcAttachType::Ingress);
        assert_eq!(programs.len(), 1, "{device}");
    }
    site.stop().unwrap();
    for device in DEVICES {
        assert!(!qdiscs(&site, device).contains("clsact"), "{device}");
    }
}

#[test]
fn a_clean_end_leaves_filters_and_qdiscs_of_others() {
    let mut site = bare();
    tc(&site.gateway, "qdisc add dev wan0 clsact");
    site.start(SMALL);
    tc(
        &site.gateway,
        "filter add dev wan1 ingress protocol all prio 10 u32 match u32 0 0",
    );
    echo(&mut connect(&site), b"beside others");
    let pins = site.pins.to_path_buf();

    site.stop().unwrap();

    assert!(!pins.exists());
    assert!(!qdiscs(&site, "lan0").contains("clsact"), "it was ours");
    assert!(qdiscs(&site, "wan0").contains("clsact"), "it was theirs");
    assert_eq!(filters(&site, "wan0"), "");
    let left = filters(&site, "wan1");
    assert!(left.contains("u32") && !left.contains("bpf"), "{left}");
    assert!(qdiscs(&site, "wan1").contains("clsact"), "it is in use");
}

#[test]
fn a_qdisc_that_a_killed_process_made_goes_though_it_came_to_no_filter() {
    let mut site = site();
    let pins = site.pins.join(format!("v{ABI_VERSION}"));
    let ifindex = site.gateway.run(|| if_nametoindex("lan0").unwrap());
    tc(&site.gateway, "filter del dev lan0 ingress");
    std::fs::remove_dir(pins.join(format!("filter-{}", ifindex.unwrap()))).unwrap();
    assert!(qdiscs(&site, "lan0").contains("clsact"));
    site.stop().unwrap();
    assert!(!qdiscs(&site, "lan0").contains("clsact"));
}

#[test]
fn a_device_with_an_ingress_qdisc_is_refused_with_a_word() {
    let site = bare();
    tc(&site.gateway, "qdisc add dev lan0 ingress");
    let refusal = attach(&site, &site.pins, "lan0").unwrap_err();
    assert!(
        refusal.contains("device lan0 has an `ingress` qdisc"),
        "{refusal}"
    );
    assert!(qdiscs(&site, "lan0").contains("ingress"));
}

#[test]
fn a_filter_of_another_instance_is_not_replaced() {
    let site = site();
    let before = programs(&site.gateway, "lan0", TcAttachType::Ingress);
    let other = PathBuf::from(format!("{}-other", site.pins.display()));
    let refusal = attach(&site, &other, "lan0").unwrap_err();
    let name = site.pins.file_name().unwrap().to_string_lossy();
    assert!(
        refusal.contains(&format!("`anabranch/{name}`")),
        "{refusal}"
    );
    assert_eq!(
        programs(&site.gateway, "lan0", TcAttachType::Ingress),
        before
    );
}

/// Attaches an instance of its own and gives it up again. The error's words.
fn attach(site: &Site, pins: &Path, device: &str) -> Result<(), String> {
    let role = Role::lan([Ipv4Addr::LOCALHOST.into()]);
    site.gateway
        .run(|| {
            let (mut gateway, _) = Gateway::open(pins, SMALL).unwrap();
            let ifindex = if_nametoindex(device).unwrap();
            let attached = gateway.attach(ifindex, role, false, 1500);
            gateway.close().unwrap();
            attached.map_err(|error| error.to_string())
        })
        .unwrap()
}

#[test]
fn the_egress_of_a_trunk_is_adopted_and_left_as_well() {
    let site = bare();
    let pins = PathBuf::from(format!("{}-trunk", site.pins.display()));
    let at_egress = |expected: usize| {
        let found = programs(&site.gateway, "wan0", TcAttachType::Egress);
        assert_eq!(found.len(), expected);
        found
    };
    let open = |adopted: bool| {
        let attach = || {
            let (mut trunk, flag) = Trunk::open(&pins).unwrap();
            assert_eq!(flag, adopted);
            trunk.attach(if_nametoindex("wan0").unwrap()).unwrap();
            trunk
        };
        site.gateway.run(attach).unwrap()
    };
    drop(open(false));
    let before = at_egress(1);
    let trunk = open(true);
    assert_ne!(at_egress(1), before);
    site.gateway.run(|| trunk.close().unwrap()).unwrap();
    at_egress(0);
    assert!(!qdiscs(&site, "wan0").contains("clsact"));
}
