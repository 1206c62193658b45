//! Counts limits in Redis: [`RedisCounters`].
//!
//! Contract:
//! 1. A decision is one script, so no two servers admit a request to the same place. The clock is Redis's.
//! 2. Keys expire when the limit is unused again, so Redis keeps no data of a client that has gone.
//! 3. No query takes longer than the time-out. Connections are reused: a query waits for connecting only
//!    before the first connection.

use crate::rate::Limit;
use redis::{ErrorKind, RedisClient, RedisConfig, RedisScript, Value, ValueSink};
use std::time::Duration;

const GCRA: &str = include_str!("gcra.lua");
const SERVERS: &str = include_str!("servers.lua");
/// How long connecting may take: longer than a query, which may happen while there is no connection.
const CONNECT: Duration = Duration::from_secs(2);

/// One thread's connection, and the names of keys.
pub(crate) struct RedisCounters {
    client: RedisClient<ValueSink>,
    prefix: String,
    timeout: Duration,
    gcra: RedisScript,
    servers: RedisScript,
}

impl RedisCounters {
    /// Creates a store for the Redis at `url`. It connects at the first query.
    ///
    /// # Errors
    /// Describes the mistake in the URL.
    pub(crate) fn new(url: &str, group: &str, timeout: Duration) -> Result<RedisCounters, String> {
        let mut config =
            RedisConfig { connect_timeout: CONNECT, command_timeout: timeout, ..RedisConfig::default() };
        config.set_url(url)?;
        Ok(RedisCounters {
            client: RedisClient::new(config),
            prefix: format!("firebrick:{group}"),
            timeout,
            gcra: RedisScript::new(GCRA),
            servers: RedisScript::new(SERVERS),
        })
    }

    /// Returns the address, for messages.
    pub(crate) fn address(&self) -> String {
        self.client.config().address.to_string()
    }

    /// Counts a request if it is admitted. Returns zero if so, else how long it has to wait.
    pub(crate) async fn count(&self, limit: &Limit, key: &str) -> Result<Duration, String> {
        // Microseconds with a fraction: a third of a second is not a whole number of them.
        let each = format!("{:.3}", limit.period as f64 / f64::from(limit.count) / 1e3);
        let wait = self
            .run(&self.gcra, &format!("rate:{key}"), &[&each, &limit.burst.to_string()], self.timeout)
            .await?;
        Ok(Duration::from_micros(wait))
    }

    /// Reports the server `id` as present. Returns the number of servers. A server that has been silent for
    /// `gone` is removed.
    pub(crate) async fn beat(&self, id: &str, gone: Duration) -> Result<u32, String> {
        // Connecting is included.
        let timeout = CONNECT + self.timeout;
        let servers =
            self.run(&self.servers, "servers", &[id, &gone.as_millis().to_string()], timeout).await?;
        Ok(u32::try_from(servers).unwrap_or(u32::MAX))
    }

    async fn run(
        &self,
        script: &RedisScript,
        key: &str,
        words: &[&str],
        timeout: Duration,
    ) -> Result<u64, String> {
        let key = format!("{}:{key}", self.prefix);
        let all: Vec<&str> = ["1", &key].iter().chain(words).copied().collect();
        let run = script.run(&self.client, &all, timeout);
        let late = || format!("no reply within {} ms", timeout.as_millis());
        match tokio::time::timeout(timeout, run).await {
            Ok(Ok(Value::Integer(number))) => Ok(u64::try_from(number).unwrap_or_default()),
            Ok(Ok(_)) => Err("a reply that is not a number".to_owned()),
            Ok(Err(error)) if error.kind == ErrorKind::CommandTimeout => Err(late()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(late()),
        }
    }
}
