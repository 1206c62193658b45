//! Tests handshakes over real sockets with rustls' client: the negotiated parameters, and refusals.
#![allow(clippy::unwrap_used, reason = "all of this is test code")]

use net::Transport;
use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ED25519};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, NamedGroup, RootCertStore};
use std::future::poll_fn;
use std::io::Write;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tls::{
    Certificate, CertificateChoice, CertificateSource, Certificates, Endpoint, EndpointRules, Failed,
    HandshakeRefusal, Hello, OnDemandHook, TicketSecret, TlsSession,
};
use tokio::net::{TcpListener, TcpStream};
use trust::Secret;

fn certificate(names: &[&str]) -> Arc<Certificate> {
    of_kind(names, &PKCS_ECDSA_P256_SHA256)
}

fn of_kind(names: &[&str], kind: &'static rcgen::SignatureAlgorithm) -> Arc<Certificate> {
    let key = KeyPair::generate_for(kind).unwrap();
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let made = CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
    Arc::new(
        Certificate::from_pem(&Secret::from(&*made.pem()), &Secret::from(&*key.serialize_pem())).unwrap(),
    )
}

fn endpoint(shared: &Arc<Certificates>) -> Endpoint {
    Endpoint::new(&EndpointRules::default(), None, shared.clone(), &TicketSecret::new("secret")).unwrap()
}

/// The results of a handshake on both sides.
struct Outcome {
    server: Result<Option<TlsSession>, HandshakeRefusal>,
    client: Result<Vec<CertificateDer<'static>>, String>,
    group: Option<NamedGroup>,
}

fn shake(
    endpoint: &Endpoint,
    name: &str,
    roots: &[&Arc<Certificate>],
    change: impl FnOnce(&mut ClientConfig),
) -> Outcome {
    let mut store = RootCertStore::empty();
    roots.iter().for_each(|root| store.add(root.certified_key().cert[0].clone()).unwrap());
    let builder =
        ClientConfig::builder_with_provider(tls::provider()).with_safe_default_protocol_versions().unwrap();
    let mut config = builder.with_root_certificates(store).with_no_client_auth();
    change(&mut config);
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let client = tokio::task::spawn_blocking(move || {
            let mut socket = std::net::TcpStream::connect(address).unwrap();
            let mut session = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
            while session.is_handshaking() {
                session.complete_io(&mut socket).map_err(|error| error.to_string())?;
            }
            let group = session.negotiated_key_exchange_group().map(|group| group.name());
            // The next byte or alert from the server shows whether it accepts the client.
            session.writer().write_all(b"x").unwrap();
            session.complete_io(&mut socket).map_err(|error| error.to_string())?;
            Ok::<_, String>((session.peer_certificates().unwrap_or_default().to_vec(), group))
        });
        let (socket, _) = listener.accept().await.unwrap();
        let server = match serve(endpoint, socket).await {
            Ok(session) => Ok(session),
            Err(failed) => {
                let refusal = failed.refusal;
                failed.linger().await;
                Err(refusal)
            }
        };
        let client = client.await.unwrap();
        let group = client.as_ref().ok().and_then(|(_, group)| *group);
        Outcome { server, client: client.map(|(chain, _)| chain), group }
    })
}

async fn serve(endpoint: &Endpoint, socket: TcpStream) -> Result<Option<TlsSession>, Failed> {
    let (hello, choice) = Hello::read(socket).await?.choose(endpoint)?;
    let (hello, choice) = match choice {
        CertificateChoice::OnDemand(name, hooks) => {
            hello.on_demand(endpoint, &name, Some(IpAddr::from([127, 0, 0, 1])), &hooks).await?
        }
        chosen => (hello, chosen),
    };
    let Some(established) = hello.answer(endpoint, &choice).await? else { return Ok(None) };
    poll_fn(|cx| established.stream.poll_readable(cx)).await;
    Ok(Some(established.session))
}

#[test]
fn the_post_quantum_group_comes_first() {
    let (shared, own) = (Certificates::new(), certificate(&["a.test"]));
    shared.set(CertificateSource::Files, vec![own.clone()]);
    let outcome = shake(&endpoint(&shared), "a.test", &[&own], |_| {});
    assert_eq!(outcome.group, Some(NamedGroup::X25519MLKEM768), "{:?}", outcome.client);
    let session = outcome.server.unwrap().unwrap();
    assert_eq!((session.cipher, session.name.as_deref()), ("TLS_AES_128_GCM_SHA256", Some("a.test")));
    assert!(!session.resumed && !session.http2 && session.client.is_none());
}

#[test]
fn only_files_have_a_default_for_unknown_names() {
    let (shared, own) = (Certificates::new(), certificate(&["a.test"]));
    shared.set(CertificateSource::Acme, vec![own.clone()]);
    let unknown = || shake(&endpoint(&shared), "b.test", &[&own], |_| {});
    let outcome = unknown();
    assert_eq!(outcome.server.unwrap_err(), HandshakeRefusal::UnknownName);
    let alert = outcome.client.unwrap_err();
    assert!(alert.to_lowercase().replace(' ', "").contains("unrecogni"), "{alert}");
    // Clients that request no host get it.
    assert!(
        shake(&endpoint(&shared), "127.0.0.1", &[&own], |_| {}).client.is_err(),
        "it is for another name"
    );
    shared.set(CertificateSource::Files, vec![own.clone()]);
    let outcome = unknown();
    assert!(outcome.client.is_err(), "it is for another name");
    assert_eq!(outcome.server.unwrap_err(), HandshakeRefusal::ClientRefused);
    shared.set(CertificateSource::Files, Vec::new());
    shared.set(CertificateSource::Acme, Vec::new());
    let outcome = shake(&endpoint(&shared), "127.0.0.1", &[&own], |_| {});
    assert_eq!(outcome.server.unwrap_err(), HandshakeRefusal::NoCertificate);
}

#[test]
fn a_certificate_for_an_address_is_found_without_a_name() {
    let (shared, other, own) = (Certificates::new(), certificate(&["a.test"]), certificate(&["127.0.0.1"]));
    shared.set(CertificateSource::Files, vec![other, own.clone()]);
    let outcome = shake(&endpoint(&shared), "127.0.0.1", &[&own], |_| {});
    assert!(outcome.client.is_ok(), "{:?}", outcome.client);
}

#[test]
fn of_two_keys_for_a_name_the_one_is_taken_that_the_client_can_verify() {
    let shared = Certificates::new();
    let (modern, usual) = (of_kind(&["a.test"], &PKCS_ED25519), certificate(&["a.test"]));
    shared.set(CertificateSource::Files, vec![modern.clone(), usual.clone()]);
    let served = |change: fn(&mut ClientConfig)| {
        let outcome = shake(&endpoint(&shared), "a.test", &[&modern, &usual], change);
        outcome.client.unwrap()[0].clone()
    };
    assert_eq!(served(|_| {}), modern.certified_key().cert[0]);
    assert_eq!(
        served(|config| config.dangerous().set_certificate_verifier(Arc::new(EcdsaOnly))),
        usual.certified_key().cert[0]
    );
}

/// A client that supports only ECDSA signatures.
#[derive(Debug)]
struct EcdsaOnly;

impl rustls::client::danger::ServerCertVerifier for EcdsaOnly {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: rustls::pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        vec![rustls::SignatureScheme::ECDSA_NISTP256_SHA256]
    }
}

#[test]
fn challenges_get_their_certificate_and_nothing_else() {
    let shared = Certificates::new();
    let (own, proof) = (certificate(&["a.test"]), certificate(&["a.test"]));
    shared.set(CertificateSource::Files, vec![own.clone()]);
    let ask = || {
        shake(&endpoint(&shared), "a.test", &[&own, &proof], |config| {
            config.alpn_protocols = vec![b"acme-tls/1".to_vec()];
        })
    };
    assert_eq!(ask().server.unwrap_err(), HandshakeRefusal::UnknownName, "none is set");
    shared.set_challenge("A.test", proof.certified_key().clone());
    let outcome = ask();
    assert_eq!(outcome.server.unwrap(), None);
    assert_eq!(outcome.client.unwrap()[0], proof.certified_key().cert[0]);
    let usual = shake(&endpoint(&shared), "a.test", &[&own, &proof], |_| {});
    assert_eq!(usual.client.unwrap()[0], own.certified_key().cert[0]);
    shared.remove_challenge("a.test");
    assert!(ask().server.is_err());
}

/// Creates certificates for names that begin with `made`.
struct Maker(AtomicUsize, Arc<Certificate>);

impl OnDemandHook for Maker {
    fn certificate(
        &self,
        name: String,
        client: Option<IpAddr>,
    ) -> Pin<Box<dyn Future<Output = Option<Arc<Certificate>>> + Send>> {
        self.0.fetch_add(1, Relaxed);
        assert_eq!(client, Some(IpAddr::from([127, 0, 0, 1])));
        let made = name.starts_with("made").then(|| self.1.clone());
        Box::pin(async move {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            made
        })
    }
}

#[test]
fn handshakes_wait_for_certificates_that_are_made_on_demand() {
    let (shared, own) = (Certificates::new(), certificate(&["a.test"]));
    shared.set(CertificateSource::Acme, vec![own.clone()]);
    let maker = Arc::new(Maker(AtomicUsize::new(0), certificate(&["made.test"])));
    shared.add_on_demand(maker.clone());
    let endpoint = endpoint(&shared);
    assert!(shake(&endpoint, "made.test", &[&maker.1], |_| {}).client.is_ok());
    assert!(shake(&endpoint, "a.test", &[&own], |_| {}).client.is_ok());
    assert_eq!(maker.0.load(Relaxed), 1, "only names without a certificate are asked for");
    let outcome = shake(&endpoint, "other.test", &[&own], |_| {});
    assert_eq!(outcome.server.unwrap_err(), HandshakeRefusal::UnknownName);
    assert_eq!(maker.0.load(Relaxed), 2);
}
