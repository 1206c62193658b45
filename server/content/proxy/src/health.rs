//! Runs active health checks: sends a request to each origin from time to time, on a separate connection.

use crate::connect::connect;
use crate::receiver::land;
use crate::{Health, Upstreams};
use h1::ResponseParser;
use net::{Stream, Transport};
use std::future::poll_fn;
use std::io::{ErrorKind, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

/// Checks the origins for as long as it is polled. Never returns, and does nothing if no health checks are
/// configured. Runs as one task in the process, on a `LocalRuntime`. An origin counts as healthy until checks
/// have failed.
pub async fn check_health(upstreams: Arc<Upstreams>) {
    let health = upstreams.config.health.as_ref();
    let mut checks: Vec<Pin<Box<dyn Future<Output = ()>>>> = Vec::new();
    if let Some(health) = health {
        for origin in 0..upstreams.origins.len() {
            checks.push(Box::pin(check(&upstreams, health, origin)));
        }
    }
    // The checks never finish.
    poll_fn(|cx| {
        for check in &mut checks {
            let _ = check.as_mut().poll(cx);
        }
        Poll::Pending
    })
    .await
}

/// Checks one origin again and again.
async fn check(upstreams: &Upstreams, health: &Health, origin: usize) {
    let mut verdict = HealthState { good: true, contrary: 0 };
    loop {
        let checked = tokio::time::timeout(health.timeout, is_good(upstreams, health, origin)).await;
        verdict.add(checked.unwrap_or(false), health);
        upstreams.checked(origin, verdict.good);
        tokio::time::sleep(health.interval).await;
    }
}

/// The result of the checks so far.
#[derive(Debug)]
struct HealthState {
    good: bool,
    /// Checks in a row with the other result.
    contrary: u32,
}

impl HealthState {
    fn add(&mut self, good: bool, health: &Health) {
        self.contrary = if good == self.good { 0 } else { self.contrary + 1 };
        let needed = if self.good { health.unhealthy } else { health.healthy };
        if self.contrary > 0 && self.contrary >= needed {
            *self = HealthState { good, contrary: 0 };
        }
    }
}

/// Returns whether the origin responds with 200 to 399.
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
            match stream.try_write(&[IoSlice::new(text)], false) {
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

/// Returns the status of the final response, if there is one.
async fn status(stream: &Stream, max_head: usize) -> Option<u16> {
    let mut parser = ResponseParser::new();
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
            let head = std::mem::replace(&mut parser, ResponseParser::new()).finish(&held[..end]);
            if head.status >= 200 {
                return Some(head.status);
            }
            held.drain(..end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn it_takes_several_answers_in_a_row() {
        let second = Duration::from_secs(1);
        let health = Health { path: "/".into(), interval: second, timeout: second, healthy: 2, unhealthy: 3 };
        let mut verdict = HealthState { good: true, contrary: 0 };
        let mut after = |answers: &str| -> String {
            let hear = |answer| {
                verdict.add(answer == '+', &health);
                if verdict.good { '+' } else { '-' }
            };
            answers.chars().map(hear).collect()
        };
        assert_eq!(after("+--+---"), "++++++-");
        assert_eq!(after("-+-++-"), "----++");
        let never = Health { healthy: 0, unhealthy: 0, ..health };
        let mut verdict = HealthState { good: true, contrary: 0 };
        verdict.add(true, &never);
        assert!(verdict.good, "zero means one");
        verdict.add(false, &never);
        assert!(!verdict.good);
    }
}
