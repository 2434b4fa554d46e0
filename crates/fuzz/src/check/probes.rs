//! SYNs that wait, and the probes in their place (bpf/policy/race.h).

use super::{Case, Verdict, Way};
use crate::build::{ACK, RST};
use crate::memory::stream;
use crate::sum;

/// Of a TCP header.
const ACKNOWLEDGES: usize = 8;
const FLAGS: usize = 13;

impl Case<'_> {
    /// Its SYN as a SYN+ACK that acknowledges its own number, translated as that would be.
    pub(super) fn probed(&mut self) -> Verdict {
        let came = self.came()?;
        let says = came.segment().ok_or("no segment was probed for")?;
        demand!(
            says.flags & 0x17 == 2 && says.end == says.seq.wrapping_add(1),
            "probed for {says:?}"
        );
        let ends = stream(&came).ok_or("it has no ports")?;
        let mut probe = self.input.to_vec();
        let tcp = self.port.header() + came.header();
        probe[tcp + FLAGS] |= ACK;
        probe[tcp + ACKNOWLEDGES..][..4].copy_from_slice(&says.seq.to_be_bytes());
        sum::mend_transport(&mut probe[self.port.header()..]);
        self.memory.hold(ends, self.port, came.bytes);
        Case {
            input: &probe,
            memory: self.memory,
            ..*self
        }
        .translated(Way::Out)
    }

    /// The RST of its probe, which has its number, becomes the SYN that waits.
    pub(super) fn released(&self) -> Verdict {
        let (came, left) = (self.came()?, self.left()?);
        let ends = stream(&left).ok_or("it has no ports")?;
        let (_, held) = (self.memory.held(ends)).ok_or("no SYN waits between its ends")?;
        demand!(held == left.bytes, "it is not the SYN that waits");
        let says = came.segment().ok_or("no segment answers a probe")?;
        demand!(
            says.flags & RST != 0 && Some(says.seq) == left.seq(),
            "{says:?} answers no probe for {:?}",
            left.seq()
        );
        let (asked, answered) = (ends.1, stream(&came).map(|(from, _)| from));
        demand!(answered == Some(asked), "answered by {answered:?}");
        Ok(())
    }
}
