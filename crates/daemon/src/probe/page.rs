//! Requests one page: resolves its host's name, connects, sends the request, and compares the answer with what is expected.
//!
//! The request is written by hand, because it is one line and two headers, and only the status line and a text are searched in the
//! answer. Redirects are never followed. Over TLS the server has to show its certificate before anything is requested.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use anabranch_core::checks::Page;

use futures_util::future::select_ok;
use hickory_proto::rr::RecordType;
use socket2::{Protocol, Type};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpSocket;

use super::names::{DNS_PORT, lookup};
use super::tls;
use super::wire::{Answer, Via, connect, not_asked};

/// Maximum length of an answer: more than enough for a page that is made for such requests.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// "Network Authentication Required" (RFC 6585 section 6) comes from a portal. Other errors of this class are the server's own.
const PORTAL_CODE: u16 = 511;

pub(super) async fn ask(page: &Page, via: &Via) -> io::Result<Answer> {
    let address = match page.host.parse() {
        Ok(address) => address,
        Err(_) => resolve(&page.host, via).await?,
    };
    let socket = TcpSocket::from_std_stream(via.socket(Type::STREAM, Protocol::TCP)?.into());
    let asked = Instant::now();
    let stream = connect(socket, SocketAddr::new(address, page.port), via).await?;
    let round_trip = asked.elapsed();
    let verdict = match &page.tls {
        None => converse(stream, page).await?,
        Some(wanted) => converse(tls::greet(stream, page, wanted).await?, page).await?,
    };
    match verdict {
        Ok(()) => Ok(Answer::Expected(round_trip)),
        Err(got) => Ok(Answer::Wrong(format!(
            "{} answered {got}, wanted {}",
            page.place(),
            page.expect
        ))),
    }
}

/// Asks for the page, and says what came in its place, if it is not as it should be.
async fn converse<S>(mut stream: S, page: &Page) -> io::Result<Result<(), String>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let request = format!(
        "GET {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: anabranch\r\nConnection: close\r\n\r\n",
        page.path,
        page.authority()
    );
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    loop {
        let is_over =
            answer.len() >= ANSWER_BYTES_MAX || hear(&mut stream, &mut answer).await? == 0;
        match judge(&answer, is_over, page) {
            Verdict::Expected => return Ok(Ok(())),
            Verdict::Wrong(got) => return Ok(Err(got)),
            Verdict::More => {}
            Verdict::None(got) => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("{} answered {got}", page.place()),
                ));
            }
        }
    }
}

/// Bytes that came; none at the end, which many servers do not announce to TLS.
async fn hear(stream: &mut (impl AsyncRead + Unpin), answer: &mut Vec<u8>) -> io::Result<usize> {
    match stream.read_buf(answer).await {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
        heard => heard,
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Expected,
    /// What came.
    Wrong(String),
    /// The rest of the answer decides.
    More,
    /// The server has trouble, or speaks something else; what came.
    None(String),
}

/// `is_over`: nothing more comes.
fn judge(answer: &[u8], is_over: bool, page: &Page) -> Verdict {
    let answer = String::from_utf8_lossy(answer);
    let Some((head, body)) = answer.split_once("\r\n\r\n") else {
        return if is_over { no_http() } else { Verdict::More };
    };
    let mut words = head.split_whitespace();
    let speaks_http = words.next().is_some_and(|word| word.starts_with("HTTP/1."));
    let code: Option<u16> = words.next().and_then(|code| code.parse().ok());
    let Some(code) = code.filter(|_| speaks_http) else {
        return no_http();
    };
    let is_wanted = page.expect.status.contains(&code);
    match &page.expect.body {
        _ if !is_wanted && code >= 500 && code != PORTAL_CODE => Verdict::None(code.to_string()),
        _ if !is_wanted => Verdict::Wrong(code.to_string()),
        Some(text) if body.contains(text) => Verdict::Expected,
        Some(_) if !is_over => Verdict::More,
        Some(_) => Verdict::Wrong(format!("{code} and another text")),
        None => Verdict::Expected,
    }
}

fn no_http() -> Verdict {
    Verdict::None("no HTTP".to_owned())
}

/// The first address that a resolver names, of the link's family.
async fn resolve(name: &str, via: &Via) -> io::Result<IpAddr> {
    let asked = via.resolvers.iter();
    let asked: Vec<_> = asked
        .map(|resolver| Box::pin(resolve_by(*resolver, name, via)))
        .collect();
    if asked.is_empty() {
        return Err(not_asked("no resolver is known"));
    }
    select_ok(asked).await.map(|(address, _)| address)
}

async fn resolve_by(resolver: IpAddr, name: &str, via: &Via) -> io::Result<IpAddr> {
    let kind = match via.source {
        IpAddr::V4(_) => RecordType::A,
        IpAddr::V6(_) => RecordType::AAAA,
    };
    let message = lookup((resolver, DNS_PORT).into(), name, kind, via).await?;
    let mut answers = message.answers().iter();
    let address = answers.find_map(|record| record.data().ip_addr());
    address.ok_or_else(|| io::Error::other(format!("{resolver} knows no {name}")))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::net::TcpListener;

    use anabranch_core::checks::ProbeTarget;

    use super::*;

    fn page(text: &str) -> Page {
        match text.parse().unwrap() {
            ProbeTarget::Http(page) => (*page).clone(),
            other => panic!("{other}"),
        }
    }

    #[test]
    fn what_is_as_it_should_be_is_told_from_a_portal_and_from_a_server_in_trouble() {
        let empty = page("http:a.example/x = 204");
        let text = page("http:a.example/x = 200 success");
        let wrong = |got: &str| Verdict::Wrong(got.to_owned());
        let trouble = Verdict::None("503".to_owned());
        for (page, answer, is_over, verdict) in [
            (
                &empty,
                "HTTP/1.1 204 No Content\r\n\r\n",
                false,
                Verdict::Expected,
            ),
            (
                &empty,
                "HTTP/1.1 302 Found\r\nLocation: http://p/\r\n\r\n",
                false,
                wrong("302"),
            ),
            (&empty, "HTTP/1.1 200 OK\r\n\r\nlog in", false, wrong("200")),
            (&empty, "HTTP/1.1 511 Log in\r\n\r\n", false, wrong("511")),
            (&empty, "HTTP/1.1 503 Later\r\n\r\n", false, trouble),
            (&empty, "HTTP/1.1 204 No", false, Verdict::More),
            (&empty, "HTTP/1.1 204 No", true, no_http()),
            (&empty, "SSH-2.0-x\r\n\r\n", false, no_http()),
            (&text, "HTTP/1.0 200 OK\r\n\r\nsucc", false, Verdict::More),
            (
                &text,
                "HTTP/1.0 200 OK\r\n\r\nsuccess\n",
                false,
                Verdict::Expected,
            ),
            (
                &text,
                "HTTP/1.0 200 OK\r\n\r\nlog in",
                true,
                wrong("200 and another text"),
            ),
        ] {
            assert_eq!(
                judge(answer.as_bytes(), is_over, page),
                verdict,
                "{answer:?}"
            );
        }
    }

    #[tokio::test]
    async fn a_page_is_asked_for_over_the_link_and_its_answer_told() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let via = Via {
            device: Some("lo".to_owned()),
            source: Ipv4Addr::LOCALHOST.into(),
            resolvers: Vec::new(),
            untracked: false,
        };
        for (answer, is_expected) in [("204 No Content", true), ("302 Found", false)] {
            let page = page(&format!("http:127.0.0.1:{port}/check = 204"));
            let server = async {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = vec![0; 1024];
                let length = stream.read(&mut request).await.unwrap();
                let answer = format!("HTTP/1.1 {answer}\r\n\r\n");
                stream.write_all(answer.as_bytes()).await.unwrap();
                String::from_utf8_lossy(&request[..length]).into_owned()
            };
            let (told, request) = tokio::join!(ask(&page, &via), server);
            let wanted = format!("GET /check HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n");
            assert!(request.starts_with(&wanted), "{request}");
            match told.unwrap() {
                Answer::Expected(_) => assert!(is_expected),
                Answer::Wrong(words) => {
                    assert!(!is_expected);
                    let wanted = format!("http:127.0.0.1:{port}/check answered 302, wanted 204");
                    assert_eq!(words, wanted);
                }
                Answer::Inconclusive => panic!("it was sent, and answered in full"),
            }
        }
        let unresolved = page("http:nobody.example/ = 204");
        assert!(ask(&unresolved, &via).await.is_err());
    }
}
