//! Code points of DSCP by their names.

/// Code points that have names: RFC 2474, 2597, 3246, 5865, 8622.
pub(super) const DSCPS: [(&str, u8); 24] = [
    ("be", 0),
    ("le", 1),
    ("cs0", 0),
    ("cs1", 8),
    ("af11", 10),
    ("af12", 12),
    ("af13", 14),
    ("cs2", 16),
    ("af21", 18),
    ("af22", 20),
    ("af23", 22),
    ("cs3", 24),
    ("af31", 26),
    ("af32", 28),
    ("af33", 30),
    ("cs4", 32),
    ("af41", 34),
    ("af42", 36),
    ("af43", 38),
    ("cs5", 40),
    ("va", 44),
    ("ef", 46),
    ("cs6", 48),
    ("cs7", 56),
];

/// The code point of this name or number.
pub fn dscp_of(text: &str) -> Option<u8> {
    let number = text.parse().ok().filter(|number| *number < 64);
    number.or_else(|| value_of(&DSCPS, text))
}

/// As `dscp_of` reads it: its name if it has one.
pub(super) fn dscp_name(code: u8) -> String {
    let named = DSCPS.iter().find(|(_, value)| *value == code);
    named.map_or_else(|| code.to_string(), |(name, _)| (*name).to_owned())
}

pub(super) fn value_of(names: &[(&str, u8)], text: &str) -> Option<u8> {
    let named = names
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(text));
    named.map(|(_, value)| *value)
}
