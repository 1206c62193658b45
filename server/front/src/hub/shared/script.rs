//! Runs a script in Redis, which knows it by its digest after the first time.

use redis::{Error, ErrorKind, RedisClient, Value, ValueSink};
use std::cell::RefCell;
use std::time::Duration;

/// A script, and the digest by which Redis knows it.
pub(super) struct RedisScript {
    text: &'static str,
    digest: RefCell<Option<String>>,
}

impl RedisScript {
    pub(super) const fn new(text: &'static str) -> RedisScript {
        RedisScript { text, digest: RefCell::new(None) }
    }

    /// Runs the script. `words`: the number of keys, the keys, and the arguments.
    ///
    /// # Errors
    /// Redis cannot be reached, or refuses.
    pub(super) async fn run(
        &self,
        client: &RedisClient<ValueSink>,
        words: &[&str],
        timeout: Duration,
    ) -> Result<Value, Error> {
        let known = self.digest.borrow().clone();
        if let Some(digest) = known {
            match call(client, "EVALSHA", &digest, words, timeout).await {
                Err(error) if error.kind == ErrorKind::NoScript => {}
                reply => return reply,
            }
        }
        if let Value::Text(digest) = call(client, "SCRIPT", "LOAD", &[self.text], timeout).await? {
            self.digest.replace(String::from_utf8(digest).ok());
        }
        call(client, "EVAL", self.text, words, timeout).await
    }
}

async fn call(
    client: &RedisClient<ValueSink>,
    verb: &str,
    first: &str,
    words: &[&str],
    timeout: Duration,
) -> Result<Value, Error> {
    let all = [verb, first].into_iter().chain(words.iter().copied());
    let all: Vec<&[u8]> = all.map(str::as_bytes).collect();
    client.call(&all, timeout).await
}
