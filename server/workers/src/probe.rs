//! Sends the server's own probe requests to a worker on trial. They have no position in the queue and are
//! never sent to another worker.

use crate::call::{Call, CallBody, CallState};
use crate::local::Local;
use crate::messages::SupervisorMessage;
use crate::reply::ReplyEvent;
use handler::Trace;
use queue::{PoolIndex, Serial};
use std::future::poll_fn;
use std::rc::Rc;
use std::time::{Duration, Instant};
use wire::request::{Encoder, Head, Put};

impl Local {
    /// Sends a probe request to a worker that gets no client requests.
    pub(crate) fn probe(self: &Rc<Local>, serial: Serial, target: &str, limit: Duration) {
        let now = Instant::now();
        let call = call(target, self.monotonic_us(now), now);
        let Some(link) = self.link(serial) else {
            return self
                .shared()
                .report(SupervisorMessage::Probed { serial, result: Err("its link ended".to_owned()) });
        };
        call.sent_to(serial, link.index);
        match link.send(call.clone()) {
            Ok(id) => call.set_state(CallState::Sent { ticket: None, serial, id }),
            Err(e) => {
                return self
                    .shared()
                    .report(SupervisorMessage::Probed { serial, result: Err(e.to_string()) });
            }
        }
        let local = self.clone();
        net::task::spawn_local(async move {
            let result = match tokio::time::timeout(limit, status(&call)).await {
                Ok(result) => result,
                Err(_) => Err(format!("no response within {} s", limit.as_secs_f64())),
            };
            if call.state() != CallState::Finished {
                local.abandon(&call);
            }
            local.shared().report(SupervisorMessage::Probed { serial, result });
        });
    }
}

/// Creates a GET request for `target` that appears to come from this machine. It belongs to the pool of the
/// worker on trial, whatever its path is.
fn call(target: &str, asked_us: u64, now: Instant) -> Rc<Call> {
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => ((0, path.len() as u32), (path.len() as u32 + 1, query.len() as u32)),
        None => ((0, target.len() as u32), (0, 0)),
    };
    let head = Head {
        version: 11,
        https: false,
        remote_port: 0,
        measure: false,
        switch: false,
        asked_us,
        method: b"GET",
        target: target.as_bytes(),
        path,
        query,
        remote_addr: b"127.0.0.1",
        server_name: b"localhost",
        server_port: b"80",
    };
    let mut frame = Vec::new();
    let mut encoder = Encoder::new(&mut frame, &head);
    encoder.field(b"host", b"localhost");
    encoder.field(b"user-agent", b"Firebrick reload");
    encoder.finish(Put::None);
    Rc::new(Call::new(frame, CallBody::Nothing, Rc::new(Trace::default()), None, PoolIndex::DEFAULT, now))
}

/// Returns the status of the response, or the reason why there is none.
async fn status(call: &Call) -> Result<u16, String> {
    loop {
        match poll_fn(|cx| call.reply.poll_event(cx)).await {
            ReplyEvent::Interim(..) | ReplyEvent::Postponed => {}
            ReplyEvent::Head(head) => return Ok(head.status),
            ReplyEvent::Hijacked(_) => return Err("the app took the connection over".to_owned()),
            ReplyEvent::Failed(failure) => return Err(failure.reason.to_string()),
        }
    }
}
