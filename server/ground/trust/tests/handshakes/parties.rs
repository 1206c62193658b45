//! Generates certificates, and runs both ends of a handshake.

use rcgen::{BasicConstraints, Certificate, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::TLS13;
use rustls::{
    ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned, SupportedProtocolVersion,
};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use trust::{Identity, Trusted};

/// The host name in all certificates, besides 127.0.0.1.
pub const HOST: &str = "localhost";

/// Generates certificates, and writes files into a temporary directory.
pub struct Maker {
    folder: tempfile::TempDir,
    made: AtomicUsize,
}

/// A certificate with its key.
pub struct Certified {
    params: CertificateParams,
    certificate: Certificate,
    pub key: KeyPair,
    pub pem: PathBuf,
    pub key_pem: PathBuf,
}

/// A certificate to generate. By default valid now, self-signed, and no authority.
pub struct Draft<'a> {
    params: CertificateParams,
    by: Option<&'a Certified>,
}

impl Maker {
    pub fn new() -> Maker {
        Maker { folder: tempfile::tempdir().unwrap(), made: AtomicUsize::new(0) }
    }

    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// Self-signed certificates with the same `common_name` have the same issuer.
    pub fn make<'a>(&self, common_name: &str, with: impl FnOnce(Draft<'a>) -> Draft<'a>) -> Certified {
        let mut params = CertificateParams::new([HOST.to_owned(), "127.0.0.1".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, common_name);
        let Draft { params, by } = with(Draft { params, by: None });
        let key = KeyPair::generate().unwrap();
        let certificate = match by {
            None => params.self_signed(&key),
            Some(by) => params.signed_by(&key, &Issuer::from_params(&by.params, &by.key)),
        };
        let certificate = certificate.unwrap();
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let pem = self.file(&format!("{number}.pem"), &certificate.pem());
        let key_pem = self.file(&format!("{number}.key"), &key.serialize_pem());
        Certified { params, certificate, key, pem, key_pem }
    }
}

impl<'a> Draft<'a> {
    pub fn authority(mut self) -> Self {
        self.params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        self
    }

    /// Valid from the start of one year to the start of another.
    pub fn valid(mut self, years: (i32, i32)) -> Self {
        self.params.not_before = date_time_ymd(years.0, 1, 1);
        self.params.not_after = date_time_ymd(years.1, 1, 1);
        self
    }

    pub fn by(self, by: &'a Certified) -> Self {
        Draft { by: Some(by), ..self }
    }
}

impl Certified {
    pub fn der(&self) -> CertificateDer<'static> {
        self.certificate.der().clone()
    }

    pub fn identity(&self) -> Identity<'_> {
        Identity { certificate: &self.pem, key: &self.key_pem }
    }
}

/// The server side of a handshake.
pub struct Server<'a> {
    pub certificate: &'a Certified,
    /// Intermediates that it sends.
    pub intermediates: Vec<CertificateDer<'static>>,
    /// The key it signs with; normally the certificate's.
    pub key: &'a KeyPair,
    pub version: &'static SupportedProtocolVersion,
    /// The authority of clients; `None` requests no client certificate.
    pub clients: Option<&'a Certified>,
}

impl<'a> Server<'a> {
    pub fn of(certificate: &'a Certified) -> Server<'a> {
        Server {
            certificate,
            intermediates: Vec::new(),
            key: &certificate.key,
            version: &TLS13,
            clients: None,
        }
    }

    fn config(&self) -> ServerConfig {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.serialize_der()));
        let key = provider.key_provider.load_private_key(key).unwrap();
        let chain = [vec![self.certificate.der()], self.intermediates.clone()].concat();
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[self.version])
            .unwrap();
        let builder = match self.clients {
            None => builder.with_no_client_auth(),
            Some(authority) => {
                let mut roots = RootCertStore::empty();
                roots.add(authority.der()).unwrap();
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                builder.with_client_cert_verifier(verifier.build().unwrap())
            }
        };
        // Unlike `with_single_cert`, this does not check that the key matches the certificate.
        builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(CertifiedKey::new(chain, key))))
    }
}

/// Performs a handshake and echoes a byte. Returns the client certificate that the server received.
pub fn shake(
    server: &Server<'_>,
    trusted: Trusted<'_>,
    identity: Option<Identity<'_>>,
    host: &str,
) -> io::Result<Option<Vec<u8>>> {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let config = Arc::new(server.config());
    let thread = std::thread::spawn(move || -> io::Result<Option<Vec<u8>>> {
        let mut stream = StreamOwned::new(ServerConnection::new(config).unwrap(), theirs);
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        stream.write_all(&byte)?;
        Ok(stream.conn.peer_certificates().map(|all| all[0].to_vec()))
    });
    let name = ServerName::try_from(host.to_owned()).unwrap();
    let config = Arc::new(trust::client(trusted, identity).unwrap());
    let mut stream = StreamOwned::new(ClientConnection::new(config, name).unwrap(), ours);
    let mut byte = [0];
    let echoed = stream.write_all(b"?").and_then(|()| stream.read_exact(&mut byte));
    // The server may still be reading.
    drop(stream);
    let seen = thread.join().unwrap();
    echoed?;
    assert_eq!(byte, *b"?");
    seen
}

/// The error of [`trust::client`] about a file.
pub fn file_error(
    trusted: Trusted<'_>,
    identity: Option<Identity<'_>>,
) -> (trust::FilePurpose, PathBuf, String) {
    match trust::client(trusted, identity).unwrap_err() {
        trust::Error::File { role, path, why } => (role, path, why),
        other => panic!("not about a file: {other:?}"),
    }
}

/// Half of a file.
pub fn half(file: &Path) -> String {
    let text = std::fs::read_to_string(file).unwrap();
    text[..text.len() / 2].to_owned()
}
