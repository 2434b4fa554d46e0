use std::path::Path;
use std::time::Duration;

use anabranch_core::Family;
use anabranch_core::served::Served;
use anabranch_dataplane::services::ServerId;
use tokio::time::Instant;

use super::super::PlacedServer;
use super::super::among::members;
use super::super::config::Config;
use super::super::unknown::INSERT_LIMIT;
use super::super::ways::Missing;
use super::by_whole_weights;
use crate::config::Configuration;

/// A service of these endpoints and servers.
fn service(name: &str, listen: &str, servers: &str, more: &str) -> String {
    format!(
        "[service.{name}]\nlisten = {listen}\nservers = {servers}\ndevices = [\"eth0\"]\n{more}\n"
    )
}

fn read(text: &str) -> Result<Config, String> {
    let read = Configuration::parse(Path::new("f.toml"), text);
    let read = read.map_err(|error| error.to_string())?;
    Ok(read.services.expect("a service"))
}

const HASH: &str = "unknown = \"hash\"";
const WEB: &str = "\"203.0.113.10:80\"";
const RANGE: &str = "[\"203.0.113.10:8000-8005\", \"203.0.113.10:443\", \"udp:203.0.113.10:443\", \"[2001:db8::10]:80\"]";
const SERVER: &str = "[\"10.0.0.11:8080\"]";

#[test]
fn connections_are_limited_where_something_becomes_of_those_above() {
    for (more, expected) in [
        ("", None),
        ("unknown = \"drop\"", Some(INSERT_LIMIT)),
        (HASH, Some(INSERT_LIMIT)),
        ("unknown = \"peer\"\ninsert_limit = 7", Some(7)),
        ("insert_limit = 7", Some(7)),
    ] {
        let read = read(&service("web", WEB, SERVER, more)).unwrap();
        assert_eq!(read.services[0].insert_limit, expected, "{more}");
    }
    let refused = read(&service("web", WEB, SERVER, "insert_limit = 0")).unwrap_err();
    assert!(
        refused.contains("service.web.insert_limit = 0: connections a second: 1 to"),
        "{refused}"
    );
}

#[test]
fn what_a_servers_packet_does_not_tell_is_refused() {
    let several = "answers for several virtual endpoints";
    let other = |server: &str| {
        service("web", WEB, SERVER, HASH) + &service("b", "\"203.0.113.10:90\"", server, "")
    };
    for (text, said) in [
        (
            service("web", RANGE, "[\"10.0.0.12:80\", \"fd00::12\"]", HASH),
            several,
        ),
        (
            service(
                "web",
                "[\"203.0.113.10:80\", \"203.0.113.11:80\"]",
                "[\"10.0.0.12\"]",
                HASH,
            ),
            several,
        ),
        (other(SERVER), "10.0.0.11 is a server of service.b, too"),
        (
            other("[\"10.0.0.11\"]"),
            "10.0.0.11 is a server of service.b, too",
        ),
    ] {
        let refused = read(&text).unwrap_err();
        assert!(
            refused.starts_with("f.toml: service.web.unknown = \"hash\": "),
            "{refused}"
        );
        assert!(refused.contains(said), "{refused}");
        let direct = text.replace(
            "[\"10.0.0.12:80\", \"fd00::12\"]",
            "[\"10.0.0.12\", \"fd00::12\"]",
        );
        let direct = direct
            .replace(HASH, "unknown = \"hash\"\nforwarding = \"direct\"")
            .replace(":8080", "");
        read(&direct).unwrap_or_else(|error| panic!("{direct}\n{error}"));
        read(&text.replace(HASH, "")).unwrap();
    }
    read(&other("[\"10.0.0.11:8081\"]")).unwrap();
    let many = RANGE.replace("8005", "8020");
    let refused = read(&service(
        "web",
        &many,
        "[\"10.0.0.12:80\", \"fd00::12\"]",
        "",
    ))
    .unwrap_err();
    let expected = "f.toml: service.web.servers = [\"10.0.0.12:80\", \"fd00::12\"]: 10.0.0.12:80 answers for more than 8";
    assert!(refused.starts_with(expected), "{refused}");
}

#[test]
fn hashes_lead_where_they_did_while_the_weight_of_a_server_rises() {
    let servers = r#"[{ at = "10.0.0.11:80", weight = 3 }, "10.0.0.12:80"]"#;
    let more = format!("{HASH}\npolicy = \"WLC\"\nslow_start = \"100s\"");
    let config = read(&service("web", WEB, servers, &more)).unwrap();
    let service = &config.services[0];
    let rows_after = |rising: Option<Duration>| {
        let placed = service.endpoints().zip(0..).map(|(endpoint, id)| {
            let server = PlacedServer {
                id: ServerId(id),
                opened_before: 0,
                way: Err(Missing::Route),
                is_drained: false,
                is_used: true,
                up_since: rising
                    .filter(|_| id == 0)
                    .map(|since| Instant::now() - since),
                passive: Default::default(),
                is_dead: false,
            };
            (endpoint, server)
        });
        let among = members(service, &placed.collect(), Family::V4, |_| {
            Served::default()
        });
        let weights: Vec<u32> = among.iter().flatten().map(|one| one.weight).collect();
        let rows = service.policy.rows(&by_whole_weights(service, &among));
        (weights, rows)
    };
    let (weights, rows) = rows_after(None);
    assert_eq!(weights, [3, 1]);
    for (since_s, rising) in [(0, [6, 20]), (50, [33, 20])] {
        let (weights, rows_now) = rows_after(Some(Duration::from_secs(since_s)));
        assert_eq!(weights, rising);
        assert!(rows_now == rows, "after {since_s} s");
    }
}
