//! `service.NAME.resolver`.

use std::net::{IpAddr, SocketAddr};

use super::Refused;
use crate::config::OneOrMore;
use crate::probe::DNS_PORT;
use crate::services::members::Written;

/// As many as C libraries ask (resolv.conf(5)).
const RESOLVERS_MAX: usize = 3;

/// Who resolves the names of servers; empty: the resolvers of this host.
pub(super) fn resolvers(
    table: Option<&OneOrMore>,
    servers: &[Written],
) -> Result<Vec<SocketAddr>, Refused> {
    let at = |problem: String| ("resolver", problem);
    let Some(OneOrMore(words)) = table else {
        return Ok(Vec::new());
    };
    if servers.iter().all(|one| one.place.endpoint().is_some()) {
        return Err(at("every server has an address; leave it out".to_owned()));
    }
    if !(1..=RESOLVERS_MAX).contains(&words.len()) {
        return Err(at(format!("1 to {RESOLVERS_MAX} are asked")));
    }
    let read = |word: &String| {
        let alone = word.parse::<IpAddr>();
        let alone = alone.map(|address| SocketAddr::new(address, DNS_PORT));
        alone.or_else(|_| word.parse())
    };
    let resolvers: Result<_, _> = words.iter().map(read).collect();
    resolvers.map_err(|_| at(r#"write its address, like "10.0.0.2" or "10.0.0.2:5353""#.to_owned()))
}
