//! From the program of the former contract to this one, without a packet lost: all maps go on as they are.

use std::path::Path;

use anabranch_policy::abi;
use aya::programs::TcAttachType;

use super::object::{LAYOUT, Object, trunk_object};
use crate::{
    Error, attach, leftovers,
    object::{remove_pins, reuse},
    pins::Pinned,
};

/// Pinned maps that have another shape or meaning than in the former contract.
const CHANGED: [&str; 0] = [];

/// Takes over what the former version of an `instance` left, into its `folder` of today. Nothing to do is no error.
///
/// # Errors
/// The kernel refuses a step: the former program goes on, or the next call does.
pub fn take_over(instance: &Path, folder: &Path) -> Result<(), Error> {
    let former = Pinned::Trunk.folder(instance, abi::TRUNK_FORMER_VERSION);
    if !former.join("bins").exists() {
        return Ok(());
    }
    let Some(same) = leftovers::unchanged(&former, &trunk_object(), &LAYOUT, &CHANGED)? else {
        return Ok(());
    };
    reuse(&former, folder, &same)?;
    let (mut object, _) = Object::load(folder)?;
    for ifindex in attach::attached(&former)? {
        if attach::is_alive(&former, ifindex) {
            let (program, end) = (object.program()?, TcAttachType::Egress);
            attach::attach_before(program, &former, folder, ifindex, end)?;
        }
    }
    remove_pins(&former)
}
