//! A store in Redis, for several machines: [`Redis`].
//!
//! Contract:
//! 1. Keys are `firebrick:certs:PLACE:NAME`, where PLACE stands for the CA's directory.
//! 2. A lease is a key with a random value that expires. Only the machine that knows the value renews or deletes it.
//! 3. Redis must be as private as a directory of keys, because it holds them unencrypted. The user is
//!    responsible for TLS (`rediss://`) and a password.

use super::{CertificateStore, Error, Item, LEASE, Lease, MAX_ITEM, Pending, place_of};
use ::redis::{RedisClient, RedisConfig, Value, ValueSink};
use std::rc::Rc;

/// Deletes a lease if this server still holds it.
const RELEASE: &[u8] =
    b"if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end";
/// Extends a lease if this server still holds it.
const RENEW: &[u8] =
    b"if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) else return 0 end";
/// When challenges expire, in milliseconds.
const CHALLENGES: &[u8] = b"900000";

/// A Redis database, for one directory of a CA.
#[derive(Clone)]
pub struct Redis {
    client: Rc<RedisClient<ValueSink>>,
    prefix: String,
}

impl Redis {
    /// Returns the store of `directory` at `url`. It connects at first use.
    ///
    /// # Errors
    /// The URL is invalid. The text says why.
    pub fn new(url: &str, directory: &str) -> Result<Redis, Error> {
        let mut config = RedisConfig::default();
        config.set_url(url).map_err(|why| Error(format!("acme.storage: {why}")))?;
        let prefix = format!("firebrick:certs:{}", place_of(directory));
        Ok(Redis { client: Rc::new(RedisClient::new(config)), prefix })
    }

    fn key(&self, name: &str) -> Vec<u8> {
        format!("{}:{name}", self.prefix).into_bytes()
    }

    async fn run(&self, words: &[&[u8]]) -> Result<Value, Error> {
        run(&self.client, words).await
    }
}

async fn run(client: &RedisClient<ValueSink>, words: &[&[u8]]) -> Result<Value, Error> {
    let config = client.config();
    let reply = client.call(words, config.command_timeout + config.connect_timeout).await;
    reply.map_err(|why| Error(format!("Redis on {}: {why}", config.address)))
}

impl CertificateStore for Redis {
    fn describe(&self) -> String {
        format!("Redis on {}", self.client.config().address)
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn load<'a>(&'a self, item: &'a Item) -> Pending<'a, Result<Option<Vec<u8>>, Error>> {
        Box::pin(async move {
            match self.run(&[b"GET", &self.key(&item.name())]).await? {
                Value::Text(bytes) if bytes.len() <= MAX_ITEM => Ok(Some(bytes)),
                Value::Null => Ok(None),
                _ => Err(Error(format!("{}: {} is not ours", self.describe(), item.name()))),
            }
        })
    }

    fn save<'a>(&'a self, item: &'a Item, bytes: &'a [u8]) -> Pending<'a, Result<(), Error>> {
        Box::pin(async move {
            let key = self.key(&item.name());
            let saved = match item {
                Item::Challenges(_) => self.run(&[b"SET", &key, bytes, b"PX", CHALLENGES]).await,
                _ => self.run(&[b"SET", &key, bytes]).await,
            };
            saved.map(drop)
        })
    }

    fn lease<'a>(&'a self, id: &'a str) -> Pending<'a, Result<Option<Box<dyn Lease>>, Error>> {
        Box::pin(async move {
            let key = self.key(&format!("{id}.lease"));
            let owner = format!("{:016x}{:016x}", fastrand::u64(..), fastrand::u64(..)).into_bytes();
            let expires = LEASE.as_millis().to_string().into_bytes();
            match self.run(&[b"SET", &key, &owner, b"NX", b"PX", &expires]).await? {
                Value::Null => Ok(None),
                _ => Ok(Some(Box::new(Leased { client: self.client.clone(), key, owner }) as Box<dyn Lease>)),
            }
        })
    }
}

/// A key that this server holds until it expires.
struct Leased {
    client: Rc<RedisClient<ValueSink>>,
    key: Vec<u8>,
    owner: Vec<u8>,
}

impl Lease for Leased {
    fn renew(&self) -> Pending<'_, Result<bool, Error>> {
        Box::pin(async move {
            let expires = LEASE.as_millis().to_string().into_bytes();
            let renewed =
                run(&self.client, &[b"EVAL", RENEW, b"1", &self.key, &self.owner, &expires]).await?;
            Ok(renewed == Value::Integer(1))
        })
    }

    fn release(self: Box<Self>) -> Pending<'static, ()> {
        Box::pin(async move {
            // If this fails, the lease expires.
            let _ = run(&self.client, &[b"EVAL", RELEASE, b"1", &self.key, &self.owner]).await;
        })
    }
}
