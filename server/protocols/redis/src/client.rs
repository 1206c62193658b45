//! Manages the connections to one server: [`RedisClient`].

use crate::command;
use crate::config::RedisConfig;
use crate::connection::RedisConnection;
use crate::error::{Error, ErrorKind};
use crate::resp::ReplySink;
use crate::value::{Value, ValueSink};
use std::cell::RefCell;
use std::ops::Deref;
use std::rc::Rc;
use std::time::Duration;

/// The most idle dedicated connections that are kept for reuse.
const MAX_IDLE: usize = 16;

/// One shared connection, and dedicated ones for commands that cannot share it: WATCH, blocking commands,
/// subscriptions.
pub struct RedisClient<S: ReplySink> {
    shared: Dedicated<S>,
    idle: RefCell<Vec<Dedicated<S>>>,
}

/// A connection that is closed when this is dropped.
pub struct Dedicated<S: ReplySink>(Rc<RedisConnection<S>>);

impl<S: ReplySink> Deref for Dedicated<S> {
    type Target = Rc<RedisConnection<S>>;

    fn deref(&self) -> &Rc<RedisConnection<S>> {
        &self.0
    }
}

impl<S: ReplySink> Drop for Dedicated<S> {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl<S: ReplySink> RedisClient<S> {
    /// Creates a client. It connects when the first command is sent.
    pub fn new(config: RedisConfig) -> RedisClient<S> {
        RedisClient { shared: Dedicated(RedisConnection::new(Rc::new(config))), idle: RefCell::default() }
    }

    pub fn config(&self) -> &Rc<RedisConfig> {
        self.shared.config()
    }

    /// Returns the connection that all commands share.
    pub fn shared(&self) -> &Rc<RedisConnection<S>> {
        &self.shared
    }

    /// Returns a connection for exclusive use.
    pub fn dedicated(&self) -> Dedicated<S> {
        let idle = self.idle.borrow_mut().pop();
        idle.unwrap_or_else(|| Dedicated(RedisConnection::new(self.config().clone())))
    }

    /// Returns a connection for subscriptions.
    pub fn subscriber(&self) -> Dedicated<S> {
        Dedicated(RedisConnection::subscriber(self.config().clone()))
    }

    /// Keeps a dedicated connection for reuse if it is in the state of a new one; closes it otherwise.
    pub fn give_back(&self, connection: Dedicated<S>) {
        let mut idle = self.idle.borrow_mut();
        if connection.allow_reconnect() && idle.len() < MAX_IDLE {
            idle.push(connection);
        }
    }
}

impl RedisClient<ValueSink> {
    /// Runs one command over the shared connection. `timeout` begins now and includes connecting.
    ///
    /// # Errors
    /// There is no connection, no complete reply, or Redis replied with an error.
    pub async fn call(&self, words: &[&[u8]], timeout: Duration) -> Result<Value, Error> {
        let reply = self.shared().send(1, false, Some(timeout), |out| {
            command::words(out, words);
            Ok::<(), Error>(())
        })?;
        match reply.await.into_value() {
            Some(Value::Error(error)) => Err(error),
            Some(value) => Ok(value),
            None => Err(Error::new(ErrorKind::Protocol, "an incomplete reply")),
        }
    }
}
