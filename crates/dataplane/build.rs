//! Compiles the programs of `bpf` with clang into the objects this crate carries.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

fn main() {
    let bpf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bpf");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    println!("cargo::rerun-if-changed={}", bpf.display());
    println!("cargo::rerun-if-env-changed=CLANG");
    for program in ["gateway", "trunk"] {
        compile(
            &bpf.join(format!("{program}.bpf.c")),
            &out.join(format!("{program}.bpf.o")),
        );
    }
}

fn compile(source: &Path, object: &Path) {
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    let status = Command::new(&clang)
        .args([
            "-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-c",
        ])
        .args(multiarch_include())
        .arg(source)
        .arg("-o")
        .arg(object)
        .status();
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{clang} could not compile {}: {status}", source.display()),
        Err(error) => panic!("{clang}: {error}; install clang 14 or later, or name it in CLANG"),
    }
}

/// Debian keeps `asm/` headers under the machine's name, where clang does not look for the bpf target.
fn multiarch_include() -> Vec<String> {
    let machine = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets CARGO_CFG_TARGET_ARCH");
    let folder = format!("/usr/include/{machine}-linux-gnu");
    if Path::new(&folder).exists() {
        vec!["-I".to_owned(), folder]
    } else {
        Vec::new()
    }
}
