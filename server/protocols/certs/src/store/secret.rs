//! The secret of session tickets that several servers share in Redis: [`shared_secret`], or
//! [`request_shared_secret`] in an event loop.
//!
//! Contract:
//! 1. The first server creates the secret and all others get the same one, even if they start at the same time.
//! 2. It stays until it is deleted in Redis. Ticket keys change all the same, because they follow from the
//!    secret and the time.
//! 3. Each call takes at most [`PATIENCE`]: a server starts without Redis.

use super::Error;
use ::redis::{RedisClient, RedisConfig, Value, ValueSink};
use std::time::Duration;
use tokio::runtime::{Builder, LocalOptions};

/// Time-out for Redis.
const PATIENCE: Duration = Duration::from_secs(2);

/// Like [`request_shared_secret`], but blocks. For the start of the server.
///
/// # Errors
/// See [`request_shared_secret`].
pub fn shared_secret(url: &str, group: &str) -> Result<String, Error> {
    // On its own thread, because the caller runs in an event loop. Nothing is served yet, so blocking is fine.
    std::thread::scope(|scope| {
        let ask = || {
            let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
            let runtime = runtime.map_err(|why| Error(format!("the secret cannot be requested: {why}")))?;
            runtime.block_on(request_shared_secret(url, group))
        };
        scope.spawn(ask).join().unwrap_or_else(|_| Err(Error("the thread that asks has failed".to_owned())))
    })
}

/// Returns the secret of a group of servers, from the Redis at `url`.
///
/// # Errors
/// Redis does not respond, or the key holds something else. The text says which.
pub async fn request_shared_secret(url: &str, group: &str) -> Result<String, Error> {
    let made = tls::random_secret().map_err(|why| Error(format!("no random numbers: {why}")))?;
    let mut config =
        RedisConfig { connect_timeout: PATIENCE, command_timeout: PATIENCE, ..RedisConfig::default() };
    config.set_url(url).map_err(|why| Error(format!("shared.redis: {why}")))?;
    let address = config.address.to_string();
    let failed = |why: &str| Error(format!("Redis on {address}: {why}"));
    let all = ask(RedisClient::new(config), format!("firebrick:{group}:tickets"), made);
    let asked = tokio::time::timeout(PATIENCE, all).await;
    let secret =
        asked.unwrap_or_else(|_| Err("no reply within 2 s".to_owned())).map_err(|why| failed(&why))?;
    if secret.len() < 32 {
        return Err(failed(&format!(
            "firebrick:{group}:tickets holds less than 32 bytes: delete it, and a new one is made"
        )));
    }
    Ok(secret)
}

/// Sets the key if it is missing. Returns its value.
async fn ask(client: RedisClient<ValueSink>, key: String, made: String) -> Result<String, String> {
    let (key, made) = (key.as_bytes(), made.as_bytes());
    // The following GET shows the result.
    let _ = client.call(&[b"SET", key, made, b"NX"], PATIENCE).await;
    match client.call(&[b"GET", key], PATIENCE).await.map_err(|error| error.to_string())? {
        Value::Text(bytes) => String::from_utf8(bytes).map_err(|_| "the secret is no text".to_owned()),
        _ => Err("the secret was not kept".to_owned()),
    }
}
