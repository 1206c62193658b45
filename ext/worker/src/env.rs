//! The Rack env of a request.
//!
//! Each thread has a template: a Hash with everything that is the same in most of its requests. An env is a copy of
//! it, with what differs set. What changes seldom (peer, name and port of the server, method, scheme, version) is
//! changed in the template when it does.

use crate::names::{method, names};
use crate::raw::ruby::{self, Slot, Value};
use crate::task::Task;
use crate::worker::worker;
use std::cell::Cell;
use std::os::fd::RawFd;
use std::sync::OnceLock;
use wire::names as codes;
use wire::request::{Body, Field, Request};

static BASE: OnceLock<&'static Slot> = OnceLock::new();

/// Sets the env that all templates start from.
pub(crate) fn set_base(base: Value) {
    BASE.get_or_init(|| Slot::leak(base)).set(base);
}

/// A template for a thread.
pub(crate) fn template() -> Value {
    ruby::hash_dup(BASE.get().expect("the base env has been set").get())
}

/// What the template holds at present.
pub(crate) struct Memo {
    method: &'static Slot,
    remote_addr: &'static Slot,
    server_name: &'static Slot,
    server_port: &'static Slot,
    version: Cell<u8>,
    https: Cell<bool>,
}

impl Memo {
    pub(crate) fn new() -> Memo {
        let empty = || Slot::leak(ruby::interned(b""));
        #[rustfmt::skip]
        let memo = Memo {
            method: empty(), remote_addr: empty(), server_name: empty(), server_port: empty(),
            version: Cell::new(0), https: Cell::new(false),
        };
        memo
    }
}

/// Fields that concern the connection, which ends at the front: the body has been decoded.
const TRANSFER_ENCODING: u8 = 29;
const COOKIE: u8 = 8;
const CONTENT_LENGTH: u8 = 10;

const _: () = {
    assert!(matches!(codes::KNOWN[TRANSFER_ENCODING as usize - 1].as_bytes(), b"transfer-encoding"));
    assert!(matches!(codes::KNOWN[COOKIE as usize - 1].as_bytes(), b"cookie"));
    assert!(matches!(codes::KNOWN[CONTENT_LENGTH as usize - 1].as_bytes(), b"content-length"));
};

/// Builds the env. May raise (out of memory).
pub(crate) fn build(task: &'static Task, request: &Request<'_>, fd: Option<RawFd>) -> Value {
    let keys = names();
    refresh(task, request);
    let env = ruby::hash_dup(task.template.get());
    put_target(env, task, request);
    if request.head.remote_port != 0 {
        ruby::hash_set(env, keys.remote_port.get(), decimal(u64::from(request.head.remote_port)));
    }
    let queued_us = task.started_us.get().saturating_sub(request.head.asked_us);
    ruby::hash_set(env, keys.queue_time.get(), ruby::float(queued_us as f64 / 1e6));
    let mut has_length = false;
    for field in request.fields() {
        has_length |= field.code == CONTENT_LENGTH;
        put_field(env, task, &field);
    }
    put_body(env, task, request, fd, has_length);
    env
}

/// Brings the template up to date.
#[inline]
fn refresh(task: &'static Task, request: &Request<'_>) {
    let (keys, memo, head, template) = (names(), &task.memo, &request.head, task.template.get());
    let remember = |slot: &Slot, key: &Slot, bytes: &[u8]| {
        if slot.get().bytes() != bytes {
            slot.set(ruby::interned(bytes));
            ruby::hash_set(template, key.get(), slot.get());
        }
    };
    if memo.method.get().bytes() != head.method {
        memo.method.set(method(head.method));
        ruby::hash_set(template, keys.request_method.get(), memo.method.get());
    }
    let peer = if head.remote_addr.is_empty() { b"127.0.0.1" } else { head.remote_addr };
    remember(memo.remote_addr, keys.remote_addr, peer);
    remember(memo.server_name, keys.server_name, head.server_name);
    remember(memo.server_port, keys.server_port, head.server_port);
    if memo.version.replace(head.version) != head.version {
        let version = if head.version == 10 { keys.http_1_0 } else { keys.http_1_1 };
        ruby::hash_set(template, keys.server_protocol.get(), version.get());
        ruby::hash_set(template, keys.http_version.get(), version.get());
    }
    if memo.https.replace(head.https) != head.https {
        let scheme = if head.https { keys.scheme_https } else { keys.scheme_http };
        ruby::hash_set(template, keys.url_scheme.get(), scheme.get());
        if head.https {
            ruby::hash_set(template, keys.https.get(), keys.on.get());
        } else {
            ruby::hash_delete(template, keys.https.get());
        }
    }
    renew(task.after_reply, keys.after_reply, template);
    renew(task.response_finished, keys.response_finished, template);
}

/// A list that an app has put something into is not handed out again.
#[inline]
fn renew(slot: &Slot, key: &Slot, template: Value) {
    if slot.get().is_nil() || slot.get().array_len() > 0 {
        slot.set(ruby::array(&[]));
        ruby::hash_set(template, key.get(), slot.get());
    }
}

#[inline]
fn put_target(env: Value, _task: &'static Task, request: &Request<'_>) {
    let keys = names();
    let path = match request.path() {
        b"" => ruby::string(b"/"),
        path => ruby::string(path),
    };
    ruby::hash_set(env, keys.request_path.get(), path);
    // `OPTIONS *`: Rack 3 says "*"; Rack 2 has no word for it but the empty path.
    let asterisk = request.path() == b"*" && !worker(|w| w.options.rack3);
    ruby::hash_set(env, keys.path_info.get(), if asterisk { keys.empty.get() } else { path });
    ruby::hash_set(env, keys.request_uri.get(), ruby::string(request.head.target));
    if !request.query().is_empty() {
        ruby::hash_set(env, keys.query_string.get(), ruby::string(request.query()));
    }
}

#[inline]
fn put_field(env: Value, task: &'static Task, field: &Field<'_>) {
    if let Some(name) = field.variable() {
        return ruby::hash_set(env, ruby::interned(name), ruby::string(field.value));
    }
    let key = match field.code {
        0 => task.head.with(|key| {
            key.clear();
            key.extend_from_slice(b"HTTP_");
            key.extend(
                field.name.iter().map(|&byte| if byte == b'-' { b'_' } else { byte.to_ascii_uppercase() }),
            );
            ruby::interned(key)
        }),
        TRANSFER_ENCODING => return,
        code => names().fields[code as usize].get(),
    };
    if !field.repeated {
        return ruby::hash_set(env, key, ruby::string(field.value));
    }
    let joined = ruby::hash_get(env, key);
    if joined.is_nil() {
        return ruby::hash_set(env, key, ruby::string(field.value));
    }
    ruby::append(joined, if field.code == COOKIE { b"; " } else { b", " });
    ruby::append(joined, field.value);
}

fn put_body(env: Value, task: &'static Task, request: &Request<'_>, fd: Option<RawFd>, has_length: bool) {
    let keys = names();
    let (input, len) = match (request.body, fd) {
        (Body::Inline(bytes), _) => {
            (ruby::call(keys.exchange.get(), keys.input, &[ruby::string(bytes)]), bytes.len() as u64)
        }
        (Body::Descriptor(len), Some(fd)) => {
            (ruby::call(keys.exchange.get(), keys.input, &[ruby::integer(i64::from(fd))]), len)
        }
        _ => return,
    };
    task.input.set(input);
    ruby::hash_set(env, keys.rack_input.get(), input);
    if !has_length {
        ruby::hash_set(env, keys.content_length.get(), decimal(len));
    }
}

fn decimal(mut number: u64) -> Value {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return ruby::string(&digits[at..]);
        }
    }
}
