//! Compiles the packet generator, the sink, the redirect that does nothing else, and a choice and the class of a flow by themselves.

use std::path::Path;

fn main() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("bpf");
    anabranch_bpf_build::compile(&folder, &["packets", "redirect", "choice", "rules"]);
    for shared in ["include", "policy"] {
        let shared = folder.join("../../../bpf").join(shared);
        println!("cargo::rerun-if-changed={}", shared.display());
    }
}
