//! The kernel's own NAT as a safety net: one nftables table that masquerades what the data path leaves to the kernel.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

const TIMEOUT: Duration = Duration::from_secs(10);

/// Whether the nft command and the kernel's part of it are there.
pub async fn available() -> bool {
    let status = Command::new("nft")
        .args(["list", "tables"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .await;
    status.is_ok_and(|status| status.success())
}

/// Everything from a LAN device that leaves by a link's device: what the data path balances never gets here. External
/// ports are the host's own ephemeral ones, which the data path does not use.
pub fn ruleset(
    table: &str,
    lan: &[String],
    links: &[&str],
    [port_min, port_max]: [u16; 2],
) -> String {
    let quoted = |names: &[&str]| {
        names
            .iter()
            .map(|name| format!("{name:?}"))
            .collect::<Vec<_>>()
            .join(", ")
    };
    let lan = quoted(&lan.iter().map(String::as_str).collect::<Vec<_>>());
    let links = quoted(links);
    format!(
        "{empty}\
         table ip {table} {{\n\
         chain postrouting {{\n\
         type nat hook postrouting priority srcnat; policy accept;\n\
         iifname {{ {lan} }} oifname {{ {links} }} meta l4proto {{ tcp, udp }} masquerade to :{port_min}-{port_max}\n\
         iifname {{ {lan} }} oifname {{ {links} }} masquerade\n\
         }}\n}}\n",
        empty = removal(table),
    )
}

/// Deletes the table whether or not it exists.
pub fn removal(table: &str) -> String {
    format!("table ip {table}\ndelete table ip {table}\n")
}

/// Applies `script` as one transaction.
pub async fn run(script: &str) -> anyhow::Result<()> {
    let mut child = Command::new("nft")
        .args(["-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("run nft")?;
    let mut stdin = child.stdin.take().context("nft has no standard input")?;
    stdin
        .write_all(script.as_bytes())
        .await
        .context("write to nft")?;
    drop(stdin);
    let output = tokio::time::timeout(TIMEOUT, child.wait_with_output())
        .await
        .context("nft did not end")??;
    if !output.status.success() {
        bail!(
            "nft refused the fallback table: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(())
}
