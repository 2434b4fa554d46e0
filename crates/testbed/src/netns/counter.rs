//! What the protocols of a namespace have counted.

use std::io;

use super::{Namespace, Result};

/// Files of pairs of lines: the names of a protocol's counters, and their values.
const COLUMNS: [&str; 2] = [
    "/proc/thread-self/net/snmp",
    "/proc/thread-self/net/netstat",
];
/// A counter of IPv6 in each line.
const LINES: &str = "/proc/thread-self/net/snmp6";

impl Namespace {
    /// A counter of the kernel's protocols since the namespace was made, by its name in the MIBs, for instance `RetransSegs`: the sum
    /// of all protocols that have it, in both families.
    pub fn protocol_counter(&self, name: &str) -> Result<u64> {
        let sum = || -> io::Result<Option<u64>> {
            let mut found = Vec::new();
            for file in COLUMNS {
                found.extend(in_columns(&std::fs::read_to_string(file)?, name));
            }
            // Without IPv6 in the kernel there is no such file.
            let lines = std::fs::read_to_string(LINES).unwrap_or_default();
            found.extend(in_lines(&lines, name));
            Ok((!found.is_empty()).then(|| found.iter().sum()))
        };
        let missing = || io::Error::other("there is no such counter");
        self.run(sum)?
            .and_then(|sum| sum.ok_or_else(missing))
            .map_err(|source| self.failure(&format!("counter {name}"), source))
    }
}

fn in_columns(text: &str, name: &str) -> Vec<u64> {
    let lines: Vec<&str> = text.lines().collect();
    let pairs = lines.chunks_exact(2);
    let columns = pairs.flat_map(|pair| pair[0].split(' ').zip(pair[1].split(' ')));
    let named = columns.filter(|(column, _)| *column == name);
    named.filter_map(|(_, value)| value.parse().ok()).collect()
}

/// Names begin with a protocol of IPv6, such as `Udp6`.
fn in_lines(text: &str, name: &str) -> Vec<u64> {
    let of_line = |line: &str| {
        let mut words = line.split_whitespace();
        let (_, counter) = words.next()?.split_once('6')?;
        let value = words.next()?.parse().ok()?;
        (counter == name).then_some(value)
    };
    text.lines().filter_map(of_line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_that_of_all_protocols() {
        let columns =
            "Tcp: InSegs InCsumErrors\nTcp: 9 1\nUdp: InCsumErrors OutDatagrams\nUdp: 2 7\n";
        assert_eq!(in_columns(columns, "InCsumErrors"), [1, 2]);
        let lines = "Ip6InReceives 5\nIcmp6InCsumErrors 3\nUdp6InCsumErrors\t4\n";
        assert_eq!(in_lines(lines, "InCsumErrors"), [3, 4]);
        assert!(in_lines(lines, "CsumErrors").is_empty());
    }
}
