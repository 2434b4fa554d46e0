//! Requests and responses, and the lines they are sent as.

use std::net::SocketAddr;

use anabranch_core::{Explanation, FlowRow, PrefixRow, Proto};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{ServiceStatus, Status};

/// Of the control protocol. It counts up when a message of an older command or daemon would be misread.
pub const VERSION: u32 = 4;

/// What the daemon may be asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// How the instance fares.
    Status,
    /// At most `limit` rows.
    Flows {
        /// Rows that are wanted.
        limit: usize,
    },
    /// At most `limit` rows.
    Prefixes {
        /// Rows that are wanted.
        limit: usize,
    },
    /// Which link a packet would take, and why: asks the loaded program.
    Explain {
        /// The LAN host's end.
        from: SocketAddr,
        /// The remote end.
        to: SocketAddr,
        /// Its protocol.
        proto: Proto,
    },
    /// Which server of a service a client's connection has or would get, and why: asks the loaded program.
    ExplainService {
        /// As in the configuration.
        service: String,
        /// The client's end.
        client: SocketAddr,
        /// Which endpoint of the service it calls; none: the first of its family and protocol.
        called: Option<SocketAddr>,
        /// Its protocol.
        proto: Proto,
    },
    /// An order for a link.
    Link {
        /// As in the configuration.
        name: String,
        /// What is ordered.
        action: LinkAction,
        /// Even if no other link works.
        #[serde(default)]
        force: bool,
    },
    /// An order for a server of a service.
    Server {
        /// The service, as in the configuration.
        service: String,
        /// Where the server listens.
        server: SocketAddr,
        /// What is ordered.
        action: ServerAction,
    },
    /// Reads the configuration again, like SIGHUP.
    Reload,
    /// Ends the daemon; answered when the host is as it was.
    Stop {
        /// The data path goes on as it is, as after a crash; the next run takes it over.
        #[serde(default)]
        keep_forwarding: bool,
    },
}

/// An order for a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkAction {
    /// No new flows; the present ones stay.
    Drain,
    /// Back in use.
    Up,
    /// Out of use: its flows end.
    Down,
}

/// An order for a server of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServerAction {
    /// No new connections; the present ones stay.
    Drain,
    /// Back in use.
    Up,
}

/// Its answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "response", rename_all = "kebab-case")]
pub enum Response {
    /// The status of an instance, with that of each of its roles.
    Status(Box<Status>),
    /// Some of the flows.
    Flows {
        /// How many there are.
        total: usize,
        /// At most as many as were asked for.
        flows: Vec<FlowRow>,
    },
    /// What flows have told of some of the places that they go to.
    Prefixes {
        /// How many there are.
        total: usize,
        /// For how many there is room.
        limit: u64,
        /// At most as many as were asked for.
        prefixes: Vec<PrefixRow>,
    },
    /// Where a packet would go.
    Explanation(Box<Explained>),
    /// Which server a connection gets.
    Served(Box<Served>),
    /// The order is carried out.
    Done,
    /// The request cannot be fulfilled; nothing was changed.
    Refused {
        /// Why, for people.
        message: String,
    },
    /// The request could have been fulfilled, but something went wrong.
    Failed {
        /// What, for people.
        message: String,
    },
}

/// What the program answers, and the rules that it came by.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explained {
    /// The program's own.
    pub explanation: Explanation,
    /// The class by name.
    pub class: String,
    /// For what a choice of the class holds, as files write it: `connection`, `session`, `host` or `packet`.
    pub granularity: String,
    /// The rules before that of the class. None, if the flow exists: it stays in the class that it was opened in.
    pub passed: Vec<PassedRule>,
}

/// Which server a connection has or would get, and the service as it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Served {
    /// The endpoint that is called.
    pub called: SocketAddr,
    /// Where the server listens; none: no server takes it.
    pub server: Option<SocketAddr>,
    /// Why that one, or why none.
    pub why: String,
    /// The connection is open already.
    pub bound: bool,
    /// The service, with what keeps servers from taking connections.
    pub service: ServiceStatus,
}

/// A rule that does not match.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PassedRule {
    /// Its name.
    pub rule: String,
    /// What the flow has, and what the rule asks for instead.
    pub because: Vec<String>,
}

/// A message with the version it is written in.
#[derive(Serialize)]
struct Versioned<'a, T> {
    api: u32,
    #[serde(flatten)]
    message: &'a T,
}

/// A line that is no message.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum Misread {
    #[error(
        "version {other} of the control protocol, and this program speaks version {VERSION}: {cure}",
        other = .0,
        cure = cure(*.0)
    )]
    Version(u32),
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

/// Whoever reads another version runs beside an older or a newer program, which is a daemon that was not started again, or a command
/// that lies about somewhere.
fn cure(other: u32) -> &'static str {
    if other < VERSION {
        "an older anabranch is on the other side; if that is the daemon, start it again; if it is the command, use the one that the daemon was installed with"
    } else {
        "a newer anabranch is on the other side; use the command that the daemon was installed with, or start the daemon again"
    }
}

/// A message as a line of JSON, its end included.
///
/// # Errors
/// If it cannot be written as JSON.
pub fn to_line<T: Serialize>(message: &T) -> serde_json::Result<Vec<u8>> {
    to_line_of(VERSION, message)
}

/// The same for whoever speaks another version: of a response that is the same in all of them, as a refusal is.
///
/// # Errors
/// If it cannot be written as JSON.
pub fn to_line_of<T: Serialize>(version: u32, message: &T) -> serde_json::Result<Vec<u8>> {
    let versioned = Versioned {
        api: version,
        message,
    };
    let mut line = serde_json::to_vec(&versioned)?;
    line.push(b'\n');
    Ok(line)
}

/// The message of a line; without a version, it is of the present one.
///
/// # Errors
/// [`Misread::Version`] if it is of another version, whatever else is wrong with it.
pub fn from_line<T: DeserializeOwned>(line: &[u8]) -> Result<T, Misread> {
    let mut message: Map<String, Value> = serde_json::from_slice(line)?;
    let api = message.remove("api").map(serde_json::from_value);
    match api.transpose()?.unwrap_or(VERSION) {
        VERSION => Ok(serde_json::from_value(message.into())?),
        other => Err(Misread::Version(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(line: &str) -> Result<Request, Misread> {
        from_line(line.as_bytes())
    }

    #[test]
    fn a_request_tells_its_version_and_is_read_back() {
        let asked = Request::Link {
            name: "fiber".into(),
            action: LinkAction::Drain,
            force: false,
        };
        let line = String::from_utf8(to_line(&asked).unwrap()).unwrap();
        let json = r#"{"api":4,"request":"link","name":"fiber","action":"drain","force":false}"#;
        assert_eq!(line, format!("{json}\n"));
        assert_eq!(request(&line).unwrap(), asked);
    }

    #[test]
    fn a_line_without_a_version_is_of_the_present_one() {
        let read = request(r#"{"request":"flows","limit":5}"#).unwrap();
        assert_eq!(read, Request::Flows { limit: 5 });
        assert_eq!(request(r#"{"request":"status"}"#).unwrap(), Request::Status);
    }

    #[test]
    fn another_version_is_named_before_anything_else_that_is_wrong() {
        for line in [
            r#"{"api":3,"request":"status"}"#,
            r#"{"api":3,"request":"dance"}"#,
        ] {
            let error = request(line).unwrap_err();
            assert!(matches!(error, Misread::Version(3)), "{error}");
            let words = error.to_string();
            assert!(words.contains("speaks version 4: an older"), "{words}");
        }
        let newer = request(r#"{"api":5,"request":"status"}"#).unwrap_err();
        assert!(newer.to_string().contains("a newer anabranch"), "{newer}");
    }

    #[test]
    fn what_nobody_knows_is_refused() {
        for line in [
            r#"{"request":"flows","limit":5,"extra":1}"#,
            r#"{"request":"dance"}"#,
            r#"{"limit":5}"#,
            "[]",
        ] {
            assert!(matches!(request(line), Err(Misread::Json(_))), "{line}");
        }
    }
}
