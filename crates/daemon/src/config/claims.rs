//! Assigns devices to roles: no device may have two.

use std::collections::BTreeMap;

use anabranch_config::{Source, dotted};

use crate::error::BadInput;

const DEVICE_NAME_CHARS_MAX: usize = libc::IFNAMSIZ - 1;

/// A key, and the device that it names.
pub(crate) type Claim<'a> = (Vec<String>, &'a str);

/// Checks that names of devices are valid, and that no device is named twice.
pub(crate) fn check_claims<'a>(
    source: &Source<'_>,
    claims: impl Iterator<Item = Claim<'a>>,
    rule: &str,
) -> Result<(), BadInput> {
    let mut seen: BTreeMap<&str, String> = BTreeMap::new();
    for (key, device) in claims {
        let key: Vec<&str> = key.iter().map(String::as_str).collect();
        if !is_device_name(device) {
            let allowed = format!(
                "not a device name: 1 to {DEVICE_NAME_CHARS_MAX} characters without '/', ':' and spaces"
            );
            return Err(source.bad(&key, allowed));
        }
        if let Some(other) = seen.insert(device, dotted(&key)) {
            return Err(source.bad(&key, format!("this device is {other} already; {rule}")));
        }
    }
    Ok(())
}

pub(crate) fn claim<'a>(key: &[&str], device: &'a str) -> Claim<'a> {
    (key.iter().map(|part| (*part).to_owned()).collect(), device)
}

fn is_device_name(name: &str) -> bool {
    (1..=DEVICE_NAME_CHARS_MAX).contains(&name.len())
        && name != "."
        && name != ".."
        && name
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && !b"/:\"\\".contains(&byte))
}
