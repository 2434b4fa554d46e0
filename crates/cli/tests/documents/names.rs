//! Names of code (functions, types, macros, variables, findings, figures) that documents quote occur in the sources.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use crate::{missing, quoted, root};

/// Of other programs and libraries, which our sources do not mention.
const OF_OTHERS: [&str; 1] = ["IP_PKTINFO"];

/// All that is not documents, and not these tests, which name what is not there.
fn read_sources(path: &Path, text: &mut String) {
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            read_sources(&entry.unwrap().path(), text);
        }
    } else if path.extension().is_none_or(|extension| extension != "md")
        && !path.starts_with(root().join("crates/cli/tests/documents"))
    {
        // Binary files have no names.
        text.push_str(&fs::read_to_string(path).unwrap_or_default());
        text.push('\n');
    }
}

static SOURCES: LazyLock<String> = LazyLock::new(|| {
    let mut text = String::new();
    for top in [
        ".ci",
        "Cargo.toml",
        "Makefile",
        "bpf",
        "clippy.toml",
        "crates",
        "experiments",
        "packaging",
        "scenarios",
        "scripts",
    ] {
        read_sources(&root().join(top), &mut text);
    }
    text
});

fn words(is_in_word: fn(char) -> bool) -> BTreeSet<&'static str> {
    SOURCES.split(|letter| !is_in_word(letter)).collect()
}

static IDENTIFIERS: LazyLock<BTreeSet<&str>> =
    LazyLock::new(|| words(|letter| letter.is_alphanumeric() || letter == '_'));
static HYPHENATED: LazyLock<BTreeSet<&str>> =
    LazyLock::new(|| words(|letter| letter.is_alphanumeric() || "_-".contains(letter)));

/// The names in a quoted text that can only be those of code: `a_b`, `a::b`, `a-b`.
fn names(quoted: &str) -> Vec<&str> {
    let name = quoted.trim_end_matches("()");
    let of = |letters: &str| {
        name.chars()
            .all(|letter| letter.is_ascii_alphanumeric() || letters.contains(letter))
    };
    match () {
        // `NAME` is for the reader to fill in.
        () if name.contains("NAME") || OF_OTHERS.contains(&name) => Vec::new(),
        () if name.contains("::") && of("_:") => {
            name.split("::").filter(|part| !part.is_empty()).collect()
        }
        () if name.trim_matches('_').contains('_') && of("_") => vec![name],
        () if name.contains('-')
            && !name.starts_with('-')
            && name.to_lowercase() == name
            && of("-") =>
        {
            vec![name]
        }
        () => Vec::new(),
    }
}

fn is_in_sources(name: &str) -> bool {
    // The daemon joins the names of a command's environment from two parts.
    let name = name.strip_prefix("ANABRANCH_").unwrap_or(name);
    // As it joins `services-v` and a version (numbers.rs).
    let versionless = name.trim_end_matches(|letter: char| letter.is_ascii_digit());
    let name = if versionless.ends_with("-v") {
        versionless
    } else {
        name
    };
    IDENTIFIERS.contains(name) || HYPHENATED.contains(name)
}

#[test]
fn names_of_code_occur_in_the_sources() {
    assert_eq!(names("attach::Rank"), ["attach", "Rank"]);
    assert_eq!(names("take_over()"), ["take_over"]);
    assert_eq!(names("forward-filter"), ["forward-filter"]);
    assert!(names("anabranch status").is_empty() && names("--check").is_empty());
    assert!(is_in_sources("take_over") && !is_in_sources("take_0ver"));
    let missing = missing(|name, text| {
        // The changelog tells of what was, too.
        let quoted = quoted(text).into_iter().filter(|_| name != "CHANGELOG.md");
        let names = quoted.flat_map(names);
        names
            .filter(|name| !is_in_sources(name))
            .map(str::to_owned)
            .collect()
    });
    assert!(missing.is_empty(), "{missing:#?}");
}
