//! Lines against a server that says what a test wants.

use super::*;
use crate::redis::config::Place as Address;
use mruby::Value;
use proptest::prelude::*;
use std::future::{Future, poll_fn};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

fn with<F: Future<Output = ()>>(test: impl FnOnce(Rc<Line>, UnixListener) -> F) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("redis.sock");
    let config = Config::read(&[(Value::Sym(b"command_timeout"), Value::Float(0.2))], None).unwrap();
    let config = Config { place: Address::Unix(path.clone()), ..config };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build_local(Default::default());
    runtime.unwrap().block_on(async {
        let listener = UnixListener::bind(&path).unwrap();
        test(Line::new(Rc::new(config)), listener).await;
    });
}

fn send(line: &Rc<Line>, text: &'static str) -> Result<Reply, Fault> {
    line.send(1, false, Some(line.config.command_timeout), |out| {
        out.extend_from_slice(text.as_bytes());
        Ok(())
    })
}

/// A Future that is the tape's one value, as text.
async fn text(reply: Reply) -> String {
    let tape = reply.await;
    if let Some(fault) = Fault::on(&tape) {
        return format!("{}: {}", fault.class, String::from_utf8_lossy(&fault.message));
    }
    match Value::read(tape.as_bytes()) {
        Some(value) => {
            value.text().map_or(format!("{value:?}"), |text| String::from_utf8_lossy(text).into_owned())
        }
        None => panic!("no value: {tape:?}"),
    }
}

async fn read(server: &mut UnixStream) -> String {
    let mut bytes = vec![0; 4096];
    let count = server.read(&mut bytes).await.unwrap();
    String::from_utf8_lossy(&bytes[..count]).into_owned()
}

#[test]
fn all_of_a_turn_leave_in_one_piece_and_replies_find_their_way() {
    with(async |line, listener| {
        let replies: Vec<Reply> = ["a", "b", "c"].map(|text| send(&line, text).unwrap()).into();
        let (mut server, _) = listener.accept().await.unwrap();
        assert_eq!(read(&mut server).await, "abc");
        server.write_all(b"+1\r\n$1\r\n2\r\n-ERR 3\r\n").await.unwrap();
        let mut said = Vec::new();
        for reply in replies {
            said.push(text(reply).await);
        }
        assert_eq!(said, ["1", "2", "Redis::CommandError: ERR 3"]);
        assert!(line.is_idle() && line.is_connected());
    });
}

#[test]
fn the_reply_for_one_who_gave_up_is_dropped() {
    with(async |line, listener| {
        let (gone, here) = (send(&line, "a").unwrap(), send(&line, "b").unwrap());
        drop(gone);
        let (mut server, _) = listener.accept().await.unwrap();
        read(&mut server).await;
        server.write_all(b"+gone\r\n+here\r\n").await.unwrap();
        assert_eq!(text(here).await, "here");
        assert!(line.inner.borrow().slots.is_empty());
    });
}

#[test]
fn replies_of_one_request_are_one_array() {
    with(async |line, listener| {
        let write = |out: &mut Vec<u8>| {
            out.push(b'x');
            Ok(())
        };
        let listed = line.send(2, true, None, write).unwrap();
        let none = line.send(0, true, None, |_| Ok(())).unwrap();
        let (mut server, _) = listener.accept().await.unwrap();
        server.write_all(b":1\r\n").await.unwrap();
        assert_eq!(text(none).await, "Array([])");
        tokio::task::yield_now().await;
        server.write_all(b"*1\r\n:2\r\n").await.unwrap();
        assert_eq!(text(listed).await, "Array([Int(1), Array([Int(2)])])");
    });
}

#[test]
fn nonsense_and_unasked_replies_end_the_connection() {
    for (bytes, why) in [(&b"HTTP/1.1 400 Bad\r\n"[..], "which is no reply"), (b"+1\r\n+2\r\n", "")] {
        with(async |line, listener| {
            let (first, second) = (send(&line, "a").unwrap(), send(&line, "b").unwrap());
            let (mut server, _) = listener.accept().await.unwrap();
            read(&mut server).await;
            server.write_all(bytes).await.unwrap();
            let said = text(first).await;
            if why.is_empty() {
                assert_eq!((said.as_str(), text(second).await.as_str()), ("1", "2"));
                server.write_all(b"+3\r\n").await.unwrap();
                assert_eq!(read(&mut server).await, "", "an answer to nobody ends the connection");
            } else {
                assert!(said.starts_with("Redis::ConnectionError") && said.contains(why), "{said}");
                assert!(text(second).await.starts_with("Redis::ConnectionError"));
            }
            // The next one connects anew.
            let again = send(&line, "c").unwrap();
            let (mut server, _) = listener.accept().await.unwrap();
            assert_eq!(read(&mut server).await, "c");
            server.write_all(b"+c\r\n").await.unwrap();
            assert_eq!(text(again).await, "c");
        });
    }
}

#[test]
fn a_late_reply_costs_the_connection_and_reaches_nobody() {
    with(async |line, listener| {
        let late = send(&line, "a").unwrap();
        let (mut server, _) = listener.accept().await.unwrap();
        assert!(text(late).await.starts_with("Redis::CommandTimeoutError"));
        let next = send(&line, "b").unwrap();
        let (mut other, _) = listener.accept().await.unwrap();
        // Nobody reads it any more: whether it can be written does not matter.
        let _ = server.write_all(b"+late\r\n").await;
        other.write_all(b"+right\r\n").await.unwrap();
        assert_eq!(text(next).await, "right");
    });
}

#[test]
fn while_nobody_listens_commands_fail_at_once_and_then_it_goes_on() {
    with(async |line, listener| {
        let address = listener.local_addr().unwrap();
        let path = address.as_pathname().unwrap().to_owned();
        drop(listener);
        std::fs::remove_file(&path).unwrap();
        let first = text(send(&line, "a").unwrap()).await;
        assert!(first.starts_with("Redis::CannotConnectError: cannot connect to Redis on"), "{first}");
        let Err(second) = send(&line, "b") else { panic!("there is a pause") };
        assert_eq!(second.class, "Redis::CannotConnectError");
        let listener = UnixListener::bind(&path).unwrap();
        let reply = loop {
            match send(&line, "c") {
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
fn a_line_that_is_left_closes_its_connection() {
    with(async |line, listener| {
        let waiting = send(&line, "a").unwrap();
        let (mut server, _) = listener.accept().await.unwrap();
        read(&mut server).await;
        line.leave();
        assert!(text(waiting).await.ends_with("was closed"));
        assert_eq!(read(&mut server).await, "");
    });
}

#[test]
fn a_line_that_is_held_has_no_second_connection() {
    with(async |line, listener| {
        line.hold();
        let first = send(&line, "a").unwrap();
        let (mut server, _) = listener.accept().await.unwrap();
        server.write_all(b"+1\r\n").await.unwrap();
        assert_eq!(text(first).await, "1");
        drop(server);
        let refused = loop {
            match send(&line, "b") {
                Err(fault) => break fault,
                Ok(reply) => drop(reply),
            }
            tokio::task::yield_now().await;
        };
        assert!(String::from_utf8_lossy(&refused.message).contains("was lost"));
        assert!(!line.release(), "nobody may have it after that");
    });
}

#[test]
fn a_subscription_is_answered_in_time_and_then_may_be_silent() {
    with(async |line, listener| {
        let line = Line::with_feed(line.config().clone());
        let ask = |line: &Rc<Line>| {
            line.push(|out| {
                out.extend_from_slice(b"s");
                Ok(())
            })
        };
        ask(&line).unwrap();
        let (mut server, _) = listener.accept().await.unwrap();
        server.write_all(b"+yes\r\n").await.unwrap();
        assert!(poll_fn(|cx| line.poll_message(cx)).await.is_ok());
        let silence = line.config().command_timeout * 2;
        assert!(tokio::time::timeout(silence, poll_fn(|cx| line.poll_message(cx))).await.is_err());
        ask(&line).unwrap();
        let late = poll_fn(|cx| line.poll_message(cx)).await.unwrap_err();
        assert_eq!(late.class, "Redis::CommandTimeoutError");
        assert!(ask(&line).is_err());
    });
}

/// One of those who use a line at once.
#[derive(Debug, Clone)]
struct User {
    commands: usize,
    gives_up: bool,
}

fn user() -> impl Strategy<Value = User> {
    (1..5_usize, any::<bool>()).prop_map(|(commands, gives_up)| User { commands, gives_up })
}

/// Answers each byte with its number, in pieces of such sizes.
async fn answer(mut server: UnixStream, commands: usize, sizes: Vec<usize>) {
    let mut asked = 0;
    while asked < commands {
        asked += read(&mut server).await.len();
    }
    let said: String = (0..commands).map(|number| format!("+{number}\r\n")).collect();
    let (mut left, mut sizes) = (said.as_bytes(), sizes.into_iter().cycle());
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
    fn whoever_gives_up_and_however_replies_come_each_gets_its_own(
        users in proptest::collection::vec(user(), 1..20),
        sizes in proptest::collection::vec(1..30_usize, 1..8),
    ) {
        with(async |line, listener| {
            let commands = users.iter().map(|user| user.commands).sum();
            let mut waiting = Vec::new();
            let mut number = 0;
            for user in &users {
                let words = ".".repeat(user.commands);
                let reply = line.send(user.commands, true, None, |out| {
                    out.extend_from_slice(words.as_bytes());
                    Ok(())
                });
                let own = number..number + user.commands;
                number += user.commands;
                let reply = reply.unwrap();
                if !user.gives_up {
                    waiting.push((own, reply));
                }
            }
            let (server, _) = listener.accept().await.unwrap();
            tokio::task::spawn_local(answer(server, commands, sizes));
            for (own, reply) in waiting {
                let tape = reply.await;
                let Some(Value::Array(values)) = Value::read(tape.as_bytes()) else { panic!("{tape:?}") };
                let said: Vec<_> = values.iter().map(|value| String::from_utf8_lossy(value.text().unwrap()).into_owned()).collect();
                assert_eq!(said, own.map(|number| number.to_string()).collect::<Vec<_>>());
            }
        });
    }
}
