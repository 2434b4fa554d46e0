//! The web server: nginx, serving files of given sizes, and the beginnings of one that has any size.

use std::fs::File;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use super::ready::wait_ready;
use super::{Result, io_error};
use anabranch_testbed::netns::{Child, Namespace};

/// Path of a file that is longer than any that is asked for.
pub const ZEROS: &str = "/zeros";
const READY: Duration = Duration::from_secs(10);
const GRACE: Duration = Duration::from_secs(2);

/// Of the file at [`ZEROS`]: 1 TiB, more than any emulated line carries in a week.
const ZEROS_BYTES: u64 = 1 << 40;

/// A running nginx: `/bytes/<size>` is a file of that many zero bytes, `/zeros` one to ask ranges of,
/// `/sink` takes what is sent to it, and every answer names the client's address in
/// `X-Client`. Ends on drop.
#[derive(Debug)]
pub struct HttpServer {
    process: Child,
    addresses: Vec<SocketAddr>,
    _directory: TempDir,
}

impl HttpServer {
    /// Starts nginx in `namespace` and waits until it accepts connections at each of the addresses.
    pub fn start(
        namespace: &Namespace,
        addresses: &[SocketAddr],
        file_bytes: &[u64],
    ) -> Result<Self> {
        Self::start_by(Command::new("nginx"), namespace, addresses, file_bytes)
    }

    /// The same, and connections may be MPTCP's: nginx itself knows no protocol but TCP.
    pub(super) fn start_multipath(
        namespace: &Namespace,
        addresses: &[SocketAddr],
        file_bytes: &[u64],
    ) -> Result<Self> {
        let mut nginx = Command::new("mptcpize");
        nginx.args(["run", "nginx"]);
        Self::start_by(nginx, namespace, addresses, file_bytes)
    }

    fn start_by(
        mut nginx: Command,
        namespace: &Namespace,
        addresses: &[SocketAddr],
        file_bytes: &[u64],
    ) -> Result<Self> {
        let directory =
            TempDir::with_prefix("anabranch-lab-").map_err(io_error("making a directory"))?;
        let root = directory.path();
        lay_out(root, addresses, file_bytes)
            .map_err(io_error("laying out the web server's files"))?;
        let log = root.join("error.log");
        nginx.arg("-p").arg(root);
        nginx.arg("-c").arg(root.join("nginx.conf"));
        nginx.arg("-e").arg(&log);
        nginx
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut process = namespace.spawn(nginx)?;
        for &address in addresses {
            let accepts = || Ok(namespace.connect(address, READY).is_ok());
            wait_ready("nginx", &mut process, &log, READY, accepts)?;
        }
        Ok(Self {
            process,
            addresses: addresses.to_vec(),
            _directory: directory,
        })
    }

    /// Where it listens.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        // A server that does not end in time is killed with its value.
        let _ = self.process.terminate(GRACE);
    }
}

fn lay_out(root: &Path, addresses: &[SocketAddr], file_bytes: &[u64]) -> std::io::Result<()> {
    let files = root.join("bytes");
    std::fs::create_dir(&files)?;
    // Sparse: a file takes no room on the disk.
    File::create(root.join(ZEROS.trim_start_matches('/')))?.set_len(ZEROS_BYTES)?;
    for &size_bytes in file_bytes {
        File::create(files.join(size_bytes.to_string()))?.set_len(size_bytes)?;
    }
    std::fs::write(root.join("nginx.conf"), configuration(root, addresses))
}

/// One process, so that one signal ends it. What is sent to `/sink` is answered when all of it is there: nginx reads a
/// body to its end before it asks the upstream.
fn configuration(root: &Path, addresses: &[SocketAddr]) -> String {
    let root = root.display();
    let listen = addresses
        .iter()
        .map(|address| format!("listen {address} backlog=4096;"));
    let listen = listen.collect::<Vec<_>>().join("\n        ");
    format!(
        "daemon off;
master_process off;
user root;
pid {root}/nginx.pid;
worker_rlimit_nofile 65536;
events {{
    worker_connections 32768;
    multi_accept on;
}}
http {{
    access_log off;
    default_type application/octet-stream;
    sendfile on;
    tcp_nopush on;
    tcp_nodelay on;
    keepalive_requests 1000000;
    client_body_temp_path {root}/body;
    proxy_temp_path {root}/proxy;
    fastcgi_temp_path {root}/fastcgi;
    uwsgi_temp_path {root}/uwsgi;
    scgi_temp_path {root}/scgi;
    server {{
        {listen}
        root {root};
        etag off;
        add_header X-Client $remote_addr always;
        client_max_body_size 0;
        location = /sink {{
            proxy_pass http://unix:{root}/taken.sock;
            proxy_pass_request_body off;
            proxy_set_header Content-Length 0;
        }}
    }}
    server {{
        listen unix:{root}/taken.sock;
        return 200;
    }}
}}
"
    )
}
