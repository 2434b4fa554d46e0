//! What an instance pins: a folder for each of its roles and each version of that one's contract.

use std::path::{Path, PathBuf};

/// What an instance pins, each in folders of its own: their names tell which it is, and the version of its contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pinned {
    /// Of a gateway.
    Gateway,
    /// Of services.
    Services,
    /// Of a trunk.
    Trunk,
    /// Of a member.
    Member,
}

impl Pinned {
    const ALL: [Self; 4] = [Self::Gateway, Self::Services, Self::Trunk, Self::Member];

    fn prefix(self) -> &'static str {
        match self {
            Self::Gateway => "v",
            Self::Services => "services-v",
            Self::Trunk => "trunk-v",
            Self::Member => "member-v",
        }
    }

    /// The folder of one version.
    pub fn folder(self, instance: &Path, version: u32) -> PathBuf {
        instance.join(format!("{}{version}", self.prefix()))
    }

    /// Whose folder this is.
    pub fn of(folder: &Path) -> Option<Self> {
        let name = folder.file_name()?.to_str()?;
        let is_version = |kind: &Self| {
            let version = name.strip_prefix(kind.prefix());
            version.is_some_and(|version| version.parse::<u32>().is_ok())
        };
        Self::ALL.into_iter().find(is_version)
    }
}
