//! Packets as text: what a round was told, then a frame a line. The corpus, and what is kept of a violation.
//!
//! ```text
//! # why it is here
//! round fallback=true mtu=1500,576,1500
//! lan0 020000000001020000000002080045…
//! wan0 mark=00c0ffee …
//! ```
//!
//! A mark is what another program has set. A line of the layer-3 link `wan2` begins with the IP header. Keys that `round` does not name have their defaults.

use std::fmt::{self, Write as _};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::site::{Port, Told};

/// A frame and where it arrives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shot {
    /// Where it arrives.
    pub port: Port,
    /// Ethernet, but on the bare link.
    pub frame: Vec<u8>,
    /// Of the host, set by another program; 0: there is none.
    pub mark: u32,
}

impl Shot {
    fn parse(port: &str, rest: &str) -> Result<Self> {
        let marked = rest
            .strip_prefix("mark=")
            .and_then(|rest| rest.split_once(' '));
        let (mark, digits) = match marked {
            Some((mark, digits)) => (u32::from_str_radix(mark, 16)?, digits),
            None => (0, rest),
        };
        Ok(Self {
            port: port.parse()?,
            frame: from_hex(digits)?,
            mark,
        })
    }
}

impl fmt::Display for Shot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.port)?;
        if self.mark != 0 {
            write!(f, "mark={:08x} ", self.mark)?;
        }
        f.write_str(&to_hex(&self.frame))
    }
}

/// Packets for a gateway that knows nothing yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    /// What the gateway is told first.
    pub told: Told,
    /// In the order in which they arrive.
    pub shots: Vec<Shot>,
}

impl Script {
    /// A script from a file.
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        Script::parse(&text).with_context(|| path.display().to_string())
    }

    /// A script from its text. An error names the line.
    pub fn parse(text: &str) -> Result<Self> {
        let mut script = Script::default();
        for (number, line) in text.lines().enumerate() {
            let at = || format!("line {}", number + 1);
            let line = line.trim();
            match line.split_once(' ') {
                _ if line.is_empty() || line.starts_with('#') => {}
                Some(("round", words)) => script.told = words.parse().with_context(at)?,
                Some((port, rest)) => {
                    script.shots.push(Shot::parse(port, rest).with_context(at)?);
                }
                None => anyhow::bail!("line {}: expected a port and a frame", number + 1),
            }
        }
        Ok(script)
    }

    /// As [`Script::parse`] reads it, below `remark`, with a note behind each of the first shots.
    pub fn print(&self, remark: &str, notes: &[String]) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        for line in remark.lines() {
            let _ = writeln!(text, "# {line}");
        }
        let _ = writeln!(text, "round {}", self.told);
        for (place, shot) in self.shots.iter().enumerate() {
            let _ = writeln!(text, "{shot}");
            if let Some(note) = notes.get(place) {
                let _ = writeln!(text, "#   {note}");
            }
        }
        text
    }
}

/// Two lower-case digits for each byte.
pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(digits: &str) -> Result<Vec<u8>> {
    ensure!(
        digits.len().is_multiple_of(2) && digits.is_ascii(),
        "expected pairs of hexadecimal digits"
    );
    let pair = |at| u8::from_str_radix(&digits[at..at + 2], 16);
    let bytes = (0..digits.len()).step_by(2).map(pair);
    bytes
        .collect::<Result<_, _>>()
        .context("expected hexadecimal digits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_read_again() {
        let shot = |port: &str, frame: &[u8], mark| Shot {
            port: port.parse().unwrap(),
            frame: frame.to_vec(),
            mark,
        };
        let script = Script {
            told: Told {
                fallback: true,
                mtu: [1500, 576, 1492],
                ..Told::default()
            },
            shots: vec![shot("lan1", &[0, 255], 0), shot("wan2", &[69], 0xc0_ffee)],
        };
        let text = script.print("two lines\nof why", &["a note".to_string()]);
        assert_eq!(Script::parse(&text).unwrap(), script);
    }
}
