use std::fmt;

/// What was asked for cannot be done as it was asked, and nothing was done: a wrong configuration or scenario, a host
/// that lacks something, a second instance. One line that names the file, key and value and says what is allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadInput(String);

impl BadInput {
    /// Newlines in `message` (a quoted multi-line value) are folded, so that the error stays one line, and other control
    /// characters are shown as escapes, so that a terminal obeys none.
    pub fn new(message: impl fmt::Display) -> Self {
        let message = message.to_string();
        let line = message.split_whitespace().collect::<Vec<_>>().join(" ");
        Self(line.chars().map(shown).collect())
    }
}

/// An error with its causes, where it does not name them itself.
pub fn with_causes(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    for cause in causes.map(ToString::to_string) {
        if !words.contains(&cause) {
            words += &format!(": {cause}");
        }
    }
    words
}

fn shown(c: char) -> String {
    if c.is_control() {
        c.escape_default().to_string()
    } else {
        c.to_string()
    }
}
