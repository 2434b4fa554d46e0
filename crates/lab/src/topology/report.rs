//! What a laboratory did, and whether its figures can be trusted.

use std::collections::BTreeMap;

use anabranch_testbed::emulator::{Link, LinkReport};
use anabranch_testbed::netns::{Counters, Namespace};

use super::{LAN_DEVICE, Lab, LabSpec, Result, io_error, tcp, wan};

/// What a run needs to be believed, or not.
#[derive(Debug, Clone)]
pub struct LabReport {
    /// Its release.
    pub kernel: String,
    /// Processors this process may use.
    pub cores: usize,
    /// What was built.
    pub spec: LabSpec,
    /// By namespace.
    pub congestion_control: BTreeMap<String, String>,
    /// Sysctls by namespace.
    pub settings: BTreeMap<String, BTreeMap<String, String>>,
    /// The kernel's counters by namespace and device.
    pub devices: BTreeMap<String, Counters>,
    /// The last miles.
    pub links: Vec<LinkReport>,
    /// The second hops, each once.
    pub beyond: Vec<LinkReport>,
    /// Why the figures cannot be trusted; empty if they can.
    pub problems: Vec<String>,
}

impl Lab {
    /// What links and kernel did so far, and whether it can be trusted.
    pub fn report(&self) -> Result<LabReport> {
        let links = self.links.iter().map(Link::report);
        let links = links.collect::<Result<Vec<_>, _>>()?;
        let beyond = self.beyond.iter().map(Link::report);
        let beyond = beyond.collect::<Result<Vec<_>, _>>()?;
        Ok(LabReport {
            kernel: read("/proc/sys/kernel/osrelease")?,
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            congestion_control: self.congestion_control()?,
            settings: self.settings()?,
            devices: self.devices()?,
            problems: links
                .iter()
                .chain(&beyond)
                .flat_map(LinkReport::problems)
                .chain(self.under_test.failure())
                .collect(),
            links,
            beyond,
            spec: self.spec.clone(),
        })
    }

    /// What a TCP connection of each namespace gets: the routes', or else the namespace's.
    fn congestion_control(&self) -> Result<BTreeMap<String, String>> {
        let mut found = BTreeMap::new();
        for (name, namespace) in self.namespaces() {
            let [routes, routes6] =
                ["-4", "-6"].map(|flag| namespace.ip(&format!("{flag} route show")));
            let routes = routes? + &routes6?;
            let mut words = routes.split_whitespace();
            let of_routes = words
                .find(|word| *word == "congctl")
                .and_then(|_| words.next());
            let algorithm = match of_routes {
                Some(algorithm) => algorithm.to_owned(),
                None => namespace.sysctl("net/ipv4/tcp_congestion_control")?,
            };
            found.insert(name, algorithm);
        }
        Ok(found)
    }

    fn settings(&self) -> Result<BTreeMap<String, BTreeMap<String, String>>> {
        let mut settings = BTreeMap::new();
        for (name, namespace) in self.namespaces() {
            let read = |key: &&str| Ok((key.to_string(), namespace.sysctl(key)?));
            let read = tcp::SETTINGS.iter().map(read);
            settings.insert(name, read.collect::<Result<_>>()?);
        }
        Ok(settings)
    }

    fn devices(&self) -> Result<BTreeMap<String, Counters>> {
        let mut devices = BTreeMap::new();
        let mut read = |namespace: &Namespace, place: &str, device: &str| {
            // An unplugged device has no counters.
            if let Ok(counters) = namespace.counters(device) {
                devices.insert(format!("{place}/{device}"), counters);
            }
        };
        read(&self.clients, "clients", "lan");
        read(&self.gateway, "gateway", LAN_DEVICE);
        for (index, (isp, router)) in self.spec.isps.iter().zip(&self.routers).enumerate() {
            read(&self.gateway, "gateway", &wan(index));
            read(router, &isp.name, "customer");
            read(router, &isp.name, "upstream");
            read(&self.internet, "internet", &format!("isp{index}"));
        }
        Ok(devices)
    }

    fn namespaces(&self) -> impl Iterator<Item = (String, &Namespace)> {
        let places = [
            ("clients", &self.clients),
            ("gateway", &self.gateway),
            ("internet", &self.internet),
        ];
        let places = places.map(|(name, namespace)| (name.to_owned(), namespace));
        let isps = self.spec.isps.iter().map(|isp| isp.name.clone());
        places.into_iter().chain(isps.zip(&self.routers))
    }
}

fn read(path: &str) -> Result<String> {
    let text = std::fs::read_to_string(path).map_err(io_error(format!("reading {path}")))?;
    Ok(text.trim_end().to_owned())
}
