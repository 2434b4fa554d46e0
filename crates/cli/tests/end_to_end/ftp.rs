//! Passive FTP (RFC 959, RFC 2428): the data connection has to come from where the control connection came from.

use std::fs::{self, Permissions};
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use anabranch_lab::topology::{Lab, SERVER};
use anabranch_testbed::netns::Child;
use tempfile::TempDir;

use crate::house::{House, PAGE_BYTES, flows, three_links, until_listening};
use crate::programs::run;

const CONTROL_PORT: u16 = 21;
const SESSIONS: usize = 10;
const FILES: usize = 5;

#[test]
fn passive_ftp_transfers_every_file_however_long_its_session_lasts() {
    let mut two_links = three_links();
    two_links.isps.pop();
    for policy in [
        "policy = \"RR\"",
        "policy = { measure = \"dispatched\", dispatch = \"weighted\", granularity = \"session\" }",
    ] {
        let house = House::of(&two_links, policy);
        let House { lab, gateway, .. } = &house;
        let _server = Server::start(lab);
        let sources = lab.client_addresses();
        let transferred: usize = (0..SESSIONS)
            .map(|number| transfer(lab, sources[number % sources.len()], number % 2 == 0))
            .sum();
        assert_eq!(transferred, SESSIONS * FILES, "{policy}");
        let mut links: Vec<u16> = flows(gateway).iter().map(|flow| flow.link).collect();
        links.sort_unstable();
        links.dedup();
        assert_eq!(links.len(), 2, "{policy}: hosts take different links");
        explain(&house, sources[0]);
    }
}

/// Downloads every file in one session; how many came whole.
fn transfer(lab: &Lab, source: IpAddr, extended: bool) -> usize {
    let source = source.to_string();
    let url = format!("ftp://{SERVER}/file[1-{FILES}]");
    let mut words = vec!["--silent", "--output", "/dev/null", "--max-time", "20"];
    words.extend(["--interface", &source, "--write-out", "%{size_download}\\n"]);
    words.extend((!extended).then_some("--disable-epsv"));
    words.push(&url);
    let (_, text) = run(lab.clients(), "curl", &words);
    let whole = PAGE_BYTES.to_string();
    text.lines().filter(|line| **line == whole).count()
}

/// The host's next connection would take the link of its last.
fn explain(house: &House, source: IpAddr) {
    let remote = format!("{SERVER}:{CONTROL_PORT}");
    let from = source.to_string();
    let text = house
        .gateway
        .ask(&["explain", "--from", &from, "--to", &remote]);
    let text = text.unwrap();
    let mut flows = flows(&house.gateway);
    flows.retain(|flow| flow.local.ip() == source);
    let link = &house.lab.spec().isps[usize::from(flows[0].link)].name;
    assert!(
        text.contains(&format!("would take {link}: session")),
        "{text}, {flows:?}"
    );
}

/// vsftpd, which refuses data connections of another address than the control connection's.
struct Server {
    _process: Child,
    _files: TempDir,
}

impl Server {
    fn start(lab: &Lab) -> Self {
        let directory = TempDir::with_prefix("anabranch-ftp-").unwrap();
        let configuration = furnish(directory.path());
        let mut command = Command::new("vsftpd");
        command.arg(configuration).stdin(Stdio::null());
        let process = lab.internet().spawn(command).unwrap();
        until_listening(lab.internet(), CONTROL_PORT);
        Self {
            _process: process,
            _files: directory,
        }
    }
}

/// The files, which its anonymous user may read and must not write, and the name of a configuration.
fn furnish(directory: &Path) -> String {
    fs::set_permissions(directory, Permissions::from_mode(0o755)).unwrap();
    for number in 1..=FILES {
        let file = directory.join(format!("file{number}"));
        fs::write(file, vec![b'x'; PAGE_BYTES as usize]).unwrap();
    }
    let root = directory.display();
    let settings = format!(
        "listen=YES\nlisten_address={SERVER}\nbackground=NO\nanonymous_enable=YES\nanon_root={root}\n\
         secure_chroot_dir={root}\npasv_promiscuous=NO\nseccomp_sandbox=NO\n"
    );
    let configuration = directory.join("vsftpd.conf");
    fs::write(&configuration, settings).unwrap();
    configuration.display().to_string()
}
