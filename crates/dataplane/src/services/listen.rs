//! The virtual endpoints of services.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use anabranch_policy::abi::{BePort, Virtual};
use serde::Deserialize;

/// The protocols that a service may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// Connections.
    Tcp,
    /// The datagrams between a client's endpoint and a virtual one are a connection.
    Udp,
}

impl Protocol {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Tcp, Self::Udp];

    const fn word(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }

    /// Its number in IP headers.
    pub const fn number(self) -> u8 {
        match self {
            Self::Tcp => libc::IPPROTO_TCP as u8,
            Self::Udp => libc::IPPROTO_UDP as u8,
        }
    }
}

/// A virtual endpoint: `203.0.113.10:80` of TCP, `udp:203.0.113.10:53` of UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(try_from = "String")]
pub struct Listen {
    /// The address and port that clients call.
    pub endpoint: SocketAddr,
    /// By which they do.
    pub protocol: Protocol,
}

impl Listen {
    /// At an endpoint of TCP.
    pub const fn tcp(endpoint: SocketAddr) -> Self {
        let protocol = Protocol::Tcp;
        Self { endpoint, protocol }
    }

    pub(super) fn key(&self) -> Virtual {
        Virtual {
            address: self.endpoint.ip().into(),
            port: BePort::new(self.endpoint.port()),
            proto: self.protocol.number(),
            ..Virtual::default()
        }
    }
}

impl FromStr for Listen {
    type Err = std::net::AddrParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let named = Protocol::ALL.into_iter().find_map(|protocol| {
            let rest = text.strip_prefix(protocol.word())?.strip_prefix(':')?;
            Some((protocol, rest))
        });
        let (protocol, endpoint) = named.unwrap_or((Protocol::Tcp, text));
        let endpoint = endpoint.parse()?;
        Ok(Self { endpoint, protocol })
    }
}

impl TryFrom<String> for Listen {
    type Error = std::net::AddrParseError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.protocol {
            Protocol::Tcp => write!(f, "{}", self.endpoint),
            other => write!(f, "{}:{}", other.word(), self.endpoint),
        }
    }
}
