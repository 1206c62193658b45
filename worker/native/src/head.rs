//! Encodes status and headers of a response, per Rack 2.2 and Rack 3.
//!
//! Contract:
//! 1. A status is converted by `to_i` and must lie in 100 to 599.
//! 2. A value is a String, whose lines become separate fields (Rack 2); an Array, whose elements do (Rack 3); or
//!    any other object, by its `to_s`. A field whose value is nil is left out.
//! 3. A name or value with CR, LF (except as separator) or NUL raises `Firebrick::BadResponse`.

use crate::names::names;
use crate::raw::gvl::Gvl;
use crate::raw::ruby::{self, Value};
use crate::worker::task::Task;
use crate::worker::{worker, worker_at};
use wire::response::{Encoder, Suspended};

/// Bytes that a field takes in a head, beside its name and value.
const OVERHEAD: usize = 4;

fn bad(gvl: &mut Gvl, text: impl AsRef<str>) -> ! {
    ruby::raise(gvl, names().bad_response.get(), text)
}

fn unsendable(gvl: &Gvl, name: Value) -> String {
    format!("header {:?} contains CR, LF or NUL", String::from_utf8_lossy(name.bytes(gvl)))
}

/// Reads a status. May raise.
pub(crate) fn status(gvl: &mut Gvl, value: Value) -> u16 {
    let number = match value.fixnum() {
        Some(number) => Some(number),
        None => ruby::call(gvl, value, names().to_i, &[]).fixnum(),
    };
    match number {
        Some(number @ 100..=599) => number as u16,
        Some(number) => bad(gvl, format!("status {number} is not in 100 to 599")),
        None => bad(gvl, "status is not a number"),
    }
}

/// The destination of the fields while headers are enumerated.
struct Fields {
    task: &'static Task,
    encoder: Suspended,
    interim: bool,
    left: usize,
    count: usize,
}

/// Writes the head of a response to `task.head`. May raise.
#[inline]
pub(crate) fn response(gvl: &mut Gvl, task: &'static Task, status: u16, headers: Value) -> Suspended {
    let encoder = task.head.with(gvl, |out| {
        out.clear();
        Encoder::response(out, task.id.get(), status).suspend()
    });
    let mut fields =
        Fields { task, encoder, interim: false, left: worker(gvl, |w| w.options.max_head), count: 0 };
    fields.all(gvl, headers);
    fields.encoder
}

/// Adds Content-Length to a head without one.
pub(crate) fn with_length(gvl: &Gvl, task: &'static Task, head: Suspended, len: u64) -> Suspended {
    task.head.with(gvl, |out| {
        let mut encoder = head.resume(out);
        encoder.field(b"content-length", len.to_string().as_bytes());
        encoder.suspend()
    })
}

/// Writes an INTERIM frame with status 103 to `task.interim`, from the list that `Firebrick::Exchange.fields`
/// returned. No code of the app runs here, so no other thread can interfere. May raise.
pub(crate) fn early_hints(gvl: &mut Gvl, task: &'static Task, list: Value) {
    let encoder = task.interim.with(gvl, |out| {
        out.clear();
        Encoder::interim(out, task.id.get(), 103).suspend()
    });
    let mut fields = Fields {
        task,
        encoder,
        interim: true,
        left: worker_at(gvl, task.place.get(), |w| w.options.max_head).unwrap_or(0),
        count: 0,
    };
    fields.listed(gvl, list);
    task.interim.with(gvl, |out| fields.encoder.resume(out).finish(0, wire::times::Times::default(), b""));
}

/// Lists headers with `Firebrick::Exchange.fields`. May raise: it calls code of the app.
pub(crate) fn list(gvl: &mut Gvl, task: &'static Task, headers: Value) -> Value {
    let most = worker_at(gvl, task.place.get(), |w| w.options.max_head).unwrap_or(0);
    let most = ruby::integer(gvl, most as i64);
    ruby::call(gvl, names().exchange.get(), names().fields, &[headers, most])
}

/// The reason why a field cannot be sent.
#[derive(Clone, Copy)]
enum Refused {
    Unsendable,
    TooLarge,
}

impl Fields {
    #[inline]
    fn all(&mut self, gvl: &mut Gvl, headers: Value) {
        if headers.is_hash(gvl) {
            return ruby::hash_each(gvl, headers, &mut |gvl, name, value| self.pair(gvl, name, value));
        }
        let fields = list(gvl, self.task, headers);
        self.listed(gvl, fields);
    }

    /// Adds the list of `Firebrick::Exchange.fields`: names and values alternate.
    fn listed(&mut self, gvl: &mut Gvl, fields: Value) {
        let mut at = 0;
        while at < fields.array_len(gvl) {
            let (name, value) = (fields.at(gvl, at), fields.at(gvl, at + 1));
            self.pair(gvl, name, value);
            at += 2;
        }
        fields.keep();
    }

    #[inline]
    fn pair(&mut self, gvl: &mut Gvl, name: Value, value: Value) {
        let name = if name.is_string(gvl) { name } else { ruby::to_s(gvl, name) };
        if name.bytes(gvl).starts_with(b"rack.") {
            if !value.is_nil() && !self.interim {
                match name.bytes(gvl) {
                    b"rack.hijack" => self.task.take_over.set(value),
                    b"rack.protocol" => self.task.switches.set(true),
                    _ => {}
                }
            }
            return;
        }
        if value.is_string(gvl) {
            self.lines(gvl, name, value);
        } else if value.is_array(gvl) {
            let mut at = 0;
            while at < value.array_len(gvl) {
                let element = value.at(gvl, at);
                let element = if element.is_string(gvl) { element } else { ruby::to_s(gvl, element) };
                let added = self.field(gvl, name, element.bytes(gvl));
                accept(gvl, name, added);
                element.keep();
                at += 1;
            }
        } else if !value.is_nil() {
            let value = ruby::to_s(gvl, value);
            self.lines(gvl, name, value);
        }
        name.keep();
    }

    #[inline]
    fn lines(&mut self, gvl: &mut Gvl, name: Value, value: Value) {
        let bytes = value.bytes(gvl);
        let added = if bytes.contains(&b'\n') {
            let mut lines = bytes.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
            lines.try_for_each(|line| self.field(gvl, name, line))
        } else {
            self.field(gvl, name, bytes)
        };
        accept(gvl, name, added);
        value.keep();
    }

    #[inline]
    fn field(&mut self, gvl: &Gvl, name: Value, bytes: &[u8]) -> Result<(), Refused> {
        let name = name.bytes(gvl);
        if [name, bytes].iter().any(|text| text.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0))) {
            return Err(Refused::Unsendable);
        }
        let size = name.len() + bytes.len() + OVERHEAD;
        self.count += 1;
        if size > self.left || name.len() > usize::from(u16::MAX) || self.count > usize::from(u16::MAX) {
            return Err(Refused::TooLarge);
        }
        if name.eq_ignore_ascii_case(b"content-length") {
            self.task.finite.set(true);
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            self.task.coded.set(true);
        } else if names_file(name) && !self.interim {
            self.task.send_file.set(true);
        }
        self.left -= size;
        let buffer = if self.interim { &self.task.interim } else { &self.task.head };
        self.encoder = buffer.with(gvl, |out| {
            let mut encoder = self.encoder.resume(out);
            encoder.field(name, bytes);
            encoder.suspend()
        });
        Ok(())
    }
}

/// Returns whether the field names a file to be sent instead of the body.
#[inline]
fn names_file(name: &[u8]) -> bool {
    match name.len() {
        10 => name.eq_ignore_ascii_case(b"x-sendfile"),
        16 => name.eq_ignore_ascii_case(b"x-accel-redirect"),
        _ => false,
    }
}

/// Raises when a field was refused.
#[inline]
fn accept(gvl: &mut Gvl, name: Value, added: Result<(), Refused>) {
    match added {
        Ok(()) => {}
        Err(Refused::Unsendable) => {
            let text = unsendable(gvl, name);
            bad(gvl, text)
        }
        Err(Refused::TooLarge) => bad(gvl, "response head is larger than max_head"),
    }
}
