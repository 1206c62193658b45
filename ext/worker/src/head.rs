//! Status and headers of a response, per Rack 2.2 and Rack 3.
//!
//! Contract:
//! 1. A status is what `to_i` makes of it and lies in 100 to 599.
//! 2. A value is a String, whose lines are fields of their own (Rack 2); an Array, whose elements are (Rack 3); or
//!    anything else, by its `to_s`. A field whose value is nil is left out.
//! 3. A name or value with CR, LF (but as separator), or NUL raises `Firebrick::BadResponse`.

use crate::names::names;
use crate::raw::ruby::{self, Value};
use crate::task::Task;
use crate::worker::worker;
use wire::response::{Encoder, Suspended};

/// Bytes that a field takes in a head beside its name and value.
const OVERHEAD: usize = 4;

fn bad(text: impl AsRef<str>) -> ! {
    ruby::raise(names().bad_response.get(), text)
}

fn unsendable(name: Value) -> String {
    format!("header {:?} contains CR, LF or NUL", String::from_utf8_lossy(name.bytes()))
}

/// Reads a status. May raise.
pub(crate) fn status(value: Value) -> u16 {
    let number = value.fixnum().or_else(|| ruby::call(value, names().to_i, &[]).fixnum());
    match number {
        Some(number @ 100..=599) => number as u16,
        Some(number) => bad(format!("status {number} is not in 100 to 599")),
        None => bad("status is not a number"),
    }
}

/// Where fields go while headers are walked through.
struct Fields {
    task: &'static Task,
    encoder: Suspended,
    interim: bool,
    left: usize,
    count: usize,
}

/// Writes the head of a response to `task.head`. May raise.
#[inline]
pub(crate) fn response(task: &'static Task, status: u16, headers: Value) -> Suspended {
    let encoder = task.head.with(|out| {
        out.clear();
        Encoder::response(out, task.id.get(), status).suspend()
    });
    let mut fields = Fields { task, encoder, interim: false, left: worker(|w| w.options.max_head), count: 0 };
    fields.all(headers);
    fields.encoder
}

/// Adds Content-Length to a head that has none.
pub(crate) fn with_length(task: &'static Task, head: Suspended, len: u64) -> Suspended {
    task.head.with(|out| {
        let mut encoder = head.resume(out);
        encoder.field(b"content-length", len.to_string().as_bytes());
        encoder.suspend()
    })
}

/// Writes an INTERIM frame with status 103 to `task.interim`. May raise.
pub(crate) fn early_hints(task: &'static Task, headers: Value) {
    let encoder = task.interim.with(|out| {
        out.clear();
        Encoder::interim(out, task.id.get(), 103).suspend()
    });
    let mut fields = Fields { task, encoder, interim: true, left: worker(|w| w.options.max_head), count: 0 };
    fields.all(headers);
    task.interim.with(|out| fields.encoder.resume(out).finish(0, wire::times::Times::default(), b""));
}

impl Fields {
    #[inline]
    fn all(&mut self, headers: Value) {
        if headers.is_hash() {
            return ruby::hash_each(headers, &mut |name, value| self.pair(name, value));
        }
        ruby::each(headers, names().each, &mut |arguments| match *arguments {
            [pair] if pair.is_array() => self.pair(pair.at(0), pair.at(1)),
            [name, value] => self.pair(name, value),
            _ => bad("headers do not yield names and values"),
        });
    }

    #[inline]
    fn pair(&mut self, name: Value, value: Value) {
        let name = if name.is_string() { name } else { ruby::to_s(name) };
        if name.bytes().starts_with(b"rack.") {
            if name.bytes() == b"rack.hijack" && !value.is_nil() {
                self.task.take_over.set(value);
            }
            return;
        }
        if value.is_string() {
            self.lines(name, value);
        } else if value.is_array() {
            let mut at = 0;
            while at < value.array_len() {
                let element = value.at(at);
                let element = if element.is_string() { element } else { ruby::to_s(element) };
                self.field(name, element, element.bytes());
                at += 1;
            }
        } else if !value.is_nil() {
            self.lines(name, ruby::to_s(value));
        }
        name.keep();
    }

    #[inline]
    fn lines(&mut self, name: Value, value: Value) {
        let bytes = value.bytes();
        if !bytes.contains(&b'\n') {
            return self.field(name, value, bytes);
        }
        bytes
            .split(|&byte| byte == b'\n')
            .filter(|line| !line.is_empty())
            .for_each(|line| self.field(name, value, line));
    }

    #[inline]
    fn field(&mut self, name: Value, value: Value, bytes: &[u8]) {
        if [name.bytes(), bytes].iter().any(|text| text.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)))
        {
            bad(unsendable(name));
        }
        let size = name.bytes().len() + bytes.len() + OVERHEAD;
        self.count += 1;
        if size > self.left
            || name.bytes().len() > usize::from(u16::MAX)
            || self.count > usize::from(u16::MAX)
        {
            bad("response head is larger than max_head");
        }
        if name.bytes().eq_ignore_ascii_case(b"content-length") {
            self.task.finite.set(true);
        } else if name.bytes().eq_ignore_ascii_case(b"transfer-encoding") {
            self.task.coded.set(true);
        }
        self.left -= size;
        let buffer = if self.interim { &self.task.interim } else { &self.task.head };
        self.encoder = buffer.with(|out| {
            let mut encoder = self.encoder.resume(out);
            encoder.field(name.bytes(), bytes);
            encoder.suspend()
        });
        value.keep();
    }
}
