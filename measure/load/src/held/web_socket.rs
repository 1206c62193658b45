//! A user that holds a WebSocket (RFC 6455): it sends the messages of the conversation, answers pings, and connects
//! again when the server has closed the connection.

use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use sha1::{Digest, Sha1};

use super::connection::{Fault, Phase, Thread, Wire, broken};
use super::frame::{FrameEvent, Frames, Opcode, write};
use super::replies::Replies;
use super::tally::record;
use super::{Conversation, Message, Pace};
use crate::prepare::{authority, url};
use crate::response::head::{MOST_FIELDS, parse};
use crate::scenario::Request;

/// Pauses before the next connection; the first doubles after each further one that brought no message.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// The most bytes that wait for a server which does not read; messages beyond are not sent.
const MOST_UNREAD: usize = 1024 * 1024;
/// The precision of timers. A message that is due this late is not late because of the server.
const PRECISION: Duration = Duration::from_millis(2);
/// Stands for a close frame without a status code (RFC 6455, 7.4.1).
const NO_CODE: u16 = 1005;
const NORMAL: u16 = 1000;

/// Holds a WebSocket until the end of the run.
pub(crate) async fn hold(thread: Rc<Thread>, number: usize, talk: &Conversation) {
    let kind = number % thread.plan.requests.len();
    let (mut settled, mut closed, mut idle, mut turn) = (false, false, 0, 0);
    while !thread.is_over() {
        let key = STANDARD.encode(std::array::from_fn::<u8, 16, _>(|_| fastrand::u8(..)));
        let head = head(&thread.plan.requests[kind], &key);
        let opened = thread.open(kind, head, |head| judge(head, &key)).await;
        if opened.is_ok() && closed {
            thread.tally.count(|held| held.reconnects += 1);
        }
        if !std::mem::replace(&mut settled, true) {
            thread.settle();
        }
        let ended = match opened {
            Ok((wire, ())) => {
                let mut talker = Talker::new(&thread, talk, wire, (number + 1, turn));
                let ended = talker.talk().await;
                turn = talker.turn;
                idle = if talker.last.is_some() { 0 } else { idle + 1 };
                thread.closed();
                ended
            }
            Err(fault) => {
                idle += 1;
                Err(fault)
            }
        };
        closed = ended.is_ok();
        match ended {
            Ok(()) if !thread.is_over() => thread.tally.count(|held| held.closed_by_server += 1),
            Ok(()) => {}
            Err(fault) => thread.failed(&fault),
        }
        thread.pause(net::backoff(PAUSE, u32::saturating_sub(idle, 1), LONGEST_PAUSE)).await;
    }
}

fn head(request: &Request, key: &str) -> Vec<u8> {
    let mut fields = vec![
        ("Host", authority(&request.origin)),
        // Action Cable, among others, refuses pages of other servers.
        ("Origin", url(&request.origin)),
        ("Connection", "Upgrade".to_owned()),
        ("Upgrade", "websocket".to_owned()),
        ("Sec-WebSocket-Version", "13".to_owned()),
        ("Sec-WebSocket-Key", key.to_owned()),
    ];
    fields.retain(|(name, _)| request.headers.iter().all(|(given, _)| !given.eq_ignore_ascii_case(name)));
    let given = request.headers.iter().map(|(name, value)| (name.as_str(), value.clone()));
    let fields: String =
        fields.into_iter().chain(given).map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    format!("GET {} HTTP/1.1\r\n{fields}\r\n", request.target).into_bytes()
}

/// Checks the response to a handshake (RFC 6455, 4.1).
fn judge(head: &[u8], key: &str) -> Result<(), String> {
    if !head.starts_with(b"HTTP/1.1 101") {
        return Err(format!("status {} instead of 101", parse(head, false, &mut |_, _| {})?.status));
    }
    let mut fields = [httparse::EMPTY_HEADER; MOST_FIELDS];
    let mut response = httparse::Response::new(&mut fields);
    response.parse(head).map_err(|error| format!("the response is not HTTP: {error}"))?;
    let value = |name: &str| {
        let found = response.headers.iter().find(|field| field.name.eq_ignore_ascii_case(name));
        found.map(|field| field.value.trim_ascii()).unwrap_or_default()
    };
    if !value("upgrade").eq_ignore_ascii_case(b"websocket") {
        return Err("the response 101 does not switch to websocket".to_owned());
    }
    if value("sec-websocket-accept") != accept(key).as_bytes() {
        return Err("the Sec-WebSocket-Accept of the response does not answer the key".to_owned());
    }
    match value("sec-websocket-extensions").is_empty() {
        true => Ok(()),
        false => Err("the server uses an extension that was not offered".to_owned()),
    }
}

fn accept(key: &str) -> String {
    // The constant of RFC 6455, 1.3.
    STANDARD.encode(Sha1::digest(format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11")))
}

/// The results of one read.
#[derive(Default)]
struct Came {
    messages: u64,
    /// When the messages were due to which replies came.
    answered: Vec<Instant>,
    pings: Vec<Vec<u8>>,
    close: Option<Option<u16>>,
}

/// One open WebSocket.
struct Talker<'a> {
    thread: &'a Thread,
    talk: &'a Conversation,
    wire: Wire,
    frames: Frames,
    replies: Replies<'a>,
    /// The last message of the server.
    last: Option<Instant>,
    /// When the next message is due; `None` while a reply is waited for, and if there is nothing to send.
    due: Option<Instant>,
    user: usize,
    /// The number of messages sent.
    turn: u64,
}

impl<'a> Talker<'a> {
    fn new(thread: &'a Thread, talk: &'a Conversation, wire: Wire, (user, turn): (usize, u64)) -> Talker<'a> {
        let (frames, replies) = (Frames::default(), Replies::new(&talk.reply));
        Talker { thread, talk, wire, frames, replies, last: None, due: None, user, turn }
    }

    /// Talks until the server has closed the connection, or the run is over.
    async fn talk(&mut self) -> Result<(), Fault> {
        for message in &self.talk.first {
            let content = filled(message, self.user, 0);
            self.frame(message, &content);
        }
        let mut phase = self.thread.phase.clone();
        self.schedule(*phase.borrow_and_update());
        loop {
            let limit = self.thread.plan.timeouts.request;
            let wake = self.due.into_iter().chain(self.replies.deadline(limit)).min();
            let wait = async {
                match wake {
                    Some(wake) => tokio::time::sleep_until(wake.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                read = self.wire.read(&self.thread.buffer) => {
                    let read = read.map_err(|error| broken(&error))?;
                    if self.heard(read, true)? {
                        return self.answer_close().await;
                    }
                }
                () = wait => self.act(),
                _ = phase.changed() => {
                    let phase = *phase.borrow_and_update();
                    if phase == Phase::Over {
                        return self.close().await;
                    }
                    self.schedule(phase);
                }
            }
        }
    }

    /// Begins to send, at a random moment of the interval, so that connections do not send all at once.
    fn schedule(&mut self, phase: Phase) {
        if self.talk.send.is_empty() || !matches!(phase, Phase::Counted(_)) {
            return;
        }
        let interval = match self.talk.pace {
            Pace::Rate(rate) => Duration::from_secs_f64(1.0 / rate),
            Pace::AfterReply(think) => think.pause(),
        };
        self.due = Some(Instant::now() + interval.mul_f64(fastrand::f64()));
    }

    /// Sends what is due, and gives up replies that are late.
    fn act(&mut self) {
        let now = Instant::now();
        let late = self.replies.late(now, self.thread.plan.timeouts.request);
        if late > 0 {
            self.thread.tally.second(self.thread.counted(), |held, _| held.unanswered += late);
            self.next(now);
        }
        while let Some(due) = self.due.filter(|due| *due <= now) {
            self.due = match self.talk.pace {
                Pace::Rate(rate) => Some(due + Duration::from_secs_f64(1.0 / rate)),
                Pace::AfterReply(_) => None,
            };
            self.send(if now - due < PRECISION { now } else { due });
        }
    }

    /// Schedules the message after a reply, or after a reply that did not come.
    fn next(&mut self, now: Instant) {
        if let Pace::AfterReply(think) = self.talk.pace
            && !self.replies.is_waiting()
            && !self.talk.send.is_empty()
            && self.thread.counted().is_some()
        {
            self.due = Some(now + think.pause());
        }
    }

    fn send(&mut self, due: Instant) {
        let counted = self.thread.counted();
        if self.wire.backlog() > MOST_UNREAD {
            self.thread.tally.second(counted, |held, _| held.unsent += 1);
            return;
        }
        let which = usize::try_from(self.turn % self.talk.send.len() as u64).unwrap_or_default();
        let message = &self.talk.send[which];
        self.turn += 1;
        let content = filled(message, self.user, self.turn);
        let given_up = self.replies.sent(due, &content);
        let bytes = self.frame(message, &content);
        self.thread.tally.second(counted, |held, second| {
            held.sent += 1;
            held.sent_bytes += bytes as u64;
            held.unanswered += given_up;
            second.sent += 1;
        });
    }

    /// Appends a message to what is sent, and returns the length of its frame.
    fn frame(&mut self, message: &Message, content: &[u8]) -> usize {
        let opcode = if message.binary { Opcode::Binary } else { Opcode::Text };
        let before = self.wire.out().len();
        write(self.wire.out(), opcode, content, mask());
        self.wire.out().len() - before
    }

    /// Reads what came, `read` bytes of the thread's buffer. Returns whether the server has closed.
    fn heard(&mut self, read: usize, counts: bool) -> Result<bool, Fault> {
        if read == 0 {
            return Err("the connection ended without a close frame (1006)".to_owned().into());
        }
        let mut came = Came::default();
        let replies = &mut self.replies;
        let buffer = self.thread.buffer.borrow();
        self.frames.take(&buffer[..read], &mut |said| match said {
            FrameEvent::Piece(piece) => replies.piece(piece),
            FrameEvent::Message => {
                came.messages += 1;
                came.answered.extend(replies.message());
            }
            FrameEvent::Ping(payload) => came.pings.push(payload.to_vec()),
            FrameEvent::Pong => {}
            FrameEvent::Close(code) => came.close = came.close.or(Some(code)),
        })?;
        drop(buffer);
        for payload in &came.pings {
            write(self.wire.out(), Opcode::Pong, payload, mask());
        }
        if !counts {
            return Ok(came.close.is_some());
        }
        let now = Instant::now();
        let begin = self.wire.begin;
        self.thread.received(came.messages, read, 0, begin, &mut self.last);
        let pings = came.pings.len() as u64;
        self.thread.tally.second(self.thread.counted(), |held, _| {
            held.pings += pings;
            came.answered
                .iter()
                .for_each(|due| record(&mut held.round_trip_us, now.saturating_duration_since(*due)));
        });
        if !came.answered.is_empty() {
            self.next(now);
        }
        if let Some(code) = came.close {
            self.thread
                .tally
                .count(|held| *held.close_codes.entry(code.unwrap_or(NO_CODE)).or_default() += 1);
        }
        Ok(came.close.is_some())
    }

    /// The server has closed: repeats its close frame (RFC 6455, 5.5.1).
    async fn answer_close(&mut self) -> Result<(), Fault> {
        write(self.wire.out(), Opcode::Close, &NORMAL.to_be_bytes(), mask());
        // The server may be gone already.
        let _ = tokio::time::timeout(self.thread.plan.timeouts.grace, self.wire.flush()).await;
        Ok(())
    }

    /// The run is over: closes, and waits for the server's close frame.
    async fn close(&mut self) -> Result<(), Fault> {
        self.thread.shared.closing.fetch_add(1, Relaxed);
        write(self.wire.out(), Opcode::Close, &NORMAL.to_be_bytes(), mask());
        let grace = self.thread.plan.timeouts.grace;
        let answered = async {
            while let Ok(read) = self.wire.read(&self.thread.buffer).await
                && matches!(self.heard(read, false), Ok(false))
            {}
        };
        let _ = tokio::time::timeout(grace, answered).await;
        Ok(())
    }
}

/// Returns the content of a message with the numbers of user and message.
fn filled(message: &Message, user: usize, turn: u64) -> Bytes {
    match std::str::from_utf8(&message.content) {
        Ok(text) if !message.binary && text.contains("${") => {
            text.replace("${user}", &user.to_string()).replace("${turn}", &turn.to_string()).into()
        }
        _ => message.content.clone(),
    }
}

fn mask() -> [u8; 4] {
    fastrand::u32(..).to_ne_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_rfc() {
        assert_eq!(accept("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn responses_that_are_web_sockets() {
        let key = "dGhlIHNhbXBsZSBub25jZQ==";
        let good = format!(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: WebSocket\r\nSec-WebSocket-Accept: {}\r\n\r\n",
            accept(key)
        );
        assert_eq!(judge(good.as_bytes(), key), Ok(()));
        for (head, why) in [
            (good.replace("WebSocket\r", "h2c\r"), "switch"),
            (good.replace("s3p", "S3p"), "answer the key"),
            (good.replace("Upgrade", "Sec-WebSocket-Extensions: x\r\nUpgrade"), "extension"),
            ("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_owned(), "status 404 instead of 101"),
        ] {
            let found = judge(head.as_bytes(), key).unwrap_err();
            assert!(found.contains(why), "{found}");
        }
    }

    #[test]
    fn messages_have_numbers() {
        let message = |text: &'static str, binary| Message { content: text.into(), binary };
        assert_eq!(&filled(&message("${user}/${turn}/${x}", false), 3, 7)[..], b"3/7/${x}");
        assert_eq!(&filled(&message("${user}", true), 3, 7)[..], b"${user}");
    }
}
