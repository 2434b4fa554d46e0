//! From the program of the former contract to this one, without a packet lost.

use std::{net::IpAddr, path::Path};

use anabranch_core::Family;
use anabranch_policy::{
    abi::{
        self, BINS, FormerSpreading, FormerSublink, FormerTableOfBins, MAX_LINKS, Spreading,
        Sublink, Sublinks,
    },
    spread::Table,
};
use aya::programs::TcAttachType;

use super::object::{Object, trunk_object};
use crate::{
    Error, attach, leftovers,
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
    if let Some(misfit) = misfit(&former)? {
        tracing::warn!(
            "{misfit}: the table of the former version cannot be taken over; it is forgotten"
        );
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

/// What keeps the table from being taken over, in words.
fn misfit(former: &Path) -> Result<Option<String>, Error> {
    let converted = [
        ("bins", size_of::<FormerTableOfBins>()),
        ("sublinks", size_of::<FormerSublink>()),
        ("spreading", size_of::<FormerSpreading>()),
    ];
    let used_on = (anabranch_policy::trunk_maps(), abi::TRUNK_FORMER_VERSION);
    leftovers::first_misfit(former, &trunk_object(), used_on, &converted)
}

/// What user space told the former program.
fn convert(former: &Path, object: &mut Object) -> Result<(), Error> {
    let table = pinned_array(former, "bins")?.get(&0, 0);
    let table = table_of(&table.map_err(Error::map("bins"))?);
    object.bins.set(0, table, 0).map_err(Error::map("bins"))?;
    let sublinks = pinned_array(former, "sublinks")?;
    for number in 0..MAX_LINKS as u32 {
        let sublink = sublinks.get(&number, 0).map_err(Error::map("sublinks"))?;
        let set = object.sublinks.set(number, sublink_of(&sublink), 0);
        set.map_err(Error::map("sublinks"))?;
    }
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

/// It led somewhere for IPv4 alone, or wherever its device leads.
fn sublink_of(former: &FormerSublink) -> Sublink {
    let mut sublink = Sublink {
        ifindex: former.ifindex,
        flags: former.flags & abi::SUBLINK_POINT_TO_POINT,
        ..Sublink::default()
    };
    if former.flags & abi::FORMER_SUBLINK_PRESENT != 0 && sublink.flags == 0 {
        sublink.next_hop[Family::V4.index()] = IpAddr::V4(former.next_hop.into()).into();
    }
    sublink
}

/// Which sublinks carry IPv6 the next look at the host tells.
fn spreading_of(former: &FormerSpreading) -> Spreading {
    let mut sublinks = [Sublinks {
        usable: former.usable.into(),
        count: former.count,
        zero: 0,
        weight: former.weight,
    }; 2];
    sublinks[Family::V6.index()].usable = 0;
    Spreading {
        sublinks,
        spread: former.spread,
        zero: 0,
        flowlet_gap_ns: former.flowlet_gap_ns,
        quantum: former.quantum,
    }
}
