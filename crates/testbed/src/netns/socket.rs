//! Sockets of a namespace.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs, UdpSocket};
use std::time::Duration;

use super::{Namespace, Result};

impl Namespace {
    /// Listens for TCP connections.
    pub fn listen(&self, at: impl ToSocketAddrs + Send) -> Result<TcpListener> {
        self.run(|| TcpListener::bind(at))?
            .map_err(|source| self.failure("listening", source))
    }

    /// Opens a TCP connection. Neither this nor its reads and writes take longer than `within`.
    pub fn connect(&self, to: impl Into<SocketAddr>, within: Duration) -> io::Result<TcpStream> {
        let to = to.into();
        let connect = || TcpStream::connect_timeout(&to, within);
        let stream = self.run(connect).map_err(io::Error::other)??;
        stream.set_read_timeout(Some(within))?;
        stream.set_write_timeout(Some(within))?;
        Ok(stream)
    }

    /// Binds a UDP socket, whose reads take no longer than `within`.
    pub fn udp(&self, at: impl ToSocketAddrs + Send, within: Duration) -> Result<UdpSocket> {
        let bind = || {
            let socket = UdpSocket::bind(at)?;
            socket.set_read_timeout(Some(within))?;
            Ok(socket)
        };
        self.run(bind)?
            .map_err(|source| self.failure("binding a UDP socket", source))
    }
}
