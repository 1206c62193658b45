//! A user that holds an event stream, as a browser's `EventSource` does: it connects again when the stream ends, after
//! the pause that the server has asked for, with the id of the last event.
//!
//! Different from `EventSource`: a wrong status or content type is counted and tried again, and redirects are not followed.

use std::rc::Rc;
use std::time::{Duration, Instant};

use super::connection::{Fault, Thread, Wire, broken};
use super::event_stream::{EventStream, Heard};
use super::tally::record;
use crate::prepare::authority;
use crate::response::chunked::Chunked;
use crate::response::head::{Framing, parse};
use crate::scenario::Request;

/// The pause before the next connection, unless the server asks for another one; that of browsers.
const PAUSE: Duration = Duration::from_secs(3);
const CONTENT_TYPE: &str = "text/event-stream";

/// The meaning of the head of a response.
enum Opened {
    Stream(Framing),
    /// 204: the client is not to connect again.
    Stop,
}

/// Holds a stream until the end of the run.
pub(crate) async fn hold(thread: Rc<Thread>, number: usize) {
    let kind = number % thread.plan.requests.len();
    let (mut stream, mut settled, mut closed) = (EventStream::default(), false, false);
    while !thread.is_over() {
        let head = head(&thread.plan.requests[kind], &stream.last_id);
        let opened = thread.open(kind, head, judge).await;
        if opened.is_ok() && closed {
            thread.tally.count(|held| held.reconnects += 1);
        }
        if !std::mem::replace(&mut settled, true) {
            thread.settle();
        }
        let ended = match opened {
            Ok((wire, Opened::Stream(framing))) => {
                let ended = listen(&thread, wire, framing, &mut stream).await;
                thread.closed();
                ended
            }
            Ok((_, Opened::Stop)) => {
                thread.closed();
                thread.tally.count(|held| held.stopped_by_server += 1);
                return;
            }
            Err(fault) => Err(fault),
        };
        closed = ended.is_ok();
        match ended {
            Ok(()) if !thread.is_over() => thread.tally.count(|held| held.closed_by_server += 1),
            Ok(()) => {}
            Err(fault) => thread.failed(&fault),
        }
        stream.reconnect();
        thread.pause(stream.retry.unwrap_or(PAUSE)).await;
    }
}

fn head(request: &Request, last_id: &[u8]) -> Vec<u8> {
    let mut fields = vec![("Host", authority(&request.origin))];
    fields.push(("Accept", CONTENT_TYPE.to_owned()));
    fields.push(("Cache-Control", "no-cache".to_owned()));
    fields.retain(|(name, _)| request.headers.iter().all(|(given, _)| !given.eq_ignore_ascii_case(name)));
    let mut head = format!("GET {} HTTP/1.1\r\n", request.target).into_bytes();
    let given = request.headers.iter().map(|(name, value)| (name.as_str(), value.clone()));
    for (name, value) in fields.into_iter().chain(given) {
        head.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    if !last_id.is_empty() {
        head.extend([&b"Last-Event-ID: "[..], last_id, b"\r\n"].concat());
    }
    head.extend_from_slice(b"\r\n");
    head
}

fn judge(head: &[u8]) -> Result<Opened, String> {
    let (mut kind, mut coding) = (String::new(), None);
    let parsed = parse(head, false, &mut |name, value| {
        let value = || String::from_utf8_lossy(value).into_owned();
        if name.eq_ignore_ascii_case("content-type") {
            kind = value();
        } else if name.eq_ignore_ascii_case("content-encoding") {
            coding = Some(value());
        }
    })?;
    let essence = kind.split(';').next().unwrap_or_default().trim();
    match parsed.status {
        204 => Ok(Opened::Stop),
        200 if !essence.eq_ignore_ascii_case(CONTENT_TYPE) => {
            Err(format!("the content type is {essence:?} instead of {CONTENT_TYPE}"))
        }
        200 => match coding {
            Some(coding) => {
                Err(format!("the stream has the content coding {coding}, which was not asked for"))
            }
            None => Ok(Opened::Stream(parsed.framing)),
        },
        status => Err(format!("status {status} instead of 200")),
    }
}

/// Reads a stream until its end.
async fn listen(
    thread: &Thread,
    mut wire: Wire,
    framing: Framing,
    stream: &mut EventStream,
) -> Result<(), Fault> {
    let mut phase = thread.phase.clone();
    let mut body = Body::new(framing);
    let mut last: Option<Instant> = None;
    while !body.is_over() {
        let read = tokio::select! {
            read = wire.read(&thread.buffer) => read.map_err(|error| broken(&error))?,
            _ = phase.wait_for(|phase| *phase == super::connection::Phase::Over) => return Ok(()),
        };
        if read == 0 {
            return body.end();
        }
        let (mut events, mut comments) = (0, 0);
        body.take(&thread.buffer.borrow()[..read], &mut |data| {
            stream.take(data, &mut |heard| match heard {
                Heard::Event => events += 1,
                Heard::Comment => comments += 1,
            });
        })?;
        thread.received(events, read, comments, wire.begin, &mut last);
    }
    Ok(())
}

impl Thread {
    /// Counts what one read has brought: events or messages, bytes, comments. `last`: the event before on this connection.
    pub(crate) fn received(
        &self,
        events: u64,
        bytes: usize,
        comments: u64,
        begin: Instant,
        last: &mut Option<Instant>,
    ) {
        let now = Instant::now();
        let before = *last;
        if events > 0 {
            self.shared.received.fetch_add(events, std::sync::atomic::Ordering::Relaxed);
            *last = Some(now);
            if before.is_none() {
                self.tally.count(|held| record(&mut held.first_us, now - begin));
            }
        }
        self.tally.second(self.counted(), |held, second| {
            held.received += events;
            held.received_bytes += bytes as u64;
            held.comments += comments;
            second.received += events;
            if let Some(before) = before.filter(|_| events > 0) {
                record(&mut held.gaps_us, now - before);
            }
            // Events of one read have no gaps between them.
            let together = events.saturating_sub(1);
            if together > 0 {
                held.gaps_us.saturating_record_n(1, together);
            }
        });
    }
}

/// The body of a response that may never end.
enum Body {
    Chunked(Chunked),
    Length(u64),
    UntilClose,
}

impl Body {
    fn new(framing: Framing) -> Body {
        match framing {
            Framing::Chunked => Body::Chunked(Chunked::new()),
            Framing::Length(length) => Body::Length(length),
            Framing::UntilClose => Body::UntilClose,
        }
    }

    fn is_over(&self) -> bool {
        match self {
            Body::Chunked(chunked) => chunked.is_over(),
            Body::Length(left) => *left == 0,
            Body::UntilClose => false,
        }
    }

    /// Reads the next bytes of the connection; those behind the body are left out.
    fn take(&mut self, bytes: &[u8], data: &mut dyn FnMut(&[u8])) -> Result<(), String> {
        match self {
            Body::Chunked(chunked) => chunked.take(bytes, data).map(|_| ()),
            Body::Length(left) => {
                let here = usize::try_from(*left).map_or(bytes.len(), |left| left.min(bytes.len()));
                data(&bytes[..here]);
                *left -= here as u64;
                Ok(())
            }
            Body::UntilClose => {
                data(bytes);
                Ok(())
            }
        }
    }

    /// The connection has ended.
    fn end(self) -> Result<(), Fault> {
        match self {
            Body::UntilClose => Ok(()),
            _ => Err("the connection ended in the middle of the stream".to_owned().into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_that_are_streams() {
        let ok = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n";
        let judged = |head: String| judge(head.as_bytes());
        assert!(matches!(judged(format!("{ok}\r\n")), Ok(Opened::Stream(Framing::UntilClose))));
        assert!(matches!(judged("HTTP/1.1 204 No Content\r\n\r\n".to_owned()), Ok(Opened::Stop)));
        for (head, why) in [
            (format!("{ok}Content-Encoding: gzip\r\n\r\n"), "content coding gzip"),
            (ok.replace("event-stream", "html") + "\r\n", "\"text/html\" instead of text/event-stream"),
            (ok.replace("200", "500") + "\r\n", "status 500"),
        ] {
            let found = judged(head).err().unwrap_or_default();
            assert!(found.contains(why), "{found}");
        }
    }
}
