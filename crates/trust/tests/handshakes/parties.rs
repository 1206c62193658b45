//! Certificates as tests want them, and both ends of a handshake.

use rcgen::{BasicConstraints, Certificate, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::crypto::ring;
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
use trust::{Own, Whom};

/// The name of all certificates, beside 127.0.0.1.
pub const HOST: &str = "localhost";

/// Makes certificates, and files in a folder that goes with it.
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

/// A certificate to be: valid now, signed by itself, no authority.
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

    /// Those of the same `common_name` have the same issuer when they sign themselves.
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

    /// From the beginning of one year to that of another.
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

    pub fn own(&self) -> Own<'_> {
        Own { certificate: &self.pem, key: &self.key_pem }
    }
}

/// The other end.
pub struct Server<'a> {
    pub certificate: &'a Certified,
    /// Certificates that it sends along.
    pub between: Vec<CertificateDer<'static>>,
    /// What it signs with: its certificate's key, if all is right.
    pub key: &'a KeyPair,
    pub version: &'static SupportedProtocolVersion,
    /// Whose clients are let in; `None` asks nobody for a certificate.
    pub clients: Option<&'a Certified>,
}

impl<'a> Server<'a> {
    pub fn of(certificate: &'a Certified) -> Server<'a> {
        Server { certificate, between: Vec::new(), key: &certificate.key, version: &TLS13, clients: None }
    }

    fn config(&self) -> ServerConfig {
        let provider = Arc::new(ring::default_provider());
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.serialize_der()));
        let key = provider.key_provider.load_private_key(key).unwrap();
        let chain = [vec![self.certificate.der()], self.between.clone()].concat();
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
        // Unlike `with_single_cert`, this does not look whether the key is the certificate's.
        builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(CertifiedKey::new(chain, key))))
    }
}

/// Shakes hands, and sends a byte there and back: what the server has seen of us.
pub fn shake(
    server: &Server<'_>,
    whom: Whom<'_>,
    own: Option<Own<'_>>,
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
    let config = Arc::new(trust::client(whom, own).unwrap());
    let mut stream = StreamOwned::new(ClientConnection::new(config, name).unwrap(), ours);
    let mut byte = [0];
    let answered = stream.write_all(b"?").and_then(|()| stream.read_exact(&mut byte));
    // The server may wait for more.
    drop(stream);
    let seen = thread.join().unwrap();
    answered?;
    assert_eq!(byte, *b"?");
    seen
}

/// What [`trust::client`] says of a file that does not do.
pub fn unusable(whom: Whom<'_>, own: Option<Own<'_>>) -> (trust::Role, PathBuf, String) {
    match trust::client(whom, own).unwrap_err() {
        trust::Unusable::File { role, path, why } => (role, path, why),
        other => panic!("not about a file: {other:?}"),
    }
}

/// Half of a file.
pub fn half(file: &Path) -> String {
    let text = std::fs::read_to_string(file).unwrap();
    text[..text.len() / 2].to_owned()
}
