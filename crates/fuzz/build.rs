//! Compiles the gateway's programs a second time: told the time and every random number, for `tests/differential`.

use std::path::Path;

fn main() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bpf");
    anabranch_bpf_build::compile_defining(&folder, &["gateway"], &["AB_AMBIENT_OF_MAP"]);
}
