//! The devices of an instance.

use std::collections::BTreeMap;
use std::io::ErrorKind;

use anabranch_api::Paths;
use anyhow::Context;

use super::file::{LockFile, Taken};
use super::instance::{has_programs, is_of, known, network_namespace, owner};
use crate::error::{BadInput, Error};

/// The devices of this instance. Those of another network namespace may have the same names. They stay this instance's
/// for as long as its programs are pinned, whether a process of it runs or not: the programs go on forwarding.
#[derive(Debug)]
pub struct Claims {
    paths: Paths,
    namespace: u64,
    pub(super) held: BTreeMap<String, LockFile>,
    /// What each role of the instance needs; none: devices of before as well, as its programs may be there.
    needed: BTreeMap<&'static str, Option<Vec<String>>>,
}

impl Claims {
    /// Refuses devices of another instance, naming that. Takes over what an earlier process of this instance claimed,
    /// configured or not, since its programs may be there.
    pub fn take(paths: &Paths, devices: &[(&'static str, Vec<&str>)]) -> Result<Self, Error> {
        let mut claims = Self {
            paths: paths.clone(),
            namespace: network_namespace()?,
            held: BTreeMap::new(),
            needed: BTreeMap::new(),
        };
        for device in claims.left()? {
            // Somebody else may have followed meanwhile.
            if let Ok(file) = claims.claim(&device) {
                claims.held.insert(device, file);
            }
        }
        for (role, devices) in devices {
            claims.add(role, devices)?;
        }
        Ok(claims)
    }

    /// More devices for a role: all of them are had, or nothing has changed.
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

    /// What a role has from here on: these devices, and no others if it `has_no_programs_elsewhere`. Who looks at the host while a
    /// configuration was checked and not yet adopted has let go of what only that one needs.
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

    /// Writes down what there was no room for.
    pub(super) fn keep(&mut self) -> anyhow::Result<()> {
        self.held.values_mut().try_for_each(LockFile::keep)
    }

    /// Lets go of what no role needs, of which `role` needs `devices`. To be called when it has no programs on others.
    pub(super) fn keep_only(&mut self, role: &'static str, devices: &[&str]) {
        let devices = devices.iter().map(|device| (*device).to_owned());
        self.needed.insert(role, Some(devices.collect()));
        let known: Option<Vec<_>> = self.needed.values().map(Option::as_ref).collect();
        if let Some(known) = known {
            let is_needed = |device: &String| known.iter().any(|devices| devices.contains(device));
            self.held.retain(|device, _| is_needed(device));
        }
    }

    /// The devices that earlier processes of this instance claimed and did not let go of.
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
