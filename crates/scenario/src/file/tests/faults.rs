use super::*;
use crate::{Change, Direction, Loss, Passage, Place, Service};

#[test]
fn faults_come_in_the_order_of_time() {
    let scenario = read(&format!(
        r#"{MINIMAL}
        fault = [
            {{ at = "20s", link = "lte", change = "restore" }},
            {{ at = "10s", link = "lte", change = "cut" }},
            {{ at = "5s", link = "fiber", direction = "up", rate = "5kbit" }},
            {{ at = "6s", link = "fiber", loss = "1%" }},
        ]"#
    ));
    let changes: Vec<_> = scenario.faults.iter().map(|fault| fault.change).collect();
    assert_eq!(changes[0], Change::Rate(5_000));
    assert_eq!(
        changes[1],
        Change::Loss(Loss::Independent { probability: 0.01 })
    );
    assert_eq!(changes[2..], [Change::Cut, Change::Restore]);
    assert_eq!(scenario.faults[0].direction, Some(Direction::Up));
    assert_eq!(scenario.faults[3].place, Place::LastMile);
}

#[test]
fn impairments_begin_and_end_by_faults() {
    let scenario = read(&format!(
        r#"{MINIMAL}
        fault = [
            {{ at = "1s", link = "lte", jitter = "20ms" }},
            {{ at = "2s", link = "lte", mtu = "1400B", direction = "down" }},
            {{ at = "3s", link = "lte", mtu = false }},
            {{ at = "4s", link = "lte", captive = "dns" }},
            {{ at = "5s", link = "lte", captive = false }},
            {{ at = "6s", link = "lte", filter = "icmp" }},
        ]"#
    ));
    let changes: Vec<_> = scenario.faults.iter().map(|fault| fault.change).collect();
    assert_eq!(
        changes,
        [
            Change::Jitter(Duration::from_millis(20)),
            Change::Mtu(Some(1400)),
            Change::Mtu(None),
            Change::Passage(Passage::Only(Service::Dns)),
            Change::Passage(Passage::All),
            Change::Passage(Passage::AllBut(Service::Icmp)),
        ]
    );
    assert_eq!(scenario.faults[1].direction, Some(Direction::Down));
}

#[test]
fn faults_that_cannot_happen_are_refused() {
    let fault = |text: &str| error_with(&format!("fault = [{{ {text} }}]"));
    assert_eq!(
        fault(r#"at = "1s", link = "dsl", change = "cut""#),
        r#"fault[0].link = "dsl": no such link; allowed: fiber, lte"#
    );
    assert_eq!(
        fault(r#"at = "30s", link = "lte", change = "cut""#),
        r#"fault[0].at = "30s": is not before the end of the run, 30 s"#
    );
    assert_eq!(
        fault(r#"at = "1s", link = "lte", place = "beyond", change = "cut""#),
        r#"fault[0].place = "beyond": link.lte has no beyond"#
    );
    assert_eq!(
        fault(r#"at = "1s", link = "lte""#),
        r#"fault[0] = { at = "1s", link = "lte" }: changes nothing; write one of change = "cut", change = "restore", rate, loss, delay, jitter, mtu, captive, filter"#
    );
    assert!(
        fault(r#"at = "1s", link = "lte", rate = 1000, delay = "1s""#)
            .ends_with("changes several things; write one fault for each")
    );
    assert_eq!(
        fault(r#"at = "1s", link = "lte", change = "restore""#),
        r#"fault[0].change = "restore": at 1 s, lte is not cut"#
    );
    assert_eq!(
        fault(
            r#"at = "1s", link = "lte", change = "cut" }, { at = "2s", link = "lte", direction = "up", change = "cut""#
        ),
        r#"fault[1].change = "cut": at 2 s, lte is cut already"#
    );
    assert_eq!(
        fault(r#"at = "1s", link = "lte", rate = 0"#),
        r#"fault[0].rate = 0: a rate must be above 0: write it like "500mbit" (bit, kbit, mbit, gbit) or as a whole number of bit/s"#
    );
    assert_eq!(
        fault(r#"at = "1s", link = "lte", delay = "11s""#),
        r#"fault[0].delay = "11s": a delay is at most 10 s"#
    );
    assert_eq!(
        fault(r#"at = "1s", link = "lte", mtu = 67"#),
        r#"fault[0].mtu = 67: an MTU is 68 B to 65535 B, or false for any"#
    );
    assert_eq!(
        fault(r#"at = "1s", link = "lte", jitter = "11s""#),
        r#"fault[0].jitter = "11s": a jitter is at most 10 s"#
    );
    assert_eq!(
        fault(r#"at = "1s", link = "lte", captive = "dns", filter = "icmp""#),
        r#"fault[0].captive = "dns": a captive line carries nothing else; leave filter out"#
    );
    let jitter = error(&format!(
        "{TRUNK}fault = [{{ at = \"1s\", link = \"7\", jitter = \"1ms\" }}]"
    ));
    assert!(
        jitter.ends_with("only links and what is beyond them have it"),
        "{jitter}"
    );
    let trunk = error(&format!(
        "{TRUNK}fault = [{{ at = \"1s\", link = \"8\", change = \"cut\" }}]"
    ));
    assert!(
        trunk.ends_with("no such link; allowed: 0, 1, 2, 3, 4, 5, 6, 7"),
        "{trunk}"
    );
    let up = error(&format!(
        "{TRUNK}fault = [{{ at = \"1s\", link = \"7\", direction = \"up\", change = \"cut\" }}]"
    ));
    assert!(up.ends_with("sublinks carry traffic down only"), "{up}");
}
