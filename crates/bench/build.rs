//! Compiles the packet generator, the sink, and the redirect that does nothing else.

use std::path::Path;

fn main() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("bpf");
    anabranch_bpf_build::compile(&folder, &["packets", "redirect"]);
}
