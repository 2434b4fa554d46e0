//! Compiles the flood generator and its sink.

use std::path::Path;

fn main() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("bpf");
    anabranch_bpf_build::compile(&folder, &["flood"]);
}
