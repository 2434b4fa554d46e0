//! Targets of probes and checks, as people write them.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use anabranch_policy::Family;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::targets::Kind;

const DNS_PORT: u16 = 53;
const HTTP_PORT: u16 = 80;
const HTTPS_PORT: u16 = 443;
/// An IPv6 header is this many bytes longer.
const LONGER_HEADER: u64 = 20;
const ALLOWED: &str = r#"write it as "dns:ADDRESS", "dns:ADDRESS:PORT", "icmp:ADDRESS", "tcp:ADDRESS:PORT" or "http:HOST/PATH = CODE"; IPv6 with a port as [ADDRESS]:PORT"#;
const ALLOWED_PAGE: &str = r#"write it as "http:HOST/PATH = CODE" or "http:HOST:PORT/PATH = CODE TEXT": the status code of its answer, and a text that is in it, like "http:cp.cloudflare.com/generate_204 = 204""#;

/// A target, and how it is probed. Which answers count differs: for a link's probes every answer does, except a wrong page, because
/// it came over the link; for a [`Check`](super::Check) only the expected one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProbeTarget {
    /// A DNS server: any answer to a query counts, or only one without an error.
    Dns(SocketAddr),
    /// A host that answers ICMP echo requests.
    Icmp(IpAddr),
    /// A TCP port: accepting and refusing a connection count, or only accepting.
    Tcp(SocketAddr),
    /// A page with a known answer. Another answer comes from a captive portal, or from a server that does not work.
    Http(Arc<Page>),
}

/// A page and its expected answer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Page {
    /// The server: a name, which is resolved over the path of the request, or an address.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Path, beginning with its slash.
    pub path: String,
    /// The name in the request, if it is not `host`.
    pub name: Option<String>,
    /// The required certificate, for a page over TLS.
    pub tls: Option<Certificate>,
    /// The expected answer.
    pub expect: Expect,
}

/// The certificate that a page over TLS has to show.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Certificate {
    /// For the page's host, by an authority that this host trusts.
    Trusted,
    /// For the page's host, by an authority in this file (PEM).
    By(PathBuf),
    /// Any certificate: the identity of the server is not checked.
    Any,
}

/// The expected answer of a page.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Expect {
    /// Any of these status codes.
    pub status: Vec<u16>,
    /// A text in its body.
    pub body: Option<String>,
}

impl fmt::Display for Expect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let codes: Vec<String> = self.status.iter().map(u16::to_string).collect();
        f.write_str(&codes.join(","))?;
        self.body.iter().try_for_each(|text| write!(f, " {text}"))
    }
}

impl FromStr for ProbeTarget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        for (scheme, tls) in [("http:", None), ("https:", Some(Certificate::Trusted))] {
            if let Some(page) = text.strip_prefix(scheme) {
                let page = Page::parse(page, tls);
                let page = page.ok_or_else(|| format!("not a page: {ALLOWED_PAGE}"))?;
                return Ok(Self::Http(Arc::new(page)));
            }
        }
        let parse = || -> Option<Self> {
            let (kind, place) = text.split_once(':')?;
            match kind {
                "dns" => Some(Self::Dns(
                    place
                        .parse()
                        .ok()
                        .or_else(|| Some((address(place)?, DNS_PORT).into()))?,
                )),
                "icmp" => Some(Self::Icmp(address(place)?)),
                "tcp" => Some(Self::Tcp(place.parse().ok()?)),
                _ => None,
            }
        };
        parse().ok_or_else(|| format!("not a probe target: {ALLOWED}"))
    }
}

fn address(text: &str) -> Option<IpAddr> {
    text.parse().ok()
}

impl Page {
    fn parse(text: &str, tls: Option<Certificate>) -> Option<Self> {
        let (place, answer) = text.split_once(" = ")?;
        let place = place.trim();
        let place = place.strip_prefix("//").unwrap_or(place);
        let slash = place.find('/')?;
        let (host, path) = place.split_at(slash);
        let (host, port) = host_and_port(host)?;
        let port = port.unwrap_or(usual_port(tls.is_some()));
        let answer = answer.trim();
        let (codes, text) = answer.split_once(' ').unwrap_or((answer, ""));
        let status = codes
            .split(',')
            .map(|code| code.parse().ok().filter(is_status))
            .collect::<Option<_>>()?;
        let is_right = !host.is_empty() && is_plain(&host) && is_plain(path);
        is_right.then(|| Self {
            host,
            port,
            path: path.to_owned(),
            name: None,
            tls,
            expect: Expect {
                status,
                body: Some(text.trim().to_owned()).filter(|text| !text.is_empty()),
            },
        })
    }

    /// Host and port in the request, and as people write them.
    pub fn authority(&self) -> String {
        self.authority_of(self.asked_as())
    }

    /// The name or address in the request.
    pub fn asked_as(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.host)
    }

    fn authority_of(&self, host: &str) -> String {
        let is_v6 = host.parse::<Ipv6Addr>().is_ok();
        let host = if is_v6 {
            format!("[{host}]")
        } else {
            host.to_owned()
        };
        match self.port {
            port if port == usual_port(self.tls.is_some()) => host,
            port => format!("{host}:{port}"),
        }
    }

    /// Without the expected answer.
    pub fn place(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}:{}{}", self.authority_of(&self.host), self.path)
    }
}

const fn usual_port(is_tls: bool) -> u16 {
    if is_tls { HTTPS_PORT } else { HTTP_PORT }
}

/// Whether it is a status code of HTTP.
pub fn is_status(code: &u16) -> bool {
    (100..600).contains(code)
}

/// Whether nothing in it ends a line or a word of a request.
pub fn is_plain(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// `HOST`, `HOST:PORT`, `[ADDRESS]` or `[ADDRESS]:PORT`.
fn host_and_port(text: &str) -> Option<(String, Option<u16>)> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']')?;
        host.parse::<Ipv6Addr>().ok()?;
        let port = match rest {
            "" => None,
            rest => Some(rest.strip_prefix(':')?.parse().ok()?),
        };
        return Some((host.to_owned(), port));
    }
    match text.split_once(':') {
        Some((host, port)) => Some((host.to_owned(), Some(port.parse().ok()?))),
        None => Some((text.to_owned(), None)),
    }
}

impl ProbeTarget {
    /// A DNS server at its usual port.
    pub const fn resolver(address: IpAddr) -> Self {
        Self::Dns(SocketAddr::new(address, DNS_PORT))
    }

    /// The address that it is sent to; none if a name has to be resolved first.
    pub fn address(&self) -> Option<IpAddr> {
        match self {
            Self::Dns(at) | Self::Tcp(at) => Some(at.ip()),
            Self::Icmp(at) => Some(*at),
            Self::Http(page) => page.host.parse().ok(),
        }
    }

    /// The same of another host and port.
    pub fn at(&self, at: SocketAddr) -> Self {
        match self {
            Self::Dns(_) => Self::Dns(at),
            Self::Icmp(_) => Self::Icmp(at.ip()),
            Self::Tcp(_) => Self::Tcp(at),
            Self::Http(page) => Self::Http(Arc::new(Page {
                host: at.ip().to_string(),
                port: at.port(),
                ..Page::clone(page)
            })),
        }
    }

    /// Whether it can be probed over a family; a name can over both.
    pub fn is_of(&self, family: Family) -> bool {
        self.address()
            .is_none_or(|address| Family::from(address) == family)
    }

    /// The kind of its probes.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Dns(_) => Kind::Dns,
            Self::Icmp(_) => Kind::Icmp,
            Self::Tcp(_) => Kind::Tcp,
            Self::Http(_) => Kind::Http,
        }
    }

    /// Bytes of a request and its answer, with their IP headers.
    pub fn bytes(&self) -> u64 {
        let (with_v4, packets) = match self {
            Self::Dns(_) => (64 + 80, 2),
            Self::Icmp(_) => (28 + 28, 2),
            // SYN, SYN/ACK, ACK with timestamps, RST.
            Self::Tcp(_) => (60 + 60 + 52 + 40, 4),
            // Name resolution, a connection, a request and a short answer, with a chain of certificates.
            Self::Http(page) if page.tls.is_some() => (7000, 16),
            Self::Http(_) => (1000, 10),
        };
        match self.address() {
            Some(IpAddr::V6(_)) => with_v4 + packets * LONGER_HEADER,
            _ => with_v4,
        }
    }
}

impl fmt::Display for ProbeTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dns(at) if at.port() == DNS_PORT => write!(f, "dns:{}", at.ip()),
            Self::Dns(at) => write!(f, "dns:{at}"),
            Self::Icmp(at) => write!(f, "icmp:{at}"),
            Self::Tcp(at) => write!(f, "tcp:{at}"),
            Self::Http(page) => {
                write!(f, "{} = {}", page.place(), page.expect)?;
                let mut name = page.name.iter();
                name.try_for_each(|name| write!(f, " as {name}"))
            }
        }
    }
}

impl Serialize for ProbeTarget {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ProbeTarget {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_read_and_written_alike() {
        for text in [
            "dns:1.1.1.1",
            "dns:1.1.1.1:5353",
            "icmp:192.0.2.1",
            "tcp:192.0.2.1:443",
            "dns:2001:db8::53",
            "dns:[2001:db8::53]:5353",
            "icmp:2001:db8::1",
            "tcp:[2001:db8::1]:443",
            "http:example.org/generate_204 = 204",
            "http:192.0.2.1:8080/a?b=c = 200 all is well",
            "http:[2001:db8::1]/ = 301",
            "http:example.org:443/ = 200,204 ok",
            "https:example.org/ = 200",
            "https:[2001:db8::1]:8443/health = 200,204 ok",
        ] {
            assert_eq!(text.parse::<ProbeTarget>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_target_is_refused() {
        for text in [
            "",
            "dns:",
            "dns:example.org",
            "http:1.1.1.1",
            "tcp:1.1.1.1",
            "icmp:1.1.1.1:7",
            "icmp:[2001:db8::1]",
            "tcp:2001:db8::1",
            "1.1.1.1",
            "http:example.org = 204",
            "http:example.org/",
            "http:example.org/ = ok",
            "http:example.org/ = 42",
            "http:example.org/ = 200,",
            "https:example.org/",
            "http:/x = 204",
            "http:a b/ = 204",
            "http:example.org:x/ = 204",
            "http:[::1/ = 204",
        ] {
            assert!(text.parse::<ProbeTarget>().is_err(), "{text}");
        }
    }
}
