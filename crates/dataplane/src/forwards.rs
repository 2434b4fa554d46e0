//! What the kernel forwards to the LAN, entered as the program `forwarded` does at the egress of the LAN devices
//! (`bpf/lib/gateway/stray.h`): for tests, since no test run can give a packet the tag that it looks for.

use std::net::SocketAddr;
use std::path::Path;

use anabranch_policy::abi::{Addr, Table};
use aya::maps::{Array, MapData};

use crate::Error;
use crate::clock::monotonic_now;
use crate::object::pinned_array;

const NAME: &str = "forwards";
const TCP: u8 = 6;
const UDP: u8 = 17;
/// Bits of a place's hash that are left for a word on it (`bpf/lib/gateway/recent.h`).
const WORD_BITS: u32 = 4;

/// Hash and time of eight forwards, in turn.
type Row = [u64; 16];

/// The table that the programs ask.
pub struct Forwards {
    rows: Array<MapData, Row>,
    table: Array<MapData, Table>,
}

impl Forwards {
    /// Of the maps that are pinned there.
    ///
    /// # Errors
    /// The pins cannot be opened.
    pub fn open(pins: &Path) -> Result<Self, Error> {
        Ok(Forwards {
            rows: pinned_array(pins, NAME)?,
            table: pinned_array(pins, "table")?,
        })
    }

    /// A packet of `remote` leaves for the LAN host `local`. Its answers may come in fragments, of which the first alone has ports.
    ///
    /// # Errors
    /// The kernel refuses the read or the write.
    pub fn enter(&mut self, proto: u8, local: SocketAddr, remote: SocketAddr) -> Result<(), Error> {
        let told = [local.port(), remote.port()];
        let ports: &[[u16; 2]] = match proto {
            TCP => &[told],
            UDP => &[told, [0, 0]],
            _ => &[[0, 0]],
        };
        for ports in ports {
            let [local_port, remote_port] = ports.map(u16::to_be_bytes);
            let key = [
                &Addr::from(local.ip()).0[..],
                &Addr::from(remote.ip()).0,
                &local_port,
                &remote_port,
                &u32::from(proto).to_ne_bytes(),
            ];
            let hash = hash(self.secret()?, &key.concat());
            self.enter_hash(hash)?;
        }
        Ok(())
    }

    /// As the programs make it when they need it first.
    fn secret(&mut self) -> Result<u64, Error> {
        let mut table = self.table.get(&0, 0).map_err(Error::map("table"))?;
        if table.secret == 0 {
            table.secret = 1;
            let set = self.table.set(0, table, 0);
            set.map_err(Error::map("table"))?;
        }
        Ok(table.secret)
    }

    /// In its own place, or in that which was used least recently.
    fn enter_hash(&mut self, hash: u64) -> Result<(), Error> {
        let index = (hash >> 1) as u32 & (self.rows.len() - 1);
        let mut row = self.rows.get(&index, 0).map_err(Error::map(NAME))?;
        let places = row.chunks_exact_mut(2);
        if let Some(place) = places.min_by_key(|place| (place[0] != hash, place[1])) {
            place.copy_from_slice(&[hash, monotonic_now().as_nanos() as u64]);
        }
        self.rows.set(index, row, 0).map_err(Error::map(NAME))
    }
}

/// `hash_recent` of `bpf/lib/gateway/recent.h`.
fn hash(secret: u64, key: &[u8]) -> u64 {
    let words = key.chunks_exact(4);
    let words = words.map(|word| u32::from_ne_bytes([word[0], word[1], word[2], word[3]]));
    let hash = words.fold(secret, |hash, word| {
        let hash = (hash ^ u64::from(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash ^ hash >> 32
    });
    hash >> WORD_BITS | 1
}
