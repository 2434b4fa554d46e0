//! The daemon under test, asked as anybody could ask it.

use anabranch_api::{Client, Paths, Request, Response, Status, TrunkStatus};

use crate::topology::{LabError, Result};

pub(crate) struct Daemon(Client);

impl Daemon {
    pub(crate) fn connect(instance: &str) -> Result<Self> {
        let failed = |error: &dyn std::fmt::Display| LabError::Gateway(error.to_string());
        let paths = Paths::new(instance).map_err(|error| failed(&error))?;
        let client = Client::connect(&paths.socket()).map_err(|error| failed(&error))?;
        Ok(Self(client))
    }

    /// Of a gateway.
    pub(crate) fn status(&mut self) -> Result<Status> {
        match self.ask_status()? {
            Response::Status(status) => Ok(*status),
            other => Err(unasked(&other)),
        }
    }

    pub(crate) fn trunk_status(&mut self) -> Result<TrunkStatus> {
        match self.ask_status()? {
            Response::Trunk(status) => Ok(*status),
            other => Err(unasked(&other)),
        }
    }

    fn ask_status(&mut self) -> Result<Response> {
        let answer = self.0.call(&Request::Status);
        answer.map_err(|error| LabError::Gateway(error.to_string()))
    }
}

fn unasked(answer: &Response) -> LabError {
    LabError::Gateway(format!("it answered another question: {answer:?}"))
}
