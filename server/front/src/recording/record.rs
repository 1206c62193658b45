//! One request that is being recorded, from its head to its line.

use super::body::{Bodies, Copied, Digested, Nothing};
use super::{Recording, chosen};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use handler::{Body, Ending, Exchange, Incoming, Request, Response};
use serde_json::{Value, json};
use sha2::Digest;
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use text::secret;

pub(crate) struct Record {
    recording: Arc<Recording>,
    method: String,
    target: String,
    version: &'static str,
    fields: Vec<(String, String)>,
    /// Where secrets were: names of fields, `path`, `query`, `body`.
    masked: RefCell<Vec<String>>,
    content_type: Vec<u8>,
    /// The response's is that before the server compresses it.
    bodies: Rc<Bodies>,
    /// The content coding that the app or the origin has chosen.
    coding: RefCell<Option<String>>,
    /// Whether the length of what was sent is that of the response.
    is_as_sent: Cell<bool>,
}

/// Begins to record a request, if it is chosen. Called before anything changes it.
#[cold]
pub(crate) fn observe(exchange: &mut Exchange) -> Option<Rc<Record>> {
    let recording = chosen()?;
    let request: &Request = &exchange.request;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (mut fields, mut masked) = (Vec::with_capacity(request.fields.len()), Vec::new());
    let mut content_type = Vec::new();
    for (name, value) in request.fields.iter() {
        let (name, mut value) = (name.to_ascii_lowercase(), value.to_vec());
        if name == b"content-type" {
            content_type.clone_from(&value);
        }
        if secret::field(&name, &mut value) {
            masked.push(text(&name));
        }
        fields.push((text(&name), text(&value)));
    }
    let target = target(request, &mut masked);
    let record = Rc::new(Record {
        method: text(request.method()),
        target,
        version: request.version.name(),
        fields,
        masked: RefCell::new(masked),
        content_type,
        bodies: Rc::new(Bodies::new(recording.order.body)),
        coding: RefCell::default(),
        is_as_sent: Cell::new(false),
        recording,
    });
    match std::mem::replace(&mut exchange.incoming, Incoming::Empty) {
        Incoming::Empty => record.bodies.is_whole.set(true),
        Incoming::Ready(bytes) => {
            record.bodies.receive(&bytes);
            record.bodies.is_whole.set(true);
            exchange.incoming = Incoming::Ready(bytes);
        }
        Incoming::Arriving(body) => {
            exchange.incoming = Incoming::Arriving(Box::new(Copied { body, bodies: record.bodies.clone() }));
        }
    }
    // Cannot fail: each exchange has its own trace, still empty here.
    let _ = exchange.trace.recorded.set(record.clone());
    Some(record)
}

/// Returns path and query without secrets, also of an absolute target.
fn target(request: &Request, masked: &mut Vec<String>) -> String {
    let mut query = request.query().to_vec();
    if secret::form(&mut query) {
        masked.push("query".to_owned());
    }
    let mut path = request.path().to_vec();
    if secret::path(&mut path) {
        masked.push("path".to_owned());
    }
    let path = String::from_utf8_lossy(&path);
    match String::from_utf8_lossy(&query) {
        query if query.is_empty() => path.into_owned(),
        query => format!("{path}?{query}"),
    }
}

/// Writes the line of a request that has ended.
#[cold]
pub(crate) fn finished(recorded: &Rc<dyn Any>, ending: &Ending<'_>) {
    if let Some(record) = recorded.downcast_ref::<Record>() {
        record.recording.offer(&record.line(ending));
    }
}

impl Record {
    /// Looks at a response before the server compresses it.
    #[cold]
    pub(crate) fn answered(&self, response: &mut Response) {
        let coding = response.fields.get("content-encoding");
        self.coding.replace(coding.map(|coding| String::from_utf8_lossy(coding).into_owned()));
        match &mut response.body {
            Body::Empty => {}
            Body::Bytes(bytes) => self.bodies.send(bytes),
            Body::Kept(kept) => self.bodies.send(kept.body()),
            Body::Tunnel { .. } => self.bodies.cannot_digest(),
            // The response to a HEAD has the file, too, for its length.
            Body::File(_) if self.method == "HEAD" => {}
            Body::File(region) => {
                let (region, length) = (region.clone(), region.len.to_string());
                // A stream is as long as the field says.
                response.fields.retain(|name, _| !name.eq_ignore_ascii_case(b"content-length"));
                response.fields.push(b"Content-Length", length.as_bytes());
                response.body = Body::Stream(Digested::file(region, &self.bodies));
            }
            Body::Stream(stream) => {
                let body = std::mem::replace(stream, Box::new(Nothing));
                *stream = Digested::stream(body, &self.bodies);
            }
        }
    }

    /// Looks at it again when nothing changes it any more.
    #[cold]
    pub(crate) fn sends(&self, response: &Response) {
        let coding = response.fields.get("content-encoding").map(String::from_utf8_lossy);
        self.is_as_sent.set(coding.as_deref() == self.coding.borrow().as_deref());
    }

    fn line(&self, ending: &Ending<'_>) -> Value {
        let digest =
            self.bodies.digest.borrow_mut().take().filter(|_| !ending.broken && self.method != "HEAD");
        let length = match &digest {
            Some(_) => Some(self.bodies.sent.get()),
            None => self.is_as_sent.get().then_some(ending.body_bytes),
        };
        let at = ending.started.saturating_duration_since(self.recording.began);
        let mut line = json!({
            "at_us": u64::try_from(at.as_micros()).unwrap_or(u64::MAX),
            "method": self.method,
            "target": self.target,
            "version": self.version,
            "fields": self.fields,
            "status": ending.status,
            "length": length,
            "took_us": u64::try_from((ending.ended - ending.started).as_micros()).unwrap_or(u64::MAX),
        });
        let mut put = |name: &str, value: Value| line[name] = value;
        if let Some(digest) = digest {
            put("sha256", text::hex(&digest.finalize()).into());
        }
        if let Some(coding) = self.coding.borrow().as_deref() {
            put("coding", coding.into());
        }
        if let Some(route) = ending.trace.route.borrow().as_deref() {
            put("route", route.into());
        }
        if ending.hijacked {
            put("tunnel", true.into());
        }
        if ending.broken {
            put("broken", true.into());
        }
        self.put_body(&mut put);
        let masked = self.masked.borrow();
        if !masked.is_empty() {
            line["masked"] = masked.as_slice().into();
        }
        drop(masked);
        line
    }

    fn put_body(&self, put: &mut dyn FnMut(&str, Value)) {
        let (body, received) = (self.bodies.kept.borrow(), self.bodies.received.get());
        if received == 0 && self.bodies.is_whole.get() {
            return;
        }
        put("body_length", received.into());
        if !self.bodies.is_whole.get() || body.len() as u64 != received {
            put("body_cut", true.into());
        }
        let mut kept = body.clone();
        if secret::body(&self.content_type, &mut kept) {
            self.masked.borrow_mut().push("body".to_owned());
        }
        match std::str::from_utf8(&kept) {
            Ok(text) => put("body", text.into()),
            Err(_) => put("body_base64", STANDARD.encode(&kept).into()),
        }
    }
}
