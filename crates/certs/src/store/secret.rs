//! The secret of session tickets that several servers share in Redis: [`shared_secret`], and [`request_shared_secret`] where an event loop runs.
//!
//! Contract:
//! 1. Who asks first makes it, and all others get the same: servers that start at the same time agree.
//! 2. It stays until somebody deletes it. The keys of tickets change with time all the same, because they follow from both.
//! 3. Each request takes at most [`PATIENCE`]: a server starts without Redis.

use super::Error;
use ::redis::{Client, Config, Value, ValueSink};
use std::time::Duration;
use tokio::runtime::{Builder, LocalOptions};

/// How long a request may wait for Redis.
const PATIENCE: Duration = Duration::from_secs(2);

/// As [`request_shared_secret`], for a start: waits in this thread.
///
/// # Errors
/// The same.
pub fn shared_secret(url: &str, group: &str) -> Result<String, Error> {
    // A thread of its own: this is called where an event loop runs already, before there is anything to serve.
    std::thread::scope(|scope| {
        let ask = || {
            let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
            let runtime = runtime.map_err(|why| Error(format!("the secret cannot be asked for: {why}")))?;
            runtime.block_on(request_shared_secret(url, group))
        };
        scope.spawn(ask).join().unwrap_or_else(|_| Err(Error("the thread that asks has failed".to_owned())))
    })
}

/// The secret of the servers of a group, in the Redis at `url`.
///
/// # Errors
/// Redis does not answer, or the key holds something else; the text says which.
pub async fn request_shared_secret(url: &str, group: &str) -> Result<String, Error> {
    let made = tls::random_secret().map_err(|why| Error(format!("no random numbers: {why}")))?;
    let mut config = Config { connect_timeout: PATIENCE, command_timeout: PATIENCE, ..Config::default() };
    config.set_url(url).map_err(|why| Error(format!("shared.redis: {why}")))?;
    let address = config.address.to_string();
    let failed = |why: &str| Error(format!("Redis on {address}: {why}"));
    let all = ask(Client::new(config), format!("firebrick:{group}:tickets"), made);
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

/// Sets the key if it is not there; what it holds then.
async fn ask(client: Client<ValueSink>, key: String, made: String) -> Result<String, String> {
    let (key, made) = (key.as_bytes(), made.as_bytes());
    // Whether it has been set shows in what it holds.
    let _ = client.call(&[b"SET", key, made, b"NX"], PATIENCE).await;
    match client.call(&[b"GET", key], PATIENCE).await.map_err(|error| error.to_string())? {
        Value::Text(bytes) => String::from_utf8(bytes).map_err(|_| "the secret is no text".to_owned()),
        _ => Err("the secret was not kept".to_owned()),
    }
}
