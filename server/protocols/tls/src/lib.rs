//! TLS for servers: configurations, certificates by name, session tickets, key files that are read again.
//!
//! Why: the sources of certificates (files, ACME, the development authority) and their users (the addresses
//! with `ssl://`) do not know each other; [`Certificates`] connects them. Only this crate decides the
//! parameters of a handshake.
//!
//! Contract:
//! 1. TLS 1.2 and 1.3 with Mozilla's "intermediate" configuration (version 5.8), X25519MLKEM768 first; no 0-RTT.
//! 2. A certificate exists only together with its matching private key.
//! 3. The server keeps no session state in memory: tickets hold it, encrypted with keys derived from a secret.
//! 4. A session is resumed only under the rules for client certificates under which it began.
#![forbid(unsafe_code)]

mod accept;
mod certificate;
mod certificates;
mod client;
mod dn;
mod endpoint;
mod error;
mod failed;
mod files;
mod hello;
mod names;
mod pem;
mod provider;
mod quic;
mod refusal;
mod secret;
mod tickets;

pub use accept::{Established, NegotiatedVersion, TlsSession};
pub use certificate::{Certificate, CertificateFacts};
pub use certificates::{CertificateSource, Certificates, OnDemandHook};
pub use client::ClientCertificate;
pub use endpoint::{Alpn, Endpoint, EndpointRules};
pub use error::Error;
pub use failed::{Failed, Remains};
pub use files::{FileChange, Pair, read_authorities, read_pair};
pub use hello::{CertificateChoice, Hello};
pub use provider::provider;
pub use refusal::HandshakeRefusal;
pub use secret::{TicketSecret, random_secret};
pub use tickets::Tickets;
