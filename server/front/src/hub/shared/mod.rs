//! Shares the streams with the other servers of a group through Redis (`hub.redis`).
//!
//! Why a stream of Redis and not a channel: a server that has lost Redis for a while then reads what it has missed. The messages of
//! a channel would be lost.
//!
//! Contract:
//! 1. A message gets its epoch and offset from Redis, and all servers, this one too, deliver it when they read it from the log. So each
//!    server has the messages of a stream with the same offsets and in the same order, and a client can resume at any of them.
//! 2. A message that may have been appended before its reply was lost is looked for by its id before it is appended again.
//! 3. Without Redis nothing is published: the publisher gets an error after [`PATIENCE`]. WebSockets stay open, and get the messages of the
//!    meantime when Redis is back. If Redis has lost messages, a new epoch begins, with larger offsets.
//! 4. The log is bounded by `hub.history` and `hub.history_memory`.
//! 5. The members of streams are in Redis, too ([`members`]). Whispers pass through it, and are not kept ([`whispers`]).

pub(super) mod members;
mod whispers;

use super::{SharedHub, count, new_epoch, now_ms};
use redis::entries::{self, Entry, EntryId};
use redis::{Error, ErrorKind, RedisClient, RedisConfig, RedisScript, Value, ValueSink};
use settings::Settings;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// The scripts begin with the same text.
const PUBLISH: &str = concat!(include_str!("log.lua"), include_str!("streams.lua"));
/// How long a publisher waits for Redis.
const PATIENCE: Duration = Duration::from_secs(2);
/// Time-out for a command, and for connecting.
const TIMEOUT: Duration = Duration::from_secs(1);
/// The pause after a failure.
const AGAIN: Duration = Duration::from_millis(100);
/// Redis answers a server that waits for messages at least this often, in milliseconds. The reply has this time and [`TIMEOUT`].
const BLOCK: u64 = 5000;
/// The most messages of a reply. All of them together are smaller than the longest reply.
const MOST: usize = 16;

/// One server's view of the streams of its group.
pub(super) struct SharedStreams {
    hub: Arc<SharedHub>,
    client: RedisClient<ValueSink>,
    head: String,
    log: String,
    /// The channel of whispers, and the name of this server in it.
    whispers: String,
    server: String,
    script: RedisScript,
    /// The beginning of the names of all keys.
    prefix: String,
    /// The bounds of the log: milliseconds, and bytes.
    history: String,
    bytes: String,
    /// Messages up to this offset were published before this server knew Redis: they are kept, and not delivered.
    past: Cell<u64>,
    tell: Box<dyn Fn(&str)>,
}

/// The head of the log.
struct LogHead {
    epoch: String,
    offset: u64,
    /// The newest message that was dropped: its offset, and its time in milliseconds since 1970.
    lost: u64,
    lost_at: u64,
}

impl SharedStreams {
    /// Creates this server's view; `None` without `hub.redis`.
    ///
    /// # Errors
    /// Not a Redis URL.
    pub(super) fn new(
        hub: &Arc<SharedHub>,
        settings: &Settings,
        tell: impl Fn(&str) + 'static,
    ) -> Result<Option<Rc<SharedStreams>>, String> {
        let Some(url) = &settings.hub.redis else { return Ok(None) };
        let mut config =
            RedisConfig { connect_timeout: TIMEOUT, command_timeout: TIMEOUT, ..RedisConfig::default() };
        config.set_url(url).map_err(|why| format!("hub.redis: {why}"))?;
        // With braces all keys are on the same node of a cluster.
        let prefix = format!("firebrick:{{{}}}:hub", settings.shared.group);
        Ok(Some(Rc::new(SharedStreams {
            hub: hub.clone(),
            client: RedisClient::new(config),
            head: format!("{prefix}:head"),
            log: format!("{prefix}:log"),
            whispers: format!("{prefix}:whispers"),
            server: new_epoch(),
            prefix,
            script: RedisScript::new(PUBLISH),
            history: settings.hub.history.as_millis().to_string(),
            bytes: settings.hub.history_memory.to_string(),
            past: Cell::new(0),
            tell: Box::new(tell),
        })))
    }

    /// Adds a message to a stream of all servers. Returns its epoch and offset.
    ///
    /// # Errors
    /// Redis cannot be reached. The message may reach clients nevertheless, if only the reply was lost.
    pub(super) async fn publish(&self, name: &str, payload: &str) -> Result<(Arc<str>, u64), String> {
        let id = format!("{:032x}", fastrand::u128(..));
        let until = Instant::now() + PATIENCE;
        let mut again = "0";
        loop {
            match self.run(&[name, payload, &id, again]).await {
                Ok(head) => return Ok((head.epoch.into(), head.offset)),
                Err(error) if is_refusal(&error) || Instant::now() >= until => {
                    count(&self.hub.counts.unpublished);
                    return Err(format!(
                        "the message does not reach the other servers: Redis on {}: {error}",
                        self.client.config().address
                    ));
                }
                Err(error) => {
                    if matches!(error.kind, ErrorKind::ConnectionLost | ErrorKind::CommandTimeout) {
                        again = "1";
                    }
                    tokio::time::sleep(AGAIN).await;
                }
            }
        }
    }

    /// Delivers the messages of all servers, as long as this one lives.
    pub(super) async fn follow(self: Rc<Self>) {
        let mut from = None;
        loop {
            match self.read(&mut from).await {
                Ok(()) if self.hub.counts.redis_away.swap(0, Relaxed) > 0 => {
                    (self.tell)("hub: Redis is back; messages are published again");
                }
                Ok(()) => {}
                Err(error) => {
                    // The log of errors says it once.
                    if self.hub.counts.redis_away.swap(1, Relaxed) == 0 {
                        count(&self.hub.counts.redis_losses);
                        let address = &self.client.config().address;
                        (self.tell)(&format!(
                            "hub: nothing can be published until Redis on {address} can be reached again ({error}); WebSockets stay open"
                        ));
                    }
                    // Clients of this server do not wait for it.
                    self.hub.open();
                    // Redis may have lost its memory, or be another one.
                    from = from.map(|(id, _)| (id, false));
                    tokio::time::sleep(AGAIN).await;
                }
            }
        }
    }

    /// Reads the next messages. `from`: the last entry that was read, and whether the head was looked at since Redis was reached.
    async fn read(&self, from: &mut Option<(EntryId, bool)>) -> Result<(), Error> {
        let after = match *from {
            Some((after, true)) => after,
            Some((after, false)) if !self.catch_up(false).await? => after,
            // The log from its beginning.
            known => {
                if known.is_none() {
                    self.catch_up(true).await?;
                }
                (0, 0)
            }
        };
        *from = Some((after, true));
        let is_ready = self.hub.is_ready();
        let found = self.entries_after(after, is_ready).await?;
        if found.len() < MOST && !is_ready {
            self.hub.open();
        }
        for (id, fields) in found {
            if !self.take(id, &fields) {
                // Another epoch, which the head names.
                *from = Some((after, false));
                break;
            }
            *from = Some((id, true));
        }
        Ok(())
    }

    /// Compares the head of the log with what is known here. Returns whether everything has to be read from the beginning of the log, which is
    /// so at the `first` time, in a new epoch, and when messages were dropped before they were read here.
    async fn catch_up(&self, first: bool) -> Result<bool, Error> {
        let head = self.run(&[]).await?;
        let mut streams = self.hub.streams();
        let has_gap = !first && head.epoch == **streams.epoch() && head.lost > streams.last();
        let is_other = first || has_gap || head.epoch != **streams.epoch();
        if is_other {
            streams.begin_epoch(&head.epoch, head.lost, head.lost_at, now_ms());
        }
        drop(streams);
        if first {
            self.past.set(head.offset);
        }
        if has_gap {
            (self.tell)(
                "hub: Redis was away for so long that messages were dropped from its log: clients have missed them",
            );
        }
        Ok(is_other)
    }

    /// Waits for entries of the log after this one; not at all unless `waits`.
    async fn entries_after(&self, (time, number): EntryId, waits: bool) -> Result<Vec<Entry>, Error> {
        let (count, block, after) = (MOST.to_string(), BLOCK.to_string(), format!("{time}-{number}"));
        let mut words = vec!["XREAD", "COUNT", &count];
        if waits {
            words.extend(["BLOCK", &block]);
        }
        words.extend(["STREAMS", &self.log, &after]);
        let timeout = TIMEOUT + if waits { Duration::from_millis(BLOCK) } else { Duration::ZERO };
        entries::read(&self.client, &words, timeout).await
    }

    /// Delivers an entry of the log. Returns false if it is of another epoch. An entry that cannot be read, of a newer version, is left out.
    fn take(&self, (at, _): EntryId, fields: &[(Vec<u8>, Vec<u8>)]) -> bool {
        let of = |name: &[u8]| {
            let value = fields.iter().find(|(known, _)| known == name).map(|(_, value)| value);
            value.and_then(|value| std::str::from_utf8(value).ok())
        };
        let (Some(stream), Some(epoch), Some(payload)) = (of(b"stream"), of(b"epoch"), of(b"payload")) else {
            return true;
        };
        let Some(offset) = of(b"offset").and_then(|digits| digits.parse().ok()) else { return true };
        self.hub.insert(epoch, stream, payload, (offset, at), offset > self.past.get())
    }

    /// Runs the script that publishes, with a message or none.
    async fn run(&self, message: &[&str]) -> Result<LogHead, Error> {
        let (head, _) = LogHead::of(self.call(&self.script, &[], message).await?)?;
        Ok(head)
    }

    /// Runs a script that begins with that of the log. `keys` and `arguments` are those beyond the log's.
    async fn call(&self, script: &RedisScript, keys: &[&str], arguments: &[&str]) -> Result<Value, Error> {
        let (epoch, last) = {
            let streams = self.hub.streams();
            (streams.epoch().clone(), streams.last().to_string())
        };
        let (fresh, count) = (new_epoch(), (2 + keys.len()).to_string());
        let mut words = vec![&*count, &self.head, &self.log];
        words.extend(keys);
        words.extend([&*self.history, &self.bytes, &fresh, &epoch, &last]);
        words.extend(arguments);
        script.run(&self.client, &words, TIMEOUT).await
    }
}

/// Whether Redis has answered, so that it makes no sense to ask again soon.
fn is_refusal(error: &Error) -> bool {
    // A server that loads its data, or that was a replica a moment ago, says so with an error.
    !matches!(
        error.kind,
        ErrorKind::CannotConnect
            | ErrorKind::ConnectTimeout
            | ErrorKind::ConnectionLost
            | ErrorKind::CommandTimeout
            | ErrorKind::ReadOnly
    ) && !error.message.starts_with(b"LOADING")
}

/// Returns an unexpected reply as an error.
fn wrong_reply() -> Error {
    Error::new(ErrorKind::Protocol, "an unexpected reply of the script")
}

/// Returns a text of a reply.
fn text_of(value: Value) -> Result<String, Error> {
    match value {
        Value::Text(text) => String::from_utf8(text).map_err(|_| wrong_reply()),
        _ => Err(wrong_reply()),
    }
}

impl LogHead {
    /// Returns the head that a script's reply begins with, and the rest of the reply.
    fn of(reply: Value) -> Result<(LogHead, impl Iterator<Item = Value>), Error> {
        let Value::Array(values) = reply else { return Err(wrong_reply()) };
        let mut values = values.into_iter();
        let mut next = || text_of(values.next().ok_or_else(wrong_reply)?);
        let epoch = next()?;
        let mut number = || next()?.parse::<u64>().map_err(|_| wrong_reply());
        let head = LogHead { epoch, offset: number()?, lost: number()?, lost_at: number()? };
        Ok((head, values))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_read_and_mistakes_are_errors() {
        let text = |text: &str| Value::Text(text.as_bytes().to_vec());
        let reply = ["e", "1764000000000000", "3", "4", "more"].map(text).to_vec();
        let (head, more) = LogHead::of(Value::Array(reply)).unwrap();
        assert_eq!(more.collect::<Vec<_>>(), [text("more")]);
        assert_eq!((&*head.epoch, head.offset, head.lost, head.lost_at), ("e", 1_764_000_000_000_000, 3, 4));
        for wrong in [
            Value::Null,
            Value::Array(vec![text("e")]),
            Value::Array(["e", "x", "3", "4"].map(text).to_vec()),
            Value::Array(vec![Value::Integer(1), text("2"), text("3"), text("4")]),
        ] {
            assert!(LogHead::of(wrong).is_err());
        }
    }

    #[test]
    fn a_refusal_is_not_repeated() {
        let is = |kind, text: &str| is_refusal(&Error::new(kind, text));
        assert!(is(ErrorKind::OutOfMemory, "OOM command not allowed") && is(ErrorKind::Permission, "NOPERM"));
        assert!(!is(ErrorKind::Command, "LOADING Redis is loading") && !is(ErrorKind::ReadOnly, "READONLY"));
        assert!(!is(ErrorKind::ConnectionLost, "gone"));
    }
}
