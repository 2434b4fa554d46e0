//! The trunk program in the kernel: one logical link spread over parallel sublinks, without translation.
//!
//! `bpf/trunk.bpf.c` stands at the egress of the trunk device. That device has the addresses, the routes and the
//! MTU and need not lead anywhere; what the kernel would send out of it is sent over one of the sublinks, to the other
//! node's address there. What arrives on a sublink is ordinary routing: nothing of ours stands there.
//!
//! User space says how to choose ([`Trunk::set_spreading`]), where each sublink leads ([`Trunk::set_sublink`]) and which
//! sublink each bin has ([`Trunk::set_table`]); it reads what the bins ([`Trunk::volumes`]) and the sublinks
//! ([`Trunk::carried`]) have carried. Maps and attachment are pinned: a trunk goes on spreading by its last table when
//! this process dies, and [`Trunk::open`] takes it over.

mod object;
mod upgrade;

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
};

use anabranch_core::{
    Family, PerFamily,
    multilink::{Counters, SublinkId},
};
use anabranch_policy::{
    abi::{self, BINS, Carried, Spreading},
    spread::Table,
};
use aya::programs::TcAttachType;

use crate::{
    Error, Ran, ReasonCount, attach, leftovers,
    object::{load_in_folder, remove_folder},
    pins::Pinned,
    reasons, run,
};
pub use object::trunk_object;
use object::{Object, PROGRAM};

/// Where a sublink leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SublinkPath {
    /// Of its device.
    pub ifindex: u32,
    /// To whom packets of a family go there.
    pub next_hop: NextHop,
}

/// Who takes the packets of a sublink at its other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextHop {
    /// The device has no more than one other end: it is of layer 3.
    OnlyOne,
    /// The other node's address on this sublink, for each family that has one.
    Addresses(PerFamily<Option<IpAddr>>),
}

impl NextHop {
    /// Whether packets of a family get anywhere.
    pub fn carries(&self, family: Family) -> bool {
        match self {
            NextHop::OnlyOne => true,
            NextHop::Addresses(addresses) => addresses[family].is_some(),
        }
    }

    /// The other node's addresses, IPv4 first.
    pub fn addresses(&self) -> Vec<IpAddr> {
        match self {
            NextHop::OnlyOne => Vec::new(),
            NextHop::Addresses(addresses) => {
                let families = Family::ALL.into_iter();
                families.filter_map(|family| addresses[family]).collect()
            }
        }
    }
}

/// The loaded trunk of one instance.
pub struct Trunk {
    object: Object,
    pins: PathBuf,
    instance: PathBuf,
}

impl Trunk {
    /// Loads the program, or adopts what another process of this instance left behind, be it of the version before: table,
    /// settings and attachment go on as they are, with this program. The flag says which.
    ///
    /// `instance` is the instance's folder below `/sys/fs/bpf`.
    ///
    /// # Errors
    /// Missing privileges, a kernel before 6.1, pins that cannot be made.
    pub fn open(instance: &Path) -> Result<(Self, bool), Error> {
        let of = (Pinned::Trunk, abi::TRUNK_ABI_VERSION);
        load_in_folder(instance, of, |folder| Self::load(instance, folder))
    }

    fn load(instance: &Path, folder: &Path) -> Result<(Self, bool), Error> {
        leftovers::set_aside(folder, &trunk_object(), &object::LAYOUT)?;
        upgrade::take_over(instance, folder)?;
        let (object, adopted) = Object::load(folder)?;
        let mut trunk = Trunk {
            object,
            pins: folder.to_owned(),
            instance: instance.to_owned(),
        };
        for ifindex in trunk.attached()? {
            if attach::is_alive(&trunk.pins, ifindex) {
                trunk.attach(ifindex)?;
            } else {
                trunk.detach(ifindex)?;
            }
        }
        Ok((trunk, adopted))
    }

    /// Which sublinks may be used, and how one is chosen.
    ///
    /// # Errors
    /// The kernel refuses the map update.
    pub fn set_spreading(&mut self, spreading: &Spreading) -> Result<(), Error> {
        self.object
            .spreading
            .set(0, *spreading, 0)
            .map_err(Error::map("spreading"))
    }

    /// What was told last, by this process or the one before; all zero in a trunk that was not adopted.
    ///
    /// # Errors
    /// The kernel refuses the read.
    pub fn spreading(&self) -> Result<Spreading, Error> {
        self.object
            .spreading
            .get(&0, 0)
            .map_err(Error::map("spreading"))
    }

    /// Tells where a sublink leads, or that it leads nowhere.
    ///
    /// # Errors
    /// The kernel refuses the map update.
    pub fn set_sublink(
        &mut self,
        sublink: SublinkId,
        path: Option<SublinkPath>,
    ) -> Result<(), Error> {
        let entry = path.map(sublink_entry).unwrap_or_default();
        self.object
            .sublinks
            .set(u32::from(sublink.0), entry, 0)
            .map_err(Error::map("sublinks"))
    }

    /// The sublink of every bin; all zero in a trunk that was not adopted.
    ///
    /// # Errors
    /// The kernel refuses the read.
    pub fn table(&self) -> Result<Table, Error> {
        self.object.bins.get(&0, 0).map_err(Error::map("bins"))
    }

    /// Replaces the table. Each bin's entry is one byte, so a packet sees it before or after its move; entries that
    /// stay are written over with themselves.
    ///
    /// # Errors
    /// The kernel refuses the map update.
    pub fn set_table(&mut self, table: &Table) -> Result<(), Error> {
        self.object
            .bins
            .set(0, *table, 0)
            .map_err(Error::map("bins"))
    }

    /// Bytes every bin has carried since the program was first loaded, all CPUs added up.
    ///
    /// # Errors
    /// The kernel refuses the read.
    pub fn volumes(&self) -> Result<Box<Counters>, Error> {
        let per_cpu = self
            .object
            .volumes
            .get(&0, 0)
            .map_err(Error::map("volumes"))?;
        let mut volumes = Box::new([0; BINS]);
        for cpu in per_cpu.iter() {
            for (total, bytes) in volumes.iter_mut().zip(cpu) {
                *total += bytes;
            }
        }
        Ok(volumes)
    }

    /// What every sublink was given to send, in the order of their numbers.
    ///
    /// # Errors
    /// The kernel refuses the read.
    pub fn carried(&self) -> Result<Vec<Carried>, Error> {
        (0..abi::MAX_LINKS as u32)
            .map(|sublink| {
                let per_cpu = self
                    .object
                    .carried
                    .get(&sublink, 0)
                    .map_err(Error::map("carried"))?;
                let mut carried = Carried::default();
                per_cpu.iter().for_each(|cpu| carried += *cpu);
                Ok(carried)
            })
            .collect()
    }

    /// Why packets left, all CPUs added up.
    ///
    /// # Errors
    /// The kernel refuses the read.
    pub fn reasons(&self) -> Result<Vec<ReasonCount>, Error> {
        reasons::read(&self.object.reasons, anabranch_policy::trunk_reasons())
    }

    /// Puts the program at the egress of the trunk device; a device that has it keeps it.
    ///
    /// # Errors
    /// No such device, or the kernel refuses.
    pub fn attach(&mut self, ifindex: u32) -> Result<(), Error> {
        attach::attach(
            self.object.program()?,
            &self.pins,
            ifindex,
            TcAttachType::Egress,
        )
    }

    /// Takes the program from a device. Nothing to do is no error.
    ///
    /// # Errors
    /// The pins cannot be removed.
    pub fn detach(&mut self, ifindex: u32) -> Result<(), Error> {
        attach::detach(&self.pins, ifindex)
    }

    /// The devices that have the program of this instance.
    ///
    /// # Errors
    /// The pins cannot be read.
    pub fn attached(&self) -> Result<Vec<u32>, Error> {
        attach::attached(&self.pins)
    }

    /// Runs the program on an Ethernet frame `repeat` times (`BPF_PROG_TEST_RUN`): what it chooses is counted, nothing
    /// is transmitted.
    ///
    /// # Errors
    /// The kernel refuses the frame: shorter than an Ethernet header, say.
    pub fn run(&mut self, frame: &[u8], repeat: u32) -> Result<Ran, Error> {
        run::run(
            self.object.program()?,
            PROGRAM,
            frame,
            run::Marked::ByOthers(0),
            repeat,
        )
    }

    /// Detaches the program and removes the pins: the device sends by itself again. In the device's network namespace.
    ///
    /// # Errors
    /// The pins cannot be removed.
    pub fn close(self) -> Result<(), Error> {
        remove_folder(&self.instance, &self.pins)
    }
}

fn sublink_entry(path: SublinkPath) -> abi::Sublink {
    let mut entry = abi::Sublink {
        ifindex: path.ifindex,
        ..abi::Sublink::default()
    };
    match path.next_hop {
        NextHop::OnlyOne => entry.flags = abi::SUBLINK_POINT_TO_POINT,
        NextHop::Addresses(addresses) => {
            entry.next_hop =
                Family::ALL.map(|family| addresses[family].map(Into::into).unwrap_or_default());
        }
    }
    entry
}
