//! One scenario file in both worlds, and what stands in the way of the laboratory, which needs root.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use anabranch_results::read_transfers_csv;
use serde_json::Value;

/// The best link gets its best provider back only in part: the hop behind it is narrow, and dies half way through.
const HOUSE: &str = r#"
length = "6s"
policies = ["WSDM"]
link.fiber = { down = "12mbit", up = "6mbit", delay = "4ms", beyond = { rate = "6mbit", delay = "3ms" } }
link.lte = { down = "6mbit", up = "3mbit", delay = "15ms", loss = "0.1%" }
fault = [
    { at = "3s", link = "fiber", place = "beyond", change = "cut" },
    { at = "2s", link = "lte", direction = "down", rate = "4mbit" },
]
workload = { kind = "continuous", users = 3, downloads = 2, size = { pareto = 1.2, min = "10kB", max = "200kB" } }
"#;

/// A user who is not root.
const NOBODY: u32 = 65534;

struct House {
    directory: tempfile::TempDir,
}

impl House {
    fn new(text: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("house.toml"), text).unwrap();
        Self { directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn command(&self, world: &str, options: &[&str]) -> Command {
        let mut command = common::laboratory();
        // The laboratory is the command's own world.
        command.args((world == "sim").then_some("sim"));
        command.args(["run", "house.toml"]).args(options);
        command.current_dir(self.directory.path());
        command
    }

    fn run(&self, world: &str, options: &[&str]) -> Output {
        self.command(world, options).output().unwrap()
    }

    /// The directory of the one result under `out`.
    fn directory_of(&self, out: &str) -> PathBuf {
        let runs: Vec<_> = fs::read_dir(self.path(out))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.is_dir())
            .collect();
        let [run] = &runs[..] else {
            panic!("{runs:?}");
        };
        run.clone()
    }

    /// The manifest and the events of the one result under `out`.
    fn result(&self, out: &str) -> (Value, Value) {
        let run = self.directory_of(out);
        let read = |name| {
            let text = fs::read_to_string(run.join(name)).unwrap();
            serde_json::from_str(&text).unwrap()
        };
        (read("manifest.json"), read("events.json"))
    }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

/// Every file below a directory, by its path.
fn files(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut ahead = vec![directory.to_owned()];
    while let Some(next) = ahead.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                ahead.push(path);
            } else {
                let name = path.strip_prefix(directory).unwrap().to_owned();
                found.insert(name, fs::read(path).unwrap());
            }
        }
    }
    found
}

#[test]
fn a_scenario_gives_the_same_bytes_twice_in_the_simulator_and_others_for_another_seed() {
    let house = House::new(HOUSE);
    for (out, seed) in [("first", "7"), ("second", "7"), ("third", "8")] {
        let output = house.run("sim", &["--out", out, "--seed", seed, "--twice"]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        assert!(text(&output.stdout).contains("WSDM"), "{output:?}");
    }
    let [first, second, third] = ["first", "second", "third"].map(|out| files(&house.path(out)));
    assert!(first.keys().any(|name| name.ends_with("transfers.parquet")));
    assert_eq!(first, second);
    assert_ne!(
        first.values().collect::<Vec<_>>(),
        third.values().collect::<Vec<_>>()
    );
}

#[test]
fn policies_and_seeds_are_compared_and_what_is_complete_is_not_run_again() {
    let house = House::new(HOUSE);
    let options = ["--policy", "RR", "--policy", "WSDM", "--csv", "--jobs", "1"];
    let few = house.run("sim", &[&options[..], &["--seed", "1"]].concat());
    assert_eq!(few.status.code(), Some(0), "{}", text(&few.stderr));
    let more = house.run(
        "sim",
        &[&options[..], &["--seed", "1", "--seed", "2", "--png"]].concat(),
    );
    let told = text(&more.stderr);
    assert!(told.contains("2 of 4 runs were complete before"), "{told}");
    assert!(told.contains("2 of 2 runs: house, WSDM, seed 2"), "{told}");
    let table = text(&more.stdout);
    let rows: Vec<_> = table
        .lines()
        .filter(|line| line.contains("Mbit/s"))
        .collect();
    assert!(
        rows[0].starts_with("RR ") && rows[1].starts_with("WSDM "),
        "{table}"
    );
    assert!(
        table.contains("report: anabranch-results/comparison.html"),
        "{table}"
    );
    let all = ["--seed", "1", "--seed", "2", "--png", "--out", "at-once"];
    house.run("sim", &[&options[..], &all].concat());
    let found = files(&house.path("anabranch-results"));
    assert_eq!(found, files(&house.path("at-once")), "resumed or not");
    let rows = found.keys().filter(|name| name.ends_with("transfers.csv"));
    assert_eq!(rows.count(), 4);
    let ending = |end: &str| {
        found
            .keys()
            .filter(|name| name.extension().is_some_and(|e| e == end))
            .count()
    };
    // Two of each run, one or more of the comparison; those of the runs that were complete before too.
    assert!(
        ending("png") > 8 && ending("png") == ending("svg"),
        "{:?}",
        found.keys()
    );
}

#[test]
fn quick_experiments_hold_and_every_claim_stands_beside_what_was_observed() {
    for name in ["2004-guo-multihoming/fig9", "validation/queues"] {
        let out = tempfile::tempdir().unwrap();
        let mut command = common::laboratory();
        command.args(["experiment", "run", name, "--quick", "--out"]);
        let output = command.arg(out.path()).output().unwrap();
        let told = text(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{told}");
        let summary = fs::read(out.path().join("summary.json")).unwrap();
        let summary: Value = serde_json::from_slice(&summary).unwrap();
        let checks = summary["checks"].as_array().unwrap();
        assert!(!checks.is_empty());
        for check in checks {
            let claim = check["claim"].as_str().unwrap();
            assert!(told.contains(claim), "{claim}");
            assert!(check["observed"].is_number() && check["expected"].is_string());
            assert_eq!(
                (&check["pass"], &check["figure"]),
                (&true.into(), &name.split_once('/').unwrap().1.into())
            );
        }
    }
}

/// A run that takes until it is killed.
const ENDLESS: &str = "length = \"1h\"\nlink.fiber = { rate = \"200mbit\" }";

#[test]
fn a_directory_takes_the_results_of_one_process_at_a_time_and_is_free_when_that_is_killed() {
    let house = House::new(ENDLESS);
    let begin = || {
        let mut command = house.command("sim", &["--out", "out"]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Killed(command.spawn().unwrap())
    };
    let mut first = begin();
    held(&house.path("out"));
    let mut experiment = common::laboratory();
    let words = ["experiment", "run", "2004-guo-multihoming/fig9", "--out"];
    experiment.args(words).arg(house.path("out"));
    let out = house.path("out").display().to_string();
    for (mut second, out) in [
        (house.command("sim", &["--out", "out"]), "out"),
        (house.command("lab", &["--out", "out"]), "out"),
        (experiment, &out),
    ] {
        let output = second.output().unwrap();
        let expected = format!(
            "anabranch-lab: --out {out}: another anabranch is writing its results there; wait until it has ended, or name another directory\n"
        );
        assert_eq!(text(&output.stderr), expected);
        assert_eq!(output.status.code(), Some(2));
    }
    first.0.kill().unwrap();
    first.0.wait().unwrap();
    let _second = begin();
    held(&house.path("out"));
}

/// A process that is killed when the test is done with it, or has failed.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until a directory is locked.
fn held(directory: &Path) {
    let deadline = Instant::now() + Duration::from_secs(30);
    let is_held = || {
        let Ok(found) = fs::metadata(directory) else {
            return false;
        };
        let locks = fs::read_to_string("/proc/locks").unwrap();
        let inode = format!(":{} ", found.ino());
        locks
            .lines()
            .any(|lock| lock.contains("FLOCK") && lock.contains(&inode))
    };
    while !is_held() {
        assert!(Instant::now() < deadline, "nobody holds it");
        std::thread::yield_now();
    }
}

#[test]
fn the_same_file_runs_in_the_laboratory_with_a_narrow_second_hop_that_dies() {
    let house = House::new(HOUSE);
    let output = house.run("lab", &["--out", "lab"]);
    let (manifest, events) = house.result("lab");
    // A machine that does other work may be too slow for a valid run; it is one all the same.
    let problems = manifest["problems"].as_array().unwrap();
    let slow = |problem: &Value| problem.as_str().unwrap().contains("too much load");
    assert!(problems.iter().all(slow), "{problems:?}");
    let expected = if problems.is_empty() { 0 } else { 1 };
    assert_eq!(
        output.status.code(),
        Some(expected),
        "{}",
        text(&output.stderr)
    );
    assert_eq!(manifest["world"], "lab");
    assert!(manifest["conditions"]["kernel"].is_string());
    assert_eq!(
        manifest["conditions"]["congestion control of clients"],
        "cubic"
    );
    let at = |words: &str| {
        let events = events.as_array().unwrap().iter();
        let told = |event: &&Value| event["text"].as_str().unwrap().contains(words);
        let found = events.clone().find(told);
        found.unwrap_or_else(|| panic!("no {words} in {events:?}"))["t_s"]
            .as_f64()
            .unwrap()
    };
    assert!(at("lte has") >= 2.0);
    let cut_s = at("fiber is cut beyond the last mile");
    assert!((3.0..4.0).contains(&cut_s), "{events}");
    // Its probes go to the server: beyond the last mile is where they end.
    assert!(at("fiber is declared down") > cut_s);
}

/// The line is always busy, so that nothing but its trace decides how long the download takes.
const CELL: &str = r#"
length = "15s"
policies = ["RR"]
link.cell = { down.trace = { kind = "lte", mean = "8mbit", between = "2s" }, up = "4mbit", delay = "10ms", buffer = "1s" }
workload = { kind = "rows", rows = [{ at = "0s", size = "6MB" }] }
tcp.control = "cubic-linux"
"#;

#[test]
fn a_long_download_over_a_drawn_trace_is_as_fast_in_the_laboratory_as_in_the_simulator() {
    let house = House::new(CELL);
    let goodput = |world: &str| {
        let output = house.run(world, &["--out", world, "--csv", "--seed", "3"]);
        let (manifest, _) = house.result(world);
        // A machine that does other work may be too slow for a valid run.
        let problems = manifest["problems"].as_array().unwrap();
        let slow = |problem: &Value| problem.as_str().unwrap().contains("too much load");
        assert!(problems.iter().all(slow), "{}", text(&output.stderr));
        let rows = house.directory_of(world).join("transfers.csv");
        let [transfer] = &read_transfers_csv(&rows).unwrap()[..] else {
            panic!("one download")
        };
        transfer.throughput_bps()
    };
    let [sim, lab] = ["sim", "lab"].map(goodput);
    println!("simulator {sim:.0}, laboratory {lab:.0} bit/s");
    assert!((lab / sim - 1.0).abs() < 0.1);
}

#[test]
fn links_that_share_a_line_beyond_have_it_once_in_either_world() {
    let house = House::new(
        r#"
        length = "4s"
        policies = ["RR"]
        shared.core = { rate = "6mbit", delay = "3ms" }
        link.a = { down = "5mbit", up = "2mbit", delay = "5ms", beyond = "core" }
        link.b = { down = "5mbit", up = "2mbit", delay = "5ms", beyond = "core" }
        workload = { kind = "continuous", users = 4, downloads = 2, size = "100kB" }
        "#,
    );
    for world in ["sim", "lab"] {
        let output = house.run(world, &["--out", world, "--csv"]);
        let rows = house.directory_of(world).join("transfers.csv");
        let transfers = read_transfers_csv(&rows).unwrap();
        let carried = |link: &str| {
            let of_link = transfers.iter().filter(|t| t.link.as_deref() == Some(link));
            of_link.count()
        };
        // Some transfers begin and end within the run: 6 Mbit/s for 4 s are 30 of 100 kB, two lines would carry 50.
        let complete = transfers.iter().filter(|t| t.outcome.is_ok()).count();
        assert!(
            (15..=30).contains(&complete),
            "{world}: {complete}, {}",
            text(&output.stderr)
        );
        assert!(carried("a") > 5 && carried("b") > 5, "{world}");
    }
}

#[test]
fn a_laboratory_that_is_held_up_marks_its_run_invalid_and_fails() {
    let house = House::new(HOUSE);
    let mut command = house.command("lab", &["--out", "lab"]);
    command.stderr(Stdio::piped()).stdout(Stdio::null());
    let child = command.spawn().unwrap();
    let output = held_up(child, Duration::from_millis(30), Duration::from_millis(70));
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("1 of 1 runs are invalid"), "{told}");
    let (manifest, _) = house.result("lab");
    assert_eq!(manifest["valid"], false);
    let late = |problem: &Value| problem.as_str().unwrap().contains("lateness p99");
    assert!(manifest["problems"].as_array().unwrap().iter().any(late));
}

/// Lets a process stand for one time and go for another, again and again until it ends.
fn held_up(child: Child, stands: Duration, goes: Duration) -> Output {
    let pid = child.id().to_string();
    let signal = |name: &str| Command::new("kill").args([name, &pid]).output().unwrap();
    let (sender, ended) = std::sync::mpsc::channel();
    let waiter = std::thread::spawn(move || sender.send(child.wait_with_output().unwrap()));
    let deadline = Instant::now() + Duration::from_secs(90);
    let output = loop {
        if let Ok(output) = ended.recv_timeout(goes) {
            break output;
        }
        assert!(Instant::now() < deadline, "still there");
        signal("-STOP");
        // It may have ended just before.
        let output = ended.recv_timeout(stands);
        signal("-CONT");
        if let Ok(output) = output {
            break output;
        }
    };
    waiter.join().unwrap().unwrap();
    output
}

#[test]
fn an_interrupt_ends_a_laboratory_run_soon_and_cleanly() {
    let house = House::new(&HOUSE.replace("6s", "300s"));
    let mut command = house.command("lab", &["--out", "lab"]);
    let child = command
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    // The clients' side is there before the gateway is ready: whichever comes first, the interrupt has to work.
    let told = interrupted(child, |pid| namespaces(pid) >= 6);
    let kept = "interrupted; complete runs are kept in lab, the same command goes on from there";
    assert!(told.contains(kept), "{told}");
}

#[test]
fn an_interrupt_ends_an_experiment_in_the_laboratory_cleanly() {
    let out = tempfile::tempdir().unwrap();
    let mut command = common::laboratory();
    command.args(["experiment", "run", "validation/lab", "--quick", "--out"]);
    command.arg(out.path());
    command.stderr(Stdio::piped()).stdout(Stdio::null());
    let told = interrupted(command.spawn().unwrap(), |pid| namespaces(pid) >= 6);
    let kept = format!(
        "interrupted; complete figures and runs are kept in {}, the same command goes on from there",
        out.path().display()
    );
    assert!(told.contains(&kept), "{told}");
    // The run that was ended is none that is complete.
    assert_eq!(fs::read_dir(out.path().join("runs")).unwrap().count(), 0);
}

#[test]
fn the_laboratory_refuses_who_is_not_root_before_anything_is_done() {
    let house = House::new(HOUSE);
    let directory = house.directory.path();
    fs::set_permissions(directory, Permissions::from_mode(0o777)).unwrap();
    for words in IN_THE_LABORATORY {
        let mut command = alone(&house);
        command.args(words);
        if fs::metadata("/proc/self").unwrap().uid() == 0 {
            command.uid(NOBODY);
        }
        let output = command.output().unwrap();
        let told = text(&output.stderr);
        let expected = "anabranch-lab: the laboratory needs root for network namespaces and BPF: run the same with sudo\n";
        assert_eq!((output.status.code(), told), (Some(2), expected));
        assert!(!house.path("out").exists());
    }
}

/// Commands that start a gateway.
const IN_THE_LABORATORY: [&[&str]; 5] = [
    &["run", "house.toml", "--out", "out"],
    &["experiment", "run", "validation/lab", "--out", "out"],
    &["demo", "--out", "out"],
    &["attack"],
    &["neighbours"],
];

/// The command without a gateway beside it.
fn alone(house: &House) -> Command {
    let program = house.path("anabranch-lab");
    fs::copy(env!("CARGO_BIN_EXE_anabranch-lab"), &program).unwrap();
    let mut command = Command::new(program);
    command.current_dir(house.directory.path());
    command
}

#[test]
fn the_laboratory_says_where_it_looked_for_the_gateway_before_anything_is_done() {
    let house = House::new(HOUSE);
    let place = house.directory.path().canonicalize().unwrap();
    for words in IN_THE_LABORATORY {
        let output = alone(&house).args(words).env("PATH", &place).output();
        let output = output.unwrap();
        let expected = format!(
            "anabranch-lab: the laboratory runs the program `anabranch`, which is neither in {} nor on PATH: put it beside this one, or build both with `make build`\n",
            place.display()
        );
        assert_eq!(
            (output.status.code(), text(&output.stderr)),
            (Some(2), &*expected)
        );
        assert!(!house.path("out").exists());
    }
}

#[test]
fn a_demo_whose_results_cannot_be_written_is_refused_before_it_begins() {
    let house = House::new(HOUSE);
    let mut command = common::laboratory();
    let output = command
        .args(["demo", "--out"])
        .arg(house.path("house.toml"));
    let output = output.output().unwrap();
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(
        told.ends_with("; name a directory that can be written\n"),
        "{told}"
    );
    assert!(output.stdout.is_empty());
}

/// Network namespaces of a process.
fn namespaces(pid: u32) -> usize {
    let owned = format!("anabranch-{pid}-");
    let all = fs::read_dir("/run/netns").into_iter().flatten().flatten();
    all.filter(|entry| entry.file_name().to_string_lossy().starts_with(&owned))
        .count()
}

/// Processes whose parent is `pid`.
fn children(pid: u32) -> Vec<String> {
    let all = fs::read_dir("/proc").unwrap().flatten();
    let parent = format!("PPid:\t{pid}\n");
    let stati = all.filter_map(|entry| fs::read_to_string(entry.path().join("status")).ok());
    stati.filter(|status| status.contains(&parent)).collect()
}

/// Interrupts a command when it has come so far, sees that it takes everything down, and returns what it told.
fn interrupted(child: Child, so_far: impl Fn(u32) -> bool) -> String {
    let pid = child.id();
    let deadline = Instant::now() + Duration::from_secs(90);
    while !so_far(pid) {
        assert!(Instant::now() < deadline, "{} namespaces", namespaces(pid));
        std::thread::yield_now();
    }
    let started = children(pid);
    let kill = Command::new("kill")
        .args(["-INT", &pid.to_string()])
        .status();
    assert!(kill.unwrap().success());
    let begun = Instant::now();
    let output = child.wait_with_output().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(60));
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    assert_eq!(namespaces(pid), 0);
    for status in started {
        let line = status.lines().find(|line| line.starts_with("Pid:"));
        let of = line
            .and_then(|line| line.split_whitespace().nth(1))
            .unwrap();
        assert!(!Path::new("/proc").join(of).exists(), "{status}");
    }
    text(&output.stderr).to_owned()
}
