//! Addresses that a role gives the host: virtual addresses of services, on the loopback device. So no device announces them, and the
//! host has them whatever devices come and go.

use std::net::IpAddr;

use anyhow::Context;
use netlink_packet_route::address::{AddressHeaderFlags, AddressMessage};

use super::Settings;
use crate::observe::{Netlink, Prefix, Snapshot};

const LOOPBACK: u32 = 1;

impl Settings {
    /// Gives the host `wanted` addresses, and takes away others that were given to it. One that `host` has already is left as it is.
    pub async fn set_addresses(
        &mut self,
        netlink: &Netlink,
        host: &Snapshot,
        wanted: &[IpAddr],
    ) -> anyhow::Result<()> {
        let given = self.state.addresses.clone();
        for address in given.iter().filter(|address| !wanted.contains(address)) {
            remove(netlink, *address).await?;
            self.state.addresses.remove(address);
            self.save()?;
        }
        let is_there = |address: &&IpAddr| {
            let mut devices = host.devices.values();
            devices.any(|device| device.every_address.contains(address))
        };
        for address in wanted.iter().filter(|address| !is_there(address)) {
            self.state.addresses.insert(*address);
            self.save()?;
            add(netlink, *address).await?;
        }
        Ok(())
    }
}

async fn add(netlink: &Netlink, address: IpAddr) -> anyhow::Result<()> {
    let length = Prefix::host(address).length;
    let request = netlink.handle.address().add(LOOPBACK, address, length);
    let mut request = request.replace();
    request.message_mut().header.flags |= AddressHeaderFlags::Nodad;
    let added = request.execute().await;
    added.with_context(|| format!("give this host the address {address}"))
}

/// Nothing to do is no error.
async fn remove(netlink: &Netlink, address: IpAddr) -> anyhow::Result<()> {
    let length = Prefix::host(address).length;
    let mut like = netlink.handle.address().add(LOOPBACK, address, length);
    let message: AddressMessage = like.message_mut().clone();
    match netlink.handle.address().del(message).execute().await {
        Err(rtnetlink::Error::NetlinkError(error)) if is_absent(&error) => Ok(()),
        removed => removed.with_context(|| format!("take the address {address} from this host")),
    }
}

fn is_absent(error: &rtnetlink::packet_core::ErrorMessage) -> bool {
    error.raw_code() == -libc::EADDRNOTAVAIL
}
