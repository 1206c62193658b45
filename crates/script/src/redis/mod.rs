//! Redis for handlers: which clients there are, and what Ruby may ask of them.
//!
//! A client is a number: equal options give the same one, and with it one connection per VM that all tasks share. What
//! needs a connection of its own (WATCH, commands that block, subscriptions) leases one; a lease is a negative number.
//!
//! Contract:
//! 1. Replies: see [`line`]. A lease is given back clean or closed; a task that ends without giving it back loses it when
//!    its `ensure` runs.
//! 2. What Ruby does wrong is an `ArgumentError` or `TypeError`, what happens to a connection a `Redis::BaseConnectionError`,
//!    what Redis refuses a `Redis::CommandError`.

mod command;
mod config;
mod line;
mod promises;
mod resp;
mod tls;
mod wire;

use crate::ops::{Call, Waiting};
use crate::runtime::State;
use config::Config;
use line::{Fault, Line, Reply};
use mruby::{Tape, Value};
use promises::Promises;
pub use resp::{Malformed, Parser};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::rc::Rc;
use std::time::Duration;

/// Connections that were leased and given back are kept for the next, so many per client.
const IDLE: usize = 16;

/// All clients of a VM.
#[derive(Default)]
pub(crate) struct Clients {
    clients: RefCell<Vec<Rc<Client>>>,
    leases: RefCell<HashMap<i64, Lease>>,
    last_lease: Cell<i64>,
    promises: RefCell<Promises>,
}

struct Client {
    shared: Owned,
    idle: RefCell<Vec<Owned>>,
}

struct Lease {
    client: Rc<Client>,
    line: Owned,
}

/// A line that is left when it is dropped.
struct Owned(Rc<Line>);

impl Drop for Owned {
    fn drop(&mut self) {
        self.0.leave();
    }
}

impl Client {
    /// A line that nobody else uses.
    fn lease(&self) -> Owned {
        self.idle.borrow_mut().pop().unwrap_or_else(|| Owned(Line::new(self.shared.0.config().clone())))
    }

    /// Keeps a line for the next, if it is as new.
    fn give_back(&self, line: Owned) {
        let mut idle = self.idle.borrow_mut();
        if line.0.release() && idle.len() < IDLE {
            idle.push(line);
        }
    }
}

impl Clients {
    fn client(&self, number: i64) -> Result<Rc<Client>, Fault> {
        let client =
            usize::try_from(number).ok().and_then(|number| self.clients.borrow().get(number).cloned());
        client.ok_or_else(|| Fault::new("ArgumentError", "there is no such Redis client"))
    }

    /// The line of a client or lease, the first argument.
    fn line(&self, args: &[Value<'_>]) -> Result<Rc<Line>, Fault> {
        match args.first().and_then(Value::int) {
            Some(lease) if lease < 0 => match self.leases.borrow().get(&lease) {
                Some(lease) => Ok(lease.line.0.clone()),
                None => Err(Fault::new("Redis::ConnectionError", "this connection has been given back")),
            },
            number => Ok(self.client(number.unwrap_or_default())?.shared.0.clone()),
        }
    }

    /// `[options]`: the number of the client with these options.
    fn open(&self, args: &[Value<'_>]) -> Result<i64, Fault> {
        let pairs = match args.first() {
            Some(Value::Hash(pairs)) => pairs.as_slice(),
            _ => &[],
        };
        let default = std::env::var("REDIS_URL").ok();
        let config = Config::read(pairs, default.as_deref())
            .map_err(|why| Fault::new("ArgumentError", format!("Redis: {why}")))?;
        let mut clients = self.clients.borrow_mut();
        let known = clients.iter().position(|client| **client.shared.0.config() == config);
        let number = known.unwrap_or_else(|| {
            let shared = Owned(Line::new(Rc::new(config)));
            clients.push(Rc::new(Client { shared, idle: RefCell::default() }));
            clients.len() - 1
        });
        Ok(number as i64)
    }

    /// `[client, whether for subscriptions]`: a lease.
    fn lease(&self, args: &[Value<'_>]) -> Result<i64, Fault> {
        let client = self.client(args.first().and_then(Value::int).unwrap_or_default())?;
        let line = if args.get(1) == Some(&Value::Bool(true)) {
            Owned(Line::with_feed(client.shared.0.config().clone()))
        } else {
            let line = client.lease();
            line.0.hold();
            line
        };
        self.last_lease.set(self.last_lease.get() - 1);
        self.leases.borrow_mut().insert(self.last_lease.get(), Lease { client, line });
        Ok(self.last_lease.get())
    }

    /// `[lease, whether the connection is as new]`
    fn give_back(&self, args: &[Value<'_>]) {
        let lease =
            args.first().and_then(Value::int).and_then(|lease| self.leases.borrow_mut().remove(&lease));
        if let Some(Lease { client, line }) = lease
            && args.get(1) == Some(&Value::Bool(true))
        {
            client.give_back(line);
        }
    }

    /// `[line, word …]`
    fn send(&self, args: &[Value<'_>]) -> Result<Reply, Fault> {
        let line = self.line(args)?;
        let words = args.get(1..).unwrap_or_default();
        check(words)?;
        let patience = line.config().command_timeout;
        line.send(1, false, Some(patience), |out| encode(out, words))
    }

    /// `[line, [[word …] …], whether in a transaction]`: all replies; those of MULTI and EXEC among them.
    fn send_all(&self, args: &[Value<'_>]) -> Result<Reply, Fault> {
        let line = self.line(args)?;
        let commands = args.get(1).and_then(Value::array).unwrap_or_default();
        let in_transaction = args.get(2) == Some(&Value::Bool(true));
        let patience = line.config().command_timeout;
        let around = if in_transaction { 2 } else { 0 };
        line.send(commands.len() + around, true, Some(patience), |out| {
            if in_transaction {
                command::write_words(out, &[b"MULTI"]);
            }
            for words in commands {
                let words = words.array().unwrap_or_default();
                check(words)?;
                encode(out, words)?;
            }
            if in_transaction {
                command::write_words(out, &[b"EXEC"]);
            }
            Ok(())
        })
    }

    /// `[lease, word …]`: WATCH and UNWATCH, and the commands of subscriptions, which only leases take.
    fn send_on_lease(&self, args: &[Value<'_>]) -> Result<Reply, Fault> {
        let line = self.leased(args)?;
        let patience = line.config().command_timeout;
        line.send(1, false, Some(patience), |out| encode(out, args.get(1..).unwrap_or_default()))
    }

    fn close(&self, args: &[Value<'_>]) {
        if let Ok(line) = self.line(args)
            && line.is_idle()
        {
            line.leave();
        }
    }

    fn push(&self, args: &[Value<'_>]) -> Result<(), Fault> {
        self.leased(args)?.push(|out| encode(out, args.get(1..).unwrap_or_default()))
    }

    fn leased(&self, args: &[Value<'_>]) -> Result<Rc<Line>, Fault> {
        match args.first().and_then(Value::int) {
            Some(lease) if lease < 0 => self.line(args),
            _ => Err(Fault::new("ArgumentError", "this needs a connection of its own")),
        }
    }

    /// `[client, seconds that Redis may block or nil, word …]`
    fn block(&self, args: &[Value<'_>]) -> Result<Waiting, Fault> {
        let client = self.client(args.first().and_then(Value::int).unwrap_or(-1))?;
        let words = args.get(2..).unwrap_or_default();
        check(words)?;
        let seconds = args.get(1).and_then(Value::float).filter(|seconds| *seconds > 0.0);
        let blocked = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let line = client.lease();
        let patience = blocked.map(|blocked| blocked.saturating_add(line.0.config().command_timeout));
        let reply = line.0.send(1, false, patience, |out| encode(out, words))?;
        Ok(Box::pin(async move {
            // Given up, the line is dropped with its command, and Redis learns that nobody waits any more.
            let tape = reply.await;
            client.give_back(line);
            tape
        }))
    }

    /// `[lease, seconds or nil]`: the next message; `nil` when there is none in time.
    fn next_message(&self, args: &[Value<'_>]) -> Result<Waiting, Fault> {
        let line = self.leased(args)?;
        let seconds = args.get(1).and_then(Value::float);
        let patience = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        Ok(Box::pin(async move {
            let message = poll_fn(|cx| line.poll_message(cx));
            let message = match patience {
                None => message.await,
                Some(patience) => match tokio::time::timeout(patience, message).await {
                    Ok(message) => message,
                    Err(_) => return told(|tape| tape.nil().done()),
                },
            };
            message.unwrap_or_else(|fault| told(|tape| fault.onto(tape)))
        }))
    }
}

fn check(words: &[Value<'_>]) -> Result<(), Fault> {
    match command::refusal(words) {
        Some(why) => Err(Fault::new("Redis::UnavailableCommandError", why)),
        None => Ok(()),
    }
}

fn encode(out: &mut Vec<u8>, words: &[Value<'_>]) -> Result<(), Fault> {
    command::write(out, words).map_err(|why| Fault::new("TypeError", why))
}

fn told(write: impl FnOnce(&mut Tape)) -> Tape {
    let mut tape = Tape::new();
    write(&mut tape);
    tape
}

fn failed(fault: &Fault) -> Waiting {
    Box::pin(std::future::ready(told(|tape| fault.onto(tape))))
}

fn join(state: &Rc<State>, args: &[Value<'_>]) -> Waiting {
    let number = args.first().and_then(Value::int).unwrap_or(-1);
    let state = state.clone();
    Box::pin(async move {
        let reply = poll_fn(|cx| state.redis.promises.borrow_mut().poll(number, cx)).await;
        reply.unwrap_or_else(|fault| told(|tape| fault.onto(tape)))
    })
}

/// A wait whose name begins with `redis`.
pub(crate) fn begin(state: &Rc<State>, op: &[u8], args: &[Value<'_>]) -> Waiting {
    let clients = &state.redis;
    let boxed = |reply: Reply| Box::pin(reply) as Waiting;
    let waiting = match op {
        b"redis" => clients.send(args).map(boxed),
        b"redis_all" => clients.send_all(args).map(boxed),
        b"redis_lease" => clients.send_on_lease(args).map(boxed),
        b"redis_block" => clients.block(args),
        b"redis_next" => clients.next_message(args),
        b"redis_join" => Ok(join(state, args)),
        _ => Err(Fault::new(
            "NotImplementedError",
            format!("the server knows no wait `{}'", op.escape_ascii()),
        )),
    };
    waiting.unwrap_or_else(|fault| failed(&fault))
}

fn number(tape: &mut Tape, number: Result<i64, Fault>) {
    match number {
        Ok(number) => tape.int(number).done(),
        Err(fault) => fault.onto(tape),
    }
}

/// What Ruby may ask without waiting.
pub(crate) const CALLS: &[(&str, Call)] = &[
    ("REDIS_OPEN", |state, args, tape| number(tape, state.redis.open(args))),
    ("REDIS_LEASE", |state, args, tape| number(tape, state.redis.lease(args))),
    ("REDIS_GIVE_BACK", |state, args, tape| {
        state.redis.give_back(args);
        tape.nil();
    }),
    // A command that is waited for later, or never: the number of its promise.
    ("REDIS_SEND", |state, args, tape| {
        let reply = state.redis.send(args);
        number(tape, reply.map(|reply| state.redis.promises.borrow_mut().keep(reply)));
    }),
    // The same for a transaction.
    ("REDIS_SEND_ALL", |state, args, tape| {
        let reply = state.redis.send_all(args);
        number(tape, reply.map(|reply| state.redis.promises.borrow_mut().keep(reply)));
    }),
    ("REDIS_PUSH", |state, args, tape| match state.redis.push(args) {
        Ok(()) => tape.nil().done(),
        Err(fault) => fault.onto(tape),
    }),
    ("REDIS_CONNECTED", |state, args, tape| {
        tape.bool(state.redis.line(args).is_ok_and(|line| line.is_connected()));
    }),
    // Closes the connection if nobody waits on it; the next command connects anew.
    ("REDIS_CLOSE", |state, args, tape| {
        state.redis.close(args);
        tape.nil();
    }),
    // The words of the command that a method is named after, or nil.
    ("REDIS_NAMED", |_, args, tape| {
        let method = args.first().and_then(Value::text).and_then(|text| std::str::from_utf8(text).ok());
        match method.and_then(command::named) {
            Some(words) => {
                tape.array(words.len() as u32);
                words.iter().for_each(|word| tape.str(word).done());
            }
            None => tape.nil().done(),
        }
    }),
];

/// Its Ruby.
pub(crate) const PRELUDES: &[(&str, &str)] = &[
    ("redis.rb", include_str!("../ruby/redis.rb")),
    ("redis/reply.rb", include_str!("../ruby/redis/reply.rb")),
    ("redis/subscription.rb", include_str!("../ruby/redis/subscription.rb")),
    ("redis/pipeline.rb", include_str!("../ruby/redis/pipeline.rb")),
    ("redis/commands.rb", include_str!("../ruby/redis/commands.rb")),
    ("redis/sets.rb", include_str!("../ruby/redis/sets.rb")),
    ("redis/streams.rb", include_str!("../ruby/redis/streams.rb")),
    ("redis/h2o.rb", include_str!("../ruby/redis/h2o.rb")),
];
