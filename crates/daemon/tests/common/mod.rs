//! What tests of a gateway and of a trunk share: a node with a daemon, and its files.

use std::io::{BufRead, BufReader, Read};
use std::ops::Deref;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anabranch_api::{Client, Paths, Request, Response};
use anabranch_testbed::netns::{Child, Exit, Namespace};
use anabranch_testbed::pins::PinFolder;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::signal::Signal;

/// Of every wait.
pub const DEADLINE: Duration = Duration::from_secs(20);
pub const INSTANCE: &str = "test";

/// A namespace for the daemon, and the folders of its files and pins.
pub struct Node {
    pub namespace: Namespace,
    pub dir: tempfile::TempDir,
    pub pins: PinFolder,
}

impl Deref for Node {
    type Target = Namespace;

    fn deref(&self) -> &Namespace {
        &self.namespace
    }
}

impl Node {
    pub fn new(namespace: Namespace) -> Self {
        Self {
            namespace,
            dir: tempfile::tempdir().unwrap(),
            pins: PinFolder::name("daemon-test"),
        }
    }

    pub fn write_config(&self, text: &str) {
        std::fs::write(self.config(), text).unwrap();
    }

    pub fn config(&self) -> PathBuf {
        self.dir.path().join("anabranch.toml")
    }

    pub fn paths(&self) -> Paths {
        Paths::under(self.dir.path(), &self.pins, INSTANCE).unwrap()
    }

    /// The command of the daemon, as arguments of another program that becomes it.
    pub fn command_under(&self, program: &str, arguments: &[&str], instance: &str) -> Command {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .arg(example("daemon"))
            .args([self.config().as_path(), self.dir.path(), &self.pins])
            .arg(instance);
        command
    }

    /// Starts the daemon and waits until it is ready.
    pub fn start(&self) -> Daemon {
        self.start_under("env", &[])
    }

    pub fn start_under(&self, program: &str, arguments: &[&str]) -> Daemon {
        let notify = self.dir.path().join("notify");
        let _ = std::fs::remove_file(&notify);
        let manager = UnixDatagram::bind(&notify).unwrap();
        manager.set_read_timeout(Some(DEADLINE)).unwrap();
        let mut command = self.command_under(program, arguments, INSTANCE);
        command.env("NOTIFY_SOCKET", &notify).stdout(Stdio::piped());
        let mut child = self.spawn(command).unwrap();
        let mut line = String::new();
        BufReader::new(child.pipes().stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert_eq!(line.trim(), "ready");
        let daemon = Daemon {
            child,
            paths: self.paths(),
            manager,
        };
        assert_eq!(daemon.tells_manager(), "READY=1");
        daemon
    }

    /// Starts a daemon that refuses to start, and returns the one line that says why.
    pub fn refused(&self) -> String {
        self.refused_as(INSTANCE)
    }

    /// The same of another instance.
    pub fn refused_as(&self, instance: &str) -> String {
        let (exit, said) = self.fails(instance);
        assert_eq!(exit, Exit::Code(2), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        said.replace(self.dir.path().to_str().unwrap(), "DIR")
            .trim()
            .to_owned()
    }

    /// Starts a daemon that ends by itself, and returns how it ended and what it wrote to standard error.
    pub fn fails(&self, instance: &str) -> (Exit, String) {
        self.fails_under("env", &[], instance)
    }

    pub fn fails_under(&self, program: &str, arguments: &[&str], instance: &str) -> (Exit, String) {
        let mut command = self.command_under(program, arguments, instance);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = self.spawn(command).unwrap();
        let mut stderr = child.pipes().stderr.take().unwrap();
        let reader = std::thread::spawn(move || {
            let mut said = String::new();
            stderr.read_to_string(&mut said).map(|_| said)
        });
        // A daemon that starts after all never closes its standard error.
        let exit = child.wait(DEADLINE).unwrap().expect("ended in time");
        (exit, reader.join().unwrap().unwrap())
    }

    /// Whether an instance has claimed a device of the node.
    pub fn claims(&self, device: &str) -> bool {
        claim(self, self.dir.path(), device).exists()
    }
}

/// A daemon that runs.
pub struct Daemon {
    pub child: Child,
    paths: Paths,
    /// The service manager's end.
    manager: UnixDatagram,
}

impl Daemon {
    pub fn call(&self, request: &Request) -> Response {
        Client::connect(&self.paths.socket())
            .unwrap()
            .call(request)
            .unwrap()
    }

    /// The next message to the service manager.
    pub fn tells_manager(&self) -> String {
        let mut message = [0; 1024];
        let length = self.manager.recv(&mut message).unwrap();
        String::from_utf8_lossy(&message[..length]).into_owned()
    }

    pub fn end(mut self, signal: Signal) -> Exit {
        self.child.signal(signal);
        self.child.wait(DEADLINE).unwrap().expect("ended in time")
    }
}

/// Waits until something holds, and returns after which time.
#[track_caller]
pub fn until(what: &str, holds: impl FnMut() -> bool) -> Duration {
    anabranch_testbed::wait::until(what, DEADLINE, holds)
}

/// A process of its own, as `daemon`. `cargo test` builds the examples beside the tests, `cargo test --test` does not.
pub fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile = test.parent().and_then(Path::parent).unwrap();
    let path = profile.join("examples").join(name);
    assert!(
        path.exists(),
        "run `cargo build --locked --workspace --examples` first"
    );
    path
}

/// The file by which an instance that has its files in `dir` has a device of `node` for its own.
pub fn claim(node: &Namespace, dir: &Path, device: &str) -> PathBuf {
    let namespace = node.run(|| std::fs::metadata("/proc/thread-self/ns/net").unwrap().ino());
    let paths = Paths::under(dir, dir, "any").unwrap();
    paths.claim(namespace.unwrap(), device)
}

/// A file system of its own at a folder, with an option that limits it.
pub struct Limited<'a>(&'a Path);

impl<'a> Limited<'a> {
    pub fn new(folder: &'a Path, limit: &str) -> Self {
        let limited = Self(folder);
        limited.mount(MsFlags::empty(), limit);
        limited
    }

    /// Another limit.
    pub fn set(&self, limit: &str) {
        self.mount(MsFlags::MS_REMOUNT, limit);
    }

    fn mount(&self, flags: MsFlags, limit: &str) {
        let tmpfs = Some("tmpfs");
        mount(tmpfs, self.0, tmpfs, flags, Some(limit)).unwrap();
    }
}

impl Drop for Limited<'_> {
    fn drop(&mut self) {
        let _ = umount2(self.0, MntFlags::MNT_DETACH);
    }
}
