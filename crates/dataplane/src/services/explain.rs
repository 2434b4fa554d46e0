//! "Which server would this client get, and why?" asked of the loaded program.

use std::net::SocketAddr;

use anabranch_core::Proto;
use anabranch_policy::{Why, abi};

use super::object::EXPLAINER;
use super::{ServerId, ServiceId, Services};
use crate::explain::asked;
use crate::{Error, Marked, flows, run};

/// Which server a connection has, or would get now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// Of which service; none if nobody calls it there.
    pub service: Option<ServiceId>,
    /// None: it is taken by no server.
    pub server: Option<ServerId>,
    /// Why that one, or why none.
    pub why: String,
    /// It is open already.
    pub bound: bool,
}

impl Services {
    /// Which server the connection of a client to a virtual endpoint has, or would get now. Nothing is opened, counted or sent.
    ///
    /// # Errors
    /// [`Error::MixedFamilies`]; anything the kernel refuses.
    pub fn explain(
        &mut self,
        client: SocketAddr,
        called: SocketAddr,
        proto: Proto,
    ) -> Result<Served, Error> {
        let program = self.object.program(EXPLAINER)?;
        let raw = asked(client, called, proto, |packet| {
            run::run(program, EXPLAINER, packet, Marked::ByOthers(0), 1)
        })?;
        Ok(served(&raw))
    }
}

fn served(raw: &abi::Explanation) -> Served {
    let server = (raw.link != abi::NO_TARGET).then_some(ServerId(raw.link));
    let bound = raw.bound != 0;
    let reason = &anabranch_policy::service_reasons()[usize::from(raw.reason)];
    let why = match (server, Why::try_from(u32::from(raw.why))) {
        (None, _) => reason.words.to_owned(),
        (Some(_), _) if bound => "its connection is open".to_owned(),
        (Some(_), Ok(Why::OnlyOne)) => "the only usable server".to_owned(),
        (Some(_), _) => flows::why(raw.why),
    };
    Served {
        service: (raw.class != abi::NO_TARGET).then_some(ServiceId(raw.class)),
        server,
        why,
        bound,
    }
}
