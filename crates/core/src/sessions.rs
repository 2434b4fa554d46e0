use std::time::Duration;

use anabranch_policy::abi::{BePort, EXCEPT_MAX};

/// Which connections of a per-connection algorithm stick to the link of their session: of the pair of addresses.
///
/// A server may tie several connections to one address, as FTP does with its data connections. Where connections are known
/// to be independent, the algorithm chooses for each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sessions {
    /// All connections stick but those to [`except`](Self::except).
    pub stick: bool,
    /// Remote TCP and UDP ports, at most [`EXCEPT_MAX`].
    pub except: Vec<u16>,
    /// A session is forgotten so long after its last flow began, at most [`SESSION_MAX`]; zero: while there is room, never.
    pub forget: Duration,
}

/// The programs tell times apart for three days.
pub const SESSION_MAX: Duration = Duration::from_secs(2 * 24 * 3600);

impl Sessions {
    pub(crate) fn except(&self) -> [BePort; EXCEPT_MAX] {
        let mut ports = [BePort::default(); EXCEPT_MAX];
        for (place, &port) in ports.iter_mut().zip(&self.except) {
            *place = BePort::new(port);
        }
        ports
    }
}
