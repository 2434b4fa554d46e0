//! Settings of the host that a role has changed, and its state file, which has their former values.

use std::path::{Path, PathBuf};

use super::state::State;
use super::{sysctl, undone};

/// The settings of one role. Other roles of the instance have a file of their own, and change other settings.
pub struct Settings {
    pub(super) path: PathBuf,
    pub(super) state: State,
    /// The content of the file.
    saved: Vec<u8>,
    pub(super) watch: undone::Watch,
}

impl Settings {
    /// Reads what an earlier process has changed. Changes nothing.
    pub fn adopt(path: &Path) -> anyhow::Result<Self> {
        let (state, saved) = State::read(path)?;
        Ok(Self {
            path: path.to_owned(),
            state,
            saved,
            watch: undone::Watch::default(),
        })
    }

    /// Loosens reverse-path filtering on devices whose answers leave by another device: the sublinks of a trunk.
    pub fn loosen<'a>(&mut self, devices: impl Iterator<Item = &'a str>) -> anyhow::Result<()> {
        let changes = devices.map(sysctl::loose_filter);
        self.change(changes.collect::<anyhow::Result<_>>()?)
    }

    /// Has devices answer ARP for their own addresses alone, and take packets whose answers leave by others: those of a member.
    pub fn keep_quiet<'a>(&mut self, devices: impl Iterator<Item = &'a str>) -> anyhow::Result<()> {
        for device in devices {
            self.change(sysctl::answers_for_itself(device)?.into())?;
            self.change(vec![sysctl::loose_filter(device)?])?;
        }
        Ok(())
    }

    /// Whether somebody has set a setting back.
    pub fn differs(&self) -> bool {
        self.watch.differs()
    }

    pub(super) fn change(&mut self, changes: Vec<Option<sysctl::Changed>>) -> anyhow::Result<()> {
        for change in changes.into_iter().flatten() {
            self.state.remember(change.clone());
            self.save()?;
            self.watch.make(&change);
            change.make()?;
        }
        self.watch.accept();
        Ok(())
    }

    pub(super) fn save(&mut self) -> anyhow::Result<()> {
        self.state.write(&self.path, &mut self.saved)
    }

    /// Restores all settings.
    pub fn restore(self) -> anyhow::Result<()> {
        self.undo()?;
        self.forget()
    }

    /// Continues after a failure, and returns the first.
    pub(super) fn undo(&self) -> anyhow::Result<()> {
        let undone = self.state.sysctls.iter().map(sysctl::Changed::undo);
        let undone: Vec<_> = undone.collect();
        undone.into_iter().collect()
    }

    /// Removes everything but orders from the file.
    pub(super) fn forget(mut self) -> anyhow::Result<()> {
        if self.state.orders.is_empty() {
            return State::remove(&self.path);
        }
        self.state = State {
            orders: self.state.orders,
            ..State::default()
        };
        self.save()
    }
}
