//! A trunk of four sublinks between two nodes, with the real program, in network namespaces.

mod common;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::ops::{Deref, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anabranch_api::{Request, Response, SublinkStatus, TrunkStatus};
use anabranch_core::Family;
use anabranch_testbed::netns::{Exit, Namespace};
use common::{DEADLINE, Daemon, INSTANCE, Limited, Node, claim, until};
use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::Signal;

anabranch_testbed::in_both_families!(
    Family:
    packets_are_spread_and_a_clean_stop_leaves_the_host_as_it_was,
    superpackets_with_partial_checksums_arrive_whole_and_count_as_their_segments,
    connections_are_counted_where_they_begin_whoever_opens_them,
    flows_of_a_sublink_that_loses_its_carrier_go_around_it_and_come_back,
    a_killed_daemon_leaves_the_trunk_spreading_and_the_next_adopts_it,
);

const SUBLINKS: usize = 4;
const FLOWS: u16 = 8;

/// The address of a node on the trunk.
fn on_trunk(family: Family, node: u8) -> IpAddr {
    match family {
        Family::V4 => [10, 8, 0, node].into(),
        Family::V6 => [0xfd08, 0, 0, 0, 0, 0, 0, node.into()].into(),
    }
}

/// The address of a node on a sublink.
fn on_sublink(family: Family, sublink: usize, node: u8) -> IpAddr {
    match family {
        Family::V4 => [10, 9, sublink as u8, node].into(),
        Family::V6 => [0xfd09, sublink as u16, 0, 0, 0, 0, 0, node.into()].into(),
    }
}

/// The node that spreads and the node that receives, whose way back is the first sublink.
struct Rig {
    family: Family,
    near: Node,
    far: Namespace,
}

impl Deref for Rig {
    type Target = Node;

    fn deref(&self) -> &Node {
        &self.near
    }
}

impl Rig {
    fn new(scheme: &str) -> Self {
        Self::of(Family::V4, scheme)
    }

    fn of(family: Family, scheme: &str) -> Self {
        let rig = Self {
            family,
            near: Node::new(Namespace::create("near").unwrap()),
            far: Namespace::create("far").unwrap(),
        };
        for i in 0..SUBLINKS {
            rig.lay_sublink(i);
        }
        rig.lay_trunk();
        rig.spread(scheme);
        rig
    }

    fn lay_sublink(&self, i: usize) {
        let device = format!("sub{i}");
        self.near.veth(&device, &self.far, &device).unwrap();
        for (node, host) in [(&*self.near, 1), (&self.far, 2)] {
            node.set_offloads(&device, false).unwrap();
            let own = on_sublink(self.family, i, host);
            let own = self.of_two(own);
            node.ip(&format!("address add {own} dev {device}")).unwrap();
        }
        let shaper = format!("qdisc add dev {device} root tbf rate 10mbit burst 2kb limit 12kb");
        self.near.tc(&shaper).unwrap();
    }

    /// An address in a network of two nodes.
    fn of_two(&self, own: IpAddr) -> String {
        match self.family {
            Family::V4 => format!("{own}/30"),
            Family::V6 => format!("{own}/126 {}", self.nodad()),
        }
    }

    /// An address is one at once: nobody else has it.
    fn nodad(&self) -> &'static str {
        match self.family {
            Family::V4 => "",
            Family::V6 => "nodad",
        }
    }

    /// A node's address on the trunk.
    fn node(&self, node: u8) -> IpAddr {
        on_trunk(self.family, node)
    }

    fn far_address(&self) -> IpAddr {
        self.node(2)
    }

    fn lay_trunk(&self) {
        let [near, far] = [1, 2].map(|node| self.node(node));
        let own = format!("address add {} dev trunk0", self.of_two(near));
        for line in [
            "link add trunk0 type veth peer name trunk0-end",
            "link set trunk0-end up",
            "link set trunk0 arp off up",
            &own,
        ] {
            self.near.ip(line).unwrap();
        }
        self.near.set_offloads("trunk0", false).unwrap();
        self.near
            .set_sysctl("net/ipv4/conf/all/rp_filter", "1")
            .unwrap();
        // To be down and up again is to pull a cable: of IPv6 the kernel would forget the addresses.
        self.far
            .set_sysctl("net/ipv6/conf/all/keep_addr_on_down", "1")
            .unwrap();
        let nodad = self.nodad();
        for line in [
            format!("address add {far} dev lo {nodad}"),
            format!(
                "route add {near} via {} src {far}",
                on_sublink(self.family, 0, 1)
            ),
        ] {
            self.far.ip(&line).unwrap();
        }
    }

    /// Configures it with all sublinks.
    fn spread(&self, scheme: &str) {
        self.spread_over(scheme, 0..SUBLINKS);
    }

    fn spread_over(&self, scheme: &str, sublinks: Range<usize>) {
        let mut text = format!("[trunk]\ndevice = \"trunk0\"\nscheme = \"{scheme}\"\n");
        for i in sublinks {
            text += &format!("sublink.s{i} = {{ device = \"sub{i}\", rate = \"10mbit\" }}\n");
        }
        self.write_config(&text);
    }

    /// Everything of the host that the daemon may change.
    fn fingerprint(&self) -> String {
        let filters = (0..SUBLINKS).map(|i| {
            let key = format!("net/ipv4/conf/sub{i}/rp_filter");
            self.near.sysctl(&key).unwrap()
        });
        let filters: Vec<_> = filters.collect();
        let pins = self.pins.join(INSTANCE).exists();
        let routes = ["-4", "-6"].map(|flag| {
            let show = format!("{flag} route show table all");
            self.near.ip(&show).unwrap()
        });
        // The kernel makes those of the lines themselves when it likes.
        let is_told = |line: &&str| !line.contains("fe80::") && !line.contains("ff00::");
        let routes = routes.iter().flat_map(|routes| routes.lines());
        let routes: Vec<&str> = routes.filter(is_told).collect();
        format!("{filters:?}, pins {pins}, {routes:?}")
    }

    /// What has arrived on each sublink of the far node.
    fn arrived(&self) -> Vec<u64> {
        let of = |i| self.far.counters(&format!("sub{i}")).unwrap().rx_bytes;
        (0..SUBLINKS).map(of).collect()
    }
}

impl Daemon {
    fn status(&self) -> TrunkStatus {
        match self.call(&Request::Status) {
            Response::Status(status) => *status.trunk.expect("a trunk"),
            other => panic!("{other:?}"),
        }
    }
}

/// Connections over the trunk that send as fast as they may, and what of them has arrived.
struct Load {
    stop: Arc<AtomicBool>,
    received: Vec<Arc<AtomicU64>>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    fn start(rig: &Rig) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut load = Self {
            stop,
            received: Vec::new(),
            threads: Vec::new(),
        };
        let listener = rig.far.listen((rig.far_address(), 80)).unwrap();
        for i in 0..FLOWS {
            let to = SocketAddr::new(rig.far_address(), 80);
            let from = rig.near.connect(to, DEADLINE);
            let from = from.unwrap_or_else(|error| panic!("connection {i}: {error}"));
            load.send(from);
            load.receive(listener.accept().unwrap().0);
        }
        load
    }

    fn send(&mut self, mut stream: TcpStream) {
        let stop = Arc::clone(&self.stop);
        stream.set_write_timeout(Some(DEADLINE)).unwrap();
        self.threads.push(std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) && stream.write_all(&[7; 4096]).is_ok() {}
        }));
    }

    fn receive(&mut self, mut stream: TcpStream) {
        let received = Arc::new(AtomicU64::new(0));
        self.received.push(Arc::clone(&received));
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        self.threads.push(std::thread::spawn(move || {
            let mut buffer = [0; 65536];
            while let Ok(length @ 1..) = stream.read(&mut buffer) {
                received.fetch_add(length as u64, Ordering::Relaxed);
            }
        }));
    }

    fn progress(&self) -> Vec<u64> {
        let received = self.received.iter();
        received
            .map(|bytes| bytes.load(Ordering::Relaxed))
            .collect()
    }

    /// Every connection brings another 20 kB.
    #[track_caller]
    fn goes_on(&self) {
        let before = self.progress();
        until("every connection goes on", || {
            let pairs = before.iter().zip(self.progress());
            pairs.clone().all(|(before, now)| now >= before + 20_000)
        });
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn packets_are_spread_and_a_clean_stop_leaves_the_host_as_it_was(family: Family) {
    let rig = Rig::of(family, "DRR");
    let before = rig.fingerprint();
    let daemon = rig.start();
    let load = Load::start(&rig);
    load.goes_on();
    let status = daemon.status();
    assert!(status.sublinks.iter().all(|sublink| sublink.usable));
    let arrived = rig.arrived();
    let (most, least) = (arrived.iter().max().unwrap(), arrived.iter().min().unwrap());
    assert!(
        *most < 2 * least,
        "packet by packet it is even: {arrived:?}"
    );
    drop(load);
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
    assert_eq!(rig.fingerprint(), before);
}

fn superpackets_with_partial_checksums_arrive_whole_and_count_as_their_segments(family: Family) {
    let rig = Rig::of(family, "SH");
    rig.near.set_offloads("trunk0", true).unwrap();
    for i in 0..SUBLINKS {
        for node in [&rig.near, &rig.far] {
            node.set_offloads(&format!("sub{i}"), true).unwrap();
        }
    }
    let daemon = rig.start();
    let load = Load::start(&rig);
    load.goes_on();
    drop(load);
    let status = daemon.status();
    let total = |of: fn(&SublinkStatus) -> u64| status.sublinks.iter().map(of).sum::<u64>();
    let (packets, bytes) = (total(|s| s.packets), total(|s| s.bytes));
    let whole: u64 = status.reasons.iter().map(|reason| reason.packets).sum();
    assert!(
        whole < packets,
        "{packets} segments in {whole} superpackets"
    );
    assert!(
        bytes / packets <= 1514,
        "{bytes} bytes in {packets} packets"
    );
    assert_eq!(rig.far.protocol_counter("InCsumErrors").unwrap(), 0);
}

/// The trunk carries the near node's first packets of connections: SYNs of those it opens, SYN-ACKs of those it accepts.
fn connections_are_counted_where_they_begin_whoever_opens_them(family: Family) {
    let rig = Rig::of(family, "SH");
    let daemon = rig.start();
    let listen = |node: &Namespace, at: IpAddr| node.listen((at, 80)).unwrap();
    let (far, near) = (
        listen(&rig.far, rig.node(2)),
        listen(&rig.near, rig.node(1)),
    );
    let connect = |from: &Namespace, to: &TcpListener| {
        let to = to.local_addr().unwrap();
        from.connect(to, DEADLINE).unwrap()
    };
    let own: Vec<_> = (0..40).map(|_| connect(&rig.near, &far)).collect();
    let others: Vec<_> = (0..24).map(|_| connect(&rig.far, &near)).collect();
    let datagrams = rig.near.udp((rig.node(1), 0), DEADLINE).unwrap();
    for _ in 0..10 {
        datagrams
            .send_to(&[2; 100], (rig.far_address(), 9))
            .unwrap();
    }
    let repeated = rig.near.protocol_counter("TCPSynRetrans").unwrap();
    let status = daemon.status();
    let opened: Vec<u64> = status
        .sublinks
        .iter()
        .map(|sublink| sublink.opened)
        .collect();
    assert_eq!(
        opened.iter().sum::<u64>(),
        (own.len() + others.len()) as u64 + repeated,
        "{opened:?}, {repeated} repeated"
    );
    assert!(opened.iter().all(|opened| *opened > 0), "{opened:?}");
}

#[test]
fn dhfv_moves_bins_until_no_sublink_is_left_alone_with_the_load() {
    let rig = Rig::new("DHFV");
    let daemon = rig.start();
    let load = Load::start(&rig);
    until("bins move from where queues grow", || {
        daemon.status().reassignments > 0
    });
    load.goes_on();
    let status = daemon.status();
    let bins: usize = status.sublinks.iter().map(|sublink| sublink.bins).sum();
    assert_eq!(bins, 1024);
    assert!(
        status
            .sublinks
            .iter()
            .all(|sublink| sublink.buffer_bytes == Some(12_288))
    );
}

fn flows_of_a_sublink_that_loses_its_carrier_go_around_it_and_come_back(family: Family) {
    let rig = Rig::of(family, "DHFV");
    let daemon = rig.start();
    let load = Load::start(&rig);
    load.goes_on();
    rig.far.ip("link set sub2 down").unwrap();
    until("the sublink is out of use", || {
        !daemon.status().sublinks[2].usable
    });
    let cut = daemon.status();
    load.goes_on();
    let after = daemon.status();
    assert_eq!(after.sublinks[2].packets, cut.sublinks[2].packets);
    let why = after.sublinks[2].why.as_deref();
    assert_eq!(why, Some("the device is down or has no carrier"));

    rig.far.ip("link set sub2 up").unwrap();
    until("the sublink carries again", || {
        let status = daemon.status();
        status.sublinks[2].usable && status.sublinks[2].packets > cut.sublinks[2].packets
    });
    load.goes_on();
}

/// From the loss of a carrier until no packet is lost for it. The kernel tells of the second up to a second late.
const ACTED_UPON: Duration = Duration::from_millis(200);
/// A sender that is kept waiting for this long says that the machine has no time to judge anybody by.
const PAUSE_MAX: Duration = Duration::from_millis(20);

/// One packet a millisecond, by turns over 64 flows, while one sublink after the other is cut.
struct Outage {
    sent: Vec<Instant>,
    /// Numbers of packets.
    lost: Vec<usize>,
    /// When each cut was ordered, and when it had been made.
    cuts: Vec<[Instant; 2]>,
}

impl Outage {
    const PACKETS: usize = 1600;
    const CUTS: [(usize, &str); 2] = [(400, "sub2"), (700, "sub1")];

    fn suffer(rig: &Rig) -> Self {
        let receiver = rig.far.udp((rig.far_address(), 9), DEADLINE).unwrap();
        let heard = std::thread::spawn(move || listen(&receiver));
        let flow = || {
            let socket = UdpSocket::bind((rig.node(1), 0)).unwrap();
            socket.connect((rig.far_address(), 9)).unwrap();
            socket
        };
        let flows: Vec<UdpSocket> = rig.near.run(|| (0..64).map(|_| flow()).collect()).unwrap();
        let (sent, cuts) = Self::send(rig, &flows);
        // Every flow says that it has ended: one of them is heard.
        for flow in &flows {
            flow.send(&u32::MAX.to_be_bytes()).unwrap();
        }
        let heard = heard.join().unwrap();
        let numbers = 0..Self::PACKETS;
        let lost = numbers.filter(|number| !heard.contains(&(*number as u32)));
        Self {
            lost: lost.collect(),
            sent,
            cuts,
        }
    }

    fn send(rig: &Rig, flows: &[UdpSocket]) -> (Vec<Instant>, Vec<[Instant; 2]>) {
        let cut = |sublink: &str| {
            let ordered = Instant::now();
            rig.far.ip(&format!("link set {sublink} down")).unwrap();
            [ordered, Instant::now()]
        };
        std::thread::scope(|scope| {
            let (mut sent, mut cuts) = (Vec::new(), Vec::new());
            for number in 0..Self::PACKETS {
                if let Some((_, sublink)) = Self::CUTS.iter().find(|(at, _)| *at == number) {
                    cuts.push(scope.spawn(move || cut(sublink)));
                }
                let flow = &flows[number % flows.len()];
                flow.send(&(number as u32).to_be_bytes()).unwrap();
                sent.push(Instant::now());
                std::thread::sleep(Duration::from_millis(1));
            }
            let cuts = cuts.into_iter().map(|cut| cut.join().unwrap());
            (sent, cuts.collect())
        })
    }

    fn is_disturbed(&self) -> bool {
        let mut pairs = self.sent.windows(2);
        pairs.any(|pair| pair[1] - pair[0] > PAUSE_MAX)
    }

    /// From each cut to the last packet that was lost before the next.
    fn after_cuts(&self) -> Vec<Duration> {
        let ends = self.cuts[1..].iter().map(|cut| cut[0]);
        let ends = ends.chain(self.sent.last().copied());
        let lost = |[_, made]: &[Instant; 2], end| {
            let mut times = self.lost.iter().map(|number| self.sent[*number]);
            let last = times.rfind(|at| *at < end);
            last.map_or(Duration::ZERO, |last| last.saturating_duration_since(*made))
        };
        self.cuts
            .iter()
            .zip(ends)
            .map(|(cut, end)| lost(cut, end))
            .collect()
    }
}

#[test]
fn two_carriers_lost_in_quick_succession_cost_packets_for_a_fifth_of_a_second_each() {
    const ATTEMPTS_MAX: usize = 5;
    for attempt in 1.. {
        let rig = Rig::new("DHFV");
        let _daemon = rig.start();
        let outage = Outage::suffer(&rig);
        let after_cuts = outage.after_cuts();
        println!(
            "{} packets lost, until {after_cuts:?} after",
            outage.lost.len()
        );
        assert!(
            outage
                .lost
                .first()
                .is_none_or(|first| *first >= Outage::CUTS[0].0)
        );
        if after_cuts.iter().all(|time| *time < ACTED_UPON) {
            return;
        }
        let disturbed = outage.is_disturbed() && attempt < ATTEMPTS_MAX;
        assert!(disturbed, "{after_cuts:?}: {:?}", outage.lost);
    }
}

/// The numbers that arrive before the last.
fn listen(receiver: &UdpSocket) -> BTreeSet<u32> {
    let mut heard = BTreeSet::new();
    let mut number = [0; 4];
    loop {
        receiver.recv(&mut number).unwrap();
        match u32::from_be_bytes(number) {
            u32::MAX => return heard,
            number => heard.insert(number),
        };
    }
}

fn a_killed_daemon_leaves_the_trunk_spreading_and_the_next_adopts_it(family: Family) {
    let rig = Rig::of(family, "DHFV");
    let before = rig.fingerprint();
    let daemon = rig.start();
    let load = Load::start(&rig);
    load.goes_on();
    daemon.end(Signal::SIGKILL);
    load.goes_on();
    let daemon = rig.start();
    let status = daemon.status();
    assert!(status.adopted);
    assert!(
        status
            .sublinks
            .iter()
            .map(|sublink| sublink.bytes)
            .sum::<u64>()
            > 0
    );
    load.goes_on();
    drop(load);
    daemon.end(Signal::SIGTERM);
    assert_eq!(rig.fingerprint(), before);
}

#[test]
fn another_scheme_and_a_wrong_one_are_read_while_it_runs() {
    let rig = Rig::new("SH");
    let daemon = rig.start();
    let reload = || daemon.call(&Request::Reload);
    rig.spread("DRR");
    assert!(matches!(reload(), Response::Done));
    assert_eq!(daemon.status().scheme, "DRR");
    rig.spread("FIFO");
    let Response::Refused { message } = reload() else {
        panic!("not refused")
    };
    assert!(message.contains("trunk.scheme = \"FIFO\""), "{message}");
    assert_eq!(daemon.status().scheme, "DRR");
}

#[test]
fn a_reload_takes_the_devices_of_new_sublinks_and_lets_go_of_others() {
    let rig = Rig::new("SH");
    rig.spread_over("SH", 0..2);
    let daemon = rig.start();
    let reload = |sublinks| {
        rig.spread_over("SH", sublinks);
        daemon.call(&Request::Reload)
    };
    assert!(rig.claims("sub0") && !rig.claims("sub2"));
    assert!(matches!(reload(1..3), Response::Done));
    assert!(!rig.claims("sub0") && rig.claims("sub2"));

    let other = claim(&rig.near, rig.dir.path(), "sub3");
    let file = std::fs::File::create(&other).unwrap();
    let locked = Flock::lock(file, FlockArg::LockExclusiveNonblock).unwrap();
    std::fs::write(&other, "1 other").unwrap();
    let Response::Refused { message } = reload(0..4) else {
        panic!("not refused")
    };
    let wanted = "device \"sub3\": instance \"other\" has it already (process 1)";
    assert!(message.starts_with(wanted), "{message}");
    assert!(!rig.claims("sub0"));
    drop(locked);
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
    assert!(!rig.claims("sub2"));
}

#[test]
fn a_start_that_fails_after_the_load_is_undone() {
    let rig = Rig::new("SH");
    let before = rig.fingerprint();
    let socket = rig.paths().socket();
    std::fs::create_dir(&socket).unwrap();
    // What is mounted there cannot be set aside.
    let mounted = Limited::new(&socket, "size=4k");
    let (exit, said) = rig.fails(INSTANCE);
    assert_eq!(exit, Exit::Code(1), "{said}");
    assert_eq!(rig.fingerprint(), before);
    assert!(!rig.claims("sub0"));
    drop(mounted);
    std::fs::remove_dir(&socket).unwrap();
    assert!(!rig.start().status().adopted);
}

#[test]
fn a_host_that_cannot_run_the_trunk_is_told_so_and_left_alone() {
    let rig = Rig::new("DHFV");
    let before = rig.fingerprint();
    rig.near.ip("link set trunk0 mtu 2000").unwrap();
    assert_eq!(
        rig.refused(),
        "DIR/anabranch.toml: trunk.device = \"trunk0\": its MTU 2000 is above the 1500 of sublink s0 (sub0); run `ip link set trunk0 mtu 1500`"
    );
    rig.near.ip("link set trunk0 mtu 1500").unwrap();
    rig.near.tc("qdisc del dev sub3 root").unwrap();
    let refused = rig.refused();
    assert!(
        refused.starts_with(
            "DIR/anabranch.toml: trunk.sublink.s3: DHFV watches its queue, and device sub3 keeps none"
        ),
        "{refused}"
    );
    assert_eq!(rig.fingerprint(), before);
}

#[test]
fn without_room_for_its_files_a_trunk_starts_and_says_so_until_there_is() {
    let rig = Rig::new("DHFV");
    let before = rig.fingerprint();
    let run = Limited::new(rig.dir.path(), "size=4k");
    rig.spread("DHFV");
    let daemon = rig.start();
    until("it is in the status", || {
        let troubles = daemon.status().troubles;
        troubles.iter().any(|trouble| trouble.contains("make room"))
    });
    run.set("size=1m");
    until("nothing is wrong", || daemon.status().troubles.is_empty());
    assert!(rig.claims("trunk0") && rig.paths().state_of("trunk").exists());
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
    assert_eq!(rig.fingerprint(), before);
}
