//! Moves away what is in the place of an instance's own file or folder but is something else, so that the start can continue. It is
//! kept beside, under the same name with [`SUFFIX`].

use std::fs::{self, Metadata};
use std::path::{Path, PathBuf};

/// Appended to the name; followed by a number if that name is taken.
const SUFFIX: &str = "set-aside";
/// At most this many are kept under one name.
const ASIDE_MAX: usize = 8;

/// Moves away what is at `path`, unless it `is_wanted`, and logs that. It is no error if there is nothing. If it cannot be moved,
/// opening the path fails later, with a message of its own.
pub fn make_way(path: &Path, wanted: &str, is_wanted: impl Fn(&Metadata) -> bool) {
    let found = fs::symlink_metadata(path);
    if found.is_ok_and(|found| !is_wanted(&found)) {
        // Outside of the macro, because that does not evaluate its arguments if the level is not logged.
        let aside = set_aside(path);
        tracing::warn!("{} is no {wanted}; {aside}", path.display());
    }
}

/// Moves what is at `path` to a free name beside it. Returns what happened, in words.
pub fn set_aside(path: &Path) -> String {
    let free = (0..ASIDE_MAX)
        .map(|number| name(path, number))
        .find(|name| fs::symlink_metadata(name).is_err());
    let Some(aside) = free else {
        let removed = match fs::symlink_metadata(path).is_ok_and(|found| found.is_dir()) {
            true => fs::remove_dir_all(path),
            false => fs::remove_file(path),
        };
        return match removed {
            Ok(()) => format!("it is removed, as {ASIDE_MAX} such were set aside before"),
            Err(error) => format!("it cannot be removed: {error}"),
        };
    };
    match fs::rename(path, &aside) {
        Ok(()) => format!("it is set aside as {}", aside.display()),
        Err(error) => format!("it cannot be set aside as {}: {error}", aside.display()),
    }
}

fn name(path: &Path, number: usize) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{SUFFIX}"));
    if number > 0 {
        name.push(format!(".{number}"));
    }
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wanted_stays_and_so_many_others_are_kept_and_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        make_way(&path, "file", Metadata::is_file);
        fs::write(&path, "wanted").unwrap();
        make_way(&path, "file", Metadata::is_file);
        assert_eq!(fs::read(&path).unwrap(), b"wanted");
        fs::remove_file(&path).unwrap();

        for _ in 0..ASIDE_MAX + 2 {
            fs::create_dir_all(path.join("full")).unwrap();
            make_way(&path, "file", Metadata::is_file);
            assert!(!path.exists());
        }
        let kept = fs::read_dir(folder.path()).unwrap();
        assert_eq!(kept.count(), ASIDE_MAX);
        assert!(folder.path().join("file.set-aside/full").exists());
    }
}
