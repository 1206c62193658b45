//! Certificates that are obtained and renewed automatically (ACME, RFC 8555), and certificates for
//! development ([`local`]).
//!
//! Read it from [`service`] (the thread) to [`keeper`] (one certificate) to [`order`] (one order).
//! [`schedule`] decides when to order; it is pure. [`store`] keeps the certificates, [`ca`] the account.
//! [`challenge`] and [`alpn`] answer the CA; [`dns`] runs the user's command. [`demand`] and [`ask`] handle
//! names on demand.
//!
//! Contract:
//! 1. The server never waits for the CA: stored certificates are served at once, and nothing here runs on a
//!    front thread.
//! 2. Whatever a CA sends, the served certificates stay until better ones have been checked.
//! 3. Every failure is a sentence with the name, the reason and a remedy, and is retried.
//! 4. No private key appears in a message or is readable by other users.
#![forbid(unsafe_code)]

mod alpn;
mod answers;
mod budget;
mod ca;
mod challenge;
mod client;
mod command;
mod dns;
pub mod local;
mod names;
mod on_demand;
mod order;
mod overflow;
pub mod record;
mod renewal;
pub mod schedule;
mod service;
mod shared;
mod states;
mod store;
mod trouble;

pub use challenge::{HTTP_PATH, HttpAnswers, Means};
pub use command::{in_files, served_from_files, stored, table};
pub use service::CertificateService;
pub use states::CertificateStates;
pub use store::{request_shared_secret, shared_secret};
