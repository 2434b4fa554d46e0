//! Findings about routing rules and default routes that others set up.

use anabranch_api::{Finding, Severity};

use super::{
    GOTO_RULE, MANY_ROUTES, MARK_RULE, MULTIPATH_DEFAULT, OUR_MARKS, ROUTING_RULE, Ruleset,
    finding, is_handed_over, is_ours,
};
use crate::config::Config;
use crate::host::ids::COPY_BASE;
use crate::observe::rules::{ForeignRule, OfLan};
use crate::observe::{Prefix, ROUTES_MAX, Snapshot, TABLE_MAIN, lan_routes, rules_of_lan};

pub fn findings(config: &Config, host: &Snapshot, netfilter: &Ruleset) -> Vec<Finding> {
    let marks = netfilter.marks_before_routing();
    let lan = lan_routes(config, host);
    let rules = rules_of_lan(config, host, &lan);
    let of_rules =
        rules.filter_map(|(rule, of_lan)| of_rule(config, rule, of_lan, marks.as_deref()));
    let jumps = host.rules.iter().filter_map(jump);
    of_rules
        .chain(jumps)
        .chain(multipath(host))
        .chain(many_routes(host))
        .collect()
}

/// A rule of others after ours takes effect by a copy before ours. A copy of a rule that jumps to another rule would jump past
/// ours.
fn jump(rule: &ForeignRule) -> Option<Finding> {
    let target = rule.leads_to()?;
    (COPY_BASE..target).contains(&rule.priority()).then(|| {
        finding(
            Severity::Trouble,
            GOTO_RULE,
            format!("ip rule {rule}"),
            format!("it stands behind the gateway's rules, and the rules that it skips, up to {target}, are heard all the same"),
            format!("give it, and the rules that it skips, a priority below {COPY_BASE}; or write rules that skip none, with lookup"),
        )
    })
}

/// `marks` is the chain that marks packets before they are routed, if there is one.
fn of_rule(
    config: &Config,
    rule: &ForeignRule,
    of_lan: OfLan,
    marks: Option<&str>,
) -> Option<Finding> {
    let subject = format!("ip rule {rule}");
    if let Some((mark, _)) = rule.mark().filter(|(mark, _)| is_ours(*mark)) {
        return Some(finding(
            Severity::Refused,
            OUR_MARKS,
            subject,
            format!(
                "it takes packets with the mark {mark:#x}, which is one of ours: another balancer is at work"
            ),
            "stop it, or give its marks another first byte than 0xa8 to 0xaf".to_owned(),
        ));
    }
    match (of_lan, marks) {
        (OfLan::IfMarked, Some(chain)) if !is_handed_over(config, &[]) => Some(finding(
            Severity::Trouble,
            MARK_RULE,
            subject,
            format!("{chain} sets its mark, and balanced packets are routed before that: the rule is never met"),
            "say by a [[rule]] of ours what is meant: its links, or links = [] and none = \"kernel\" for this rule to decide"
                .to_owned(),
        )),
        (OfLan::Maybe, _) if rule.table() != TABLE_MAIN && rule.leads_to().is_none() => Some(finding(
            Severity::Note,
            ROUTING_RULE,
            subject,
            "what it says of packets from the LAN wins over balancing".to_owned(),
            "nothing to do if that is meant".to_owned(),
        )),
        _ => None,
    }
}

fn many_routes(host: &Snapshot) -> Option<Finding> {
    host.beyond_room.then(|| {
        finding(
            Severity::Trouble,
            MANY_ROUTES,
            "main table",
            format!(
                "it leads to {} prefixes, and the data path has room for {ROUTES_MAX}: the kernel carries what is for none of the host's \
                 own networks, by its routes and its NAT, and nothing is balanced",
                host.prefixes
            ),
            "have the routing daemon export fewer routes to the kernel, or default routes alone".to_owned(),
        )
    })
}

fn multipath(host: &Snapshot) -> Option<Finding> {
    let mut routes = host.routes.iter();
    let default = routes.find(|route| {
        let is_default = route.prefix == Prefix::everything(route.prefix.family());
        is_default && route.table == TABLE_MAIN && route.hops.len() > 1
    })?;
    Some(finding(
        Severity::Note,
        MULTIPATH_DEFAULT,
        format!("default route of {}", default.prefix.family()),
        "it has several next hops: balanced flows do not follow it, and what the kernel itself forwards is spread over them".to_owned(),
        "give each link a default route of its own, with different metrics".to_owned(),
    ))
}
