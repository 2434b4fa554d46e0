//! Both commands with a policy of their own: the examples of this crate. The laboratory needs root.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anabranch_results::read_transfers_csv;

const EXAMPLE: &str = include_str!("../examples/own-policy/policy.rs");

/// `cargo test` builds what is not the tests' own, `cargo test --test` does not.
fn built(name: &str) -> PathBuf {
    let command = Path::new(env!("CARGO_BIN_EXE_anabranch-lab"));
    let path = command.with_file_name(name);
    let how = "run `cargo test --locked --workspace --no-run` first";
    assert!(path.exists(), "{how}");
    path
}

/// The laboratory that knows the policy.
fn example() -> PathBuf {
    built("examples/own-policy")
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
    assert!(EXAMPLE.lines().count() <= 30);
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
    let [own, plain] = ["examples/anabranch", "anabranch"].map(built);
    for policy in [
        "\"hope\"",
        "{ name = \"mine\", measure = \"hope\", dispatch = \"best\" }",
    ] {
        assert_eq!(checked(&own, policy), (Some(0), String::new()));
        assert_eq!(checked(&plain, policy).0, Some(2), "{policy}");
    }
    let (_, unknown) = checked(&plain, "\"hope\"");
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
    // The gateway of the laboratory is the example beside it.
    built("examples/anabranch");
    for (world, command) in [("sim", &["sim", "run"][..]), ("lab", &["run"])] {
        let args = [command, &["house.toml", "--csv", "--out", world]].concat();
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
