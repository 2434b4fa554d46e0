//! Compiles the decisions of `bpf/policy` for this machine, and writes the contract of `bpf/include` in Rust.

use std::path::{Path, PathBuf};

use bindgen::FieldVisibilityKind;
use bindgen::callbacks::{
    AttributeInfo, DeriveInfo, EnumVariantValue, FieldInfo, IntKind, ItemInfo, ParseCallbacks,
    TypeKind,
};

const INCLUDE: &str = "../../bpf/include";
/// The headers of `bpf/policy` that Rust calls functions of.
const DECISIONS: [&str; 15] = [
    "bins",
    "choose",
    "connection",
    "drr",
    "hash",
    "keyed",
    "npt",
    "paths",
    "race",
    "rules",
    "session",
    "tcp",
    "trace",
    "tries",
    "witness",
];

fn main() {
    println!("cargo::rerun-if-changed={INCLUDE}");
    println!("cargo::rerun-if-changed=../../bpf/policy");
    println!("cargo::rerun-if-changed=src/native.c");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    generate_contract(&out);
    wrap_decisions(&out);
    compile(&out);
}

fn compile(out: &Path) {
    let mut build = cc::Build::new();
    build
        .file("src/native.c")
        .file(out.join("decisions.c"))
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

/// With C's integers; only what is asked for, not what it consists of.
fn builder() -> bindgen::Builder {
    bindgen::Builder::default()
        .raw_line("use core::primitive::{u8 as __u8, u16 as __u16, u32 as __u32, u64 as __u64};")
        .allowlist_recursively(false)
}

/// The inline functions of `bpf/policy`, each behind one that can be linked.
fn wrap_decisions(out: &Path) {
    let policy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bpf/policy");
    let header = |name: &&str| policy.join(name).with_extension("h").display().to_string();
    builder()
        .headers(DECISIONS.iter().map(header))
        .allowlist_function("ab_.*")
        .blocklist_type("ab_.*|__be16")
        .blocklist_function("ab_.*(visit|scan|pick_by|sip|step).*")
        .wrap_static_fns(true)
        .wrap_static_fns_path(out.join("decisions.c"))
        .generate()
        .expect("bindgen reads bpf/policy")
        .write_to_file(out.join("decisions.rs"))
        .expect("OUT_DIR can be written to");
}

/// Structures, enumerations and numbers as the headers have them, with their comments.
fn generate_contract(out: &Path) {
    let header = |name| Path::new(INCLUDE).join(name).display().to_string();
    builder()
        .header(header("anabranch.h"))
        .header(header("bins.h"))
        .header(header("former.h"))
        .header(header("member.h"))
        .header(header("rules.h"))
        .header(header("service.h"))
        .header("../../bpf/policy/choose.h")
        .header("../../bpf/policy/tcp.h")
        .header("../../bpf/policy/tries.h")
        // The comments of the headers are ordinary ones.
        .clang_arg("-fparse-all-comments")
        .allowlist_item("(ab|AB)_.*")
        // Reasons are rows of a table, see `reasons`.
        .blocklist_item("AB_(|TRUNK_|SERVICE_|MEMBER_)REASON.*|ab_(|trunk_|service_|member_)reason")
        // What bpf/policy has beside its enumerations.
        .blocklist_item(
            "AB_(CONSISTENT_ST.*|POLICY_.*|RULE_STEPS|SCANNED|TRIED_CLASSES|TRIES_.*|TRY_.*)",
        )
        .blocklist_function(".*")
        .blocklist_type("ab_(addr|scan|visit)")
        .rustified_enum(
            "ab_(answer|dispatch|family|fate|granularity|hearing|load|role|spread|syn|ties|unknown|verdict|why|without)",
        )
        .prepend_enum_name(false)
        .derive_default(true)
        .derive_copy(false)
        .derive_debug(false)
        .parse_callbacks(Box::new(Names))
        .generate()
        .expect("bindgen reads bpf/include with libclang: install clang 14 or later")
        .write_to_file(out.join("contract.rs"))
        .expect("OUT_DIR can be written to");
}

/// `ab_flow_key` is `FlowKey`, `AB_DISPATCH_BEST` is `Dispatch::Best`, `AB_MAX_LINKS` is `MAX_LINKS`.
#[derive(Debug)]
struct Names;

impl ParseCallbacks for Names {
    fn item_name(&self, item: ItemInfo) -> Option<String> {
        if let Some(name) = item.name.strip_prefix("AB_") {
            return Some(name.to_owned());
        }
        match item.name {
            "__be16" => Some("BePort".to_owned()),
            name => name.strip_prefix("ab_").map(camel),
        }
    }

    fn enum_variant_name(
        &self,
        enumeration: Option<&str>,
        variant: &str,
        _: EnumVariantValue,
    ) -> Option<String> {
        let name = variant.strip_prefix("AB_")?;
        let enumeration = enumeration?
            .trim_start_matches("enum ")
            .strip_prefix("ab_")?;
        let prefix = match enumeration {
            "family" => "IP".to_owned(),
            "granularity" => "PER".to_owned(),
            "fate" => String::new(),
            // Bits are constants, which keep their names.
            "state" | "connection_state" | "link_flags" | "server_flags" | "sublink_flags" => {
                return Some(name.to_owned());
            }
            enumeration => enumeration.to_uppercase(),
        };
        Some(camel(&name.strip_prefix(&prefix)?.to_lowercase()))
    }

    fn int_macro(&self, name: &str, _: i64) -> Option<IntKind> {
        let is_size = ["_MAX", "_BINS", "_SLOTS", "_WORDS"]
            .iter()
            .any(|end| name.ends_with(end) && !name.starts_with("AB_WEIGHT"));
        let kind = match name {
            "AB_FAMILIES" | "AB_MAX_CLASSES" | "AB_MAX_LINKS" | "AB_MAX_SERVICES"
            | "AB_MAX_TARGETS" => "usize",
            "AB_NO_TARGET" => "u16",
            "AB_SIDE_DIRECT" | "AB_SIDE_LAN" | "AB_SIDE_NAT" => "u8",
            _ if is_size => "usize",
            _ if name.ends_with("_NS") => "u64",
            _ if name.starts_with("AB_TCP_") => "u8",
            _ => "u32",
        };
        Some(IntKind::Custom {
            name: kind,
            is_signed: false,
        })
    }

    fn add_derives(&self, info: &DeriveInfo<'_>) -> Vec<String> {
        let derives: &[&str] = match info.kind {
            TypeKind::Enum => &["Copy", "Debug", "PartialOrd", "Ord"],
            // Pod refuses padding, and whatever else may not cross to the programs.
            _ => &[
                "Clone",
                "Copy",
                "Debug",
                "PartialEq",
                "Eq",
                "Hash",
                "Pod",
                "Zeroable",
            ],
        };
        derives.iter().map(|&derive| derive.to_owned()).collect()
    }

    /// The weight of a target is set by `Target::new` alone.
    fn field_visibility(&self, field: FieldInfo<'_>) -> Option<FieldVisibilityKind> {
        let is_weight = (field.type_name, field.field_name) == ("Target", "weight");
        is_weight.then_some(FieldVisibilityKind::PublicCrate)
    }

    fn add_attributes(&self, info: &AttributeInfo<'_>) -> Vec<String> {
        match info.kind {
            TypeKind::Enum => vec![
                "#[derive(num_enum::TryFromPrimitive)]".to_owned(),
                "#[num_enum(error_type(name = UnknownValue, constructor = UnknownValue))]"
                    .to_owned(),
            ],
            _ => Vec::new(),
        }
    }
}

fn camel(name: &str) -> String {
    let words = name.split('_').filter(|word| !word.is_empty());
    words
        .map(|word| word[..1].to_uppercase() + &word[1..])
        .collect()
}
