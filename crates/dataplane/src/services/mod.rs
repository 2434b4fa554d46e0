//! The service programs in the kernel: servers behind virtual addresses, chosen connection by connection.
//!
//! `bpf/service.bpf.c` stands at the ingress of the devices by which clients and servers are reached, before the gateway where
//! there is one. A client's packet to a virtual endpoint gets its server's address and is sent there; the answer gets the virtual
//! address back, and leaves by the way that the client's packets came.
//!
//! User space says which endpoints there are ([`Services::set_virtuals`]), where each server is ([`Services::set_server`]), and how one
//! is chosen ([`Services::set_choice`]). Connections, maps and attachments are pinned: they go on when this process dies, and
//! [`Services::open`] takes them over.

mod answering;
mod explain;
mod listen;
mod object;
mod reset;
mod stateless;
mod sweep;

use std::{
    collections::{BTreeMap, HashMap},
    net::{IpAddr, SocketAddr},
    num::NonZeroU32,
    path::{Path, PathBuf},
};

use anabranch_core::{Family, Time, passive::Evidence};
use anabranch_policy::abi::{
    self, Answering, Choice, ClassName, Consistent, Gauges, MAX_TARGETS, Meter, Secret,
    ServiceSettings, Set, Virtual,
};
use aya::{
    maps::{
        Map, MapData, MapError,
        lpm_trie::{Key, LpmTrie},
    },
    programs::TcAttachType,
};

use crate::{
    Error, Ran, ReasonCount, attach,
    clock::monotonic_now,
    error::absent,
    leftovers,
    object::{load_in_folder, remove_folder},
    pins::Pinned,
    reasons, run,
};
pub use answering::Answers;
pub use explain::Served;
pub use listen::{Listen, Protocol};
use object::Object;
pub use object::service_object;
pub use sweep::{Sweeper, Swept};

/// A server, and how it is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Server {
    /// Where it listens; port 0: at the port that the client called.
    pub endpoint: SocketAddr,
    /// Where its packets go; none if nothing leads there.
    pub path: Option<ServerPath>,
    /// Connections that others had had when it was given its place.
    pub opened_before: u64,
    /// Somebody has ordered that it takes no new connections. For the next process to know.
    pub is_drained: bool,
    /// Its check says that it does not work. As above.
    pub has_failed: bool,
    /// The next sweep ends its connections.
    pub is_dead: bool,
    /// How its packets are sent to it.
    pub forwarding: Forwarding,
    /// Open connections at most.
    pub limit: Option<NonZeroU32>,
}

/// How a client's packets are sent to a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Forwarding {
    /// They get the server's address, and its answers come back.
    #[default]
    Nat,
    /// As they are: the server has the virtual address, too, and answers its clients itself.
    Direct,
    /// Inside others, to such a server.
    Tunnel {
        /// These are of UDP to this port, by GUE; else IP in IP.
        gue_port: Option<u16>,
    },
}

/// Where the packets of a server go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerPath {
    /// Of the device.
    pub ifindex: u32,
    /// The server, or the router it is behind; none of a device that has no more than one other end.
    pub next_hop: Option<IpAddr>,
    /// This host's address towards it: that of a tunnel.
    pub source: IpAddr,
}

/// The number of a service: below [`abi::MAX_SERVICES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceId(pub u16);

/// A server by its place among those of its service: below [`MAX_TARGETS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId(pub u16);

impl ServerId {
    /// For tables with a place for each server.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The loaded services of one instance.
pub struct Services {
    object: Object,
    answers: Answers,
    /// What is written of the servers at an address.
    written: HashMap<abi::Addr, HashMap<(u32, Virtual), Answering>>,
    pins: PathBuf,
    instance: PathBuf,
}

impl Services {
    /// Loads the programs, or adopts what another process of this instance left behind: connections and attachments go on as they
    /// are, with these programs. The flag says which.
    ///
    /// `instance` is the instance's folder below `/sys/fs/bpf`. `connections_max` is fixed while pinned maps live.
    ///
    /// # Errors
    /// Missing privileges, a kernel before 6.1, pins that cannot be made.
    pub fn open(instance: &Path, connections_max: u32) -> Result<(Self, bool), Error> {
        Self::open_object(instance, connections_max, &service_object())
    }

    /// The same with programs that were built otherwise.
    ///
    /// # Errors
    /// As [`Services::open`].
    pub fn open_object(
        instance: &Path,
        connections_max: u32,
        object: &[u8],
    ) -> Result<(Self, bool), Error> {
        let of = (Pinned::Services, abi::SERVICE_ABI_VERSION);
        load_in_folder(instance, of, |folder| {
            Self::load(instance, folder, connections_max, object)
        })
    }

    fn load(
        instance: &Path,
        folder: &Path,
        connections_max: u32,
        object: &[u8],
    ) -> Result<(Self, bool), Error> {
        leftovers::set_aside(folder, object, &object::LAYOUT)?;
        let (object, adopted) = Object::load(folder, connections_max, object)?;
        let mut services = Services {
            object,
            answers: Answers::default(),
            written: HashMap::new(),
            pins: folder.to_owned(),
            instance: instance.to_owned(),
        };
        services.remember_answers()?;
        Ok((services, adopted))
    }

    /// Which servers an earlier process has left, and for which endpoints they answer.
    fn remember_answers(&mut self) -> Result<(), Error> {
        for (id, name) in (0..).map(ServiceId).zip(self.names()?) {
            if name.is_none() {
                continue;
            }
            for (place, server) in (0..).map(ServerId).zip(self.servers(id)?) {
                let answering = server.map(|one| (one.endpoint, one.forwarding));
                self.answers.set_server((id, place), answering);
            }
        }
        for entry in self.object.answers.iter() {
            let (key, value) = entry.map_err(Error::map("service_answers"))?;
            let here = self.written.entry(key.data().address).or_default();
            here.insert((key.prefix_len(), key.data()), value);
        }
        Ok(())
    }

    /// What forgets connections that are over, apart from these services.
    ///
    /// # Errors
    /// The kernel refuses to pin a program.
    pub fn sweeper(&mut self) -> Result<Sweeper, Error> {
        Sweeper::open(&mut self.object, &self.pins)
    }

    /// Which endpoints are services: those of before go, and what stays is not touched.
    ///
    /// # Errors
    /// The kernel refuses a map update.
    pub fn set_virtuals(&mut self, wanted: &BTreeMap<Listen, ServiceId>) -> Result<(), Error> {
        self.answers.set_virtuals(wanted);
        self.tell_answers(self.answers.addresses().collect())?;
        let wanted = wanted.iter().flat_map(|(listen, service)| {
            let service = u32::from(service.0);
            listen.keys().map(move |key| (key, service))
        });
        write_all(&mut self.object.virtuals, wanted.collect()).map_err(Error::map("virtuals"))
    }

    /// Writes for which virtual endpoints the servers at these addresses answer.
    fn tell_answers(&mut self, servers: Vec<IpAddr>) -> Result<(), Error> {
        let failed = || Error::map("service_answers");
        for server in servers {
            let wanted = self.answers.entries(server);
            let answers = &mut self.object.answers;
            let written = self.written.entry(server.into()).or_default();
            let gone = written.keys().filter(|key| !wanted.contains_key(key));
            for key in gone.copied().collect::<Vec<_>>() {
                let removed = answers.remove(&Key::new(key.0, key.1));
                absent(removed).map_err(failed())?;
                written.remove(&key);
            }
            for (key, value) in wanted {
                if written.get(&key) != Some(&value) {
                    let set = answers.insert(&Key::new(key.0, key.1), value, 0);
                    set.map_err(failed())?;
                    written.insert(key, value);
                }
            }
        }
        Ok(())
    }

    /// Tells where the server at a place of a service is, or that there is none.
    ///
    /// # Errors
    /// The kernel refuses the map update.
    pub fn set_server(
        &mut self,
        service: ServiceId,
        id: ServerId,
        server: Option<Server>,
    ) -> Result<(), Error> {
        let entry = server.map(server_entry).unwrap_or_default();
        let place = server_place(service, id);
        let set = self.object.servers.set(place, entry, 0);
        set.map_err(Error::map("servers"))?;
        if let Some(server) = server {
            self.tell_kind(service, server.forwarding)?;
        }
        let answering = server.map(|one| (one.endpoint, one.forwarding));
        let changed = self.answers.set_server((service, id), answering);
        self.tell_answers(changed)
    }

    /// Notes that a service may have connections that are forwarded so.
    fn tell_kind(&mut self, service: ServiceId, forwarding: Forwarding) -> Result<(), Error> {
        let kind = match forwarding {
            Forwarding::Nat => abi::CONNECTIONS_NAT,
            Forwarding::Direct | Forwarding::Tunnel { .. } => abi::CONNECTIONS_DIRECT,
        };
        let known = self.settings(service)?;
        let settings = ServiceSettings {
            kinds: known.kinds | kind as u16,
            ..known
        };
        match settings == known {
            true => Ok(()),
            false => self.write_settings(service, settings),
        }
    }

    /// What is at each place of a service, as it was told last, by this process or the one before.
    ///
    /// # Errors
    /// The kernel refuses the read.
    pub fn servers(&self, service: ServiceId) -> Result<Vec<Option<Server>>, Error> {
        (0..MAX_TARGETS as u16)
            .map(|id| {
                let place = server_place(service, ServerId(id));
                let entry = self.object.servers.get(&place, 0);
                Ok(server(&entry.map_err(Error::map("servers"))?))
            })
            .collect()
    }

    /// How a service chooses among its servers for clients of a family.
    ///
    /// # Errors
    /// The kernel refuses the map update.
    pub fn set_choice(
        &mut self,
        service: ServiceId,
        family: Family,
        choice: &Choice,
    ) -> Result<(), Error> {
        let place = abi::service_choice_place(service.0, family);
        let set = self.object.choices.set(place, choice, 0);
        set.map_err(Error::map("service_choices"))
    }

    /// The table that the choice for clients of a family goes by, if it goes by one.
    ///
    /// # Errors
    /// The kernel refuses the map update.
    pub fn set_table(
        &mut self,
        service: ServiceId,
        family: Family,
        table: Option<&Consistent>,
    ) -> Result<(), Error> {
        let place = abi::service_choice_place(service.0, family);
        let set = match table {
            Some(table) => self.object.tables.insert(place, table, 0),
            None => absent(self.object.tables.remove(&place)),
        };
        set.map_err(Error::map("service_tables"))
    }

    /// What the hashes of a service are keyed by; of zeros if nobody has set it.
    ///
    /// # Errors
    /// The kernel refuses the read.
    pub fn secret(&self, service: ServiceId) -> Result<Secret, Error> {
        let secret = self.object.secrets.get(&service.0.into(), 0);
        secret.map_err(Error::map("service_secrets"))
    }

    /// Keys the hashes of a service.
    ///
    /// # Errors
    /// The kernel refuses the map update.
    pub fn set_secret(&mut self, service: ServiceId, secret: &Secret) -> Result<(), Error> {
        let set = self.object.secrets.set(service.0.into(), secret, 0);
        set.map_err(Error::map("service_secrets"))
    }

    /// By number, as this process or an earlier one has set them.
    ///
    /// # Errors
    /// The kernel refuses the read.
    pub fn names(&self) -> Result<Vec<Option<String>>, Error> {
        let names = self.object.names.iter();
        names
            .map(|name| Ok(name.map_err(Error::map("service_names"))?.name()))
            .collect()
    }

    /// Gives a service its name, or takes it away.
    ///
    /// # Errors
    /// The kernel refuses the map update.
    pub fn set_name(&mut self, service: ServiceId, name: Option<&str>) -> Result<(), Error> {
        let name = ClassName::of(name.unwrap_or_default());
        let set = self.object.names.set(service.0.into(), name, 0);
        set.map_err(Error::map("service_names"))
    }

    /// Connections of each server of a service since the maps were made.
    ///
    /// # Errors
    /// The kernel refuses the read.
    pub fn gauges(&self, service: ServiceId) -> Result<Gauges, Error> {
        let gauges = self.object.gauges.get(&service.0.into(), 0);
        Ok(gauges.map_err(Error::map("service_gauges"))?.of)
    }

    /// Notes which servers of a service have as many connections as they may: after limits have changed, and again, because what
    /// the programs note at the same time may be lost.
    ///
    /// # Errors
    /// The kernel refuses the read or the map update.
    pub fn note_full(
        &mut self,
        service: ServiceId,
        limits: &BTreeMap<ServerId, u32>,
    ) -> Result<(), Error> {
        let gauges = self.gauges(service)?.target;
        let is_full =
            |(id, limit): &(&ServerId, &u32)| gauges[id.index()].active() >= u64::from(**limit);
        let full: Set = limits.iter().filter(is_full).map(|(id, _)| id.0).collect();
        let failed = || Error::map("service_full");
        let known = self
            .object
            .full
            .get(&service.0.into(), 0)
            .map_err(failed())?;
        match known == full {
            true => Ok(()),
            false => self
                .object
                .full
                .set(service.0.into(), full, 0)
                .map_err(failed()),
        }
    }

    /// What the connections of each server of a service show of it, by place; with the time, on the clock of the programs.
    ///
    /// # Errors
    /// The kernel refuses the read.
    pub fn evidence(&self, service: ServiceId) -> Result<(Time, Vec<Evidence>), Error> {
        let now = Time::ZERO + monotonic_now();
        let seen = self.object.evidence.get(&service.0.into(), 0);
        let seen = seen.map_err(Error::map("service_evidence"))?.target;
        let gauges = self.gauges(service)?.target;
        let of_servers = seen.iter().zip(&gauges).map(|(seen, gauge)| Evidence {
            opened: gauge.opened,
            repeated: seen.repeated,
            refused: seen.refused,
            waits_since: (seen.asked_ns > seen.heard_ns).then(|| Time::from_nanos(seen.asked_ns)),
        });
        Ok((now, of_servers.collect()))
    }

    /// What a server has done since the maps were made, all CPUs added up.
    ///
    /// # Errors
    /// The kernel refuses the read.
    pub fn meter(&self, service: ServiceId, id: ServerId) -> Result<Meter, Error> {
        let read = self.object.meters.get(&server_place(service, id), 0);
        let mut sum = Meter::default();
        for one in read.map_err(Error::map("service_meters"))?.iter() {
            sum.sent_bytes += one.sent_bytes;
            sum.answers += one.answers;
            sum.answering_us += one.answering_us;
        }
        Ok(sum)
    }

    /// Why packets left, all CPUs added up.
    ///
    /// # Errors
    /// The kernel refuses the read.
    pub fn reasons(&self) -> Result<Vec<ReasonCount>, Error> {
        reasons::read(&self.object.reasons, anabranch_policy::service_reasons())
    }

    /// Puts the program at the ingress of a device; a device that has it keeps it.
    ///
    /// # Errors
    /// No such device, or the kernel refuses.
    pub fn attach(&mut self, ifindex: u32, is_layer3: bool) -> Result<(), Error> {
        let program = self.object.program(program_for(is_layer3))?;
        attach::attach(program, &self.pins, ifindex, TcAttachType::Ingress)
    }

    /// Takes the program from a device. Nothing to do is no error.
    ///
    /// # Errors
    /// The pins cannot be removed.
    pub fn detach(&mut self, ifindex: u32) -> Result<(), Error> {
        attach::detach(&self.pins, ifindex)
    }

    /// The devices that have a program of these services.
    ///
    /// # Errors
    /// The pins cannot be read.
    pub fn attached(&self) -> Result<Vec<u32>, Error> {
        attach::attached(&self.pins)
    }

    /// Runs the program of a device with Ethernet on a frame (`BPF_PROG_TEST_RUN`): what it chooses is remembered, nothing is
    /// transmitted.
    ///
    /// # Errors
    /// The kernel refuses the frame: shorter than an Ethernet header, say.
    pub fn run(&mut self, frame: &[u8], repeat: u32) -> Result<Ran, Error> {
        self.run_program(program_for(false), frame, repeat)
    }

    /// The same of a device without Ethernet.
    ///
    /// # Errors
    /// As above.
    pub fn run_layer3(&mut self, packet: &[u8], repeat: u32) -> Result<Ran, Error> {
        self.run_program(program_for(true), packet, repeat)
    }

    fn run_program(&mut self, name: &'static str, frame: &[u8], repeat: u32) -> Result<Ran, Error> {
        run::run(
            self.object.program(name)?,
            name,
            frame,
            run::Marked::ByOthers(0),
            repeat,
        )
    }

    /// A map that this crate tells nothing, and does not ask.
    ///
    /// # Errors
    /// There is none of that name, or of that type.
    pub fn take_map<M: TryFrom<Map, Error = MapError>>(
        &mut self,
        name: &'static str,
    ) -> Result<M, Error> {
        self.object.take(name)
    }

    /// Detaches the programs and removes the pins: connections end. In the devices' network namespace.
    ///
    /// # Errors
    /// The pins cannot be removed.
    pub fn close(self) -> Result<(), Error> {
        remove_folder(&self.instance, &self.pins)
    }
}

/// Makes these the entries of a trie; those that stay are not touched.
fn write_all<V: aya::Pod>(
    trie: &mut LpmTrie<MapData, abi::Virtual, V>,
    wanted: HashMap<(u32, abi::Virtual), V>,
) -> Result<(), MapError> {
    let known: Vec<Key<abi::Virtual>> = trie.keys().collect::<Result<_, _>>()?;
    for key in known {
        if !wanted.contains_key(&(key.prefix_len(), key.data())) {
            trie.remove(&key)?;
        }
    }
    wanted
        .into_iter()
        .try_for_each(|((bits, key), value)| trie.insert(&Key::new(bits, key), value, 0))
}

fn program_for(is_layer3: bool) -> &'static str {
    match is_layer3 {
        false => "service",
        true => "service_layer3",
    }
}

fn server_place(service: ServiceId, server: ServerId) -> u32 {
    u32::from(service.0) * MAX_TARGETS as u32 + u32::from(server.0)
}

/// None: nobody has the place.
fn server(entry: &abi::Server) -> Option<Server> {
    let has = |flag: u32| entry.flags & flag as u16 != 0;
    let path = ServerPath {
        ifindex: entry.ifindex,
        next_hop: (!has(abi::SERVER_POINT_TO_POINT)).then(|| entry.next_hop.ip()),
        source: entry.source.ip(),
    };
    let forwarding = match has(abi::SERVER_TUNNEL) {
        true => Forwarding::Tunnel {
            gue_port: Some(entry.gue_port.get()).filter(|port| *port != 0),
        },
        false if has(abi::SERVER_DIRECT) => Forwarding::Direct,
        false => Forwarding::Nat,
    };
    (!entry.address.is_zero()).then(|| Server {
        endpoint: SocketAddr::new(entry.address.ip(), entry.port.get()),
        path: (entry.ifindex != 0).then_some(path),
        opened_before: entry.opened_before,
        is_drained: has(abi::SERVER_DRAINED),
        has_failed: has(abi::SERVER_FAILED),
        is_dead: has(abi::SERVER_DEAD),
        forwarding,
        limit: NonZeroU32::new(entry.limit),
    })
}

fn server_entry(server: Server) -> abi::Server {
    let mut entry = abi::Server {
        address: server.endpoint.ip().into(),
        port: abi::BePort::new(server.endpoint.port()),
        opened_before: server.opened_before,
        limit: server.limit.map_or(0, NonZeroU32::get),
        ..abi::Server::default()
    };
    let flags = [
        (server.is_drained, abi::SERVER_DRAINED),
        (server.has_failed, abi::SERVER_FAILED),
        (server.is_dead, abi::SERVER_DEAD),
        (server.forwarding != Forwarding::Nat, abi::SERVER_DIRECT),
    ];
    let set = flags.into_iter().filter(|(is_set, _)| *is_set);
    entry.flags = set.fold(0, |flags, (_, flag)| flags | flag as u16);
    if let Forwarding::Tunnel { gue_port } = server.forwarding {
        entry.flags |= abi::SERVER_TUNNEL as u16;
        entry.gue_port = abi::BePort::new(gue_port.unwrap_or(0));
    }
    if let Some(path) = server.path {
        entry.ifindex = path.ifindex;
        entry.source = path.source.into();
        match path.next_hop {
            Some(next_hop) => entry.next_hop = next_hop.into(),
            None => entry.flags |= abi::SERVER_POINT_TO_POINT as u16,
        }
    }
    entry
}
