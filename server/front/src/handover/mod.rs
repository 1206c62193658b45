//! Upgrades: a new program takes over the listening sockets of the old one. See docs/upgrade.md for the user's view.
//!
//! The sequence:
//!
//! | old program | new program |
//! |---|---|
//! | starts the new one with a socket, sends all listening sockets | |
//! | serves | reads its settings, claims the sockets of its addresses, binds new ones, loads the app, starts workers |
//! | | `ready` |
//! | the [interruptions](control::orders::Interruptions) and [changes of settings](control::changes::ChangeList), if any, and `go` | |
//! | serves | listens on all sockets, writes the pid file, opens the control socket |
//! | | `serving`, with the files that are its own now |
//! | tells systemd (`MAINPID`), `yours` | |
//! | stops accepting, finishes requests, exits 0 | tells systemd that it is ready |
//! | `invalidated`, for each key whose kept responses a request of it has invalidated | |
//! | `kept`, when the last request has ended: the kept responses | |
//! | | `paused`, when a pause that holds requests of the old program has changed or ended |
//!
//! Contract:
//! 1. If anything fails before `serving`, the old program has never stopped serving, and continues.
//! 2. If the old program dies before `go`, the new one continues, and serves as soon as it is ready.
//! 3. No socket is closed that may have connections in its backlog: the new program listens on all sockets
//!    that it gets for its addresses.

mod channel;
mod giver;
mod message;
mod packets;
mod program;
mod record;
mod taker;

pub(crate) use giver::{Offer, Successor, SuccessorChannel};
pub(crate) use message::SocketKind;
pub use program::Started;
pub(crate) use record::UpgradeRecord;
pub use taker::decline;
pub(crate) use taker::{Handed, Heirloom, Predecessor, ReceivedSockets, receive, takes_both};
