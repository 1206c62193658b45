//! A Redis client for one thread of an event loop.
//!
//! Many tasks of a thread share one connection per server: their commands leave in one write per turn of the
//! event loop, and replies are matched by order. So a hundred commands cost one connection and few packets.
//!
//! The caller chooses how replies are stored: a [`ReplySink`] receives their elements as they are parsed.
//! [`Value`] is a sink for general use; a caller with its own format (a handler's VM) implements the trait
//! and saves a copy.
//!
//! Contract:
//! 1. Everything happens on the thread that made the [`RedisClient`], in a `LocalSet` or `LocalRuntime` of tokio.
//! 2. Replies: see [`RedisConnection`]. No command is ever sent twice.
//! 3. Errors have a kind ([`ErrorKind`]) and a message that names the server.
#![forbid(unsafe_code)]

mod client;
pub mod command;
mod config;
mod connection;
pub mod entries;
mod error;
mod resp;
mod script;
mod stream;
mod tls;
mod value;

pub use client::{Dedicated, RedisClient};
pub use config::{Address, RedisConfig};
pub use connection::{RedisConnection, Reply};
pub use error::{Error, ErrorKind};
pub use resp::{MalformedReply, Parser, ReplySink};
pub use script::RedisScript;
pub use tls::RedisTls;
pub use value::{Value, ValueSink};
