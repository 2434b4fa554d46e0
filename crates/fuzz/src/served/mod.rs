//! Mutated packets against the programs of services and of a member.
//!
//! A round begins with programs that know nothing: three services, one by NAT, one by hashes without entries, one with tunnels. Clients
//! and servers of both families behave as real ones do, with Ethernet and without, and half of their packets are changed before they
//! arrive. [`judge`] says whether what became of each may be. Now and then the tables are looked at: each connection is in its own,
//! and as many are counted as there are.
//!
//! The programs are told the time and every random number, so a round is the same again.

mod generate;
pub mod judge;
pub mod member;
mod rig;
mod shot;
mod world;

use anyhow::Result;

use self::generate::Generator;
use self::rig::Rig;

/// Packets of a round.
pub const PACKETS: usize = 2000;
const BETWEEN_LOOKS: usize = 100;

/// Programs whose packets are judged.
pub struct Arena {
    rig: Rig,
    member: member::Arena,
    /// How often each reason of services was counted.
    pub tally: Vec<u64>,
}

impl Arena {
    /// In namespaces of its own; the calling thread stays in that of the services.
    ///
    /// # Errors
    /// Missing privileges.
    pub fn new() -> Result<Self> {
        Ok(Arena {
            member: member::Arena::new()?,
            rig: Rig::new()?,
            tally: vec![0; anabranch_policy::service_reasons().len()],
        })
    }

    /// How often each reason of members was counted.
    pub fn member_tally(&self) -> &[u64] {
        &self.member.tally
    }

    /// A round of both. What must not be, and the packets before it.
    ///
    /// # Errors
    /// The kernel refuses a packet.
    pub fn round(&mut self, seed: u64) -> Result<Option<String>> {
        let of_services = self.round_of_services(seed)?;
        Ok(of_services.or(self.member.round(seed)?))
    }

    fn round_of_services(&mut self, seed: u64) -> Result<Option<String>> {
        self.rig.reset()?;
        let mut generator = Generator::new(seed);
        for number in 0..PACKETS {
            let shot = generator.next_shot();
            let left = self.rig.arrive(&shot)?;
            if let Some(reason) = left.reason {
                self.tally[reason] += 1;
            }
            let mut judged = judge::judge(&shot, &left);
            if number % BETWEEN_LOOKS == 0 {
                judged = judged.and(self.rig.look()?);
            }
            if let Err(words) = judged {
                return Ok(Some(format!("packet {number}: {words}\n{shot}\n{left}")));
            }
            generator.learn(&left);
        }
        Ok(None)
    }
}
