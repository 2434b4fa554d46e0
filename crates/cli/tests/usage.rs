//! What the command answers without a gateway: help, tables, and bad input told in one line with exit code 2.

use std::fs;
use std::process::{Command, Output};

fn anabranch(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_anabranch"));
    command.args(words).output().expect("the command was built")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

/// The error of `check --offline` on a configuration, without the file's name.
fn refusal(config: &str) -> String {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("anabranch.toml");
    fs::write(&path, config).unwrap();
    let path = path.to_str().unwrap();
    let output = anabranch(&["check", "--offline", "--config", path]);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{config}: {error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    let line = error
        .trim_end()
        .strip_prefix(&format!("anabranch: {path}: "));
    line.unwrap_or_else(|| panic!("no file in {error:?}"))
        .to_owned()
}

const LAN: &str = "lan = [\"eth0\"]\n";
const TRUNK: &str = "[trunk]\ndevice = \"trunk0\"\nsublink.a = { device = \"eth1\" }\n";
const FIBER: &str = "link.fiber = { device = \"eth1\", down = \"500mbit\", up = \"100mbit\" }\n";

#[test]
fn a_wrong_configuration_is_told_in_one_line_with_key_value_and_what_is_allowed() {
    let cases = [
        (
            "lan = [\"eth0\"]\nlink.fiber = { device = \"eth1\", speed = 5 }".to_owned(),
            "link.fiber.speed = 5: unknown key; allowed: device, down, up, metered, nat, weight, gateway, gateway6, address, address6, prefix6, inbound, prefixes, probe, alert, on_return",
        ),
        (
            LAN.to_owned() + "link.fiber = { device = \"eth1\", down = \"0mbit\", up = 1 }",
            "link.fiber.down = \"0mbit\": a rate must be above 0: write it like \"500mbit\" (bit, kbit, mbit, gbit) or as a whole number of bit/s",
        ),
        (
            "lan = [\"eth1\"]\n".to_owned() + FIBER,
            "link.fiber.device = \"eth1\": this device is lan[0] already; a device is LAN or one link",
        ),
        (
            "policy = \"MORBF\"\n".to_owned()
                + LAN
                + "link.lte = { device = \"wwan0\", down = \"9mbit\" }",
            "policy = \"MORBF\": MORBF needs `up` of every link, and link.lte has none",
        ),
        (
            LAN.to_owned(),
            "link: no link; write link.NAME = { device = \"eth1\", down = \"500mbit\", up = \"100mbit\" }",
        ),
        (
            LAN.to_owned() + FIBER + TRUNK,
            "trunk.sublink.a.device = \"eth1\": this device is link.fiber.device already; what comes for a trunk arrives on its sublinks and nowhere else, so no device is both the gateway's and the trunk's",
        ),
    ];
    for (config, line) in cases {
        assert_eq!(refusal(&config), line, "{config}");
    }
}

#[test]
fn an_unknown_policy_is_told_with_all_that_exist() {
    let line = refusal(&("policy = \"fastest\"\n".to_owned() + LAN + FIBER));
    let expected = "policy = \"fastest\": unknown policy fastest, allowed: WSDM, RR, WRR,";
    assert!(line.starts_with(expected), "{line}");
    let near = refusal(&("policy = \"WDSM\"\n".to_owned() + LAN + FIBER));
    assert!(near.ends_with("; did you mean WSDM?"), "{near}");
}

#[test]
fn the_minimal_configuration_is_right_and_shown_as_understood() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("anabranch.toml");
    let lte =
        "link.lte = { device = \"wwan0\", down = \"50mbit\", up = \"10mbit\", metered = true }\n";
    fs::write(&path, LAN.to_owned() + FIBER + lte).unwrap();
    let output = anabranch(&["check", "--offline", "--config", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let expected = "\
LAN     eth0
policy  WSDM

link   device  address  gateway  MTU         down           up  weight  metered  probes a month  remark
fiber  eth1    -        -          -   500 Mbit/s   100 Mbit/s       -  no               324 MB
lte    wwan0   -        -          -  50.0 Mbit/s  10.0 Mbit/s       -  yes               16 MB

the configuration is right; the host was not looked at
";
    assert_eq!(text(&output.stdout), expected);
}

#[test]
fn a_file_that_is_not_there_or_not_toml_is_named() {
    let output = anabranch(&["check", "--offline", "--config", "/nonexistent.toml"]);
    assert_eq!(output.status.code(), Some(2));
    let expected = "anabranch: /nonexistent.toml: No such file or directory (os error 2)\n";
    assert_eq!(text(&output.stderr), expected);
}

#[test]
fn a_wrong_argument_has_exit_code_2_and_says_what_is_allowed() {
    for (words, says) in [
        (
            &["link", "stop", "lte"][..],
            "[possible values: drain, up, down]",
        ),
        (
            &["flows", "--proto", "gre"],
            "[possible values: tcp, udp, icmp]",
        ),
        (&["run"], "--config <FILE>"),
        (
            &["run", "--config", "/none", "--log", "banana"],
            "not a level; allowed: off, error, warn, info, debug, trace",
        ),
        (&["stop", "--unit", "x.service"], "--config <FILE>"),
        (
            &["status", "--instance", "a/b"],
            "1 to 32 letters, digits, '-' and '_'",
        ),
    ] {
        let output = anabranch(words);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {error}");
        assert!(error.contains(says), "{words:?}: {error}");
    }
}

#[test]
fn a_former_command_is_told_what_it_is_called() {
    for (words, present) in [
        (&["lab", "attack", "syn"][..], "anabranch-lab attack"),
        (&["sim", "run", "house.toml"], "anabranch-lab sim run"),
        (&["demo"], "anabranch-lab demo"),
        (&["experiment", "list"], "anabranch-lab experiment list"),
    ] {
        let output = anabranch(words);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
        assert!(error.ends_with(&format!("type `{present}`\n")), "{error}");
    }
}

#[test]
fn a_question_without_a_daemon_says_how_to_start_one() {
    for words in [
        &["status"][..],
        &["flows"],
        &["prefixes"],
        &["explain", "--from", "10.0.0.2", "--to", "192.0.2.1:80"],
        &["link", "up", "lte"],
        &["reload"],
        &["stop"],
    ] {
        let output = anabranch(&[words, &["--instance", "nobody"]].concat());
        let expected = "anabranch: /run/anabranch/nobody.sock: anabranch is not running here; start it with `anabranch run --config FILE`\n";
        assert_eq!(text(&output.stderr), expected, "{words:?}");
        assert_eq!(output.status.code(), Some(2));
    }
}

#[test]
fn policies_are_a_table_and_json() {
    let output = anabranch(&["policies", "--json"]);
    let policies: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let names: Vec<_> = policies
        .as_array()
        .unwrap()
        .iter()
        .map(|p| &p["name"])
        .collect();
    for name in [
        "WSDM",
        "RR",
        "WRR",
        "cyclic",
        "random",
        "hash",
        "LCF",
        "WLC",
        "P2C",
        "MORBF",
        "MIRBF",
        "WMORBF",
        "WMIRBF",
        "FRRTDF",
        "passive",
        "packet",
        "SH",
        "DH",
        "DHFV",
        "DRR",
        "flowlet",
        "rendezvous",
        "bonding",
        "MLPPP",
        "single",
    ] {
        assert!(
            names.iter().any(|found| *found == name),
            "{name} in {names:?}"
        );
    }
    let row = |name: &str| names.iter().position(|found| *found == name).unwrap();
    let dhfv = &policies[row("DHFV")];
    assert_eq!(
        (&dhfv["target"], &dhfv["period_ms"]),
        (&"sublink".into(), &25.into())
    );
    assert!(
        !names.iter().any(|name| *name == "toy"),
        "an example of tests"
    );
    let table = anabranch(&["policies"]);
    assert_eq!(text(&table.stdout).lines().count(), names.len() + 1);
}

#[test]
fn a_policy_has_a_page_with_what_it_costs_and_what_was_observed() {
    let page = anabranch(&["policies", "wsdm"]);
    let page = text(&page.stdout);
    assert!(page.starts_with("WSDM\n"), "{page}");
    let fact = |word: &str| {
        let line = page
            .lines()
            .find_map(|line| line.trim_start().strip_prefix(word));
        line.unwrap_or_else(|| panic!("{word} in {page}"))
            .trim()
            .to_owned()
    };
    assert_eq!(fact("among"), "links, at most 16 (default)");
    assert_eq!(fact("needs"), "down or up");
    assert_eq!([fact("packets"), fact("sockets")], ["none", "none"]);
    assert!(page.contains("2005-peng-algorithms/table5"), "{page}");
    let both = anabranch(&["policies", "DRR"]);
    assert_eq!(text(&both.stdout).matches("holds for").count(), 2);
    let of_servers = anabranch(&["policies", "RR"]);
    assert!(text(&of_servers.stdout).contains("policy of a service"));
    let json = anabranch(&["policies", "OFRP", "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json[0]["name"], "FRRTDF");
    let unknown = anabranch(&["policies", "WSMD"]);
    assert_eq!(unknown.status.code(), Some(2));
    let error = text(&unknown.stderr);
    assert!(
        error.contains("unknown policy WSMD; allowed: WSDM, RR"),
        "{error}"
    );
    assert!(error.trim_end().ends_with("did you mean WSDM?"), "{error}");
}

#[test]
fn completions_are_generated_for_every_shell_and_know_the_subcommands() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = anabranch(&["completions", shell]);
        assert_eq!(output.status.code(), Some(0));
        for word in ["explain", "completions", "policies"] {
            assert!(text(&output.stdout).contains(word), "{shell}: {word}");
        }
    }
}

#[test]
fn output_that_is_no_terminal_has_no_colours() {
    let output = anabranch(&["policies"]);
    assert!(!output.stdout.contains(&0x1b));
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_anabranch"));
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = command.arg("policies").stdout(writer).output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
}
