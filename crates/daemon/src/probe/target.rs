use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;

use anabranch_core::{Family, Kind};
use anabranch_policy::abi::FAMILIES;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

const DNS_PORT: u16 = 53;
const HTTP_PORT: u16 = 80;
/// Of the resolvers, which answer DNS over HTTPS there.
const HTTPS_PORT: u16 = 443;
/// A header of IPv6 has so many bytes more.
const LONGER_HEADER: u64 = 20;
const ALLOWED: &str = r#"write it as "dns:ADDRESS", "dns:ADDRESS:PORT", "icmp:ADDRESS", "tcp:ADDRESS:PORT" or "http:HOST/PATH = CODE"; IPv6 with a port as [ADDRESS]:PORT"#;
const ALLOWED_PAGE: &str = r#"write it as "http:HOST/PATH = CODE" or "http:HOST:PORT/PATH = CODE TEXT": the status code of its answer, and a text that is in it, like "http:cp.cloudflare.com/generate_204 = 204""#;

/// Something on the internet whose answer proves that a link works in both directions.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// A DNS server: any answer to a query counts, whatever it says.
    Dns(SocketAddr),
    /// A host that answers ICMP echo requests.
    Icmp(IpAddr),
    /// A TCP port: accepting and refusing a connection both count.
    Tcp(SocketAddr),
    /// A page, whose answer is known: another one is somebody's who stands in the way.
    Http(Arc<Page>),
}

/// A page of plain HTTP and its answer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Page {
    /// A name, which is resolved over the link, or an address.
    pub host: String,
    /// Of TCP.
    pub port: u16,
    /// From its slash on.
    pub path: String,
    /// The status code of the answer.
    pub code: u16,
    /// What is in the answer's body.
    pub text: Option<String>,
}

/// Resolvers of four operators, so that no single operator's failure looks like a link's, asked in three ways, so that what
/// somebody filters does not look like it either; by family.
pub const DEFAULT_TARGETS: [[Target; 6]; FAMILIES] = [asked(RESOLVERS[0]), asked(RESOLVERS[1])];

/// By family.
pub const RESOLVERS: [[IpAddr; 4]; FAMILIES] = [
    [
        v4([1, 1, 1, 1]),
        v4([8, 8, 8, 8]),
        v4([9, 9, 9, 9]),
        v4([208, 67, 222, 222]),
    ],
    [
        v6([0x2606, 0x4700, 0x4700, 0, 0, 0, 0, 0x1111]),
        v6([0x2001, 0x4860, 0x4860, 0, 0, 0, 0, 0x8888]),
        v6([0x2620, 0xfe, 0, 0, 0, 0, 0, 0xfe]),
        v6([0x2620, 0x119, 0x35, 0, 0, 0, 0, 0x35]),
    ],
];

/// Pages of two operators by which phones and browsers find captive portals.
const PORTAL_PAGES: [&str; 2] = [
    "http:connectivitycheck.gstatic.com/generate_204 = 204",
    "http:detectportal.firefox.com/success.txt = 200 success",
];

const fn asked([a, b, c, d]: [IpAddr; 4]) -> [Target; 6] {
    [
        Target::resolver(a),
        Target::Tcp(SocketAddr::new(b, HTTPS_PORT)),
        Target::Icmp(c),
        Target::resolver(d),
        Target::Tcp(SocketAddr::new(a, HTTPS_PORT)),
        Target::Icmp(b),
    ]
}

const fn v4([a, b, c, d]: [u8; 4]) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(a, b, c, d))
}

const fn v6([a, b, c, d, e, f, g, h]: [u16; 8]) -> IpAddr {
    IpAddr::V6(Ipv6Addr::new(a, b, c, d, e, f, g, h))
}

/// What finds captive portals where nobody wrote a page.
pub fn portal_pages() -> impl Iterator<Item = Target> {
    PORTAL_PAGES.iter().filter_map(|page| page.parse().ok())
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(page) = text.strip_prefix("http:") {
            let page = Page::parse(page).ok_or_else(|| format!("not a page: {ALLOWED_PAGE}"))?;
            return Ok(Self::Http(Arc::new(page)));
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
    fn parse(text: &str) -> Option<Self> {
        let (place, answer) = text.split_once(" = ")?;
        let place = place.trim();
        let place = place.strip_prefix("//").unwrap_or(place);
        let slash = place.find('/')?;
        let (host, path) = place.split_at(slash);
        let (host, port) = host_and_port(host)?;
        let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        let answer = answer.trim();
        let (code, text) = answer.split_once(' ').unwrap_or((answer, ""));
        let code = code.parse().ok().filter(|code| (100..600).contains(code))?;
        let is_right = !host.is_empty() && is_plain(&host) && is_plain(path);
        is_right.then(|| Self {
            host,
            port,
            path: path.to_owned(),
            code,
            text: Some(text.trim().to_owned()).filter(|text| !text.is_empty()),
        })
    }

    /// As it is asked for, and as people write it.
    pub fn authority(&self) -> String {
        let is_v6 = self.host.parse::<Ipv6Addr>().is_ok();
        let host = if is_v6 {
            format!("[{}]", self.host)
        } else {
            self.host.clone()
        };
        match self.port {
            HTTP_PORT => host,
            port => format!("{host}:{port}"),
        }
    }
}

/// `HOST`, `HOST:PORT`, `[ADDRESS]` or `[ADDRESS]:PORT`.
fn host_and_port(text: &str) -> Option<(String, u16)> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']')?;
        host.parse::<Ipv6Addr>().ok()?;
        let port = match rest {
            "" => HTTP_PORT,
            rest => rest.strip_prefix(':')?.parse().ok()?,
        };
        return Some((host.to_owned(), port));
    }
    match text.split_once(':') {
        Some((host, port)) => Some((host.to_owned(), port.parse().ok()?)),
        None => Some((text.to_owned(), HTTP_PORT)),
    }
}

impl Target {
    /// A DNS server at its usual port.
    pub const fn resolver(address: IpAddr) -> Self {
        Self::Dns(SocketAddr::new(address, DNS_PORT))
    }

    /// Whom it is sent to; none if a name has to be resolved first.
    pub fn address(&self) -> Option<IpAddr> {
        match self {
            Self::Dns(at) | Self::Tcp(at) => Some(at.ip()),
            Self::Icmp(at) => Some(*at),
            Self::Http(page) => page.host.parse().ok(),
        }
    }

    /// Whether it can be asked over a family: a name has both.
    pub fn is_of(&self, family: Family) -> bool {
        self.address()
            .is_none_or(|address| Family::from(address) == family)
    }

    /// How it is asked.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Dns(_) => Kind::Dns,
            Self::Icmp(_) => Kind::Icmp,
            Self::Tcp(_) => Kind::Tcp,
            Self::Http(_) => Kind::Http,
        }
    }

    /// Of a question and its answer, with their IP headers.
    pub fn bytes(&self) -> u64 {
        let (with_v4, packets) = match self {
            Self::Dns(_) => (64 + 80, 2),
            Self::Icmp(_) => (28 + 28, 2),
            // SYN, SYN/ACK, ACK with timestamps, RST.
            Self::Tcp(_) => (60 + 60 + 52 + 40, 4),
            // A name, a connection, a question and a short answer.
            Self::Http(_) => (1000, 10),
        };
        match self.address() {
            Some(IpAddr::V6(_)) => with_v4 + packets * LONGER_HEADER,
            _ => with_v4,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dns(at) if at.port() == DNS_PORT => write!(f, "dns:{}", at.ip()),
            Self::Dns(at) => write!(f, "dns:{at}"),
            Self::Icmp(at) => write!(f, "icmp:{at}"),
            Self::Tcp(at) => write!(f, "tcp:{at}"),
            Self::Http(page) => {
                let Page {
                    path, code, text, ..
                } = &**page;
                write!(f, "http:{}{path} = {code}", page.authority())?;
                text.iter().try_for_each(|text| write!(f, " {text}"))
            }
        }
    }
}

impl Serialize for Target {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Target {
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
        ] {
            assert_eq!(text.parse::<Target>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn every_operator_is_asked_and_kinds_come_in_turn() {
        for (targets, resolvers) in DEFAULT_TARGETS.iter().zip(RESOLVERS) {
            let kinds: Vec<Kind> = targets.iter().map(Target::kind).collect();
            let turn = [Kind::Dns, Kind::Tcp, Kind::Icmp];
            assert_eq!(kinds, [turn, turn].concat());
            for resolver in resolvers {
                let is_asked = |target: &Target| target.address() == Some(resolver);
                assert!(targets.iter().any(is_asked), "{resolver}");
            }
        }
        assert_eq!(portal_pages().count(), PORTAL_PAGES.len());
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
            "http:/x = 204",
            "http:a b/ = 204",
            "http:example.org:x/ = 204",
            "http:[::1/ = 204",
        ] {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
    }
}
