//! Action Cable as a pure codec, with the state behind it: WebSocket frames of a server, the commands and messages
//! of `actioncable-v1-json` and `actioncable-v1-ext-json`, streams whose messages have numbers and a history, the
//! subscribers of a thread, whispers of clients, the members of each stream, and the bounded queue of each client. The same streams as Server-Sent Events and by long polling.
//!
//! Why: the front holds the WebSockets of the app's pages. A broadcast must not enter Ruby, a slow client must not hold
//! memory without bound, and a client that connects again must learn whether it has missed anything.
//!
//! Contract:
//! 1. Nothing here does I/O, reads a clock or waits; callers pass the time.
//! 2. A stream's messages have the offsets 1, 2, 3 and so on within an epoch. A client that resumes at an offset gets each
//!    later message once and in order, or learns that some are no longer kept ([`streams`]).
//! 3. Everything that a client can make grow has a bound: messages, commands, subscriptions, members, the queue.
#![forbid(unsafe_code)]

pub mod audience;
pub mod broadcast;
pub mod command;
pub mod connection_token;
pub mod event;
pub mod event_audience;
pub mod event_id;
pub mod event_query;
pub mod exclusion;
pub mod frame;
pub mod jwt;
pub mod mercure;
pub mod message;
pub mod position_query;
pub mod presence;
pub mod presence_event;
pub mod presence_query;
pub mod presence_token;
pub mod process_listener;
pub mod public_streams;
pub mod publication;
pub mod queue;
pub mod rpc_key;
mod secret_key;
pub mod signed;
pub mod streams;
pub mod whisper;
