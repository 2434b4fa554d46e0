//! The programs of a member in the kernel: a server that has the virtual addresses of services, and answers clients itself.
//!
//! `bpf/member.bpf.c` stands at both ends of the devices by which balancers reach the server. At the ingress it takes clients' packets
//! out of tunnels, so that the kernel receives what the client has sent. At the egress it lowers the MSS of SYN/ACKs, so that what
//! clients send fits the tunnels.
//!
//! User space says which addresses are virtual and whose tunnels are trusted ([`Member::set_addresses`], [`Member::set_tunnels`]).
//! Maps and attachments are pinned: the programs go on when this process dies, and [`Member::open`] takes them over.

mod object;

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
};

use anabranch_policy::abi;
use aya::{
    Pod,
    maps::{HashMap, MapData},
    programs::TcAttachType,
};

use crate::{
    Error, Ran, ReasonCount, attach, leftovers,
    object::{load_in_folder, remove_folder},
    pins::Pinned,
    reasons, run,
};
pub use object::member_object;
use object::{EGRESS, INGRESS, Object};

/// The loaded programs of one instance.
pub struct Member {
    object: Object,
    pins: PathBuf,
    instance: PathBuf,
}

impl Member {
    /// Loads the programs, or adopts what another process of this instance left behind. The flag says which.
    ///
    /// `instance` is the instance's folder below `/sys/fs/bpf`.
    ///
    /// # Errors
    /// Missing privileges, a kernel before 6.1, pins that cannot be made.
    pub fn open(instance: &Path) -> Result<(Self, bool), Error> {
        let of = (Pinned::Member, abi::MEMBER_ABI_VERSION);
        load_in_folder(instance, of, |folder| {
            leftovers::set_aside(folder, &member_object(), &object::LAYOUT)?;
            let (object, adopted) = Object::load(folder)?;
            let member = Member {
                object,
                pins: folder.to_owned(),
                instance: instance.to_owned(),
            };
            Ok((member, adopted))
        })
    }

    /// Which addresses are virtual: packets for them, and for no others, are taken out of tunnels. Those that stay keep what was
    /// learned of the tunnels that lead to them.
    ///
    /// # Errors
    /// The kernel refuses a map update: more than [`abi::MEMBER_ADDRESSES_MAX`] addresses, say.
    pub fn set_addresses(&mut self, addresses: &[IpAddr]) -> Result<(), Error> {
        keep(&mut self.object.addresses, addresses).map_err(Error::map("member_addresses"))
    }

    /// Whose tunnels are taken off, all if `sources` is empty; and the UDP port of GUE.
    ///
    /// # Errors
    /// The kernel refuses a map update.
    pub fn set_tunnels(&mut self, sources: &[IpAddr], gue_port: u16) -> Result<(), Error> {
        keep(&mut self.object.sources, sources).map_err(Error::map("member_sources"))?;
        let settings = abi::Member {
            gue_port: abi::BePort::new(gue_port),
            has_sources: u8::from(!sources.is_empty()),
            ..abi::Member::default()
        };
        let set = self.object.settings.set(0, settings, 0);
        set.map_err(Error::map("member_settings"))
    }

    /// Bytes of the longest outer headers that a packet for a virtual address had; 0 if none came in a tunnel.
    ///
    /// # Errors
    /// The kernel refuses the read: no such address, say.
    pub fn outer_bytes(&self, address: IpAddr) -> Result<u32, Error> {
        let entry = self.object.addresses.get(&address.into(), 0);
        Ok(entry.map_err(Error::map("member_addresses"))?.outer_bytes)
    }

    /// Why packets left, all CPUs added up.
    ///
    /// # Errors
    /// The kernel refuses the read.
    pub fn reasons(&self) -> Result<Vec<ReasonCount>, Error> {
        reasons::read(&self.object.reasons, anabranch_policy::member_reasons())
    }

    /// Puts the programs at both ends of a device; a device that has them keeps them.
    ///
    /// # Errors
    /// No such device, or the kernel refuses.
    pub fn attach(&mut self, ifindex: u32) -> Result<(), Error> {
        let ingress = self.object.program(INGRESS)?;
        attach::attach(ingress, &self.pins, ifindex, TcAttachType::Ingress)?;
        attach::attach_beside(self.object.program(EGRESS)?, &self.pins, ifindex)
    }

    /// Takes the programs from a device. Nothing to do is no error.
    ///
    /// # Errors
    /// The pins cannot be removed.
    pub fn detach(&mut self, ifindex: u32) -> Result<(), Error> {
        attach::detach(&self.pins, ifindex)
    }

    /// The devices that have the programs of this instance.
    ///
    /// # Errors
    /// The pins cannot be read.
    pub fn attached(&self) -> Result<Vec<u32>, Error> {
        attach::attached(&self.pins)
    }

    /// Runs the program of the ingress on an Ethernet frame (`BPF_PROG_TEST_RUN`).
    ///
    /// # Errors
    /// The kernel refuses the frame: shorter than an Ethernet header, say.
    pub fn run(&mut self, frame: &[u8], repeat: u32) -> Result<Ran, Error> {
        self.run_program(INGRESS, frame, repeat)
    }

    /// The same of the program of the egress.
    ///
    /// # Errors
    /// As [`Member::run`].
    pub fn run_answer(&mut self, frame: &[u8], repeat: u32) -> Result<Ran, Error> {
        self.run_program(EGRESS, frame, repeat)
    }

    fn run_program(&mut self, name: &'static str, frame: &[u8], repeat: u32) -> Result<Ran, Error> {
        let program = self.object.program(name)?;
        run::run(program, name, frame, run::Marked::ByOthers(0), repeat)
    }

    /// Detaches the programs and removes the pins. In the devices' network namespace.
    ///
    /// # Errors
    /// The pins cannot be removed.
    pub fn close(self) -> Result<(), Error> {
        remove_folder(&self.instance, &self.pins)
    }
}

/// Has a map hold `wanted` and nothing else. Entries that stay are not written.
fn keep<V: Pod + Default>(
    map: &mut HashMap<MapData, abi::Addr, V>,
    wanted: &[IpAddr],
) -> Result<(), aya::maps::MapError> {
    let known: Vec<abi::Addr> = map.keys().collect::<Result<_, _>>()?;
    let wanted: Vec<abi::Addr> = wanted.iter().copied().map(Into::into).collect();
    let mut gone = known.iter().filter(|one| !wanted.contains(one));
    gone.try_for_each(|one| map.remove(one))?;
    let mut fresh = wanted.iter().filter(|one| !known.contains(one));
    fresh.try_for_each(|one| map.insert(one, V::default(), 0))
}
