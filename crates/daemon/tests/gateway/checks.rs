//! Links that have to pass checks: pages, and commands that do whatever commands do.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anabranch_api::{CheckStatus, LinkState, Request, Response};
use anabranch_core::Family;
use anabranch_testbed::netns::{Child, Exit};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::rig::*;

anabranch_testbed::in_both_families!(
    Family:
    a_page_is_checked_by_its_name_and_its_answer,
    a_page_over_tls_is_checked_by_its_certificate,
    a_command_takes_its_link_down_and_brings_it_back_whatever_it_does,
);

const PAGE_PORT: u16 = 8080;
const TLS_PORT: u16 = 8443;
const PAGE_NAME: &str = "page.example";
/// In the folder of the pages' server; it signed itself.
const CERTIFICATE: &str = "certificate.pem";
const OFTEN: &str = "interval = \"300ms\"\ntimeout = \"250ms\"\nrise = 2\nfall = 2";

fn with_check(rig: &Rig, check: &str) {
    let text = rig.config_text();
    rig.write_config(&format!("{text}[[check]]\nlink = \"fiber\"\n{check}\n"));
}

fn reload(rig: &Rig, daemon: &Daemon, check: &str) {
    with_check(rig, check);
    let reloaded = daemon.call(&Request::Reload);
    assert!(matches!(reloaded, Response::Done), "{reloaded:?}");
}

fn check(daemon: &Daemon) -> CheckStatus {
    daemon.link("fiber").paths[0].checks[0].clone()
}

/// With words that say why.
fn is_down(daemon: &Daemon, why: &str) -> bool {
    let fiber = daemon.link("fiber");
    fiber.state == LinkState::Down && fiber.why.contains(why)
}

fn is_up(daemon: &Daemon) -> bool {
    daemon.link("fiber").state == LinkState::Up && check(daemon).state == "up"
}

/// Pages on the internet, with a folder that is the server's.
fn serve_pages(rig: &Rig) -> (Child, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let at = rig.port(PAGE_PORT);
    let at_tls = rig.port(TLS_PORT);
    let signed = rcgen::generate_simple_self_signed([PAGE_NAME.to_owned()]).unwrap();
    std::fs::write(root.join(CERTIFICATE), signed.cert.pem()).unwrap();
    std::fs::write(root.join("key.pem"), signed.signing_key.serialize_pem()).unwrap();
    let text = format!(
        r#"daemon off; master_process off; pid {root}/nginx.pid; error_log {root}/nginx.log;
        events {{}}
        http {{
            access_log off; client_body_temp_path {root}; proxy_temp_path {root};
            fastcgi_temp_path {root}; uwsgi_temp_path {root}; scgi_temp_path {root};
            server {{
                listen {at}; listen {at_tls} ssl;
                ssl_certificate {root}/{CERTIFICATE}; ssl_certificate_key {root}/key.pem;
                location /health {{ return 200 "all is well at $host"; }}
                location /broken {{ return 503; }}
            }}
        }}"#,
        root = root.display()
    );
    let file = root.join("nginx.conf");
    std::fs::write(&file, text).unwrap();
    let mut nginx = Command::new("nginx");
    nginx
        .arg("-c")
        .arg(&file)
        .arg("-e")
        .arg(root.join("nginx.log"));
    nginx
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let child = rig.internet.spawn(nginx).unwrap();
    let address: std::net::SocketAddr = at.parse().unwrap();
    until("nginx listens", || {
        rig.internet.connect(address, DEADLINE).is_ok()
    });
    (child, folder)
}

fn a_page_is_checked_by_its_name_and_its_answer(family: Family) {
    let rig = Rig::of(family);
    let _nginx = serve_pages(&rig);
    let at = rig.port(PAGE_PORT);
    let page = |path: &str, more: &str| format!("ask = \"http:{at}{path}\"\n{OFTEN}\n{more}");
    with_check(&rig, &page("/health", ""));
    let daemon = rig.start();
    until("it answers", || is_up(&daemon));
    assert_eq!(check(&daemon).check, format!("http:{at}/health = 200"));
    reload(&rig, &daemon, &page("/broken", ""));
    until("it answers otherwise", || is_down(&daemon, "answered 503"));
    assert_eq!(daemon.link("lte").state, LinkState::Up);
    let meant = "expect = { status = [200, 503], body = \"Temporarily\" }";
    reload(&rig, &daemon, &page("/broken", meant));
    until("it is meant to", || is_up(&daemon));
    reload(
        &rig,
        &daemon,
        &page("/health", "expect = { body = \"ill\" }"),
    );
    until("its text is another", || {
        is_down(&daemon, "200 and another text, wanted 200 ill")
    });
    let named = "host = \"page.example\"\nexpect = { body = \"well at page.example\" }";
    reload(&rig, &daemon, &page("/health", named));
    until("it is that name's", || is_up(&daemon));
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}

fn a_page_over_tls_is_checked_by_its_certificate(family: Family) {
    let rig = Rig::of(family);
    let (_nginx, folder) = serve_pages(&rig);
    let at = rig.port(TLS_PORT);
    let ask = format!("ask = \"https:{at}/health\"\n{OFTEN}");
    let by_file = format!(
        "{ask}\ncertificate = \"{}\"",
        folder.path().join(CERTIFICATE).display()
    );
    with_check(&rig, &format!("{by_file}\nhost = \"{PAGE_NAME}\""));
    let daemon = rig.start();
    until("its certificate is known", || is_up(&daemon));
    reload(&rig, &daemon, &by_file);
    until("it is for another host", || {
        is_down(&daemon, "certificate not valid for name")
    });
    reload(&rig, &daemon, &format!("{ask}\ncertificate = \"any\""));
    until("any is taken", || is_up(&daemon));
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}

/// A command that does as a file says, where everybody can run it.
struct Script {
    folder: tempfile::TempDir,
}

impl Script {
    fn new() -> Self {
        let script = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        let open = |path: &Path, mode| {
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(path, mode).unwrap();
        };
        open(script.folder.path(), 0o755);
        script.does("exit 0");
        let path = script.path();
        let text = format!("#!/bin/sh\n. {}\n", script.told().display());
        std::fs::write(&path, text).unwrap();
        open(&path, 0o755);
        open(&script.told(), 0o644);
        script
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("check")
    }

    fn told(&self) -> PathBuf {
        self.folder.path().join("told")
    }

    fn does(&self, what: &str) {
        std::fs::write(self.told(), what).unwrap();
    }

    fn check(&self, more: &str) -> String {
        format!(
            "command = [\"{}\"]\nfall = 2\nrise = 2\n{more}",
            self.path().display()
        )
    }

    fn often(&self) -> String {
        self.check("interval = \"400ms\"\ntimeout = \"300ms\"")
    }
}

fn a_command_takes_its_link_down_and_brings_it_back_whatever_it_does(family: Family) {
    let rig = Rig::of(family);
    let script = Script::new();
    // However often it falls.
    let at_once = "[availability]\nhold_down = \"10ms\"\nhold_down_max = \"10ms\"";
    with_check(&rig, &format!("{}\n{at_once}", script.often()));
    let daemon = rig.start();
    for (what, why) in [
        ("echo no carrier; exit 3", "exit code 3: no carrier"),
        ("sleep 1000", "it had not ended after 300ms"),
        ("kill -9 $$", "ended by signal 9"),
        ("head -c 100000 /dev/urandom; exit 1", "exit code 1"),
        ("test \"$ANABRANCH_DEVICE\" = wan1", "exit code 1"),
        ("test \"$(id -u)\" = 0", "exit code 1"),
    ] {
        script.does("exit 0");
        until("it is up", || is_up(&daemon));
        let mut stream = rig.connect().unwrap();
        script.does(what);
        until("it is down", || is_down(&daemon, why));
        assert_eq!(daemon.link("lte").state, LinkState::Up);
        // Over the other link, or as the flow's end is told.
        let _ = echo(&mut stream);
        echo(&mut rig.connect().unwrap()).expect("a connection over the other link");
    }
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}

#[test]
fn what_a_check_has_shown_outlives_a_reload_and_the_daemon() {
    let rig = Rig::new();
    let script = Script::new();
    script.does("exit 1");
    with_check(&rig, &script.often());
    let daemon = rig.start();
    until("it is down", || is_down(&daemon, "exit code 1"));
    // So seldom that nothing new is learnt in this test.
    let seldom = script.check("interval = \"1h\"");
    reload(&rig, &daemon, &seldom);
    assert!(is_down(&daemon, "exit code 1"));
    assert_eq!(daemon.end(Signal::SIGKILL), Exit::Signal(9));
    with_check(&rig, &seldom);
    let daemon = rig.start();
    assert!(daemon.status().adopted);
    assert!(
        is_down(&daemon, "it failed before"),
        "{}",
        daemon.link("fiber").why
    );
    script.does("exit 0");
    reload(&rig, &daemon, &script.often());
    until("it is up", || is_up(&daemon));
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
}

/// The child of a daemon that has become no other program.
fn helper(daemon: &Daemon) -> Pid {
    let process = daemon.child.id();
    let children = format!("/proc/{process}/task/{process}/children");
    let words = |process: &str| std::fs::read(format!("/proc/{process}/cmdline")).ok();
    let own = words(&process.to_string());
    let children = std::fs::read_to_string(children).unwrap();
    let mut children = children.split_whitespace();
    let helper = children.find(|child| words(child) == own);
    Pid::from_raw(helper.unwrap().parse().unwrap())
}

#[test]
fn a_helper_that_is_killed_or_stopped_takes_no_link_down_and_is_told() {
    for (signal, words) in [
        (
            Signal::SIGKILL,
            "the helper for them has ended; start the daemon again",
        ),
        (Signal::SIGSTOP, "the helper for them does not answer"),
    ] {
        let rig = Rig::new();
        let script = Script::new();
        with_check(&rig, &script.often());
        let daemon = rig.start();
        until("it is up", || is_up(&daemon));
        let helper = helper(&daemon);
        script.does("exit 1");
        kill(helper, signal).unwrap();
        until("it is told", || {
            let fiber = daemon.link("fiber");
            assert_ne!(fiber.state, LinkState::Down, "{}", fiber.why);
            let mut troubles = daemon.status().troubles.into_iter();
            troubles.any(|trouble| trouble.contains(words))
        });
        echo(&mut rig.connect().unwrap()).expect("packets are forwarded");
        // Nobody lets a stopped one go on.
        let _ = kill(helper, Signal::SIGKILL);
        assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
    }
}

#[test]
fn the_helper_is_nobody_who_has_nothing_and_ends_with_the_daemon() {
    let rig = Rig::new();
    let script = Script::new();
    script.does("sleep 1000");
    with_check(
        &rig,
        &script.check("interval = \"1h\"\njitter = 0\ntimeout = \"1000s\""),
    );
    let daemon = rig.start();
    let helper = helper(&daemon);
    let of = |process: Pid, name: &str| {
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        Some(
            line.trim_start_matches(':')
                .split_whitespace()
                .next()?
                .to_owned(),
        )
    };
    for (name, value) in [
        ("CapPrm", "0000000000000000"),
        ("NoNewPrivs", "1"),
        ("Seccomp", "0"),
    ] {
        until("it has given up all", || {
            of(helper, name).as_deref() == Some(value)
        });
    }
    assert_ne!(of(helper, "Uid").as_deref(), Some("0"));
    let open = || std::fs::read_dir(format!("/proc/{helper}/fd")).unwrap();
    let programs = open().filter(|entry| {
        let target = std::fs::read_link(entry.as_ref().unwrap().path());
        target.is_ok_and(|target| target.to_string_lossy().starts_with("anon_inode:bpf"))
    });
    assert_eq!(programs.count(), 0);
    let children = format!("/proc/{helper}/task/{helper}/children");
    let command = || {
        let children = std::fs::read_to_string(&children).ok()?;
        children.split_whitespace().next()?.parse().ok()
    };
    until("its command runs", || command().is_some());
    let command = Pid::from_raw(command().unwrap());
    assert_eq!(daemon.end(Signal::SIGKILL), Exit::Signal(9));
    until("both are gone", || {
        [helper, command]
            .iter()
            .all(|process| of(*process, "State").is_none_or(|state| state == "Z"))
    });
    assert_eq!(rig.start().end(Signal::SIGTERM), Exit::Code(0));
}
