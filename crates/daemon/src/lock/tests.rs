use std::io::ErrorKind;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::time::Instant;

use nix::fcntl::{FcntlArg, FdFlag};
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use super::file::{Opened, STARTING, bind, open, write};
use super::instance::network_namespace;
use super::*;
use crate::host::ids::{BLOCKS, Ids, preferred_block};

fn refused<T: std::fmt::Debug>(taken: Result<T, Error>) -> String {
    match taken {
        Err(Error::BadInput(refused)) => refused.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_second_instance_is_refused_with_the_first_ones_process() {
    let dir = tempfile::tempdir().unwrap();
    let paths = Paths::under(&dir.path().join("run"), dir.path(), "a").unwrap();
    let first = Lock::take(&paths).unwrap();
    let refused = refused(Lock::take(&paths));
    let wanted = format!(
        "instance \"a\" runs already as process {};",
        std::process::id()
    );
    assert!(refused.contains(&wanted), "{refused}");
    let other = Paths::under(&dir.path().join("run"), dir.path(), "b").unwrap();
    Lock::take(&other).unwrap();
    drop(first);
    assert!(!paths.lock().exists());
    Lock::take(&paths).unwrap();
}

#[test]
fn what_a_killed_instance_was_starting_keeps_the_next_one_waiting_for_a_moment() {
    const BEYOND_ALL_PROCESSES: &str = "4194305";
    let dir = tempfile::tempdir().unwrap();
    let paths = Paths::under(&dir.path().join("run"), dir.path(), "a").unwrap();
    let lock = || {
        let Ok(Opened::Locked(mut file)) = open(&paths.lock()) else {
            panic!("it is free")
        };
        write(&paths.lock(), &mut file, BEYOND_ALL_PROCESSES).unwrap();
        file
    };
    let held = lock();
    let began = Instant::now();
    assert!(refused(Lock::take(&paths)).contains(BEYOND_ALL_PROCESSES));
    assert!(began.elapsed() >= STARTING);
    drop(held);
    let held = lock();
    std::thread::scope(|scope| {
        let next = scope.spawn(|| Lock::take(&paths));
        drop(held);
        next.join().unwrap().unwrap();
    });
}

/// Where [`instances`] have their files, and how many those are.
fn files(dir: &tempfile::TempDir) -> usize {
    std::fs::read_dir(dir.path().join("run")).unwrap().count()
}

fn instances(dir: &tempfile::TempDir) -> [Paths; 2] {
    let (run, pins) = (dir.path().join("run"), dir.path().join("pins"));
    ["a", "b"].map(|name| Paths::under(&run, &pins, name).unwrap())
}

/// A file system without room: for the text of any file, or for any file.
struct Full(tempfile::TempDir);

impl Full {
    fn new(limit: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let full = Self(dir);
        full.mount(MsFlags::empty(), limit);
        // One file fits.
        std::fs::write(full.0.path().join("large"), "x").unwrap();
        full
    }

    fn mount(&self, flags: MsFlags, limit: &str) {
        let tmpfs = Some("tmpfs");
        mount(tmpfs, self.0.path(), tmpfs, flags, Some(limit)).unwrap();
    }

    fn paths(&self) -> [Paths; 2] {
        let pins = self.0.path().join("pins");
        ["a", "b"].map(|name| Paths::under(self.0.path(), &pins, name).unwrap())
    }
}

impl Drop for Full {
    fn drop(&mut self) {
        let _ = umount2(self.0.path(), MntFlags::MNT_DETACH);
    }
}

#[test]
fn without_room_a_start_goes_on_once_and_what_it_holds_is_written_when_there_is_room() {
    for (limit, room) in [("size=4k", "size=1m"), ("nr_inodes=2", "nr_inodes=100")] {
        let full = Full::new(limit);
        let [a, b] = full.paths();
        let lock = Lock::take(&a).unwrap();
        let process = match limit {
            "nr_inodes=2" => std::process::id().to_string(),
            _ => "(unknown: there was no room to write its id)".to_owned(),
        };
        let said = refused(Lock::take(&a));
        let wanted = format!("instance \"a\" runs already as process {process};");
        assert!(said.contains(&wanted), "{limit}: {said}");
        let mut first = Claims::take(&a, &[("gateway", vec!["eth1"])]).unwrap();
        let said = refused(Claims::take(&b, &[("gateway", vec!["eth1"])]));
        let wanted = format!("device \"eth1\": an instance has it already (process {process});");
        assert!(said.starts_with(&wanted), "{limit}: {said}");
        Claims::take(&b, &[("gateway", vec!["eth2"])]).unwrap();
        let said = format!("{:#}", first.keep().unwrap_err());
        let place = full.0.path().display();
        assert!(
            said.starts_with(&format!("cannot write {place}/")),
            "{said}"
        );
        assert!(
            said.contains(&format!("-eth1.device: make room in {place}: No space")),
            "{said}"
        );

        full.mount(MsFlags::MS_REMOUNT, room);
        first.keep().unwrap();
        let said = refused(Claims::take(&b, &[("gateway", vec!["eth1"])]));
        let wanted = "device \"eth1\": instance \"a\" has it already (process ";
        assert!(said.starts_with(wanted), "{limit}: {said}");
        drop((lock, first));
        Lock::take(&a).unwrap();
        Claims::take(&b, &[("gateway", vec!["eth1"])]).unwrap();
    }
}

/// A process of nobody's that has an address.
fn nobody_at(path: &Path) -> std::process::Child {
    let address = SocketAddr::from_abstract_name(path.as_os_str().as_bytes()).unwrap();
    let mut command = std::process::Command::new("sleep");
    // SAFETY: plain system calls; nothing is allocated or locked between fork and exec.
    unsafe {
        command.pre_exec(move || {
            nix::unistd::setuid(nix::unistd::Uid::from_raw(65_534))?;
            let listener = UnixListener::bind_addr(&address)?;
            nix::fcntl::fcntl(&listener, FcntlArg::F_SETFD(FdFlag::empty()))?;
            std::mem::forget(listener);
            Ok(())
        });
    }
    command.arg("60").spawn().unwrap()
}

#[test]
fn an_address_that_somebody_else_has_keeps_nobody_from_starting() {
    let full = Full::new("nr_inodes=2");
    let [a, _] = full.paths();
    let mut nobody = nobody_at(&a.lock());
    assert_eq!(bind(&a.lock()).unwrap_err().kind(), ErrorKind::AddrInUse);
    Lock::take(&a).unwrap();
    full.mount(MsFlags::MS_REMOUNT, "nr_inodes=100");
    Lock::take(&a).unwrap();
    nobody.kill().unwrap();
    nobody.wait().unwrap();
}

/// Lets go as a process that is killed does.
fn kill(mut claims: Claims) {
    claims.held.values_mut().for_each(|file| file.stays = true);
}

#[test]
fn a_look_between_the_check_of_a_configuration_and_its_adoption_costs_no_device() {
    let dir = tempfile::tempdir().unwrap();
    let [own, other] = instances(&dir);
    let mut claims = Claims::take(&own, &[("gateway", vec!["eth0"])]).unwrap();
    claims.add("gateway", &["eth0", "eth1"]).unwrap();
    claims.keep_for("gateway", &["eth0"], true).unwrap();
    claims
        .keep_for("gateway", &["eth0", "eth1"], false)
        .unwrap();
    let refused = refused(Claims::take(&other, &[("gateway", vec!["eth1"])]));
    assert!(
        refused.contains("instance \"a\" has it already"),
        "{refused}"
    );
}

#[test]
fn a_device_is_one_instances_and_free_when_that_has_done_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let [a, b] = instances(&dir);
    let mut first = Claims::take(&a, &[("gateway", vec!["eth0", "eth1"])]).unwrap();
    let said = refused(Claims::take(&b, &[("gateway", vec!["eth2", "eth1"])]));
    let wanted = "device \"eth1\": instance \"a\" has it already (process ";
    assert!(said.starts_with(wanted), "{said}");
    let mut second = Claims::take(&b, &[("gateway", vec!["eth2"])]).unwrap();
    refused(first.add("gateway", &["eth0", "eth3", "eth2"]));
    assert_eq!(files(&dir), 3, "what was refused has changed nothing");
    refused(second.add("gateway", &["eth1"]));
    first.keep_only("gateway", &["eth0"]);
    second.add("gateway", &["eth1"]).unwrap();
    drop((first, second));
    assert_eq!(files(&dir), 0);
}

/// Of the 64 blocks both prefer one.
#[test]
fn instances_of_one_hash_have_numbers_of_their_own_and_keep_them() {
    let dir = tempfile::tempdir().unwrap();
    let (run, pins) = (dir.path().join("run"), dir.path().join("pins"));
    let [a, b] = ["h6", "h6bb"].map(|name| Paths::under(&run, &pins, name).unwrap());
    assert_eq!(preferred_block("h6"), preferred_block("h6bb"));
    let first = Numbers::take(&a).unwrap();
    let mut second = Numbers::take(&b).unwrap();
    let ids = second.ids();
    assert_eq!(first.ids(), Ids::of("h6"));
    assert_ne!(first.ids(), ids);
    std::fs::create_dir_all(b.pins().join("v1")).unwrap();
    drop(first);
    second.file.stays = true;
    drop(second);
    assert_eq!(
        Numbers::take(&b).unwrap().ids(),
        ids,
        "its programs have them"
    );
    std::fs::remove_dir_all(b.pins()).unwrap();
    drop(Numbers::take(&b).unwrap());
    assert_eq!(files(&dir), 0);
    let all: Vec<_> = (0..BLOCKS)
        .map(|n| Numbers::take(&Paths::under(&run, &pins, &format!("i{n}")).unwrap()).unwrap())
        .collect();
    let said = refused(Numbers::take(&a));
    assert!(said.starts_with("64 instances have all"), "{said}");
    let blocks: std::collections::BTreeSet<u32> = all.iter().map(|one| one.block).collect();
    assert_eq!(blocks.len(), all.len());
}

#[test]
fn a_device_of_a_killed_instance_is_free_when_its_programs_are_gone() {
    let dir = tempfile::tempdir().unwrap();
    let [a, b] = instances(&dir);
    kill(Claims::take(&a, &[("gateway", vec!["eth1"])]).unwrap());
    std::fs::create_dir_all(a.pins().join("v1")).unwrap();
    let said = refused(Claims::take(&b, &[("gateway", vec!["eth1"])]));
    let wanted = "device \"eth1\": instance \"a\" ended without a clean stop";
    assert!(said.starts_with(wanted), "{said}");
    Claims::take(&a, &[("gateway", vec!["eth1"])]).unwrap();
    std::fs::remove_dir_all(a.pins().join("v1")).unwrap();
    std::fs::write(a.pins().join("somebodys"), "").unwrap();
    Claims::take(&b, &[("gateway", vec!["eth1"])]).unwrap();
}

#[test]
fn a_device_stays_an_instances_whose_programs_stay_however_its_process_ends() {
    let dir = tempfile::tempdir().unwrap();
    let [a, b] = instances(&dir);
    std::fs::create_dir_all(a.pins().join("v1")).unwrap();
    drop(Claims::take(&a, &[("gateway", vec!["eth1"])]).unwrap());
    refused(Claims::take(&b, &[("gateway", vec!["eth1"])]));
    let other = Claims::take(&b, &[("gateway", vec!["eth2"])]).unwrap();
    refused(Claims::take(&a, &[("gateway", vec!["eth1", "eth2"])]));
    refused(Claims::take(&b, &[("gateway", vec!["eth1"])]));
    drop(other);
    let again = Claims::take(&a, &[("gateway", vec!["eth1"])]).unwrap();
    std::fs::remove_dir_all(a.pins()).unwrap();
    drop(again);
    assert_eq!(files(&dir), 0);
}

/// Of the lock, of what says whose a device is and whose the numbers are, and of the folder of them.
#[test]
fn whatever_stands_in_the_place_of_a_file_keeps_nobody_from_starting() {
    let makes: [fn(&Path); 4] = [
        |place| std::fs::create_dir_all(place.join("full")).unwrap(),
        |place| nix::unistd::mkfifo(place, nix::sys::stat::Mode::S_IRWXU).unwrap(),
        |place| std::os::unix::fs::symlink("/nowhere", place).unwrap(),
        |place| std::fs::write(place, b"\xff\0garbled").unwrap(),
    ];
    for make in makes {
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths::under(&dir.path().join("run"), dir.path(), "a").unwrap();
        let namespace = network_namespace().unwrap();
        std::fs::create_dir(paths.runtime_dir()).unwrap();
        make(&paths.lock());
        make(&paths.claim(namespace, "eth0"));
        (0..BLOCKS).for_each(|block| make(&paths.numbers(namespace, block)));
        let lock = Lock::take(&paths).unwrap();
        let claims = Claims::take(&paths, &[("gateway", vec!["eth0"])]).unwrap();
        let numbers = Numbers::take(&paths).unwrap();
        drop((lock, claims, numbers));
    }
}

#[test]
fn a_file_in_the_place_of_the_folder_is_set_aside() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    std::fs::write(&run, "somebody's").unwrap();
    let paths = Paths::under(&run, dir.path(), "a").unwrap();
    Lock::take(&paths).unwrap();
    let aside = std::fs::read(dir.path().join("run.set-aside"));
    assert_eq!(aside.unwrap(), b"somebody's");
    std::fs::rename(&run, dir.path().join("real")).unwrap();
    std::os::unix::fs::symlink("real", &run).unwrap();
    Lock::take(&paths).unwrap();
    assert!(run.is_symlink(), "a link to a folder stays");
}

#[test]
fn nobody_else_may_open_what_is_locked() {
    let dir = tempfile::tempdir().unwrap();
    let [a, _] = instances(&dir);
    std::fs::create_dir_all(a.lock().parent().unwrap()).unwrap();
    std::fs::write(a.lock(), "").unwrap();
    let _lock = Lock::take(&a).unwrap();
    let _claims = Claims::take(&a, &[("gateway", vec!["eth1"])]).unwrap();
    let _numbers = Numbers::take(&a).unwrap();
    let folder = a.lock().parent().unwrap().to_owned();
    let files = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    let files: Vec<_> = files
        .filter(|file| file.file_type().unwrap().is_file())
        .collect();
    assert!(files.len() >= 3, "{files:?}");
    for file in files {
        let mode = file.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{file:?}");
    }
}

#[test]
fn a_device_that_a_killed_instance_had_is_free_when_it_runs_again_without_it() {
    let dir = tempfile::tempdir().unwrap();
    let [a, b] = instances(&dir);
    std::fs::create_dir_all(a.pins().join("v1")).unwrap();
    kill(Claims::take(&a, &[("gateway", vec!["eth1", "eth3"])]).unwrap());
    let mut again = Claims::take(&a, &[("gateway", vec!["eth1"])]).unwrap();
    refused(Claims::take(&b, &[("gateway", vec!["eth3"])]));
    again.keep_only("gateway", &["eth1"]);
    Claims::take(&b, &[("gateway", vec!["eth3"])]).unwrap();
    refused(Claims::take(&b, &[("gateway", vec!["eth1"])]));
}
