//! What a command has to have before it begins: root and the gateway for the laboratory, a directory for results.

use std::path::PathBuf;

use anabranch_config::BadInput;
use anabranch_lab::product;
use anabranch_results::ResultsDirError;
use anabranch_testbed::netns::check_privilege;

/// The executable of the gateway under test. Refuses to begin what would end in the laboratory's refusal.
pub fn laboratory() -> Result<PathBuf, BadInput> {
    let problem =
        "the laboratory needs root for network namespaces and BPF: run the same with sudo";
    check_privilege().map_err(|_| BadInput::new(problem))?;
    product::find().map_err(BadInput::new)
}

/// A directory that cannot take results is for the user to change.
pub fn unusable(error: &ResultsDirError) -> BadInput {
    BadInput::new(format!("--out {error}"))
}
