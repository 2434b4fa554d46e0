//! What tests of services share: web servers, and what the daemon says of its servers.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use anabranch_api::{Request, Response, ServerStatus, Status};
use anabranch_testbed::netns::{Child, Namespace};

use crate::common::{DEADLINE, Daemon, until};

impl Daemon {
    pub fn instance_status(&self) -> Status {
        match self.call(&Request::Status) {
            Response::Status(status) => *status,
            other => panic!("{other:?}"),
        }
    }
}

/// In the order of the configuration.
pub fn servers(daemon: &Daemon, service: &str) -> Vec<ServerStatus> {
    let status = daemon.instance_status();
    let services = status.services.expect("services");
    let mut all = services.services.into_iter();
    all.find(|one| one.name == service)
        .expect("a service")
        .servers
}

/// Starts nginx with these pages (what is in its `server` block) and its files in `folder`.
pub fn web_server(node: &Namespace, folder: &Path, at: SocketAddr, pages: &str) -> Child {
    let text = format!(
        "daemon off; master_process off; pid nginx.pid; error_log stderr;
         events {{ worker_connections 4096; }}
         http {{
             access_log off;
             client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
             server {{ listen {at} backlog=4096; {pages} }}
         }}"
    );
    let file = folder.join("nginx.conf");
    std::fs::write(&file, text).unwrap();
    let mut command = Command::new("nginx");
    command.arg("-p").arg(folder).arg("-c").arg(&file);
    let child = node.spawn(command).unwrap();
    until("nginx listens", || node.connect(at, DEADLINE).is_ok());
    child
}

/// A node falls silent. Its cable stays, as that of a switch would.
pub fn cut_power(node: &Namespace) {
    let drop = ["input", "output"]
        .map(|hook| format!("chain {hook} {{ type filter hook {hook} priority 0; policy drop; }}"));
    let rules = format!("table inet power {{\n{}\n}}", drop.join("\n"));
    node.nft(&rules).unwrap();
}
