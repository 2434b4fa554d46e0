use anabranch_api::{Request, Response};

use crate::control::{Daemon, unexpected};

/// Has the daemon read its configuration again, and waits for its answer.
pub fn run(instance: &str) -> anyhow::Result<()> {
    match Daemon::of(instance)?.ask(&Request::Reload)? {
        Response::Done => Ok(()),
        other => unexpected(&other),
    }
}
