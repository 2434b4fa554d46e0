//! Compiles BPF programs with clang, for the build scripts of the crates that carry the objects.

#![deny(missing_docs)]

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::build::elf::{Builder, SectionData};

/// Compiles `<folder>/<name>.bpf.c` of each name to `$OUT_DIR/<name>.bpf.o`, again whenever something in `folder`
/// changes.
///
/// # Panics
/// If clang is missing or refuses a program: a build script has nobody else to tell.
pub fn compile(folder: &Path, names: &[&str]) {
    compile_defining(folder, names, &[]);
}

/// The same with macros defined.
///
/// # Panics
/// As above.
pub fn compile_defining(folder: &Path, names: &[&str], macros: &[&str]) {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    println!("cargo::rerun-if-changed={}", folder.display());
    println!("cargo::rerun-if-env-changed=CLANG");
    for name in names {
        let source = folder.join(format!("{name}.bpf.c"));
        compile_one(&source, &out.join(format!("{name}.bpf.o")), macros);
    }
}

fn compile_one(source: &Path, object: &Path, macros: &[&str]) {
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    let status = Command::new(&clang)
        .args(["-target", "bpf", "-mcpu=v3", "-O2", "-g"])
        // A table for linkers, which the crate that takes sections out does not know.
        .arg("-fno-addrsig")
        .args(["-Wall", "-Wextra", "-Werror", "-c"])
        .args(multiarch_include())
        .args(macros.iter().map(|name| format!("-D{name}")))
        .arg(source)
        .arg("-o")
        .arg(object)
        .status();
    match status {
        Ok(status) if status.success() => drop_debug_information(object),
        Ok(status) => panic!("{clang} could not compile {}: {status}", source.display()),
        Err(error) => panic!("{clang}: {error}; install clang 14 or later, or name it in CLANG"),
    }
}

/// Types and names are read as BTF alone, and DWARF takes more room than all the rest.
fn drop_debug_information(path: &Path) {
    let bytes = fs::read(path).expect("clang wrote it");
    let mut object = Builder::read(&*bytes).expect("clang writes ELF");
    for section in object.sections.iter_mut() {
        let name = section.name.as_slice();
        section.delete = name.starts_with(b".debug_") || name.starts_with(b".rel.debug_");
    }
    object.delete_orphans();
    // clang has one table of names for sections and symbols.
    let names = object.sections.add();
    names.name = b".shstrtab"[..].into();
    names.sh_type = object::elf::SHT_STRTAB;
    names.data = SectionData::SectionString;
    let mut kept = Vec::new();
    object.write(&mut kept).expect("memory takes all");
    fs::write(path, kept).expect("OUT_DIR can be written to");
}

/// Debian keeps `asm/` headers under the machine's name, where clang does not look for the bpf target.
fn multiarch_include() -> Option<String> {
    let machine = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets CARGO_CFG_TARGET_ARCH");
    let folder = format!("/usr/include/{machine}-linux-gnu");
    Path::new(&folder).exists().then(|| format!("-I{folder}"))
}
