//! The same server over HTTP/3, and two clients: the `h3` crate, and streams with raw bytes.

use super::{Answers, Job, Log, Server, run_jobs};
use bytes::{Buf, Bytes};
use handler::{Peer, PeerAddr};
use http::{Context, three};
use net::Timers;
use quic::quinn::{self, Endpoint};
use quic::{Keys, QuicBounds, Steering, endpoint, server_config};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use settings::Settings;
use std::net::{Ipv4Addr, UdpSocket};
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// An HTTP/3 server, and the certificate that its clients trust.
pub struct QuicServer {
    pub server: Server,
    certificate: CertificateDer<'static>,
}

pub fn start(settings: impl Into<Settings>) -> QuicServer {
    let settings = settings.into();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let certificate = made.cert.der().clone();
    let mut crypto = rustls::ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .unwrap();
    crypto.alpn_protocols = vec![b"h3".to_vec()];
    let log = Log::default();
    let (tell, told) = mpsc::channel();
    let (jobs, to_do) = mpsc::channel::<Job>();
    let answers = Answers { log: log.clone() };
    std::thread::spawn(move || {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build_local(Default::default());
        runtime.unwrap().block_on(async {
            let timers = Timers::new();
            let context = Context::new(answers, settings, timers.clone());
            tokio::task::spawn_local(async move { timers.run().await });
            tokio::task::spawn_local(run_jobs(to_do, context.clone()));
            let keys = Keys::random().unwrap();
            let bounds = QuicBounds {
                streams: 100,
                stream_window: 1 << 20,
                send_window: 1 << 20,
                idle: Duration::from_secs(30),
            };
            let config = server_config(Arc::new(crypto), &bounds, &keys).unwrap();
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            socket.set_nonblocking(true).unwrap();
            tell.send(socket.local_addr().unwrap()).unwrap();
            let mailbox = Steering::mailboxes(1).remove(0);
            let endpoint = endpoint(socket, mailbox, config, &keys).unwrap();
            while let Some(incoming) = endpoint.accept().await {
                let Ok(connection) = incoming.await else { continue };
                let remote = connection.remote_address();
                let peer = Peer {
                    remote: PeerAddr::Inet(remote),
                    remote_text: remote.ip().to_string().into(),
                    local: PeerAddr::Inet(endpoint.local_addr().unwrap()),
                    tls: true,
                    session: None,
                };
                tokio::task::spawn_local(three::serve(connection, Rc::new(peer), context.clone()));
            }
        });
    });
    QuicServer { server: Server { address: told.recv().unwrap(), log, jobs }, certificate }
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// The client's side of the `h3` crate.
pub type Requests = h3::client::SendRequest<h3_quinn::OpenStreams, Bytes>;

#[derive(Debug, Default)]
pub struct Answer {
    pub status: u16,
    pub fields: http_types::HeaderMap,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.get(name).map(|value| value.to_str().unwrap())
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

impl QuicServer {
    /// Runs a client.
    pub fn with<R>(&self, client: impl AsyncFnOnce(&QuicServer) -> R) -> R {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build_local(Default::default());
        runtime.unwrap().block_on(async {
            tokio::time::timeout(Duration::from_secs(60), client(self)).await.unwrap_or_else(|_| {
                panic!("it takes more than a minute: {:?}", self.server.log.lock().unwrap())
            })
        })
    }

    /// Opens a QUIC connection.
    pub async fn connect(&self) -> (Endpoint, quinn::Connection) {
        self.connect_with(quinn::TransportConfig::default()).await
    }

    /// Opens a QUIC connection with the client's own limits.
    pub async fn connect_with(&self, transport: quinn::TransportConfig) -> (Endpoint, quinn::Connection) {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        let mut crypto = rustls::ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        crypto.alpn_protocols = vec![b"h3".to_vec()];
        let crypto = quinn::crypto::rustls::QuicClientConfig::try_from(crypto).unwrap();
        let endpoint = Endpoint::client((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let mut config = quinn::ClientConfig::new(Arc::new(crypto));
        config.transport_config(Arc::new(transport));
        let connecting = endpoint.connect_with(config, self.server.address, "localhost").unwrap();
        let connection = connecting.await.unwrap();
        (endpoint, connection)
    }

    /// Opens an HTTP/3 connection. The caller must keep the last element.
    pub async fn requests(&self) -> (Requests, quinn::Connection, Endpoint) {
        let (endpoint, connection) = self.connect().await;
        let (mut driver, requests) =
            h3::client::new(h3_quinn::Connection::new(connection.clone())).await.unwrap();
        tokio::task::spawn_local(async move {
            let _ = driver.wait_idle().await;
        });
        (requests, connection, endpoint)
    }

    /// Opens a connection for raw bytes, with an open control stream.
    pub async fn raw(&self) -> (Endpoint, quinn::Connection, quinn::SendStream) {
        let (endpoint, connection) = self.connect().await;
        let mut control = connection.open_uni().await.unwrap();
        control.write_all(&[0, 4, 0]).await.unwrap();
        (endpoint, connection, control)
    }
}

pub fn request(method: &str, path: &str) -> http_types::Request<()> {
    http_types::Request::builder().method(method).uri(format!("https://localhost{path}")).body(()).unwrap()
}

pub async fn exchange(requests: &mut Requests, request: http_types::Request<()>, body: &[u8]) -> Answer {
    let path = request.uri().path().to_owned();
    let mut stream = requests.send_request(request).await.unwrap();
    if !body.is_empty() {
        stream.send_data(Bytes::copy_from_slice(body)).await.unwrap();
    }
    stream.finish().await.unwrap();
    let head = stream.recv_response().await.unwrap_or_else(|error| panic!("{path}: {error}"));
    let mut answer =
        Answer { status: head.status().as_u16(), fields: head.headers().clone(), body: Vec::new() };
    while let Some(mut piece) = stream.recv_data().await.unwrap() {
        while piece.has_remaining() {
            let chunk = piece.chunk();
            answer.body.extend_from_slice(chunk);
            let len = chunk.len();
            piece.advance(len);
        }
    }
    answer
}

pub async fn get(requests: &mut Requests, path: &str) -> Answer {
    exchange(requests, request("GET", path), b"").await
}
