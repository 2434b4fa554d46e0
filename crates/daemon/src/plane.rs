pub use anabranch_core::LinkId;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkPath {
    pub external: IpAddr,
    pub gateway: Option<IpAddr>,
    pub ifindex: u32,
    pub mtu: u32,
    pub point_to_point: bool,
}
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    pub prefix: (IpAddr, u8),
    pub verdict: Verdict,
}
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Kernel,
    Lan { ifindex: u32, via: Option<IpAddr> },
    Link(LinkId),
}
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Lan,
    Link(LinkId),
}
pub type FlowRow = serde_json::Value;
pub type Explanation = serde_json::Value;
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Proto {
    Tcp,
    Udp,
}
