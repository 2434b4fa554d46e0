//! What went wrong, in one line, and whose turn it is.

use std::error::Error;
use std::process::ExitCode;

use anabranch_config::{BadInput, with_causes};

use crate::tell;

const FAILED: u8 = 1;
const BAD_INPUT: u8 = 2;

/// How a command fails.
pub struct Failures {
    /// Its name, which begins the line.
    pub program: &'static str,
    /// The exit code of an error that is the command's own; without one, what caused that error is asked.
    pub code: fn(&(dyn Error + 'static)) -> Option<u8>,
}

impl Failures {
    /// Writes the line to standard error.
    pub fn report(&self, error: &anyhow::Error) -> ExitCode {
        tell::error(self.program, &line(error));
        ExitCode::from(self.exit_code(error))
    }

    /// Context around an error does not change whose turn it is.
    pub fn exit_code(&self, error: &anyhow::Error) -> u8 {
        let of = |cause: &(dyn Error + 'static)| {
            (self.code)(cause).or_else(|| cause.is::<BadInput>().then_some(BAD_INPUT))
        };
        error.chain().find_map(of).unwrap_or(FAILED)
    }
}

fn line(error: &anyhow::Error) -> String {
    with_causes(error.as_ref())
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[derive(Debug)]
    struct Own;

    impl std::fmt::Display for Own {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("own")
        }
    }

    impl Error for Own {}

    const FAILURES: Failures = Failures {
        program: "test",
        code: |error| error.is::<Own>().then_some(130),
    };

    #[test]
    fn bad_input_and_own_errors_keep_their_codes_whatever_is_said_around_them() {
        let bad = BadInput::new("lan: no LAN device");
        for (error, code) in [
            (anyhow::Error::new(bad.clone()), BAD_INPUT),
            (anyhow::Error::new(bad).context("check"), BAD_INPUT),
            (anyhow::Error::new(Own).context("run"), 130),
            (anyhow!("no memory"), FAILED),
        ] {
            assert_eq!(FAILURES.exit_code(&error), code, "{error:#}");
        }
    }

    #[test]
    fn causes_are_told_on_one_line() {
        let error = anyhow!("first\nsecond").context("outer");
        assert_eq!(line(&error), "outer: first second");
    }
}
