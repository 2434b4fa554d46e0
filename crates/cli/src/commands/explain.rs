//! Which link a flow would take, and why: the loaded program's own answer.

use anabranch_api::{Explained, Explanation, Proto};
use anabranch_api::{Request, Response};
use anabranch_console::output::{print, print_json};
use anabranch_console::table::{self, Columns, optional};
use serde_json::json;

use crate::args::{ExplainArgs, ExplainProto};
use crate::control::{Daemon, Names, unexpected};
use crate::words;

pub fn run(instance: &str, args: &ExplainArgs) -> anyhow::Result<()> {
    let proto = match args.proto {
        ExplainProto::Tcp => Proto::Tcp,
        ExplainProto::Udp => Proto::Udp,
    };
    let mut daemon = Daemon::of(instance)?;
    let names = daemon.names()?;
    let request = Request::Explain {
        from: args.from,
        to: args.to,
        proto,
    };
    let explained = match daemon.ask(&request)? {
        Response::Explanation(explained) => *explained,
        other => return unexpected(&other),
    };
    if args.json {
        return print_json(&as_json(&explained, &names));
    }
    let explanation = &explained.explanation;
    let class = match names.has_classes() {
        true => rules(&explained),
        false => String::new(),
    };
    print(format!(
        "{}\n{class}{}{}",
        sentence(args, explanation, &names),
        each_packet(&explained),
        weighed(explanation, &names)
    ))
}

/// Nothing where the link is that of a flow.
fn each_packet(explained: &Explained) -> &'static str {
    match &explained.granularity[..] {
        words::PACKET => "   each packet is sent by itself: the next may take another link\n",
        _ => "",
    }
}

/// The class that takes the flow, and the rules that do not.
fn rules(explained: &Explained) -> String {
    let passed = explained.passed.iter();
    let passed = passed.map(|rule| format!("   not {}: {}\n", rule.rule, rule.because.join("; ")));
    format!(
        "   class {}\n{}",
        explained.class,
        passed.collect::<String>()
    )
}

/// The answer with names for numbers.
fn as_json(explained: &Explained, names: &Names) -> serde_json::Value {
    let explanation = &explained.explanation;
    let weighed = explanation.weighed.iter().map(|each| {
        json!({ "link": names.of(each.link), "usable": each.usable, "weight": each.weight, "load": each.load,
                "response_ms": each.response_us.map(|us| f64::from(us) / 1e3) })
    });
    json!({
        "link": explanation.link.map(|link| names.of(link)),
        "class": explained.class,
        "granularity": explained.granularity,
        "passed": explained.passed,
        "why": explanation.why,
        "bound": explanation.bound,
        "hash": explanation.hash,
        "weighed": weighed.collect::<Vec<_>>(),
    })
}

fn sentence(args: &ExplainArgs, explanation: &Explanation, names: &Names) -> String {
    let ExplainArgs { from, to, .. } = args;
    let why = &explanation.why;
    match explanation.link {
        Some(link) if explanation.bound => {
            format!(
                "{from} -> {to} is a flow of {}: {why}",
                table::good(names.of(link))
            )
        }
        Some(link) => format!(
            "{from} -> {to} would take {}: {why}",
            table::good(names.of(link))
        ),
        None => format!("{from} -> {to} would take no link: {why}"),
    }
}

fn weighed(explanation: &Explanation, names: &Names) -> String {
    if explanation.weighed.is_empty() {
        return String::new();
    }
    let mut columns = Columns::new(&["link", "usable", ">weight", ">load", ">response"]);
    for each in &explanation.weighed {
        let usable = if each.usable { "yes" } else { "no" };
        columns.row([
            names.of(each.link),
            usable.to_owned(),
            each.weight.to_string(),
            each.load.to_string(),
            optional(each.response_us.map(|us| table::time(f64::from(us) / 1e6))),
        ]);
    }
    format!("\n{columns}")
}

#[cfg(test)]
mod tests {
    use anabranch_api::PassedRule;

    use super::*;

    #[test]
    fn the_class_is_named_and_each_rule_that_was_passed() {
        let passed = |rule: &str, because: &[&str]| PassedRule {
            rule: rule.into(),
            because: because.iter().map(|word| (*word).into()).collect(),
        };
        let explained = Explained {
            explanation: Explanation {
                link: Some(0),
                class: 3,
                why: "the only link".into(),
                bound: false,
                hash: 0,
                weighed: Vec::new(),
            },
            class: "video".into(),
            granularity: "packet".into(),
            passed: vec![
                passed("bulk", &["dscp: 0, not 8", "protocol: tcp, not udp"]),
                passed("night", &["when: mon 09:00, not 22:00-06:00"]),
            ],
        };
        let each_packet = each_packet(&explained);
        assert!(each_packet.contains("another link"), "{each_packet}");
        assert_eq!(
            rules(&explained),
            "   class video\n   not bulk: dscp: 0, not 8; protocol: tcp, not udp\n   not night: when: mon 09:00, not 22:00-06:00\n"
        );
    }
}
