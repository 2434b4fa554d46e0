//! What went wrong, in one line, and whose turn it is.

use std::process::ExitCode;

use anabranch_api::ClientError;
use anabranch_config::BadInput;
use anabranch_daemon::{Error, with_causes};

use crate::interrupt::{self, Interrupted};
use crate::log;

const FAILED: u8 = 1;
const BAD_INPUT: u8 = 2;

pub fn report(error: &anyhow::Error) -> ExitCode {
    log::tell_error(&line(error));
    ExitCode::from(exit_code(error))
}

fn line(error: &anyhow::Error) -> String {
    with_causes(error.as_ref())
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

/// Context around an error does not change whose turn it is.
pub fn exit_code(error: &anyhow::Error) -> u8 {
    let of = |cause: &(dyn std::error::Error + 'static)| {
        if let Some(error) = cause.downcast_ref::<Error>() {
            return Some(error.exit_code());
        }
        if cause.is::<Interrupted>() {
            return Some(interrupt::EXIT_CODE);
        }
        let unasked = cause.downcast_ref::<ClientError>();
        let is_bad_input = cause.is::<BadInput>() || unasked.is_some_and(ClientError::is_mendable);
        is_bad_input.then_some(BAD_INPUT)
    };
    error.chain().find_map(of).unwrap_or(FAILED)
}

#[cfg(test)]
mod tests {
    use anyhow::{Context, anyhow};

    use super::*;

    #[test]
    fn bad_input_keeps_its_code_whatever_is_said_around_it() {
        let bad = BadInput::new("lan: no LAN device");
        for error in [
            anyhow::Error::new(bad.clone()),
            anyhow::Error::new(bad.clone()).context("check"),
            anyhow::Error::new(Error::from(bad.clone())),
            Err::<(), _>(Error::from(bad)).context("run").unwrap_err(),
        ] {
            assert_eq!(exit_code(&error), BAD_INPUT, "{error:#}");
        }
        assert_eq!(exit_code(&Error::from(anyhow!("no memory")).into()), FAILED);
        assert_eq!(exit_code(&anyhow!("no memory")), FAILED);
    }

    #[test]
    fn causes_are_told_on_one_line() {
        let error = anyhow!("first\nsecond").context("outer");
        assert_eq!(line(&error), "outer: first second");
        let failed = Error::from(anyhow!("no such device").context("attach"));
        assert_eq!(line(&failed.into()), "attach: no such device", "once");
    }
}
