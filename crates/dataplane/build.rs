//! Compiles the programs of `bpf` into the objects this crate carries.

use std::path::Path;

fn main() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bpf");
    anabranch_bpf_build::compile(&folder, &["gateway", "trunk"]);
}
