//! What the documents say of the tree is so: links, files, commands, configurations, targets of make, tests, examples and packages
//! that they name.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Those that people read, with what they are called and what they say.
fn documents() -> Vec<(String, String)> {
    let in_folder = |folder: &str| {
        let entries = fs::read_dir(root().join(folder)).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let documents = names.filter(|name| name.ends_with(".md"));
        documents
            .map(|name| format!("{folder}{name}"))
            .collect::<Vec<_>>()
    };
    let names = [in_folder("./"), in_folder("docs/")].concat();
    let read = |name: String| {
        let text = fs::read_to_string(root().join(&name)).unwrap();
        (name.trim_start_matches("./").to_owned(), text)
    };
    names.into_iter().map(read).collect()
}

/// What stands between two marks, on one line.
fn between<'a>(text: &'a str, opens: &str, closes: &str) -> Vec<&'a str> {
    let lines = text.lines();
    lines
        .flat_map(|line| line.split(opens).skip(1))
        .filter_map(|rest| Some(rest.split_once(closes)?.0))
        .collect()
}

/// As GitHub names the heading of a line.
fn anchor(heading: &str) -> String {
    let heading = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = heading.chars().filter_map(|letter| match letter {
        ' ' => Some('-'),
        _ if letter.is_alphanumeric() || "-_".contains(letter) => Some(letter),
        _ => None,
    });
    kept.collect()
}

/// Words of code, quoted or in blocks.
fn code(text: &str) -> Vec<&str> {
    let quoted = text
        .lines()
        .flat_map(|line| line.split('`').skip(1).step_by(2));
    let blocks = text.split("```").skip(1).step_by(2);
    quoted.chain(blocks).collect()
}

/// Names that follow a word in code, as those of tests follow `--test`.
fn named_after<'a>(text: &'a str, word: &str) -> BTreeSet<&'a str> {
    let mut names = BTreeSet::new();
    for line in code(text).into_iter().flat_map(str::lines) {
        let words: Vec<&str> = line.split_whitespace().collect();
        // An option stands anywhere, a command at the beginning.
        let is_meant = |at: usize| at == 0 || word.starts_with('-');
        let pairs = words.windows(2).enumerate();
        let pairs = pairs.filter(|(at, pair)| pair[0] == word && is_meant(*at));
        names.extend(pairs.map(|(_, pair)| pair[1].trim_matches(|c: char| !c.is_alphanumeric())));
    }
    // `--test NAME` is for the reader to fill in.
    names.retain(|name| name.chars().any(|letter| letter.is_lowercase()));
    names
}

/// Folders `kind` of the packages have a file or folder of this name.
fn is_in_packages(kind: &str, name: &str) -> bool {
    let packages = fs::read_dir(root().join("crates")).unwrap();
    let mut folders = packages.map(|package| package.unwrap().path().join(kind));
    folders.any(|folder| {
        let (file, nested) = (format!("{name}.rs"), format!("{name}/main.rs"));
        folder.join(file).exists() || folder.join(nested).exists()
    })
}

fn missing(mut look: impl FnMut(&str, &str) -> Vec<String>) -> Vec<String> {
    let all = documents().into_iter();
    all.flat_map(|(name, text)| {
        let missing = look(&name, &text).into_iter();
        missing
            .map(|what| format!("{name}: {what}"))
            .collect::<Vec<_>>()
    })
    .collect()
}

#[test]
fn what_is_looked_for_is_found() {
    let text = "See [a](b.md#c-d) and `crates/x`.\n```\nmake demo\ncargo test --test own -- make it\n```\n";
    assert_eq!(between(text, "](", ")"), ["b.md#c-d"]);
    assert_eq!(code(text)[0], "crates/x");
    assert_eq!(named_after(text, "make"), BTreeSet::from(["demo"]));
    assert_eq!(named_after(text, "--test"), BTreeSet::from(["own"]));
    assert_eq!(anchor("## What is *known*, not"), "what-is-known-not");
}

#[test]
fn links_lead_somewhere() {
    let missing = missing(|name, text| {
        let folder = root().join(Path::new(name).parent().unwrap());
        let links = between(text, "](", ")").into_iter();
        let links = links.filter(|link| !link.contains("://"));
        let leads = |link: &&str| {
            let (path, heading) = link.split_once('#').unwrap_or((link, ""));
            let file = match path {
                "" => root().join(name),
                path => folder.join(path),
            };
            let Ok(target) = fs::read_to_string(&file) else {
                return heading.is_empty() && file.exists();
            };
            let mut headings = target.lines().filter(|line| line.starts_with('#'));
            heading.is_empty() || headings.any(|line| anchor(line) == heading)
        };
        links
            .filter(|link| !leads(link))
            .map(str::to_owned)
            .collect()
    });
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn files_that_are_named_are_there() {
    const FOLDERS: [&str; 6] = ["bpf/", "crates/", "docs/", "scripts/", "examples/", ".ci/"];
    let missing = missing(|_, text| {
        let words = code(text).into_iter().flat_map(str::split_whitespace);
        let paths = words.filter(|word| FOLDERS.iter().any(|folder| word.starts_with(folder)));
        let is_whole = |path: &&str| !path.contains(['*', '…', '{', '<', '$', ':', 'N']);
        let paths = paths.map(|path| path.trim_end_matches([',', ';', '.', ')', '/']));
        paths
            .filter(is_whole)
            .filter(|path| !root().join(path).exists())
            .map(str::to_owned)
            .collect()
    });
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn commands_that_are_named_have_what_they_name() {
    let makefile = fs::read_to_string(root().join("Makefile")).unwrap();
    let is_target = |name: &str| {
        makefile
            .lines()
            .any(|line| line.starts_with(&format!("{name}:")))
    };
    let manifests = fs::read_dir(root().join("crates")).unwrap();
    let manifests = manifests.map(|package| package.unwrap().path().join("Cargo.toml"));
    let manifests: String = manifests
        .map(|manifest| fs::read_to_string(manifest).unwrap())
        .collect();
    let is_package = |name: &str| manifests.contains(&format!("name = \"{name}\""));
    let missing = missing(|_, text| {
        let lacks = |word: &str, is_there: &dyn Fn(&str) -> bool| {
            let names = named_after(text, word).into_iter();
            let lacking = names.filter(|name| !is_there(name));
            lacking
                .map(|name| format!("{word} {name}"))
                .collect::<Vec<_>>()
        };
        [
            lacks("make", &is_target),
            lacks("-p", &|name| {
                !name.starts_with("anabranch") || is_package(name)
            }),
            lacks("--test", &|name| is_in_packages("tests", name)),
            lacks("--example", &|name| is_in_packages("examples", name)),
        ]
        .concat()
    });
    assert!(missing.is_empty(), "{missing:#?}");
}

/// `anabranch`, and `anabranch-lab` beside it.
fn executable(name: &str) -> PathBuf {
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

/// What is known of a configuration without a look at this host.
fn check(text: &str) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("anabranch.toml");
    fs::write(&file, text).unwrap();
    let mut command = Command::new(executable("anabranch"));
    command.args(["check", "--offline", "--config"]).arg(&file);
    command.output().unwrap()
}

/// A block is a file, or belongs to the one before it on its page, or to one like README's.
#[test]
fn configurations_that_are_shown_are_right() {
    const LAN: &str = "lan = [\"lan0\"]\n";
    const LINKS: &str =
        "policy = \"RR\"\nlink.one = { device = \"wan0\" }\nlink.two = { device = \"wan1\" }\n";
    const PAGES: [&str; 7] = [
        "README.md",
        "docs/checks.md",
        "docs/ipv6.md",
        "docs/neighbours.md",
        "docs/routed.md",
        "docs/rules.md",
        "docs/trunk.md",
    ];
    let mut shown = 0;
    let wrong = missing(|name, text| {
        let blocks = text.split("```toml\n").skip(1);
        let blocks = blocks.map(|rest| rest.split("```").next().unwrap());
        let blocks = blocks.filter(|_| PAGES.contains(&name));
        let mut before = format!("{LAN}{LINKS}");
        let mut wrong = Vec::new();
        for block in blocks {
            shown += 1;
            let alone = check(block);
            if alone.status.success() {
                before = block.to_owned();
                continue;
            }
            let files = [format!("{LAN}{block}"), format!("{before}{block}")];
            if !files.iter().any(|file| check(file).status.success()) {
                let said = String::from_utf8_lossy(&alone.stderr);
                wrong.push(format!("{said}{block}"));
            }
        }
        wrong
    });
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(shown >= PAGES.len(), "{shown}");
    assert!(!check("lan = [\"lan0\"]\nlinks = 3\n").status.success());
}
