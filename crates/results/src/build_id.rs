//! Which build of the program made a result.

use std::fs::File;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::OutputError;

/// The running executable, as long as this process lives and whatever becomes of its file.
const EXECUTABLE: &str = "/proc/self/exe";

/// Hexadecimal SHA-256 of executables: two results with the same one were made by the same code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BuildId(String);

impl BuildId {
    /// Of this process.
    ///
    /// # Errors
    /// If the executable cannot be read, which means that /proc is not there.
    pub fn running() -> Result<BuildId, OutputError> {
        BuildId::of(&[Path::new(EXECUTABLE)])
    }

    /// Of this process and a program that it starts, which the results depend on, too.
    ///
    /// # Errors
    /// If either executable cannot be read.
    pub fn running_with(program: &Path) -> Result<BuildId, OutputError> {
        BuildId::of(&[Path::new(EXECUTABLE), program])
    }

    fn of(executables: &[&Path]) -> Result<BuildId, OutputError> {
        let mut digest = Sha256::new();
        for path in executables {
            let read = File::open(path).and_then(|mut file| io::copy(&mut file, &mut digest));
            read.map_err(OutputError::io(path))?;
        }
        Ok(BuildId(hex(&digest.finalize())))
    }

    /// In hexadecimal.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// SHA-256 in hexadecimal.
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
impl BuildId {
    pub(crate) fn named(name: &str) -> BuildId {
        BuildId(name.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_is_known_by_all_bytes_of_its_executable() {
        let executable = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(
            BuildId::running().unwrap().as_str(),
            sha256_hex(&executable)
        );
    }

    #[test]
    fn a_program_that_is_started_is_part_of_the_build() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("program");
        let build = |text: &str| {
            std::fs::write(&program, text).unwrap();
            BuildId::running_with(&program).unwrap()
        };
        assert_eq!(build("one"), build("one"));
        assert_ne!(build("one"), build("another"));
        assert_ne!(build("one"), BuildId::running().unwrap());
    }

    /// FIPS 180-2, appendix B.1.
    #[test]
    fn a_digest_is_written_in_hexadecimal() {
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256_hex(b"abc"), expected);
    }
}
