//! Reads targets of probes.

use anabranch_config::Source;
use anabranch_core::checks::ProbeTarget;

use super::file::OneOrMore;
use crate::error::BadInput;

const TARGETS_MAX: usize = 16;

pub(super) fn targets(
    source: &Source<'_>,
    key: &[&str],
    written: Option<OneOrMore>,
) -> Result<Option<Vec<ProbeTarget>>, BadInput> {
    let Some(OneOrMore(written)) = written else {
        return Ok(None);
    };
    if !(1..=TARGETS_MAX).contains(&written.len()) {
        return Err(source.bad(key, format!("1 to {TARGETS_MAX} probe targets are allowed")));
    }
    let target = |(index, text): (usize, &String)| {
        let index = index.to_string();
        let within = [key, &[&index]].concat();
        let place = source.span(&within).map_or(key, |_| &within);
        let target = text.parse().and_then(is_for_probes);
        target.map_err(|problem| source.bad(place, problem))
    };
    written
        .iter()
        .enumerate()
        .map(target)
        .collect::<Result<_, _>>()
        .map(Some)
}

/// Refuses pages over TLS as targets of a link's probes: a host that has just started may have a wrong time, and cannot check
/// certificates.
fn is_for_probes(target: ProbeTarget) -> Result<ProbeTarget, String> {
    match &target {
        ProbeTarget::Http(page) if page.tls.is_some() => Err(
            "a page over TLS is for a [[check]]; probes ask pages like \"http:HOST/PATH = CODE\""
                .to_owned(),
        ),
        _ => Ok(target),
    }
}

/// Reads the fixed node, which must be an address.
pub(super) fn node(
    source: &Source<'_>,
    written: Option<ProbeTarget>,
) -> Result<Option<ProbeTarget>, BadInput> {
    match written {
        Some(ProbeTarget::Http(_)) => Err(source.bad(
            &["probe", "node"],
            "a page is no node; write \"icmp:ADDRESS\", \"dns:ADDRESS\" or \"tcp:ADDRESS:PORT\"",
        )),
        node => Ok(node),
    }
}
