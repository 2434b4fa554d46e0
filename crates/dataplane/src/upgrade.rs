//! From the programs of the former contract to these, without a flow or a packet lost.
//!
//! Maps that are the same in both are pinned anew and used on. Then the new programs are attached before the former ones, and one
//! write has them carry all packets. Flows come over with their next packet, or with the walk over the former tables
//! (`bpf/lib/gateway/former.h`).
//!
//! Every step may be done twice: who is killed between two of them is followed by one who does all of them again.

use std::{
    path::{Path, PathBuf},
    time::Instant,
};

use anabranch_policy::abi::{self, FlowKey, FormerFlow};
use aya::programs::TcAttachType;

use crate::{
    Error, Sizes, attach,
    batch::Reader,
    leftovers,
    object::{self, LAYOUT, Object, pinned, upgrade_object},
    pins::Pinned,
    walk::Walk,
};

/// Pinned maps that have another shape or meaning than in the former contract. What they held comes over by the programs.
const CHANGED: [&str; 2] = ["flows", "permissions"];

/// Takes over what the former version of an `instance` left, into its `folder` of today. Nothing to do is no error.
///
/// # Errors
/// The kernel refuses a step. Before the new programs carry the packets the former ones go on; afterwards the next call goes on.
pub fn take_over(instance: &Path, folder: &Path, sizes: Sizes) -> Result<(), Error> {
    let former = Pinned::Gateway.folder(instance, abi::FORMER_VERSION);
    if !former.join("flows").exists() {
        return Ok(());
    }
    let object = upgrade_object();
    let Some(same) = leftovers::unchanged(&former, &object, &LAYOUT, &CHANGED)? else {
        return Ok(());
    };
    leftovers::set_aside(folder, &object, &LAYOUT)?;
    let began = Instant::now();
    object::reuse(&former, folder, &same)?;
    let mut upgrade = Upgrade::open(&former, folder, sizes)?;
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

struct Upgrade {
    former: PathBuf,
    folder: PathBuf,
    object: Object,
    walk: Walk<abi::Upgrade>,
}

impl Upgrade {
    fn open(former: &Path, folder: &Path, sizes: Sizes) -> Result<Self, Error> {
        let mut object = Object::load_beside(former, folder, at_least(sizes, former)?)?;
        let walk = Walk::open(
            object.sweeper("migrate")?,
            folder,
            "migrate",
            "upgrade",
            "visits",
        )?;
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

    /// From here on our programs carry the packets.
    fn take(&mut self) -> Result<(), Error> {
        let state = self.state()?;
        self.walk.tell(abi::Upgrade { taken: 1, ..state })?;
        attach::detach_all(&self.former)
    }

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

    /// One walk over the former tables: how many flows and permissions there were.
    fn pass(&mut self) -> Result<u64, Error> {
        let mut met = 0;
        for table in CHANGED {
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
    let unconfirmed_max = object::max_entries(former, "unconfirmed_order")?;
    Ok(Sizes {
        flows_max: sizes.flows_max.max(object::flows_max(former)?),
        unconfirmed_max: sizes.unconfirmed_max.max(unconfirmed_max),
        ..sizes
    })
}

#[cfg(test)]
mod tests {
    use aya_obj::{Map, Object, maps::PinningType};

    use super::*;
    use crate::gateway_object;

    const FORMER: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/former.bpf.o"));

    /// Type, bytes of key and value, and flags of a map, as clang has them.
    fn shape(map: &Map) -> (u32, u32, u32, u32) {
        let (key, value) = (map.key_size(), map.value_size());
        (map.map_type(), key, value, map.map_flags())
    }

    #[test]
    fn all_maps_but_those_that_have_changed_are_what_they_were() {
        let parse = |object: Vec<u8>| Object::parse(&object).unwrap().maps;
        let (former, ours) = (parse(FORMER.to_vec()), parse(gateway_object()));
        let upgrade = parse(upgrade_object());
        let pinned = ours
            .iter()
            .filter(|(_, map)| map.pinning() == PinningType::ByName);
        for (name, map) in pinned {
            let (was, is) = (shape(&former[name]), shape(map));
            if CHANGED.contains(&&**name) {
                assert_ne!(was, is, "{name}");
                assert_eq!(shape(&upgrade[&format!("former_{name}")]), was, "{name}");
            } else {
                assert_eq!(was, is, "{name}");
                assert_eq!(former[name].max_entries(), map.max_entries(), "{name}");
            }
        }
    }
}
