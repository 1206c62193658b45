//! TLS for servers: configurations, certificates by name, session tickets, key files that are read again.
//!
//! Why: who has a certificate (files, ACME, the authority of development) and who needs one (the addresses that begin
//! with `ssl://`) do not know each other; [`Certificates`] is between them. What a handshake may negotiate is decided
//! here and nowhere else.
//!
//! Contract:
//! 1. TLS 1.2 and 1.3 as Mozilla's "intermediate" has them (version 5.8), X25519MLKEM768 first; no 0-RTT.
//! 2. A certificate exists only together with the private key that fits it.
//! 3. Nothing about a session is kept in memory: tickets hold it, encrypted with keys that follow from a secret.
//! 4. A session is resumed only under the rules for client certificates that it began under.
#![forbid(unsafe_code)]

mod accept;
mod certificate;
mod certificates;
mod client;
mod dn;
mod endpoint;
mod error;
mod files;
mod hello;
mod names;
mod pem;
mod provider;
mod refusal;
mod secret;
mod tickets;

pub use accept::{Established, Failed, Remains, Session, Version};
pub use certificate::{Certificate, Facts};
pub use certificates::{Certificates, OnDemand, Source};
pub use client::ClientCertificate;
pub use endpoint::{Alpn, Endpoint, Rules};
pub use error::Error;
pub use files::{Change, Pair, read_authorities, read_pair};
pub use hello::{Choice, Hello};
pub use provider::provider;
pub use refusal::Refusal;
pub use secret::{TicketSecret, random_secret};
pub use tickets::Tickets;
