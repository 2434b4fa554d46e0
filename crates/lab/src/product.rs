//! The gateway under test is a program of its own, which the laboratory starts.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// What it is called.
pub const NAME: &str = "anabranch";

/// There is no such program.
#[derive(Debug, thiserror::Error)]
#[error(
    "the laboratory runs the program `{NAME}`, which is neither in {} nor on PATH: put it beside this one, or build both with `make build`",
    beside.display()
)]
pub struct NotFound {
    /// The directory of the running executable.
    pub beside: PathBuf,
}

/// The executable beside the running one, or else the first on PATH.
///
/// # Errors
/// If neither is there.
pub fn find() -> Result<PathBuf, NotFound> {
    // Without /proc there is nothing beside it.
    let running = env::current_exe().unwrap_or_default();
    let beside = running.parent().unwrap_or(Path::new(""));
    find_in(beside, env::var_os("PATH").as_deref())
}

fn find_in(beside: &Path, path: Option<&OsStr>) -> Result<PathBuf, NotFound> {
    let on_path = path.into_iter().flat_map(env::split_paths);
    let mut candidates = [beside.to_owned()].into_iter().chain(on_path);
    let found = candidates.find_map(|directory| {
        let program = directory.join(NAME);
        is_executable(&program).then_some(program)
    });
    found.ok_or_else(|| NotFound {
        beside: beside.to_owned(),
    })
}

fn is_executable(program: &Path) -> bool {
    fs::metadata(program).is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;

    use super::*;

    fn put(directory: &Path, mode: u32) -> PathBuf {
        fs::create_dir(directory).unwrap();
        let program = directory.join(NAME);
        fs::write(&program, "").unwrap();
        fs::set_permissions(&program, Permissions::from_mode(mode)).unwrap();
        program
    }

    #[test]
    fn the_program_beside_comes_before_those_on_path_and_a_file_is_none() {
        let all = tempfile::tempdir().unwrap();
        let [beside, first, second] = ["beside", "first", "second"].map(|it| all.path().join(it));
        let path = env::join_paths([&first, &second]).unwrap();
        let find = || find_in(&beside, Some(&path));
        let error = find().unwrap_err().to_string();
        let place = format!("neither in {} nor on PATH", beside.display());
        assert!(error.contains(&place), "{error}");
        put(&first, 0o644);
        assert!(find().is_err());
        let on_path = put(&second, 0o755);
        assert_eq!(find().unwrap(), on_path);
        let own = put(&beside, 0o755);
        assert_eq!(find().unwrap(), own);
    }
}
