//! The command against a running gateway between two emulated links. Needs root.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use anabranch_lab::topology::{Gateway, IspSpec, Lab, LabSpec};
use anabranch_scenario::Families;
use anabranch_testbed::emulator::LinkShape;
use anabranch_testbed::netns::{Child, Exit, Namespace};
use serde_json::Value;

const BINARY: &str = env!("CARGO_BIN_EXE_anabranch");
const DEADLINE: Duration = Duration::from_secs(20);

fn lab(policy: &str) -> Lab {
    lab_of(Families::V4, policy)
}

fn lab_of(families: Families, policy: &str) -> Lab {
    lab_with(families, &format!("policy = \"{policy}\"\n"))
}

fn lab_with(families: Families, settings: &str) -> Lab {
    lab_over(families, settings, [1_000; 2])
}

/// The same with other delays of the links, in each direction.
fn lab_over(families: Families, settings: &str, delays_us: [u64; 2]) -> Lab {
    let [fiber, lte] = delays_us.map(|us| LinkShape::new(50_000_000, 50_000_000, us));
    let isps = vec![IspSpec::new(0, "fiber", fiber), IspSpec::new(1, "lte", lte)];
    let spec = LabSpec {
        families,
        ..LabSpec::new(isps)
    };
    let server = spec.server().ip();
    let settings = format!("{settings}probe.targets = [\"icmp:{server}\"]\n");
    let gateway = Gateway::Anabranch {
        binary: BINARY.into(),
        settings,
    };
    let mut lab = Lab::build(&spec, &gateway).unwrap_or_else(|error| panic!("{error}"));
    wait(&mut lab, "all links up", |status| {
        links(status).all(|link| link["state"] == "up")
    });
    lab
}

fn ask(lab: &mut Lab, words: &[&str]) -> Result<String, String> {
    lab.anabranch()
        .unwrap()
        .ask(words)
        .map_err(|error| error.to_string())
}

fn ask_json(lab: &mut Lab, words: &[&str]) -> Value {
    let text = ask(lab, &[words, &["--json"]].concat()).unwrap();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Asks for the status until it is as wanted.
fn wait(lab: &mut Lab, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let deadline = Instant::now() + DEADLINE;
    loop {
        let status = ask_json(lab, &["status"]);
        if wanted(&status) {
            return status;
        }
        assert!(Instant::now() < deadline, "not {what}: {status:#}");
    }
}

fn links(status: &Value) -> impl Iterator<Item = &Value> {
    status["links"].as_array().into_iter().flatten()
}

fn link<'a>(status: &'a Value, name: &str) -> &'a Value {
    links(status)
        .find(|link| link["name"] == name)
        .unwrap_or_else(|| panic!("no {name} in {status:#}"))
}

/// Fetches a page of the web server as a client, from a port of its own; returns the address the server saw.
fn fetch(lab: &Lab) -> String {
    let url = format!("http://{}/bytes/50250", lab.server());
    let words = [
        "-sS",
        "--max-time",
        "10",
        "-o",
        "/dev/null",
        "-w",
        "%header{x-client}",
        &url,
    ];
    lab.clients()
        .exec("curl", &words)
        .unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn status_tells_links_traffic_and_reasons_as_a_table_and_as_json() {
    let mut lab = lab("RR");
    for _ in 0..4 {
        fetch(&lab);
    }
    let opened = |status: &Value| {
        links(status)
            .filter_map(|link| link["flows"]["opened"].as_u64())
            .sum::<u64>()
    };
    let status = wait(&mut lab, "four flows counted", |status| opened(status) == 4);
    assert_eq!(status["policy"], "RR");
    for (name, address) in [("fiber", "100.64.0.2"), ("lte", "100.64.1.2")] {
        let link = link(&status, name);
        assert_eq!(
            (&link["address"], &link["flows"]["opened"]),
            (&Value::from(address), &Value::from(2))
        );
        assert!(
            link["traffic"]["rx_bytes"].as_u64() > Some(100_000),
            "{link:#}"
        );
    }
    let table = ask(&mut lab, &["status"]).unwrap();
    for words in [
        "policy RR",
        "fiber  wan0    100.64.0.2  100.64.0.1",
        "flow packet sent over its link",
    ] {
        assert!(table.contains(words), "{words} in {table}");
    }
}

/// The example of `anabranch_core::catalogue`, as a configuration names it.
#[test]
fn a_toy_policy_by_a_toy_measure_runs_in_the_daemon() {
    let mut lab = lab("toy");
    let deadline = Instant::now() + DEADLINE;
    let status = loop {
        fetch(&lab);
        let status = ask_json(&mut lab, &["status"]);
        if links(&status).all(|link| link["flows"]["opened"].as_u64() > Some(1)) {
            break status;
        }
        assert!(Instant::now() < deadline, "not both links: {status:#}");
    };
    assert_eq!(status["policy"], "toy");
}

anabranch_testbed::in_both_families!(
    Families:
    flows_are_shown_with_link_and_reason_and_can_be_chosen,
    the_flows_of_a_rule_take_its_tiers_and_are_shown_as_its_class,
    explain_foretells_the_link_of_a_flow_without_making_one,
    prefixes_are_shown_with_how_fast_each_link_was_answered_and_flows_take_the_fastest,
);

/// The address that is seen of a link.
fn external(lab: &Lab, link: &str) -> IpAddr {
    let addresses = lab.external_addresses().into_iter();
    let mut of_link = addresses.filter_map(|(address, of)| (of == link).then_some(address));
    of_link.next().expect("the link has one")
}

fn flows_are_shown_with_link_and_reason_and_can_be_chosen(families: Families) {
    let mut lab = lab_of(families, "RR");
    for _ in 0..4 {
        fetch(&lab);
    }
    lab.clients()
        .exec(
            "ping",
            &["-c", "1", "-W", "5", &lab.server().ip().to_string()],
        )
        .unwrap();
    let all = ask_json(&mut lab, &["flows"]);
    let of_fiber = ask_json(&mut lab, &["flows", "--link", "fiber", "--proto", "tcp"]);
    let icmp = ask_json(&mut lab, &["flows", "--proto", "icmp"]);
    assert_eq!(
        [&all["total"], &of_fiber["total"], &icmp["total"]],
        [5, 2, 1].map(Value::from).each_ref()
    );
    for flow in of_fiber["flows"].as_array().unwrap() {
        assert_eq!(
            (&flow["link"], &flow["why"]),
            (&"fiber".into(), &"least load for its weight".into())
        );
        let seen: SocketAddr = flow["external"].as_str().unwrap().parse().unwrap();
        assert_eq!(seen.ip(), external(&lab, "fiber"));
    }
    let table = ask(&mut lab, &["flows", "--limit", "1"]).unwrap();
    assert!(table.ends_with("1 of 5 flows\n"), "{table}");
    let refused = ask(&mut lab, &["flows", "--link", "dsl"]).unwrap_err();
    assert!(
        refused.contains("--link \"dsl\": no such link; allowed: fiber, lte"),
        "{refused}"
    );
}

const RULES: &str = r#"policy = "RR"
rule = [
    { name = "voice", protocol = "udp", links = ["fiber"], none = "drop" },
    { name = "web", protocol = "tcp", links = ["lte"], then = ["fiber"] },
]
"#;

fn the_flows_of_a_rule_take_its_tiers_and_are_shown_as_its_class(families: Families) {
    let mut lab = lab_with(families, RULES);
    let [fiber, lte] = ["fiber", "lte"].map(|link| external(&lab, link).to_string());
    for _ in 0..4 {
        assert_eq!(fetch(&lab), lte, "the first tier");
    }
    lab.clients()
        .exec(
            "ping",
            &["-c", "1", "-W", "5", &lab.server().ip().to_string()],
        )
        .unwrap();
    let of_web = ask_json(&mut lab, &["flows", "--class", "web"]);
    assert_eq!(of_web["total"], 4, "{of_web:#}");
    assert_eq!(
        ask_json(&mut lab, &["flows", "--class", "default"])["total"],
        1
    );
    let refused = ask(&mut lab, &["flows", "--class", "wev"]).unwrap_err();
    let allowed = "--class \"wev\": no such class; allowed: voice, web, default";
    assert!(refused.contains(allowed), "{refused}");

    let [client, to] = [
        lab.client_addresses()[0].to_string(),
        lab.server().to_string(),
    ];
    let explain = ["explain", "--from", &client, "--to", &to];
    let told = ask_json(&mut lab, &explain);
    assert_eq!(
        (&told["class"], &told["link"]),
        (&"web".into(), &"lte".into())
    );
    assert_eq!(told["passed"][0]["rule"], "voice");
    assert_eq!(told["passed"][0]["because"][0], "protocol: tcp, not udp");

    ask(&mut lab, &["link", "down", "lte"]).unwrap();
    assert_eq!(fetch(&lab), fiber, "the second tier");
    let status = ask_json(&mut lab, &["status"]);
    let web = &status["classes"][1];
    assert_eq!(
        (&web["name"], &web["flows"]["opened"]),
        (&"web".into(), &5.into())
    );
    assert_eq!(web["tiers"][0][0]["usable"], false, "{web:#}");
    assert_eq!(web["tiers"][1][0]["usable"], true, "{web:#}");
    let table = ask(&mut lab, &["status"]).unwrap();
    assert!(table.contains("lte, then fiber*"), "{table}");
}

fn prefixes_are_shown_with_how_fast_each_link_was_answered_and_flows_take_the_fastest(
    families: Families,
) {
    let mut lab = lab_over(families, "policy = \"passive\"\n", [30_000, 2_000]);
    let seen: Vec<_> = (0..2).map(|_| fetch(&lab)).collect();
    assert_ne!(seen[0], seen[1], "each link is tried once");
    let lte = external(&lab, "lte").to_string();
    for _ in 0..5 {
        assert_eq!(fetch(&lab), lte);
    }
    let told = ask_json(&mut lab, &["prefixes"]);
    assert_eq!(told["total"], 1, "{told:#}");
    let paths = told["prefixes"][0]["paths"].as_array().unwrap();
    for (path, (link, answers, fastest_ms)) in paths.iter().zip([("fiber", 1, 60.), ("lte", 6, 4.)])
    {
        assert_eq!(
            (&path["link"], &path["samples"]),
            (&link.into(), &answers.into())
        );
        assert!(path["response_ms"].as_f64() >= Some(fastest_ms), "{path:#}");
    }
    let table = ask(&mut lab, &["prefixes"]).unwrap();
    assert!(
        table.ends_with("1 of 1 prefixes, room for 8192\n"),
        "{table}"
    );
    let status = ask(&mut lab, &["status"]).unwrap();
    assert!(status.contains(", 1 of 8192 prefixes known"), "{status}");
    let [client, to] = [
        SocketAddr::new(lab.client_addresses()[0], 9).to_string(),
        lab.server().to_string(),
    ];
    let told = ask(&mut lab, &["explain", "--from", &client, "--to", &to]).unwrap();
    let why = "would take lte: least response time for the destination's prefix";
    assert!(told.contains(why), "{told}");
}

fn explain_foretells_the_link_of_a_flow_without_making_one(families: Families) {
    let mut lab = lab_of(families, "hash");
    let client = lab.client_addresses()[0];
    let to = lab.server();
    for port in 40_000..40_008_u16 {
        let from = SocketAddr::new(client, port).to_string();
        let words = ["explain", "--from", &from, "--to", &to.to_string()];
        let told = ask_json(&mut lab, &words);
        assert_eq!(
            (&told["bound"], &told["why"]),
            (&false.into(), &"hash of addresses and ports".into())
        );
        let url = format!("http://{to}/bytes/50250");
        let (port, host) = (port.to_string(), client.to_string());
        let words = [
            "-sS",
            "--interface",
            &host,
            "--local-port",
            &port,
            "--max-time",
            "10",
            "-o",
            "/dev/null",
            "-w",
            "%header{x-client}",
            &url,
        ];
        let seen = lab.clients().exec("curl", &words).unwrap();
        let link = told["link"].as_str().unwrap();
        assert_eq!(seen, external(&lab, link).to_string(), "{told:#}");
    }
    let words = [
        "explain",
        "--from",
        &client.to_string(),
        "--to",
        &to.to_string(),
    ];
    let sentence = ask(&mut lab, &words).unwrap();
    let from = SocketAddr::new(client, 49152);
    assert!(
        sentence.starts_with(&format!("{from} -> {to} would take ")),
        "{sentence}"
    );
    let gateway = match families {
        Families::V6 => "[fd00:80::a50:1]",
        _ => "10.80.0.1",
    };
    let own = ask(
        &mut lab,
        &[
            "explain",
            "--from",
            &client.to_string(),
            "--to",
            &format!("{gateway}:22"),
        ],
    )
    .unwrap();
    assert!(
        own.contains("would take no link: destination is local or has a specific route"),
        "{own}"
    );
}

#[test]
fn a_drained_link_gets_no_new_flows_and_one_that_is_back_gets_them_again() {
    let mut lab = lab("RR");
    ask(&mut lab, &["link", "drain", "fiber"]).unwrap();
    wait(&mut lab, "fiber drained", |status| {
        link(status, "fiber")["state"] == "drained"
    });
    let seen: Vec<_> = (0..4).map(|_| fetch(&lab)).collect();
    assert_eq!(seen, ["100.64.1.2"; 4]);
    let refused = ask(&mut lab, &["link", "down", "lte"]).unwrap_err();
    assert!(
        refused.contains("lte is the last that works") && refused.contains("--force"),
        "{refused}"
    );
    ask(&mut lab, &["link", "down", "lte", "--force"]).unwrap();
    ask(&mut lab, &["link", "up", "fiber"]).unwrap();
    wait(&mut lab, "fiber up and lte disabled", |status| {
        link(status, "fiber")["state"] == "up" && link(status, "lte")["state"] == "disabled"
    });
    assert_eq!(fetch(&lab), "100.64.0.2");
    let refused = ask(&mut lab, &["link", "up", "dsl"]).unwrap_err();
    assert!(refused.contains("dsl"), "{refused}");
}

/// What of a namespace a gateway could change.
fn host_state(namespace: &Namespace) -> Vec<String> {
    let mut state: Vec<_> = ["rule show", "route show table all", "-details link show"]
        .iter()
        .map(|words| namespace.ip(words).unwrap())
        .collect();
    state.push(namespace.sysctl("net/ipv4/ip_forward").unwrap());
    state.push(namespace.exec("nft", &["list", "ruleset"]).unwrap());
    state
}

/// Runs the command inside, as `user` if given.
fn inside(namespace: &Namespace, words: &[&str], user: Option<u32>) -> Output {
    let mut command = Command::new(BINARY);
    command.args(words);
    if let Some(user) = user {
        command.uid(user);
    }
    namespace.run(|| command.output()).unwrap().unwrap()
}

/// A namespace with a LAN and two links, of which lte has no address, and the other ends of its cables.
fn bare_host() -> (Namespace, Namespace) {
    let create = |label| Namespace::create(label).unwrap_or_else(|error| panic!("{error}"));
    let (host, far) = (create("host"), create("far"));
    // Its addresses would come when they come, and the host is looked at before and after.
    host.set_sysctl("net/ipv6/conf/default/disable_ipv6", "1")
        .unwrap();
    for (device, address) in [
        ("lan0", "10.0.0.1/24"),
        ("wan0", "192.0.2.2/24"),
        ("wan1", ""),
    ] {
        host.veth(device, &far, device).unwrap();
        if !address.is_empty() {
            host.ip(&format!("address add {address} dev {device}"))
                .unwrap();
        }
    }
    host.ip("route add default via 192.0.2.1 dev wan0").unwrap();
    wait_for_carriers(&host);
    (host, far)
}

/// Runs an executable that was copied by this process: between fork and exec, the children of other threads have it open
/// for writing.
fn run_when_written(command: &mut Command) -> Output {
    let deadline = Instant::now() + DEADLINE;
    loop {
        match command.output() {
            Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => {
                assert!(Instant::now() < deadline, "{error}");
            }
            result => return result.unwrap(),
        }
    }
}

/// The kernel tells of a carrier some time after it is there.
fn wait_for_carriers(host: &Namespace) {
    let deadline = Instant::now() + DEADLINE;
    let up = |links: String| links.matches("state UP").count() == 3;
    while !up(host.ip("link show type veth").unwrap()) {
        assert!(Instant::now() < deadline, "a device has no carrier");
        std::thread::yield_now();
    }
}

fn write(directory: &Path, text: &str) -> PathBuf {
    let path = directory.join("anabranch.toml");
    std::fs::write(&path, text).unwrap();
    path
}

const FIBER: &str = "link.fiber = { device = \"wan0\", down = \"50mbit\", up = \"10mbit\" }\n";
const LTE: &str = "link.lte = { device = \"wan1\", down = \"9mbit\", up = \"5mbit\" }\n";

#[test]
fn a_network_on_both_sides_is_refused_in_one_line() {
    let (host, _far) = bare_host();
    host.ip("address add 10.0.0.9/16 dev wan1").unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = write(directory.path(), &format!("lan = [\"lan0\"]\n{FIBER}{LTE}"));
    let path = path.to_str().unwrap();
    let output = inside(&host, &["check", "--config", path], None);
    let error = String::from_utf8(output.stderr).unwrap();
    let line = "link.lte.device = \"wan1\": its network 10.0.0.0/16 overlaps 10.0.0.0/24 of LAN device lan0; LAN and links must not share a network";
    assert_eq!(error, format!("anabranch: {path}: {line}\n"));
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn what_is_missing_yet_is_a_note() {
    let (host, _far) = bare_host();
    let directory = tempfile::tempdir().unwrap();
    let absent = LTE.replace("wan1", "wwan0");
    let path = write(
        directory.path(),
        &format!("lan = [\"lan9\"]\n{FIBER}{absent}"),
    );
    let output = inside(&host, &["check", "--config", path.to_str().unwrap()], None);
    let table = String::from_utf8(output.stdout).unwrap();
    for words in [
        "the device does not exist",
        "note: lan[0] = \"lan9\": no such device; this host has: lan0, wan0, wan1\n",
        "note: link.lte.device = \"wwan0\": no such device; this host has: lan0, wan0, wan1\n",
        "the rest joins when it comes",
    ] {
        assert!(table.contains(words), "{words} in {table}");
    }
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn what_a_link_without_nat_presumes_is_told() {
    let (host, _far) = bare_host();
    host.ip("address add 198.51.100.1/24 dev lan0").unwrap();
    let directory = tempfile::tempdir().unwrap();
    let routed = FIBER.replace(" }", ", nat = false }");
    let spread = "[[rule]]\nname = \"bulk\"\ngranularity = \"packet\"\nlinks = \"fiber\"\n";
    let text = format!("lan = [\"lan0\"]\n{routed}{LTE}{spread}");
    let path = write(directory.path(), &text);
    let output = inside(&host, &["check", "--config", path.to_str().unwrap()], None);
    let table = String::from_utf8(output.stdout).unwrap();
    for words in [
        "link.fiber.nat = false: the LAN has 10.0.0.0/24, which is private",
        "link.fiber.nat = false: the provider has to route 198.51.100.0/24 to this host by 192.0.2.2",
        "bulk     WSDM, per packet  fiber, then any link",
    ] {
        assert!(table.contains(words), "{words} in {table}");
    }
    let row = |link: &str| {
        let row = table.lines().find(|line| line.starts_with(link));
        row.unwrap_or_else(|| panic!("no {link} in {table}"))
    };
    assert!(row("link ").contains("NAT"), "{table}");
    assert!(row("fiber").contains("routed"), "{table}");
    assert!(!row("lte").contains("routed"), "{table}");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn a_host_that_fits_is_shown_as_understood() {
    let (host, _far) = bare_host();
    let directory = tempfile::tempdir().unwrap();
    let path = write(directory.path(), &format!("lan = [\"lan0\"]\n{FIBER}{LTE}"));
    let before = host_state(&host);
    let output = inside(&host, &["check", "--config", path.to_str().unwrap()], None);
    let table = String::from_utf8(output.stdout).unwrap();
    for words in [
        "fiber  wan0    192.0.2.2  192.0.2.1  1500  50.0 Mbit/s  10.0 Mbit/s",
        "no gateway is known: give the link a `gateway`",
        "the configuration is right, and this host can run it",
    ] {
        assert!(table.contains(words), "{words} in {table}");
    }
    assert_eq!(host_state(&host), before);
}

#[test]
fn without_privilege_nothing_is_tried() {
    let (host, _far) = bare_host();
    let directory = tempfile::tempdir().unwrap();
    let path = write(directory.path(), &format!("lan = [\"lan0\"]\n{FIBER}"));
    for path in [directory.path(), &path] {
        let readable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(path, readable).unwrap();
    }
    // The binary may lie where others may not look: it is given to them.
    let binary = directory.path().join("anabranch");
    std::fs::copy(BINARY, &binary).unwrap();
    let mut command = Command::new(binary);
    command
        .arg("run")
        .arg("--config")
        .arg(path)
        .uid(65534)
        .gid(65534);
    let output = host.run(|| run_when_written(&mut command)).unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    let named = error.strip_prefix("anabranch: missing privilege CAP_NET_ADMIN, ");
    assert!(
        named.is_some_and(|rest| rest.ends_with("CAP_BPF: run as root\n")),
        "{error}"
    );
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_second_instance_is_refused_and_the_first_goes_on() {
    let mut lab = lab("WSDM");
    let instance = lab.anabranch().unwrap().instance().to_owned();
    let config = lab.anabranch().unwrap().configuration();
    let words = [
        "run",
        "--config",
        config.to_str().unwrap(),
        "--instance",
        &instance,
    ];
    let output = inside(lab.gateway(), &words, None);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(error.contains(&instance), "{error}");
    fetch(&lab);
    assert_eq!(lab.anabranch().unwrap().stop().unwrap(), Exit::Code(0));
}

/// How a process of the executable that was refused ended, and what it said.
fn start_second(lab: &mut Lab, instance: &str) -> (Option<i32>, String) {
    let config = lab.anabranch().unwrap().configuration();
    let config = config.to_str().unwrap();
    let words = ["run", "--config", config, "--instance", instance];
    let output = inside(lab.gateway(), &words, None);
    let said = String::from_utf8(output.stderr).unwrap();
    (output.status.code(), said)
}

/// Stopped with the value.
struct Second {
    process: Child,
    instance: String,
}

impl Second {
    fn start(lab: &mut Lab, instance: &str) -> Self {
        let mut command = Command::new(BINARY);
        let config = lab.anabranch().unwrap().configuration();
        command.args(["run", "--instance", instance, "--config"]);
        command.arg(config);
        Self {
            process: lab.gateway().spawn(command).unwrap(),
            instance: instance.to_owned(),
        }
    }

    fn wait_until_it_answers(&mut self) -> Value {
        let deadline = Instant::now() + DEADLINE;
        let words = ["status", "--json", "--instance", &self.instance];
        loop {
            let output = Command::new(BINARY).args(words).output().unwrap();
            if output.status.success() {
                return serde_json::from_slice(&output.stdout).unwrap();
            }
            let ended = self.process.wait(Duration::from_millis(10)).unwrap();
            assert!(ended.is_none() && Instant::now() < deadline, "{output:?}");
        }
    }
}

#[test]
fn the_devices_of_an_instance_are_no_others_until_it_has_stopped() {
    let mut lab = lab("WSDM");
    let first = lab.anabranch().unwrap().instance().to_owned();
    let other = format!("{first}-other");
    let pid = ask_json(&mut lab, &["status"])["pid"].clone();
    let (code, said) = start_second(&mut lab, &other);
    let wanted = format!(
        "anabranch: device \"lan0\": instance \"{first}\" has it already (process {pid}); a device is one instance's\n"
    );
    assert_eq!((code, said), (Some(2), wanted));
    fetch(&lab);

    lab.anabranch().unwrap().kill().unwrap();
    let (code, said) = start_second(&mut lab, &other);
    let wanted = format!(
        "anabranch: device \"lan0\": instance \"{first}\" ended without a clean stop, and its programs go on; \
         start it again and stop it\n"
    );
    assert_eq!((code, said), (Some(2), wanted));
    fetch(&lab);
    let mut second = Second::start(&mut lab, &first);
    assert_eq!(second.wait_until_it_answers()["adopted"], true);
    fetch(&lab);
    let (code, said) = start_second(&mut lab, &first);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("runs already as process"), "{said}");
    assert_eq!(second.process.terminate(DEADLINE).unwrap(), Exit::Code(0));

    let mut third = Second::start(&mut lab, &other);
    assert_eq!(third.wait_until_it_answers()["adopted"], false);
    fetch(&lab);
    assert_eq!(third.process.terminate(DEADLINE).unwrap(), Exit::Code(0));
}

#[test]
fn what_is_wrong_stands_in_the_status_and_fails_its_check() {
    let mut lab = lab("WSDM");
    let missing = "LAN device lan9: it does not exist yet";
    ask(&mut lab, &["status", "--check"]).unwrap();
    let path = lab.anabranch().unwrap().configuration();
    let text = std::fs::read_to_string(&path).unwrap();
    let with_more = text.replace("[\"lan0\"]", "[\"lan0\", \"lan9\"]");
    assert_ne!(text, with_more);
    std::fs::write(&path, with_more).unwrap();
    lab.anabranch().unwrap().reload();
    let status = wait(&mut lab, "a trouble", |status| {
        status["troubles"] != Value::Array(Vec::new())
    });
    let told = status["troubles"][0].as_str().unwrap();
    assert!(told.starts_with(missing), "{status:#}");
    let table = ask(&mut lab, &["status"]).unwrap();
    assert!(
        table.contains(&format!("\nTROUBLE  {told}\n\nlink ")),
        "{table}"
    );
    let failed = ask(&mut lab, &["status", "--check"]).unwrap_err();
    assert!(
        failed.contains("one problem: 2 of 2 links work"),
        "{failed}"
    );

    lab.gateway()
        .ip("link add lan9 type veth peer name lan9-far")
        .unwrap();
    wait(&mut lab, "nothing", |status| {
        status["troubles"] == Value::Array(Vec::new())
    });
    ask(&mut lab, &["status", "--check"]).unwrap();
}

/// A service manager that has this kind of job for the unit.
fn manager(folder: &Path, job: &str) -> PathBuf {
    let script = format!("#!/bin/sh\necho '7 gateway.service {job} running'\n");
    std::fs::write(folder.join("systemctl"), script).unwrap();
    std::fs::set_permissions(
        folder.join("systemctl"),
        std::fs::Permissions::from_mode(0o755),
    )
    .unwrap();
    folder.to_owned()
}

/// What the unit runs when it is reloaded and stopped.
#[test]
fn a_reload_and_a_restart_with_a_mistake_take_nobody_offline() {
    let mut lab = lab("WSDM");
    let path = lab.anabranch().unwrap().configuration();
    let right = std::fs::read_to_string(&path).unwrap();
    let wrong = right.replace("policy = \"WSDM\"", "policy = \"WDSM\"");
    assert_ne!(right, wrong);
    let says = "unknown policy WDSM";

    std::fs::write(&path, &wrong).unwrap();
    let instance = lab.anabranch().unwrap().instance().to_owned();
    let folder = tempfile::tempdir().unwrap();
    let unit = |lab: &Lab, words: &[&str], job: &str| {
        let mut command = Command::new(BINARY);
        let path = std::env::var("PATH").unwrap();
        let manager = manager(folder.path(), job);
        command
            .args(words)
            .args(["--instance", &instance])
            .env("PATH", format!("{}:{path}", manager.display()));
        let output = lab.gateway().run(|| command.output()).unwrap().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), said)
    };
    let file = path.to_str().unwrap();
    let stop = ["stop", "--config", file, "--unit", "gateway.service"];

    let (code, said) = unit(&lab, &["reload"], "");
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains(says) && said.lines().count() == 1, "{said}");
    assert_eq!(ask_json(&mut lab, &["status"])["policy"], "WSDM");

    let (code, said) = unit(&lab, &stop, "restart");
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains(says), "{said}");
    assert!(said.contains("packets go on as before"), "{said}");
    assert!(ask(&mut lab, &["status"]).is_err(), "it has ended");
    fetch(&lab);
    let (code, said) = unit(&lab, &stop, "restart");
    assert_eq!((code, said.as_str()), (Some(0), ""), "nothing to stop");

    std::fs::write(&path, &right).unwrap();
    let mut second = Second::start(&mut lab, &instance);
    assert_eq!(second.wait_until_it_answers()["adopted"], true);

    std::fs::write(&path, &wrong).unwrap();
    let (code, said) = unit(&lab, &stop, "stop");
    assert_eq!((code, said.as_str()), (Some(0), ""), "stopped for good");
    let rules = lab.gateway().ip("rule").unwrap();
    assert_eq!(rules.lines().count(), 3, "the host is as it was: {rules}");

    std::fs::write(&path, &right).unwrap();
    let mut third = Second::start(&mut lab, &instance);
    assert_eq!(third.wait_until_it_answers()["adopted"], false);
    let (code, said) = unit(&lab, &stop, "restart");
    assert_eq!((code, said.as_str()), (Some(0), ""), "a right file");
    let rules = lab.gateway().ip("rule").unwrap();
    assert_eq!(rules.lines().count(), 3, "the host is as it was: {rules}");
}

#[test]
fn the_log_has_priorities_in_the_journal_and_a_wrong_level_silences_nothing() {
    let (host, _far) = bare_host();
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("anabranch.toml");
    std::fs::write(
        &config,
        "lan = [\"lan0\"]\nlink.fiber = { device = \"wan0\", gateway = \"192.0.2.1\" }\npolicy = \"rr\"\n",
    )
    .unwrap();
    let instance = format!("log-{}", std::process::id());
    let log = folder.path().join("log");
    let run = |journal: bool, level: &str| {
        let file = std::fs::File::create(&log).unwrap();
        let stat = file.metadata().unwrap();
        let mut command = Command::new(BINARY);
        command
            .args(["run", "--instance", &instance, "--config"])
            .arg(&config)
            .env("RUST_LOG", level)
            .env_remove("ANABRANCH_LOG")
            .stderr(file);
        if journal {
            let stream = format!("{}:{}", stat.dev(), stat.ino());
            command.env("JOURNAL_STREAM", stream);
        }
        let mut process = host.spawn(command).unwrap();
        let deadline = Instant::now() + DEADLINE;
        let said = || std::fs::read_to_string(&log).unwrap();
        while !said().contains("forwarding") {
            assert!(Instant::now() < deadline, "{}", said());
            let ended = process.wait(Duration::from_millis(10)).unwrap();
            assert!(ended.is_none(), "{}", said());
        }
        assert_eq!(process.terminate(DEADLINE).unwrap(), Exit::Code(0));
        said()
    };
    let said = run(true, "banana");
    let first = said.lines().next().unwrap();
    let wanted = "<4>RUST_LOG=banana: not a level; allowed: off, error,";
    assert!(first.starts_with(wanted), "{said}");
    assert!(said.contains("\n<6>forwarding\n"), "{said}");
    assert!(said.lines().all(|line| line.starts_with('<')), "{said}");
    let said = run(false, "info");
    assert!(said.contains("Z  INFO forwarding\n"), "{said}");
    assert!(!said.contains('<'), "{said}");
}

/// Exit code and lines of `status --check`.
fn health(lab: &mut Lab, words: &[&str]) -> (Option<i32>, Vec<String>) {
    let instance = lab.anabranch().unwrap().instance().to_owned();
    let words = [&["status", "--check", "--instance", &instance], words].concat();
    let output = Command::new(BINARY).args(words).output().unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    (
        output.status.code(),
        told.lines().map(str::to_owned).collect(),
    )
}

/// Until the lines begin so.
fn wait_for_health(lab: &mut Lab, code: i32, begin: &[&str]) {
    let deadline = Instant::now() + DEADLINE;
    loop {
        let (ended, told) = health(lab, &[]);
        let begins = |(line, begin): (&String, &&str)| line.starts_with(begin);
        let is_as_wanted = told.len() == begin.len() && told.iter().zip(begin).all(begins);
        if ended == Some(code) && is_as_wanted {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "{begin:?}, not {ended:?} {told:?}"
        );
    }
}

#[test]
fn whoever_watches_is_told_of_each_link_that_does_not_work() {
    let mut lab = lab("WSDM");
    wait_for_health(&mut lab, 0, &["ok: 2 of 2 links work"]);
    assert_eq!(health(&mut lab, &["--quiet"]), (Some(0), Vec::new()));

    lab.cut("lte").unwrap();
    let lost = "lte: down for ";
    wait_for_health(&mut lab, 1, &[lost]);
    let silent = "nothing heard for long, and probes are lost";
    assert!(health(&mut lab, &[]).1[0].ends_with(silent));
    lab.unplug("fiber").unwrap();
    let dark = "no link works: nothing is forwarded to the internet";
    let absent = "fiber: down for ";
    wait_for_health(&mut lab, 1, &[dark, absent, lost]);
    let json: Value = serde_json::from_str(&health(&mut lab, &["--json"]).1.join("\n")).unwrap();
    let kinds: Vec<&str> = json
        .as_array()
        .unwrap()
        .iter()
        .map(|check| check["kind"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["offline", "absent", "down"]);
    let listed = ask_json(&mut lab, &["status"])["problems"].clone();
    assert_eq!(listed.as_array().unwrap().len(), 3, "{listed:#}");

    lab.replug("fiber").unwrap();
    wait_for_health(&mut lab, 1, &[lost]);
    let path = lab.anabranch().unwrap().configuration();
    let text = std::fs::read_to_string(&path).unwrap();
    let silent = text.replace("device = \"wan1\"", "device = \"wan1\", alert = false");
    assert_ne!(text, silent);
    std::fs::write(&path, silent).unwrap();
    ask(&mut lab, &["reload"]).unwrap();
    wait_for_health(
        &mut lab,
        0,
        &["note: lte: down for ", "ok: 1 of 2 links work"],
    );
    assert_eq!(health(&mut lab, &["--quiet"]), (Some(0), Vec::new()));
    lab.restore("lte").unwrap();
    wait_for_health(&mut lab, 0, &["ok: 2 of 2 links work"]);
    ask(&mut lab, &["link", "drain", "lte"]).unwrap();
    let ordered = "note: lte: drained by order: it takes no new flows";
    wait_for_health(&mut lab, 0, &[ordered, "ok: 1 of 2 links work"]);
}

#[test]
fn the_status_fits_a_terminal_and_tells_loss_jitter_and_age() {
    let mut lab = lab("WSDM");
    (0..4).for_each(|_| drop(fetch(&lab)));
    wait(&mut lab, "measured", |status| {
        links(status).all(|link| link["probe"]["recent"]["jitter_ms"].is_f64())
    });
    let status = ask_json(&mut lab, &["status"]);
    let fiber = link(&status, "fiber");
    assert_eq!(fiber["probe"]["recent"]["lost"], 0);
    assert!(fiber["paths"][0]["heard_s_ago"].as_f64() < Some(5.0));
    assert!(links(&status).any(|link| link["recent_flows"]["opened"].as_u64() > Some(0)));
    let table = ask(&mut lab, &["status"]).unwrap();
    let widest = table.lines().map(str::len).max();
    assert!(widest <= Some(100), "{table}");
    assert!(table.contains("jitter  loss  why"), "{table}");
}
