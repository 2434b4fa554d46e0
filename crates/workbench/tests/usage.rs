//! What the command answers without a laboratory: help, lists, and bad input told in one line with exit code 2.

use std::fs;
use std::process::{Command, Output};

use anabranch_console::policies::measure;
use anabranch_core::catalogue::{Cost, Page, Parts};

fn anabranch_lab(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_anabranch-lab"));
    command.args(words).output().expect("the command was built")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

const SIM: [&str; 2] = ["sim", "run"];

/// The error of a command on a scenario, without the file's name.
fn scenario_refusal(command: &[&str], scenario: &str, options: &[&str]) -> String {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("house.toml");
    fs::write(&path, scenario).unwrap();
    let path = path.to_str().unwrap();
    let out = directory.path().join("results");
    let words = [path, "--out", out.to_str().unwrap()];
    let output = anabranch_lab(&[command, &words, options].concat());
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{scenario}: {error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(!out.exists(), "nothing is done");
    error.trim_end().replace(path, "house.toml")
}

#[test]
fn a_wrong_scenario_is_told_in_one_line_with_file_key_and_reason() {
    const LINK: &str = "link.fiber = { rate = \"10mbit\" }\n";
    let cases = [
        (
            "lenght = \"3s\"\n".to_owned() + LINK,
            "anabranch-lab: house.toml:1: lenght = \"3s\": unknown key; allowed: ",
        ),
        (
            "policies = [\"DRR\"]\n".to_owned() + LINK,
            "anabranch-lab: house.toml:1: policies[0] = \"DRR\": sends the packets of one connection over several links",
        ),
        (
            LINK.to_owned() + "fault = [{ at = \"1s\", link = \"lte\", change = \"cut\" }]",
            "anabranch-lab: house.toml:2: fault[0].link = \"lte\": ",
        ),
        (
            "link.fiber = { rate = \"0mbit\" }".to_owned(),
            "anabranch-lab: house.toml:1: link.fiber.rate = \"0mbit\": ",
        ),
        (
            "link.fiber = { rate = \"9mbit\", down = \"9mbit\", up = \"2mbit\" }".to_owned(),
            "anabranch-lab: house.toml:1: link.fiber.rate = \"9mbit\": down and up have rates of their own",
        ),
        (
            LINK.to_owned() + LINK,
            "anabranch-lab: house.toml:2: not TOML: fiber is there twice",
        ),
        (
            LINK.to_owned() + "workload = { kind = \"pages\", users = 1000000, files = 1000000 }",
            "anabranch-lab: house.toml:2: workload = {",
        ),
        (
            LINK.to_owned() + "[sweep]\nlink.fiber.rate = [\"1mbit\", \"1000kbit\"]",
            "anabranch-lab: house.toml: sweep: link.fiber.rate = 1mbit and link.fiber.rate = 1000kbit have the same runs",
        ),
    ];
    for (scenario, begins) in cases {
        let line = scenario_refusal(&SIM, &scenario, &[]);
        assert!(line.starts_with(begins), "{line}");
    }
    let line = scenario_refusal(&SIM, LINK, &["--policy", "fastest"]);
    assert!(
        line.starts_with("anabranch-lab: --policy: unknown policy fastest; allowed: WSDM, "),
        "{line}"
    );
    let meant = [
        (scenario_refusal(&SIM, LINK, &["--policy", "WDSM"]), "WSDM"),
        (
            scenario_refusal(&SIM, &LINK.replace("rate", "raet"), &[]),
            "rate",
        ),
    ];
    for (line, word) in meant {
        assert!(line.ends_with(&format!("; did you mean {word}?")), "{line}");
    }
    let fast = "link.fiber = { rate = \"10gbit\" }";
    let line = scenario_refusal(&["run"], fast, &[]);
    assert!(
        line.contains("the laboratory carries 500 at most"),
        "{line}"
    );
}

#[test]
fn results_that_cannot_be_written_are_refused_before_anything_runs() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("house.toml");
    fs::write(&file, "link.fiber = { rate = \"10mbit\" }").unwrap();
    let file = file.to_str().unwrap();
    for words in [
        &["sim", "run", file, "--out", file][..],
        &["experiment", "run", "validation/queues", "--out", file],
    ] {
        let output = anabranch_lab(words);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let error = text(&output.stderr);
        let begins = format!("anabranch-lab: --out {file}: ");
        assert!(
            error.starts_with(&begins) && error.lines().count() == 1,
            "{error}"
        );
    }
    let none = anabranch_lab(&["sim", "run", file, "--jobs", "0"]);
    assert_eq!(none.status.code(), Some(2));
    assert!(text(&none.stderr).contains("1 or more"), "{none:?}");
}

#[test]
fn experiments_are_listed_with_their_figures_and_an_unknown_one_is_told_which_there_are() {
    let listed = anabranch_lab(&["experiment", "list", "--json"]);
    assert_eq!(listed.status.code(), Some(0));
    let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    let experiments = listed.as_array().unwrap();
    let table = anabranch_lab(&["experiment", "list"]);
    let mut names = Vec::new();
    for experiment in experiments {
        let name = experiment["name"].as_str().unwrap();
        assert!(text(&table.stdout).contains(name), "{name}");
        assert!(
            !experiment["figures"].as_array().unwrap().is_empty(),
            "{name}"
        );
        names.push(name);
    }
    assert!(!names.is_empty());
    let unknown = anabranch_lab(&["experiment", "run", "1999-nobody"]);
    assert_eq!(unknown.status.code(), Some(2));
    let expected = format!(
        "anabranch-lab: there is no experiment 1999-nobody; there are: {}\n",
        names.join(", ")
    );
    assert_eq!(text(&unknown.stderr), expected);
    let unknown = anabranch_lab(&["experiment", "run", &format!("{}/fig0", names[0])]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(text(&unknown.stderr).contains("has no figure fig0; it has: "));
    let elsewhere = anabranch_lab(&["experiment", "run", "validation/lab", "--world", "sim"]);
    assert_eq!(elsewhere.status.code(), Some(2));
    assert!(text(&elsewhere.stderr).contains("cannot be run in the world `sim`"));
    let script = anabranch_lab(&["completions", "bash"]);
    assert!(
        text(&script.stdout).contains(names[0]),
        "names are completed"
    );
}

#[test]
fn an_exported_experiment_runs_from_its_folder_and_a_wrong_file_there_is_told_with_its_line() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (folder, out) = (path("guo"), path("out"));
    let name = "2004-guo-multihoming";
    let exported = anabranch_lab(&["experiment", "export", name, &folder]);
    assert_eq!(exported.status.code(), Some(0), "{exported:?}");
    let again = anabranch_lab(&["experiment", "export", name, &folder]);
    assert_eq!(again.status.code(), Some(2), "what is there stays");
    let figure = format!("{name}/fig9");
    let run = || {
        anabranch_lab(&[
            "experiment",
            "run",
            &figure,
            "--files",
            &folder,
            "--out",
            &out,
        ])
    };
    assert_eq!(run().status.code(), Some(0));
    let summary = fs::read(directory.path().join("out/summary.json")).unwrap();
    let summary: serde_json::Value = serde_json::from_slice(&summary).unwrap();
    assert_eq!(summary["folder"], folder);
    assert!(summary["files"]["trace1.toml"].is_string());
    assert!(directory.path().join("out/report.html").exists());
    fs::write(
        directory.path().join("guo/expected.toml"),
        "[seeds]\nfit = \"1..20\"\njudge = \"20..21\"\nquick = 1\nlab = 1\n",
    )
    .unwrap();
    let wrong = run();
    assert_eq!(wrong.status.code(), Some(2));
    let told = "expected.toml:3: seeds.judge = \"20..21\": shares seeds with fit";
    assert!(text(&wrong.stderr).contains(told), "{wrong:?}");
}

#[test]
fn help_has_examples_for_what_runs_scenarios() {
    for words in [
        &["sim", "run"][..],
        &["run"],
        &["attack"],
        &["neighbours"],
        &["demo"],
        &["experiment", "run"],
        &["experiment", "list"],
        &["experiment", "mutate"],
        &["experiment", "readme"],
        &["experiment", "export"],
    ] {
        let help = anabranch_lab(&[words, &["--help"]].concat());
        assert_eq!(help.status.code(), Some(0));
        let example = format!("anabranch-lab {}", words.join(" "));
        let help = text(&help.stdout);
        assert!(
            help.contains("Examples:") && help.contains(&example),
            "{help}"
        );
    }
}

#[test]
fn a_wrong_argument_has_exit_code_2_and_says_what_is_allowed() {
    for (words, says) in [
        (&["demo", "--seconds", "1"][..], "1 is not in 10..=3600"),
        (
            &["attack", "--subject", "bird"],
            "[possible values: anabranch, nftables, haproxy, all]",
        ),
        (&["run"], "<FILE>"),
    ] {
        let output = anabranch_lab(words);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {error}");
        assert!(error.contains(says), "{words:?}: {error}");
    }
}

#[test]
fn completions_are_generated_for_every_shell_and_know_the_subcommands() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = anabranch_lab(&["completions", shell]);
        assert_eq!(output.status.code(), Some(0));
        for word in ["neighbours", "experiment", "policy"] {
            assert!(text(&output.stdout).contains(word), "{shell}: {word}");
        }
    }
}

/// A row of docs/policies.md.
fn documented(page: &Page) -> String {
    let Page {
        name,
        meaning,
        source,
        needs,
        ..
    } = page;
    let Parts {
        dispatch,
        granularity,
        ..
    } = page.parts;
    let Cost { state, probes } = page.cost;
    let parameters = page.parameters.iter();
    let parameters: Vec<_> = parameters
        .map(|parameter| format!("`{}` = {}", parameter.name, parameter.default))
        .collect();
    let (among, measure, parameters) = (
        page.target.row().plural,
        measure(page),
        parameters.join(", "),
    );
    format!(
        "| `{name}` | {among} | {measure} × {dispatch} × {granularity} | {parameters} | {needs} | {state} | {probes} | {meaning} | {source} |\n"
    )
}

#[test]
fn the_page_of_policies_is_all_that_a_scenario_may_name() {
    let head = "| policy | among | measure × dispatch × granularity | parameters | needs | keeps | sends | chooses | source |\n|---|---|---|---|---|---|---|---|---|\n";
    let rows = anabranch_scenario::pages().map(|page| documented(&page));
    let table = head.to_owned() + &rows.collect::<String>();
    assert!(
        include_str!("../../../docs/policies.md").ends_with(&table),
        "docs/policies.md has to end with\n{table}"
    );
}
