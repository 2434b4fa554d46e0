//! Access lines whose round trip is longer than the timer of a SYN.

use std::thread;
use std::time::{Duration, Instant};

use anabranch_lab::topology::{Lab, LabSpec};
use socket2::{Domain, SockAddr, Socket, Type};

use crate::house::{DEADLINE, House, status};

const ROUND_TRIP_MS: u64 = 1200;
/// A host that misses the first answer has the second a timer of the SYN (RFC 6298: 1 s) later.
const FIRST_ANSWER: Duration = Duration::from_millis(ROUND_TRIP_MS + 900);
const CONNECTS: usize = 8;

#[test]
fn a_round_trip_longer_than_the_syn_timer_costs_no_connect_its_first_answer() {
    for policy in ["RR", "WSDM"] {
        let spec = LabSpec::of_lines(
            &["fiber", "cable"].map(|name| (name, 24_000_000, 12_000_000, ROUND_TRIP_MS)),
        );
        let house = House::of(&spec, &format!("policy = \"{policy}\""));
        let times = connect_times(&house.lab);
        println!("{policy}: connects take {times:?}");
        assert!(
            times.iter().all(|time| *time < FIRST_ANSWER),
            "{policy}: {times:?}"
        );
        let told = status(&house.gateway);
        let tries: u64 = told.links.iter().map(|link| link.flows.opened).sum();
        let is_retrying = policy == "WSDM";
        assert_eq!(
            tries > CONNECTS as u64,
            is_retrying,
            "repeated SYNs take another link under WSDM alone: {told:?}"
        );
    }
}

/// How long connections to the web server take to open, all of them at once.
fn connect_times(lab: &Lab) -> Vec<Duration> {
    let server = SockAddr::from(lab.server());
    let connect = || {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let begun = Instant::now();
        socket.connect_timeout(&server, DEADLINE).unwrap();
        begun.elapsed()
    };
    let all = || {
        thread::scope(|scope| {
            let connects: Vec<_> = (0..CONNECTS).map(|_| scope.spawn(connect)).collect();
            let times = connects.into_iter().map(|each| each.join().unwrap());
            times.collect()
        })
    };
    lab.clients().run(all).unwrap()
}
