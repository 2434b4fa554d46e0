//! From the program of the former contract to this one, without a packet lost.

use std::path::Path;

use anabranch_policy::{
    abi::{self, BINS, FormerSpreading, FormerTableOfBins, Spreading, Sublinks},
    spread::Table,
};
use aya::programs::TcAttachType;

use super::object::Object;
use crate::{
    Error, attach,
    object::{pinned_array, remove_pins, reuse},
};

/// Takes over what the former version of an `instance` left, into its `folder` of today. Nothing to do is no error.
///
/// # Errors
/// The kernel refuses a step: the former program goes on, or the next call does.
pub fn take_over(instance: &Path, folder: &Path) -> Result<(), Error> {
    let version = abi::TRUNK_FORMER_VERSION;
    let former = instance.join(format!("trunk-v{version}"));
    if !former.join("bins").exists() {
        return Ok(());
    }
    reuse(&former, folder, anabranch_policy::trunk_maps(), version)?;
    let (mut object, _) = Object::load(folder)?;
    convert(&former, &mut object)?;
    for ifindex in attach::attached(&former)? {
        if attach::is_alive(&former, ifindex) {
            let (program, end) = (object.program()?, TcAttachType::Egress);
            attach::attach_before(program, &former, folder, ifindex, end)?;
        }
    }
    remove_pins(&former)
}

/// What user space told the former program.
fn convert(former: &Path, object: &mut Object) -> Result<(), Error> {
    let table = pinned_array(former, "bins")?.get(&0, 0);
    let table = table_of(&table.map_err(Error::map("bins"))?);
    object.bins.set(0, table, 0).map_err(Error::map("bins"))?;
    let spreading = pinned_array(former, "spreading")?.get(&0, 0);
    let spreading = spreading_of(&spreading.map_err(Error::map("spreading"))?);
    let set = object.spreading.set(0, spreading, 0);
    set.map_err(Error::map("spreading"))
}

fn table_of(former: &FormerTableOfBins) -> Table {
    let mut table = [0; BINS];
    for (now, before) in table.iter_mut().zip(former.sublink) {
        *now = before.into();
    }
    table
}

fn spreading_of(former: &FormerSpreading) -> Spreading {
    Spreading {
        sublinks: Sublinks {
            usable: former.usable.into(),
            count: former.count,
            zero: 0,
            weight: former.weight,
        },
        spread: former.spread,
        zero: 0,
        flowlet_gap_ns: former.flowlet_gap_ns,
        quantum: former.quantum,
    }
}
