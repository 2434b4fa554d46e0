//! A client, the gateway, and two links to one server, in network namespaces; and the daemon as a process there.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anabranch_api::Paths;
use anabranch_api::{Client, LinkStatus, Request, Response, Status};
use anabranch_testbed::netns::{Child, Exit, Namespace};
use nix::sys::signal::Signal;

use crate::common::{claim, example};

pub const DEADLINE: Duration = Duration::from_secs(20);
pub const LOOK_AGAIN: Duration = Duration::from_millis(5);
pub const SERVER: &str = "192.0.2.1:80";
pub const CONFIG: &str = r#"
lan = ["lan0"]
policy = "rr"
link.fiber = { device = "wan0", down = "100mbit", up = "100mbit" }
link.lte = { device = "wan1", down = "100mbit", up = "100mbit" }
probe.targets = ["tcp:192.0.2.1:80"]
"#;
pub const INSTANCE: &str = "test";

/// A LAN host, the box, and the internet, which is also both links' gateway and the server.
pub struct Rig {
    pub client: Namespace,
    pub gateway: Namespace,
    pub internet: Namespace,
    pub dir: tempfile::TempDir,
    pub pins: PathBuf,
}

impl Rig {
    pub fn new() -> Self {
        let rig = Self::between(["203.0.113", "198.51.100"], "192.168.1");
        rig.write_config(CONFIG);
        rig.serve();
        rig
    }

    /// Networks of 24 bits each: of the two links, and of the LAN.
    pub fn between(links: [&str; 2], lan: &str) -> Self {
        let rig = Self {
            client: Namespace::create("client").unwrap(),
            gateway: Namespace::create("gw").unwrap(),
            internet: Namespace::create("inet").unwrap(),
            dir: tempfile::tempdir().unwrap(),
            pins: PathBuf::from(format!("/sys/fs/bpf/anabranch-daemon-test-{}", unique())),
        };
        rig.internet.ip("addr add 192.0.2.1/32 dev lo").unwrap();
        // The links first, so that both ends of each have one number: else the kernel takes the device for a layer above
        // the other, and tells of its carrier sooner than of a network card's (linux/net/core/link_watch.c).
        rig.link("wan0", links[0], 100);
        rig.link("wan1", links[1], 200);
        cable(
            (&rig.gateway, "lan0", &format!("{lan}.1/24")),
            (&rig.client, "eth0", &format!("{lan}.20/24")),
        );
        let default = format!("route add default via {lan}.1");
        rig.client.ip(&default).unwrap();
        rig
    }

    pub fn link(&self, device: &str, net: &str, metric: u32) {
        let far = format!("{device}-far");
        cable(
            (&self.gateway, device, &format!("{net}.2/24")),
            (&self.internet, &far, &format!("{net}.1/24")),
        );
        self.gateway
            .ip(&format!("route add default via {net}.1 metric {metric}"))
            .unwrap();
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

    /// An echo server, for as long as the test's process lives.
    pub fn serve(&self) {
        let listener = self
            .internet
            .run(|| TcpListener::bind(SERVER).unwrap())
            .unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                std::thread::spawn(move || {
                    std::io::copy(&mut stream.try_clone().unwrap(), &mut { stream })
                });
            }
        });
        let socket = self
            .internet
            .run(|| UdpSocket::bind(SERVER).unwrap())
            .unwrap();
        std::thread::spawn(move || {
            let mut buffer = [0; 2048];
            while let Ok((length, from)) = socket.recv_from(&mut buffer) {
                let _ = socket.send_to(&buffer[..length], from);
            }
        });
    }

    /// A UDP socket of the LAN host, connected to the server.
    pub fn udp(&self) -> UdpSocket {
        let socket = self
            .client
            .run(|| UdpSocket::bind("0.0.0.0:0").unwrap())
            .unwrap();
        socket.connect(SERVER).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(2)))
            .unwrap();
        socket
    }

    /// A connection of the LAN host to the server.
    pub fn connect(&self) -> std::io::Result<TcpStream> {
        let server: SocketAddr = SERVER.parse().unwrap();
        let stream = self
            .client
            .run(|| TcpStream::connect_timeout(&server, DEADLINE))
            .unwrap()?;
        stream.set_read_timeout(Some(DEADLINE))?;
        Ok(stream)
    }

    /// The daemon's command as an argument of another.
    fn command_under(&self, program: &str, arguments: &[&str], instance: &str) -> Command {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .arg(example("daemon"))
            .args([self.config().as_path(), self.dir.path(), &self.pins])
            .arg(instance);
        command
    }

    pub fn start(&self) -> Daemon {
        self.start_under("env", &[])
    }

    /// Starts it by another program, which becomes it.
    pub fn start_under(&self, program: &str, arguments: &[&str]) -> Daemon {
        let notify = self.dir.path().join("notify");
        let _ = std::fs::remove_file(&notify);
        let manager = UnixDatagram::bind(&notify).unwrap();
        manager.set_read_timeout(Some(DEADLINE)).unwrap();
        let mut command = self.command_under(program, arguments, INSTANCE);
        command.env("NOTIFY_SOCKET", &notify).stdout(Stdio::piped());
        let mut child = self.gateway.spawn(command).unwrap();
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

    /// Starts it with its log in a file.
    pub fn start_logging(&self) -> Daemon {
        let log = format!("exec \"$@\" 2>'{}'", self.log().display());
        self.start_under("sh", &["-c", &log, "sh"])
    }

    pub fn log(&self) -> PathBuf {
        self.dir.path().join("log")
    }

    /// Starts a daemon that refuses to, and returns the one line it says why in.
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

    /// Starts a daemon that ends by itself, and returns how, and what it said.
    pub fn fails(&self, instance: &str) -> (Exit, String) {
        self.fails_under("env", &[], instance)
    }

    pub fn fails_under(&self, program: &str, arguments: &[&str], instance: &str) -> (Exit, String) {
        let mut command = self.command_under(program, arguments, instance);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = self.gateway.spawn(command).unwrap();
        let mut said = String::new();
        let mut stderr = child.pipes().stderr.take().unwrap();
        stderr.read_to_string(&mut said).unwrap();
        (child.wait(DEADLINE).unwrap().expect("ended in time"), said)
    }

    /// Whether an instance has a device of the gateway for its own.
    pub fn claims(&self, device: &str) -> bool {
        claim(&self.gateway, self.dir.path(), device).exists()
    }

    /// Everything of the host that the daemon may change.
    pub fn fingerprint(&self) -> String {
        let of = |program: &str, arguments: &[&str]| self.gateway.exec(program, arguments).unwrap();
        let forward = self.gateway.sysctl("net/ipv4/ip_forward").unwrap();
        let pins = self.pins.join(INSTANCE).exists();
        [
            of("ip", &["rule"]),
            of("ip", &["-4", "route", "show", "table", "all"]),
            of("nft", &["--stateless", "list", "ruleset"]),
            forward,
            pins.to_string(),
        ]
        .join("\n")
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.pins);
    }
}

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

    pub fn status(&self) -> Status {
        match self.call(&Request::Status) {
            Response::Status(status) => *status,
            other => panic!("{other:?}"),
        }
    }

    pub fn link(&self, name: &str) -> LinkStatus {
        self.status()
            .links
            .into_iter()
            .find(|link| link.name == name)
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

pub fn unique() -> String {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    format!(
        "{}-{}",
        std::process::id(),
        NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
    )
}

pub fn cable(near: (&Namespace, &str, &str), far: (&Namespace, &str, &str)) {
    near.0.veth(near.1, far.0, far.1).unwrap();
    for (namespace, device, address) in [near, far] {
        namespace
            .ip(&format!("addr add {address} dev {device}"))
            .unwrap();
        namespace.ip(&format!("link set {device} up")).unwrap();
    }
}

pub fn echo(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.write_all(b"hello")?;
    let mut answer = [0; 5];
    stream.read_exact(&mut answer)?;
    assert_eq!(&answer, b"hello");
    Ok(())
}

pub fn ask(socket: &UdpSocket) -> std::io::Result<()> {
    socket.send(b"hello")?;
    let mut answer = [0; 16];
    let length = socket.recv(&mut answer)?;
    assert_eq!(&answer[..length], b"hello");
    Ok(())
}

pub fn until(what: &str, holds: impl Fn() -> bool) -> Duration {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < DEADLINE, "{what} did not come true");
        std::thread::sleep(LOOK_AGAIN);
    }
    begun.elapsed()
}
