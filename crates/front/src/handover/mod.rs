//! Upgrades: a new program takes over the very sockets on which the old one listens. docs/upgrade.md is for people.
//!
//! The order of things:
//!
//! | old program | new program |
//! |---|---|
//! | starts the new one with a socket, sends all listening sockets | |
//! | serves | reads its settings, claims the sockets of its addresses, binds new ones, loads the app, starts workers |
//! | | `ready` |
//! | `go` | |
//! | serves | listens on all sockets, writes the pid file, opens the control socket |
//! | | `serving`, with the files that are its own now |
//! | tells systemd (`MAINPID`), `yours` | |
//! | stops accepting, finishes requests, exits 0 | tells systemd that it is ready |
//!
//! Contract:
//! 1. Whatever fails until `serving`: the old program has never stopped to serve, and goes on.
//! 2. An old program that dies before `go` does not end the new one, which serves as soon as it is ready.
//! 3. No socket is closed whose queue may hold a connection: the new program listens on all that it is given for its addresses.

mod channel;
mod giver;
mod message;
mod packets;
mod program;
mod taker;

pub(crate) use giver::{Offer, Successor};
pub(crate) use message::Place;
pub use program::Started;
pub use taker::decline;
pub(crate) use taker::{Handed, Predecessor, Taken, receive, takes_both};
