//! Network namespaces that last as long as their value.
//!
//! A [`Namespace`] is named (`ip netns` and `tcpdump` can reach it) and its name carries the process that made it, so
//! the first namespace of a process removes those whose process is gone. Code runs inside on a thread that enters
//! with setns(2), which leaves the mounts alone: `ip netns exec` would mount another /sys over bpffs and hide its pins.

mod child;
mod counter;
mod device;
mod socket;

pub use child::{Child, Exit};
pub use device::Counters;

use std::fs::File;
use std::io::Write;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};
use std::{io, thread};

use nix::sched::{CloneFlags, setns};

/// Where `ip netns` keeps the names (iproute2, `NETNS_RUN_DIR`).
const RUN_DIR: &str = "/run/netns";
pub(crate) const PREFIX: &str = "anabranch-";

/// Why something could not be done in a namespace.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum NetnsError {
    #[error("network namespaces need root (CAP_SYS_ADMIN and CAP_NET_ADMIN): run as root")]
    Privilege,
    #[error("cannot run `{command}`: {source}; is it installed?")]
    Missing { command: String, source: io::Error },
    #[error("`{command}` in namespace {namespace} failed ({status}): {stderr}")]
    Command {
        namespace: String,
        command: String,
        status: ExitStatus,
        stderr: String,
    },
    #[error("{what} in namespace {namespace}: {source}")]
    Io {
        namespace: String,
        what: String,
        source: io::Error,
    },
    #[error("device {device} in namespace {namespace}: `ip` did not report {what}")]
    Report {
        namespace: String,
        device: String,
        what: &'static str,
    },
}

/// Of what is done in a namespace.
pub type Result<T, E = NetnsError> = std::result::Result<T, E>;

/// Whether this process may make namespaces.
///
/// # Errors
/// [`NetnsError::Privilege`] if it may not.
pub fn check_privilege() -> Result<()> {
    match nix::unistd::geteuid().is_root() {
        true => Ok(()),
        false => Err(NetnsError::Privilege),
    }
}

/// A network namespace, removed on drop together with the devices in it. Processes started by [`Namespace::spawn`]
/// end with their own [`Child`] value.
#[derive(Debug)]
pub struct Namespace {
    name: String,
    file: OwnedFd,
}

impl Namespace {
    /// Creates `anabranch-<pid>-<n>-<label>` with its loopback device up. `label` is for people.
    pub fn create(label: &str) -> Result<Self> {
        static STALE: Once = Once::new();
        static NEXT: AtomicU32 = AtomicU32::new(0);
        STALE.call_once(remove_stale);
        check_privilege()?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}{}-{number}-{label}", std::process::id());
        let mut add = Command::new("ip");
        add.args(["netns", "add", &name]);
        output(add, &name, "")?;
        let path = Path::new(RUN_DIR).join(&name);
        let file = File::open(&path).map_err(|source| NetnsError::Io {
            namespace: name.clone(),
            what: format!("opening {}", path.display()),
            source,
        })?;
        let namespace = Self {
            name,
            file: file.into(),
        };
        namespace.ip("link set lo up")?;
        Ok(namespace)
    }

    /// The name `ip netns` knows it by.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The file that stands for the namespace.
    pub fn path(&self) -> PathBuf {
        Path::new(RUN_DIR).join(&self.name)
    }

    /// Moves the calling thread inside until the guard is dropped. Threads it starts meanwhile stay inside for good.
    pub fn enter(&self) -> Result<Entered> {
        let previous = File::open("/proc/thread-self/ns/net")
            .map_err(|source| self.failure("opening the thread's own namespace", source))?;
        setns(&self.file, CloneFlags::CLONE_NEWNET)
            .map_err(|errno| self.failure("entering", errno.into()))?;
        Ok(Entered {
            previous: previous.into(),
            this_thread: PhantomData,
        })
    }

    /// Runs `work` inside, on a thread of its own, and hands its result back. A panic of `work` goes on in the caller.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        let inside = || -> Result<T> {
            setns(&self.file, CloneFlags::CLONE_NEWNET)
                .map_err(|errno| self.failure("entering", errno.into()))?;
            Ok(work())
        };
        thread::scope(|scope| scope.spawn(inside).join())
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Starts `command` inside. The process is killed when the value is dropped or this process ends.
    pub fn spawn(&self, command: Command) -> Result<Child> {
        let shown = shown(&command);
        Child::start(self.inside(command)?).map_err(|source| NetnsError::Missing {
            command: shown,
            source,
        })
    }

    /// Runs `program` inside to its end and returns what it printed.
    pub fn exec(&self, program: &str, args: &[&str]) -> Result<String> {
        self.exec_with_input(program, args, "")
    }

    /// As [`Namespace::exec`], with `input` as standard input.
    pub fn exec_with_input(&self, program: &str, args: &[&str], input: &str) -> Result<String> {
        let mut command = Command::new(program);
        command.args(args);
        output(self.inside(command)?, &self.name, input)
    }

    /// Runs `ip` with the words of `line`, for instance `ip("route add default via 192.0.2.1")`.
    pub fn ip(&self, line: &str) -> Result<String> {
        self.exec("ip", &line.split_whitespace().collect::<Vec<_>>())
    }

    /// Runs `tc` with the words of `line`.
    pub fn tc(&self, line: &str) -> Result<String> {
        self.exec("tc", &line.split_whitespace().collect::<Vec<_>>())
    }

    /// Loads a script of nftables.
    pub fn nft(&self, script: &str) -> Result<()> {
        self.exec_with_input("nft", &["-f", "-"], script).map(drop)
    }

    /// Sets a sysctl by its path under /proc/sys, for instance `net/ipv4/ip_forward`.
    pub fn set_sysctl(&self, key: &str, value: &str) -> Result<()> {
        let path = Path::new("/proc/sys").join(key);
        self.run(|| std::fs::write(&path, value))?
            .map_err(|source| {
                self.failure(&format!("writing {value} to {}", path.display()), source)
            })
    }

    /// Switches IPv6 of the devices that are made from here on. Where it is on, they take part in neighbour discovery alone:
    /// their link-local addresses hold at once, and routers are neither asked nor believed (RFC 4861 §6.3, RFC 4862).
    pub fn set_ipv6(&self, on: bool) -> Result<()> {
        for scope in ["all", "default"] {
            let values = [
                ("disable_ipv6", !on),
                ("accept_dad", false),
                ("accept_ra", false),
                ("autoconf", false),
                ("router_solicitations", false),
            ];
            for (key, value) in values {
                let value = u8::from(value).to_string();
                self.set_sysctl(&format!("net/ipv6/conf/{scope}/{key}"), &value)?;
            }
        }
        Ok(())
    }

    /// The value of a sysctl, without the newline.
    pub fn sysctl(&self, key: &str) -> Result<String> {
        let path = Path::new("/proc/sys").join(key);
        self.run(|| std::fs::read_to_string(&path))?
            .map(|value| value.trim_end().to_owned())
            .map_err(|source| self.failure(&format!("reading {}", path.display()), source))
    }

    /// Makes `command` enter the namespace between fork and exec.
    fn inside(&self, mut command: Command) -> Result<Command> {
        let file = self
            .file
            .try_clone()
            .map_err(|source| self.failure("duplicating its descriptor", source))?;
        // SAFETY: setns is a plain system call; nothing is allocated or locked between fork and exec.
        unsafe {
            command
                .pre_exec(move || setns(&file, CloneFlags::CLONE_NEWNET).map_err(io::Error::from));
        }
        Ok(command)
    }

    fn failure(&self, what: &str, source: io::Error) -> NetnsError {
        NetnsError::Io {
            namespace: self.name.clone(),
            what: what.to_owned(),
            source,
        }
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        remove(&self.path());
    }
}

/// The calling thread is inside a namespace while this lives.
#[derive(Debug)]
pub struct Entered {
    previous: OwnedFd,
    /// setns concerns one thread: the guard must not leave it.
    this_thread: PhantomData<*const ()>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        if let Err(errno) = setns(&self.previous, CloneFlags::CLONE_NEWNET) {
            // Going on in the wrong namespace would be worse than ending.
            panic!(
                "cannot return to namespace {:?}: {errno}",
                self.previous.as_raw_fd()
            );
        }
    }
}

/// Removes the namespaces that processes since ended have left behind. Runs by itself before the first
/// [`Namespace::create`] of a process.
pub fn remove_stale() {
    remove_ownerless(Path::new(RUN_DIR), PREFIX, remove);
}

/// Lets `remove` take away what stands in `folder` under names of `prefix` and a process that is gone.
pub fn remove_ownerless(folder: &Path, prefix: &str, remove: impl Fn(&Path)) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| owner(name, prefix));
        if owner.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            remove(&entry.path());
        }
    }
}

/// The process whose id stands behind the prefix, before a dash.
fn owner(name: &str, prefix: &str) -> Option<u32> {
    let (pid, _) = name.strip_prefix(prefix)?.split_once('-')?;
    pid.parse().ok()
}

/// Takes the name away; the namespace ends with the last process inside. What is already gone is no error.
fn remove(path: &Path) {
    let _ = nix::mount::umount2(path, nix::mount::MntFlags::MNT_DETACH);
    let _ = std::fs::remove_file(path);
}

fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}

fn output(mut command: Command, namespace: &str, input: &str) -> Result<String> {
    let shown = shown(&command);
    let missing = |source| NetnsError::Missing {
        command: shown.clone(),
        source,
    };
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().map_err(missing)?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that does not read its input says why on stderr.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().map_err(missing)?;
    if !output.status.success() {
        return Err(NetnsError::Command {
            namespace: namespace.to_owned(),
            command: shown,
            status: output.status,
            stderr: String::from_utf8_lossy(&output.stderr)
                .trim()
                .replace('\n', "; "),
        });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::owner;

    #[test]
    fn a_name_tells_the_process_behind_its_prefix() {
        assert_eq!(owner("lab4711-0", "lab"), Some(4711));
        let others = [
            "default",
            "lab",
            "lab-0",
            "lab4711",
            "laboratory-1",
            "bench-1-0",
        ];
        for other in others {
            assert_eq!(owner(other, "lab"), None, "{other}");
        }
    }
}
