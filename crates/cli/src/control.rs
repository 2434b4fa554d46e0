//! Asking the daemon.

use anabranch_api::Paths;
use anabranch_api::{ClassStatus, Client, LinkStatus, Request, Response, RoleStatus, Status};
use anabranch_config::{BadInput, did_you_mean};
use anabranch_daemon::config::GATEWAY;
use anyhow::{anyhow, bail};

/// A connection to the daemon of one instance.
pub struct Daemon(Client);

impl Daemon {
    pub fn of(instance: &str) -> anyhow::Result<Self> {
        Ok(Self(Client::connect(&Paths::new(instance)?.socket())?))
    }

    /// Any answer but a refusal or a failure.
    pub fn ask(&mut self, request: &Request) -> anyhow::Result<Response> {
        answered(self.0.call(request)?)
    }

    pub fn status(&mut self) -> anyhow::Result<Status> {
        match self.ask(&Request::Status)? {
            Response::Status(status) => Ok(*status),
            other => unexpected(&other),
        }
    }

    /// What the numbers of the data path stand for.
    pub fn names(&mut self) -> anyhow::Result<Names> {
        let status = self.status()?;
        match status.gateway {
            Some(gateway) => Ok(Names {
                links: gateway.links,
                classes: gateway.classes,
            }),
            None => Err(BadInput::new(no_gateway(&status)).into()),
        }
    }
}

fn no_gateway(status: &Status) -> String {
    let is_gateway = |role: &&RoleStatus| role.name == GATEWAY;
    let instance = &status.instance;
    match status.roles.iter().find(is_gateway) {
        Some(role) => {
            let why = role.why.as_deref().unwrap_or_default();
            format!("the gateway of instance {instance:?} has failed: {why}")
        }
        None => format!(
            "instance {instance:?} has no gateway, and so neither flows nor links; ask for its status"
        ),
    }
}

/// Refusals and failures are errors.
pub fn answered(response: Response) -> anyhow::Result<Response> {
    match response {
        Response::Refused { message } => Err(BadInput::new(message).into()),
        Response::Failed { message } => Err(anyhow!(message)),
        response => Ok(response),
    }
}

pub fn unexpected<T>(response: &Response) -> anyhow::Result<T> {
    bail!(
        "the daemon answered another question: {response:?}; is it of another version than this command?"
    )
}

/// Names of links and classes by their numbers in the data path.
pub struct Names {
    links: Vec<LinkStatus>,
    classes: Vec<ClassStatus>,
}

impl Names {
    /// The name of a link; one that has left the configuration keeps its number while it has flows.
    pub fn of(&self, slot: u16) -> String {
        let known = self.links.iter().find(|link| link.slot == slot);
        known.map_or_else(|| format!("#{slot}"), |link| link.name.clone())
    }

    /// The name of a class.
    pub fn of_class(&self, slot: u8) -> String {
        let known = self.classes.iter().find(|class| class.slot == slot);
        known.map_or_else(|| format!("#{slot}"), |class| class.name.clone())
    }

    /// There are rules, or flows of a rule that left.
    pub fn has_classes(&self) -> bool {
        self.classes.len() > 1
    }

    /// Fails if no link has this name.
    pub fn check_link(&self, name: &str) -> Result<(), BadInput> {
        check("link", name, self.links.iter().map(|link| &link.name[..]))
    }

    /// Fails if no class has this name.
    pub fn check_class(&self, name: &str) -> Result<(), BadInput> {
        let known = self.classes.iter().map(|class| &class.name[..]);
        check("class", name, known)
    }
}

fn check<'a>(
    kind: &str,
    name: &str,
    mut known: impl Iterator<Item = &'a str> + Clone,
) -> Result<(), BadInput> {
    if known.clone().any(|known| known == name) {
        return Ok(());
    }
    let meant = did_you_mean(name, known.clone());
    let first = known.next().unwrap_or_default().to_owned();
    let allowed = known.fold(first, |all, next| format!("{all}, {next}"));
    Err(BadInput::new(format!(
        "--{kind} {name:?}: no such {kind}; allowed: {allowed}{meant}"
    )))
}
