//! Compiles the packet generator and the sink with clang.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("bpf/packets.bpf.c");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    println!("cargo::rerun-if-changed={}", source.display());
    println!("cargo::rerun-if-env-changed=CLANG");
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    let status = Command::new(&clang)
        .args(["-target", "bpf", "-mcpu=v3", "-O2", "-g"])
        .args(["-Wall", "-Wextra", "-Werror", "-c"])
        .args(multiarch_include())
        .arg(&source)
        .arg("-o")
        .arg(out.join("packets.bpf.o"))
        .status();
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{clang} could not compile {}: {status}", source.display()),
        Err(error) => panic!("{clang}: {error}; install clang 14 or later, or name it in CLANG"),
    }
}

/// Debian keeps `asm/` headers under the machine's name, where clang does not look for the bpf target.
fn multiarch_include() -> Option<String> {
    let machine = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets CARGO_CFG_TARGET_ARCH");
    let folder = format!("/usr/include/{machine}-linux-gnu");
    Path::new(&folder).exists().then(|| format!("-I{folder}"))
}
