//! From the programs of the former contract to these, without a flow or a packet lost.
//!
//! Which maps have changed their shape stands in `bpf/include/versions.h`: the others are pinned anew and used on. What user
//! space tells the programs is converted here. Then the new programs are attached before the former ones, and one write has them
//! carry all packets. Flows come over with their next packet, or with the walk over the former tables (`bpf/lib/former.h`).
//!
//! Every step may be done twice: who is killed between two of them is followed by one who does all of them again.

use std::{
    iter,
    path::{Path, PathBuf},
    time::Instant,
};

use anabranch_policy::abi::{
    self, FlowKey, FormerChoice, FormerDevice, FormerFlow, FormerLink, FormerRoute, FormerSettings,
};
use anabranch_policy::{Family, session_word};
use aya::{
    maps::{Array, HashMap, Map, MapData, MapError, PerCpuArray, lpm_trie::LpmTrie},
    programs::TcAttachType,
};

use crate::{
    Error, RouteTable, Sizes, attach,
    batch::Reader,
    clock::monotonic_now,
    leftovers,
    object::{
        self, ENTRIES_PER_EMBRYO, ENTRIES_PER_FLOW, LAYOUT, Object, pinned, pinned_array,
        upgrade_object,
    },
    walk::Walk,
};

/// Takes over what the former version of an `instance` left, into its `folder` of today. Nothing to do is no error.
///
/// # Errors
/// The kernel refuses a step. Before the new programs carry the packets the former ones go on; afterwards the next call goes on.
pub fn take_over(instance: &Path, folder: &Path, sizes: Sizes) -> Result<(), Error> {
    let former = instance.join(format!("v{}", abi::FORMER_VERSION));
    if !former.join("flows").exists() {
        return Ok(());
    }
    if let Some(misfit) = misfit(&former)? {
        tracing::warn!(
            "{misfit}: the flows of the former version cannot be taken over; they are forgotten"
        );
        return Ok(());
    }
    leftovers::set_aside(folder, &upgrade_object(), &LAYOUT)?;
    let began = Instant::now();
    object::reuse(
        &former,
        folder,
        anabranch_policy::maps(),
        abi::FORMER_VERSION,
    )?;
    let mut upgrade = Upgrade::open(&former, folder, sizes)?;
    if !upgrade.is_taken()? {
        upgrade.convert()?;
    }
    upgrade.stand_by()?;
    upgrade.take()?;
    let left = upgrade.migrate()?;
    let abi::Upgrade {
        flows, permissions, ..
    } = upgrade.state()?;
    object::remove_pins(&former)?;
    tracing::info!(flows, permissions, took = ?began.elapsed(), "took over the flows of the former version");
    if left > 0 {
        tracing::warn!(
            left,
            "had no room for flows and permissions of the former version: they are lost"
        );
    }
    Ok(())
}

/// What keeps the flows from being taken over, in words.
fn misfit(former: &Path) -> Result<Option<String>, Error> {
    let converted = [
        ("choice", size_of::<FormerChoice>()),
        ("devices", size_of::<FormerDevice>()),
        ("links", size_of::<FormerLink>()),
        ("routes", size_of::<FormerRoute>()),
        ("settings", size_of::<FormerSettings>()),
        ("reasons", size_of::<u64>()),
        ("sessions", size_of::<Places>()),
    ];
    let used_on = (anabranch_policy::maps(), abi::FORMER_VERSION);
    leftovers::first_misfit(former, &upgrade_object(), used_on, &converted)
}

struct Upgrade {
    former: PathBuf,
    folder: PathBuf,
    object: Object,
    walk: Walk<abi::Upgrade>,
}

impl Upgrade {
    fn open(former: &Path, folder: &Path, sizes: Sizes) -> Result<Self, Error> {
        let mut object = Object::load_beside(former, folder, at_least(sizes, former)?)?;
        let walk = Walk::open(&mut object, folder, "migrate", "upgrade", "visits")?;
        Ok(Upgrade {
            former: former.to_owned(),
            folder: folder.to_owned(),
            object,
            walk,
        })
    }

    fn state(&self) -> Result<abi::Upgrade, Error> {
        self.walk.arguments()
    }

    fn is_taken(&self) -> Result<bool, Error> {
        Ok(self.state()?.taken != 0)
    }

    // ---- before

    /// What user space told the former programs, which knew one family.
    fn convert(&mut self) -> Result<(), Error> {
        self.convert_devices()?;
        self.convert_links()?;
        self.convert_routes()?;
        self.convert_reasons()?;
        self.convert_settings()?;
        let former: Array<_, FormerChoice> = pinned_array(&self.former, "choice")?;
        let now = former.get(&0, 0).map_err(Error::map("choice"))?;
        let place = abi::choice_place(0, Family::V4);
        let set = self.object.maps.choice.set(place, choice_of(&now), 0);
        set.map_err(Error::map("choice"))
    }

    fn convert_devices(&mut self) -> Result<(), Error> {
        let former: Array<_, FormerDevice> = pinned_array(&self.former, "devices")?;
        for device in former.iter() {
            let device = device.map_err(Error::map("devices"))?;
            if device.ifindex != 0 {
                self.object.maps.devices.insert(device_of(&device))?;
            }
        }
        Ok(())
    }

    fn convert_links(&mut self) -> Result<(), Error> {
        let former: Array<_, FormerLink> = pinned_array(&self.former, "links")?;
        for (link, former) in (0..).zip(former.iter()) {
            let entry = link_of(&former.map_err(Error::map("links"))?);
            let place = abi::link_place(link, Family::V4);
            let set = self.object.maps.links.set(place, entry, 0);
            set.map_err(Error::map("links"))?;
        }
        Ok(())
    }

    fn convert_routes(&mut self) -> Result<(), Error> {
        let map = Map::LpmTrie(pinned(&self.former, "routes")?);
        let former: LpmTrie<_, abi::Addr, FormerRoute> =
            map.try_into().map_err(Error::map("routes"))?;
        let mut now = RouteTable::open(&self.folder)?;
        for route in former.iter() {
            let (prefix, route) = route.map_err(Error::map("routes"))?;
            let prefix = (prefix.prefix_len(), prefix.data());
            now.put(prefix, route_of(&route), route.via)?;
        }
        Ok(())
    }

    fn convert_settings(&mut self) -> Result<(), Error> {
        let former: Array<_, FormerSettings> = pinned_array(&self.former, "settings")?;
        let former = former.get(&0, 0).map_err(Error::map("settings"))?;
        let set = self.object.maps.settings.set(0, settings_of(&former), 0);
        set.map_err(Error::map("settings"))
    }

    /// What the former programs count after this is not told.
    fn convert_reasons(&mut self) -> Result<(), Error> {
        let map = Map::PerCpuArray(pinned(&self.former, "reasons")?);
        let former: PerCpuArray<_, u64> = map.try_into().map_err(Error::map("reasons"))?;
        for number in 0..object::max_entries(&self.former, "reasons")? {
            let packets = former.get(&number, 0).map_err(Error::map("reasons"))?;
            if let Some(number) = reason_of(number) {
                let set = self.object.maps.reasons.set(number, packets, 0);
                set.map_err(Error::map("reasons"))?;
            }
        }
        Ok(())
    }

    /// Where a former program stands, ours stands before it and lets everything pass.
    fn stand_by(&mut self) -> Result<(), Error> {
        for ifindex in attach::attached(&self.former)? {
            let known = self.object.maps.devices.get(ifindex)?;
            let Some(device) = known.filter(|_| attach::is_alive(&self.former, ifindex)) else {
                continue;
            };
            let program = self.object.classifier(attach::program_for(&device))?;
            attach::attach_before(
                program,
                &self.former,
                &self.folder,
                ifindex,
                TcAttachType::Ingress,
            )?;
        }
        Ok(())
    }

    /// From here on our programs carry the packets. Counts are moved at the last moment: links are compared by them.
    fn take(&mut self) -> Result<(), Error> {
        self.copy_sessions()?;
        let state = self.walk.run(&[], self.state()?)?;
        self.walk.tell(abi::Upgrade { taken: 1, ..state })?;
        attach::detach_all(&self.former)?;
        self.copy_sessions()
    }

    /// Those that are not known by now.
    fn copy_sessions(&self) -> Result<(), Error> {
        let now_ns = monotonic_now().as_nanos() as u64;
        let former = sessions(&self.former)?;
        let mut now = sessions(&self.folder)?;
        for row in former.iter() {
            let (key, places) = row.map_err(Error::map("sessions"))?;
            let places = places.map(|place| session_of(place, now_ns));
            match now.insert(key, places, NO_EXIST) {
                Err(error) if !is_there(&error) => return Err(Error::map("sessions")(error)),
                _ => {}
            }
        }
        Ok(())
    }

    // ---- after

    /// Has every flow and permission come over. How many had no room.
    fn migrate(&mut self) -> Result<u64, Error> {
        let mut left = u64::MAX;
        loop {
            let met = self.pass()?;
            if met == 0 || met >= left {
                return Ok(met);
            }
            left = met;
        }
    }

    /// One walk over the former tables: how many flows and permissions there were. Embryos first, which may be confirmed meanwhile.
    fn pass(&mut self) -> Result<u64, Error> {
        let mut met = 0;
        for table in ["embryos", "flows", "permissions"] {
            let data = pinned(&self.former, table)?;
            let mut reader = Reader::<FlowKey, FormerFlow>::new();
            let failed = |source| Error::Batch { map: table, source };
            while reader.read_on(data.fd()).map_err(failed)? {
                let keys: Vec<FlowKey> = reader
                    .entries()
                    .map(|(key, _)| key)
                    .filter(|key| key.side == abi::SIDE_LAN || table == "permissions")
                    .collect();
                met += keys.len() as u64;
                self.bring(&keys)?;
            }
        }
        self.bring(&[])?;
        Ok(met)
    }

    fn bring(&mut self, keys: &[FlowKey]) -> Result<(), Error> {
        for keys in keys.chunks(abi::VISIT_MAX) {
            let state = abi::Upgrade {
                count: keys.len() as u32,
                ..self.state()?
            };
            self.walk.run(keys, state)?;
        }
        Ok(())
    }
}

/// Tables made now hold what the former ones do.
fn at_least(sizes: Sizes, former: &Path) -> Result<Sizes, Error> {
    let flows = object::max_entries(former, "flows")? / ENTRIES_PER_FLOW;
    let embryos = object::max_entries(former, "embryos")? / ENTRIES_PER_EMBRYO;
    Ok(Sizes {
        flows_max: sizes.flows_max.max(flows),
        embryos_max: sizes.embryos_max.max(embryos),
        ..sizes
    })
}

// ---- values of the former contract

fn device_of(former: &FormerDevice) -> abi::Device {
    abi::Device {
        ifindex: former.ifindex,
        link: former.link.into(),
        role: former.role,
        layer3: former.layer3,
        mtu: former.mtu,
        address: [former.address, abi::Addr::default()],
    }
}

fn link_of(former: &FormerLink) -> abi::Link {
    abi::Link {
        external: former.external,
        gateway: former.gateway,
        prefix: abi::Addr::default(),
        prefix_len: 0,
        ifindex: former.ifindex,
        mtu: former.mtu,
        flags: former.flags,
    }
}

fn route_of(former: &FormerRoute) -> abi::Route {
    abi::Route {
        link: former.link.into(),
        verdict: former.verdict,
        zero: 0,
        ifindex: former.ifindex,
        via: 0,
    }
}

fn settings_of(former: &FormerSettings) -> abi::Settings {
    abi::Settings {
        tcp_established_ns: former.tcp_established_ns,
        tcp_transitory_ns: former.tcp_transitory_ns,
        udp_ns: former.udp_ns,
        icmp_ns: former.icmp_ns,
        embryo_ns: former.embryo_ns,
        forwards_kernel: former.forwards_kernel,
        quota_per_host: former.quota_per_host,
        flows_max: former.flows_max,
        port_min: former.port_min,
        port_max: former.port_max,
        ephemeral_min: former.ephemeral_min,
        ephemeral_max: former.ephemeral_max,
        udp_filter_open: former.udp_filter_open,
        fallback_mark: former.fallback_mark,
        embryos_per_host: former.embryos_per_host,
        flows_per_device: former.flows_per_device,
        embryos_per_device: former.embryos_per_device,
        lan_sources_loose: former.lan_sources_loose,
        routed: former.routed,
        reserved: former.reserved,
        routes_kernel: 0,
        zero: 0,
    }
}

fn choice_of(former: &FormerChoice) -> abi::Choice {
    let mut choice = abi::Choice {
        dispatch: former.dispatch,
        load: former.load,
        count: former.count,
        syn_retry: former.syn_retry,
        granularity: former.granularity,
        stick: former.stick,
        usable: abi::Set::of_word(former.usable.into()),
        working: abi::Set::of_word(former.usable.into()),
        except: former.except,
        ..abi::Choice::default()
    };
    choice.target[..former.target.len()].copy_from_slice(&former.target);
    choice
}

/// Reasons that are new; the others stand in the order they had.
const NEW_REASONS: [&str; 25] = [
    "ROUTING_RULES",
    "PREFIX_OUT",
    "PREFIX_IN",
    "BAD_SOURCE",
    "ROUTED_OUT",
    "ROUTED_IN",
    "CHALLENGE",
    "FALLBACK_CLASS",
    "CLASS_DROPPED",
    "NO_CLASS_LINK",
    "REFUSED_CLASS",
    "RACE_OVER",
    "RACE_LOST",
    "PROBE_OUT",
    "SURVEYED",
    "PROBE_LATE",
    "PROBE_VAIN",
    "PROBE_ANSWERED",
    "OTHER_HOST",
    "LOOPED_BACK",
    "TRANSIT_IN",
    "DHCP",
    "NO_LAN_ADDRESS",
    "FALLBACK_HELPER",
    "FALLBACK_ROUTES",
];

/// Behind it stood one that is no more: of what the kernel was not asked about.
const BEFORE_GONE: &str = "STRAY_SYN";

/// The number of a former reason; none of one that is no more.
fn reason_of(former: u32) -> Option<u32> {
    let numbered = (0..).zip(anabranch_policy::reasons());
    let kept = numbered.filter(|(_, reason)| !NEW_REASONS.contains(&reason.name));
    let mut known = kept.flat_map(|(number, reason)| {
        let gone = (reason.name == BEFORE_GONE).then_some(None);
        iter::once(Some(number)).chain(gone)
    });
    known.nth(former as usize).flatten()
}

/// `struct ab_session_key`, and the places of `struct ab_sessions`.
type SessionKey = [u8; 32];
type Places = [u64; 16];

fn sessions(folder: &Path) -> Result<HashMap<MapData, SessionKey, Places>, Error> {
    let map = Map::LruHashMap(pinned(folder, "sessions")?);
    map.try_into().map_err(Error::map("sessions"))
}

/// The link was in the lowest 8 bits, and bit 8 was set; the trace above them, of which the upper part is what it is now. When its
/// last flow began nobody knows: now.
fn session_of(former: u64, now_ns: u64) -> u64 {
    match former {
        0 => 0,
        _ => session_word(former, former as u16 & 0xff, now_ns),
    }
}

/// `BPF_NOEXIST`.
const NO_EXIST: u64 = 1;

fn is_there(error: &MapError) -> bool {
    let MapError::SyscallError(error) = error else {
        return false;
    };
    error.io_error.raw_os_error() == Some(libc::EEXIST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_keeps_its_link_and_what_both_keep_of_its_trace() {
        let now_ns = 0x1234 << 32;
        assert_eq!(
            session_of(0xfedc_ba98_7654_3103, now_ns),
            0xfedc_ba98_7712_3403
        );
        assert_eq!(session_of(0, now_ns), 0);
    }
}
