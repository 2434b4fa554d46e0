//! Detects settings of ours that another program sets back while the gateway runs, for instance when `/etc/sysctl.d` is loaded
//! again, by a network manager, or by a hardening script.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::net::if_::if_nametoindex;

use super::sysctl::Changed;

/// How long it is reported.
const TOLD_FOR: Duration = Duration::from_secs(3600);

/// The settings that were made, with their values.
#[derive(Debug, Default)]
pub struct Watch(BTreeMap<PathBuf, Setting>);

#[derive(Debug)]
struct Setting {
    /// Index of its device, if it has one. A device that was created anew has the settings of a new device.
    ifindex: Option<u32>,
    value: String,
    undone: Option<(Instant, Undone)>,
}

/// A setting that another program set back.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Undone {
    /// Its name for sysctl(8).
    pub name: String,
    /// The value that was found.
    pub found: String,
    /// The value that the gateway needs.
    pub wanted: String,
}

impl Watch {
    /// Called before a setting is made, or made again.
    pub fn make(&mut self, change: &Changed) {
        let ifindex = device_of(&change.path).and_then(|device| if_nametoindex(device).ok());
        let before = self.0.get(&change.path);
        let is_again = before.is_some_and(|before| before.ifindex == ifindex);
        let undone = is_again.then(|| (Instant::now(), Undone::of(change)));
        let setting = Setting {
            ifindex,
            value: change.ours.clone(),
            undone,
        };
        self.0.insert(change.path.clone(), setting);
    }

    /// Whether a setting does not have its value; called often.
    pub fn differs(&self) -> bool {
        let mut settings = self.0.iter();
        settings.any(|(path, setting)| read(path).is_some_and(|value| value != setting.value))
    }

    /// Accepts the present values of settings that were not made again: they are good enough.
    pub fn accept(&mut self) {
        for (path, setting) in &mut self.0 {
            if let Some(value) = read(path) {
                setting.value = value;
            }
        }
    }

    /// Those that were set back in the last hour.
    pub fn undone(&self) -> Vec<Undone> {
        let all = self
            .0
            .values()
            .filter_map(|setting| setting.undone.as_ref());
        let recent = all.filter(|(at, _)| at.elapsed() < TOLD_FOR);
        recent.map(|(_, undone)| undone.clone()).collect()
    }
}

impl Undone {
    fn of(change: &Changed) -> Self {
        let path = change
            .path
            .strip_prefix("/proc/sys")
            .unwrap_or(&change.path);
        Self {
            // sysctl(8) writes a dot within a name as a slash.
            name: path
                .to_string_lossy()
                .replace('.', "\0")
                .replace('/', ".")
                .replace('\0', "/"),
            found: change.original.clone(),
            wanted: change.ours.clone(),
        }
    }
}

/// `conf/DEVICE/KEY`
fn device_of(path: &Path) -> Option<&str> {
    let device = path.parent()?;
    let folder = device.parent()?;
    (folder.file_name()? == "conf").then(|| device.file_name()?.to_str())?
}

fn read(path: &Path) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(path: &Path) -> Changed {
        Changed {
            path: path.to_owned(),
            original: read(path).unwrap(),
            ours: "2".to_owned(),
        }
    }

    #[test]
    fn what_is_set_back_is_seen_and_told() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("rp_filter");
        fs::write(&path, "1\n").unwrap();
        let mut watch = Watch::default();
        let set = |watch: &mut Watch| {
            let change = change(&path);
            watch.make(&change);
            change.make().unwrap();
            watch.accept();
        };
        set(&mut watch);
        assert!(!watch.differs() && watch.undone().is_empty());
        fs::write(&path, "1\n").unwrap();
        assert!(watch.differs());
        set(&mut watch);
        assert!(!watch.differs());
        let undone = watch.undone();
        assert_eq!((&*undone[0].found, &*undone[0].wanted), ("1", "2"));
    }

    #[test]
    fn what_serves_as_well_is_left_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("rp_filter");
        fs::write(&path, "1").unwrap();
        let mut watch = Watch::default();
        watch.make(&change(&path));
        fs::write(&path, "0").unwrap();
        assert!(watch.differs());
        watch.accept();
        assert!(!watch.differs() && watch.undone().is_empty());
        fs::remove_file(&path).unwrap();
        assert!(!watch.differs(), "its device is gone");
    }

    #[test]
    fn settings_are_named_as_sysctl_names_them() {
        let change = Changed {
            path: "/proc/sys/net/ipv4/conf/eth0.7/rp_filter".into(),
            original: "1".to_owned(),
            ours: "2".to_owned(),
        };
        assert_eq!(device_of(&change.path), Some("eth0.7"));
        assert_eq!(Undone::of(&change).name, "net.ipv4.conf.eth0/7.rp_filter");
        assert_eq!(device_of(Path::new("/proc/sys/net/ipv4/ip_forward")), None);
    }
}
