use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use super::{Addresses, ClientConfig, ClientError, TransferEvent, run};
use crate::{
    Arrival, ArrivalPlan, Class, ClassId, Direction, Mix, Outcome, Pacing, Pattern, RemoteServerId,
    Size, Transfer, UserId, Workload, alternative,
};

const FILE: u64 = 100_000;

/// What the server does with a request for `bytes` bytes.
type Reply = fn(&mut TcpStream, u64);

/// An HTTP server of one behaviour, a thread per connection, gone with its value.
struct Server {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
}

impl Server {
    fn start(reply: Reply) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if stopped.load(Ordering::Relaxed) {
                    break;
                }
                thread::spawn(move || answer(stream, reply));
            }
        });
        Server { address, stop }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
    }
}

fn answer(mut stream: TcpStream, reply: Reply) {
    let mut request = Vec::new();
    let mut byte = [0];
    while !request.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|read| read == 1) {
        request.push(byte[0]);
    }
    let request = String::from_utf8(request).unwrap();
    reply(&mut stream, bytes_asked(&request));
}

/// By the length of the body, the last byte of a range, or else by the path.
fn bytes_asked(request: &str) -> u64 {
    let length = request
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    if let Some(length) = length {
        return length.parse().unwrap();
    }
    let last = request
        .lines()
        .find_map(|line| line.strip_prefix("range: bytes=0-"));
    match last {
        Some(last) => last.parse::<u64>().unwrap() + 1,
        None => {
            let path = request.split(' ').nth(1).unwrap_or_default();
            path.trim_start_matches("/bytes/").parse().unwrap_or(0)
        }
    }
}

fn send_head(stream: &mut TcpStream, bytes: u64) {
    send_head_with("200 OK", stream, bytes);
}

fn send_head_with(status: &str, stream: &mut TcpStream, bytes: u64) {
    let client = stream.peer_addr().unwrap().ip();
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Length: {bytes}\r\nX-Client: {client}\r\n\r\n"
    )
    .unwrap();
}

fn send_body(stream: &mut TcpStream, bytes: u64) {
    // A client that has gone is part of some tests.
    let _ = stream.write_all(&vec![b'x'; bytes as usize]);
}

fn whole_file(stream: &mut TcpStream, bytes: u64) {
    send_head(stream, bytes);
    send_body(stream, bytes);
}

/// Waits until the client closes the connection.
fn hold(stream: &mut TcpStream, _: u64) {
    let _ = stream.read(&mut [0]);
}

fn user_address(user: u8) -> IpAddr {
    Ipv4Addr::new(127, 0, 0, 10 + user).into()
}

fn addresses(server: SocketAddr, sources: &[IpAddr]) -> Addresses {
    Addresses {
        servers: vec![server],
        sources: sources.to_vec(),
    }
}

fn config(server: SocketAddr) -> ClientConfig {
    ClientConfig {
        links: BTreeMap::from([
            (user_address(0), "fiber".to_owned()),
            (user_address(1), "lte".to_owned()),
        ]),
        connect_timeout: Duration::from_millis(300),
        idle_timeout: Duration::from_millis(300),
        deadline: Duration::from_secs(20),
        ..ClientConfig::new(vec![addresses(server, &[user_address(0), user_address(1)])])
    }
}

fn one_file() -> Workload {
    Workload {
        size: Size::Fixed(FILE),
        ..Workload::page_rounds(1, 1, 1)
    }
}

fn fetch(workload: &Workload, config: ClientConfig) -> (Vec<Transfer>, Vec<TransferEvent>) {
    let (sender, receiver) = mpsc::channel();
    let transfers = run(workload, config, sender).unwrap();
    (transfers, receiver.iter().collect())
}

/// The record of one file fetched from a server that replies so.
fn fetch_from(reply: Reply) -> Transfer {
    let server = Server::start(reply);
    fetch(&one_file(), config(server.address)).0.remove(0)
}

#[test]
fn a_whole_file_is_recorded_with_its_times_its_bytes_and_its_link() {
    let transfer = fetch_from(whole_file);
    assert_eq!(transfer.outcome, Outcome::Ok);
    assert_eq!((transfer.bytes, transfer.bytes_asked), (FILE, FILE));
    assert_eq!(
        (transfer.user, transfer.source),
        (UserId(0), user_address(0))
    );
    assert_eq!(
        (transfer.link.as_deref(), transfer.syn_retransmits),
        (Some("fiber"), 0)
    );
    let (setup_s, first_byte_s) = (transfer.setup_s.unwrap(), transfer.first_byte_s.unwrap());
    assert!(
        0.0 < setup_s && setup_s <= first_byte_s && first_byte_s <= transfer.duration_s,
        "{transfer:?}"
    );
    assert!(
        0.0 < transfer.planned_start_s && transfer.planned_start_s <= transfer.start_s,
        "{transfer:?}"
    );
}

#[test]
fn an_external_address_of_no_link_leaves_the_link_unknown() {
    let server = Server::start(whole_file);
    let strangers = ClientConfig {
        links: BTreeMap::new(),
        ..config(server.address)
    };
    let transfer = fetch(&one_file(), strangers).0.remove(0);
    assert_eq!((transfer.outcome, transfer.link), (Outcome::Ok, None));
}

#[test]
fn a_connection_closed_before_the_promised_length_is_short() {
    let transfer = fetch_from(|stream, bytes| {
        send_head(stream, bytes);
        send_body(stream, bytes / 2);
    });
    assert_eq!(
        (transfer.outcome, transfer.bytes),
        (Outcome::Short, FILE / 2)
    );
    assert_eq!(transfer.link.as_deref(), Some("fiber"));
}

#[test]
fn a_complete_reply_with_fewer_bytes_than_asked_is_short_and_with_more_is_malformed() {
    assert_eq!(
        fetch_from(|stream, bytes| whole_file(stream, bytes - 1)).outcome,
        Outcome::Short
    );
    assert_eq!(
        fetch_from(|stream, bytes| whole_file(stream, bytes + 1)).outcome,
        Outcome::Malformed
    );
}

#[test]
fn a_connection_closed_before_any_reply_is_short_without_a_link() {
    let transfer = fetch_from(|_, _| ());
    assert_eq!(
        (transfer.outcome, transfer.bytes, transfer.link),
        (Outcome::Short, 0, None)
    );
    assert!(transfer.setup_s.is_some() && transfer.first_byte_s.is_none());
}

#[test]
fn a_reset_in_the_body_is_a_reset() {
    let transfer = fetch_from(|stream, bytes| {
        send_head(stream, bytes);
        let linger = Some(Duration::ZERO);
        socket2::SockRef::from(&*stream).set_linger(linger).unwrap();
    });
    assert_eq!(transfer.outcome, Outcome::Reset);
}

#[test]
fn a_status_other_than_200_is_recorded_with_its_number() {
    let transfer = fetch_from(|stream, _| {
        stream
            .write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
            .unwrap();
    });
    assert_eq!(transfer.outcome, Outcome::HttpStatus(404));
}

#[test]
fn a_reply_that_is_not_http_is_malformed() {
    let transfer = fetch_from(|stream, _| stream.write_all(b"220 mail ready\r\n\r\n").unwrap());
    assert_eq!(transfer.outcome, Outcome::Malformed);
}

#[test]
fn silence_before_or_within_a_reply_is_an_idle_timeout() {
    assert_eq!(fetch_from(hold).outcome, Outcome::IdleTimeout);
    let transfer = fetch_from(|stream, bytes| {
        send_head(stream, bytes);
        send_body(stream, 1_000);
        hold(stream, bytes);
    });
    assert_eq!(
        (transfer.outcome, transfer.bytes),
        (Outcome::IdleTimeout, 1_000)
    );
    assert!(transfer.duration_s >= 0.3);
}

#[test]
fn a_closed_port_is_refused_and_the_tab_pauses_before_it_tries_again() {
    let closed = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let workload = Workload::continuous(1, 1, Size::PENG, Duration::from_millis(250));
    let (transfers, _) = fetch(&workload, config(closed));
    assert!(
        transfers
            .iter()
            .all(|transfer| transfer.outcome == Outcome::Refused && transfer.setup_s.is_none())
    );
    assert!(
        (2..=3).contains(&transfers.len()),
        "{} transfers with pauses of 100 ms in 250 ms",
        transfers.len()
    );
}

/// A listener whose queue of established connections is full, so that the kernel drops further SYNs.
struct FullListener {
    listener: TcpListener,
    _queued: TcpStream,
}

impl FullListener {
    fn new() -> FullListener {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket
            .bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into())
            .unwrap();
        socket.listen(0).unwrap();
        let listener = TcpListener::from(socket);
        let queued = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        FullListener {
            listener,
            _queued: queued,
        }
    }

    fn address(&self) -> SocketAddr {
        self.listener.local_addr().unwrap()
    }

    /// Blocks until a client of this host waits for the answer to its SYN.
    fn wait_for_unanswered_syn(&self) {
        const SYN_SENT: &str = "02";
        let port = format!(":{:04X}", self.address().port());
        let deadline = Instant::now() + Duration::from_secs(10);
        let waiting = |line: &str| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            fields[2].ends_with(&port) && fields[3] == SYN_SENT
        };
        while !fs::read_to_string("/proc/net/tcp")
            .unwrap()
            .lines()
            .any(waiting)
        {
            assert!(
                Instant::now() < deadline,
                "no SYN to port {} within 10 s",
                self.address().port()
            );
            thread::yield_now();
        }
    }
}

#[test]
fn an_unanswered_syn_is_a_connect_timeout() {
    let full = FullListener::new();
    let transfer = fetch(&one_file(), config(full.address())).0.remove(0);
    assert_eq!(
        (transfer.outcome, transfer.setup_s),
        (Outcome::ConnectTimeout, None)
    );
    assert!(transfer.duration_s >= 0.3);
}

#[test]
fn a_syn_that_had_to_be_sent_again_is_counted() {
    let full = FullListener::new();
    let patient = ClientConfig {
        connect_timeout: Duration::from_secs(15),
        ..config(full.address())
    };
    let server = thread::spawn(move || {
        full.wait_for_unanswered_syn();
        full.listener.accept().unwrap();
        let (stream, _) = full.listener.accept().unwrap();
        answer(stream, whole_file);
    });
    let transfer = fetch(&one_file(), patient).0.remove(0);
    server.join().unwrap();
    assert_eq!(transfer.outcome, Outcome::Ok);
    assert!(
        transfer.syn_retransmits >= 1 && transfer.setup_s.unwrap() > 0.5,
        "{transfer:?}"
    );
}

#[test]
fn the_files_of_a_round_travel_together_and_the_next_round_waits_for_all_of_them() {
    let server = Server::start(whole_file);
    let pacing = Pacing {
        think: Duration::from_millis(20),
        ..Pacing::BACK_TO_BACK
    };
    let workload = Workload {
        size: Size::Fixed(FILE),
        pacing,
        ..Workload::page_rounds(2, 3, 4)
    };
    let (transfers, _) = fetch(&workload, config(server.address));
    assert_eq!(transfers.len(), 24);
    assert!(
        transfers
            .iter()
            .all(|transfer| transfer.outcome == Outcome::Ok)
    );
    for user in [UserId(0), UserId(1)] {
        let round = |index| {
            transfers
                .iter()
                .filter(move |t| t.user == user && t.round == index)
        };
        for index in 0..4 {
            let last_start = round(index)
                .map(|transfer| transfer.start_s)
                .fold(0.0, f64::max);
            let first_end = round(index)
                .map(Transfer::end_s)
                .fold(f64::INFINITY, f64::min);
            let last_end = round(index).map(Transfer::end_s).fold(0.0, f64::max);
            assert_eq!(round(index).count(), 3);
            assert!(
                last_start < first_end,
                "the files of round {index} did not overlap"
            );
            assert!(
                round(index + 1).all(|transfer| transfer.planned_start_s >= last_end + 0.02 - 1e-6)
            );
        }
        let link = if user == UserId(0) { "fiber" } else { "lte" };
        assert!(
            transfers
                .iter()
                .filter(|t| t.user == user)
                .all(|t| t.link.as_deref() == Some(link))
        );
    }
}

#[test]
fn transfers_in_flight_at_the_end_of_the_run_are_unfinished() {
    let server = Server::start(|stream, bytes| {
        send_head(stream, bytes);
        send_body(stream, 1_000);
        hold(stream, bytes);
    });
    let patient = ClientConfig {
        idle_timeout: Duration::from_secs(60),
        ..config(server.address)
    };
    let workload = Workload::continuous(2, 3, Size::Fixed(FILE), Duration::from_millis(600));
    let (transfers, _) = fetch(&workload, patient);
    assert_eq!(transfers.len(), 6);
    for transfer in &transfers {
        assert_eq!(
            (transfer.outcome, transfer.bytes),
            (Outcome::Unfinished, 1_000)
        );
    }
}

#[test]
fn an_order_to_stop_ends_a_run_at_once_with_its_transfers_unfinished() {
    let server = Server::start(hold);
    let patient = ClientConfig {
        idle_timeout: Duration::from_secs(60),
        ..config(server.address)
    };
    let stop = patient.stop.clone();
    let (sender, events) = mpsc::channel();
    let orderer = thread::spawn(move || {
        let started = events.recv().unwrap();
        assert!(matches!(started, TransferEvent::Started { .. }));
        stop.order();
    });
    let began = Instant::now();
    let transfers = run(&Workload::page_rounds(1, 2, 5), patient.clone(), sender).unwrap();
    orderer.join().unwrap();
    assert!(began.elapsed() < Duration::from_secs(20));
    let outcomes: Vec<_> = transfers.iter().map(|transfer| transfer.outcome).collect();
    assert_eq!(outcomes, [Outcome::Unfinished; 2]);
    // The order stands: a run that begins after it asks for nothing that it waits for.
    assert!(patient.stop.is_ordered());
    let (late, _) = fetch(&Workload::page_rounds(1, 1, 5), patient);
    assert!(
        late.iter()
            .all(|transfer| transfer.outcome == Outcome::Unfinished)
    );
}

fn arrival(at_ms: u64, user: u32, bytes: u64, direction: Direction) -> Arrival {
    Arrival {
        at: Duration::from_millis(at_ms),
        user: UserId(user),
        server: RemoteServerId(0),
        class: ClassId(0),
        bytes,
        direction,
    }
}

fn plan(rows: Vec<Arrival>) -> ArrivalPlan {
    ArrivalPlan {
        pattern: Pattern::Rows(rows),
        seed: 1,
    }
}

#[test]
fn arrivals_begin_at_their_times_whatever_became_of_those_before() {
    // The first answer takes longer than everything else.
    let server = Server::start(|stream, bytes| match bytes {
        FILE => hold(stream, bytes),
        _ => whole_file(stream, bytes),
    });
    let rows = [(0, 0, FILE), (40, 1, 7), (80, 0, 8)]
        .map(|(at_ms, user, bytes)| arrival(at_ms, user, bytes, Direction::Down));
    let plan = plan(rows.to_vec());
    let (sender, _events) = mpsc::channel();
    let transfers = run(&plan, config(server.address), sender).unwrap();
    let told: Vec<_> = transfers
        .iter()
        .map(|transfer| (transfer.id.0, transfer.user.0, transfer.outcome))
        .collect();
    let expected = [
        (0, 0, Outcome::IdleTimeout),
        (1, 1, Outcome::Ok),
        (2, 0, Outcome::Ok),
    ];
    assert_eq!(told, expected);
    let first_s = transfers[0].planned_start_s;
    for (transfer, at_s) in transfers.iter().zip([0.0, 0.04, 0.08]) {
        assert!((transfer.planned_start_s - first_s - at_s).abs() < 1e-6);
        assert!(transfer.start_s >= transfer.planned_start_s);
    }
    assert!(transfers[2].start_s < transfers[0].end_s());
}

#[test]
fn what_users_send_has_arrived_when_the_transfer_ends() {
    const UPLOAD: u64 = 3_000_000;
    let server = Server::start(|stream, bytes| {
        let mut taken = 0;
        let mut piece = [0; 4096];
        while taken < bytes {
            taken += stream.read(&mut piece).unwrap() as u64;
        }
        whole_file(stream, 0);
    });
    let upload = plan(vec![arrival(0, 0, UPLOAD, Direction::Up)]);
    let transfers = run(&upload, config(server.address), mpsc::channel().0).unwrap();
    assert_eq!(
        (
            transfers[0].outcome,
            transfers[0].bytes,
            transfers[0].link.as_deref()
        ),
        (Outcome::Ok, UPLOAD, Some("fiber"))
    );
    let mute = Server::start(|stream, _| {
        let mut piece = [0; 4096];
        while stream.read(&mut piece).is_ok_and(|length| length > 0) {}
    });
    let transfers = run(&upload, config(mute.address), mpsc::channel().0).unwrap();
    assert_eq!(transfers[0].outcome, Outcome::IdleTimeout);
    // The head of the request is not known to the byte.
    let bytes = transfers[0].bytes;
    assert!((UPLOAD - 100..=UPLOAD).contains(&bytes), "{bytes}");
}

#[test]
fn of_an_upload_that_breaks_only_what_was_taken_has_arrived() {
    const TAKEN: u64 = 1_000_000;
    let server = Server::start(|stream, _| {
        let (mut taken, mut piece) = (0, [0; 4096]);
        while taken < TAKEN {
            taken += stream.read(&mut piece).unwrap() as u64;
        }
    });
    const ASKED: u64 = 1_000_000_000;
    let upload = plan(vec![arrival(0, 0, ASKED, Direction::Up)]);
    let transfers = run(&upload, config(server.address), mpsc::channel().0).unwrap();
    let Transfer {
        outcome,
        bytes,
        direction,
        ..
    } = transfers[0];
    assert_eq!((outcome.is_failure(), direction), (true, Direction::Up));
    // What the server has read, less what its reset found not yet acknowledged (a delayed ACK: two segments of the
    // loopback), and what its socket holds.
    assert!(
        (TAKEN - 200_000..TAKEN + 100_000_000).contains(&bytes),
        "{bytes}"
    );
}

#[test]
fn a_transfer_names_the_class_of_its_plan() {
    let class = |name: &str, direction| Class {
        name: name.into(),
        per_user_per_s: 40.0,
        size: Size::Fixed(7),
        servers: Vec::new(),
        direction,
        bursts: None,
    };
    let plan = ArrivalPlan {
        pattern: Pattern::Mix(Mix {
            users: 2,
            servers: 3,
            duration_s: 0.2,
            exact: true,
            classes: vec![class("web", Direction::Down), class("mail", Direction::Up)],
        }),
        seed: 1,
    };
    let server = Server::start(whole_file);
    let transfers = run(&plan, config(server.address), mpsc::channel().0).unwrap();
    assert_eq!(transfers.len(), 32);
    for transfer in &transfers {
        let class = match transfer.direction {
            Direction::Down => "web",
            Direction::Up => "mail",
        };
        assert_eq!(transfer.class.as_deref(), Some(class));
    }
    let servers: Vec<u32> = transfers.iter().map(|t| t.server.0).collect();
    assert!((0..3).all(|server| servers.contains(&server)));
}

#[test]
fn a_path_without_a_size_is_asked_for_its_beginning() {
    fn beginning(stream: &mut TcpStream, bytes: u64) {
        send_head_with("206 Partial Content", stream, bytes);
        send_body(stream, bytes);
    }
    let one_path = |reply| {
        let server = Server::start(reply);
        let config = ClientConfig {
            path: "/zeros".to_owned(),
            ..config(server.address)
        };
        fetch(&one_file(), config).0.remove(0)
    };
    let transfer = one_path(beginning);
    assert_eq!((transfer.outcome, transfer.bytes), (Outcome::Ok, FILE));
    // A server that does not know ranges would send the whole file.
    assert_eq!(one_path(whole_file).outcome, Outcome::HttpStatus(200));
}

#[test]
fn the_deadline_ends_a_run_of_rounds() {
    let server = Server::start(hold);
    let hurried = ClientConfig {
        deadline: Duration::from_millis(100),
        idle_timeout: Duration::from_secs(60),
        ..config(server.address)
    };
    let (transfers, _) = fetch(&Workload::page_rounds(1, 2, 5), hurried);
    assert!(
        transfers
            .iter()
            .all(|transfer| transfer.outcome == Outcome::Unfinished)
    );
    assert_eq!(transfers.len(), 2);
}

#[test]
fn events_tell_the_life_of_each_transfer_in_order_and_add_up_to_its_record() {
    let server = Server::start(whole_file);
    let workload = Workload {
        size: Size::Fixed(FILE),
        ..Workload::page_rounds(2, 2, 1)
    };
    let (transfers, events) = fetch(&workload, config(server.address));
    for transfer in transfers {
        let mut life = events.iter().filter(|event| match event {
            TransferEvent::Started { id, .. } | TransferEvent::Progress { id, .. } => {
                *id == transfer.id
            }
            TransferEvent::Finished(finished) => finished.id == transfer.id,
        });
        assert!(
            matches!(life.next(), Some(TransferEvent::Started { user, .. }) if *user == transfer.user)
        );
        assert_eq!(
            life.next_back(),
            Some(&TransferEvent::Finished(transfer.clone()))
        );
        let progress = life.map(|event| match event {
            TransferEvent::Progress { bytes, .. } => *bytes,
            other => panic!("{other:?} within a transfer"),
        });
        assert_eq!(progress.sum::<u64>(), transfer.bytes);
    }
}

#[test]
fn every_transfer_uses_the_addresses_that_its_number_draws() {
    let server = Server::start(whole_file);
    let all = [0, 1].map(|user| addresses(server.address, &[user_address(user)]));
    let two = ClientConfig {
        addresses: all.to_vec(),
        seed: 3,
        ..config(server.address)
    };
    let (transfers, _) = fetch(&Workload::page_rounds(1, 5, 4), two);
    for transfer in &transfers {
        let drawn = alternative(3, transfer.id, 2) as u8;
        assert_eq!(transfer.source, user_address(drawn), "{transfer:?}");
    }
    let links: BTreeSet<_> = transfers.iter().map(|transfer| &transfer.link).collect();
    assert_eq!(links.len(), 2, "{links:?}");
}

#[test]
fn a_run_without_a_listener_for_its_events_is_complete() {
    let server = Server::start(whole_file);
    let (sender, receiver) = mpsc::channel();
    drop(receiver);
    assert_eq!(
        run(
            &Workload::page_rounds(1, 2, 1),
            config(server.address),
            sender
        )
        .unwrap()
        .len(),
        2
    );
}

#[test]
fn a_configuration_that_cannot_work_is_refused_before_the_first_request() {
    let server: SocketAddr = "127.0.0.1:80".parse().unwrap();
    let refusal = |users, config| {
        run(
            &Workload::page_rounds(users, 1, 1),
            config,
            mpsc::channel().0,
        )
        .unwrap_err()
    };
    assert!(matches!(
        refusal(3, config(server)),
        ClientError::TooFewSources {
            users: 3,
            sources: 2
        }
    ));
    let foreign = ClientConfig {
        addresses: vec![addresses(server, &["192.0.2.1".parse().unwrap()])],
        ..config(server)
    };
    assert!(matches!(refusal(1, foreign), ClientError::Source { .. }));
    let v6 = ClientConfig {
        addresses: vec![addresses(server, &["::1".parse().unwrap()])],
        ..config(server)
    };
    assert!(matches!(refusal(1, v6), ClientError::Family { .. }));
    let nowhere = ClientConfig {
        addresses: Vec::new(),
        ..config(server)
    };
    assert!(matches!(refusal(1, nowhere), ClientError::NoServer));
    let spaced = ClientConfig {
        path: "/a file".to_owned(),
        ..config(server)
    };
    assert!(matches!(refusal(1, spaced), ClientError::Path { .. }));
}
