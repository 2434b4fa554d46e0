//! Bounds and versions that documents state are those of the sources.

use std::fs;

use crate::root;

/// The value of a constant of Rust or C: the sum, product or shift of its line.
fn constant(file: &str, name: &str) -> u64 {
    let text = fs::read_to_string(root().join(file)).unwrap();
    let value = text.lines().find_map(|line| {
        let line = line.strip_prefix("pub ").unwrap_or(line);
        if let Some(rest) = line.strip_prefix(&format!("#define {name} ")) {
            return Some(rest);
        }
        if let Some(rest) = line.strip_prefix(&format!("const {name}: ")) {
            return Some(rest.split_once(" = ")?.1.trim_end_matches(';'));
        }
        line.strip_prefix(&format!("AB_MAP({name}, "))?
            .split(", ")
            .nth(1)
    });
    let value = value.unwrap_or_else(|| panic!("{file} has no {name}"));
    evaluate(file, value.trim_start_matches('(').trim_end_matches(')'))
}

fn evaluate(file: &str, value: &str) -> u64 {
    let sides = |operator| {
        value
            .split_once(operator)
            .map(|(a, b)| (evaluate(file, a), evaluate(file, b)))
    };
    if let Some((a, b)) = sides(" << ") {
        return a << b;
    }
    if let Some((a, b)) = sides(" * ") {
        return a * b;
    }
    let digits = value.trim_end_matches(['u', 'l']).replace('_', "");
    digits.parse().unwrap_or_else(|_| constant(file, value))
}

/// How large an executable may be, in MB.
fn size_max_mb(executable: &str) -> u64 {
    let text = fs::read_to_string(root().join("scripts/check-size")).unwrap();
    let (_, bytes) = text
        .split_once(&format!("    {executable}) bytes_max="))
        .unwrap();
    bytes.split(' ').next().unwrap().parse::<u64>().unwrap() / 1_000_000
}

/// In one line, and numbers without the spaces that group their digits.
fn plain(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut plain = String::new();
    for word in words {
        let is_group = word.len() >= 3 && word.as_bytes()[..3].iter().all(u8::is_ascii_digit);
        if !(is_group && plain.ends_with(|letter: char| letter.is_ascii_digit())) {
            plain.push(' ');
        }
        plain.push_str(word);
    }
    plain
}

const ANABRANCH_H: &str = "bpf/include/anabranch.h";
const BINS_H: &str = "bpf/include/bins.h";
const CHECKS_RS: &str = "crates/daemon/src/config/checks.rs";
const LIMITS_H: &str = "bpf/include/limits.h";
const NFT_RS: &str = "crates/daemon/src/host/nft/mod.rs";
const RULES_H: &str = "bpf/include/rules.h";
const MEMBER_H: &str = "bpf/include/member.h";
const SERVICE_H: &str = "bpf/include/service.h";
const TUPLE_RS: &str = "crates/core/src/tuple.rs";

/// A document, what it says with `{}` in the place of a number, and the number.
fn statements() -> Vec<(&'static str, &'static str, u64)> {
    vec![
        (
            "ARCHITECTURE.md",
            "({} ms after a second in which",
            50 * constant("crates/core/src/balancer/links.rs", "QUIET_POLLS"),
        ),
        (
            "ARCHITECTURE.md",
            "its contract: `v{}`,",
            constant(ANABRANCH_H, "AB_ABI_VERSION"),
        ),
        (
            "ARCHITECTURE.md",
            "`services-v{}`",
            constant(SERVICE_H, "AB_SERVICE_ABI_VERSION"),
        ),
        (
            "ARCHITECTURE.md",
            "`member-v{}`",
            constant(MEMBER_H, "AB_MEMBER_ABI_VERSION"),
        ),
        (
            "ARCHITECTURE.md",
            "`trunk-v{}`",
            constant(BINS_H, "AB_TRUNK_ABI_VERSION"),
        ),
        (
            "CONTRIBUTING.md",
            "`anabranch` may have {} MB",
            size_max_mb("anabranch"),
        ),
        (
            "CONTRIBUTING.md",
            "`anabranch-lab` {} MB",
            size_max_mb("anabranch-lab"),
        ),
        (
            "README.md",
            "allows {} connections per LAN address",
            constant(NFT_RS, "PER_SOURCE_MAX"),
        ),
        ("README.md", "and {} in all", constant(NFT_RS, "IN_SUM_MAX")),
        (
            "docs/checks.md",
            "at random, 0 to {}",
            constant(CHECKS_RS, "JITTER_MAX"),
        ),
        (
            "docs/checks.md",
            "0 to 50 | `{}`",
            constant(CHECKS_RS, "JITTER"),
        ),
        (
            "docs/checks.md",
            "bring the check up | `{}`",
            constant(CHECKS_RS, "RISE"),
        ),
        (
            "docs/checks.md",
            "take the check down | `{}`",
            constant(CHECKS_RS, "FALL"),
        ),
        (
            "docs/neighbours.md",
            "more than {} routes",
            constant(LIMITS_H, "AB_ROUTES_MAX") / 16 * 15,
        ),
        (
            "docs/neighbours.md",
            "Beyond {} prefixes",
            constant(LIMITS_H, "AB_ROUTES_MAX") / 16 * 15,
        ),
        (
            "docs/policies.md",
            "At most {} SYNs wait",
            constant("bpf/lib/gateway/held.h", "held"),
        ),
        (
            "docs/policies.md",
            "(1 to {}, 100",
            constant(TUPLE_RS, "LISTED_MAX"),
        ),
        (
            "docs/policies.md",
            "(0 to {}, 2",
            constant(TUPLE_RS, "ROUNDS_MAX"),
        ),
        (
            "docs/rules.md",
            "There may be {} rules",
            constant(RULES_H, "AB_MAX_CLASSES") - 1,
        ),
        (
            "docs/rules.md",
            "into {} pieces at most",
            constant(RULES_H, "AB_PIECES_MAX"),
        ),
        (
            "docs/rules.md",
            "; {} at most",
            constant("crates/core/src/rules/own.rs", "OWN_MAX"),
        ),
        (
            "docs/rules.md",
            "more than {} parts",
            constant("crates/core/src/rules/coverage.rs", "BOXES_MAX"),
        ),
        (
            "docs/services.md",
            "up to {} services",
            constant(SERVICE_H, "AB_MAX_SERVICES"),
        ),
        (
            "docs/services.md",
            "the servers, up to {}",
            constant(LIMITS_H, "AB_MAX_TARGETS"),
        ),
        (
            "docs/services.md",
            "of these only the last {} are kept",
            constant("bpf/include/service.h", "AB_PASSING_MAX"),
        ),
        (
            "docs/trunk.md",
            "up to {} parallel lines",
            constant(LIMITS_H, "AB_MAX_LINKS"),
        ),
        (
            "docs/trunk.md",
            "1 to {} lines",
            constant(LIMITS_H, "AB_MAX_LINKS"),
        ),
    ]
}

#[test]
fn bounds_and_versions_are_those_of_the_sources() {
    assert_eq!(evaluate(RULES_H, "1 << AB_RULE_STEPS"), 512);
    assert_eq!(plain("of 262 144\nentries"), " of 262144 entries");
    let missing: Vec<String> = statements()
        .into_iter()
        .filter_map(|(document, statement, number)| {
            let statement = statement.replace("{}", &number.to_string());
            let text = plain(&fs::read_to_string(root().join(document)).unwrap());
            (!text.contains(&statement)).then(|| format!("{document} does not say: {statement}"))
        })
        .collect();
    assert!(missing.is_empty(), "{missing:#?}");
}
