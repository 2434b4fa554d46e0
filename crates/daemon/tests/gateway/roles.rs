//! A gateway and a trunk in one process: what becomes of one is nothing to the packets of the other. Beside the links the box has two
//! lines to a far node, which are one trunk; LAN hosts reach that node over it, by the kernel's own forwarding.

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::unix::fs::chown;

use anabranch_api::{Request, Response, RoleState, Status, TrunkStatus};
use anabranch_core::Family;
use anabranch_testbed::netns::{Exit, Namespace};
use nix::sys::signal::Signal;

use crate::rig::*;

anabranch_testbed::in_both_families!(
    Family:
    flows_of_either_role_live_through_reloads_of_both_and_a_clean_stop_puts_the_host_back,
    flows_of_either_role_live_through_a_kill_and_the_next_process_adopts_both,
    a_section_that_is_wrong_changes_nothing_of_either_role,
    a_role_that_cannot_start_leaves_its_packets_and_the_other_role_alone,
    a_role_that_leaves_the_file_is_gone_with_the_next_start_and_the_other_goes_on,
);

const SUBLINKS: usize = 2;
/// What the daemon of another user could have pinned.
const NOBODY: u32 = 65_534;

struct Site {
    rig: Rig,
    far: Namespace,
}

impl Site {
    fn new(family: Family) -> Self {
        let site = Self {
            rig: Rig::of(family),
            far: namespace("far"),
        };
        for number in 0..SUBLINKS {
            site.lay_sublink(number);
        }
        site.lay_trunk();
        echo_server(&site.far, site.far_server());
        site.write("rr", "DRR");
        site
    }

    /// The address of the box (1) or of the far node (2), on the trunk or on one of its lines.
    fn address(&self, line: Option<usize>, node: u8) -> IpAddr {
        let line = line.map_or(0, |number| number as u8 + 1);
        match self.rig.family() {
            Family::V4 => [10, 8, line, node].into(),
            Family::V6 => [0xfd08, line.into(), 0, 0, 0, 0, 0, node.into()].into(),
        }
    }

    /// In networks of two.
    fn length(&self) -> u8 {
        match self.rig.family() {
            Family::V4 => 30,
            Family::V6 => 126,
        }
    }

    fn give(&self, node: &Namespace, device: &str, own: IpAddr) {
        address(node, device, &own.to_string(), self.length());
    }

    fn lay_sublink(&self, number: usize) {
        let device = sublink(number);
        self.rig.gateway.veth(&device, &self.far, &device).unwrap();
        let near: &Namespace = &self.rig.gateway;
        for (node, host) in [(near, 1), (&self.far, 2)] {
            self.give(node, &device, self.address(Some(number), host));
        }
    }

    /// What the far node sends back takes the first line.
    fn lay_trunk(&self) {
        let (gateway, far) = (&self.rig.gateway, &self.far);
        for line in [
            "link add trunk0 type veth peer name trunk0-end",
            "link set trunk0-end up",
            "link set trunk0 arp off up",
        ] {
            gateway.ip(line).unwrap();
        }
        self.give(gateway, "trunk0", self.address(None, 1));
        self.give(far, "lo", self.address(None, 2));
        let via = self.address(Some(0), 1);
        let [lan, _] = self.rig.plan().lengths;
        let lan = format!("{}/{lan}", self.rig.lan_host(0));
        for to in [self.address(None, 1).to_string(), lan] {
            far.ip(&format!("route add {to} via {via}")).unwrap();
        }
    }

    fn far_server(&self) -> SocketAddr {
        SocketAddr::new(self.address(None, 2), 80)
    }

    /// The file, with a policy of the gateway and a scheme of the trunk.
    fn write(&self, policy: &str, scheme: &str) {
        let gateway = self.gateway_text(policy);
        let sublinks = (0..SUBLINKS).map(|number| {
            let device = sublink(number);
            format!("sublink.s{number} = {{ device = \"{device}\", rate = \"100mbit\" }}\n")
        });
        let sublinks: String = sublinks.collect();
        self.rig.write_config(&format!(
            "{gateway}[trunk]\ndevice = \"trunk0\"\nscheme = \"{scheme}\"\n{sublinks}"
        ));
    }

    fn gateway_text(&self, policy: &str) -> String {
        let written = self.rig.config_text();
        written.replace("policy = \"rr\"", &format!("policy = \"{policy}\""))
    }

    /// Some flows of the gateway, and some connections of the box and of a LAN host over the trunk.
    fn talk(&self, daemon: &Daemon) -> Talk {
        all_up(daemon);
        let held = Held::new(&self.rig, daemon);
        let from = [&self.rig.gateway, &self.rig.client];
        let over_trunk = from.map(|host| host.connect(self.far_server(), DEADLINE).unwrap());
        Talk { held, over_trunk }
    }

    /// Both are, and do what the file says.
    #[track_caller]
    fn both_are(&self, daemon: &Daemon, policy: &str, scheme: &str) {
        let status = daemon.instance_status();
        assert!(
            status
                .roles
                .iter()
                .all(|role| role.state == RoleState::Works)
        );
        assert_eq!(daemon.status().policy.to_lowercase(), policy);
        assert_eq!(trunk(&status).scheme, scheme);
    }
}

fn sublink(number: usize) -> String {
    format!("sub{number}")
}

fn trunk(status: &Status) -> &TrunkStatus {
    status.trunk.as_ref().expect("a trunk")
}

/// Flows of both roles.
struct Talk {
    held: Held,
    over_trunk: [TcpStream; 2],
}

impl Talk {
    /// With a daemon that can say that they are where they were.
    fn goes_on(&mut self, daemon: &Daemon) {
        self.held.go_on(daemon);
        self.trunk_goes_on();
    }

    fn trunk_goes_on(&mut self) {
        for stream in &mut self.over_trunk {
            echo(stream).expect("a connection over the trunk");
        }
    }
}

fn flows_of_either_role_live_through_reloads_of_both_and_a_clean_stop_puts_the_host_back(
    family: Family,
) {
    let site = Site::new(family);
    let before = site.rig.fingerprint();
    let daemon = site.rig.start();
    let mut talk = site.talk(&daemon);
    talk.goes_on(&daemon);
    let status = daemon.instance_status();
    let sublinks = trunk(&status).sublinks.iter();
    let carried: u64 = sublinks.map(|sublink| sublink.packets).sum();
    assert!(carried > 0, "over the trunk, and not past it");
    for (policy, scheme) in [("rr", "SH"), ("lcf", "SH"), ("rr", "flowlet")] {
        site.write(policy, scheme);
        let reloaded = daemon.call(&Request::Reload);
        assert!(matches!(reloaded, Response::Done), "{reloaded:?}");
        site.both_are(&daemon, policy, scheme);
        talk.goes_on(&daemon);
    }
    drop(talk);
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
    assert_eq!(site.rig.fingerprint(), before);
    for device in ["wan0", "trunk0", "sub0"] {
        assert!(!site.rig.claims(device), "{device}");
    }
    for role in ["gateway", "trunk"] {
        assert!(!site.rig.paths().state_of(role).exists(), "{role}");
    }
}

fn flows_of_either_role_live_through_a_kill_and_the_next_process_adopts_both(family: Family) {
    let site = Site::new(family);
    let before = site.rig.fingerprint();
    let daemon = site.rig.start();
    let mut talk = site.talk(&daemon);
    talk.goes_on(&daemon);
    assert_eq!(daemon.end(Signal::SIGKILL), Exit::Signal(9));
    talk.trunk_goes_on();
    echo(&mut site.rig.connect().expect("a flow without a daemon")).unwrap();
    let daemon = site.rig.start();
    let status = daemon.instance_status();
    assert!(status.gateway.is_some_and(|gateway| gateway.adopted));
    assert!(status.trunk.is_some_and(|trunk| trunk.adopted));
    talk.goes_on(&daemon);
    drop(talk);
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
    assert_eq!(site.rig.fingerprint(), before);
}

fn a_section_that_is_wrong_changes_nothing_of_either_role(family: Family) {
    let site = Site::new(family);
    let daemon = site.rig.start();
    let mut talk = site.talk(&daemon);
    for (policy, scheme, wrong) in [
        ("lcf", "FIFO", "trunk.scheme = \"FIFO\""),
        ("none", "SH", "policy = \"none\""),
    ] {
        site.write(policy, scheme);
        let Response::Refused { message } = daemon.call(&Request::Reload) else {
            panic!("not refused")
        };
        assert!(message.contains(wrong), "{message}");
        site.both_are(&daemon, "rr", "DRR");
        talk.goes_on(&daemon);
    }
    // What one role's look at the host refuses, when the other has found all as it should be.
    site.write("lcf", "DHFV");
    let Response::Refused { message } = daemon.call(&Request::Reload) else {
        panic!("not refused")
    };
    let says = "trunk.sublink.s0: DHFV watches its queue, and device sub0 keeps none";
    assert!(message.contains(says), "{message}");
    site.both_are(&daemon, "rr", "DRR");
    talk.goes_on(&daemon);
}

fn a_role_that_cannot_start_leaves_its_packets_and_the_other_role_alone(family: Family) {
    let site = Site::new(family);
    let daemon = site.rig.start();
    let mut talk = site.talk(&daemon);
    let pins = site.rig.paths().pins().to_owned();
    let of = |is_trunk: bool| {
        let entries = std::fs::read_dir(&pins).unwrap();
        let mut folders = entries.map(|entry| entry.unwrap().path());
        let is_meant = |path: &std::path::PathBuf| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            name.starts_with("trunk") == is_trunk
        };
        folders.find(is_meant).expect("its pins")
    };
    daemon.end(Signal::SIGKILL);
    for (is_trunk, name) in [(true, "trunk"), (false, "gateway")] {
        let folder = of(is_trunk);
        chown(&folder, Some(NOBODY), None).unwrap();
        let daemon = site.rig.start();
        let roles = daemon.instance_status().roles;
        let failed = roles.iter().filter(|role| role.state == RoleState::Failed);
        let failed: Vec<_> = failed.collect();
        assert_eq!((failed.len(), &failed[0].name[..]), (1, name), "{roles:?}");
        let why = failed[0].why.as_ref().unwrap();
        assert!(why.contains(&NOBODY.to_string()), "{why}");
        talk.trunk_goes_on();
        echo(&mut site.rig.connect().expect("a new flow")).unwrap();
        daemon.end(Signal::SIGKILL);
        chown(&folder, Some(0), None).unwrap();
    }
    let daemon = site.rig.start();
    site.both_are(&daemon, "rr", "DRR");
    talk.goes_on(&daemon);
}

fn a_role_that_leaves_the_file_is_gone_with_the_next_start_and_the_other_goes_on(family: Family) {
    let site = Site::new(family);
    let daemon = site.rig.start();
    let mut talk = site.talk(&daemon);
    site.rig.write_config(&site.gateway_text("rr"));
    let Response::Refused { message } = daemon.call(&Request::Reload) else {
        panic!("not refused")
    };
    assert!(message.contains("start the daemon again"), "{message}");
    talk.goes_on(&daemon);
    daemon.end(Signal::SIGKILL);
    let daemon = site.rig.start();
    talk.held.go_on(&daemon);
    assert!(daemon.instance_status().trunk.is_none());
    assert!(!site.rig.claims("trunk0") && !site.rig.paths().state_of("trunk").exists());
    site.write("rr", "SH");
    daemon.end(Signal::SIGKILL);
    let daemon = site.rig.start();
    assert!(!trunk(&daemon.instance_status()).adopted);
    talk.held.go_on(&daemon);
}
