//! The programs that make traffic and judge it.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anabranch_lab::topology::{Lab, LabSpec, SERVER};
use anabranch_scenario::Families;
use anabranch_testbed::netns::{Child, Exit, Namespace};
use socket2::{Domain, SockAddr, Socket, Type};

use crate::house::{DEADLINE, PAGE_BYTES, SMALL_BYTES, until, until_listening};

/// Runs a program to its end, whatever that is.
pub fn run(namespace: &Namespace, program: &str, words: &[&str]) -> (Exit, String) {
    let mut command = Command::new(program);
    command
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = namespace.spawn(command).unwrap();
    let mut text = String::new();
    child
        .pipes()
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut text)
        .unwrap();
    let exit = child.wait(DEADLINE).unwrap();
    (
        exit.unwrap_or_else(|| panic!("{program} does not end")),
        text,
    )
}

// ---- curl

/// What curl tells of one download.
#[derive(Debug, Clone)]
pub struct Fetched {
    /// The address the server saw, of a download that succeeded.
    pub seen: Result<IpAddr, String>,
}

const TOLD: &str = "%{exitcode}|%{http_code}|%header{x-client}|%{errormsg}\\n";

/// Downloads `count` files one after the other, each over a connection of its own.
pub fn curl(namespace: &Namespace, options: &[&str], bytes: u64, count: usize) -> Vec<Fetched> {
    // The server by a name, as whoever has one family alone reaches it by that.
    let addresses = [Families::V4, Families::V6].map(|families| {
        let spec = LabSpec {
            families,
            ..LabSpec::of_lines(&[])
        };
        spec.server().ip()
    });
    let name = format!("web:80:{},[{}]", addresses[0], addresses[1]);
    let options = [options, &["--resolve", &name]].concat();
    let url = format!("http://web/bytes/{bytes}?[1-{count}]");
    let fetched = curl_url(namespace, &options, &url);
    assert_eq!(fetched.len(), count, "{fetched:?}");
    fetched
}

/// Downloads what a pattern of curl stands for.
pub fn curl_url(namespace: &Namespace, options: &[&str], url: &str) -> Vec<Fetched> {
    let always = [
        "--silent",
        "--output",
        "/dev/null",
        "--max-time",
        "25",
        "--header",
        "Connection: close",
    ];
    let words = [&always, options, &["--write-out", TOLD, url]].concat();
    let (_, text) = run(namespace, "curl", &words);
    text.lines().map(fetched).collect()
}

fn fetched(line: &str) -> Fetched {
    let fields: Vec<&str> = line.splitn(4, '|').collect();
    let seen = match fields[..] {
        ["0", "200", address, _] => address.parse().map_err(|_| line.to_owned()),
        _ => Err(line.to_owned()),
    };
    Fetched { seen }
}

/// The addresses the server saw; every download must have succeeded.
pub fn seen(fetched: &[Fetched]) -> Vec<IpAddr> {
    let failed: Vec<_> = fetched
        .iter()
        .filter_map(|each| each.seen.as_ref().err())
        .collect();
    assert!(
        failed.is_empty(),
        "{} of {} downloads failed: {failed:?}",
        failed.len(),
        fetched.len()
    );
    fetched.iter().flat_map(|each| each.seen.clone()).collect()
}

/// Downloads of pages that go on in the background.
pub struct Downloads {
    done: AtomicUsize,
    stop: AtomicBool,
}

/// Ends the downloads even if the test panics.
struct Stop<'a>(&'a Downloads);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }
}

const BATCH: usize = 5;
pub const CURLS: usize = 6;

impl Downloads {
    /// Lets several curls download batch after batch while `work` goes on, and hands over all they tell.
    pub fn during<T>(lab: &Lab, work: impl FnOnce(&Self) -> T) -> (T, Vec<Fetched>) {
        let downloads = Self {
            done: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
        };
        let sources = lab.client_addresses();
        thread::scope(|scope| {
            let stop = Stop(&downloads);
            let curls: Vec<_> = (0..CURLS)
                .map(|index| sources[index % sources.len()].to_string())
                .map(|source| scope.spawn(|| downloads.repeat(lab, source)))
                .collect();
            downloads.more(CURLS * BATCH);
            let result = work(&downloads);
            drop(stop);
            (
                result,
                curls
                    .into_iter()
                    .flat_map(|curl| curl.join().unwrap())
                    .collect(),
            )
        })
    }

    fn repeat(&self, lab: &Lab, source: String) -> Vec<Fetched> {
        let mut all = Vec::new();
        while !self.stop.load(Ordering::Relaxed) {
            all.extend(curl(
                lab.clients(),
                &["--interface", &source],
                PAGE_BYTES,
                BATCH,
            ));
            self.done.fetch_add(BATCH, Ordering::Relaxed);
        }
        all
    }

    /// Waits until so many more have ended.
    pub fn more(&self, count: usize) {
        let enough = self.done.load(Ordering::Relaxed) + count;
        until(&format!("{count} more downloads"), || {
            self.done.load(Ordering::Relaxed) >= enough
        });
    }
}

// ---- connections that stay

/// A connection to the web server that stays open.
pub struct Visitor(TcpStream);

impl Visitor {
    /// From the first of the clients' addresses.
    pub fn new(lab: &Lab) -> Self {
        let mut one = Self::many(lab, 1);
        one.remove(0)
    }

    pub fn many(lab: &Lab, count: usize) -> Vec<Self> {
        let source = SockAddr::from(SocketAddr::new(lab.client_addresses()[0], 0));
        let connect = || {
            let socket = Socket::new(Domain::for_address(lab.server()), Type::STREAM, None)?;
            socket.bind(&source)?;
            socket.connect_timeout(&SockAddr::from(lab.server()), DEADLINE)?;
            socket.set_read_timeout(Some(DEADLINE))?;
            Ok::<_, io::Error>(Self(socket.into()))
        };
        lab.clients()
            .run(|| (0..count).map(|_| connect().unwrap()).collect())
            .unwrap()
    }

    /// The addresses the server sees when all of them ask at once.
    pub fn ask_all(visitors: &mut [Self]) -> Vec<IpAddr> {
        visitors
            .iter_mut()
            .for_each(|visitor| visitor.send().unwrap());
        visitors
            .iter_mut()
            .map(|visitor| visitor.receive().unwrap())
            .collect()
    }

    /// The local end, as the flow table knows it.
    pub fn local(&self) -> SocketAddr {
        self.0.local_addr().unwrap()
    }

    /// Asks for a small file; returns the address the server saw.
    pub fn ask(&mut self) -> io::Result<IpAddr> {
        self.send()?;
        self.receive()
    }

    fn send(&mut self) -> io::Result<()> {
        let request = format!(
            "GET /bytes/{SMALL_BYTES} HTTP/1.1
Host: {SERVER}

"
        );
        self.0.write_all(request.as_bytes())
    }

    fn receive(&mut self) -> io::Result<IpAddr> {
        let invalid = |line: &str| io::Error::new(io::ErrorKind::InvalidData, line.to_owned());
        let mut reader = BufReader::new(&self.0);
        let mut seen = None;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let line = line.trim_end();
            if line.is_empty() {
                break;
            }
            seen = seen.or_else(|| line.strip_prefix("X-Client: ")?.parse().ok());
        }
        reader.read_exact(&mut [0; SMALL_BYTES as usize])?;
        seen.ok_or_else(|| invalid("no X-Client"))
    }
}

// ---- UDP

pub const ECHO_PORT: u16 = 7;

/// Tells every client the address it has seen, for as long as the test's process lives.
pub fn serve_echo(lab: &Lab) {
    let bind = || UdpSocket::bind((lab.server().ip(), ECHO_PORT));
    let socket = lab.internet().run(bind).unwrap().unwrap();
    thread::spawn(move || -> io::Result<()> {
        loop {
            let (_, client) = socket.recv_from(&mut [0; 16])?;
            socket.send_to(client.ip().to_string().as_bytes(), client)?;
        }
    });
}

/// A socket that asks the echo server.
pub struct Conversation(UdpSocket);

impl Conversation {
    /// Its questions wait so long for their answers.
    pub fn new(from: &Namespace, server: IpAddr, patience: Duration) -> Self {
        let unbound: IpAddr = match server {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let bind = || UdpSocket::bind((unbound, 0));
        let socket = from.run(bind).unwrap().unwrap();
        socket.connect((server, ECHO_PORT)).unwrap();
        socket.set_read_timeout(Some(patience)).unwrap();
        Self(socket)
    }

    /// Asks once; returns the address the server saw.
    pub fn ask(&self) -> Option<IpAddr> {
        let mut answer = [0; 64];
        self.0.send(b"?").unwrap();
        let length = self.0.recv(&mut answer).ok()?;
        std::str::from_utf8(&answer[..length]).ok()?.parse().ok()
    }
}

// ---- iperf3

const IPERF_PORT: u16 = 5201;

/// Serves iperf3 until the value is dropped.
pub fn iperf_server(namespace: &Namespace, server: IpAddr) -> Child {
    let mut command = Command::new("iperf3");
    command
        .args(["--server", "--bind", &server.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let child = namespace.spawn(command).unwrap();
    until_listening(namespace, IPERF_PORT);
    child
}

/// Mean goodput in bit/s of four TCP streams; `options` say which way.
pub fn iperf(namespace: &Namespace, server: IpAddr, seconds: u32, options: &[&str]) -> f64 {
    let seconds = seconds.to_string();
    let server = server.to_string();
    let always = [
        "--client",
        &server,
        "--parallel",
        "4",
        "--json",
        "--time",
        &seconds,
    ];
    let deadline = Instant::now() + DEADLINE;
    let report = loop {
        let (exit, text) = run(namespace, "iperf3", &[&always, options].concat());
        // A server may still be with the client before.
        if text.contains("the server is busy") && Instant::now() < deadline {
            continue;
        }
        assert_eq!(exit, Exit::Code(0), "{text}");
        break serde_json::from_str::<serde_json::Value>(&text).unwrap();
    };
    report["end"]["sum_received"]["bits_per_second"]
        .as_f64()
        .unwrap_or_else(|| panic!("{report}"))
}
