//! What the daemon tells on standard error: how much of it, and in which form.
//!
//! A terminal or a file gets a time stamp and the level in words. The journal has a time stamp of its own and takes the
//! priority from the beginning of the line (sd-daemon(3)), so that `journalctl -p warning` finds warnings.

use std::fmt;
use std::io::{IsTerminal, stderr};

use anabranch_console::tell::{is_journal, priority};
use tracing::{Event, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::{Format, FormatEvent, FormatFields, Full, Writer};
use tracing_subscriber::fmt::{FmtContext, format};
use tracing_subscriber::registry::LookupSpan;

/// The variable that is asked where there is no option, and the one that is asked after it.
pub const VARIABLES: [&str; 2] = ["ANABRANCH_LOG", "RUST_LOG"];
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
const DEFAULT: &str = "info";

/// How much is told: a level for everything, or levels of parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verbosity(String);

impl Verbosity {
    /// Reads `LEVEL`, or a list of `PART=LEVEL` with commas between them.
    pub fn parse(text: &str) -> Result<Self, String> {
        let is_level = |word: &str| LEVELS.contains(&&*word.trim().to_ascii_lowercase());
        let is_right = |directive: &str| match directive.rsplit_once('=') {
            Some((part, level)) => !part.trim().is_empty() && is_level(level),
            None => is_level(directive),
        };
        if text.split(',').all(is_right) && EnvFilter::try_new(text).is_ok() {
            return Ok(Self(text.to_owned()));
        }
        Err(format!(
            "not a level; allowed: {}, or PART=LEVEL with commas between, like info,anabranch_daemon::probe=debug",
            LEVELS.join(", ")
        ))
    }

    /// By the first variable that is set. A wrong one is told and never silences the log.
    fn of_environment() -> (Self, Option<String>) {
        let default = Self(DEFAULT.to_owned());
        let set = VARIABLES.into_iter().find_map(|name| {
            let value = std::env::var(name).ok().filter(|value| !value.is_empty())?;
            Some((name, value))
        });
        let Some((name, value)) = set else {
            return (default, None);
        };
        match Self::parse(&value) {
            Ok(verbosity) => (verbosity, None),
            Err(problem) => (
                default,
                Some(format!("{name}={value}: {problem}; {DEFAULT} is used")),
            ),
        }
    }
}

/// Begins to log. `written` is what the command line says.
pub fn begin(written: Option<&Verbosity>) {
    let (verbosity, problem) = match written {
        Some(verbosity) => (verbosity.clone(), None),
        None => Verbosity::of_environment(),
    };
    let log = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(&verbosity.0))
        .with_writer(stderr);
    if is_journal() {
        log.event_format(Journal::default()).init();
    } else {
        log.with_ansi(stderr().is_terminal() && console::colors_enabled_stderr())
            .with_target(false)
            .init();
    }
    if let Some(problem) = problem {
        tracing::warn!("{problem}");
    }
}

/// A line begins with its priority and has no time.
struct Journal(Format<Full, ()>);

impl Default for Journal {
    fn default() -> Self {
        let line = format().without_time().with_level(false);
        Self(line.with_target(false).with_ansi(false))
    }
}

impl<S, N> FormatEvent<S, N> for Journal
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let priority = priority(*event.metadata().level());
        write!(writer, "<{priority}>")?;
        self.0.format_event(context, writer, event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_or_levels_of_parts_are_read_and_nothing_else() {
        for right in ["info", "WARN", "off", "info,anabranch_daemon::probe=debug"] {
            assert_eq!(Verbosity::parse(right), Ok(Verbosity(right.to_owned())));
        }
        for wrong in [
            "banana",
            "",
            "info,",
            "=info",
            "anabranch_daemon",
            "info,x=loud",
        ] {
            let problem = Verbosity::parse(wrong).unwrap_err();
            let says = "not a level; allowed: off, error, warn, info, debug, trace, or PART=LEVEL";
            assert!(problem.starts_with(says), "{wrong}: {problem}");
        }
    }
}
