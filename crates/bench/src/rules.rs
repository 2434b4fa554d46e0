//! The class of a flow by itself: nanoseconds of `ab_class_of`, which the gateway calls for every new flow, with as many rules as
//! there may be less those with none, under `BPF_PROG_TEST_RUN`. Every rule looks at every field, and every flow is another.

use std::net::Ipv4Addr;

use anabranch_core::rules::{Class, Matches, Moment, Origin, Prefix, RULES_MAX, Rule, compile};
use anyhow::Result;
use aya::{EbpfLoader, include_bytes_aligned};

use crate::choice::{nanoseconds, write};

static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/rules.bpf.o"));

/// Nanoseconds that all rules cost a flow, the median of many test runs.
pub fn measure() -> Result<f64> {
    let all: Vec<Rule> = (0..RULES_MAX as u8).map(rule).collect();
    Ok(of_all(&all)? - of_all(&[])?)
}

fn of_all(rules: &[Rule]) -> Result<f64> {
    let compiled = compile(rules, Moment::new(0, 0), |_| Some(1))?;
    let mut bpf = EbpfLoader::new().load(OBJECT)?;
    write(&mut bpf, "rules", *compiled)?;
    // The default class is 0, so one more than there are rules.
    nanoseconds(&mut bpf, "class_of", rules.len() as u32 + 1)
}

/// Of all networks a 63rd each, so that few flows are of the default class for its sake.
fn rule(number: u8) -> Rule {
    let network = |length| Prefix::new(Ipv4Addr::new(4 * number, 0, 0, 0).into(), length);
    let port = 1 + 1000 * u16::from(number);
    Rule {
        matches: Matches {
            from: vec![Origin::Prefix(network(6))],
            to: vec![network(6), network(7)],
            protocols: vec![6, 17],
            ports: vec![port..=port + 500, port + 600..=port + 900],
            source_ports: vec![port..=port + 900],
            dscp: (0..64).collect(),
            devices: vec!["lan".to_owned()],
            when: None,
        },
        class: Class::default(),
    }
}
