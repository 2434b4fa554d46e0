//! What only root may do.

use anabranch_config::BadInput;
use anabranch_testbed::netns::check_privilege;

/// Refuses to begin what would end in the laboratory's refusal.
pub fn laboratory() -> Result<(), BadInput> {
    let problem =
        "the laboratory needs root for network namespaces and BPF: run the same with sudo";
    check_privilege().map_err(|_| BadInput::new(problem))
}
