//! Settings of ours that somebody sets back while the gateway runs: what loads `/etc/sysctl.d` again, a network manager, a
//! hardening script.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::net::if_::if_nametoindex;

use super::sysctl::Changed;

/// So long it is told. Whoever does it every day does it again.
const TOLD_FOR: Duration = Duration::from_secs(3600);

/// What was set, as it was left.
#[derive(Debug, Default)]
pub struct Watch(BTreeMap<PathBuf, Setting>);

#[derive(Debug)]
struct Setting {
    /// Of its device, if it has one: a device that was made anew has the settings of a new device.
    ifindex: Option<u32>,
    value: String,
    undone: Option<(Instant, Undone)>,
}

/// A setting that somebody set back.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Undone {
    /// As sysctl(8) names it.
    pub name: String,
    /// What it was set to.
    pub found: String,
    /// What the gateway needs.
    pub wanted: String,
}

impl Watch {
    /// Before a setting is made, or made again.
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

    /// Whether one is not as it was left; asked often.
    pub fn differs(&self) -> bool {
        let mut settings = self.0.iter();
        settings.any(|(path, setting)| read(path).is_some_and(|value| value != setting.value))
    }

    /// What was not set again serves as it is.
    pub fn accept(&mut self) {
        for (path, setting) in &mut self.0 {
            if let Some(value) = read(path) {
                setting.value = value;
            }
        }
    }

    /// In the last hour.
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
