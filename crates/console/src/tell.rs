//! Lines on standard error.
//!
//! For the journal a line begins with its priority (sd-daemon(3)), so that `journalctl -p warning` finds warnings.

use std::io::{Write, stderr};
use std::os::fd::AsFd;

use nix::sys::stat::{FileStat, fstat};
use tracing::Level;

/// One line about what went wrong with `program`.
pub fn error(program: &str, line: &str) {
    tell(Level::ERROR, program, line);
}

/// One line about what should be known, and did not keep `program` from its work.
pub fn warning(program: &str, line: &str) {
    tell(Level::WARN, program, line);
}

fn tell(level: Level, program: &str, line: &str) {
    let prefix = match is_journal() {
        true => format!("<{}>", priority(level)),
        false => String::new(),
    };
    // Nobody is left to be told that this cannot be told.
    let _ = writeln!(stderr(), "{prefix}{program}: {line}");
}

/// Standard error is the journal's: the service manager says which file that is (systemd.exec(5)).
pub fn is_journal() -> bool {
    let named = std::env::var("JOURNAL_STREAM").unwrap_or_default();
    let same = |stat: FileStat| named == format!("{}:{}", stat.st_dev, stat.st_ino);
    fstat(stderr().as_fd()).is_ok_and(same)
}

/// As syslog(3) has it.
pub fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    }
}
