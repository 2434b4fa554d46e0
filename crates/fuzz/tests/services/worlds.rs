//! The programs and the model at once: every step is taken in each, and what came of it is compared.

use std::fmt::Write;
use std::net::SocketAddr;

use anabranch_core::Family;
use anabranch_policy::abi::{TCP_ACK, TCP_FIN, TCP_RST, TCP_SYN};
use anabranch_policy::splitmix::SplitMix64;
use anyhow::Result;

use crate::loaded::{Loaded, alias, server, servers, slot};
use crate::model::{Chosen, Model, Packet};
use crate::transcript::{Kind, Policy, SLOTS, Step, place, rows};

const CLIENT_ISN: u32 = 1000;
const SERVER_ISN: u32 = 3_000_000_000;
const DATA_BYTES: u32 = 4;
/// Beyond all windows.
const FAR: u32 = 1 << 24;
/// When a machine has been up for a while.
const BEGIN_NS: u64 = 1_000_000_000_000;

pub struct Worlds<'a> {
    programs: &'a mut Loaded,
    model: Model,
    random: SplitMix64,
    /// The next number of each client.
    next: [u32; SLOTS],
    story: String,
}

impl<'a> Worlds<'a> {
    pub fn new(programs: &'a mut Loaded, seed: u64, policies: &[Policy; 2]) -> Result<Self> {
        let by_family = Family::ALL.map(|family| {
            let policy = &policies[family.index()];
            Chosen::new(policy.choice(family, |_| 0), policy.table(family))
        });
        let model = Model::new(BEGIN_NS, by_family, servers());
        programs.reset(&model)?;
        Ok(Worlds {
            programs,
            model,
            random: SplitMix64(seed),
            next: [CLIENT_ISN + 1; SLOTS],
            story: String::new(),
        })
    }

    /// What happened so far, a line a step, and how the worlds differ.
    pub fn story(&self) -> &str {
        &self.story
    }

    /// Takes a step in both worlds. Whether they are the same after it.
    pub fn step(&mut self, step: &Step) -> Result<bool> {
        let agreed = match step {
            Step::Client { slot, kind, is_far } => self.client_sends(*slot, *kind, *is_far)?,
            Step::Server {
                slot,
                number,
                kind,
                news,
            } => self.server_sends(*slot, *number, *kind, *news)?,
            Step::Connect(slot) => {
                self.client_sends(*slot, Kind::Syn, false)?
                    && self.server_sends(*slot, None, Kind::SynAck, true)?
                    && self.client_sends(*slot, Kind::Ack, false)?
            }
            told => {
                writeln!(self.story, "{told:?}")?;
                self.tell(told)?;
                true
            }
        };
        Ok(agreed && self.is_same()?)
    }

    fn tell(&mut self, step: &Step) -> Result<()> {
        let (programs, model) = (&mut *self.programs, &mut self.model);
        match step {
            Step::Pass { ms } => model.now_ns += ms * 1_000_000,
            Step::Install(family, policy) => {
                let target = &model.gauges.of.target;
                let dispatched = |place| target[usize::from(place)].dispatched;
                let chosen = &mut model.by_family[family.index()];
                chosen.choice = policy.choice(*family, dispatched);
                chosen.table = policy.table(*family);
                programs.install(*family, chosen)?;
            }
            Step::Place(family, number, site) => {
                let place = place(*family, *number);
                model.servers[usize::from(place)].site = *site;
                programs.place(place, &model.servers[usize::from(place)])?;
                programs.note_full(&model.servers)?;
            }
            Step::Treat(unknown, limit) => {
                (model.unknown, model.insert_limit) = (*unknown, *limit);
                programs.treat(model)?;
            }
            Step::Hash(family, drawn) => {
                let of = |seed| rows(seed, *family);
                let chosen = &mut model.by_family[family.index()];
                chosen.rows = drawn.map(|(now, former, _)| [now, former].map(of));
                programs.hash(*family, chosen.rows.as_ref())?;
                let lasts_s = drawn.map_or(0, |(_, _, lasts_s)| lasts_s);
                model.former_until_ns = model.now_ns + lasts_s * 1_000_000_000;
                programs.treat(model)?;
            }
            Step::Sweep => {
                model.sweep();
                programs.sweep(model.now_ns)?;
            }
            Step::Client { .. } | Step::Server { .. } | Step::Connect(_) => {}
        }
        Ok(())
    }

    fn client_sends(&mut self, number: usize, kind: Kind, is_far: bool) -> Result<bool> {
        let key = slot(number);
        let far = if is_far { FAR } else { 0 };
        let first = if kind == Kind::Syn {
            CLIENT_ISN
        } else {
            self.next[number]
        };
        let ends = [key.client, key.service];
        let numbers = [first.wrapping_add(far), SERVER_ISN + 1];
        let packet = packet(key.is_tcp, ends, kind, numbers);
        if !is_far {
            self.next[number] = packet.end;
        }
        self.model.random = self.random.draw() as u32;
        let (now_ns, random) = (self.model.now_ns, self.model.random);
        let really = self.programs.arrive(&packet, now_ns, random)?;
        let modelled = self.model.client_sends(&packet);
        let is_same = really == modelled;
        writeln!(
            self.story,
            "client {number} sends {kind:?}{}: {really:?}; in the model {modelled:?}",
            if is_far { ", far" } else { "" }
        )?;
        Ok(is_same)
    }

    fn server_sends(
        &mut self,
        number: usize,
        by: Option<u16>,
        kind: Kind,
        news: bool,
    ) -> Result<bool> {
        let key = slot(number);
        let any = server(key.client.ip().into(), by.unwrap_or(0));
        let own = self.model.server_of(&key).filter(|_| by.is_none());
        let mut from = own.unwrap_or(any);
        if from.port() == 0 {
            from.set_port(key.service.port());
        }
        let ack = if news {
            self.next[number]
        } else {
            CLIENT_ISN + 1
        };
        let packet = packet(key.is_tcp, [from, key.client], kind, [SERVER_ISN, ack]);
        let now_ns = self.model.now_ns;
        let really = self.programs.arrive(&packet, now_ns, 0)?;
        let modelled = self.model.server_sends(&packet, Some(alias(from)));
        let is_same = really == modelled;
        writeln!(
            self.story,
            "{from} sends client {number} {kind:?}: {really:?}; in the model {modelled:?}"
        )?;
        Ok(is_same)
    }

    /// Whether both know and have counted the same.
    fn is_same(&mut self) -> Result<bool> {
        let mut is_same = true;
        let [real, modelled] = [self.programs.entries()?, self.model.entries()];
        for key in real.keys().chain(modelled.keys()) {
            let [real, modelled] = [&real, &modelled].map(|known| known.get(key));
            if real != modelled {
                writeln!(self.story, "{key:?}: {real:?}, in the model {modelled:?}")?;
                is_same = false;
            }
        }
        let [real, modelled] = [self.programs.full()?, self.model.full()];
        if real != modelled {
            writeln!(self.story, "full: {real:#b}, in the model {modelled:#b}")?;
            is_same = false;
        }
        let (real, modelled) = (self.programs.gauges()?, &*self.model.gauges);
        if real != *modelled {
            let targets = real.of.target.iter().zip(&modelled.of.target);
            let differ = targets
                .enumerate()
                .filter(|(_, (real, modelled))| real != modelled);
            let differ: Vec<_> = differ.collect();
            writeln!(
                self.story,
                "counts of servers: {differ:?}; of all: {:?}, in the model {:?}",
                real.all, modelled.all
            )?;
            is_same = false;
        }
        Ok(is_same)
    }
}

/// A datagram has no flags.
fn packet(is_tcp: bool, [from, to]: [SocketAddr; 2], kind: Kind, [seq, ack]: [u32; 2]) -> Packet {
    let (flags, length) = match kind {
        Kind::Syn => (TCP_SYN, 1),
        Kind::SynAck => (TCP_SYN | TCP_ACK, 1),
        Kind::Ack => (TCP_ACK, 0),
        Kind::Data => (TCP_ACK, DATA_BYTES),
        Kind::Fin => (TCP_FIN | TCP_ACK, 1),
        Kind::Rst => (TCP_RST, 0),
    };
    Packet {
        is_tcp,
        from,
        to,
        flags: if is_tcp { flags } else { 0 },
        seq,
        end: seq.wrapping_add(length),
        ack,
    }
}
