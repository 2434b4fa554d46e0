//! How fast one core can download: continuous downloads from an HTTP server on loopback, and the processor time that
//! the client's thread spent on them.
//!
//! `cargo run --release -p anabranch-workload --example saturate [FILE_BYTES]`

use std::convert::Infallible;
use std::sync::mpsc;
use std::time::Duration;

use anabranch_workload::client::{self, Addresses, ClientConfig};
use anabranch_workload::{Size, Workload};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use nix::time::{ClockId, clock_gettime};
use tokio::net::TcpListener;

const SECONDS: u64 = 3;

fn main() {
    let bytes = std::env::args().nth(1).map_or(1_000_000, |bytes| {
        bytes.parse().expect("FILE_BYTES is a number")
    });
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("runtime");
    let listener = runtime
        .block_on(TcpListener::bind("127.0.0.1:0"))
        .expect("a port on loopback");
    let config = ClientConfig::new(vec![Addresses {
        servers: vec![listener.local_addr().expect("bound")],
        sources: vec!["127.0.0.1".parse().expect("address")],
    }]);
    runtime.spawn(serve(listener, Bytes::from(vec![b'x'; bytes])));

    let workload = Workload::continuous(
        1,
        8,
        Size::Fixed(bytes as u64),
        Duration::from_secs(SECONDS),
    );
    let before = thread_time();
    let transfers = client::run(&workload, config, mpsc::channel().0).expect("loopback is there");
    let busy_s = (thread_time() - before).as_secs_f64();
    let bits = transfers
        .iter()
        .map(|transfer| transfer.bytes as f64 * 8.0)
        .sum::<f64>();
    let failed = transfers
        .iter()
        .filter(|transfer| transfer.outcome.is_failure())
        .count();
    println!(
        "files of {bytes} bytes: {} transfers, {failed} failed",
        transfers.len()
    );
    println!(
        "{:.0} Mbit/s, {:.0} Mbit per second of the client's processor time",
        bits / SECONDS as f64 / 1e6,
        bits / busy_s / 1e6
    );
}

async fn serve(listener: TcpListener, file: Bytes) {
    while let Ok((stream, _)) = listener.accept().await {
        let file = file.clone();
        let reply = service_fn(move |_: Request<hyper::body::Incoming>| {
            let file = file.clone();
            async move { Ok::<_, Infallible>(Response::new(Full::new(file))) }
        });
        tokio::spawn(
            hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), reply),
        );
    }
}

fn thread_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)
        .expect("Linux has a clock per thread")
        .into()
}
