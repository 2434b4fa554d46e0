//! Compiles the decisions of `bpf/policy` for this machine.

fn main() {
    println!("cargo::rerun-if-changed=../../bpf/include");
    println!("cargo::rerun-if-changed=../../bpf/policy");
    println!("cargo::rerun-if-changed=src/native.c");

    let mut build = cc::Build::new();
    build
        .file("src/native.c")
        .std("gnu11")
        .opt_level(2)
        .warnings(true)
        .extra_warnings(true);
    if std::env::var("PROFILE").as_deref() == Ok("debug") {
        // Undefined behaviour in a decision ends the test that reached it. Trapping needs no runtime library.
        build
            .flag("-fsanitize=undefined")
            .flag("-fsanitize-undefined-trap-on-error");
    }
    build.compile("anabranch_policy_native");
}
