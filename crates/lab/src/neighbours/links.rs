//! Where the addresses of links come from: DHCP servers of the ISPs, clients on the box, or nobody.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anabranch_testbed::netns::Child;
use nix::sys::signal::Signal;

use super::ground::{CUSTOMER, Ground, address, metric, route};
use super::plan::{Choices, LINKS, NAMES};
use super::programs::{in_own_run, program, start_script};
use crate::topology::{Anabranch, Result, io_error, wan};

const GRACE: Duration = Duration::from_secs(5);
/// The last octet of what a lease gives, in turn.
const LEASES: [u8; 2] = [50, 60];
const STATIC: u8 = 2;

/// Sets the address and the default route of a lease, as the script of Debian's udhcpc does, but for the file of
/// resolvers, which is the host's.
const UDHCPC_SCRIPT: &str = r#"#!/bin/sh
case $1 in
deconfig)
    ip link set "$interface" up
    ip -4 address flush dev "$interface" ;;
bound | renew)
    ip -4 address replace "$ip/$mask" dev "$interface"
    ip -4 route replace default via "${router%% *}" dev "$interface" metric "$METRIC" ;;
esac
"#;

/// The same in the words of dhclient-script(8).
const DHCLIENT_SCRIPT: &str = r#"#!/bin/sh
case $reason in
PREINIT) ip link set "$interface" up ;;
BOUND | RENEW | REBIND | REBOOT)
    [ -z "$old_ip_address" ] || [ "$old_ip_address" = "$new_ip_address" ] || ip -4 address flush dev "$interface"
    ip -4 address replace "$new_ip_address/24" dev "$interface"
    ip -4 route replace default via "${new_routers%% *}" dev "$interface" metric "$METRIC" ;;
EXPIRE | FAIL | RELEASE | STOP) ip -4 address flush dev "$interface" ;;
TIMEOUT) exit 1 ;;
esac
exit 0
"#;

/// As Debian has it, but for what concerns this host: the address stays while dhcpcd starts again.
const DHCPCD_CONFIGURATION: &str = "duid
persistent
option domain_name_servers, classless_static_routes
require dhcp_server_identifier
ipv4only
noipv4ll
script /bin/true
";

/// What a link's address comes from.
pub(super) enum Access {
    Leased {
        server: Child,
        client: Child,
        program: DhcpClient,
        /// Which of [`LEASES`] the server gives.
        lease: usize,
    },
    Static,
}

/// Who takes a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DhcpClient {
    Udhcpc,
    Dhclient,
    Dhcpcd,
}

/// The gateway, and who gives its links their addresses.
pub(super) struct Links {
    pub gateway: Anabranch,
    pub(super) accesses: Vec<Access>,
}

impl Links {
    /// Makes the client of a link ask for its address again.
    pub fn renew(&mut self, link: usize, ground: &Ground) -> Result<()> {
        match &self.accesses[link] {
            // It has no signal for it; one that starts asks for the lease it remembers.
            Access::Leased {
                program: DhcpClient::Dhclient,
                ..
            } => self.restart_client(link, ground),
            Access::Leased { client, .. } => {
                client.signal(Signal::SIGUSR1);
                Ok(())
            }
            Access::Static => Ok(()),
        }
    }

    /// Has the server of a link give another address, and the client ask. Returns the address.
    pub fn change_lease(&mut self, link: usize, ground: &Ground) -> Result<IpAddr> {
        let Access::Leased { lease, program, .. } = &mut self.accesses[link] else {
            unreachable!("link {link} has no lease");
        };
        *lease = 1 - *lease;
        let given = address(link, LEASES[*lease]).into();
        // Bound, dhcpcd hears no refusal, since that is a broadcast: it would keep its address until it asks anybody.
        let is_deaf = *program == DhcpClient::Dhcpcd;
        self.restart_server(link, ground)?;
        match is_deaf {
            true => self.restart_client(link, ground)?,
            false => self.renew(link, ground)?,
        }
        Ok(given)
    }

    pub fn restart_client(&mut self, link: usize, ground: &Ground) -> Result<()> {
        if let Access::Leased {
            client, program, ..
        } = &mut self.accesses[link]
        {
            client
                .terminate(GRACE)
                .map_err(io_error("stopping a DHCP client"))?;
            *client = start_client(link, ground, *program)?;
        }
        Ok(())
    }

    pub fn restart_server(&mut self, link: usize, ground: &Ground) -> Result<()> {
        if let Access::Leased { server, lease, .. } = &mut self.accesses[link] {
            server
                .terminate(GRACE)
                .map_err(io_error("stopping a DHCP server"))?;
            *server = start_server(link, ground, *lease)?;
        }
        Ok(())
    }
}

impl Drop for Links {
    /// dhcpcd has processes of its own, which outlive a parent that is killed and not one that is told to end.
    fn drop(&mut self) {
        for access in &mut self.accesses {
            if let Access::Leased { client, .. } = access {
                let _ = client.terminate(GRACE);
            }
        }
    }
}

pub(super) fn give_access(link: usize, ground: &Ground, choices: Choices) -> Result<Access> {
    let the_box = &ground.the_box;
    if link == LINKS - 1 {
        let device = wan(link);
        the_box.ip(&format!(
            "address add {}/24 dev {device}",
            address(link, STATIC)
        ))?;
        the_box.ip(&format!("route add {}", route(link)))?;
        return Ok(Access::Static);
    }
    let program = match (link, choices.dhcpcd) {
        (0, _) => DhcpClient::Udhcpc,
        (_, false) => DhcpClient::Dhclient,
        (_, true) => DhcpClient::Dhcpcd,
    };
    Ok(Access::Leased {
        server: start_server(link, ground, 0)?,
        client: start_client(link, ground, program)?,
        program,
        lease: 0,
    })
}

/// dnsmasq as the ISP's DHCP server, which gives one address. Clients renew every 20 s: RFC 2132 §9.11.
fn start_server(link: usize, ground: &Ground, lease: usize) -> Result<Child> {
    let directory = ground.directory.path();
    let name = format!("dnsmasq-{}", NAMES[link]);
    let given = address(link, LEASES[lease]);
    let leases = directory.join(format!("{name}-{lease}.leases"));
    let line = format!(
        "dnsmasq -k -C /dev/null -p 0 --interface={CUSTOMER} --bind-dynamic --user=root --pid-file= \
         --dhcp-range={given},{given},255.255.255.0,120 --dhcp-option=3,{} --dhcp-option=58,20 \
         --dhcp-authoritative --no-ping --dhcp-leasefile={} --log-facility=- --log-dhcp",
        address(link, 1),
        leases.display()
    );
    program(&ground.isps[link], &line, directory, &name)
}

fn start_client(link: usize, ground: &Ground, client: DhcpClient) -> Result<Child> {
    let directory = ground.directory.path();
    let (device, metric) = (wan(link), metric(link));
    let name = format!("client-{}", NAMES[link]);
    let line = match client {
        DhcpClient::Udhcpc => {
            let script = write_script(directory, "udhcpc.sh", UDHCPC_SCRIPT)?;
            format!(
                "env METRIC={metric} udhcpc -f -i {device} -t 20 -T 1 -A 1 -s {}",
                script.display()
            )
        }
        DhcpClient::Dhclient => {
            let script = write_script(directory, "dhclient.sh", DHCLIENT_SCRIPT)?;
            let leases = directory.join("dhclient.leases");
            format!(
                "dhclient -4 -d --no-pid -e METRIC={metric} -lf {} -sf {} {device}",
                leases.display(),
                script.display()
            )
        }
        DhcpClient::Dhcpcd => return start_dhcpcd(ground, &device, metric, &name),
    };
    program(&ground.the_box, &line, directory, &name)
}

/// Its places under /run and /var/lib are fixed.
fn start_dhcpcd(ground: &Ground, device: &str, metric: usize, name: &str) -> Result<Child> {
    let directory = ground.directory.path();
    let leases = directory.join("dhcpcd");
    std::fs::create_dir_all(&leases).map_err(io_error(format!("making {}", leases.display())))?;
    let configuration = directory.join("dhcpcd.conf");
    let text = format!("{DHCPCD_CONFIGURATION}metric {metric}\n");
    let failed = io_error(format!("writing {}", configuration.display()));
    std::fs::write(&configuration, text).map_err(failed)?;
    let (leases, configuration) = (leases.display(), configuration.display());
    let line = in_own_run(&format!(
        "mount --bind {leases} /var/lib/dhcpcd && exec dhcpcd -B -d -f {configuration} {device}"
    ));
    start_script(&ground.the_box, &line, directory, name)
}

fn write_script(directory: &Path, name: &str, text: &str) -> Result<PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    let path = directory.join(name);
    let failed = || io_error(format!("writing {}", path.display()));
    // A running client may be about to start it: it is never written over.
    if !path.exists() {
        std::fs::write(&path, text).map_err(failed())?;
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).map_err(failed())?;
    }
    Ok(path)
}
