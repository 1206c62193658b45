//! The `Redis` class of handlers: the client of crate `redis`, with Ruby's options, values and exceptions.
//!
//! In Ruby a client is a number. Equal options return the same number, and with it one connection per VM that
//! all tasks share. Uses that need their own connection (WATCH, blocking commands, subscriptions) lease one;
//! a lease is a negative number.
//!
//! Contract:
//! 1. Replies: see [`redis::Connection`]. A lease is returned clean or closed; a task that ends without
//!    returning it does so when its `ensure` runs.
//! 2. A mistake in Ruby is an `ArgumentError` or `TypeError`, a failure of the connection a
//!    `Redis::BaseConnectionError`, an error reply a `Redis::CommandError`.

mod command;
mod fault;
mod options;
mod promises;
mod reply;

use crate::context::TaskContext;
use crate::ops::Area;
use crate::waiting::{OperationFuture, ready, tape};
use ::redis::{Dedicated, RedisClient, RedisConnection};
use fault::Fault;
use mruby::{Tape, TapeValue};
use promises::Promises;
use reply::ReplyTape;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::rc::Rc;
use std::time::Duration;

type Reply = ::redis::Reply<ReplyTape>;

pub(crate) struct Clients {
    /// The most bytes of a reply.
    max_reply: usize,
    clients: RefCell<Vec<Rc<RedisClient<ReplyTape>>>>,
    leases: RefCell<HashMap<i64, Lease>>,
    last_lease: Cell<i64>,
    promises: RefCell<Promises>,
}

struct Lease {
    client: Rc<RedisClient<ReplyTape>>,
    connection: Dedicated<ReplyTape>,
}

impl Clients {
    pub(crate) fn new(max_reply: usize) -> Clients {
        Clients {
            max_reply,
            clients: RefCell::default(),
            leases: RefCell::default(),
            last_lease: Cell::default(),
            promises: RefCell::default(),
        }
    }

    fn client(&self, number: i64) -> Result<Rc<RedisClient<ReplyTape>>, Fault> {
        let client =
            usize::try_from(number).ok().and_then(|number| self.clients.borrow().get(number).cloned());
        client.ok_or_else(|| Fault::new("ArgumentError", "there is no such Redis client"))
    }

    /// Returns the connection of the client or lease in the first argument.
    fn connection(&self, args: &[TapeValue<'_>]) -> Result<Rc<RedisConnection<ReplyTape>>, Fault> {
        match args.first().and_then(TapeValue::int) {
            Some(lease) if lease < 0 => match self.leases.borrow().get(&lease) {
                Some(lease) => Ok(Rc::clone(&lease.connection)),
                None => Err(Fault::new("Redis::ConnectionError", "this connection has been given back")),
            },
            number => Ok(self.client(number.unwrap_or_default())?.shared().clone()),
        }
    }

    /// `[options]`: returns the number of the client with these options.
    fn open(&self, args: &[TapeValue<'_>]) -> Result<i64, Fault> {
        let pairs = match args.first() {
            Some(TapeValue::Hash(pairs)) => pairs.as_slice(),
            _ => &[],
        };
        let default = std::env::var("REDIS_URL").ok();
        let config = options::config(pairs, default.as_deref(), self.max_reply)
            .map_err(|why| Fault::new("ArgumentError", format!("Redis: {why}")))?;
        let mut clients = self.clients.borrow_mut();
        let known = clients.iter().position(|client| **client.config() == config);
        let number = known.unwrap_or_else(|| {
            clients.push(Rc::new(RedisClient::new(config)));
            clients.len() - 1
        });
        Ok(number as i64)
    }

    /// `[client, whether for subscriptions]`: returns a lease.
    fn lease(&self, args: &[TapeValue<'_>]) -> Result<i64, Fault> {
        let client = self.client(args.first().and_then(TapeValue::int).unwrap_or_default())?;
        let connection = if args.get(1) == Some(&TapeValue::Bool(true)) {
            client.subscriber()
        } else {
            let connection = client.dedicated();
            connection.forbid_reconnect();
            connection
        };
        self.last_lease.set(self.last_lease.get() - 1);
        self.leases.borrow_mut().insert(self.last_lease.get(), Lease { client, connection });
        Ok(self.last_lease.get())
    }

    /// `[lease, whether the connection can be reused]`: returns the connection to the client.
    fn give_back(&self, args: &[TapeValue<'_>]) {
        let lease =
            args.first().and_then(TapeValue::int).and_then(|lease| self.leases.borrow_mut().remove(&lease));
        if let Some(Lease { client, connection }) = lease
            && args.get(1) == Some(&TapeValue::Bool(true))
        {
            client.give_back(connection);
        }
    }

    /// `[connection, word …]`: sends one command.
    fn send(&self, args: &[TapeValue<'_>]) -> Result<Reply, Fault> {
        let connection = self.connection(args)?;
        let words = args.get(1..).unwrap_or_default();
        check(words)?;
        let timeout = connection.config().command_timeout;
        connection.send(1, false, Some(timeout), |out| encode(out, words))
    }

    /// `[connection, [[word …] …], whether in a transaction]`: returns all replies, including those to MULTI and EXEC.
    fn send_all(&self, args: &[TapeValue<'_>]) -> Result<Reply, Fault> {
        let connection = self.connection(args)?;
        let commands = args.get(1).and_then(TapeValue::array).unwrap_or_default();
        let in_transaction = args.get(2) == Some(&TapeValue::Bool(true));
        let timeout = connection.config().command_timeout;
        let around = if in_transaction { 2 } else { 0 };
        connection.send(commands.len() + around, true, Some(timeout), |out| {
            if in_transaction {
                ::redis::command::words(out, &[b"MULTI"]);
            }
            for words in commands {
                let words = words.array().unwrap_or_default();
                check(words)?;
                encode(out, words)?;
            }
            if in_transaction {
                ::redis::command::words(out, &[b"EXEC"]);
            }
            Ok(())
        })
    }

    /// `[lease, word …]`: sends WATCH or UNWATCH, which need a lease.
    fn send_on_lease(&self, args: &[TapeValue<'_>]) -> Result<Reply, Fault> {
        let connection = self.leased(args)?;
        let timeout = connection.config().command_timeout;
        connection.send(1, false, Some(timeout), |out| encode(out, args.get(1..).unwrap_or_default()))
    }

    /// `[connection]`: closes the connection if it is idle.
    fn close(&self, args: &[TapeValue<'_>]) {
        if let Ok(connection) = self.connection(args)
            && connection.is_idle()
        {
            connection.close();
        }
    }

    /// `[lease, word …]`: sends SUBSCRIBE and similar commands.
    fn push(&self, args: &[TapeValue<'_>]) -> Result<(), Fault> {
        self.leased(args)?.send_subscription(|out| encode(out, args.get(1..).unwrap_or_default()))
    }

    fn leased(&self, args: &[TapeValue<'_>]) -> Result<Rc<RedisConnection<ReplyTape>>, Fault> {
        match args.first().and_then(TapeValue::int) {
            Some(lease) if lease < 0 => self.connection(args),
            _ => Err(Fault::new("ArgumentError", "this needs a connection of its own")),
        }
    }

    /// `[client, seconds that Redis may block or nil, word …]`: sends a blocking command.
    fn block(&self, args: &[TapeValue<'_>]) -> Result<OperationFuture, Fault> {
        let client = self.client(args.first().and_then(TapeValue::int).unwrap_or(-1))?;
        let words = args.get(2..).unwrap_or_default();
        check(words)?;
        let seconds = args.get(1).and_then(TapeValue::float).filter(|seconds| *seconds > 0.0);
        let blocked = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let connection = client.dedicated();
        let timeout = blocked.map(|blocked| blocked.saturating_add(connection.config().command_timeout));
        let reply = connection.send(1, false, timeout, |out| encode(out, words))?;
        Ok(Box::pin(async move {
            // If the task is cancelled, the connection is closed together with its command, and Redis stops blocking.
            let reply = reply.await;
            client.give_back(connection);
            reply.0
        }))
    }

    /// `[lease, seconds or nil]`: returns the next message; `nil` if none arrives in time.
    fn next_message(&self, args: &[TapeValue<'_>]) -> Result<OperationFuture, Fault> {
        let connection = self.leased(args)?;
        let seconds = args.get(1).and_then(TapeValue::float);
        let timeout = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        Ok(Box::pin(async move {
            let message = poll_fn(|cx| connection.poll_message(cx));
            let message = match timeout {
                None => message.await,
                Some(timeout) => match tokio::time::timeout(timeout, message).await {
                    Ok(message) => message,
                    Err(_) => return tape(|tape| tape.nil().done()),
                },
            };
            message.map_or_else(|error| tape(|tape| Fault::from(error).write(tape)), |message| message.0)
        }))
    }
}

fn check(words: &[TapeValue<'_>]) -> Result<(), Fault> {
    match command::refusal(words) {
        Some(why) => Err(Fault::new("Redis::UnavailableCommandError", why)),
        None => Ok(()),
    }
}

fn encode(out: &mut Vec<u8>, words: &[TapeValue<'_>]) -> Result<(), Fault> {
    command::write(out, words).map_err(|why| Fault::new("TypeError", why))
}

/// `[promise]`: returns its reply.
fn join(clients: &Rc<Clients>, _: &TaskContext, args: &[TapeValue<'_>]) -> OperationFuture {
    let number = args.first().and_then(TapeValue::int).unwrap_or(-1);
    let clients = clients.clone();
    Box::pin(async move {
        let reply = poll_fn(|cx| clients.promises.borrow_mut().poll(number, cx)).await;
        reply.unwrap_or_else(|fault| tape(|tape| fault.write(tape)))
    })
}

/// Returns a wait, or one that raises the exception at once.
fn waiting(waiting: Result<OperationFuture, Fault>) -> OperationFuture {
    waiting.unwrap_or_else(|fault| ready(|tape| fault.write(tape)))
}

fn reply(reply: Result<Reply, Fault>) -> OperationFuture {
    waiting(reply.map(|reply| Box::pin(async move { reply.await.0 }) as OperationFuture))
}

fn number(tape: &mut Tape, number: Result<i64, Fault>) {
    match number {
        Ok(number) => tape.int(number).done(),
        Err(fault) => fault.write(tape),
    }
}

pub(crate) const AREA: Area<Clients> = Area {
    calls: &[
        ("REDIS_OPEN", |clients, args, tape| number(tape, clients.open(args))),
        ("REDIS_LEASE", |clients, args, tape| number(tape, clients.lease(args))),
        ("REDIS_GIVE_BACK", |clients, args, tape| {
            clients.give_back(args);
            tape.nil();
        }),
        // A command whose reply is joined later, or never: returns the number of its promise.
        ("REDIS_SEND", |clients, args, tape| {
            let reply = clients.send(args);
            number(tape, reply.map(|reply| clients.promises.borrow_mut().keep(reply)));
        }),
        // The same for a transaction.
        ("REDIS_SEND_ALL", |clients, args, tape| {
            let reply = clients.send_all(args);
            number(tape, reply.map(|reply| clients.promises.borrow_mut().keep(reply)));
        }),
        ("REDIS_PUSH", |clients, args, tape| match clients.push(args) {
            Ok(()) => tape.nil().done(),
            Err(fault) => fault.write(tape),
        }),
        ("REDIS_CONNECTED", |clients, args, tape| {
            tape.bool(clients.connection(args).is_ok_and(|connection| connection.is_connected()));
        }),
        ("REDIS_CLOSE", |clients, args, tape| {
            clients.close(args);
            tape.nil();
        }),
        // Returns the words of the command for a method, or nil.
        ("REDIS_NAMED", |_, args, tape| {
            let method =
                args.first().and_then(TapeValue::text).and_then(|text| std::str::from_utf8(text).ok());
            match method.and_then(command::named) {
                Some(words) => {
                    tape.array(words.len() as u32);
                    words.iter().for_each(|word| tape.str(word).done());
                }
                None => tape.nil().done(),
            }
        }),
    ],
    waits: &[
        ("REDIS", |clients, _, args| reply(clients.send(args))),
        ("REDIS_ALL", |clients, _, args| reply(clients.send_all(args))),
        ("REDIS_ON_LEASE", |clients, _, args| reply(clients.send_on_lease(args))),
        ("REDIS_BLOCK", |clients, _, args| waiting(clients.block(args))),
        ("REDIS_NEXT", |clients, _, args| waiting(clients.next_message(args))),
        ("REDIS_JOIN", join),
    ],
    preludes: &[
        ("redis.rb", include_str!("../ruby/redis.rb")),
        ("redis/reply.rb", include_str!("../ruby/redis/reply.rb")),
        ("redis/subscription.rb", include_str!("../ruby/redis/subscription.rb")),
        ("redis/pipeline.rb", include_str!("../ruby/redis/pipeline.rb")),
        ("redis/commands.rb", include_str!("../ruby/redis/commands.rb")),
        ("redis/sets.rb", include_str!("../ruby/redis/sets.rb")),
        ("redis/streams.rb", include_str!("../ruby/redis/streams.rb")),
        ("redis/h2o.rb", include_str!("../ruby/redis/h2o.rb")),
    ],
};
