//! The devices that have a program, as the programs find them: each at the place of its index, or a few behind it.

use anabranch_policy::abi;
use aya::maps::{Array, Map, MapData, MapError};
use nix::errno::Errno;

use crate::Error;

pub struct Devices(Array<MapData, abi::Device>);

/// A device and its place.
type Placed = (u32, abi::Device);

/// Where `ifindex` may stand.
fn places(ifindex: u32) -> impl Iterator<Item = u32> {
    (0..abi::DEVICE_STEPS).map(move |step| ifindex.wrapping_add(step) % abi::DEVICE_PLACES)
}

/// The smallest of the LAN devices' MTUs; 0 without a LAN device.
fn lan_mtu(devices: &[Placed]) -> u32 {
    let lan = devices
        .iter()
        .filter(|(_, device)| device.role == abi::Role::Lan.into());
    lan.map(|(_, device)| device.mtu).min().unwrap_or(0)
}

impl Devices {
    /// Of the device with this index.
    pub fn get(&self, ifindex: u32) -> Result<Option<abi::Device>, Error> {
        for place in places(ifindex) {
            let device = self.0.get(&place, 0).map_err(Error::map("devices"))?;
            if device.ifindex == ifindex {
                return Ok(Some(device));
            }
        }
        Ok(None)
    }

    /// Adds a device, or replaces what is known of it.
    pub fn insert(&mut self, device: abi::Device) -> Result<(), Error> {
        let mut devices = self.all()?;
        let known = devices
            .iter()
            .position(|(_, known)| known.ifindex == device.ifindex);
        match known {
            Some(known) => devices[known].1 = device,
            None => devices.push((self.take_place(device, &devices)?, device)),
        }
        self.tell(devices)
    }

    /// Nothing to do is no error.
    pub fn remove(&mut self, ifindex: u32) -> Result<(), Error> {
        let (gone, devices): (Vec<_>, Vec<_>) = self
            .all()?
            .into_iter()
            .partition(|(_, device)| device.ifindex == ifindex);
        for (place, device) in gone {
            self.set(place, without_index(device))?;
        }
        self.tell(devices)
    }

    /// Writes all devices; what their packets have to fit, to the links. A device that stands is found meanwhile: packets
    /// of its flows that the kernel got would be reset.
    fn tell(&mut self, devices: Vec<Placed>) -> Result<(), Error> {
        let lan_mtu = lan_mtu(&devices);
        for (place, mut device) in devices {
            if device.role == abi::Role::Link.into() {
                device.mtu = lan_mtu;
            }
            self.set(place, device)?;
        }
        Ok(())
    }

    fn all(&self) -> Result<Vec<Placed>, Error> {
        let devices: Result<Vec<_>, _> = (0..).zip(self.0.iter()).map(with_place).collect();
        let mut devices = devices.map_err(Error::map("devices"))?;
        devices.retain(|(_, device)| device.ifindex != 0);
        Ok(devices)
    }

    /// A free place for a new device, which says all of it but its index: a packet that finds that finds the rest.
    fn take_place(&mut self, device: abi::Device, devices: &[Placed]) -> Result<u32, Error> {
        let is_free = |place: &u32| devices.iter().all(|(taken, _)| taken != place);
        let full = || MapError::from(std::io::Error::from(Errno::ENOSPC));
        let place = places(device.ifindex)
            .find(is_free)
            .ok_or_else(full)
            .map_err(Error::map("devices"))?;
        self.set(place, without_index(device))?;
        Ok(place)
    }

    fn set(&mut self, place: u32, device: abi::Device) -> Result<(), Error> {
        self.0.set(place, device, 0).map_err(Error::map("devices"))
    }
}

fn with_place<E>((place, device): (u32, Result<abi::Device, E>)) -> Result<Placed, E> {
    device.map(|device| (place, device))
}

fn without_index(device: abi::Device) -> abi::Device {
    abi::Device {
        ifindex: 0,
        ..device
    }
}

impl TryFrom<Map> for Devices {
    type Error = MapError;

    fn try_from(map: Map) -> Result<Self, MapError> {
        Array::try_from(map).map(Devices)
    }
}
