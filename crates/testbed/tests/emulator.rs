//! The link emulator on the real kernel, with bounds wide enough for a machine that does other work. Exact figures
//! are the business of `examples/emulator.rs`.

use std::io::{self, Write};
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anabranch_line::{Buffer, Change, Direction, Line, Loss, NEAREST, Passage, Service};
use anabranch_testbed::calibrate::{Figures, Trial};
use anabranch_testbed::emulator::{Emulator, End, Link, LinkReport, LinkShape, lossless};
use anabranch_testbed::netns::Namespace;

/// Two hosts, 192.0.2.1 and 192.0.2.2, joined by a link.
struct Pair {
    near: Namespace,
    far: Namespace,
    link: Link,
    _emulator: Emulator,
}

/// Of 192.0.2.3; all others are next door.
const FAR_HOPS: u16 = 1000;

fn distance(address: IpAddr) -> u16 {
    match address == IpAddr::from([192, 0, 2, 3]) {
        true => FAR_HOPS,
        false => NEAREST,
    }
}

impl Pair {
    fn new(shape: LinkShape) -> Self {
        let near = Namespace::create("near").unwrap_or_else(|error| panic!("{error}"));
        let far = Namespace::create("far").unwrap();
        let emulator = Emulator::start(1).unwrap().with_distance(distance);
        let [near_end, far_end] = [&near, &far].map(|namespace| End {
            namespace,
            device: "eth0",
        });
        let link = emulator.connect("test", near_end, far_end, shape).unwrap();
        near.add_address("eth0", [192, 0, 2, 1].into(), 24).unwrap();
        far.add_address("eth0", [192, 0, 2, 2].into(), 24).unwrap();
        Self {
            near,
            far,
            link,
            _emulator: emulator,
        }
    }

    /// The first report of which `condition` holds.
    fn report_once(&self, condition: impl Fn(&LinkReport) -> bool) -> LinkReport {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let report = self.link.report().unwrap();
            if condition(&report) {
                return report;
            }
            assert!(Instant::now() < deadline, "{report:#?}");
        }
    }

    /// Whether one of three pings is answered within a second.
    fn ping(&self, options: &[&str]) -> bool {
        let words = ["-c", "3", "-i", "0.01", "-W", "1", "192.0.2.2"];
        self.near.exec("ping", &[options, &words].concat()).is_ok()
    }

    /// Waits for the first answer.
    fn answers(&self) {
        let words = ["-c", "1", "-i", "0.01", "-w", "10", "192.0.2.2"];
        self.near.exec("ping", &words).unwrap();
    }
}

fn fast() -> LinkShape {
    LinkShape::new(100_000_000, 100_000_000, 1_000)
}

/// One trial at a time: they would take each other's core.
fn run(trial: Trial) -> Figures {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    anabranch_testbed::calibrate::run(trial).unwrap_or_else(|error| panic!("{error}"))
}

/// The share of a trial in which the host may have run no real-time thread: more leaves too little to judge.
const STALLED_SHARE_MAX: f64 = 0.5;
/// A timer's and a packet's time through the kernel on a slow host.
const LATE_P50_MAX_US: f64 = 1_000.0;

/// What a link owes on any host: order, no packet early, none lost unless the host dropped it. And what a host that is
/// in time can show: no packet late.
fn keeps_rate_and_delay(figures: &Figures) {
    assert!(figures.in_order, "{figures:#?}");
    assert!(figures.early_max_us <= 1.0, "{figures:#?}");
    let up = &figures.link.up;
    let dropped_by_host = up.faults.unread + figures.link.device_drops;
    let accounted = figures.received + up.fates.overflowed.packets + dropped_by_host;
    assert!(accounted >= figures.sent, "{figures:#?}");
    if dropped_by_host > 0 {
        return not_judged(&format!("the host dropped {dropped_by_host} packets"));
    }
    let surplus = figures.received.abs_diff(figures.expected_received);
    assert!(surplus <= figures.sent / 100, "{figures:#?}");
    if figures.stalled_share > STALLED_SHARE_MAX {
        let percent = figures.stalled_share * 100.0;
        return not_judged(&format!("the host stalled for {percent:.0} % of the trial"));
    }
    assert!(figures.late_p50_us < LATE_P50_MAX_US, "{figures:#?}");
}

/// Past the test harness, which keeps what a test that passes prints to itself.
fn not_judged(why: &str) {
    let _ = writeln!(io::stderr(), "lateness of the emulator not judged: {why}");
}

/// The queue is large enough for a sender that was kept off its core and catches up.
fn overload(rate_bps: u64) -> Trial {
    Trial {
        line: Line {
            buffer: Buffer::Bytes(rate_bps / 8 / 2),
            ..lossless(rate_bps, Duration::from_millis(10))
        },
        load: 1.7,
        packet_bytes: 1500,
        seconds: 1.5,
    }
}

#[test]
fn the_mean_rate_of_a_loaded_link_is_its_rate() {
    for rate_bps in [20_000_000, 100_000_000] {
        keeps_rate_and_delay(&run(overload(rate_bps)));
    }
}

#[test]
fn packets_arrive_when_the_pipe_says() {
    let mut trial = overload(20_000_000);
    (trial.load, trial.line.buffer) = (0.5, Buffer::Unlimited);
    keeps_rate_and_delay(&run(trial));
}

#[test]
fn a_lossy_link_loses_its_share() {
    let trial = Trial {
        line: Line {
            loss: Loss::Independent { probability: 0.1 },
            buffer: Buffer::Packets(10_000),
            ..lossless(10_000_000, Duration::from_millis(1))
        },
        load: 0.5,
        packet_bytes: 100,
        seconds: 1.0,
    };
    let figures = run(trial);
    let share = 1.0 - figures.received as f64 / figures.sent as f64;
    // Four standard deviations of the share among 6250 packets.
    assert!((share - 0.1).abs() < 0.016, "{figures:#?}");
    let fates = figures.link.up.fates;
    let arrived_or_lost = fates.delivered.packets + fates.lost.packets;
    assert_eq!(fates.offered.packets, arrived_or_lost, "{fates:?}");
}

#[test]
fn by_distance_the_far_end_is_lost_and_the_near_one_is_not() {
    let mut shape = fast();
    // One packet of a hundred, and all but 43 of a million.
    shape.up.loss = Loss::PerHop { probability: 0.01 };
    let pair = Pair::new(shape);
    pair.far
        .add_address("eth0", [192, 0, 2, 3].into(), 24)
        .unwrap();
    pair.answers();
    let far = ["-c", "3", "-i", "0.01", "-W", "1", "192.0.2.3"];
    assert!(pair.near.exec("ping", &far).is_err());
    assert!(pair.ping(&[]));
    pair.report_once(|report| report.up.fates.lost.packets > 0);
}

#[test]
fn an_outage_swallows_packets_silently_until_it_ends() {
    let pair = Pair::new(fast());
    pair.answers();
    for direction in Direction::BOTH {
        pair.link.apply(Some(direction), Change::Cut).unwrap();
        assert!(!pair.ping(&[]));
        pair.link.apply(None, Change::Restore).unwrap();
        pair.answers();
    }
    let report = pair.link.report().unwrap();
    assert!(report.up.fates.cut.packets >= 3, "{report:#?}");
    assert!(report.down.fates.cut.packets >= 3, "{report:#?}");
    let nothing_is_told = pair.near.counters("eth0").unwrap();
    assert_eq!(nothing_is_told.tx_dropped, 0);
    assert_eq!(report.problems(), Vec::<String>::new());
}

#[test]
fn a_changed_line_holds_at_once() {
    let pair = Pair::new(fast());
    pair.answers();
    let slower = [
        Change::Rate(1_000_000),
        Change::Delay(Duration::from_millis(150)),
    ];
    for change in slower {
        pair.link.apply(Some(Direction::Down), change).unwrap();
    }
    let output = pair
        .near
        .exec("ping", &["-c", "1", "-w", "10", "192.0.2.2"]);
    let output = output.unwrap();
    let rtt_ms = output
        .split("time=")
        .nth(1)
        .and_then(|rest| rest.split(' ').next());
    let rtt_ms: f64 = rtt_ms.unwrap().parse().unwrap();
    assert!(rtt_ms >= 151.0, "{output}");
}

#[test]
fn long_packets_vanish_in_a_line_of_a_smaller_mtu_and_nobody_is_told() {
    let pair = Pair::new(fast());
    pair.answers();
    // With headers a byte more than the MTU, and as much as it.
    let (long, short) = (["-s", "1373"], ["-s", "1372"]);
    let mtu = Change::Mtu(Some(1400));
    for direction in Direction::BOTH {
        pair.link.apply(Some(direction), mtu).unwrap();
        assert!(!pair.ping(&long), "{direction:?}");
        assert!(pair.ping(&short), "{direction:?}");
        pair.link.apply(None, Change::Mtu(None)).unwrap();
        assert!(pair.ping(&long));
    }
    let report = pair.link.report().unwrap();
    let lost = [report.up.fates.lost.packets, report.down.fates.lost.packets];
    assert_eq!(lost, [3, 3], "{report:#?}");
    assert_eq!(report.problems(), Vec::<String>::new());
}

#[test]
fn a_captive_line_carries_one_service_and_a_filtered_one_the_rest() {
    let pair = Pair::new(fast());
    let server = || std::net::UdpSocket::bind("192.0.2.2:53");
    let server = pair.far.run(server).unwrap().unwrap();
    server
        .set_read_timeout(Some(Duration::from_millis(500)))
        .unwrap();
    let client = || std::net::UdpSocket::bind("192.0.2.1:0");
    let client = pair.near.run(client).unwrap().unwrap();
    let asks = |question: &[u8]| {
        client.send_to(question, "192.0.2.2:53").unwrap();
        let mut received = [0; 16];
        let arrived = server.recv(&mut received);
        arrived.is_ok_and(|length| received[..length] == *question)
    };
    // Neighbours are found over a line that carries nothing else of it.
    for (passage, dns, icmp) in [
        (Passage::Only(Service::Dns), true, false),
        (Passage::Only(Service::Icmp), false, true),
        (Passage::AllBut(Service::Dns), false, true),
        (Passage::AllBut(Service::Icmp), true, false),
        (Passage::All, true, true),
    ] {
        pair.near.ip("neigh flush all").unwrap();
        pair.link.apply(None, Change::Passage(passage)).unwrap();
        assert_eq!(asks(b"who"), dns, "{passage:?}");
        assert_eq!(pair.ping(&[]), icmp, "{passage:?}");
    }
}

#[test]
fn jitter_holds_packets_up_in_their_order() {
    let pair = Pair::new(fast());
    pair.answers();
    let jitter = Change::Jitter(Duration::from_millis(100));
    pair.link.apply(Some(Direction::Up), jitter).unwrap();
    let words = ["-c", "40", "-i", "0.002", "-w", "10", "192.0.2.2"];
    let output = pair.near.exec("ping", &words).unwrap();
    let of = |line: &str, word: &str| -> Option<f64> {
        let rest = line.split(word).nth(1)?;
        rest.split(' ').next()?.parse().ok()
    };
    let answers: Vec<(f64, f64)> = output
        .lines()
        .filter_map(|line| Some((of(line, "icmp_seq=")?, of(line, "time=")?)))
        .collect();
    assert!(answers.iter().any(|(_, ms)| *ms > 40.0), "{output}");
    assert!(answers.is_sorted_by_key(|(number, _)| *number), "{output}");
}

#[test]
fn a_frame_no_wire_could_carry_is_refused_and_makes_the_run_invalid() {
    let pair = Pair::new(fast());
    pair.answers();
    pair.near.set_mtu("eth0", 1600).unwrap();
    assert!(!pair.ping(&["-s", "1500", "-M", "do"]));
    pair.near.set_offloads("eth0", true).unwrap();
    let datagram = || {
        let socket = std::net::UdpSocket::bind("192.0.2.1:0")?;
        socket.send_to(b"partial", "192.0.2.2:9")
    };
    pair.near.run(datagram).unwrap().unwrap();
    // The veth device itself refuses what is longer than its peer's MTU.
    let refused =
        |report: &LinkReport| report.device_drops > 0 && report.up.faults.partial_checksum > 0;
    let report = pair.report_once(refused);
    let problems = report.problems().join("\n");
    assert!(problems.contains("link test up"), "{problems}");
    assert!(problems.contains("partial checksums"), "{problems}");
}

#[test]
fn a_cable_can_be_pulled_and_plugged_in_again() {
    let pair = Pair::new(fast());
    pair.answers();
    pair.near.ip("link delete eth0").unwrap();
    let near = End {
        namespace: &pair.near,
        device: "eth0",
    };
    pair.link.replug(near).unwrap();
    pair.near
        .add_address("eth0", [192, 0, 2, 1].into(), 24)
        .unwrap();
    // The far side still knows the old device's hardware address.
    pair.far.ip("neigh flush all").unwrap();
    pair.answers();
}

#[test]
fn a_line_out_of_range_names_link_direction_and_key() {
    let near = Namespace::create("near").unwrap();
    let emulator = Emulator::start(1).unwrap();
    let end = End {
        namespace: &near,
        device: "eth0",
    };
    let mut shape = fast();
    shape.down.loss = Loss::Independent { probability: 2.0 };
    let error = emulator.connect("fiber", end, end, shape).unwrap_err();
    assert_eq!(
        error.to_string(),
        "link fiber, down: loss = 2: a probability from 0 to 1"
    );
}
