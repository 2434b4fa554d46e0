//! What stands where a gateway keeps its own, and is none of it: the start goes on, and the log names it.

use std::path::{Path, PathBuf};

use anabranch_core::Family;
use anabranch_policy::abi::ABI_VERSION;
use anabranch_testbed::netns::Exit;
use nix::sys::signal::Signal;

use crate::rig::*;

anabranch_testbed::in_both_families!(
    Family:
    pins_that_cannot_be_used_are_set_aside_and_named,
    tables_of_its_name_that_are_none_of_its_own_are_kept_in_a_file_and_named,
);

/// Warnings of a daemon about what it found.
fn said(rig: &Rig) -> Vec<String> {
    let log = std::fs::read_to_string(rig.log()).unwrap();
    let warnings = log.lines().filter(|line| line.contains(" WARN "));
    let about = ["set aside", "is missing", "are forgotten", "nftables table"];
    warnings
        .filter(|line| about.iter().any(|words| line.contains(words)))
        .map(str::to_owned)
        .collect()
}

fn pins_that_cannot_be_used_are_set_aside_and_named(family: Family) {
    let rig = Rig::of(family);
    let daemon = rig.start_logging();
    let mut stream = rig.connect().unwrap();
    echo(&mut stream).unwrap();
    assert_eq!(daemon.end(Signal::SIGKILL), Exit::Signal(9));
    assert_eq!(said(&rig), [""; 0]);
    let pins = rig.pins.join(INSTANCE).join(format!("v{ABI_VERSION}"));
    for name in ["routes", "devices"] {
        std::fs::remove_file(pins.join(name)).unwrap();
        std::fs::create_dir(pins.join(name)).unwrap();
    }
    std::fs::rename(pins.join("settings"), pins.join("links")).unwrap();
    std::fs::create_dir_all(pins.join("sweep_flows/full")).unwrap();

    let daemon = rig.start_logging();

    assert!(daemon.status().adopted);
    echo(&mut stream).expect("a flow of the daemon before");
    (0..4).for_each(|_| echo(&mut rig.connect().unwrap()).unwrap());
    let lines = said(&rig);
    for (name, what) in [
        ("routes", "was a folder, in the place of a map (lpm trie, "),
        ("devices", "was a folder, in the place of a map (array, "),
        ("links", "was a map (array, 4-byte keys, "),
        ("sweep_flows", "was a folder, in the place of a program"),
        ("settings", "is missing: the map is made anew"),
    ] {
        let path = pins.join(name);
        let line = lines
            .iter()
            .find(|line| line.contains(&format!("{} ", path.display())));
        let line = line.unwrap_or_else(|| panic!("{name}: {lines:#?}"));
        assert!(line.contains(what), "{line}");
        let aside = format!("set aside as {}-set-aside", path.display());
        assert!(line.contains(&aside) || name == "settings", "{line}");
    }
    assert_eq!(lines.len(), 5, "{lines:#?}");
    assert_eq!(daemon.end(Signal::SIGKILL), Exit::Signal(9));
    let daemon = rig.start_logging();
    assert_eq!(said(&rig), [""; 0]);
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
    assert!(!rig.pins.join(INSTANCE).exists());
}

/// Those of its own are not, be it after a kill.
fn tables_of_its_name_that_are_none_of_its_own_are_kept_in_a_file_and_named(family: Family) {
    let rig = Rig::of(family);
    let nft = |script: &str| rig.gateway.exec("nft", &[script]).unwrap();
    nft(
        "table inet anabranch_test { chain mine { type filter hook input priority 5; }; set forward { type ipv4_addr; }; }",
    );
    nft("table ip anabranch_test { chain postrouting { ip saddr 10.9.9.9 accept; }; }");
    nft("table ip6 anabranch_test { chain theirs { accept; }; }");

    let daemon = rig.start_logging();

    (0..4).for_each(|_| echo(&mut rig.connect().unwrap()).unwrap());
    let lines = said(&rig);
    let [inet, ip] = &lines[..] else {
        panic!("{lines:#?}")
    };
    for words in [
        "nftables table inet anabranch_test was there with chain mine, set forward (not ours), without set sources, ",
        "replaced; it is set aside as ",
    ] {
        assert!(inet.contains(words), "{inet}");
    }
    assert!(
        ip.contains(
            "table ip anabranch_test was there with chain postrouting (not ours): replaced; "
        ),
        "{ip}"
    );
    let kept = |number: &str| {
        let path = rig
            .paths()
            .state_of("gateway")
            .with_extension(format!("nft.set-aside{number}"));
        std::fs::read_to_string(path).unwrap()
    };
    assert!(kept("").contains("chain mine"), "{}", kept(""));
    assert!(kept(".1").contains("10.9.9.9"), "{}", kept(".1"));
    let listed = nft("list tables");
    assert!(listed.contains("table ip6 anabranch_test"), "{listed}");

    assert_eq!(daemon.end(Signal::SIGKILL), Exit::Signal(9));
    let daemon = rig.start_logging();
    assert_eq!(said(&rig), [""; 0]);
    assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
    assert!(!nft("list tables").contains("inet anabranch_test"));
}

/// Folders, a FIFO, a link to nowhere and a file with nothing sensible in it, of every file of an instance.
#[test]
fn whatever_stands_in_the_place_of_an_instances_files_is_set_aside_and_named() {
    let makes: [fn(&Path); 4] = [
        |place| std::fs::create_dir_all(place.join("full")).unwrap(),
        |place| nix::unistd::mkfifo(place, nix::sys::stat::Mode::S_IRWXU).unwrap(),
        |place| std::os::unix::fs::symlink("/nowhere", place).unwrap(),
        |place| std::fs::write(place, b"\xff\0garbled").unwrap(),
    ];
    let rig = Rig::new();
    for make in makes {
        let paths = rig.paths();
        let state = |extension: &str| paths.state_of("gateway").with_extension(extension);
        let places: [PathBuf; 5] = [
            paths.socket(),
            paths.lock(),
            state("json"),
            state("json.new"),
            state("json.copy"),
        ];
        for place in &places {
            if let Some(folder) = place.parent() {
                std::fs::create_dir_all(folder).unwrap();
            }
            make(place);
        }
        let daemon = rig.start_logging();
        echo(&mut rig.connect().unwrap()).unwrap();
        let is_garbled_file =
            places[1].is_file() && !said(&rig).iter().any(|line| line.contains(".lock "));
        for place in &places {
            let shown = format!("{}", place.display());
            let named = said(&rig).iter().any(|line| line.contains(&shown));
            assert!(named || is_garbled_file, "{shown}: {:#?}", said(&rig));
        }
        assert_eq!(daemon.end(Signal::SIGTERM), Exit::Code(0));
        assert!(!paths.socket().exists() && !paths.lock().exists());
    }
}
