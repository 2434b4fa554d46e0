//! IPv4.

use crate::{frame::Ip, site::IPV4 as SITE};

#[path = "../both/mod.rs"]
mod both;
mod header;

/// With as many headers as may stand before that of the transport.
fn with_more_headers(ip: Ip) -> Vec<Ip> {
    let options = [&[][..], &[148, 4, 0, 0], &[1; 40]];
    options.map(|options| ip.clone().ip_options(options)).into()
}
