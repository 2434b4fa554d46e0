//! A command under the restrictions of a systemd unit, without systemd: `confined UNIT DIR COMMAND…`. DIR stands for the
//! unit's runtime and configuration directories.
//!
//! What systemd would do to the process is done here as systemd.exec(5) tells it: mounts, capabilities, and filters of
//! system calls, whose sets `systemd-analyze` names. A key that is neither done here nor known to concern other things
//! than the process is refused, so that a test of the unit is one of all of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail, ensure};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::{Mode, umask};
use seccompiler::SeccompCmpOp::{MaskedEq, Ne};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

/// About the manager's doings, not the process's rights; and what a test has no use for: keys, shared memory, clocks'
/// devices (none are left), real-time priorities (whose calls the filter leaves out).
const ELSEWHERE: &[&str] = &[
    "Type",
    "ExecStart",
    "ExecReload",
    "ExecStop",
    "RuntimeDirectory",
    "RuntimeDirectoryMode",
    "RuntimeDirectoryPreserve",
    "Restart",
    "RestartSec",
    "RestartPreventExitStatus",
    "KeyringMode",
    "RemoveIPC",
    "ProtectClock",
    "DevicePolicy",
    "ProtectKernelModules",
    "RestrictRealtime",
];
/// Numbers of the native calls.
const NUMBERS: &str = "/usr/include/x86_64-linux-gnu/asm/unistd_64.h";
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
/// Bits of `mmap` and `mprotect`.
const EXECUTED: u64 = libc::PROT_EXEC as u64;
const WRITTEN: u64 = libc::PROT_WRITE as u64;

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [unit, dir, command, arguments @ ..] = &arguments[..] else {
        bail!("usage: confined UNIT DIR COMMAND…");
    };
    let unit = Unit::read(unit)?;
    let calls = unit.calls()?;
    // It may be where the process cannot look.
    let executable = File::open(command).with_context(|| format!("open {command}"))?;
    fcntl(&executable, FcntlArg::F_SETFD(FdFlag::empty()))?;
    unit.mounts(Path::new(dir)).context("mounts")?;
    unit.bound_capabilities()?;
    unit.filter(calls).context("filters of system calls")?;
    let path = format!("/proc/self/fd/{}", executable.as_raw_fd());
    Err(Command::new(path).args(arguments).exec()).context("exec")
}

/// The section `[Service]`.
struct Unit(Vec<(String, String)>);

impl Unit {
    fn read(path: &str) -> anyhow::Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("read {path}"))?;
        let service = text.split("[Service]\n").nth(1).context("[Service]")?;
        let lines = service.split("\n[").next().unwrap_or("").lines();
        let pairs = lines
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .map(|line| line.split_once('=').context(line.to_owned()))
            .map(|pair| pair.map(|(key, value)| (key.to_owned(), value.to_owned())));
        let unit = Self(pairs.collect::<anyhow::Result<_>>()?);
        for (key, value) in &unit.0 {
            unit.expect(key, value)?;
        }
        Ok(unit)
    }

    /// Whether this program knows what is asked.
    fn expect(&self, key: &str, value: &str) -> anyhow::Result<()> {
        let known = match key {
            "CapabilityBoundingSet" | "SystemCallFilter" | "RestrictAddressFamilies" => true,
            "SystemCallErrorNumber" => value == "ENOSYS",
            "SystemCallArchitectures" => value == "native",
            "UMask" => value == "0077",
            "ProtectSystem" => value == "strict",
            "ProtectProc" => value == "invisible",
            "NoNewPrivileges"
            | "RestrictNamespaces"
            | "RestrictSUIDSGID"
            | "LockPersonality"
            | "MemoryDenyWriteExecute"
            | "ProtectHome"
            | "ProtectHostname"
            | "ProtectControlGroups"
            | "ProtectKernelLogs"
            | "PrivateDevices"
            | "PrivateTmp" => value == "yes",
            other => ELSEWHERE.contains(&other),
        };
        ensure!(known, "{key}={value}: unknown here");
        Ok(())
    }

    fn has(&self, key: &str) -> bool {
        self.0.iter().any(|(known, _)| known == key)
    }

    fn words(&self, key: &str) -> Vec<&str> {
        let values = self.0.iter().filter(|(known, _)| known == key);
        values
            .flat_map(|(_, value)| value.split_whitespace())
            .collect()
    }

    // ---- what it can see and write

    fn mounts(&self, dir: &Path) -> anyhow::Result<()> {
        unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWUTS)?;
        change("/", MsFlags::MS_REC | MsFlags::MS_SLAVE)?;
        let kept = OwnedFd::from(File::open(dir)?);
        if self.has("PrivateTmp") {
            ["/tmp", "/var/tmp"].iter().try_for_each(|tmp| fresh(tmp))?;
        }
        if self.has("ProtectHome") {
            let homes = ["/home", "/root", "/run/user"];
            let there = homes.iter().filter(|home| Path::new(home).exists());
            there.copied().try_for_each(fresh)?;
        }
        if self.has("PrivateDevices") {
            private_devices()?;
        }
        if self.has("ProtectProc") {
            let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
            mount(
                Some("proc"),
                "/proc",
                Some("proc"),
                flags,
                Some("hidepid=invisible"),
            )?;
        }
        if self.has("ProtectKernelLogs") {
            bind("/dev/null", "/proc/kmsg")?;
        }
        fs::create_dir_all(dir)?;
        let dir = dir.to_str().context("DIR")?;
        bind(&format!("/proc/self/fd/{}", kept.as_raw_fd()), dir)?;
        self.read_only(dir)
    }

    /// All but what systemd leaves: devices, and the file systems of the kernel.
    fn read_only(&self, dir: &str) -> anyhow::Result<()> {
        let mounts = fs::read_to_string("/proc/self/mounts")?;
        let points: BTreeSet<&str> = mounts
            .lines()
            .filter_map(|line| line.split(' ').nth(1))
            .collect();
        let is_below = |point: &str, top: &str| Path::new(point).starts_with(top);
        let private = ["/tmp", "/var/tmp", "/dev", "/proc", "/sys", dir];
        for point in points {
            let is_left = private.iter().any(|top| is_below(point, top));
            let is_cgroup = self.has("ProtectControlGroups") && is_below(point, "/sys/fs/cgroup");
            if !is_left || is_cgroup {
                let flags = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY;
                change(point, flags).with_context(|| format!("{point} read-only"))?;
            }
        }
        Ok(())
    }

    // ---- what it may do

    fn bound_capabilities(&self) -> anyhow::Result<()> {
        umask(Mode::from_bits_truncate(0o077));
        let kept = self.words("CapabilityBoundingSet");
        let kept: Vec<String> = kept
            .iter()
            .map(|name| name.trim_start_matches("CAP_").to_lowercase())
            .map(|name| format!("+{name}"))
            .collect();
        let dropped = capabilities_but(&kept)?;
        for capability in dropped {
            // SAFETY: takes and returns integers.
            let done = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
            ensure!(done == 0, "drop capability {capability}");
        }
        Ok(())
    }

    /// By number, of those this kernel's headers know.
    fn calls(&self) -> anyhow::Result<BTreeSet<i64>> {
        let numbers = numbers()?;
        let mut allowed = set_of("@default")?;
        for line in self.0.iter().filter(|(key, _)| key == "SystemCallFilter") {
            let (is_removed, words) = match line.1.strip_prefix('~') {
                Some(words) => (true, words),
                None => (false, line.1.as_str()),
            };
            for word in words.split_whitespace() {
                let named = set_of(word)?;
                match is_removed {
                    true => allowed.retain(|call| !named.contains(call)),
                    false => allowed.extend(named),
                }
            }
        }
        let numbered = allowed.iter().filter_map(|call| numbers.get(call));
        Ok(numbered.copied().collect())
    }

    fn filter(&self, calls: BTreeSet<i64>) -> anyhow::Result<()> {
        let mut allowed: Rules = calls.into_iter().map(|call| (call, Vec::new())).collect();
        if self.has("MemoryDenyWriteExecute") {
            allowed.insert(libc::SYS_mmap, rules(2, not_both(WRITTEN, EXECUTED))?);
            allowed.insert(libc::SYS_mprotect, rules(2, vec![(MaskedEq(EXECUTED), 0)])?);
            allowed.remove(&libc::SYS_pkey_mprotect);
        }
        let errno = |errno: i32| SeccompAction::Errno(errno.cast_unsigned());
        let refused = self.refused()?;
        let families = self.families()?;
        apply(refused, SeccompAction::Allow, errno(libc::EPERM))?;
        apply(families, SeccompAction::Allow, errno(libc::EAFNOSUPPORT))?;
        apply(allowed, errno(libc::ENOSYS), SeccompAction::Allow)
    }

    fn refused(&self) -> anyhow::Result<Rules> {
        let mut refused = Rules::new();
        if self.has("RestrictNamespaces") {
            let kinds = [
                libc::CLONE_NEWUSER,
                libc::CLONE_NEWNS,
                libc::CLONE_NEWNET,
                libc::CLONE_NEWPID,
                libc::CLONE_NEWIPC,
                libc::CLONE_NEWUTS,
                libc::CLONE_NEWCGROUP,
            ]
            .map(|kind| (MaskedEq(kind as u64), kind as u64));
            refused.insert(libc::SYS_clone, rules(0, kinds.clone().to_vec())?);
            refused.insert(libc::SYS_unshare, rules(0, kinds.to_vec())?);
            refused.insert(libc::SYS_setns, Vec::new());
        }
        if self.has("LockPersonality") {
            refused.insert(libc::SYS_personality, rules(0, vec![(Ne, 0)])?);
        }
        if self.has("RestrictSUIDSGID") {
            let bits =
                [libc::S_ISUID, libc::S_ISGID].map(|bit| (MaskedEq(bit.into()), u64::from(bit)));
            for (call, mode) in [
                #[cfg(target_arch = "x86_64")]
                (libc::SYS_chmod, 1),
                (libc::SYS_fchmod, 1),
                (libc::SYS_fchmodat, 2),
                #[cfg(target_arch = "x86_64")]
                (libc::SYS_mkdir, 1),
                (libc::SYS_mkdirat, 2),
            ] {
                refused.insert(call, rules(mode, bits.clone().to_vec())?);
            }
        }
        Ok(refused)
    }

    fn families(&self) -> anyhow::Result<Rules> {
        let allowed = self.words("RestrictAddressFamilies");
        let numbers = allowed.iter().map(|name| match *name {
            "AF_UNIX" => Ok(libc::AF_UNIX),
            "AF_INET" => Ok(libc::AF_INET),
            "AF_INET6" => Ok(libc::AF_INET6),
            "AF_NETLINK" => Ok(libc::AF_NETLINK),
            "AF_PACKET" => Ok(libc::AF_PACKET),
            other => bail!("{other}: unknown here"),
        });
        let is_other = numbers.map(|family| Ok(condition(0, Ne, u64::try_from(family?)?)?));
        let rule = SeccompRule::new(is_other.collect::<anyhow::Result<_>>()?)?;
        Ok([(libc::SYS_socket, vec![rule])].into())
    }
}

// ---- mounts

fn change(point: &str, flags: MsFlags) -> nix::Result<()> {
    mount(None::<&str>, point, None::<&str>, flags, None::<&str>)
}

fn fresh(point: &str) -> nix::Result<()> {
    let tmpfs = Some("tmpfs");
    mount(tmpfs, point, tmpfs, MsFlags::empty(), Some("mode=0700"))
}

fn bind(from: &str, to: &str) -> nix::Result<()> {
    let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
    mount(Some(from), to, None::<&str>, flags, None::<&str>)
}

fn private_devices() -> anyhow::Result<()> {
    let kept = DEVICES.map(|name| File::open(format!("/dev/{name}")).map(|file| (name, file)));
    let kept: Vec<(&str, File)> = kept.into_iter().flatten().collect();
    fresh("/dev")?;
    for (name, file) in kept {
        let path = format!("/dev/{name}");
        File::create(&path)?;
        bind(&format!("/proc/self/fd/{}", file.as_raw_fd()), &path)?;
    }
    Ok(())
}

// ---- capabilities

/// The numbers of all but `kept`, as `setpriv` names them.
fn capabilities_but(kept: &[String]) -> anyhow::Result<Vec<u64>> {
    let output = Command::new("setpriv").arg("--list-caps").output()?;
    let names = String::from_utf8(output.stdout)?;
    let known = |name: &String| names.lines().any(|known| known == &name[1..]);
    ensure!(kept.iter().all(known), "{kept:?} of {names}");
    let dropped = (0..).zip(names.lines());
    let dropped = dropped.filter(|(_, name)| !kept.contains(&format!("+{name}")));
    Ok(dropped.map(|(number, _)| number).collect())
}

// ---- system calls

fn numbers() -> anyhow::Result<BTreeMap<String, i64>> {
    let header = fs::read_to_string(NUMBERS).context(NUMBERS)?;
    let lines = header
        .lines()
        .filter_map(|line| line.strip_prefix("#define __NR_")?.split_once(' '));
    Ok(lines
        .filter_map(|(name, number)| Some((name.to_owned(), number.trim().parse().ok()?)))
        .collect())
}

/// The names of a set, and of the sets in it; a call is a set of one.
fn set_of(name: &str) -> anyhow::Result<BTreeSet<String>> {
    if !name.starts_with('@') {
        return Ok([name.to_owned()].into());
    }
    let output = Command::new("systemd-analyze")
        .args(["syscall-filter", "--no-pager", name])
        .output()?;
    let text = String::from_utf8(output.stdout)?;
    let members = text.lines().skip(1).map(str::trim);
    let members: Vec<&str> = members
        .filter(|member| !member.is_empty() && !member.starts_with('#'))
        .collect();
    ensure!(
        !members.is_empty(),
        "{name}: systemd-analyze knows no such set"
    );
    let mut names = BTreeSet::new();
    for member in members {
        names.extend(set_of(member)?);
    }
    Ok(names)
}

fn not_both(one: u64, other: u64) -> Vec<(SeccompCmpOp, u64)> {
    [0, one, other]
        .map(|bits| (MaskedEq(one | other), bits))
        .to_vec()
}

/// One rule for each of several comparisons of an argument.
fn rules(argument: u8, comparisons: Vec<(SeccompCmpOp, u64)>) -> anyhow::Result<Vec<SeccompRule>> {
    let rules = comparisons.into_iter().map(|(compare, value)| {
        Ok(SeccompRule::new(vec![condition(
            argument, compare, value,
        )?])?)
    });
    rules.collect()
}

fn condition(
    argument: u8,
    compare: SeccompCmpOp,
    value: u64,
) -> Result<SeccompCondition, seccompiler::BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, compare, value)
}

/// `otherwise` for what no rule matches. No new privileges come with it.
fn apply(rules: Rules, otherwise: SeccompAction, matched: SeccompAction) -> anyhow::Result<()> {
    let arch = std::env::consts::ARCH.try_into()?;
    let filter = SeccompFilter::new(rules, otherwise, matched, arch)?;
    let program: BpfProgram = filter.try_into()?;
    seccompiler::apply_filter(&program).map_err(io::Error::other)?;
    Ok(())
}
