//! What `check` tells of rules, and which flows `check --explain` says they take; without privilege and devices.

use std::fs;
use std::process::Command;

use tempfile::TempDir;

const OFFICE: &str = r#"lan = ["eth0", "eth1"]
link.fiber = { device = "eth2", down = "500mbit", up = "100mbit" }
link.cable = { device = "eth3", down = "200mbit", up = "20mbit" }
link.lte   = { device = "wwan0", down = "50mbit", up = "10mbit", metered = true }

[[rule]]
name = "voice"
protocol = "udp"
dscp = "ef"
links = ["fiber", "cable"]
then = ["lte"]

[[rule]]
name = "backup"
from = "192.168.1.10"
ports = [873, "5000-5010"]
when = "mon-fri 08:00-18:00"
links = ["cable"]
none = "drop"

[[rule]]
name = "guests"
device = "eth1"
"#;

/// What the command answered: exit code, output and error with the folder's name left out.
struct Answer {
    code: Option<i32>,
    output: String,
    error: String,
}

struct Folder(TempDir);

impl Folder {
    fn with(config: &str, flows: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("office.toml"), config).unwrap();
        fs::write(folder.path().join("flows.txt"), flows).unwrap();
        Folder(folder)
    }

    fn check(&self, words: &[&str]) -> Answer {
        let mut command = Command::new(env!("CARGO_BIN_EXE_anabranch"));
        command
            .current_dir(&self.0)
            .args(["check", "--config", "office.toml"])
            .args(words);
        let ran = command.output().expect("the command was built");
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        Answer {
            code: ran.status.code(),
            output: text(ran.stdout),
            error: text(ran.stderr),
        }
    }
}

fn explain(flows: &str) -> Answer {
    Folder::with(OFFICE, flows).check(&["--explain", "flows.txt"])
}

#[test]
fn each_flow_is_told_its_rule_its_links_and_why_not_the_rules_before() {
    let answer = explain(
        "# the office
udp 192.168.1.20:5060 > 203.0.113.9:5060 dscp ef device eth0 at \"mon 09:00\" = voice

tcp 192.168.1.10 > 203.0.113.7:873 device eth0 at \"mon 09:00\" = backup # by day
icmp self > 192.0.2.1 at \"sun 12:00\"
",
    );
    assert_eq!(
        answer.output,
        "\
2: udp 192.168.1.20:5060 > 203.0.113.9:5060 dscp ef device eth0 at \"mon 09:00\" = voice
   voice: fiber, cable, then lte, then any link
4: tcp 192.168.1.10 > 203.0.113.7:873 device eth0 at \"mon 09:00\" = backup
   backup: cable, then dropped
   not voice: protocol: tcp, not udp; dscp: be, not ef
5: icmp self > 192.0.2.1 at \"sun 12:00\"
   default: all links
   not voice: protocol: icmp, not udp; dscp: be, not ef
   not backup: from: self, not 192.168.1.10; ports: none, not 873, 5000-5010; when: sun 12:00, not mon-fri 08:00-18:00
   not guests: device: none, not eth1

3 flows, 2 of 2 expectations met
"
    );
    assert_eq!((answer.code, answer.error.as_str()), (Some(0), ""));
}

#[test]
fn a_flow_that_another_rule_takes_than_expected_fails_the_command() {
    let answer = explain(
        "tcp 192.168.1.10 > 203.0.113.7:873 device eth0 at \"mon 19:00\" = backup
tcp 192.168.9.9 > 203.0.113.7:873 device eth1 at \"mon 19:00\" = guests
",
    );
    assert_eq!(answer.code, Some(1));
    assert_eq!(
        answer.error,
        "anabranch: flows.txt: 1 of 2 expectations not met\n"
    );
    let wrong = "   WRONG: backup was to take it, default does\n";
    assert_eq!(answer.output.matches(wrong).count(), 1, "{}", answer.output);
    assert!(
        answer
            .output
            .ends_with("\n2 flows, 1 of 2 expectations met\n")
    );
}

#[test]
fn a_line_that_is_no_flow_is_told_with_its_number() {
    for (line, problem) in [
        (
            "tcp 192.168.1.20",
            "write a flow like: tcp 192.168.1.20 > 203.0.113.7:443",
        ),
        (
            "gre 192.168.1.20 > 203.0.113.7",
            "gre: allowed: tcp, udp, icmp",
        ),
        ("tcp 192.168.1.20 > 203.0.113.7", "tcp and udp have a port"),
        (
            "icmp 192.168.1.20 > 203.0.113.7:8",
            "tcp and udp have a port",
        ),
        ("tcp host > 203.0.113.7:443", "host: write an IPv4 address"),
        (
            "tcp 192.168.1.20 > 203.0.113.7:443 dscp ff",
            "dscp ff: a number from 0 to 63",
        ),
        (
            "tcp 192.168.1.20 > 203.0.113.7:443 at noon",
            "at noon: write a day and a time",
        ),
        (
            "tcp 192.168.1.20 > 203.0.113.7:443 at \"mon 09:00",
            "a quotation mark that is not closed",
        ),
        (
            "tcp 192.168.1.20 > 203.0.113.7:443 via fiber",
            "via fiber: write a flow like:",
        ),
        (
            "tcp 192.168.1.20 > 203.0.113.7:443",
            "no device, which guests looks at; write device and one of eth0, eth1",
        ),
        (
            "tcp 192.168.1.20 > 203.0.113.7:443 device eth0",
            "no time, which backup looks at; write it like at \"mon 09:00\"",
        ),
        (
            "tcp 192.168.1.20 > 203.0.113.7:443 device eth2",
            "device eth2: not a LAN device; allowed: eth0, eth1",
        ),
        (
            "tcp self > 203.0.113.7:443 device eth0",
            "the gateway's own traffic comes by no device",
        ),
        (
            "tcp self > 203.0.113.7:443 at \"mon 09:00\" = vioce",
            "no rule has the name vioce; allowed: voice, backup, guests, default; did you mean voice?",
        ),
    ] {
        let answer = explain(&format!("# first\n{line}\n"));
        let expected = format!("anabranch: flows.txt:2: {problem}");
        assert!(
            answer.error.starts_with(&expected),
            "{line}: {}",
            answer.error
        );
        assert_eq!(answer.error.lines().count(), 1, "{}", answer.error);
        assert_eq!((answer.code, answer.output.as_str()), (Some(2), ""));
    }
}

#[test]
fn check_shows_the_rules_as_understood_and_what_hides_them() {
    let answer = Folder::with(OFFICE, "").check(&["--offline"]);
    assert_eq!(answer.code, Some(0), "{}", answer.error);
    let expected = "\
rule     policy  links                                  matches
voice    WSDM    fiber, cable, then lte, then any link  protocol udp; dscp ef
backup   WSDM    cable, then dropped                    from 192.168.1.10; ports 873, 5000-5010; when mon-fri 08:00-18:00
guests   WSDM    all links                              device eth1
default  WSDM    all links                              the rest

warning: office.toml:14: rule[1].name = \"backup\": shadowed: part of its traffic is taken before by voice (line 7)
warning: office.toml:22: rule[2].name = \"guests\": shadowed: part of its traffic is taken before by voice (line 7), backup (line 14)
warning: office.toml:9: rule[0].dscp = \"ef\": routing rules, which lead the gateway's own traffic, cannot match a code point; this is for LAN hosts alone, as from = \"0.0.0.0/0\" says
the configuration is right; the host was not looked at
";
    assert!(answer.output.ends_with(expected), "{}", answer.output);
}

#[test]
fn check_refuses_a_rule_that_can_never_match() {
    let hidden = OFFICE.to_owned()
        + "\n[[rule]]\nname = \"visitors\"\nprotocol = \"tcp\"\ndevice = \"eth1\"\n";
    let answer = Folder::with(&hidden, "").check(&["--offline"]);
    assert_eq!(answer.code, Some(2));
    assert_eq!(
        answer.error,
        "anabranch: office.toml:26: rule[3].name = \"visitors\": can never match: all of its traffic is taken before by backup (line 14), guests (line 22)\n"
    );
}

/// Its configuration, what `check` says of that, a list of flows, and the answer.
#[test]
fn the_page_on_rules_shows_what_the_command_says() {
    let page = include_str!("../../../docs/rules.md");
    let blocks: Vec<&str> = page.split("```").skip(1).step_by(2).collect();
    let [config, checked, flows, explained] = blocks[..] else {
        panic!("{} blocks", blocks.len());
    };
    let text = |block: &'static str| block.split_once('\n').unwrap().1;
    let folder = Folder::with(text(config), text(flows));
    let answer = folder.check(&["--offline"]);
    assert!(answer.output.ends_with(text(checked)), "{}", answer.output);
    let answer = folder.check(&["--explain", "flows.txt"]);
    assert_eq!(answer.output, text(explained));
    assert_eq!(answer.code, Some(1), "{}", answer.error);
}
