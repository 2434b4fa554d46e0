//! Requests of clients while something happens to a service: a thousand a second, each over a connection of its own.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anabranch_testbed::netns::Namespace;
use anabranch_workload::client::{Addresses, ClientConfig, Stop, TransferEvent, run};
use anabranch_workload::{
    Arrival, ArrivalPlan, ClassId, Direction, Pattern, RemoteServerId, Transfer, TransferId, UserId,
};

use crate::common::{DEADLINE, until};
use crate::site::Site;

const PER_SECOND: u32 = 1000;
/// The path of a page, and how many bytes it has.
pub const PAGE: (&str, &str) = ("/page", "0123456789");
/// A SYN is sent again after one second, and after two more.
const PATIENCE: Duration = Duration::from_millis(2500);

/// Requests that are being made.
pub struct Load {
    /// Time zero of what is noted.
    epoch: Instant,
    stop: Stop,
    events: mpsc::Receiver<TransferEvent>,
    /// When those began that have not ended.
    open: BTreeMap<TransferId, f64>,
    thread: JoinHandle<Vec<Transfer>>,
}

impl Load {
    /// Begins, and waits until some are answered.
    pub fn begin(site: &Site) -> Self {
        let mut config = ClientConfig::new(vec![Addresses {
            servers: vec![site.web()],
            sources: vec![site.client()],
        }]);
        config.path = PAGE.0.to_owned() + "/{bytes}";
        config.connect_timeout = PATIENCE;
        config.idle_timeout = PATIENCE;
        // Each server tells its own address in place of its client's.
        config.links = (0..site.servers.len())
            .map(|number| (site.server(number), number.to_string()))
            .collect();
        let (epoch, stop) = (config.epoch, config.stop.clone());
        let (tell, events) = mpsc::channel();
        let thread = in_namespace(&site.front, move || run(&plan(), config, tell).unwrap());
        let mut load = Self {
            epoch,
            stop,
            events,
            open: BTreeMap::new(),
            thread,
        };
        load.goes_on();
        load
    }

    /// On the clock of what is noted of each request.
    pub fn now_s(&self) -> f64 {
        self.epoch.elapsed().as_secs_f64()
    }

    /// Waits until some requests have ended that began from here on.
    pub fn goes_on(&mut self) {
        let (from, mut ended) = (self.now_s(), 0);
        until("requests are made", || {
            ended += self.hear(|start_s| start_s > from);
            ended > PER_SECOND as usize / 4
        });
    }

    /// Waits until the fate of every request is known that began until now.
    pub fn settles(&mut self) {
        let now_s = self.now_s();
        until("they have ended", || {
            self.hear(|_| true);
            self.open.values().all(|start_s| *start_s > now_s)
        });
    }

    /// Follows which requests are under way, and counts those that ended by when they began.
    fn hear(&mut self, counts: impl Fn(f64) -> bool) -> usize {
        let mut ended = 0;
        for event in self.events.try_iter() {
            match event {
                TransferEvent::Started { id, start_s, .. } => {
                    self.open.insert(id, start_s);
                }
                TransferEvent::Progress { .. } => {}
                TransferEvent::Finished(transfer) => {
                    self.open.remove(&transfer.id);
                    ended += usize::from(counts(transfer.start_s));
                }
            }
        }
        ended
    }

    /// All requests that came to an end.
    pub fn end(self) -> Vec<Transfer> {
        self.stop.order();
        let mut all = self.thread.join().unwrap();
        all.retain(|transfer| transfer.outcome.is_ok() || transfer.outcome.is_failure());
        all
    }
}

fn in_namespace<T: Send + 'static>(
    namespace: &Namespace,
    work: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    // Threads begin in the namespace of the one that starts them.
    namespace.run(|| std::thread::spawn(work)).unwrap()
}

/// Evenly, until long after every test is over.
fn plan() -> ArrivalPlan {
    let count = PER_SECOND * 3 * DEADLINE.as_secs() as u32;
    let arrivals = (0..count).map(|number| Arrival {
        at: Duration::from_secs(1) * number / PER_SECOND,
        user: UserId(0),
        server: RemoteServerId(0),
        class: ClassId(0),
        bytes: PAGE.1.len() as u64,
        direction: Direction::Down,
    });
    ArrivalPlan {
        pattern: Pattern::Rows(arrivals.collect()),
        seed: 0,
    }
}

/// What an nginx serves that tells its own address, where [`Load`] reads which server it was.
pub fn pages(own: IpAddr) -> String {
    let (path, text) = PAGE;
    format!("location {path} {{ add_header X-Client {own}; return 200 '{text}'; }}")
}
