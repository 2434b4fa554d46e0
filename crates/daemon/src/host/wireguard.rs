//! WireGuard peers on this host.
//!
//! WireGuard sends from the address to which the peer sent last, and keeps it until a handshake fails, or until the peer's
//! endpoint is set. Setting the same endpoint again is enough: then the next packet gets its source from the routing tables.
//! The kernel's implementation is reached by generic netlink (linux/wireguard.h), implementations in user space by their sockets
//! (<https://www.wireguard.com/xplatform/>), as by wg(8).

use std::io::{self, BufRead, BufReader, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rtnetlink::sys::protocols::{NETLINK_GENERIC, NETLINK_ROUTE};

use super::netlink::{Netlink, attribute, attributes, find, find_in, nested};

const KIND: &str = "wireguard";
// linux/rtnetlink.h and if_link.h
const GET_LINK: u16 = 18;
const INTERFACE_HEADER: usize = 16;
const LINK_INFO: u16 = 18;
const INFO_KIND: u16 = 1;
// linux/genetlink.h
const CONTROLLER: u16 = 16;
const GET_FAMILY: [u8; 4] = [3, 1, 0, 0];
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
/// `struct genlmsghdr`: command, version, nothing.
const COMMAND: usize = 4;
// linux/wireguard.h
const GET_DEVICE: [u8; 4] = [0, 1, 0, 0];
const SET_DEVICE: [u8; 4] = [1, 1, 0, 0];
const INDEX: u16 = 1;
const LISTEN_PORT: u16 = 6;
const DEVICE_MARK: u16 = 7;
const PEERS: u16 = 8;
const PUBLIC_KEY: u16 = 1;
const PEER_FLAGS: u16 = 3;
const ENDPOINT: u16 = 4;
const UPDATE_ONLY: u32 = 1 << 2;

/// Folder of the sockets of implementations in user space.
const SOCKETS: &str = "/var/run/wireguard";
const PATIENCE: Duration = Duration::from_millis(500);

/// A peer whose endpoint is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Port from which packets are sent.
    pub port: u16,
    /// Mark of its packets, for routing rules.
    pub mark: u32,
    /// Address and port to which packets are sent.
    pub endpoint: SocketAddr,
    place: Place,
}

/// The device or socket that has the peer, with the peer's public key.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    Kernel {
        family: u16,
        ifindex: u32,
        key: Vec<u8>,
    },
    User {
        socket: PathBuf,
        key: String,
    },
}

/// All peers that can be found.
pub fn peers() -> Vec<Peer> {
    let told = of_kernel().inspect_err(|error| tracing::debug!("WireGuard: {error}"));
    let mut peers = told.unwrap_or_default();
    for entry in std::fs::read_dir(SOCKETS).into_iter().flatten().flatten() {
        let socket = entry.path();
        // A process that was killed leaves its socket behind.
        let told =
            of_user(&socket).inspect_err(|error| tracing::debug!("{}: {error}", socket.display()));
        peers.extend(told.unwrap_or_default());
    }
    peers
}

impl Peer {
    /// Makes the next packet choose its source address again.
    pub fn forget_source(&self) -> io::Result<()> {
        match &self.place {
            Place::Kernel {
                family,
                ifindex,
                key,
            } => {
                let message = endpoint_again(*ifindex, key, self.endpoint);
                Netlink::connect(NETLINK_GENERIC)?.order(*family, &message)
            }
            Place::User { socket, key } => {
                let endpoint = self.endpoint;
                let order =
                    format!("set=1\npublic_key={key}\nupdate_only=true\nendpoint={endpoint}\n\n");
                ask(socket, &order).map(drop)
            }
        }
    }
}

// ---- in the kernel

fn of_kernel() -> io::Result<Vec<Peer>> {
    let devices = devices()?;
    if devices.is_empty() {
        return Ok(Vec::new());
    }
    let netlink = Netlink::connect(NETLINK_GENERIC)?;
    let family = family(&netlink)?;
    let mut peers = Vec::new();
    for ifindex in devices {
        let mut asked = GET_DEVICE.to_vec();
        attribute(&mut asked, INDEX, &ifindex.to_ne_bytes());
        // Only the first of several messages has them.
        let (mut port, mut mark) = (0, 0);
        netlink.dump(family, &asked, |_, body| {
            let device = body.get(COMMAND..).unwrap_or_default();
            port = number(device, LISTEN_PORT)
                .map(u16::from_ne_bytes)
                .unwrap_or(port);
            mark = number(device, DEVICE_MARK)
                .map(u32::from_ne_bytes)
                .unwrap_or(mark);
            let told = find(device, PEERS).into_iter().flat_map(attributes);
            peers.extend(told.filter_map(|(_, peer)| {
                let key = find(peer, PUBLIC_KEY)?.to_vec();
                let endpoint = socket_address(find(peer, ENDPOINT)?)?;
                let place = Place::Kernel {
                    family,
                    ifindex,
                    key,
                };
                Some(Peer {
                    port,
                    mark,
                    endpoint,
                    place,
                })
            }));
        })?;
    }
    Ok(peers)
}

/// The indices of WireGuard devices. Kernels that do not filter by type return all devices.
fn devices() -> io::Result<Vec<u32>> {
    let (mut info, mut asked) = (vec![], vec![0; INTERFACE_HEADER]);
    attribute(&mut info, INFO_KIND, KIND.as_bytes());
    nested(&mut asked, LINK_INFO, &info);
    let mut devices = Vec::new();
    Netlink::connect(NETLINK_ROUTE)?.dump(GET_LINK, &asked, |_, body| {
        let index = body.get(4..).and_then(|body| body.first_chunk());
        let kind = body.get(INTERFACE_HEADER..);
        let kind = kind.and_then(|all| find_in(all, &[LINK_INFO, INFO_KIND]));
        let is_its = kind.is_some_and(|kind| kind.strip_suffix(&[0]) == Some(KIND.as_bytes()));
        devices.extend(
            index
                .filter(|_| is_its)
                .map(|index| u32::from_ne_bytes(*index)),
        );
    })?;
    Ok(devices)
}

/// The number of the family in generic netlink.
fn family(netlink: &Netlink) -> io::Result<u16> {
    let mut asked = GET_FAMILY.to_vec();
    attribute(&mut asked, FAMILY_NAME, format!("{KIND}\0").as_bytes());
    let answer = netlink.get(CONTROLLER, &asked)?;
    let id = number(answer.get(COMMAND..).unwrap_or_default(), FAMILY_ID);
    id.map(u16::from_ne_bytes)
        .ok_or_else(|| io::ErrorKind::Unsupported.into())
}

fn number<const BYTES: usize>(all: &[u8], kind: u16) -> Option<[u8; BYTES]> {
    find(all, kind)?.try_into().ok()
}

fn endpoint_again(ifindex: u32, key: &[u8], endpoint: SocketAddr) -> Vec<u8> {
    let (mut peer, mut peers) = (vec![], vec![]);
    attribute(&mut peer, PUBLIC_KEY, key);
    attribute(&mut peer, PEER_FLAGS, &UPDATE_ONLY.to_ne_bytes());
    attribute(&mut peer, ENDPOINT, &socket_address_bytes(endpoint));
    nested(&mut peers, 0, &peer);
    let mut message = SET_DEVICE.to_vec();
    attribute(&mut message, INDEX, &ifindex.to_ne_bytes());
    nested(&mut message, PEERS, &peers);
    message
}

/// Parses `struct sockaddr_in` or `sockaddr_in6`: family, port, then the address; IPv6 has a flow label before the address and a
/// scope after it.
fn socket_address(bytes: &[u8]) -> Option<SocketAddr> {
    let family = u16::from_ne_bytes(*bytes.first_chunk()?);
    let port = u16::from_be_bytes(*bytes.get(2..)?.first_chunk()?);
    let address: IpAddr = match i32::from(family) {
        libc::AF_INET => bytes.get(4..)?.first_chunk::<4>().copied()?.into(),
        libc::AF_INET6 => bytes.get(8..)?.first_chunk::<16>().copied()?.into(),
        _ => return None,
    };
    Some(SocketAddr::new(address, port))
}

fn socket_address_bytes(endpoint: SocketAddr) -> Vec<u8> {
    let port = endpoint.port().to_be_bytes();
    match endpoint.ip() {
        IpAddr::V4(v4) => {
            let family = (libc::AF_INET as u16).to_ne_bytes();
            [&family[..], &port, &v4.octets(), &[0; 8]].concat()
        }
        IpAddr::V6(v6) => {
            let family = (libc::AF_INET6 as u16).to_ne_bytes();
            [&family[..], &port, &[0; 4], &v6.octets(), &[0; 4]].concat()
        }
    }
}

// ---- in user space

fn of_user(socket: &Path) -> io::Result<Vec<Peer>> {
    Ok(read_peers(socket, &ask(socket, "get=1\n\n")?))
}

/// Sends a command, and returns the lines of the answer.
fn ask(socket: &Path, order: &str) -> io::Result<Vec<String>> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(order.as_bytes())?;
    let lines = BufReader::new(stream).lines();
    let lines = lines.take_while(|line| line.as_ref().map_or(true, |line| !line.is_empty()));
    let lines: Vec<String> = lines.collect::<io::Result<_>>()?;
    match lines.last().map(String::as_str) {
        Some("errno=0") => Ok(lines),
        told => Err(io::Error::other(told.unwrap_or("no answer"))),
    }
}

fn read_peers(socket: &Path, lines: &[String]) -> Vec<Peer> {
    let (mut port, mut mark, mut peer_key) = (0, 0, "");
    let mut peers = Vec::new();
    for (key, value) in lines.iter().filter_map(|line| line.split_once('=')) {
        match key {
            "listen_port" => port = value.parse().unwrap_or(0),
            "fwmark" => mark = value.parse().unwrap_or(0),
            "public_key" => peer_key = value,
            "endpoint" => peers.extend(value.parse().ok().map(|endpoint| Peer {
                port,
                mark,
                endpoint,
                place: Place::User {
                    socket: socket.to_owned(),
                    key: peer_key.to_owned(),
                },
            })),
            _ => {}
        }
    }
    peers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_given_the_endpoint_that_it_told() {
        for endpoint in ["192.0.2.1:51820", "[2001:db8::1]:51820"] {
            let endpoint: SocketAddr = endpoint.parse().unwrap();
            let message = endpoint_again(7, &[5; 32], endpoint);
            let told = find(&message[COMMAND..], PEERS).unwrap();
            let (_, peer) = attributes(told).next().unwrap();
            assert_eq!(find(peer, PUBLIC_KEY), Some(&[5; 32][..]));
            let again = socket_address(find(peer, ENDPOINT).unwrap());
            assert_eq!(again, Some(endpoint));
        }
    }

    /// As wireguard-go 0.0.20220316 answers.
    #[test]
    fn a_peer_without_an_endpoint_has_no_source() {
        let text = "private_key=e0\nlisten_port=51820\nfwmark=1\npublic_key=aa\nallowed_ip=10.9.0.2/32\n\
                    public_key=bb\nendpoint=[2001:db8::1]:4000\nlast_handshake_time_sec=0\nerrno=0";
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let peers = read_peers(Path::new("wg0.sock"), &lines);
        let place = Place::User {
            socket: "wg0.sock".into(),
            key: "bb".into(),
        };
        let wanted = Peer {
            port: 51820,
            mark: 1,
            endpoint: "[2001:db8::1]:4000".parse().unwrap(),
            place,
        };
        assert_eq!(peers, [wanted]);
    }
}
