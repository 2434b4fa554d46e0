//! Asks a resolver for the records of a name.

use std::io;
use std::net::SocketAddr;

use hickory_proto::op::{Edns, Message};
use hickory_proto::rr::RecordType;
use socket2::{Protocol, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, UdpSocket};

use super::wire::{Via, connect, dns_answer, dns_query, hear};

pub(crate) const DNS_PORT: u16 = 53;
/// As long a datagram as passes every network without fragments (RFC 9715).
const DATAGRAM_BYTES_MAX: u16 = 1232;

/// What a resolver answers, whatever that is. An answer that is too long for a datagram comes by TCP (RFC 7766). Never returns
/// if none comes; the caller has a deadline.
pub(crate) async fn lookup(
    resolver: SocketAddr,
    name: &str,
    kind: RecordType,
    via: &Via,
) -> io::Result<Message> {
    let id = rand::random();
    let mut query = dns_query(id, &format!("{}.", name.trim_end_matches('.')), kind)?;
    let mut edns = Edns::new();
    edns.set_max_payload(DATAGRAM_BYTES_MAX);
    query.set_edns(edns);
    let question = query.to_vec().map_err(io::Error::other)?;
    let answer =
        |bytes: &[u8]| dns_answer(bytes, id).filter(|one| one.queries() == query.queries());
    let socket = UdpSocket::from_std(via.socket(Type::DGRAM, Protocol::UDP)?.into())?;
    socket.connect(resolver).await?;
    socket.send(&question).await?;
    let message = hear(&socket, DATAGRAM_BYTES_MAX.into(), answer).await;
    match message.truncated() {
        false => Ok(message),
        true => {
            let bytes = by_tcp(resolver, &question, via).await?;
            answer(&bytes)
                .ok_or_else(|| io::Error::other(format!("{resolver} answers something else")))
        }
    }
}

async fn by_tcp(resolver: SocketAddr, question: &[u8], via: &Via) -> io::Result<Vec<u8>> {
    let socket = TcpSocket::from_std_stream(via.socket(Type::STREAM, Protocol::TCP)?.into());
    let mut stream = connect(socket, resolver, via).await?;
    let length = u16::try_from(question.len()).map_err(io::Error::other)?;
    let framed = [&length.to_be_bytes(), question].concat();
    stream.write_all(&framed).await?;
    let length = stream.read_u16().await?;
    let mut answer = vec![0; length.into()];
    stream.read_exact(&mut answer).await?;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use hickory_proto::op::MessageType;
    use hickory_proto::rr::rdata::A;
    use hickory_proto::rr::{RData, Record};
    use tokio::net::TcpListener;

    use super::*;

    /// What a resolver says to a question, with so many addresses of the name.
    fn answered(question: &[u8], addresses: u8) -> Message {
        let mut message = Message::from_vec(question).unwrap();
        assert_eq!(message.max_payload(), DATAGRAM_BYTES_MAX);
        message.set_message_type(MessageType::Response);
        let name = message.query().unwrap().name().clone();
        for host in 0..addresses {
            let address = RData::A(A::new(10, 0, 0, host));
            message.add_answer(Record::from_rdata(name.clone(), 60, address));
        }
        message
    }

    #[tokio::test]
    async fn an_answer_to_something_else_is_none_and_a_long_one_comes_by_tcp() {
        let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let at = udp.local_addr().unwrap();
        let tcp = TcpListener::bind(at).await.unwrap();
        let server = async {
            let mut question = vec![0; 512];
            let (length, client) = udp.recv_from(&mut question).await.unwrap();
            let mut other = answered(&question[..length], 1);
            other.set_id(other.id().wrapping_add(1));
            udp.send_to(&other.to_vec().unwrap(), client).await.unwrap();
            let mut short = answered(&question[..length], 0);
            short.set_truncated(true);
            udp.send_to(&short.to_vec().unwrap(), client).await.unwrap();
            let (mut stream, _) = tcp.accept().await.unwrap();
            let mut question = vec![0; stream.read_u16().await.unwrap().into()];
            stream.read_exact(&mut question).await.unwrap();
            let whole = answered(&question, 200).to_vec().unwrap();
            stream.write_u16(whole.len() as u16).await.unwrap();
            stream.write_all(&whole).await.unwrap();
        };
        let via = Via::of_host(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let asked = lookup(at, "web.test", RecordType::A, &via);
        let (message, ()) = tokio::join!(asked, server);
        assert_eq!(message.unwrap().answers().len(), 200);
    }
}
