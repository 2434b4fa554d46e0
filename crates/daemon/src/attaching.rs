//! Attaches a role's programs to the devices that its file names.

use anabranch_dataplane::Error;
use anabranch_dataplane::{member::Member, services::Services};

use crate::observe::{Device, Snapshot};
use crate::shell::Shell;

/// A data path that is attached device by device.
pub(crate) trait Attach {
    fn attach(&mut self, device: &Device) -> Result<(), Error>;
    fn attached(&self) -> Result<Vec<u32>, Error>;
    fn detach(&mut self, ifindex: u32) -> Result<(), Error>;
}

/// Attaches the programs to these devices, and detaches them from all others. What fails is told, and tried again.
pub(crate) fn attach_to(
    plane: &mut impl Attach,
    names: &[String],
    host: &Snapshot,
    shell: &mut Shell,
) {
    let mut wanted = Vec::new();
    for name in names {
        let attached = match host.devices.get(name) {
            Some(device) => {
                wanted.push(device.ifindex);
                plane.attach(device).map_err(|error| error.to_string())
            }
            None => Err(format!("{name}: no such device")),
        };
        if let Err(trouble) = attached {
            shell.report_and_retry(&trouble);
        }
    }
    let detached = plane.attached().and_then(|attached| {
        let mut left = attached.iter().filter(|one| !wanted.contains(one));
        left.try_for_each(|ifindex| plane.detach(*ifindex))
    });
    if let Err(trouble) = detached {
        shell.report_and_retry(&trouble.to_string());
    }
}

impl Attach for Services {
    fn attach(&mut self, device: &Device) -> Result<(), Error> {
        self.attach(device.ifindex, device.layer3)
    }

    fn attached(&self) -> Result<Vec<u32>, Error> {
        self.attached()
    }

    fn detach(&mut self, ifindex: u32) -> Result<(), Error> {
        self.detach(ifindex)
    }
}

impl Attach for Member {
    fn attach(&mut self, device: &Device) -> Result<(), Error> {
        self.attach(device.ifindex)
    }

    fn attached(&self) -> Result<Vec<u32>, Error> {
        self.attached()
    }

    fn detach(&mut self, ifindex: u32) -> Result<(), Error> {
        self.detach(ifindex)
    }
}
