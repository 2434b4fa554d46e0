use anabranch_api::{LinkAction as Order, Request, Response};

use crate::args::LinkAction;
use crate::control::{Daemon, unexpected};

pub fn run(instance: &str, action: LinkAction, name: String, force: bool) -> anyhow::Result<()> {
    let action = match action {
        LinkAction::Drain => Order::Drain,
        LinkAction::Up => Order::Up,
        LinkAction::Down => Order::Down,
    };
    match Daemon::of(instance)?.ask(&Request::Link {
        name,
        action,
        force,
    })? {
        Response::Done => Ok(()),
        other => unexpected(&other),
    }
}
