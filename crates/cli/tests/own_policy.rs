//! A program with a policy of its own: the example of this crate. The laboratory needs root.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anabranch_results::read_transfers_csv;

const EXAMPLE: &str = include_str!("../examples/own-policy.rs");

/// `cargo test` builds the examples beside the tests, `cargo test --test` does not.
fn example() -> PathBuf {
    let command = Path::new(env!("CARGO_BIN_EXE_anabranch"));
    let path = command.with_file_name("examples").join("own-policy");
    let how = "run `cargo build --locked -p anabranch-cli --examples` first";
    assert!(path.exists(), "{how}");
    path
}

fn output(program: &Path, directory: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(program);
    command.args(args).current_dir(directory).output().unwrap()
}

fn words(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn the_example_is_short_and_compares_its_policy_with_those_of_the_catalogue() {
    assert!(EXAMPLE.lines().count() <= 40);
    let directory = tempfile::tempdir().unwrap();
    let output = output(&example(), directory.path(), &[]);
    let (table, error) = words(&output);
    assert!(output.status.success(), "{error}");
    let rows: Vec<_> = table.lines().skip(1).take(3).collect();
    let first = rows.iter().map(|row| row.split_whitespace().next());
    let first: Vec<_> = first.collect();
    assert_eq!(first, [Some("hope"), Some("WSDM"), Some("RR")], "{table}");
    assert!(rows.iter().all(|row| row.contains("Mbit/s")), "{table}");
}

#[test]
fn a_configuration_may_name_it_for_that_program_and_for_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let checked = |program: &Path, policy: &str| {
        let text = format!(
            "policy = {policy}\nlan = [\"eth0\"]\nlink.a = {{ device = \"eth1\", down = \"1mbit\" }}\n"
        );
        fs::write(directory.path().join("own.toml"), text).unwrap();
        let checked = output(
            program,
            directory.path(),
            &["check", "--offline", "--config", "own.toml"],
        );
        (checked.status.code(), words(&checked).1)
    };
    let (own, plain) = (example(), Path::new(env!("CARGO_BIN_EXE_anabranch")));
    for policy in [
        "\"hope\"",
        "{ name = \"mine\", measure = \"hope\", dispatch = \"best\" }",
    ] {
        assert_eq!(checked(&own, policy), (Some(0), String::new()));
        assert_eq!(checked(plain, policy).0, Some(2), "{policy}");
    }
    let (_, unknown) = checked(plain, "\"hope\"");
    let expected = "own.toml: policy = \"hope\": unknown policy hope, allowed: WSDM, RR, ";
    assert!(unknown.contains(expected), "{unknown}");
    let (code, taken) = checked(&own, "{ name = \"hope\", dispatch = \"random\" }");
    assert_eq!(code, Some(2));
    assert!(
        taken.contains("that of a policy of the catalogue, hope"),
        "{taken}"
    );
}

/// The second link has twenty times as much to hope for.
const HOUSE: &str = r#"
length = "4s"
policies = [{ name = "hopeful", measure = "hope", dispatch = "best" }]
link.narrow = { rate = "1mbit", delay = "5ms" }
link.wide = { rate = "20mbit", delay = "5ms" }
workload = { kind = "continuous", users = 2, downloads = 1, size = "20kB" }
"#;

#[test]
fn the_gateway_of_the_laboratory_is_ruled_by_it_as_that_of_the_simulator_is() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("house.toml"), HOUSE).unwrap();
    for world in ["sim", "lab"] {
        let args = [world, "run", "house.toml", "--csv", "--out", world];
        let output = output(&example(), directory.path(), &args);
        let mut all = fs::read_dir(directory.path().join(world)).unwrap();
        let run = all.find_map(|entry| Some(entry.unwrap().path()).filter(|path| path.is_dir()));
        let run = run.unwrap_or_else(|| panic!("{world}: {:?}", words(&output)));
        let transfers = read_transfers_csv(&run.join("transfers.csv")).unwrap();
        let links: BTreeSet<_> = transfers.iter().filter_map(|t| t.link.as_deref()).collect();
        assert!(transfers.len() > 10, "{world}");
        assert_eq!(links, BTreeSet::from(["wide"]), "{world}");
    }
}
