//! A program that brings policies of its own: one catalogue a process, and so one test.

use anabranch_core::catalogue::{self, ExtendError, Row};
use anabranch_core::measure::Measure;
use anabranch_core::{Algorithm, Granularity, LinkView, OwnPolicy, Time, Typed};
use serde::Deserialize;

#[derive(Debug)]
struct Alike;

impl OwnPolicy for Alike {
    fn weigh(&mut self, _: Time, links: &[LinkView<'_>]) -> Vec<u64> {
        vec![1; links.len()]
    }
}

static ALIKE: Measure = Measure::own("alike", || Box::new(Alike));

#[derive(Debug, Deserialize)]
struct File {
    policy: Typed<Algorithm>,
}

fn read(text: &str) -> Result<Typed<Algorithm>, String> {
    let file = toml::from_str::<File>(&format!("policy = {text}"));
    file.map(|file| file.policy)
        .map_err(|error| error.to_string())
}

#[test]
fn files_know_a_program_s_own_policies_by_name_and_as_measures_and_nobody_else_may_have_their_names()
 {
    let unknown = read("\"alike\"").unwrap_err();
    assert!(unknown.contains("unknown policy `alike`"), "{unknown}");
    let own = Algorithm::own(&ALIKE);
    let held = Row {
        name: "alike-held",
        ..Row::own(
            Algorithm {
                granularity: Granularity::Session,
                ..own
            },
            "the same of sessions",
        )
    };
    let taken = Row { name: "Rr", ..held };
    let refused = catalogue::extend(vec![held, taken]).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "own policy `Rr`: the catalogue has a policy of the name RR; choose another"
    );
    let rows = vec![Row::own(own, "all links"), held];
    catalogue::extend(rows.clone()).unwrap();
    assert_eq!(catalogue::extend(Vec::new()), Err(ExtendError::Twice));

    assert_eq!(read("\"Alike\"").unwrap(), own.into());
    assert_eq!(read("\"alike-held\"").unwrap().policy, held_of(&rows));
    assert_eq!(own.written(), "\"alike\"");
    let tuple = own.tuple();
    assert_eq!(read(&tuple).unwrap().policy, own, "{tuple}");
    let slower = r#"{ measure = "alike", dispatch = "best", period = "2000ms" }"#;
    assert_eq!(read(slower).unwrap().name, slower);
    let taken = read(r#"{ name = "alike", dispatch = "random" }"#).unwrap_err();
    assert!(
        taken.contains("`name` is that of a policy of the catalogue, alike: choose another"),
        "{taken}"
    );
    let allowed = read("\"fastest\"").unwrap_err();
    assert!(allowed.contains(", alike, alike-held"), "{allowed}");
}

fn held_of(rows: &[Row]) -> Algorithm {
    match rows[1].policy {
        anabranch_core::Policy::Gateway(algorithm) => algorithm,
        other => panic!("{other}"),
    }
}
