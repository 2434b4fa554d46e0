//! Asking the daemon.

use anabranch_api::Paths;
use anabranch_api::{Client, LinkStatus, Request, Response, Status};
use anabranch_config::BadInput;
use anyhow::{anyhow, bail};

/// A connection to the daemon of one instance.
pub struct Daemon(Client);

impl Daemon {
    pub fn of(instance: &str) -> anyhow::Result<Self> {
        Ok(Self(Client::connect(&Paths::new(instance)?.socket())?))
    }

    /// Any answer but a refusal or a failure.
    pub fn ask(&mut self, request: &Request) -> anyhow::Result<Response> {
        match self.0.call(request)? {
            Response::Refused { message } => Err(BadInput::new(message).into()),
            Response::Failed { message } => Err(anyhow!(message)),
            response => Ok(response),
        }
    }

    pub fn status(&mut self) -> anyhow::Result<Status> {
        match self.ask(&Request::Status)? {
            Response::Status(status) => Ok(*status),
            Response::Trunk(trunk) => Err(BadInput::new(format!(
                "instance {:?} runs a trunk, which has neither flows nor links; ask for its status",
                trunk.instance
            ))
            .into()),
            other => unexpected(&other),
        }
    }

    /// What the numbers of the data path stand for.
    pub fn names(&mut self) -> anyhow::Result<Names> {
        Ok(Names(self.status()?.links))
    }
}

pub fn unexpected<T>(response: &Response) -> anyhow::Result<T> {
    bail!(
        "the daemon answered another question: {response:?}; is it of another version than this command?"
    )
}

/// Link names by their numbers in the data path.
pub struct Names(Vec<LinkStatus>);

impl Names {
    /// The name; a link that has left the configuration keeps its number while it has flows.
    pub fn of(&self, slot: u16) -> String {
        let known = self.0.iter().find(|link| link.slot == slot);
        known.map_or_else(|| format!("#{slot}"), |link| link.name.clone())
    }

    /// Fails if no link has this name.
    pub fn check(&self, name: &str) -> Result<(), BadInput> {
        if self.0.iter().any(|link| link.name == name) {
            return Ok(());
        }
        let known: Vec<&str> = self.0.iter().map(|link| link.name.as_str()).collect();
        Err(BadInput::new(format!(
            "--link {name:?}: no such link; allowed: {}",
            known.join(", ")
        )))
    }
}
