use std::time::Duration;

use super::*;
use crate::{Ports, Recovery};

#[test]
fn cubic_has_hystart_unless_told_otherwise_and_reno_has_none() {
    let hystart = |tcp: &str| read(&format!("{MINIMAL}\n{tcp}")).tcp.hystart;
    assert!(hystart("") && hystart("tcp.control = \"cubic\""));
    assert!(hystart("tcp.control = \"cubic-linux\""));
    assert!(!hystart("tcp.hystart = false") && !hystart("tcp.control = \"reno\""));
}

#[test]
fn newreno_is_impatient_unless_told_otherwise() {
    for (written, recovery) in [
        ("newreno", Recovery::NewReno),
        ("newreno-slow-but-steady", Recovery::NewRenoSlowButSteady),
    ] {
        let tcp = read(&format!("{MINIMAL}\ntcp.recovery = \"{written}\"")).tcp;
        assert_eq!(tcp.recovery, recovery);
    }
}

#[test]
fn two_lost_syns_shrink_the_first_window_unless_told_otherwise() {
    let lost_syns = |tcp: &str| read(&format!("{MINIMAL}\n{tcp}")).tcp.lost_syns;
    assert_eq!((lost_syns(""), lost_syns("tcp.lost_syns = 1")), (2, 1));
}

#[test]
fn ports_are_drawn_unless_told_otherwise() {
    let ports = |tcp: &str| read(&format!("{MINIMAL}\n{tcp}")).tcp.ports;
    assert_eq!(ports(""), Ports::Random);
    assert_eq!(ports("tcp.ports = \"consecutive\""), Ports::Consecutive);
}

#[test]
fn bbr_always_paces_and_others_where_it_is_asked_for() {
    let pacing = |tcp: &str| read(&format!("{MINIMAL}\n{tcp}")).tcp.pacing;
    assert!(pacing("tcp.control = \"bbr\"") && pacing("tcp.pacing = true"));
    assert!(!pacing("") && !pacing("tcp.control = \"reno\""));
}

#[test]
fn rack_is_told_of_duplicates_unless_told_otherwise_and_nobody_without_sack() {
    let dsack = |tcp: &str| read(&format!("{MINIMAL}\n{tcp}")).tcp.dsack;
    assert!(dsack("tcp.recovery = \"rack\""));
    assert!(!dsack("") && dsack("tcp.dsack = true"));
    assert!(!dsack("tcp = { recovery = \"rack\", dsack = false }"));
    let problem = error_with("tcp = { recovery = \"newreno\", dsack = true }");
    assert!(
        problem.contains("dsack") && problem.contains("\"rack\""),
        "{problem}"
    );
}

#[test]
fn sizes_of_segments_have_units_or_are_bytes() {
    for written in [
        "tcp = { mss = \"1.46kB\", header = \"40B\" }",
        "tcp = { mss = 1460, header = 40 }",
    ] {
        let tcp = read(&format!("{MINIMAL}\n{written}")).tcp;
        assert_eq!((tcp.mss_bytes, tcp.header_bytes), (1460, 40), "{written}");
    }
}

#[test]
fn hosts_take_no_time_unless_told_otherwise_and_never_much() {
    let overhead = |tcp: &str| read(&format!("{MINIMAL}\n{tcp}")).tcp.overhead;
    assert_eq!(overhead(""), Duration::ZERO);
    assert_eq!(
        overhead("tcp.overhead = \"100us\""),
        Duration::from_micros(100)
    );
    let problem = error_with("tcp.overhead = \"11ms\"");
    assert!(
        problem.contains("overhead") && problem.contains("10 ms"),
        "{problem}"
    );
}
