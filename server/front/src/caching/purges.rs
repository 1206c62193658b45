//! Publishes purges to the other servers of a group, through a stream in Redis (`shared.redis`).
//!
//! Why a stream and not a channel: a server that has lost Redis for a while later reads the orders that it
//! missed. The messages of a channel would be lost, and the server would keep sending purged responses.
//!
//! Contract:
//! 1. An order takes effect here at once. It reaches the other servers as soon as they and Redis are
//!    connected.
//! 2. The stream keeps about [`MOST_ORDERS`] orders. A server that finds a gap removes all its responses. So
//!    does a server that does not know its position in the stream when it first reaches Redis. The position
//!    is saved beside the files of `cache.disk`.
//! 3. No request waits for Redis.

use super::carry_out;
use cache::{Purge, Store};
use control::cache::PurgeOrder;
use redis::entries::{self, EntryId, entry_id};
use redis::{Error, ErrorKind, RedisClient, RedisConfig, Value, ValueSink};
use settings::Settings;
use std::fs;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// The number of orders that the stream keeps, about.
const MOST_ORDERS: u64 = 10_000;

/// Redis answers a server that waits for orders at least this often, in milliseconds.
const BLOCK: &str = "5000";

/// The pause after a failure.
const AGAIN: Duration = Duration::from_secs(1);

/// How long connecting may take beyond `shared.timeout`.
const CONNECT: Duration = Duration::from_secs(2);

/// One server's view of the stream of its group.
pub(crate) struct SharedPurges {
    client: RedisClient<ValueSink>,
    key: String,
    /// Random; orders of this server are not carried out twice.
    own: String,
    timeout: Duration,
    /// The file with the place in the stream, in the folder of `cache.disk`.
    place: Option<PathBuf>,
}

impl SharedPurges {
    /// Creates the server's end; `None` without `shared.redis`.
    ///
    /// # Errors
    /// Not a Redis URL.
    pub(crate) fn new(settings: &Settings) -> Result<Option<Rc<SharedPurges>>, String> {
        let shared = &settings.shared;
        let Some(url) = &shared.redis else { return Ok(None) };
        let mut config = RedisConfig {
            connect_timeout: CONNECT,
            command_timeout: shared.timeout + CONNECT,
            ..RedisConfig::default()
        };
        config.set_url(url).map_err(|why| format!("shared.redis: {why}"))?;
        let key = format!("firebrick:{}:purges", shared.group);
        let place = settings.cache.disk.as_ref().map(|folder| folder.join("purges"));
        Ok(Some(Rc::new(SharedPurges {
            client: RedisClient::new(config),
            key,
            own: format!("{:016x}", fastrand::u64(..)),
            timeout: shared.timeout + CONNECT,
            place,
        })))
    }

    /// Publishes an order to the other servers.
    ///
    /// # Errors
    /// Redis cannot be reached; the other servers keep the purged responses.
    pub(crate) async fn tell(&self, order: &PurgeOrder) -> Result<(), String> {
        let text = serde_json::to_string(order).map_err(|error| error.to_string())?;
        let most = MOST_ORDERS.to_string();
        let words = ["XADD", &self.key, "MAXLEN", "~", &most, "*", "from", &self.own, "order", &text];
        self.call(&words).await.map(|_| ()).map_err(|error| error.to_string())
    }

    /// Carries out the orders of other servers, as long as the server lives.
    pub(crate) async fn follow(self: Rc<SharedPurges>, store: Arc<Store>, log: impl Fn(&str)) {
        let mut last = self.saved_place();
        let (mut saved, mut away) = (last, false);
        loop {
            let outcome = self.read(&mut last, &store, &log).await;
            if let Some(id) = last.filter(|_| last != saved) {
                saved = last;
                self.save_place(id, &store).await;
            }
            match outcome {
                Ok(()) if away => {
                    away = false;
                    log("cache: Redis is back; purges of other servers are carried out again");
                }
                Ok(()) => {}
                Err(error) => {
                    if !away {
                        log(&format!(
                            "cache: purges of other servers wait until Redis can be reached again ({error})"
                        ));
                    }
                    away = true;
                    tokio::time::sleep(AGAIN).await;
                }
            }
        }
    }

    /// Waits for the next orders and carries them out.
    async fn read(
        &self,
        last: &mut Option<EntryId>,
        store: &Arc<Store>,
        log: &impl Fn(&str),
    ) -> Result<(), Error> {
        let from = match *last {
            Some(known) if !self.has_gap(known).await? => known,
            _ => {
                let newest = self.newest().await?;
                let removed = store.purge(&Purge::All);
                if removed > 0 {
                    log(&format!(
                        "cache: all {removed} kept resources are removed, because orders of other servers to purge them may be lost"
                    ));
                }
                *last.insert(newest)
            }
        };
        let from = format!("{}-{}", from.0, from.1);
        let words = ["XREAD", "BLOCK", BLOCK, "COUNT", "100", "STREAMS", &self.key, &from];
        for (id, fields) in entries::read(&self.client, &words, Duration::from_secs(10)).await? {
            self.obey(&fields, store);
            *last = Some(id);
        }
        Ok(())
    }

    /// Carries out the order of another server.
    fn obey(&self, fields: &[(Vec<u8>, Vec<u8>)], store: &Store) {
        let of = |name: &[u8]| fields.iter().find(|(known, _)| known == name).map(|(_, value)| &**value);
        if of(b"from") == Some(self.own.as_bytes()) {
            return;
        }
        // An order that this version does not understand, written by a newer version, must not leave old
        // responses behind.
        let order = of(b"order").and_then(|text| serde_json::from_slice::<PurgeOrder>(text).ok());
        if order.is_none_or(|order| carry_out(store, &order).is_err()) {
            store.purge(&Purge::All);
        }
    }

    /// Returns the id of the newest order; zero if there is none.
    async fn newest(&self) -> Result<EntryId, Error> {
        let value = self.call(&["XREVRANGE", &self.key, "+", "-", "COUNT", "1"]).await?;
        Ok(entries::entries(value).first().map_or((0, 0), |(id, _)| *id))
    }

    /// Returns whether orders after `known` have been removed from the stream.
    async fn has_gap(&self, known: EntryId) -> Result<bool, Error> {
        let value = self.call(&["XRANGE", &self.key, "-", "+", "COUNT", "1"]).await?;
        let oldest = entries::entries(value).first().map(|(id, _)| *id);
        Ok(match oldest {
            // The stream was empty. Redis trims it only beyond this many orders.
            Some(_) if known == (0, 0) => self.length().await? >= MOST_ORDERS,
            Some(oldest) => oldest > known,
            // The stream was deleted; orders may be lost.
            None => known != (0, 0),
        })
    }

    /// Returns the number of orders in the stream.
    async fn length(&self) -> Result<u64, Error> {
        match self.call(&["XLEN", &self.key]).await? {
            Value::Integer(length) => Ok(u64::try_from(length).unwrap_or(0)),
            _ => Err(Error::new(ErrorKind::Protocol, "XLEN: no number")),
        }
    }

    /// Returns the position that an earlier process saved; `None` if the file is unreadable or belongs to
    /// another group.
    fn saved_place(&self) -> Option<EntryId> {
        let text = fs::read_to_string(self.place.as_ref()?).ok()?;
        entry_id(text.strip_prefix(&self.key)?.trim().as_bytes())
    }

    /// Saves the place. After a failure the next process carries out some orders once more.
    async fn save_place(&self, (time, number): EntryId, store: &Store) {
        let Some(file) = self.place.clone() else { return };
        let line = format!("{} {time}-{number}\n", self.key);
        // No file that was purged may outlive its order.
        store.flushed().await;
        let save = move || {
            let beside = file.with_extension(format!("tmp.{}", std::process::id()));
            let _ = fs::write(&beside, line).and_then(|()| fs::rename(&beside, &file));
        };
        let _ = tokio::task::spawn_blocking(save).await;
    }

    async fn call(&self, words: &[&str]) -> Result<Value, Error> {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        self.client.call(&words, self.timeout).await
    }
}
