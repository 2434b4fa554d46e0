//! The daemon under test, asked as anybody could ask it.

use anabranch_api::{Client, GatewayStatus, Paths, Request, Response, Status, TrunkStatus};

use crate::topology::{LabError, Result};

pub(crate) struct Daemon(Client);

impl Daemon {
    pub(crate) fn connect(instance: &str) -> Result<Self> {
        let failed = |error: &dyn std::fmt::Display| LabError::Gateway(error.to_string());
        let paths = Paths::new(instance).map_err(|error| failed(&error))?;
        let client = Client::connect(&paths.socket()).map_err(|error| failed(&error))?;
        Ok(Self(client))
    }

    pub(crate) fn status(&mut self) -> Result<Status> {
        let answer = self.0.call(&Request::Status);
        match answer.map_err(|error| LabError::Gateway(error.to_string()))? {
            Response::Status(status) => Ok(*status),
            other => Err(LabError::Gateway(format!(
                "it answered another question: {other:?}"
            ))),
        }
    }

    pub(crate) fn gateway_status(&mut self) -> Result<GatewayStatus> {
        let gateway = self.status()?.gateway;
        gateway
            .map(|gateway| *gateway)
            .ok_or_else(|| none("gateway"))
    }

    pub(crate) fn trunk_status(&mut self) -> Result<TrunkStatus> {
        let trunk = self.status()?.trunk;
        trunk.map(|trunk| *trunk).ok_or_else(|| none("trunk"))
    }
}

fn none(role: &str) -> LabError {
    LabError::Gateway(format!("it has no {role}"))
}
