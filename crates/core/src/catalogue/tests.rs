use std::collections::BTreeSet;

use anabranch_policy::Load;
use serde::Deserialize;

use super::*;
use crate::link::RateNeed;
use crate::tuple::TupleError;
use crate::typed::Typed;

#[derive(Debug, Deserialize)]
struct File {
    policy: Typed<Algorithm>,
}

fn parse(text: &str) -> Result<Typed<Algorithm>, String> {
    toml::from_str::<File>(&format!("policy = {text}"))
        .map(|file| file.policy)
        .map_err(|error| error.to_string())
}

fn algorithms() -> impl Iterator<Item = (&'static str, Algorithm)> {
    all().filter_map(|row| match row.policy {
        Policy::Gateway(algorithm) => Some((row.name, algorithm)),
        _ => None,
    })
}

#[test]
fn a_name_is_found_whatever_its_case() {
    for (name, algorithm) in algorithms() {
        let typed = parse(&format!("{:?}", name.to_lowercase())).unwrap();
        assert_eq!((typed.policy, typed.name.as_str()), (algorithm, name));
        assert_eq!(name.to_uppercase().parse(), Ok(algorithm));
    }
}

#[test]
fn every_algorithm_reads_back_from_the_tuple_it_writes() {
    for (name, algorithm) in algorithms() {
        let read = parse(&algorithm.tuple()).unwrap();
        assert_eq!(read.policy, algorithm, "{name}");
    }
}

#[test]
fn no_two_names_of_a_kind_are_alike_or_mean_the_same() {
    for TargetRow { target, .. } in &TARGETS {
        let names = of(*target).flat_map(|row| [Some(row.name), row.alias]);
        let names: Vec<_> = names.flatten().map(str::to_lowercase).collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
    }
    for row in all() {
        let first = row_of(&row.policy).map(|row| row.name);
        assert_eq!(first, Some(row.name), "hidden by an earlier row");
    }
}

#[test]
fn every_row_is_complete() {
    for row in all() {
        let Parts {
            measure,
            dispatch,
            granularity,
        } = row.policy.facts().parts();
        let words = [row.meaning, row.source, measure, dispatch, granularity];
        assert!(words.iter().all(|word| !word.is_empty()), "{}", row.name);
        assert_ne!(dispatch, "unnamed");
        assert!(!row.policy.facts().cost().state.is_empty());
    }
}

#[test]
fn every_kind_of_target_finds_its_row_and_has_a_default_that_a_configuration_may_name() {
    for row in &TARGETS {
        assert!(std::ptr::eq(row.target.row(), row), "{}", row.word);
        let default = default(row.target);
        assert_eq!(default.policy.facts().target(), row.target);
        assert_eq!(
            names(row.target).find(|name| *name == row.default),
            Some(row.default)
        );
    }
    assert_eq!(ROWS[0].policy, Policy::Gateway(Algorithm::default()));
}

#[test]
fn a_configuration_names_what_is_for_it_or_is_told_what_is_allowed() {
    let of = |text| configured(TargetKind::Sublink, Some(text));
    assert_eq!(
        configured(TargetKind::Sublink, None),
        Ok(Policy::Trunk(Spread::Dhfv))
    );
    assert_eq!(of("dh"), Ok(Policy::Trunk(Spread::Dh)));
    let allowed = "allowed: SH, DH, DHFV, DRR, flowlet, rendezvous";
    assert_eq!(of("WSDM"), Err(allowed.to_owned()));
    assert_eq!(of("single"), Err(allowed.to_owned()));
    assert_eq!(of("flowlet 0ms"), Err("a gap is 1 ms at least".to_owned()));
}

#[test]
fn one_idea_has_a_name_of_its_own_among_each_kind_of_target() {
    assert_eq!(
        find(TargetKind::Link, "drr").unwrap().policy,
        Policy::Packet
    );
    let packet = find(TargetKind::Sublink, "packet").unwrap();
    assert_eq!(packet.policy, Policy::Trunk(Spread::Drr));
    assert_eq!(
        find(TargetKind::Server, "cyclic"),
        Some(default(TargetKind::Server))
    );
}

#[test]
fn a_host_keeps_one_link_unless_repeated_syns_may_move_its_flows() {
    let written = |retry| {
        parse(&format!(
            "{{ measure = \"dispatched\", dispatch = \"weighted\", granularity = \"host\", syn_retry = {retry} }}"
        ))
    };
    let granularity = written(false).unwrap().policy.granularity;
    assert_eq!(granularity, Granularity::Host);
    let problem = written(true).unwrap_err();
    assert!(
        problem.contains("granularity `host` allows none"),
        "{problem}"
    );
}

#[test]
fn an_unknown_name_is_told_what_is_allowed() {
    let error = parse("\"fastest\"").unwrap_err();
    assert!(
        error.contains("unknown policy `fastest`, allowed: WSDM, RR, WRR, cyclic, random"),
        "{error}"
    );
    assert!(!error.contains("packet"), "{error}");
}

#[test]
fn a_tuple_is_shown_as_it_was_typed_whatever_else_it_is() {
    let text = r#"{dispatch='weighted',  measure = "st-out" , period="0.1 s" }"#;
    let typed = parse(text).unwrap();
    assert_eq!(typed.policy.to_string(), "WMORBF");
    assert_eq!(
        typed.clone().as_typed(None).name,
        r#"{ measure = "st-out", dispatch = "weighted" }"#
    );
    assert_eq!(typed.as_typed(Some(&format!(" {text}\n"))).name, text);
}

#[test]
fn a_tuple_may_be_given_a_name_that_nobody_else_has() {
    let named = |name: &str| {
        parse(&format!(
            "{{ name = {name:?}, measure = \"active\", dispatch = \"weighted\" }}"
        ))
    };
    let mine = named("mine").unwrap();
    assert_eq!(mine.policy, "LCF".parse().unwrap());
    assert_eq!(mine.as_typed(Some("{ … }")).name, "mine");
    for (name, error) in [
        ("wsdm", TupleError::NameTaken("WSDM")),
        ("DRR", TupleError::NameTaken("packet")),
        ("a b", TupleError::Name),
        ("", TupleError::Name),
    ] {
        let message = named(name).unwrap_err();
        assert!(message.contains(&error.to_string()), "{name}: {message}");
    }
}

#[test]
fn a_tuple_may_say_how_many_connections_race_in_a_second() {
    let with = |rest| {
        parse(&format!(
            "{{ measure = \"active\", dispatch = \"weighted\", {rest} }}"
        ))
    };
    let racing = |rest| with(rest).unwrap().policy.racing;
    assert_eq!(racing("syn_retry = false"), Racing::None);
    assert_eq!(racing("probe = \"5/s\""), Racing::Probes { per_s: 5 });
    assert_eq!(racing("race = \"5/s\""), Racing::Syns { per_s: 5 });
    assert_eq!(racing("race = \"120/min\""), Racing::Syns { per_s: 2 });
    assert_eq!(find(TargetKind::Link, "ofrp").unwrap().name, "FRRTDF");
    for (rest, problem) in [
        (
            "race = \"0.5/s\"",
            "`race` is 0.5/s, allowed: 1/s to 100000/s",
        ),
        ("race = \"100001/s\"", "`race` is 100001/s"),
        (
            "probe = \"0.5/s\"",
            "`probe` is 0.5/s, allowed: 1/s to 100000/s",
        ),
        ("race = \"5/s\", probe = \"5/s\"", "choose one of them"),
        ("race = 5", "write it like \"0.5/s\""),
    ] {
        let message = with(rest).unwrap_err();
        assert!(message.contains(problem), "{rest}: {message}");
    }
    let packets = parse(
        "{ measure = \"dispatched\", dispatch = \"weighted\", granularity = \"packet\", race = \"5/s\" }",
    );
    assert!(
        packets
            .unwrap_err()
            .contains("granularity `packet` keeps none")
    );
}

#[test]
fn a_tuple_may_say_for_how_long_it_is_known_what_flows_have_told() {
    let with = |rest| {
        parse(&format!(
            "{{ measure = \"active\", dispatch = \"weighted\", {rest} }}"
        ))
    };
    let lifetime = |rest| with(rest).unwrap().policy.learning.lifetime();
    assert_eq!(lifetime("syn_retry = true"), None);
    assert_eq!(
        lifetime("passive = \"2min\""),
        Some(Duration::from_secs(120))
    );
    for (rest, problem) in [
        (
            "passive = \"500ms\"",
            "`passive` is 500ms, allowed: 1s to 3600s, in whole seconds",
        ),
        ("passive = \"1.5s\"", "`passive` is 1.5s"),
        ("passive = \"2h\"", "`passive` is 7200s"),
    ] {
        let message = with(rest).unwrap_err();
        assert!(message.contains(problem), "{rest}: {message}");
    }
    let packets = parse(
        "{ measure = \"dispatched\", dispatch = \"weighted\", granularity = \"packet\", passive = \"5s\" }",
    );
    assert!(
        packets
            .unwrap_err()
            .contains("`passive` learns from connections")
    );
}

#[test]
fn loss_counts_where_flows_tell_it_and_links_are_compared_by_what_they_tell() {
    let with = |dispatch, rest| {
        let policy = parse(&format!("{{ {dispatch}, {rest} }}"));
        policy.map(|typed| typed.policy.learning.is_by_loss())
    };
    let weighted = r#"measure = "active", dispatch = "weighted""#;
    assert_eq!(with(weighted, r#"passive = "9s""#), Ok(false));
    assert_eq!(
        with(weighted, r#"passive = "9s", by_loss = true"#),
        Ok(true)
    );
    for (dispatch, rest, error) in [
        (weighted, "by_loss = true", TupleError::ByLossUnused),
        (
            weighted,
            r#"active = "9s", by_loss = true"#,
            TupleError::ByLossUnused,
        ),
    ] {
        let message = with(dispatch, rest).unwrap_err();
        assert!(message.contains(&error.to_string()), "{rest}: {message}");
    }
}

#[test]
fn ingredients_of_adaptive_are_left_out_by_tuples() {
    let whole: Algorithm = "adaptive".parse().unwrap();
    let without = |from: &str, to: &str| {
        let tuple = whole.tuple();
        assert!(tuple.contains(from), "{tuple}");
        parse(&tuple.replace(from, to)).map(|typed| typed.policy)
    };
    let told = r#"passive = "60s""#;
    assert_eq!(
        without(told, r#"passive = "60s", rounds = 0"#),
        Ok(Algorithm { rounds: 0, ..whole })
    );
    assert_eq!(
        without(told, r#"passive = "60s", by_loss = true"#),
        Ok(Algorithm {
            learning: Learning::Passive {
                lifetime: Duration::from_secs(60),
                by_loss: true
            },
            ..whole
        })
    );
    for measure in ["capacity-alike", "capacity-trusting", "capacity-at-once"] {
        let other = without(r#""capacity""#, &format!("{measure:?}")).unwrap();
        assert_eq!(other.measure.name, measure);
        assert_eq!(other.needs_rate(), RateNeed::None);
    }
    let unused = parse(r#"{ dispatch = "hash", rounds = 1 }"#).unwrap_err();
    assert!(unused.contains(&TupleError::RoundsUnused.to_string()));
    let many = without(told, r#"passive = "60s", rounds = 17"#).unwrap_err();
    assert!(many.contains(&TupleError::RoundsRange(17).to_string()));
}

#[test]
fn what_compares_links_by_their_destination_looks_as_far() {
    let distance = |name: &str| name.parse::<Algorithm>().unwrap().distance().word();
    assert_eq!(
        ["RR", "WSDM", "FRRTFNF", "FRRTDF", "PCM", "passive"].map(distance),
        ["0", "1", "H(P)", "H(S)", "H(S)", "H(S)"]
    );
}

#[test]
fn a_tuple_without_a_name_is_an_algorithm_too() {
    let written = r#"{ measure = "active", dispatch = "weighted", granularity = "session", syn_retry = true }"#;
    let algorithm = parse(written).unwrap().policy;
    assert_eq!(algorithm.load(), Load::Active);
    assert_eq!(algorithm.retry, Retry::Elsewhere);
    assert_eq!(row_of(&Policy::Gateway(algorithm)), None);
    assert_eq!(algorithm.to_string(), written);
}

#[test]
fn a_tuple_with_an_unknown_key_or_value_is_refused_with_what_is_allowed() {
    for (text, says) in [
        (
            r#"{ dispatch = "hash", speed = 1 }"#,
            "unknown field `speed`, expected",
        ),
        (
            r#"{ dispatch = "luck" }"#,
            "unknown variant `luck`, expected one of `weighted`, `best`, `random`, `hash`",
        ),
        (
            r#"{ dispatch = "best", measure = "speed" }"#,
            "unknown variant `speed`, expected one of `none`, `dispatched`",
        ),
    ] {
        let message = parse(text).unwrap_err();
        assert!(message.contains(says), "{text}: {message}");
    }
}

#[test]
fn a_tuple_whose_parts_do_not_fit_is_refused() {
    let refused = [
        (
            r#"{ dispatch = "weighted" }"#,
            TupleError::MeasureMissing("weighted"),
        ),
        (
            r#"{ dispatch = "hash", measure = "st-in" }"#,
            TupleError::MeasureUnused("hash"),
        ),
        (
            r#"{ dispatch = "best", measure = "active" }"#,
            TupleError::MeasureDoesNotRank,
        ),
        (
            r#"{ dispatch = "weighted", measure = "active", period = "100ms" }"#,
            TupleError::PeriodUnused,
        ),
        (
            r#"{ dispatch = "best", measure = "st-in", period = "1ms" }"#,
            TupleError::PeriodRange(Duration::from_millis(1)),
        ),
        (
            r#"{ dispatch = "best", measure = "st-in", period = "20.5ms" }"#,
            TupleError::PeriodRange(Duration::from_micros(20_500)),
        ),
        (
            r#"{ dispatch = "best", measure = "st-in", by_rate = true }"#,
            TupleError::ByRateUnused,
        ),
        (
            r#"{ dispatch = "best", measure = "response", period = "100ms" }"#,
            TupleError::PeriodUnused,
        ),
    ];
    for (text, error) in refused {
        let message = parse(text).unwrap_err();
        assert!(message.contains(&error.to_string()), "{text}: {message}");
    }
}
