//! TLS for pages: who answers, by the certificate.
//!
//! A certificate that is not valid yet proves nothing: the clock of a host without a battery is years behind until it has asked
//! somebody for the time, which may be what the check waits for.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

use anabranch_core::checks::{Certificate, Page};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ClientConfig, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::{CertificateError, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::wire::not_asked;

/// Authorities are read again after so long: an update of the host brings new ones.
const FRESH: Duration = Duration::from_secs(60);

type Configs = BTreeMap<Certificate, (Instant, Arc<ClientConfig>)>;

/// What was made for each kind of certificate, and when.
static CONFIGS: LazyLock<Mutex<Configs>> = LazyLock::new(Mutex::default);

/// Succeeds if the server at the other end shows a certificate as wanted.
pub(super) async fn greet(
    stream: TcpStream,
    page: &Page,
    wanted: &Certificate,
) -> io::Result<TlsStream<TcpStream>> {
    let config = config(wanted).map_err(not_asked)?;
    let name = ServerName::try_from(page.asked_as().to_owned()).map_err(io::Error::other)?;
    let greeted = TlsConnector::from(config).connect(name, stream).await;
    greeted.map_err(|error| explained(page, error))
}

/// In the words of whoever reads `status`.
fn explained(page: &Page, error: io::Error) -> io::Error {
    let place = page.place();
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref());
    let Some(rustls::Error::InvalidCertificate(problem)) = cause else {
        return io::Error::new(error.kind(), format!("{place}: TLS: {error}"));
    };
    match problem {
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => not_asked(
            format!("{place}: its certificate is not valid yet; is this host's clock right?"),
        ),
        _ => io::Error::new(error.kind(), format!("{place}: {error}")),
    }
}

fn config(wanted: &Certificate) -> Result<Arc<ClientConfig>, String> {
    let mut configs = CONFIGS.lock().expect("nobody panics with it");
    if let Some((made, config)) = configs.get(wanted)
        && made.elapsed() < FRESH
    {
        return Ok(Arc::clone(config));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier: Arc<dyn ServerCertVerifier> = match wanted {
        Certificate::Any => Arc::new(AnyCertificate(Arc::clone(&provider))),
        Certificate::Trusted => by(trusted()?, &provider)?,
        Certificate::By(path) => by(authorities_in(path)?, &provider)?,
    };
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider knows both versions")
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    let config = Arc::new(config);
    configs.insert(wanted.clone(), (Instant::now(), Arc::clone(&config)));
    Ok(config)
}

fn by(
    authorities: RootCertStore,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<WebPkiServerVerifier>, String> {
    WebPkiServerVerifier::builder_with_provider(authorities.into(), Arc::clone(provider))
        .build()
        .map_err(|error| error.to_string())
}

/// Those that this host trusts.
fn trusted() -> Result<RootCertStore, String> {
    let found = rustls_native_certs::load_native_certs();
    let mut authorities = RootCertStore::empty();
    authorities.add_parsable_certificates(found.certs);
    match authorities.is_empty() {
        true => {
            Err("this host trusts no authority: install the package ca-certificates".to_owned())
        }
        false => Ok(authorities),
    }
}

/// Those in a file, in PEM.
pub(crate) fn authorities_in(path: &Path) -> Result<RootCertStore, String> {
    let bad = |problem: &dyn std::fmt::Display| {
        format!(
            r#"{}: {problem}; write "trusted", "any", or the path of a file with certificates of authorities (PEM)"#,
            path.display()
        )
    };
    if !path.is_absolute() {
        return Err(bad(&"no whole path"));
    }
    let certificates: Vec<CertificateDer<'_>> = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|error| bad(&error))?;
    let mut authorities = RootCertStore::empty();
    let (read, _) = authorities.add_parsable_certificates(certificates);
    match read {
        0 => Err(bad(&"no certificate of an authority is in it")),
        _ => Ok(authorities),
    }
}

/// Takes whatever certificate comes, if only the server has its key.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::Ipv4Addr;

    use anabranch_core::checks::{Outcome, ProbeTarget};
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};
    use rustls_pki_types::PrivateKeyDer;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;

    use super::super::wire::Via;
    use super::*;

    const NAME: &str = "page.example";

    /// An authority, and its file.
    struct Authority {
        issuer: Issuer<'static, KeyPair>,
        file: tempfile::NamedTempFile,
    }

    impl Authority {
        fn new() -> Self {
            let mut params = CertificateParams::default();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let key = KeyPair::generate().unwrap();
            let file = tempfile::NamedTempFile::new().unwrap();
            fs::write(file.path(), params.self_signed(&key).unwrap().pem()).unwrap();
            let issuer = Issuer::new(params, key);
            Self { issuer, file }
        }

        /// A server whose certificate is valid in these years.
        fn acceptor(&self, from: i32, until: i32) -> TlsAcceptor {
            let mut params = CertificateParams::new([NAME.to_owned()]).unwrap();
            params.not_before = date_time_ymd(from, 1, 1);
            params.not_after = date_time_ymd(until, 1, 1);
            let key = KeyPair::generate().unwrap();
            let certificate = params.signed_by(&key, &self.issuer).unwrap();
            let secret = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let config = rustls::ServerConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(vec![certificate.der().clone()], secret)
                .unwrap();
            Arc::new(config).into()
        }
    }

    /// What a check says of a page of this server's.
    async fn tested(server: &TlsAcceptor, name: &str, wanted: Certificate) -> Outcome {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let page = format!("https:127.0.0.1:{port}/ = 200 well");
        let Ok(ProbeTarget::Http(mut page)) = page.parse() else {
            panic!("it is a page");
        };
        let changed = Arc::make_mut(&mut page);
        (changed.name, changed.tls) = (Some(name.to_owned()), Some(wanted));
        let serve = async {
            let (stream, _) = listener.accept().await?;
            let mut stream = server.accept(stream).await?;
            stream.read_buf(&mut Vec::with_capacity(1024)).await?;
            // It ends as many servers do: TLS is not told.
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nwell").await
        };
        let via = Via {
            device: Some("lo".to_owned()),
            source: Ipv4Addr::LOCALHOST.into(),
            resolvers: Vec::new(),
            untracked: false,
        };
        let test = super::super::test(ProbeTarget::Http(page), via, Duration::from_secs(5));
        tokio::join!(test, serve).0
    }

    #[tokio::test]
    async fn a_page_over_tls_counts_if_its_certificate_is_as_wanted() {
        let authority = Authority::new();
        let server = authority.acceptor(2020, 2090);
        let by = Certificate::By(authority.file.path().to_owned());
        let other = Authority::new();
        let by_another = Certificate::By(other.file.path().to_owned());
        for (name, wanted, said) in [
            (NAME, by.clone(), None),
            ("other.example", by, Some("not valid for name")),
            (NAME, by_another, Some("invalid peer certificate")),
            (NAME, Certificate::Trusted, Some("")),
            ("other.example", Certificate::Any, None),
        ] {
            let outcome = tested(&server, name, wanted.clone()).await;
            let is_right = match (&outcome, said) {
                (Outcome::Success, None) => true,
                (Outcome::Failure(words) | Outcome::Inconclusive(words), Some(said)) => {
                    words.contains(said)
                }
                _ => false,
            };
            assert!(is_right, "{name} {wanted:?}: {outcome:?}");
        }
    }

    #[tokio::test]
    async fn a_certificate_of_the_past_fails_and_one_of_the_future_proves_nothing() {
        let authority = Authority::new();
        let by = || Certificate::By(authority.file.path().to_owned());
        let expired = tested(&authority.acceptor(2000, 2001), NAME, by()).await;
        assert!(
            matches!(&expired, Outcome::Failure(words) if words.contains("expired")),
            "{expired:?}"
        );
        let early = tested(&authority.acceptor(2089, 2090), NAME, by()).await;
        assert!(
            matches!(&early, Outcome::Inconclusive(words) if words.contains("clock")),
            "{early:?}"
        );
    }

    #[test]
    fn a_file_without_authorities_is_refused_and_told() {
        let empty = tempfile::NamedTempFile::new().unwrap();
        for (path, said) in [
            (empty.path(), "no certificate of an authority is in it"),
            (Path::new("/nowhere/ca.pem"), "No such file"),
            (Path::new("trustd"), "no whole path"),
        ] {
            let refused = authorities_in(path).unwrap_err();
            assert!(refused.contains(said), "{refused}");
            assert!(refused.contains(r#""trusted", "any""#), "{refused}");
        }
    }
}
