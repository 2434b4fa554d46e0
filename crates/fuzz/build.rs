//! Compiles programs a second time: told the time and every random number, for `tests/differential` and `tests/services`. In the
//! latter few connections may have to make room, so that it happens.

use std::path::Path;

fn main() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bpf");
    anabranch_bpf_build::compile_defining(&folder, &["gateway"], &["AB_AMBIENT_OF_MAP"]);
    let few = ["AB_AMBIENT_OF_MAP", "AB_PASSING_MAX=8"];
    anabranch_bpf_build::compile_defining(&folder, &["service"], &few);
}
