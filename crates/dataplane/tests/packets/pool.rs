//! Gateways that one test uses after another: the verifier takes longer over the programs than most tests take.

use std::{
    fs,
    sync::{Arc, Mutex, MutexGuard, Once, PoisonError},
};

use anabranch_core::DataPlane;
use anabranch_dataplane::{Build, Gateway, raw::RawMap};
use anabranch_policy::abi;
use anabranch_testbed::pins::PinFolder;
use anyhow::Result;

use crate::rig::small;

static FREE: Mutex<Vec<Loaded>> = Mutex::new(Vec::new());

/// A gateway of small tables that knows nothing and stands at no device.
pub struct Loaded {
    pub plane: Gateway,
    pub pins: Arc<PinFolder>,
    pub maps: Maps,
}

/// All that a gateway knows, by the name of the map.
pub struct Maps(Vec<(String, RawMap)>);

impl Loaded {
    /// One that another test has given back, or a new one.
    pub fn take() -> Result<Self> {
        let used = free().pop();
        used.map_or_else(Self::load, Ok)
    }

    fn load() -> Result<Self> {
        let pins = PinFolder::name("packets");
        let build = Build {
            piecewise: true,
            ..Build::default()
        };
        let (plane, _) = Gateway::open_build(&pins, small(), build)?;
        Ok(Loaded {
            plane,
            maps: Maps::open(&pins)?,
            pins: Arc::new(pins),
        })
    }

    /// Forgets everything. In the namespace of its devices.
    pub fn renew(mut self) -> Result<Self> {
        for ifindex in self.plane.attached()? {
            self.plane.detach(ifindex)?;
        }
        self.plane.set_routes(&[])?;
        while !self.plane.openings()?.is_empty() {}
        self.maps.clear()?;
        Ok(self)
    }

    /// For the next test.
    pub fn give_back(self) -> Result<()> {
        static AT_EXIT: Once = Once::new();
        // SAFETY: the function takes nothing, and everything that it uses lasts as long as the process.
        AT_EXIT.call_once(|| unsafe {
            libc::atexit(forget_free);
        });
        let renewed = self.renew()?;
        free().push(renewed);
        Ok(())
    }
}

impl Maps {
    fn open(pins: &PinFolder) -> Result<Self> {
        let mut maps = Vec::new();
        for entry in fs::read_dir(pins.join(format!("v{}", abi::ABI_VERSION)))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            maps.push((name, RawMap::open(&entry.path())?));
        }
        Ok(Maps(maps))
    }

    fn clear(&mut self) -> Result<()> {
        for (_, map) in &mut self.0 {
            map.clear()?;
        }
        Ok(())
    }

    /// What is not zero, by the map and the key.
    pub fn held(&mut self) -> Result<Vec<(String, Vec<u8>)>> {
        let mut held = Vec::new();
        for (name, map) in &mut self.0 {
            map.for_each(|key, value| {
                if value.iter().any(|byte| *byte != 0) {
                    held.push((name.clone(), key.to_vec()));
                }
            })?;
        }
        Ok(held)
    }
}

fn free() -> MutexGuard<'static, Vec<Loaded>> {
    FREE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Nothing drops what is static.
extern "C" fn forget_free() {
    free().clear();
}
