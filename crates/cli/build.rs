//! The relocations of a position-independent executable take a megabyte unless they are packed. The linker and the C library of
//! Debian 12 know how (DT_RELR: binutils 2.38, glibc 2.36). The build script of either command: cli's and workbench's.

fn main() {
    println!("cargo::rerun-if-changed=../cli/build.rs");
    println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
}
