//! What stands where a file of an instance belongs, and is none, is set aside: the start goes on, and whoever looks for it finds it
//! beside, under the same name with [`SUFFIX`].

use std::fs::{self, Metadata};
use std::path::{Path, PathBuf};

/// Behind the name of what is set aside; a number follows where that name is taken.
const SUFFIX: &str = "set-aside";
/// So many of one name are kept.
const ASIDE_MAX: usize = 8;

/// Sets aside what is at `path`, unless that `is_wanted`, and says so. Nothing there is no error; what cannot be moved is left to whoever
/// opens the path, and to the message of that.
pub fn make_way(path: &Path, wanted: &str, is_wanted: impl Fn(&Metadata) -> bool) {
    let found = fs::symlink_metadata(path);
    if found.is_ok_and(|found| !is_wanted(&found)) {
        // Not in the macro, which asks for nothing that nobody hears.
        let aside = set_aside(path);
        tracing::warn!("{} is no {wanted}; {aside}", path.display());
    }
}

/// Moves what is at `path` to a name beside it that is free. What became of it, in words.
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
