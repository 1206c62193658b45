//! Active health checks: each origin is asked for a page now and then, on a connection of its own.

use crate::connect::connect;
use crate::receiver::land;
use crate::response_head::Parser;
use crate::stream::Stream;
use crate::{Health, Upstreams};
use std::future::poll_fn;
use std::io::{ErrorKind, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

/// Asks the origins how they are for as long as it is polled; waits for ever when no health checks are configured.
/// One task in the process, on a `LocalRuntime`. An origin counts as healthy until it has been found not to be.
pub async fn check_health(upstreams: Arc<Upstreams>) {
    let health = upstreams.config.health.as_ref();
    let mut checks: Vec<Pin<Box<dyn Future<Output = ()>>>> = Vec::new();
    if let Some(health) = health {
        for origin in 0..upstreams.origins.len() {
            checks.push(Box::pin(check(&upstreams, health, origin)));
        }
    }
    // None of them ever ends.
    poll_fn(|cx| {
        for check in &mut checks {
            let _ = check.as_mut().poll(cx);
        }
        Poll::Pending
    })
    .await
}

/// Asks one origin, over and over.
async fn check(upstreams: &Upstreams, health: &Health, origin: usize) {
    let mut good = true;
    // Answers in a row that say otherwise.
    let mut doubts = 0;
    loop {
        let answer = tokio::time::timeout(health.timeout, is_good(upstreams, health, origin)).await;
        let now_good = answer.unwrap_or(false);
        doubts = if now_good == good { 0 } else { doubts + 1 };
        let needed = if good { health.unhealthy } else { health.healthy };
        if doubts > 0 && doubts >= needed {
            good = now_good;
            doubts = 0;
            upstreams.checked(origin, good);
        }
        tokio::time::sleep(health.interval).await;
    }
}

/// Whether the origin answers with 200 to 399.
async fn is_good(upstreams: &Upstreams, health: &Health, origin: usize) -> bool {
    let Ok(stream) = connect(upstreams, origin).await else { return false };
    let host = &upstreams.origins[origin].origin.authority;
    let text = format!(
        "GET {} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: firebrick-health\r\nConnection: close\r\n\r\n",
        health.path
    );
    if !send(&stream, text.as_bytes()).await {
        return false;
    }
    status(&stream, upstreams.config.max_response_head)
        .await
        .is_some_and(|status| (200..400).contains(&status))
}

async fn send(stream: &Stream, mut text: &[u8]) -> bool {
    poll_fn(|cx| {
        while !text.is_empty() {
            match stream.try_write(&[IoSlice::new(text)]) {
                Ok(n) => text = &text[n..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if stream.poll_writable(cx).is_pending() {
                        return Poll::Pending;
                    }
                }
                Err(_) => return Poll::Ready(false),
            }
        }
        stream.poll_flush(cx).map(|flushed| flushed.is_ok())
    })
    .await
}

/// The status of the final response, if there is one.
async fn status(stream: &Stream, max_head: usize) -> Option<u16> {
    let mut parser = Parser::new();
    let mut held = Vec::new();
    loop {
        match land(stream, |bytes| {
            held.extend_from_slice(bytes);
            bytes.len()
        }) {
            Ok(0) => return None,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                poll_fn(|cx| stream.poll_readable(cx)).await;
                continue;
            }
            Err(_) => return None,
        }
        while let Some(end) = parser.advance(&held, max_head).ok()? {
            let head = std::mem::replace(&mut parser, Parser::new()).finish(&held[..end]);
            if head.status >= 200 {
                return Some(head.status);
            }
            held.drain(..end);
        }
    }
}
