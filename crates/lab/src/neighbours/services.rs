//! Who stands beside the gateway on the box: containers, a VPN, a virtual address, a policy table, router advertisements.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::ground::{GUEST, GUEST6, Ground, LAN, VIRTUAL, address, address6, until};
use super::plan::{Choices, LINKS};
use super::programs::{in_own_run, start_script};
use crate::topology::wan;
use crate::topology::{Result, io_error};
use anabranch_testbed::netns::{self, Child, Namespace};

/// As Docker's default bridge has it.
pub(super) const CONTAINER: &str = "172.17.0.2";
/// Inside the container, and outside it.
pub(super) const SERVICE_PORT: u16 = 80;
pub(super) const PUBLISHED_PORT: u16 = 8080;
/// Behind the router of the policy table.
pub(super) const MESH_PEER: &str = "100.100.1.1";
/// Of the rule that leads a LAN host to a link.
const SOURCE_PREFERENCE: u32 = 1000;
const SOURCE_TABLE: u32 = 77;
const MESH_DEVICE: &str = "mesh0";
const WG: &str = "wg0";
const WG_PORT: u16 = 51820;
const GRACE: Duration = Duration::from_secs(5);

/// What Docker adds for a container with a published port, and what an administrator adds beside it: nothing is forwarded
/// but what is allowed.
const CONTAINER_RULES: &str = "table ip containers
delete table ip containers
table ip containers {
  chain prerouting { type nat hook prerouting priority dstnat;
    fib daddr type local tcp dport 8080 dnat to 172.17.0.2:80
  }
  chain postrouting { type nat hook postrouting priority srcnat;
    ip saddr 172.17.0.0/16 oifname != \"docker0\" masquerade
  }
  chain forward { type filter hook forward priority filter; policy drop;
    ct state established,related accept
    oifname \"docker0\" ct status dnat accept
    iifname \"docker0\" oifname != \"docker0\" accept
    iifname { \"lan0\", \"wg0\" } accept
    oifname \"lan0\" accept
  }
}
";

/// What wg-quick's users add for clients that use the internet through the box.
const VPN_RULES: &str = "table ip vpn
delete table ip vpn
table ip vpn {
  chain postrouting { type nat hook postrouting priority srcnat;
    ip saddr 10.9.0.0/24 oifname \"wan*\" masquerade
  }
}
";

/// Which of two prefixes hosts are to prefer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Preferred {
    First,
    Second,
}

/// Programs that run beside the gateway, with what they were made from.
pub(super) struct Services {
    choices: Choices,
    keepalived: Child,
    radvd: Child,
    preferred: Preferred,
    /// On the box and on the road warrior's machine.
    _tunnels: [Child; 2],
}

impl Services {
    /// Starts everybody, before the gateway.
    pub fn start(ground: &Ground, choices: Choices) -> Result<Self> {
        contain(ground)?;
        lay_mesh(ground)?;
        Ok(Self {
            choices,
            keepalived: start_router(ground, choices)?,
            radvd: start_radvd(ground, Preferred::First)?,
            preferred: Preferred::First,
            _tunnels: dig_tunnel(ground)?,
        })
    }

    pub fn restart_keepalived(&mut self, ground: &Ground) -> Result<()> {
        stop(&mut self.keepalived)?;
        self.keepalived = start_router(ground, self.choices)?;
        Ok(())
    }

    /// Another router, which takes the virtual address as long as it runs.
    pub fn start_rival(&self, ground: &Ground) -> Result<Child> {
        let directory = ground.directory.path();
        start_keepalived(&ground.peer, "eth0", 200, self.choices, directory)
    }

    pub fn restart_radvd(&mut self, ground: &Ground) -> Result<()> {
        stop(&mut self.radvd)?;
        self.radvd = start_radvd(ground, self.preferred)?;
        Ok(())
    }

    /// Advertises the other prefix as the preferred one.
    pub fn prefer_other(&mut self, ground: &Ground) -> Result<()> {
        self.preferred = match self.preferred {
            Preferred::First => Preferred::Second,
            Preferred::Second => Preferred::First,
        };
        self.restart_radvd(ground)
    }
}

impl Drop for Services {
    /// Both have processes of their own, which outlive a parent that is killed and not one that is told to end.
    fn drop(&mut self) {
        for program in [&mut self.keepalived, &mut self.radvd] {
            let _ = program.terminate(GRACE);
        }
    }
}

/// Ends a program, which may have something to say before.
pub(super) fn stop(child: &mut Child) -> Result<()> {
    let ended = child.terminate(GRACE);
    ended.map(drop).map_err(io_error("stopping a program"))
}

/// A bridge with one container on it.
fn contain(ground: &Ground) -> Result<()> {
    let (the_box, container) = (&ground.the_box, &ground.container);
    the_box.ip("link add docker0 type bridge forward_delay 0")?;
    the_box.ip("address add 172.17.0.1/16 dev docker0")?;
    the_box.ip("link set docker0 up")?;
    the_box.veth("veth0", container, "eth0")?;
    the_box.ip("link set veth0 master docker0")?;
    container.ip(&format!("address add {CONTAINER}/16 dev eth0"))?;
    container.ip("route add default via 172.17.0.1")?;
    load_vpn_rules(the_box)?;
    load_container_rules(the_box)
}

pub(super) fn load_vpn_rules(the_box: &Namespace) -> Result<()> {
    the_box.nft(VPN_RULES)?;
    Ok(())
}

/// Loads them in the place of those that are there, in one step.
pub(super) fn load_container_rules(the_box: &Namespace) -> Result<()> {
    the_box.nft(CONTAINER_RULES)?;
    Ok(())
}

/// A router to a network that only the policy table knows, and which knows the LAN.
fn lay_mesh(ground: &Ground) -> Result<()> {
    let (the_box, mesh) = (&ground.the_box, &ground.mesh);
    the_box.veth(MESH_DEVICE, mesh, "box")?;
    the_box.ip(&format!("address add 100.64.0.1/32 dev {MESH_DEVICE}"))?;
    mesh.ip(&format!("address add {MESH_PEER}/32 dev box"))?;
    mesh.ip("route add 100.64.0.1/32 dev box")?;
    mesh.ip("route add 192.168.1.0/24 via 100.64.0.1 dev box onlink")?;
    make_policy_table(the_box)
}

/// As Tailscale has it: a rule before the main table's, and its own table.
pub(super) fn make_policy_table(the_box: &Namespace) -> Result<()> {
    the_box.ip("rule add pref 5270 lookup 52")?;
    the_box.ip(&format!(
        "route add 100.64.0.0/10 dev {MESH_DEVICE} table 52"
    ))?;
    Ok(())
}

pub(super) fn flush_policy_table(the_box: &Namespace) -> Result<()> {
    the_box.ip("route flush table 52")?;
    the_box.ip("rule delete pref 5270")?;
    Ok(())
}

/// Whatever the guest sends to others than its neighbours goes to a link, and everything else as before.
pub(super) fn lead_guest(the_box: &Namespace, link: usize) -> netns::Result<()> {
    let device = wan(link);
    for router in [address(link, 1).to_string(), address6(link, 1).to_string()] {
        the_box.ip(&format!(
            "route replace default via {router} dev {device} table {SOURCE_TABLE}"
        ))?;
    }
    source_rules(the_box, "add")
}

pub(super) fn leave_guest(the_box: &Namespace) -> netns::Result<()> {
    source_rules(the_box, "delete")
}

fn source_rules(the_box: &Namespace, change: &str) -> netns::Result<()> {
    for (family, guest) in [("-4", GUEST), ("-6", GUEST6)] {
        the_box.ip(&format!(
            "{family} rule {change} pref {SOURCE_PREFERENCE} from {guest} lookup {SOURCE_TABLE}"
        ))?;
    }
    Ok(())
}

fn start_hidden(namespace: &Namespace, line: &str, directory: &Path, name: &str) -> Result<Child> {
    start_script(
        namespace,
        &in_own_run(&format!("exec {line}")),
        directory,
        name,
    )
}

/// The box as a router of the virtual address. Its peer has a greater priority.
fn start_router(ground: &Ground, choices: Choices) -> Result<Child> {
    let directory = ground.directory.path();
    start_keepalived(&ground.the_box, LAN, 100, choices, directory)
}

fn start_keepalived(
    namespace: &Namespace,
    device: &str,
    priority: u8,
    choices: Choices,
    directory: &Path,
) -> Result<Child> {
    // With a hardware address of its own (RFC 9568 §7.3) the virtual address is on a device of its own, too.
    let (hardware, length) = match choices.virtual_mac {
        true => ("use_vmac vrrp51\n  vmac_xmit_base", 32),
        false => ("", 24),
    };
    let name = format!("keepalived-{priority}");
    let text = format!(
        "global_defs {{
  vrrp_version 3
}}
vrrp_instance lan {{
  state BACKUP
  interface {device}
  virtual_router_id 51
  priority {priority}
  advert_int 0.2
  {hardware}
  virtual_ipaddress {{
    {VIRTUAL}/{length}
  }}
}}
"
    );
    let file = write(directory, &format!("{name}.conf"), &text)?;
    let line = format!("keepalived -n -l -D -P -f {}", file.display());
    start_hidden(namespace, &line, directory, &name)
}

fn start_radvd(ground: &Ground, preferred: Preferred) -> Result<Child> {
    let prefix = |network: &str, is: Preferred| {
        let preferred_s = if is == preferred { 1800 } else { 0 };
        format!(
            "  prefix {network} {{ AdvValidLifetime 3600; AdvPreferredLifetime {preferred_s}; }};\n"
        )
    };
    let text = format!(
        "interface {LAN} {{
  AdvSendAdvert on;
  MinRtrAdvInterval 3;
  MaxRtrAdvInterval 4;
{}{}}};
",
        prefix("fd00:1::/64", Preferred::First),
        prefix("fd00:2::/64", Preferred::Second)
    );
    let directory = ground.directory.path();
    let file = write(directory, "radvd.conf", &text)?;
    let line = format!("radvd -n -m stderr -p /run/radvd.pid -C {}", file.display());
    start_hidden(&ground.the_box, &line, directory, "radvd")
}

/// WireGuard in user space between the box and the road warrior, who reaches it by the last link.
fn dig_tunnel(ground: &Ground) -> Result<[Child; 2]> {
    let (the_box, warrior) = (&ground.the_box, &ground.warrior);
    let directory = ground.directory.path();
    let keys = [new_key(the_box)?, new_key(the_box)?];
    let server = format!(
        "[Interface]\nPrivateKey = {}\nListenPort = {WG_PORT}\n[Peer]\nPublicKey = {}\nAllowedIPs = 10.9.0.2/32\n",
        keys[0].0, keys[1].1
    );
    let endpoint = address(LINKS - 1, 2);
    let client = format!(
        "[Interface]\nPrivateKey = {}\n[Peer]\nPublicKey = {}\nAllowedIPs = 0.0.0.0/0\nEndpoint = {endpoint}:{WG_PORT}\nPersistentKeepalive = 5\n",
        keys[1].0, keys[0].1
    );
    let ends = [
        start_wireguard(the_box, &server, "10.9.0.1/24", "wireguard-box", directory)?,
        start_wireguard(
            warrior,
            &client,
            "10.9.0.2/24",
            "wireguard-warrior",
            directory,
        )?,
    ];
    warrior.ip(&format!("route add 192.0.2.0/24 dev {WG}"))?;
    Ok(ends)
}

/// A private key and its public key.
fn new_key(namespace: &Namespace) -> Result<(String, String)> {
    let private = namespace.exec("wg", &["genkey"])?;
    let public = namespace.exec_with_input("wg", &["pubkey"], &private)?;
    Ok((private.trim().to_owned(), public.trim().to_owned()))
}

fn start_wireguard(
    namespace: &Namespace,
    configuration: &str,
    address: &str,
    name: &str,
    directory: &Path,
) -> Result<Child> {
    let file = write(directory, &format!("{name}.conf"), configuration)?;
    let child = start_hidden(namespace, &format!("wireguard-go -f {WG}"), directory, name)?;
    let (pid, file) = (child.id().to_string(), file.display().to_string());
    // Its socket is in a /run that nobody else sees.
    let words = ["--target", &pid, "--mount", "wg", "setconf", WG, &file];
    until(&format!("{name} takes its configuration"), || {
        Ok(namespace.exec("nsenter", &words).is_ok())
    })?;
    namespace.ip(&format!("address add {address} dev {WG}"))?;
    namespace.ip(&format!("link set {WG} up"))?;
    Ok(child)
}

fn write(directory: &Path, name: &str, text: &str) -> Result<PathBuf> {
    let path = directory.join(name);
    std::fs::write(&path, text).map_err(io_error(format!("writing {}", path.display())))?;
    Ok(path)
}
