//! Tests connections to a server whose replies the tests choose.

use super::*;
use crate::config::Address;
use crate::value::{Value, ValueSink};
use proptest::prelude::*;
use std::future::{Future, poll_fn};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

type RedisConnection = super::RedisConnection<ValueSink>;
type Reply = super::Reply<ValueSink>;

fn with<F: Future<Output = ()>>(test: impl FnOnce(Rc<RedisConnection>, UnixListener) -> F) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("redis.sock");
    let config = RedisConfig {
        address: Address::Unix(path.clone()),
        command_timeout: Duration::from_millis(200),
        ..RedisConfig::default()
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build_local(Default::default());
    runtime.unwrap().block_on(async {
        let listener = UnixListener::bind(&path).unwrap();
        test(RedisConnection::new(Rc::new(config)), listener).await;
    });
}

fn send(connection: &Rc<RedisConnection>, text: &'static str) -> Result<Reply, Error> {
    connection.send(1, false, Some(connection.config.command_timeout), |out| {
        out.extend_from_slice(text.as_bytes());
        Ok(())
    })
}

async fn text(reply: Reply) -> String {
    match reply.await.into_value().expect("it is complete") {
        Value::Error(error) => format!("{:?}: {error}", error.kind),
        Value::Text(text) => String::from_utf8_lossy(&text).into_owned(),
        value => format!("{value:?}"),
    }
}

async fn read(server: &mut UnixStream) -> String {
    let mut bytes = vec![0; 4096];
    let count = server.read(&mut bytes).await.unwrap();
    String::from_utf8_lossy(&bytes[..count]).into_owned()
}

#[test]
fn commands_of_a_turn_leave_in_one_write_and_replies_are_matched() {
    with(async |connection, listener| {
        let replies: Vec<Reply> = ["a", "b", "c"].map(|text| send(&connection, text).unwrap()).into();
        let (mut server, _) = listener.accept().await.unwrap();
        assert_eq!(read(&mut server).await, "abc");
        server.write_all(b"+1\r\n$1\r\n2\r\n-ERR 3\r\n").await.unwrap();
        let mut texts = Vec::new();
        for reply in replies {
            texts.push(text(reply).await);
        }
        assert_eq!(texts, ["1", "2", "Command: ERR 3"]);
        assert!(connection.is_idle() && connection.is_connected());
    });
}

#[test]
fn the_reply_to_a_dropped_request_is_discarded() {
    with(async |connection, listener| {
        let (gone, here) = (send(&connection, "a").unwrap(), send(&connection, "b").unwrap());
        drop(gone);
        let (mut server, _) = listener.accept().await.unwrap();
        read(&mut server).await;
        server.write_all(b"+gone\r\n+here\r\n").await.unwrap();
        assert_eq!(text(here).await, "here");
        assert!(connection.inner.borrow().slots.is_empty());
    });
}

#[test]
fn replies_of_one_request_are_one_array() {
    with(async |connection, listener| {
        let write = |out: &mut Vec<u8>| {
            out.push(b'x');
            Ok::<(), Error>(())
        };
        let listed = connection.send(2, true, None, write).unwrap();
        let none = connection.send(0, true, None, |_| Ok::<(), Error>(())).unwrap();
        let (mut server, _) = listener.accept().await.unwrap();
        server.write_all(b":1\r\n").await.unwrap();
        assert_eq!(text(none).await, "Array([])");
        tokio::task::yield_now().await;
        server.write_all(b"*1\r\n:2\r\n").await.unwrap();
        assert_eq!(text(listed).await, "Array([Integer(1), Array([Integer(2)])])");
    });
}

#[test]
fn malformed_and_unexpected_replies_end_the_connection() {
    for (bytes, why) in [(&b"HTTP/1.1 400 Bad\r\n"[..], "which is not a reply"), (b"+1\r\n+2\r\n", "")] {
        with(async |connection, listener| {
            let (first, second) = (send(&connection, "a").unwrap(), send(&connection, "b").unwrap());
            let (mut server, _) = listener.accept().await.unwrap();
            read(&mut server).await;
            server.write_all(bytes).await.unwrap();
            let reply = text(first).await;
            if why.is_empty() {
                assert_eq!((reply.as_str(), text(second).await.as_str()), ("1", "2"));
                server.write_all(b"+3\r\n").await.unwrap();
                assert_eq!(read(&mut server).await, "", "a reply to no command ends the connection");
            } else {
                assert!(reply.starts_with("ConnectionLost") && reply.contains(why), "{reply}");
                assert!(text(second).await.starts_with("ConnectionLost"));
            }
            // The next command connects again.
            let again = send(&connection, "c").unwrap();
            let (mut server, _) = listener.accept().await.unwrap();
            assert_eq!(read(&mut server).await, "c");
            server.write_all(b"+c\r\n").await.unwrap();
            assert_eq!(text(again).await, "c");
        });
    }
}

#[test]
fn an_overdue_reply_closes_the_connection_and_is_never_delivered() {
    with(async |connection, listener| {
        let late = send(&connection, "a").unwrap();
        let (mut server, _) = listener.accept().await.unwrap();
        assert!(text(late).await.starts_with("CommandTimeout"));
        let next = send(&connection, "b").unwrap();
        let (mut other, _) = listener.accept().await.unwrap();
        // The client has closed this connection: the write may fail.
        let _ = server.write_all(b"+late\r\n").await;
        other.write_all(b"+right\r\n").await.unwrap();
        assert_eq!(text(next).await, "right");
    });
}

#[test]
fn commands_fail_at_once_while_the_server_is_down_and_succeed_afterwards() {
    with(async |connection, listener| {
        let address = listener.local_addr().unwrap();
        let path = address.as_pathname().unwrap().to_owned();
        drop(listener);
        std::fs::remove_file(&path).unwrap();
        let first = text(send(&connection, "a").unwrap()).await;
        assert!(first.starts_with("CannotConnect: cannot connect to Redis on"), "{first}");
        let Err(second) = send(&connection, "b") else { panic!("there is a pause") };
        assert_eq!(second.kind, ErrorKind::CannotConnect);
        let listener = UnixListener::bind(&path).unwrap();
        let reply = loop {
            match send(&connection, "c") {
                Ok(reply) => break reply,
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        };
        let (mut server, _) = listener.accept().await.unwrap();
        server.write_all(b"+back\r\n").await.unwrap();
        assert_eq!(text(reply).await, "back");
    });
}

#[test]
fn close_ends_the_connection() {
    with(async |connection, listener| {
        let waiting = send(&connection, "a").unwrap();
        let (mut server, _) = listener.accept().await.unwrap();
        read(&mut server).await;
        connection.close();
        assert!(text(waiting).await.ends_with("was closed"));
        assert_eq!(read(&mut server).await, "");
    });
}

#[test]
fn a_connection_that_must_not_reconnect_ends_for_good() {
    with(async |connection, listener| {
        connection.forbid_reconnect();
        let first = send(&connection, "a").unwrap();
        let (mut server, _) = listener.accept().await.unwrap();
        server.write_all(b"+1\r\n").await.unwrap();
        assert_eq!(text(first).await, "1");
        drop(server);
        let error = loop {
            match send(&connection, "b") {
                Err(error) => break error,
                Ok(reply) => drop(reply),
            }
            tokio::task::yield_now().await;
        };
        assert!(error.to_string().contains("was lost"));
        assert!(!connection.allow_reconnect(), "it cannot be reused");
    });
}

#[test]
fn a_subscription_must_be_confirmed_in_time_and_may_be_silent_then() {
    with(async |connection, listener| {
        let connection = RedisConnection::subscriber(connection.config().clone());
        let subscribe = |connection: &Rc<RedisConnection>| {
            connection.send_subscription(|out| {
                out.extend_from_slice(b"s");
                Ok::<(), Error>(())
            })
        };
        subscribe(&connection).unwrap();
        let (mut server, _) = listener.accept().await.unwrap();
        server.write_all(b"+yes\r\n").await.unwrap();
        assert!(poll_fn(|cx| connection.poll_message(cx)).await.is_ok());
        let silence = connection.config().command_timeout * 2;
        assert!(tokio::time::timeout(silence, poll_fn(|cx| connection.poll_message(cx))).await.is_err());
        subscribe(&connection).unwrap();
        let Err(late) = poll_fn(|cx| connection.poll_message(cx)).await else { panic!("a message") };
        assert_eq!(late.kind, ErrorKind::CommandTimeout);
        assert!(subscribe(&connection).is_err());
    });
}

/// One of many users of a connection.
#[derive(Debug, Clone)]
struct User {
    commands: usize,
    drops: bool,
}

fn user() -> impl Strategy<Value = User> {
    (1..5_usize, any::<bool>()).prop_map(|(commands, drops)| User { commands, drops })
}

/// Replies to each byte with its number, in pieces of these sizes.
async fn reply_to_all(mut server: UnixStream, commands: usize, sizes: Vec<usize>) {
    let mut received = 0;
    while received < commands {
        received += read(&mut server).await.len();
    }
    let replies: String = (0..commands).map(|number| format!("+{number}\r\n")).collect();
    let (mut left, mut sizes) = (replies.as_bytes(), sizes.into_iter().cycle());
    while !left.is_empty() {
        let (piece, rest) = left.split_at(sizes.next().unwrap_or(1).min(left.len()));
        server.write_all(piece).await.unwrap();
        left = rest;
        tokio::task::yield_now().await;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn each_user_gets_its_own_replies_whoever_drops_and_however_bytes_are_split(
        users in proptest::collection::vec(user(), 1..20),
        sizes in proptest::collection::vec(1..30_usize, 1..8),
    ) {
        with(async |connection, listener| {
            let commands = users.iter().map(|user| user.commands).sum();
            let mut waiting = Vec::new();
            let mut number = 0;
            for user in &users {
                let words = ".".repeat(user.commands);
                let reply = connection.send(user.commands, true, None, |out| {
                    out.extend_from_slice(words.as_bytes());
                    Ok::<(), Error>(())
                });
                let own = number..number + user.commands;
                number += user.commands;
                let reply = reply.unwrap();
                if !user.drops {
                    waiting.push((own, reply));
                }
            }
            let (server, _) = listener.accept().await.unwrap();
            tokio::task::spawn_local(reply_to_all(server, commands, sizes));
            for (own, reply) in waiting {
                let expected = own.map(|number| Value::Text(number.to_string().into())).collect();
                assert_eq!(reply.await.into_value(), Some(Value::Array(expected)));
            }
        });
    }
}
