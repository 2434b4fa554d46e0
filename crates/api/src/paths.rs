//! Where an instance keeps what must outlive its process.

use std::path::{Path, PathBuf};

use anabranch_config::{BadInput, is_name};

/// Of an instance that was given no name.
pub const DEFAULT_INSTANCE: &str = "default";
const INSTANCE_CHARS_MAX: usize = 32;
const RUNTIME_DIR: &str = "/run/anabranch";
const PINS_DIR: &str = "/sys/fs/bpf/anabranch";

/// The files of one instance. Several instances may share a machine, one per network namespace.
#[derive(Debug, Clone)]
pub struct Paths {
    instance: String,
    runtime: PathBuf,
    pins: PathBuf,
}

impl Paths {
    /// The files of the instance of this name, which need not exist.
    pub fn new(instance: &str) -> Result<Self, BadInput> {
        Self::under(Path::new(RUNTIME_DIR), Path::new(PINS_DIR), instance)
    }

    /// The same below other directories.
    pub fn under(runtime: &Path, pins: &Path, instance: &str) -> Result<Self, BadInput> {
        if !is_name(instance, INSTANCE_CHARS_MAX) {
            return Err(BadInput::new(format!(
                "--instance {instance:?}: allowed are 1 to {INSTANCE_CHARS_MAX} letters, digits, '-' and '_'"
            )));
        }
        Ok(Self {
            instance: instance.to_owned(),
            runtime: runtime.to_owned(),
            pins: pins.join(instance),
        })
    }

    /// Its name.
    pub fn instance(&self) -> &str {
        &self.instance
    }

    /// Where sockets and state are.
    pub fn runtime_dir(&self) -> &Path {
        &self.runtime
    }

    /// The control socket.
    pub fn socket(&self) -> PathBuf {
        self.file("sock")
    }

    /// Held while a daemon runs; contains its process id.
    pub fn lock(&self) -> PathBuf {
        self.file("lock")
    }

    /// Held for a device of a network namespace, whatever the instance; contains process id and instance.
    pub fn claim(&self, namespace: u64, device: &str) -> PathBuf {
        self.runtime.join(format!("{namespace}-{device}.device"))
    }

    /// The file by which this instance has a block of numbers in a network namespace for its own: tables, rules, marks.
    pub fn numbers(&self, namespace: u64, block: u32) -> PathBuf {
        self.runtime.join(format!("{namespace}-{block}.numbers"))
    }

    /// The device whose [claim](Self::claim) `path` is, if that is one of the namespace.
    pub fn claimed(namespace: u64, path: &Path) -> Option<&str> {
        let name = path.file_name()?.to_str()?.strip_suffix(".device")?;
        name.strip_prefix(&format!("{namespace}-"))
    }

    /// What a role has changed on the host, and how it was before.
    pub fn state_of(&self, role: &str) -> PathBuf {
        self.file(&format!("{role}.json"))
    }

    /// The same of another instance.
    pub fn of(&self, instance: &str) -> Result<Self, BadInput> {
        let pins = self.pins.parent().unwrap_or(&self.pins);
        Self::under(&self.runtime, pins, instance)
    }

    /// Directory of the pinned maps, programs and links.
    pub fn pins(&self) -> &Path {
        &self.pins
    }

    fn file(&self, extension: &str) -> PathBuf {
        self.runtime.join(format!("{}.{extension}", self.instance))
    }
}
