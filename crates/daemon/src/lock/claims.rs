//! The devices of an instance.

use std::collections::BTreeMap;
use std::io::ErrorKind;

use anabranch_api::Paths;
use anyhow::Context;

use super::file::{LockFile, Taken};
use super::instance::{has_programs, is_of, known, network_namespace, owner};
use crate::error::{BadInput, Error};

/// The devices of this instance. Devices in other network namespaces may have the same names. The devices stay claimed
/// as long as the instance's programs are pinned, whether a process of it runs or not, because the programs continue to forward.
#[derive(Debug)]
pub struct Claims {
    paths: Paths,
    namespace: u64,
    pub(super) held: BTreeMap<String, LockFile>,
    /// The devices that each role needs; none: also those of an earlier process, because its programs may be attached there.
    needed: BTreeMap<&'static str, Option<Vec<String>>>,
}

impl Claims {
    /// Claims devices. Fails if another instance has one, and names it. Also takes over what an earlier process of this instance
    /// claimed, configured or not, because its programs may be attached there.
    pub fn take(paths: &Paths, devices: &[(&'static str, Vec<&str>)]) -> Result<Self, Error> {
        let mut claims = Self {
            paths: paths.clone(),
            namespace: network_namespace()?,
            held: BTreeMap::new(),
            needed: BTreeMap::new(),
        };
        for device in claims.left()? {
            // Another instance may have claimed it meanwhile.
            if let Ok(file) = claims.claim(&device) {
                claims.held.insert(device, file);
            }
        }
        for (role, devices) in devices {
            claims.add(role, devices)?;
        }
        Ok(claims)
    }

    /// Claims more devices for a role: either all of them, or nothing changes.
    pub fn add(&mut self, role: &'static str, devices: &[&str]) -> Result<(), Error> {
        let mut fresh = BTreeMap::new();
        for device in devices {
            if !self.held.contains_key(*device) {
                fresh.insert((*device).to_owned(), self.claim(device)?);
            }
        }
        self.held.extend(fresh);
        self.needed.insert(role, None);
        Ok(())
    }

    /// Sets the devices of a role: these, and no others if it `has_no_programs_elsewhere`. Devices that only a configuration needed
    /// that was checked and not adopted are released.
    pub fn keep_for(
        &mut self,
        role: &'static str,
        devices: &[&str],
        has_no_programs_elsewhere: bool,
    ) -> anyhow::Result<()> {
        self.add(role, devices)?;
        if has_no_programs_elsewhere {
            self.keep_only(role, devices);
        }
        self.keep()
    }

    /// Writes the files for which there was no room.
    pub(super) fn keep(&mut self) -> anyhow::Result<()> {
        self.held.values_mut().try_for_each(LockFile::keep)
    }

    /// Releases what no role needs; `role` needs `devices`. To be called when it has no programs on others.
    pub(super) fn keep_only(&mut self, role: &'static str, devices: &[&str]) {
        let devices = devices.iter().map(|device| (*device).to_owned());
        self.needed.insert(role, Some(devices.collect()));
        let known: Option<Vec<_>> = self.needed.values().map(Option::as_ref).collect();
        if let Some(known) = known {
            let is_needed = |device: &String| known.iter().any(|devices| devices.contains(device));
            self.held.retain(|device, _| is_needed(device));
        }
    }

    /// The devices that earlier processes of this instance claimed and did not release.
    fn left(&self) -> anyhow::Result<Vec<String>> {
        let folder = self.paths.runtime_dir();
        let entries = match std::fs::read_dir(folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.with_context(|| format!("read {}", folder.display()))?,
        };
        let left = entries.filter_map(|entry| {
            let path = entry.ok()?.path();
            let device = Paths::claimed(self.namespace, &path)?;
            is_of(&self.paths, &path).then(|| device.to_owned())
        });
        Ok(left.collect())
    }

    fn claim(&self, device: &str) -> Result<LockFile, Error> {
        let path = self.paths.claim(self.namespace, device);
        match LockFile::take_of(&self.paths, &path)? {
            Taken::Ours(file) => Ok(file),
            Taken::Held(holder) => {
                let (pid, instance) = owner(&holder);
                let instance = match instance {
                    "" => "an instance".to_owned(),
                    named => format!("instance {named:?}"),
                };
                let message = format!(
                    "device {device:?}: {instance} has it already (process {}); a device is one instance's",
                    known(pid)
                );
                Err(BadInput::new(message).into())
            }
            Taken::Left(holder) => {
                let (_, instance) = owner(&holder);
                let message = format!(
                    "device {device:?}: instance {instance:?} ended without a clean stop, and its programs go on; start it again and stop it"
                );
                Err(BadInput::new(message).into())
            }
        }
    }
}

impl Drop for Claims {
    fn drop(&mut self) {
        if has_programs(&self.paths) {
            self.held.values_mut().for_each(|file| file.stays = true);
        }
    }
}
