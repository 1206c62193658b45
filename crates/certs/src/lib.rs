//! Certificates that are obtained and renewed without anybody asking (ACME, RFC 8555), and those of development ([`local`]).
//!
//! Read it from [`service`] (the thread) to [`keeper`] (one certificate) to [`order`] (one order). [`schedule`] decides when;
//! it is pure. [`store`] keeps what was obtained, [`ca`] our account. [`challenge`] and [`alpn`] answer the CA, [`dns`] has a
//! command of the user's do it. [`demand`] and [`ask`] are for names that nobody has listed.
//!
//! Contract:
//! 1. The server never waits for the CA: what is stored is served at once, and nothing here runs on a front thread.
//! 2. Whatever a CA sends, the certificates that are served stay as they are until better ones have been checked.
//! 3. Every failure is a sentence with the name, the reason and what to do; and it is tried again.
//! 4. No private key is in a message or readable by other users.
#![forbid(unsafe_code)]

mod alpn;
mod ask;
mod board;
mod ca;
mod challenge;
mod client;
mod command;
mod demand;
mod dns;
mod keeper;
pub mod local;
mod names;
mod order;
mod overflow;
pub mod record;
pub mod schedule;
mod service;
mod shared;
mod store;
mod trouble;

pub use board::Board;
pub use challenge::{HTTP_PATH, HttpAnswers, Means};
pub use command::{in_files, served_from_files, stored, table};
pub use service::Service;
pub use store::{request_shared_secret, shared_secret};
