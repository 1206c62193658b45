//! Passes whispers on between the servers of a group, by a channel of Redis.
//!
//! Why a channel and not the log: a whisper is worth nothing a moment later, and must not take the room of messages that are kept.
//!
//! Contract: a whisper reaches the other servers at most once. While Redis is away, it reaches the clients of its own server only.

use super::{AGAIN, SharedStreams, TIMEOUT};
use cable::whisper::Whisper;
use redis::{Error, Value, command};
use std::convert::Infallible;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;

impl SharedStreams {
    /// Passes a whisper of a client of this server on. If it is lost, nothing is said: the log of streams tells of a Redis that is away.
    pub(in super::super) async fn whisper(&self, whisper: &Whisper) {
        let Ok(record) = whisper.record(&self.server) else { return };
        let words: [&[u8]; 3] = [b"PUBLISH", self.whispers.as_bytes(), record.as_bytes()];
        let _ = self.client.call(&words, TIMEOUT).await;
    }

    /// Passes the whispers of other servers on to the clients of this one, as long as it lives.
    pub(in super::super) async fn follow_whispers(self: Rc<Self>) {
        loop {
            // Any error: the connection is gone, or Redis cannot be reached.
            let Err(_) = self.hear_whispers().await;
            tokio::time::sleep(AGAIN).await;
        }
    }

    async fn hear_whispers(&self) -> Result<Infallible, Error> {
        let connection = self.client.subscriber();
        connection.send_subscription(|out| {
            command::words(out, &[b"SUBSCRIBE", self.whispers.as_bytes()]);
            Ok::<(), Error>(())
        })?;
        loop {
            let reply = poll_fn(|cx| connection.poll_message(cx)).await?;
            match reply.into_value() {
                Some(Value::Error(error)) => return Err(error),
                // `message`, the name of the channel, and the whisper; `subscribe` has a number instead.
                Some(Value::Array(mut parts)) => {
                    if let Some(Value::Text(record)) = parts.pop()
                        && let Some(whisper) = Whisper::of_other(&record, &self.server)
                    {
                        self.hub.caught_up().await;
                        self.hub.whisper_here(&Arc::new(whisper));
                    }
                }
                _ => {}
            }
        }
    }
}
