//! The keys of a service that say how it chooses among its servers.

use std::time::Duration;

use anabranch_config::Span;
use anabranch_core::catalogue::{self, TargetKind};
use anabranch_core::{Policy, ServerPolicy};
use anabranch_dataplane::services::Forwarding;
use anabranch_policy::Dispatch;
use anabranch_policy::abi::{BOUND_ONE, Secret, Ties};

use super::endpoints::in_file;
use super::{Refused, ServiceTable};
use crate::services::unknown::insert_limit;

const SECRET_DIGITS: usize = 32;
/// Response times and bytes of servers say more about the next requests in short windows (Zhang 2002 tables 5.4 to 5.7).
const WINDOW: Duration = Duration::from_millis(100);
const WINDOW_MIN: Duration = Duration::from_millis(10);
const WINDOW_MAX: Duration = Duration::from_secs(60);
const SLOW_START_MIN: Duration = Duration::from_secs(1);
const SLOW_START_MAX: Duration = Duration::from_secs(3600);
/// Below, most connections would leave the server of their hash.
const LOAD_BOUND_MIN: f64 = 1.05;
const LOAD_BOUND_MAX: f64 = 10.0;
const TIES: [(&str, Ties); 3] = [
    ("random", Ties::Random),
    ("first", Ties::First),
    ("connections", Ties::ByLoad),
];

/// As [`Service`](super::Service) has them.
pub(super) struct Choosing {
    pub policy: ServerPolicy,
    pub ties: Ties,
    pub bound: u32,
    pub window: Option<Duration>,
    pub slow_start: Option<Duration>,
    pub secret: Option<Secret>,
    pub insert_limit: Option<u32>,
}

pub(super) fn choosing(table: &ServiceTable, forwarding: Forwarding) -> Result<Choosing, Refused> {
    let at = |key| move |problem| (key, problem);
    let policy = policy(table.policy.as_deref()).map_err(at("policy"))?;
    let ties = ties(policy, table.ties.as_deref()).map_err(at("ties"))?;
    let window = window(policy, table.window).map_err(at("window"))?;
    let slow_start = table.slow_start.map(|lasts| slow_start(policy, lasts));
    let slow_start = slow_start.transpose().map_err(at("slow_start"))?;
    sees_answers(policy, forwarding).map_err(at("policy"))?;
    let secret = table.secret.as_deref().map(secret).transpose();
    let secret = secret.map_err(at("secret"))?;
    let bound = bound(policy, table.load_bound).map_err(at("load_bound"))?;
    let uses_hash = policy.dispatch == Dispatch::Table || table.unknown.goes_by_rows();
    if secret.is_some() && !uses_hash {
        let problem = format!(
            "the policy {} uses no hash; write policy = \"Maglev\" or \"source\", or leave it out",
            Policy::Service(policy)
        );
        return Err(("secret", problem));
    }
    let insert_limit = insert_limit(table.unknown, table.insert_limit);
    Ok(Choosing {
        policy,
        ties,
        bound,
        window,
        slow_start,
        secret,
        insert_limit: insert_limit.map_err(at("insert_limit"))?,
    })
}

fn policy(written: Option<&str>) -> Result<ServerPolicy, String> {
    match catalogue::configured(TargetKind::Server, written)? {
        Policy::Service(policy) => Ok(policy),
        _ => unreachable!("a policy of servers is a service's"),
    }
}

/// Answers pass by only where servers give them to this box.
fn sees_answers(policy: ServerPolicy, forwarding: Forwarding) -> Result<(), String> {
    match forwarding == Forwarding::Nat || !policy.needs_answers() {
        true => Ok(()),
        false => Err(format!(
            "{} shows nothing of the answers by which {} goes",
            in_file(forwarding),
            Policy::Service(policy)
        )),
    }
}

fn ties(policy: ServerPolicy, word: Option<&str>) -> Result<Ties, String> {
    let Some(word) = word else {
        return Ok(policy.ties);
    };
    if !policy.compares() {
        let policy = Policy::Service(policy);
        return Err(format!(
            "the policy {policy} compares no servers; leave it out"
        ));
    }
    let known = TIES.iter().find(|(known, _)| *known == word);
    let allowed = || format!("allowed: {}", TIES.map(|(word, _)| word).join(", "));
    known.map(|(_, ties)| *ties).ok_or_else(allowed)
}

fn bound(policy: ServerPolicy, written: Option<f64>) -> Result<u32, String> {
    match written {
        None => Ok(policy.bound),
        Some(_) if policy.bound == 0 => Err(format!(
            "the policy {} bounds no load; write policy = \"Maglev-bounded\", or leave it out",
            Policy::Service(policy)
        )),
        Some(bound) if (LOAD_BOUND_MIN..=LOAD_BOUND_MAX).contains(&bound) => {
            Ok((bound * f64::from(BOUND_ONE)).round() as u32)
        }
        Some(_) => Err(format!("{LOAD_BOUND_MIN} to {LOAD_BOUND_MAX} are allowed")),
    }
}

fn window(policy: ServerPolicy, window: Option<Span>) -> Result<Option<Duration>, String> {
    let policy_name = Policy::Service(policy);
    match (policy.is_measured(), window) {
        (false, None) => Ok(None),
        (false, Some(_)) => Err(format!(
            "the policy {policy_name} goes by no window; leave it out"
        )),
        (true, None) => Ok(Some(WINDOW)),
        (true, Some(Span(window))) if (WINDOW_MIN..=WINDOW_MAX).contains(&window) => {
            Ok(Some(window))
        }
        (true, Some(_)) => Err(format!(
            "a time from {WINDOW_MIN:?} to {WINDOW_MAX:?} is allowed"
        )),
    }
}

fn slow_start(policy: ServerPolicy, Span(lasts): Span) -> Result<Duration, String> {
    if !policy.by_weight {
        let policy = Policy::Service(policy);
        return Err(format!(
            "the policy {policy} goes by no weights, which slow start changes; leave it out"
        ));
    }
    match (SLOW_START_MIN..=SLOW_START_MAX).contains(&lasts) {
        true => Ok(lasts),
        false => Err(format!(
            "a time from {SLOW_START_MIN:?} to {SLOW_START_MAX:?} is allowed"
        )),
    }
}

/// 128 bits in hexadecimal: short words would be guessed.
fn secret(text: &str) -> Result<Secret, String> {
    let number = (text.len() == SECRET_DIGITS).then(|| u128::from_str_radix(text, 16).ok());
    match number.flatten() {
        Some(number) if number != 0 => Ok(Secret {
            word: [(number >> 64) as u64, number as u64],
        }),
        _ => Err(format!(
            "write {SECRET_DIGITS} hexadecimal digits, as `openssl rand -hex 16` prints them"
        )),
    }
}
