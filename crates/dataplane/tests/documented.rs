//! What docs/nat.md says is shown by a test is.

use std::{fs, path::Path};

/// All test sources below a folder, one after the other.
fn sources(folder: &Path) -> String {
    let entries = fs::read_dir(folder).unwrap();
    let texts = entries.map(|entry| {
        let path = entry.unwrap().path();
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("rs") => fs::read_to_string(path).unwrap(),
            _ if path.is_dir() => sources(&path),
            _ => String::new(),
        }
    });
    texts.collect()
}

#[test]
fn every_test_that_the_table_of_demands_names_exists() {
    let repository = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let table = fs::read_to_string(repository.join("docs/nat.md")).unwrap();
    let folders = ["dataplane/tests", "daemon/src/config"];
    let sources = folders.map(|folder| sources(&repository.join("crates").join(folder)));
    let sources = sources.concat();
    // Names are sentences; other words in such quotes are shorter.
    let quoted = table.lines().filter(|line| !line.starts_with("```"));
    let quoted = quoted.flat_map(|line| line.split('`').skip(1).step_by(2));
    let names: Vec<&str> = quoted
        .filter(|word| word.matches('_').count() >= 3)
        .collect();
    assert!(names.len() >= 40, "{names:?}");
    for name in names {
        let test = format!("#[test]\nfn {name}()");
        assert!(sources.contains(&test), "no test {name}");
    }
}
