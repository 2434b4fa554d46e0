//! Compiles the programs of `bpf` into the objects this crate carries, compressed: they are mostly names and types.

use std::{
    env, fs,
    io::Write,
    path::{Path, PathBuf},
};

use flate2::{Compression, write::ZlibEncoder};

const NAMES: [&str; 5] = ["gateway", "member", "service", "trunk", "upgrade"];
/// For the tests of upgrades, as clang makes it.
const FORMER: &str = "former";

fn main() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bpf");
    anabranch_bpf_build::compile(&folder, &NAMES);
    anabranch_bpf_build::compile(&folder, &[FORMER]);
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    for name in NAMES {
        compress(&out.join(format!("{name}.bpf.o")));
    }
}

fn compress(object: &Path) {
    let bytes = fs::read(object).expect("it was compiled");
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&bytes).expect("memory takes all");
    let packed = encoder.finish().expect("memory takes all");
    fs::write(object.with_extension("o.z"), packed).expect("OUT_DIR can be written to");
}
