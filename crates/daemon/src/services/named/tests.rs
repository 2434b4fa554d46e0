use std::collections::BTreeMap;

use anabranch_core::Time;
use hickory_proto::rr::rdata::{A, SRV};
use hickory_proto::rr::{Name, Record as WireRecord};
use proptest::prelude::*;

use super::*;
use crate::config::Configuration;

/// A service with these lines in its table.
fn config(lines: &str) -> Config {
    let text =
        format!("[service.web]\nlisten = \"203.0.113.10:80\"\ndevices = [\"eth0\"]\n{lines}\n");
    let read = Configuration::parse(Path::new("f.toml"), &text).unwrap();
    read.services.unwrap()
}

/// Everything that has been answered, applied to a configuration.
fn applied(config: &mut Config, answers: &BTreeMap<&str, Vec<Record>>) -> Vec<String> {
    let nowhere = Path::new("/nonexistent");
    let paths = Paths::under(nowhere, nowhere, "a").unwrap();
    let mut naming = Naming::recall(&paths, false);
    // SRV records lead to more questions.
    for _ in 0..2 {
        naming.apply(Time::ZERO, config);
        while let Some(question) = naming.names.poll_ask(Time::ZERO) {
            let records = answers.get(&question.to_string()[..]);
            let answer = Answer {
                records: records.into_iter().flatten().cloned().collect(),
                lasts: Duration::from_secs(60),
            };
            naming.names.handle(Time::ZERO, &question, Ok(answer));
        }
    }
    naming.apply(Time::ZERO, config);
    naming.left_out
}

fn address(text: &str) -> Record {
    Record::Address(text.parse().unwrap())
}

fn server(priority: u16, weight: u16, port: u16, host: &str) -> Record {
    Record::Server {
        priority,
        weight,
        port,
        host: host.to_owned(),
    }
}

/// Where the servers of the first service are, their weights, and `b` for a backup.
fn told(config: &Config) -> Vec<String> {
    let servers = config.services[0].servers.iter();
    let told = servers.map(|one| {
        let backup = if one.backup { "b" } else { "" };
        format!("{} {}{backup}", ServerAt(one.endpoint), one.weight)
    });
    told.collect()
}

#[test]
fn a_name_stands_for_each_of_its_addresses_and_what_is_written_of_it_holds_for_all() {
    let mut config = config(
        "servers = [\"10.0.0.9:80\", { at = \"Web.Internal.:8080\", weight = 3, limit = 7 }]\ncheck = \"http:/up\"",
    );
    assert_eq!(told(&config), ["10.0.0.9:80 1"]);
    let answers = BTreeMap::from([
        (
            "A web.internal",
            vec![address("10.0.0.2"), address("10.0.0.1")],
        ),
        ("AAAA web.internal", vec![address("fd00::1")]),
    ]);
    assert_eq!(applied(&mut config, &answers), [""; 0]);
    // Nobody calls by IPv6.
    let expected = ["10.0.0.9:80 1", "10.0.0.1:8080 3", "10.0.0.2:8080 3"];
    assert_eq!(told(&config), expected);
    let by_name = &config.services[0].servers[1];
    assert_eq!(by_name.limit.map(|limit| limit.get()), Some(7));
    let test = by_name.check.as_ref().unwrap().tests[0].to_string();
    assert_eq!(test, "http:10.0.0.1:8080/up = 200");
}

#[test]
fn srv_records_give_ports_and_weights_and_all_but_the_lowest_priority_are_backups() {
    let mut config = config("servers = [\"srv:_http._tcp.web.internal\"]");
    let answers = BTreeMap::from([
        (
            "SRV _http._tcp.web.internal",
            vec![
                server(10, 4000, 80, "a.internal"),
                server(10, 1000, 81, "b.internal"),
                server(10, 0, 82, "c.internal"),
                server(20, 5, 83, "d.internal"),
            ],
        ),
        (
            "A a.internal",
            vec![address("10.0.0.1"), address("10.0.0.2")],
        ),
        ("A b.internal", vec![address("10.0.0.3")]),
        ("A c.internal", vec![address("10.0.0.4")]),
        ("A d.internal", vec![address("10.0.0.5")]),
    ]);
    assert_eq!(applied(&mut config, &answers), [""; 0]);
    let expected = [
        "10.0.0.4:82 1",
        "10.0.0.3:81 250",
        "10.0.0.1:80 1000",
        "10.0.0.2:80 1000",
        "10.0.0.5:83 1b",
    ];
    assert_eq!(told(&config), expected);
}

#[test]
fn what_cannot_be_a_server_is_left_out_and_said() {
    let mut config = config("servers = [\"web.internal:80\"]");
    let answers = BTreeMap::from([(
        "A web.internal",
        vec![
            address("203.0.113.10"),
            address("127.0.0.1"),
            address("10.0.0.1"),
        ],
    )]);
    assert_eq!(
        applied(&mut config, &answers),
        [
            "service web: web.internal:80 left out: 127.0.0.1:80 is not the address of one host",
            "service web: web.internal:80 left out: 203.0.113.10:80 is the virtual endpoint of service.web, not a server",
        ]
    );
    assert_eq!(told(&config), ["10.0.0.1:80 1"]);
}

#[test]
fn a_server_of_two_services_is_left_out_where_its_answers_cannot_be_told_apart() {
    let other = "[service.other]\nlisten = \"203.0.113.11:80\"\nservers = [\"10.0.0.1:80\"]\n";
    let mut config = config(&format!(
        "servers = [\"web.internal:80\"]\nunknown = \"hash\"\n{other}devices = [\"eth0\"]"
    ));
    let answers = BTreeMap::from([(
        "A web.internal",
        vec![address("10.0.0.1"), address("10.0.0.2")],
    )]);
    let left_out = applied(&mut config, &answers);
    let why = "service web: left out: 10.0.0.1 is a server of service.other, too";
    assert_eq!(left_out, [why]);
    assert_eq!(told(&config), ["10.0.0.2:80 1"]);
    assert_eq!(config.services[1].servers.len(), 1);
    config.check_answers().unwrap();
}

proptest! {
    #[test]
    fn servers_are_there_once_and_no_more_than_there_is_room_for_and_those_with_an_address_always(
        fixed in proptest::collection::btree_set(0u16..400, 1..40),
        named in proptest::collection::btree_set(0u16..400, 0..400),
    ) {
        let at = |number: &u16| Ipv4Addr::new(10, 0, (number >> 8) as u8, *number as u8);
        let written: Vec<_> = fixed.iter().map(|number| format!("\"{}:80\"", at(number))).collect();
        let mut config = config(&format!("servers = [\"web.internal:80\", {}]", written.join(", ")));
        let records = named.iter().map(|number| Record::Address(at(number).into()));
        let answers = BTreeMap::from([("A web.internal", records.collect())]);
        let left_out = applied(&mut config, &answers);
        let all = config.services[0].endpoints().collect::<Vec<_>>();
        let each: BTreeSet<_> = all.iter().copied().collect();
        prop_assert_eq!(each.len(), all.len());
        let endpoint = |number| SocketAddr::new(at(number).into(), 80);
        prop_assert!(fixed.iter().map(endpoint).all(|one| each.contains(&one)));
        let either: BTreeSet<_> = fixed.union(&named).map(endpoint).collect();
        prop_assert!(each.is_subset(&either));
        prop_assert_eq!(each.len(), either.len().min(TargetKind::Server.row().max));
        prop_assert_eq!(left_out.len(), either.len() - each.len());
    }
}

#[test]
fn an_answer_has_the_records_of_its_kind_and_lasts_as_long_as_the_shortest() {
    let name = |text: &str| Name::from_ascii(text).unwrap();
    let mut message = Message::new();
    for (ttl, data) in [
        (
            60,
            RData::CNAME(hickory_proto::rr::rdata::CNAME(name("a.test."))),
        ),
        (7, RData::A(A::new(10, 0, 0, 1))),
        (60, RData::SRV(SRV::new(1, 2, 3, name("B.Test.")))),
        (60, RData::SRV(SRV::new(1, 2, 3, name(".")))),
    ] {
        message.add_answer(WireRecord::from_rdata(name("web.test."), ttl, data));
    }
    let addresses = answer(&message, RecordType::A);
    assert_eq!(addresses.records, BTreeSet::from([address("10.0.0.1")]));
    assert_eq!(addresses.lasts, Duration::from_secs(7));
    let servers = answer(&message, RecordType::SRV);
    assert_eq!(servers.records, BTreeSet::from([server(1, 2, 3, "b.test")]));
}

#[test]
fn the_resolvers_of_the_host_are_those_of_its_file() {
    let text =
        "# of DHCP\nsearch example.net\nnameserver 10.0.0.2\nnameserver fd00::2\nnameserver x\n";
    let resolvers = resolvers_of(text).into_iter().map(|one| one.to_string());
    assert_eq!(
        resolvers.collect::<Vec<_>>(),
        ["10.0.0.2:53", "[fd00::2]:53"]
    );
}
