use anabranch_core::Policy;
use anabranch_core::catalogue::{self, TargetKind};

use super::*;
use crate::config::Configuration;

const WEB: &str = "[service.web]\nlisten = \"203.0.113.10:80\"\nservers = [\"10.0.0.11:80\"]\n";
const DEVICES: &str = "devices = [\"eth0\"]\n";
const GATEWAY: &str = "policy = \"rr\"\nlan = [\"lan0\"]\nlink.a = { device = \"wan0\" }\n";

fn read(text: &str) -> Result<Configuration, String> {
    let read = Configuration::parse(Path::new("f.toml"), text);
    read.map_err(|error| error.to_string())
}

#[test]
fn what_passes_by_decides_which_policies_servers_that_answer_themselves_have() {
    for policy in ["CONN", "probabilistic", "LC", "Maglev-bounded"] {
        let file = format!("{WEB}forwarding = \"direct\"\npolicy = \"{policy}\"\n{DEVICES}");
        read(&file).unwrap();
    }
}

#[test]
fn services_stand_at_their_own_devices_or_the_gateways() {
    let alone = read(&format!("{WEB}{DEVICES}")).unwrap();
    assert_eq!(alone.roles(), [SERVICE]);
    assert_eq!(alone.services.unwrap().devices, ["eth0"]);
    let both = read(&format!("{GATEWAY}{WEB}")).unwrap();
    assert_eq!(both.roles(), ["gateway", SERVICE]);
    assert_eq!(both.services.unwrap().devices, ["lan0", "wan0"]);
}

#[test]
fn a_service_has_the_policy_that_it_names_or_the_default_of_servers() {
    for text in ["", "policy = \"rr\"\n", "policy = \"cyclic\"\n"] {
        let config = read(&format!("{WEB}{text}{DEVICES}")).unwrap();
        let policy = config.services.unwrap().services[0].policy;
        let default = catalogue::default(TargetKind::Server).policy;
        assert_eq!(Policy::Service(policy), default, "{text}");
    }
}

#[test]
fn every_server_has_the_check_of_its_service_at_its_own_address() {
    let servers = "[\"10.0.0.11:80\", { at = \"10.0.0.12:81\", weight = 3, backup = true }]";
    for (check, tests) in [
        ("", ["tcp:10.0.0.11:80", "tcp:10.0.0.12:81"]),
        ("check = \"icmp\"\n", ["icmp:10.0.0.11", "icmp:10.0.0.12"]),
        (
            "check = { ask = \"http:/up\", expect = { status = [204] } }\n",
            ["http:10.0.0.11/up = 204", "http:10.0.0.12:81/up = 204"],
        ),
        (
            "check = { ask = \"https:/\", port = 8443, certificate = \"any\" }\n",
            ["https:10.0.0.11:8443/ = 200", "https:10.0.0.12:8443/ = 200"],
        ),
        ("check = \"none\"\n", ["", ""]),
    ] {
        let text = format!("{WEB}{check}{DEVICES}").replace("[\"10.0.0.11:80\"]", servers);
        let service = read(&text).unwrap().services.unwrap().services.remove(0);
        let made = service.servers.iter().map(|server| {
            let check = server.check.iter().flat_map(|check| &check.tests);
            check.map(ToString::to_string).collect::<String>()
        });
        assert_eq!(made.collect::<Vec<_>>(), tests, "{check}");
        let [first, second] = &service.servers[..] else {
            panic!("two servers");
        };
        assert_eq!((first.weight, first.backup), (1, false));
        assert_eq!((second.weight, second.backup), (3, true));
    }
}

#[test]
fn a_service_of_udp_says_so_and_asks_nothing_by_tcp() {
    let both = "[\"203.0.113.10:80\", \"udp:203.0.113.10:80\"]";
    for (listen, asks) in [
        ("\"udp:203.0.113.10:80\"", "icmp:10.0.0.11"),
        (both, "tcp:10.0.0.11:80"),
    ] {
        let text = format!("{WEB}{DEVICES}").replace("\"203.0.113.10:80\"", listen);
        let service = read(&text).unwrap().services.unwrap().services.remove(0);
        let check = service.servers[0].check.as_ref().unwrap();
        assert_eq!(check.tests[0].to_string(), asks);
    }
}

#[test]
fn a_server_without_a_port_keeps_the_one_called_and_is_checked_at_the_first() {
    let text = format!("{WEB}{DEVICES}").replace("10:80", "10:8000-8007");
    let text = text.replace(
        "[\"10.0.0.11:80\"]",
        "[\"10.0.0.11\", { at = \"10.0.0.12\" }, \"10.0.0.13:80\"]",
    );
    let service = read(&text).unwrap().services.unwrap().services.remove(0);
    let asked = service.servers.iter().map(|server| {
        let check = server.check.as_ref().unwrap();
        (server.endpoint.port(), check.tests[0].to_string())
    });
    let asked: Vec<_> = asked.collect();
    let expected = [
        (0, "tcp:10.0.0.11:8000"),
        (0, "tcp:10.0.0.12:8000"),
        (80, "tcp:10.0.0.13:80"),
    ];
    assert_eq!(asked, expected.map(|(port, ask)| (port, ask.to_owned())));
}

#[test]
fn resolvers_are_written_with_and_without_a_port() {
    let text = format!("{WEB}{DEVICES}resolver = [\"10.0.0.2\", \"[fd00::2]:5353\"]\n");
    let text = text.replace("10.0.0.11:80", "web.internal:80");
    let service = read(&text).unwrap().services.unwrap().services.remove(0);
    let resolvers = service.resolvers.iter().map(ToString::to_string);
    assert_eq!(
        resolvers.collect::<Vec<_>>(),
        ["10.0.0.2:53", "[fd00::2]:5353"]
    );
    assert_eq!(service.servers, []);
}

#[test]
fn what_cannot_be_is_told_in_a_line_with_key_and_value() {
    let with = |from: &str, to: &str| format!("{WEB}{DEVICES}").replace(from, to);
    let server = "[\"10.0.0.11:80\"]";
    let trunk = "[trunk]\ndevice = \"trunk0\"\nsublink.a = { device = \"eth0\" }\n";
    for (text, said) in [
        (
            WEB.to_owned(),
            "service.web = [service.web]: which devices lead to its clients and servers?",
        ),
        (
            with("203.0.113.10:80", "203.0.113.10"),
            "service.web.listen = \"203.0.113.10\": write it like \"203.0.113.10:80\"",
        ),
        (
            with("203.0.113.10:80", "0.0.0.0:80"),
            "service.web.listen = \"0.0.0.0:80\": each must be the address of one host",
        ),
        (
            with(server, "[]"),
            "service.web.servers = []: one server is wanted at least",
        ),
        (
            with(server, "[\"10.0.0.11:80\", \"10.0.0.11:80\"]"),
            "10.0.0.11:80 is there twice",
        ),
        (with("10:80", "10:0"), "a port from 1 on"),
        (
            format!("{WEB}{DEVICES}[services]\nconnections = 10\n"),
            "services.connections = 10: 524288 to 16000000 connections are allowed",
        ),
        (
            with("10:80", "10:80-79"),
            "service.web.listen = \"203.0.113.10:80-79\": write it like",
        ),
        (
            with(
                "\"203.0.113.10:80\"",
                "[\"203.0.113.10:80\", \"203.0.113.10:79-90\"]",
            ),
            "203.0.113.10:79-90 is service.web's already, by 203.0.113.10:80",
        ),
        (
            with(server, "[\"203.0.113.10\"]"),
            "203.0.113.10 is the virtual endpoint of service.web, not a server",
        ),
        (
            with(server, "[\"10.0.0.256:80\"]"),
            "service.web.servers[0] = \"10.0.0.256:80\": write \"10.0.0.11:80\"",
        ),
        (
            with(server, "[\"web.internal:http\"]"),
            "service.web.servers[0] = \"web.internal:http\": write \"10.0.0.11:80\"",
        ),
        (
            with(server, "[\"web.internal:80\", \"WEB.internal.:80\"]"),
            "web.internal:80 is there twice",
        ),
        (
            with(server, "[{ at = \"srv:_http._tcp.web\", weight = 2 }]"),
            "service.web.servers[0].weight = 2: SRV records have weights of their own",
        ),
        (
            format!("{WEB}resolver = \"10.0.0.2\"\n{DEVICES}"),
            "service.web.resolver = \"10.0.0.2\": every server has an address; leave it out",
        ),
        (
            with(server, "[\"web\"]\nresolver = \"ns.internal\""),
            "service.web.resolver = \"ns.internal\": write its address",
        ),
        (
            with(server, "[\"web:8080\"]\nforwarding = \"direct\""),
            "web:8080: forwarding = \"direct\" leaves the port that clients called: write \"web\"",
        ),
        (
            with(server, "[\"srv:_http._tcp.web\"]\nforwarding = \"tunnel\""),
            "srv:_http._tcp.web: forwarding = \"tunnel\" leaves the port that clients called",
        ),
        (
            with(server, "[{ at = \"10.0.0.11:80\", weight = 1001 }]"),
            "service.web.servers[0].weight = 1001: 0 to 1000 are allowed",
        ),
        (
            with(server, "[{ at = \"10.0.0.11:80\", limit = 0 }]"),
            "service.web.servers[0].limit = 0: 1 at least",
        ),
        (
            with(server, "[{ at = \"10.0.0.11:80\", backup = true }]"),
            "one server at least is to be no backup",
        ),
        (
            format!("{WEB}policy = \"Maglev\"\nsecret = \"s3cret\"\n{DEVICES}"),
            "service.web.secret = \"s3cret\": write 32 hexadecimal digits",
        ),
        (
            format!("{WEB}secret = \"{}\"\n{DEVICES}", "7".repeat(32)),
            "the policy RR uses no hash",
        ),
        (
            format!("{WEB}policy = \"probing\"\ncheck = \"none\"\n{DEVICES}"),
            "service.web.check = \"none\": the policy goes by the time that checks take",
        ),
        (
            format!("{WEB}poll = \"1s\"\n{DEVICES}"),
            "service.web.poll = \"1s\": the policy RR does not go by it; write policy = \"CONN\"",
        ),
        (
            format!("{WEB}policy = \"CONN\"\npoll = \"1s\"\n{DEVICES}"),
            "service.web.poll = \"1s\": only a server that answers clients itself",
        ),
        (
            with(
                server,
                "[\"10.0.0.11\"]\nforwarding = \"direct\"\npolicy = \"CONN\"\npoll = \"61s\"",
            ),
            "service.web.poll = \"61s\": a time from 100ms to 60s is allowed",
        ),
        (
            format!("{WEB}policy = \"CONN\"\npoll_port = 6090\n{DEVICES}"),
            "service.web.poll_port = 6090: nobody is asked without `poll`",
        ),
        (
            format!("{WEB}on_failure = \"drop\"\n{DEVICES}"),
            "service.web.on_failure = \"drop\": allowed: reset, keep",
        ),
        (
            format!("{WEB}sorry = \"page\"\n{DEVICES}"),
            "service.web.sorry = \"page\": allowed: host, reset, drop",
        ),
        (
            format!("{WEB}slow_start = \"30s\"\n{DEVICES}"),
            "service.web.slow_start = \"30s\": the policy RR goes by no weights",
        ),
        (
            format!("{WEB}policy = \"WLC\"\nslow_start = \"100ms\"\n{DEVICES}"),
            "service.web.slow_start = \"100ms\": a time from 1s to 3600s is allowed",
        ),
        (
            format!("{WEB}ties = \"first\"\n{DEVICES}"),
            "service.web.ties = \"first\": the policy RR compares no servers",
        ),
        (
            format!("{WEB}policy = \"LC\"\nties = \"last\"\n{DEVICES}"),
            "service.web.ties = \"last\": allowed: random, first, connections",
        ),
        (
            format!("{WEB}load_bound = 1.5\n{DEVICES}"),
            "service.web.load_bound = 1.5: the policy RR bounds no load",
        ),
        (
            format!("{WEB}policy = \"Maglev-bounded\"\nload_bound = 1.0\n{DEVICES}"),
            "service.web.load_bound = 1.0: 1.05 to 10 are allowed",
        ),
        (
            format!("{WEB}window = \"1s\"\n{DEVICES}"),
            "service.web.window = \"1s\": the policy RR goes by no window",
        ),
        (
            format!("{WEB}policy = \"RT\"\nwindow = \"1ms\"\n{DEVICES}"),
            "service.web.window = \"1ms\": a time from 10ms to 60s is allowed",
        ),
        (
            format!("{WEB}forwarding = \"direct\"\npolicy = \"RT\"\n{DEVICES}"),
            "service.web.policy = \"RT\": forwarding = \"direct\" shows nothing of the answers",
        ),
        (
            format!("{WEB}forwarding = \"switch\"\n{DEVICES}"),
            "service.web.forwarding = \"switch\": ",
        ),
        (
            format!("{WEB}forwarding = \"direct\"\n{DEVICES}").replace("11:80", "11:8080"),
            "10.0.0.11:8080: forwarding = \"direct\" leaves the port that clients called",
        ),
        (
            format!("{WEB}gue_port = 6080\n{DEVICES}"),
            "service.web.gue_port = 6080: it is of forwarding = \"tunnel\"; leave it out",
        ),
        (
            format!("{WEB}forwarding = \"tunnel\"\ngue_port = 0\n{DEVICES}"),
            "service.web.gue_port = 0: 1 to 65535 are allowed",
        ),
        (
            format!("{WEB}forwarding = \"tunnel\"\npolicy = \"RT\"\n{DEVICES}"),
            "service.web.policy = \"RT\": forwarding = \"tunnel\" shows nothing of the answers",
        ),
        (with(server, "[7]"), "service.web.servers[0] = 7: "),
        (
            format!("{WEB}check = \"ping\"\n{DEVICES}"),
            "service.web.check = \"ping\": write \"tcp\", \"icmp\"",
        ),
        (
            format!("{WEB}check = {{ ask = \"http:health\" }}\n{DEVICES}"),
            "service.web.check.ask = \"http:health\": write \"tcp\"",
        ),
        (
            format!("{WEB}check = {{ ask = \"tcp\", port = 0 }}\n{DEVICES}"),
            "service.web.check.port = 0: 1 to 65535 are allowed",
        ),
        (
            format!("{WEB}check = {{ ask = \"tcp\", port = 70000 }}\n{DEVICES}"),
            "service.web.check.port = 70000: 1 to 65535 are allowed",
        ),
        (
            format!("{WEB}check = {{ ask = \"icmp\", port = 80 }}\n{DEVICES}"),
            "service.web.check.port = 80: it is for checks that ask at a port",
        ),
        (
            format!("{WEB}check = {{ command = [\"/bin/true\"], port = 80 }}\n{DEVICES}"),
            "service.web.check.port = 80: it is for checks that ask at a port",
        ),
        (
            with(
                server,
                &format!(
                    "{:?}",
                    (0..=256)
                        .map(|port| format!("10.0.0.11:{}", port + 1))
                        .collect::<Vec<_>>()
                ),
            ),
            "257 servers; at most 256 are allowed",
        ),
        (
            format!("{WEB}check = {{ interval = \"1ms\" }}\n{DEVICES}"),
            "service.web.check.interval = \"1ms\": a time from 200ms",
        ),
        (
            format!("{WEB}check = {{ expect = {{ status = [200] }} }}\n{DEVICES}"),
            "service.web.check.expect = { status = [200] }: is for pages",
        ),
        (
            with(server, "[\"[fd00::1]:80\"]"),
            "is of another family than every endpoint of `listen`",
        ),
        (
            with(server, "[\"203.0.113.10:80\"]"),
            "is the virtual endpoint of service.web, not a server",
        ),
        (
            with("[\"eth0\"]", "[\"eth0\", \"eth0\"]"),
            "this device is service.web.devices[0] already; a device is named once",
        ),
        (
            format!("{WEB}client_limit = 0\n{DEVICES}"),
            "service.web.client_limit = 0: 1 at least",
        ),
        (
            with("devices", "device"),
            "service.web.device = [\"eth0\"]: unknown key; allowed: listen, servers, resolver, policy, ties, window, poll, poll_port, load_bound, secret, on_failure, unknown, insert_limit, client_limit, sorry, slow_start, forwarding, gue_port, check, devices",
        ),
        (
            format!("{WEB}{DEVICES}{}", WEB.replace("web", "more") + DEVICES),
            "203.0.113.10:80 is service.web's already",
        ),
        (
            format!("{WEB}{DEVICES}{trunk}"),
            "what comes for a trunk is the trunk's, so no service stands there",
        ),
        (
            format!("{WEB}policy = \"WSDM\"\n{DEVICES}"),
            "service.web.policy = \"WSDM\": allowed: RR",
        ),
        (
            "[service]\n".to_owned(),
            "service = [service]: no service; write service.NAME",
        ),
    ] {
        let refused = read(&text).unwrap_err();
        assert!(refused.starts_with("f.toml: service"), "{refused}");
        assert!(refused.contains(said), "{refused}");
    }
}
