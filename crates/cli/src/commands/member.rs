//! Looks after a member.

use std::path::Path;

use anabranch_api::Paths;
use anabranch_console::output::{print, print_json};
use anabranch_daemon::member::examine;
use anyhow::bail;

use crate::control::Daemon;
use crate::words;

pub fn doctor(instance: &str, config: &Path, json: bool) -> anyhow::Result<()> {
    // Without a daemon there is all the more to find.
    let status = Daemon::of(instance).and_then(|mut daemon| daemon.status());
    let member = status.ok().and_then(|status| status.member);
    let found = examine(config, &Paths::new(instance)?, member.map(|member| *member))?;
    let troubles = words::troubles(&found);
    if json {
        print_json(&found)?;
    } else {
        print(found.iter().map(words::finding).collect::<String>())?;
    }
    match troubles {
        0 if json => Ok(()),
        0 => print("nothing is wrong with this server as a member\n"),
        1 => bail!("one thing is wrong with this server as a member"),
        count => bail!("{count} things are wrong with this server as a member"),
    }
}
