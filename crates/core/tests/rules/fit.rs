//! What the programs have no room for.

use anabranch_core::rules::{Class, DoesNotFit, Matches, Moment, RULES_MAX, Rule, active, compile};

fn refusal(rules: &[Matches]) -> Option<DoesNotFit> {
    compile(&listed(rules), Moment::new(0, 0), |_| Some(7)).err()
}

fn listed(rules: &[Matches]) -> Vec<Rule> {
    let rule = |matches: &Matches| Rule {
        matches: matches.clone(),
        class: Class::default(),
    };
    rules.iter().map(rule).collect()
}

#[test]
fn there_is_a_class_for_the_default_and_each_of_63_rules() {
    assert_eq!(refusal(&vec![Matches::default(); RULES_MAX]), None);
    let refused = refusal(&vec![Matches::default(); RULES_MAX + 1]).unwrap();
    assert_eq!(
        refused.to_string(),
        "64 rules; at most 63 are allowed: let one rule list several values"
    );
}

#[test]
fn values_that_make_too_many_pieces_are_refused_by_their_key() {
    let ports = |count: u16| Matches {
        ports: (0..count).map(|i| 2 * i..=2 * i).collect(),
        ..Matches::default()
    };
    assert_eq!(refusal(&[ports(256)]), None);
    let refused = refusal(&[ports(257)]).unwrap();
    assert_eq!(
        refused.to_string(),
        "the `ports` of all rules together cut its values into 514 pieces, of which 512 are allowed: use wider or adjacent \
         ones, or fewer"
    );
}

#[test]
fn adjacent_values_are_one_piece() {
    let ports = Matches {
        ports: (0..2000).map(|port| port..=port).collect(),
        ..Matches::default()
    };
    assert_eq!(refusal(&[ports]), None);
}

#[test]
fn more_devices_than_the_programs_tell_apart_are_refused() {
    let devices = |count| Matches {
        devices: (0..count).map(|i| format!("eth{i}")).collect(),
        ..Matches::default()
    };
    assert_eq!(refusal(&[devices(16)]), None);
    assert_eq!(refusal(&[devices(17)]), Some(DoesNotFit::Devices(17)));
}

#[test]
fn a_rule_is_active_while_its_schedule_holds() {
    let when = |text: &str| Matches {
        when: Some(text.parse().unwrap()),
        ..Matches::default()
    };
    let rules = listed(&[when("mon-fri"), Matches::default(), when("22:00-06:00")]);
    assert_eq!(active(&rules, "mon 12:00".parse().unwrap()), 0b0110);
    assert_eq!(active(&rules, "sun 23:00".parse().unwrap()), 0b1100);
}
