//! Scripts in Lua, which Redis runs as one step: [`RedisScript`].

use crate::client::RedisClient;
use crate::error::{Error, ErrorKind};
use crate::value::{Value, ValueSink};
use sha1::{Digest, Sha1};
use std::time::Duration;

/// A script, and the digest by which Redis knows it once it has run it.
#[derive(Debug)]
pub struct RedisScript {
    text: &'static str,
    digest: String,
}

impl RedisScript {
    pub fn new(text: &'static str) -> RedisScript {
        RedisScript { text, digest: ::text::hex(&Sha1::digest(text)) }
    }

    /// Runs the script. `words`: the number of keys, the keys, and the arguments. `timeout`: of each of the two commands that it may take.
    ///
    /// # Errors
    /// There is no connection, no complete reply, or Redis replied with an error.
    pub async fn run(
        &self,
        client: &RedisClient<ValueSink>,
        words: &[&str],
        timeout: Duration,
    ) -> Result<Value, Error> {
        let call = |verb, script| {
            let all: Vec<&[u8]> =
                [verb, script].iter().chain(words).map(|word: &&str| word.as_bytes()).collect();
            async move { client.call(&all, timeout).await }
        };
        match call("EVALSHA", &self.digest).await {
            Err(error) if error.kind == ErrorKind::NoScript => call("EVAL", self.text).await,
            reply => reply,
        }
    }
}
