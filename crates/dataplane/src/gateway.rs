//! The gateway as user space holds it.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
};

use anabranch_core::{
    ClassId, ClassSet, DataPlane, Ended, Family, LinkCounters, LinkId, Opening, PerFamily, Question,
};
use anabranch_policy::{abi, paths::syn_sent};
use aya::maps::{HashMap, Map, MapData, MapError};
use aya::programs::{SchedClassifier, TcAttachType};

use crate::{
    Error, FlowRow, ReasonCount, Route, RouteTable, Sizes, Swept, Walker, attach,
    clock::{Clock, monotonic_now},
    ending::Which,
    leftovers,
    object::{self, Object, gateway_object},
    pins::Pinned,
    reasons,
    run::{self, Marked, Ran},
    sweep::Occupancy,
    traffic::Carried,
    upgrade,
};

/// The program that hears what the kernel itself forwards to the LAN.
const FORWARDED: &str = "forwarded";

/// What a gateway is made of.
pub struct Build {
    /// Its programs, as clang made them.
    pub object: Vec<u8>,
    /// That its programs go by.
    pub clock: Clock,
    /// Each program of packets is loaded when it is first run or attached, as for tests that run few of them; else all are
    /// loaded before anything is changed.
    pub piecewise: bool,
}

impl Default for Build {
    /// The programs that this crate carries, which go by CLOCK_MONOTONIC.
    fn default() -> Self {
        Build {
            object: gateway_object(),
            clock: Box::new(monotonic_now),
            piecewise: false,
        }
    }
}

/// What a link needs to carry packets of one family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkPath {
    /// The address flows have on this link.
    pub external: IpAddr,
    /// None: destinations are neighbours.
    pub gateway: Option<IpAddr>,
    /// IPv6: a prefix that is routed to us by this link, and its length. Flows have addresses of it in place of those of the LAN's
    /// prefix (RFC 6296); none: all have [`external`](Self::external).
    pub prefix: Option<(Ipv6Addr, u8)>,
    /// Who is outside may begin, by the prefix.
    pub inbound: bool,
    /// Of the device that leads there.
    pub ifindex: u32,
    /// In bytes of IP packet.
    pub mtu: u32,
    /// A layer-3 device, without neighbours.
    pub point_to_point: bool,
    /// Another link is on the same segment: what is for this one's address may come by the other's device.
    pub shares_segment: bool,
}

/// What a device is to the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A part of the LAN.
    Lan {
        /// The gateway's own there, each of its family: the sources of ICMP errors towards its hosts.
        addresses: PerFamily<Option<IpAddr>>,
    },
    /// The device of this link.
    Link(LinkId),
}

impl Role {
    /// Of a part of the LAN in which the gateway has these addresses, of which the first of each family counts.
    pub fn lan(own: impl IntoIterator<Item = IpAddr>) -> Role {
        let mut addresses = PerFamily::<Option<IpAddr>>::default();
        for address in own {
            addresses[Family::from(address)].get_or_insert(address);
        }
        Role::Lan { addresses }
    }
}

/// The loaded gateway of one instance.
pub struct Gateway {
    object: Object,
    pins: PathBuf,
    instance: PathBuf,
    occupancy: Occupancy,
    unconfirmed_max: u32,
    walker: Arc<Walker>,
    /// One more than the greatest number of a class that ever had a choice: what the counters are read of.
    classes: u8,
    /// [`abi::Settings::forwards_kernel`], as the programs were told.
    forwards: bool,
}

/// What a class's flows came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassCounters {
    /// By link, both directions, of all families.
    pub traffic: Vec<abi::Traffic>,
    /// Flows and packets that opened none.
    pub counts: abi::Class,
}

impl Gateway {
    /// Loads the programs, or adopts what another process of this instance left behind, be it of the version before. The
    /// flag says which: adopted flows and attachments go on as they are, with these programs, and keep the tables' sizes.
    ///
    /// `pins` is the instance's folder below `/sys/fs/bpf`.
    ///
    /// # Errors
    /// Missing privileges, a kernel before 6.1, pins that cannot be made.
    pub fn open(pins: &Path, sizes: Sizes) -> Result<(Self, bool), Error> {
        Self::open_build(pins, sizes, Build::default())
    }

    /// The same with programs that were built otherwise.
    ///
    /// # Errors
    /// As [`Gateway::open`].
    pub fn open_build(pins: &Path, sizes: Sizes, build: Build) -> Result<(Self, bool), Error> {
        let of = (Pinned::Gateway, abi::ABI_VERSION);
        object::load_in_folder(pins, of, |folder| Self::load(pins, folder, sizes, build))
    }

    fn load(
        instance: &Path,
        folder: &Path,
        sizes: Sizes,
        build: Build,
    ) -> Result<(Self, bool), Error> {
        leftovers::set_aside(folder, &build.object, &object::LAYOUT)?;
        upgrade::take_over(instance, folder, sizes)?;
        let mut object = Object::open(&build.object, folder, sizes)?;
        if !build.piecewise {
            object.load_all()?;
        }
        let adopted = object.adopted;
        let walker = Arc::new(Walker::open(&mut object, folder, build.clock)?);
        let mut gateway = Gateway {
            occupancy: Occupancy::open(folder)?,
            unconfirmed_max: object::max_entries(folder, "unconfirmed_order")?,
            object,
            pins: folder.to_owned(),
            instance: instance.to_owned(),
            walker,
            classes: 1,
            forwards: false,
        };
        gateway.forwards = gateway.told_settings()?.forwards_kernel != 0;
        let names = gateway.class_names()?;
        let named = names.iter().rposition(Option::is_some);
        gateway.classes += named.map_or(0, |last| last as u8);
        if adopted {
            gateway.refresh_attachments()?;
        }
        Ok((gateway, adopted))
    }

    fn told_settings(&self) -> Result<abi::Settings, Error> {
        let told = self.object.maps.settings.get(&0, 0);
        told.map_err(Error::map("settings"))
    }

    /// Gives the attachments the programs of this process, and those that the settings want. A device of which nothing is known, as what
    /// was known of it could not be used, keeps its program until somebody attaches or detaches it.
    fn refresh_attachments(&mut self) -> Result<(), Error> {
        for ifindex in attach::attached(&self.pins)? {
            let is_alive = attach::is_alive(&self.pins, ifindex);
            match self.object.maps.devices.get(ifindex)? {
                Some(device) if is_alive => self.attach_program(&device)?,
                None if is_alive => {}
                _ => self.detach(ifindex)?,
            }
        }
        Ok(())
    }

    /// Confirmed flows the table holds.
    pub fn flows_max(&self) -> u64 {
        self.occupancy.flows_max
    }

    /// Limits beyond the tables' sizes are lowered to what those hold; a host's share of the unconfirmed flows, to half of them.
    ///
    /// # Errors
    /// The kernel refuses the map update, or, where it is from now on to forward by itself or no more, an attachment.
    pub fn set_settings(&mut self, settings: &abi::Settings) -> Result<(), Error> {
        let settings = abi::Settings {
            flows_max: settings.flows_max.min(self.flows_max() as u32),
            unconfirmed_per_host: settings.unconfirmed_per_host.min(self.unconfirmed_max / 2),
            ..*settings
        };
        let told = self.object.maps.settings.set(0, settings, 0);
        told.map_err(Error::map("settings"))?;
        let forwards = settings.forwards_kernel != 0;
        if std::mem::replace(&mut self.forwards, forwards) != forwards {
            self.refresh_attachments()?;
        }
        Ok(())
    }

    /// Tells the path of a link for a family, or that it has none.
    ///
    /// # Errors
    /// The kernel refuses the map update.
    pub fn set_link(
        &mut self,
        link: LinkId,
        family: Family,
        path: Option<&LinkPath>,
    ) -> Result<(), Error> {
        let entry = path.map(link_entry).unwrap_or_default();
        let place = abi::link_place(link.0, family);
        let links = &mut self.object.maps.links;
        links.set(place, entry, 0).map_err(Error::map("links"))
    }

    /// Replaces all routes by difference.
    ///
    /// # Errors
    /// The kernel refuses the map update.
    pub fn set_routes(&mut self, routes: &[Route]) -> Result<(), Error> {
        self.route_table()?.replace(routes)
    }

    /// The same table, for somebody who writes it in place of [`set_routes`](Self::set_routes), perhaps in another thread.
    ///
    /// # Errors
    /// The pin cannot be opened.
    pub fn route_table(&self) -> Result<RouteTable, Error> {
        RouteTable::open(&self.pins)
    }

    /// Replaces, by difference, the hardware addresses that devices above the gateway's have, each with the index of the
    /// gateway's: frames for them are as those for the device itself.
    ///
    /// # Errors
    /// The kernel refuses the map update; more than [`abi::OWN_MACS_MAX`] do not fit.
    pub fn set_own_macs(&mut self, macs: &BTreeSet<(u32, [u8; 6])>) -> Result<(), Error> {
        let failed = || Error::map("own_macs");
        let map = &mut self.object.maps.own_macs;
        let known: Result<Vec<abi::OwnMac>, _> = map.keys().collect();
        let known = known.map_err(failed())?;
        let is_wanted = |key: &abi::OwnMac| macs.contains(&(key.ifindex, key.mac));
        for gone in known.iter().filter(|key| !is_wanted(key)) {
            map.remove(gone).map_err(failed())?;
        }
        for &(ifindex, mac) in macs {
            let key = abi::OwnMac {
                ifindex,
                mac,
                zero: 0,
            };
            map.insert(key, 1, 0).map_err(failed())?;
        }
        Ok(())
    }

    /// Tells which class new flows are of.
    ///
    /// # Errors
    /// The kernel refuses the map update.
    pub fn set_rules(&mut self, rules: &abi::Rules) -> Result<(), Error> {
        let rules_map = &mut self.object.maps.rules;
        rules_map.set(0, rules, 0).map_err(Error::map("rules"))
    }

    /// By number, as an earlier process of this instance has set them.
    ///
    /// # Errors
    /// The kernel refuses the read.
    pub fn class_names(&self) -> Result<Vec<Option<String>>, Error> {
        let names = self.object.maps.class_names.iter();
        let named = names.map(|name| Ok(name.map_err(Error::map("class_names"))?.name()));
        named.collect()
    }

    /// Gives a class its name, whose longest is [`abi::CLASS_NAME_MAX`] bytes, or takes it away.
    ///
    /// # Errors
    /// The kernel refuses the map update.
    pub fn set_class_name(&mut self, class: u8, name: Option<&str>) -> Result<(), Error> {
        let value = abi::ClassName::of(name.unwrap_or_default());
        let names = &mut self.object.maps.class_names;
        names
            .set(class.into(), value, 0)
            .map_err(Error::map("class_names"))
    }

    /// By number, of every class that was ever used.
    ///
    /// # Errors
    /// The kernel refuses the read.
    pub fn class_counters(&self) -> Result<Vec<ClassCounters>, Error> {
        let carried = self.carried()?;
        let class = |class: u8| {
            let counts = self.object.maps.classes.get(&class.into(), 0);
            let of_link = |link| {
                let families = Family::ALL.map(|family| carried.of(class, link, family));
                families.into_iter().sum()
            };
            Ok(ClassCounters {
                traffic: all_links().map(of_link).collect(),
                counts: counts.map_err(Error::map("classes"))?,
            })
        };
        (0..self.classes).map(class).collect()
    }

    fn carried(&self) -> Result<Carried, Error> {
        Carried::read(&self.object.maps.traffic, self.classes)
    }

    /// Puts the right program at a device's ingress, and at the egress of a LAN device another, where the kernel has forwards of its
    /// own; a device that has them keeps them.
    ///
    /// # Errors
    /// No such device, or the kernel refuses. Nothing is left of a device that had no program.
    pub fn attach(
        &mut self,
        ifindex: u32,
        role: Role,
        layer3: bool,
        mtu: u32,
    ) -> Result<(), Error> {
        let device = device_entry(ifindex, role, layer3, mtu);
        let is_new = self.object.maps.devices.get(ifindex)?.is_none();
        self.object.maps.devices.insert(device)?;
        let attached = self.attach_program(&device);
        if attached.is_err() && is_new {
            // What attaching met says more than what this may meet.
            let _ = self.detach(ifindex);
        }
        attached
    }

    fn attach_program(&mut self, device: &abi::Device) -> Result<(), Error> {
        let (pins, ifindex) = (&self.pins, device.ifindex);
        let program = self.object.classifier(attach::program_for(device))?;
        attach::attach(program, pins, ifindex, TcAttachType::Ingress)?;
        if self.forwards && device.role == abi::Role::Lan.into() {
            attach::attach_beside(self.object.classifier(FORWARDED)?, pins, ifindex)
        } else {
            attach::detach_beside(pins, ifindex)
        }
    }

    /// Takes the programs from a device. Nothing to do is no error.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn detach(&mut self, ifindex: u32) -> Result<(), Error> {
        attach::detach(&self.pins, ifindex)?;
        self.object.maps.devices.remove(ifindex)
    }

    /// The devices that have a program of this instance.
    ///
    /// # Errors
    /// The pins cannot be read.
    pub fn attached(&self) -> Result<Vec<u32>, Error> {
        attach::attached(&self.pins)
    }

    /// What takes long with many flows, for another thread to do.
    pub fn walker(&self) -> Arc<Walker> {
        Arc::clone(&self.walker)
    }

    /// As [`Walker::sweep`].
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn sweep(&mut self) -> Result<Swept, Error> {
        self.walker.sweep()
    }

    /// As [`Walker::flows`].
    ///
    /// # Errors
    /// The kernel refuses the read.
    pub fn flows(&self) -> Result<Vec<FlowRow>, Error> {
        self.walker.flows()
    }

    /// The table is so full that closed flows are to go at once.
    ///
    /// # Errors
    /// The kernel refuses the read.
    pub fn is_pressed(&self) -> Result<bool, Error> {
        self.occupancy.is_pressed()
    }

    /// Confirmed flows in the table, closed ones that linger included.
    ///
    /// # Errors
    /// The kernel refuses the read.
    pub fn confirmed(&self) -> Result<u64, Error> {
        self.occupancy.confirmed()
    }

    /// Runs a forwarding program (`lan`, `lan_layer3`, `wan`) or `explain` on an Ethernet frame `repeat` times, as if it had come in
    /// on the loopback device of the caller's namespace (`BPF_PROG_TEST_RUN`). State changes; nothing is transmitted.
    ///
    /// # Errors
    /// The kernel refuses the frame: shorter than an Ethernet header, say.
    pub fn run(&mut self, program: &'static str, frame: &[u8], repeat: u32) -> Result<Ran, Error> {
        let program_of = self.object.classifier(program)?;
        run::run(program_of, program, frame, Marked::ByOthers(0), repeat)
    }

    /// The same, once, of a frame that bears a mark.
    pub fn run_marked(
        &mut self,
        program: &'static str,
        frame: &[u8],
        marked: Marked,
    ) -> Result<Ran, Error> {
        run::run(self.object.classifier(program)?, program, frame, marked, 1)
    }

    /// A forwarding program, for those who run it with a context of their own.
    ///
    /// # Errors
    /// There is no program of that name.
    pub fn program(&mut self, name: &'static str) -> Result<&mut SchedClassifier, Error> {
        self.object.classifier(name)
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

    /// A question is about to leave, from a local port: the RST that answers it has this number. Returns whether none before, to
    /// the same end over the same link, is still without an answer.
    ///
    /// # Errors
    /// The kernel refuses the write.
    pub fn ask(
        &mut self,
        question: &Question,
        local_port: u16,
        number: u32,
    ) -> Result<bool, Error> {
        let key = abi::QuestionKey {
            remote: question.to.ip().into(),
            remote_port: abi::BePort::new(question.to.port()),
            local_port: abi::BePort::new(local_port),
            link: question.link.0.into(),
        };
        let value = abi::Question {
            number,
            sent: syn_sent(self.walker.now().as_nanos() as u64),
            class: question.class.0.into(),
            ..Default::default()
        };
        let questions = &mut self.object.maps.questions;
        // The programs take out what is answered.
        let answered = questions.get(&key, 0).is_err();
        let asked = match put_question(questions, key, value) {
            Err(error) if error.is_full() => {
                forget_questions(questions)?;
                put_question(questions, key, value)
            }
            asked => asked,
        };
        asked?;
        Ok(answered)
    }

    /// Why packets left, all CPUs added up.
    ///
    /// # Errors
    /// The kernel refuses the read.
    pub fn reasons(&self) -> Result<Vec<ReasonCount>, Error> {
        reasons::read(&self.object.maps.reasons, anabranch_policy::reasons())
    }

    /// Detaches everything and removes the pins: the host forwards as if this gateway had never been. In the network
    /// namespace of its devices.
    ///
    /// # Errors
    /// The pins cannot be removed.
    pub fn close(self) -> Result<(), Error> {
        object::remove_folder(&self.instance, &self.pins)
    }
}

impl DataPlane for Gateway {
    type Error = Error;

    fn counters(&mut self) -> Result<Vec<LinkCounters>, Error> {
        let gauges = self.object.maps.gauges.get(&0, 0);
        let gauges = gauges.map_err(Error::map("gauges"))?;
        let carried = self.carried()?;
        let of_classes = |link, family| -> abi::Traffic {
            let classes = 0..self.classes;
            classes.map(|class| carried.of(class, link, family)).sum()
        };
        let counters = |(link, &flows)| LinkCounters {
            traffic: PerFamily::from_fn(|family| of_classes(link, family)),
            flows,
        };
        Ok(all_links().zip(&gauges.target).map(counters).collect())
    }

    fn install(
        &mut self,
        class: ClassId,
        family: Family,
        choice: &abi::Choice,
    ) -> Result<(), Error> {
        self.classes = self.classes.max(class.0 + 1);
        let place = abi::choice_place(class.0, family);
        let choices = &mut self.object.maps.choice;
        choices.set(place, *choice, 0).map_err(Error::map("choice"))
    }

    fn openings(&mut self) -> Result<Vec<Opening>, Error> {
        let mut openings = Vec::new();
        while let Some(item) = self.object.maps.openings.next() {
            // SAFETY: the program writes records of exactly this structure of integers.
            let opened = unsafe { std::ptr::read_unaligned(item.as_ptr().cast::<abi::Opened>()) };
            openings.push(Opening {
                class: ClassId(opened.class),
                to: SocketAddr::new(opened.remote.ip(), opened.remote_port.get()),
            });
        }
        Ok(openings)
    }

    /// As [`Walker::end_flows`].
    fn end_flows(&mut self, class: ClassId, family: Family, link: LinkId) -> Result<Ended, Error> {
        let classes = ClassSet::from_iter([class]);
        let walker = &self.walker;
        walker.end_flows(link, family, classes, Which::All, walker.now())
    }
}

type Questions = HashMap<MapData, abi::QuestionKey, abi::Question>;

fn put_question(
    questions: &mut Questions,
    key: abi::QuestionKey,
    value: abi::Question,
) -> Result<(), Error> {
    let put = questions.insert(key, value, 0);
    put.map_err(Error::map("questions"))
}

/// Most were never answered: what is asked now is asked again in a while.
fn forget_questions(questions: &mut Questions) -> Result<(), Error> {
    let asked: Vec<_> = questions.keys().filter_map(Result::ok).collect();
    for key in asked {
        // It may have been answered just now.
        let _ = questions.remove(&key);
    }
    Ok(())
}

fn all_links() -> impl Iterator<Item = LinkId> {
    (0..abi::MAX_LINKS as u16).map(LinkId)
}

fn link_entry(path: &LinkPath) -> abi::Link {
    let mut flags = abi::LINK_PRESENT;
    if path.point_to_point {
        flags |= abi::LINK_POINT_TO_POINT;
    }
    if path.inbound {
        flags |= abi::LINK_INBOUND;
    }
    if path.shares_segment {
        flags |= abi::LINK_SHARES_SEGMENT;
    }
    let prefix = path.prefix.map(|(prefix, _)| abi::Addr::from(prefix));
    abi::Link {
        external: path.external.into(),
        gateway: path.gateway.map(abi::Addr::from).unwrap_or_default(),
        prefix: prefix.unwrap_or_default(),
        prefix_len: path.prefix.map_or(0, |(_, length)| length.into()),
        ifindex: path.ifindex,
        mtu: path.mtu,
        flags,
    }
}

fn device_entry(ifindex: u32, role: Role, layer3: bool, mtu: u32) -> abi::Device {
    let (kind, link, addresses) = match role {
        Role::Lan { addresses } => (abi::Role::Lan, 0, addresses),
        Role::Link(link) => (abi::Role::Link, link.0, PerFamily::default()),
    };
    let address = |family| addresses[family].map(abi::Addr::from).unwrap_or_default();
    abi::Device {
        ifindex,
        role: kind.into(),
        link,
        layer3: layer3.into(),
        mtu,
        address: Family::ALL.map(address),
    }
}
