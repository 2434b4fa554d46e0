//! The devices that have a program, as the programs find them: each at the place of its index, or a few behind it.

use anabranch_policy::abi;
use aya::maps::{Array, MapData, MapError};
use nix::errno::Errno;

use crate::Error;

pub struct Devices(Array<MapData, abi::Device>);

/// Where `ifindex` may stand.
fn places(ifindex: u32) -> impl Iterator<Item = u32> {
    (0..abi::DEVICE_STEPS).map(move |step| ifindex.wrapping_add(step) % abi::DEVICE_PLACES)
}

impl Devices {
    /// Of the device with this index.
    pub fn get(&self, ifindex: u32) -> Result<Option<abi::Device>, Error> {
        Ok(self.find(ifindex, ifindex)?.map(|(_, device)| device))
    }

    /// Adds a device, or replaces what is known of it. A packet meets all of it or nothing: its index comes last.
    pub fn insert(&mut self, device: abi::Device) -> Result<(), Error> {
        let ifindex = device.ifindex;
        let place = match self.find(ifindex, ifindex)? {
            Some((_, known)) if known == device => return Ok(()),
            Some((place, _)) => place,
            None => self.free_place(ifindex)?,
        };
        self.set(
            place,
            abi::Device {
                ifindex: 0,
                ..device
            },
        )?;
        self.set(place, device)
    }

    /// Nothing to do is no error.
    pub fn remove(&mut self, ifindex: u32) -> Result<(), Error> {
        match self.find(ifindex, ifindex)? {
            Some((place, device)) => self.set(
                place,
                abi::Device {
                    ifindex: 0,
                    ..device
                },
            ),
            None => Ok(()),
        }
    }

    pub fn all(&self) -> Result<Vec<abi::Device>, Error> {
        let devices: Result<Vec<_>, _> = self.0.iter().collect();
        let mut devices = devices.map_err(Error::map("devices"))?;
        devices.retain(|device| device.ifindex != 0);
        Ok(devices)
    }

    fn free_place(&self, ifindex: u32) -> Result<u32, Error> {
        let full = || MapError::from(std::io::Error::from(Errno::ENOSPC));
        let free = self.find(ifindex, 0)?;
        free.map(|(place, _)| place)
            .ok_or_else(full)
            .map_err(Error::map("devices"))
    }

    /// Whatever bears `index` where `ifindex` may stand.
    fn find(&self, ifindex: u32, index: u32) -> Result<Option<(u32, abi::Device)>, Error> {
        for place in places(ifindex) {
            let device = self.0.get(&place, 0).map_err(Error::map("devices"))?;
            if device.ifindex == index {
                return Ok(Some((place, device)));
            }
        }
        Ok(None)
    }

    fn set(&mut self, place: u32, device: abi::Device) -> Result<(), Error> {
        self.0.set(place, device, 0).map_err(Error::map("devices"))
    }
}

impl TryFrom<aya::maps::Map> for Devices {
    type Error = MapError;

    fn try_from(map: aya::maps::Map) -> Result<Self, MapError> {
        Array::try_from(map).map(Devices)
    }
}
