//! The tables, rules and marks of an instance.

use anabranch_api::Paths;

use super::file::{LockFile, Taken};
use super::instance::{has_programs, is_of, network_namespace};
use crate::error::{BadInput, Error};
use crate::host::ids::{BLOCKS, Ids, preferred_block};

/// The block of tables, rules and marks of this instance. Instances that share a network namespace have different blocks. A block
/// stays claimed like the devices.
#[derive(Debug)]
pub struct Numbers {
    paths: Paths,
    pub(super) block: u32,
    pub(super) file: LockFile,
}

impl Numbers {
    /// Takes the block that an earlier process of this instance left, or else the first that is free.
    pub fn take(paths: &Paths) -> Result<Self, Error> {
        let namespace = network_namespace()?;
        let preferred = preferred_block(paths.instance());
        let mut blocks: Vec<u32> = (0..BLOCKS).map(|n| (preferred + n) % BLOCKS).collect();
        blocks.sort_by_cached_key(|block| !is_of(paths, &paths.numbers(namespace, *block)));
        for block in blocks {
            let path = paths.numbers(namespace, block);
            if let Taken::Ours(file) = LockFile::take_of(paths, &path)? {
                let paths = paths.clone();
                return Ok(Self { paths, block, file });
            }
        }
        let message = format!(
            "{BLOCKS} instances have all routing tables and marks of this network namespace: stop one, or run in another namespace"
        );
        Err(BadInput::new(message).into())
    }

    /// What they are.
    pub fn ids(&self) -> Ids {
        Ids::of_block(self.block)
    }
}

impl Drop for Numbers {
    fn drop(&mut self) {
        self.file.stays = has_programs(&self.paths);
    }
}
