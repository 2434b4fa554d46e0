//! Commands that are shown exist, with their subcommands and options.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{code, missing};

/// `anabranch`, and `anabranch-lab` beside it.
pub(crate) fn executable(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_BIN_EXE_anabranch")).with_file_name(name);
    assert!(
        path.exists(),
        "{} is not there: cargo build --workspace --bins",
        path.display()
    );
    path
}

/// The words of a command at the beginning of a line of code, without what is said of it behind them.
fn words_of_command(line: &str) -> Option<Vec<&str>> {
    let line = line.trim_start().trim_start_matches("sudo ");
    let ends = ["  ", " #", " |", ";", " >", " &"].map(|end| line.find(end));
    let end = ends.into_iter().flatten().min().unwrap_or(line.len());
    let words: Vec<&str> = line[..end].split_whitespace().collect();
    let is_ours = ["anabranch", "anabranch-lab"].contains(words.first()?);
    is_ours.then_some(words)
}

/// What the command says against its arguments; a value is for the reader to choose.
fn objection(words: &[&str]) -> Option<String> {
    let output = Command::new(executable(words[0]))
        .args(&words[1..])
        .arg("--help")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let is_known = output.status.success() || said.contains("invalid value");
    (!is_known).then(|| format!("{}: {said}", words.join(" ")))
}

#[test]
fn commands_have_the_subcommands_and_options_that_are_named() {
    assert_eq!(
        words_of_command("sudo anabranch run --config a.toml  # as root"),
        Some(vec!["anabranch", "run", "--config", "a.toml"])
    );
    assert!(objection(&["anabranch", "status", "--check"]).is_none());
    assert!(objection(&["anabranch", "status", "--cheek"]).is_some());
    assert!(objection(&["anabranch-lab", "stimulate"]).is_some());
    let missing = missing(|name, text| {
        let lines = code(text).into_iter().flat_map(str::lines);
        // The changelog tells of former commands, too.
        let lines = lines.filter(|_| name != "CHANGELOG.md");
        let commands: BTreeSet<_> = lines.filter_map(words_of_command).collect();
        let objections = commands.iter().filter_map(|words| objection(words));
        objections.collect()
    });
    assert!(missing.is_empty(), "{missing:#?}");
}
