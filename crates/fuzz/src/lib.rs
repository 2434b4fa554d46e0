//! Hostile packets against the loaded programs, and a judge of what leaves.
//!
//! A round begins with a gateway that knows nothing. Flows are opened and go on as real ones do (handshakes, datagrams,
//! echoes, fragments, ICMP errors, packets between LAN hosts by their external addresses); half of the packets are
//! changed before they arrive, in headers, lengths, options, quotes, tags, fragments, checksums. Every packet goes
//! through `lan` or `wan` by `BPF_PROG_TEST_RUN`, and [`check`] says whether what became of it may be. Now and then
//! [`tables`] compares the flow tables with those before: only flows that a packet named may have changed.
//!
//! The judge shares nothing with the programs: checksums are summed from scratch, translation is made again byte by byte.
//! Rounds are numbered; a round's packets are drawn from the seed and its number alone. A violation is kept as a
//! [`script`]: the packets since the round began, with those left out that it does not need.
//!
//! What is left to the kernel counts as leaving: samples of all that was sent or passed arrive once more at the product
//! itself, in namespaces, and what comes out at the ISPs is judged ([`live`]).

#![deny(missing_docs)]

pub mod build;
pub mod capture;
pub mod check;
pub mod generate;
pub mod live;
pub mod loaded;
pub mod memory;
pub mod mutate;
pub mod read;
pub mod rig;
pub mod round;
pub mod script;
pub mod served;
pub mod shares;
pub mod site;
pub mod sum;
pub mod tables;
