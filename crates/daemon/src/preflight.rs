//! Checks whether this host can run the configuration, before anything is changed.

use std::path::Path;

use anabranch_api::Finding;
use anyhow::Context;
use nix::sys::utsname;

use crate::config::{Config, Configuration};
use crate::error::{BadInput, Error};
use crate::neighbours;
use crate::observe::{self, Netlink, Snapshot};
use crate::plane;
use crate::privileges::{CAP_BPF, CAP_NET_ADMIN, CAP_NET_RAW, CAP_PERFMON};
use crate::{member, services, trunk};

/// The kernel of Debian 12. The helpers that the programs call need 5.17; the verifier is tested with this version.
const KERNEL_MIN: (u32, u32) = (6, 1);
const CAPABILITIES: [(u32, &str); 4] = [
    (CAP_NET_ADMIN, "CAP_NET_ADMIN"),
    (CAP_NET_RAW, "CAP_NET_RAW"),
    (CAP_PERFMON, "CAP_PERFMON"),
    (CAP_BPF, "CAP_BPF"),
];
/// Memory for one destination prefix, which is reserved at the start.
const PREFIX_BYTES: u64 = 460;
/// Present on kernels built with CONFIG_BPF_SYSCALL.
const BPF_SETTING: &str = "/proc/sys/kernel/unprivileged_bpf_disabled";

/// Checks the configuration and the host for `anabranch check`, and surveys other programs beside the gateway.
pub fn check(path: &Path) -> Result<(Configuration, Vec<Finding>), Error> {
    let config = Configuration::load(path)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("start the runtime")?;
    let found = runtime.block_on(async {
        check_host(&config).await?;
        match &config.gateway {
            Some(config) => check_gateway(config).await,
            None => Ok(Vec::new()),
        }
    })?;
    Ok((config, found))
}

async fn check_gateway(config: &Config) -> Result<Vec<Finding>, Error> {
    let netlink = Netlink::connect()?;
    let host = netlink.snapshot().await?;
    observe::check(config, &host)?;
    let mut neighbours = neighbours::Reader::default();
    let found = neighbours.survey(config, &host, Vec::new()).await?;
    neighbours::refuse(config, &found)?;
    Ok(found)
}

/// Checks that kernel and privileges suffice for `config`, that the programs can be attached, and that the devices of a trunk
/// or a member exist. Those of a gateway may appear later. Changes nothing.
pub async fn check_host(config: &Configuration) -> Result<(), Error> {
    kernel(
        utsname::uname()
            .context("uname")?
            .release()
            .to_string_lossy()
            .as_ref(),
    )?;
    if !Path::new(BPF_SETTING).exists() {
        return Err(BadInput::new(
            "kernel: built without BPF (CONFIG_BPF_SYSCALL); use a kernel that has it",
        )
        .into());
    }
    privilege(&std::fs::read_to_string("/proc/self/status").context("read /proc/self/status")?)?;
    if let Some(config) = &config.gateway {
        let text = std::fs::read_to_string("/proc/meminfo").context("read /proc/meminfo")?;
        memory(config.limits.prefixes, &text)?;
    }
    let netlink = Netlink::connect()?;
    if let Some(config) = &config.gateway {
        check_hooks(&netlink.snapshot().await?, &config.devices())?;
    }
    if let Some(config) = &config.services {
        let host = netlink.snapshot().await?;
        services::check(config, &host)?;
        check_hooks(&host, &config.device_names())?;
    }
    if let Some(config) = &config.trunk {
        check_trunk(config, &netlink).await?;
    }
    if let Some(config) = &config.member {
        let host = netlink.snapshot().await?;
        member::check(config, &host)?;
        check_hooks(&host, &config.device_names())?;
    }
    Ok(())
}

/// Checks that the programs can be attached to the devices. A device that has vanished since `host` was read is waited for.
pub(crate) fn check_hooks(host: &Snapshot, devices: &[&str]) -> Result<(), Error> {
    for device in devices.iter().filter_map(|name| host.devices.get(*name)) {
        refusal(anabranch_dataplane::has_room(device.ifindex))?;
    }
    Ok(())
}

/// Only errors that the user can correct are bad input, because systemd does not restart the daemon after these.
fn refusal(room: Result<(), plane::Error>) -> Result<(), Error> {
    match room {
        Ok(()) | Err(plane::Error::NoDevice { .. }) => Ok(()),
        Err(foreign @ plane::Error::IngressQdisc { .. }) => {
            Err(BadInput::new(foreign.to_string()).into())
        }
        Err(error) => Err(anyhow::Error::from(error).into()),
    }
}

/// Checks that the devices of a trunk exist and fit together, and that they have queues if the scheme watches queues.
pub(crate) async fn check_trunk(config: &trunk::Config, netlink: &Netlink) -> Result<(), Error> {
    let snapshot = netlink.snapshot().await?;
    trunk::check(config, &snapshot)?;
    check_hooks(&snapshot, &[&config.device])?;
    if config.scheme.is_dynamic() {
        let queues = trunk::read_queues(netlink).await?;
        trunk::check_queues(config, &trunk::View::derive(config, &snapshot), &queues)?;
    }
    Ok(())
}

fn kernel(release: &str) -> Result<(), BadInput> {
    let (major, minor) = KERNEL_MIN;
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(str::parse::<u32>);
    let version = match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor),
        _ => {
            return Err(BadInput::new(format!(
                "kernel {release}: not a version; {major}.{minor} or newer is needed"
            )));
        }
    };
    if version < KERNEL_MIN {
        return Err(BadInput::new(format!(
            "kernel {release}: too old; {major}.{minor} or newer is needed"
        )));
    }
    Ok(())
}

/// Checks that the table of prefixes takes at most half of the memory. `meminfo` is the text of /proc/meminfo.
fn memory(prefixes: u32, meminfo: &str) -> Result<(), BadInput> {
    let total = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = total.and_then(|total| total.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    let all = kib.map_or(u64::MAX, |kib| kib * 1024);
    let needed = u64::from(prefixes) * PREFIX_BYTES;
    if needed <= all / 2 {
        return Ok(());
    }
    Err(BadInput::new(format!(
        "limits.prefixes = {prefixes}: takes {} MB, more than half of this machine's memory of {} MB; {} prefixes would do",
        needed.div_ceil(1_000_000),
        all / 1_000_000,
        all / 2 / PREFIX_BYTES
    )))
}

/// `status` is the text of /proc/self/status.
fn privilege(status: &str) -> Result<(), BadInput> {
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or(0);
    let absent: Vec<&str> = CAPABILITIES
        .iter()
        .filter(|(bit, _)| effective & (1 << bit) == 0)
        .map(|(_, name)| *name)
        .collect();
    if absent.is_empty() {
        return Ok(());
    }
    Err(BadInput::new(format!(
        "missing privilege {}: run as root",
        absent.join(", ")
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::tests::device;

    #[test]
    fn a_device_that_is_gone_since_it_was_seen_is_waited_for() {
        const GONE: u32 = 1 << 30;
        let mut host = Snapshot::default();
        host.devices.insert("wwan0".into(), device(GONE, &[]));
        check_hooks(&host, &["wwan0"]).unwrap();
    }

    #[test]
    fn only_a_foreign_qdisc_is_the_users_to_mend() {
        let device = || "wwan0".to_owned();
        let foreign = plane::Error::IngressQdisc { device: device() };
        let refused = refusal(Err(foreign)).unwrap_err();
        assert_eq!(refused.exit_code(), 2, "{refused}");
        let passing = plane::Error::Filter {
            device: device(),
            source: std::io::ErrorKind::WouldBlock.into(),
        };
        let failed = refusal(Err(passing)).unwrap_err();
        assert_eq!(failed.exit_code(), 1, "{failed}");
    }

    #[test]
    fn kernels_from_6_1_on_will_do() {
        for release in [
            "6.1.0-28-amd64",
            "6.6.0",
            "6.18.44-fc-v657",
            "7.0-rc1",
            "10.2",
        ] {
            assert_eq!(kernel(release), Ok(()), "{release}");
        }
        for release in ["6.0.13", "5.10.0-28-amd64", "5.15"] {
            let message = kernel(release).unwrap_err().to_string();
            assert_eq!(
                message,
                format!("kernel {release}: too old; 6.1 or newer is needed")
            );
        }
        assert!(kernel("unknown").is_err());
    }

    #[test]
    fn a_table_of_prefixes_leaves_half_of_the_memory() {
        let router = "MemTotal:          62500 kB\nMemFree:           1000 kB\n";
        assert_eq!(memory(8192, router), Ok(()));
        assert_eq!(
            memory(100_000, router).unwrap_err().to_string(),
            "limits.prefixes = 100000: takes 46 MB, more than half of this machine's memory of 64 MB; 69565 prefixes would do"
        );
        assert_eq!(memory(100_000, ""), Ok(()));
    }

    #[test]
    fn a_missing_capability_is_named() {
        assert_eq!(privilege("Name:\tx\nCapEff:\t000001ffffffffff\n"), Ok(()));
        let none = privilege("CapEff:\t0000000000000000\n")
            .unwrap_err()
            .to_string();
        assert_eq!(
            none,
            "missing privilege CAP_NET_ADMIN, CAP_NET_RAW, CAP_PERFMON, CAP_BPF: run as root"
        );
        let no_bpf = privilege(&format!(
            "CapEff:\t{:016x}\n",
            0x1ff_ffff_ffff_u64 & !(1 << 39)
        ))
        .unwrap_err();
        assert_eq!(no_bpf.to_string(), "missing privilege CAP_BPF: run as root");
    }
}
