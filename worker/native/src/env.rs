//! Builds the Rack env of a request.
//!
//! Each thread has a template: a Hash with everything that is the same in most of its requests. An env is a
//! copy of it, in which the differing variables are set. Values that change seldom (peer, name and port of
//! the server, method, scheme, version) are changed in the template when they do.

use crate::names::{method, names};
use crate::raw::gvl::Gvl;
use crate::raw::ruby::{self, Pairs, Value};
use crate::raw::slots::RootSlot;
use crate::ticket::Ticket;
use crate::worker::place::place;
use crate::worker::task::Task;
use crate::worker::worker;
use std::os::fd::RawFd;
use wire::names as codes;
use wire::request::{Body, Field, Request};

// Codes of fields that need special treatment.
const TRANSFER_ENCODING: u8 = 29;
const COOKIE: u8 = 8;
const CONTENT_LENGTH: u8 = 10;
const UPGRADE: u8 = 15;
/// The variable with the client's certificate. No request field can have this name.
const CLIENT_CERT: &[u8] = b"SSL_CLIENT_CERT";
/// The variable that marks the copy of a request.
const SHADOW: &[u8] = b"firebrick.shadow";

const _: () = {
    assert!(matches!(codes::KNOWN[TRANSFER_ENCODING as usize - 1].as_bytes(), b"transfer-encoding"));
    assert!(matches!(codes::KNOWN[COOKIE as usize - 1].as_bytes(), b"cookie"));
    assert!(matches!(codes::KNOWN[UPGRADE as usize - 1].as_bytes(), b"upgrade"));
    assert!(matches!(codes::KNOWN[CONTENT_LENGTH as usize - 1].as_bytes(), b"content-length"));
};

/// Builds the env. May raise (out of memory).
pub(crate) fn build(gvl: &mut Gvl, task: &'static Task, request: &Request<'_>, fd: Option<RawFd>) -> Value {
    let keys = names();
    refresh(gvl, task, request);
    let env = ruby::hash_dup(gvl, task.thread.template.get());
    let mut draft = Draft { env, pairs: Pairs::new() };
    if task.fiber.is_some() {
        // Requests on other fibers have their own lists.
        for (list, key) in lists(task) {
            renew(gvl, list);
            draft.set(gvl, key, list.get());
        }
    }
    draft.put_handles(gvl, task, request);
    draft.put_target(gvl, request);
    if request.head.remote_port != 0 {
        let port = decimal(gvl, u64::from(request.head.remote_port));
        draft.set(gvl, keys.remote_port, port);
    }
    let queued = ruby::float(gvl, task.queued_us.get() as f64 / 1e6);
    draft.set(gvl, keys.queue_time, queued);
    let mut has_length = false;
    for field in request.fields() {
        has_length |= field.code == CONTENT_LENGTH;
        draft.put_field(gvl, task, &field);
    }
    draft.put_body(gvl, task, request, fd, has_length);
    if request.head.switch {
        draft.put_protocols(gvl);
    }
    draft.pairs.put(gvl, env);
    env
}

/// Updates the template for the request.
#[inline]
fn refresh(gvl: &mut Gvl, task: &'static Task, request: &Request<'_>) {
    let (keys, memo, head, template) =
        (names(), &task.thread.memo, &request.head, task.thread.template.get());
    let remember = |gvl: &mut Gvl, slot: &RootSlot, key: &RootSlot, bytes: &[u8]| {
        if slot.get().bytes(gvl) != bytes {
            slot.set(ruby::interned(gvl, bytes));
            ruby::hash_set(gvl, template, key.get(), slot.get());
        }
    };
    if memo.method.get().bytes(gvl) != head.method {
        memo.method.set(method(gvl, head.method));
        ruby::hash_set(gvl, template, keys.request_method.get(), memo.method.get());
    }
    let peer = if head.remote_addr.is_empty() { b"127.0.0.1" } else { head.remote_addr };
    remember(gvl, memo.remote_addr, keys.remote_addr, peer);
    remember(gvl, memo.server_name, keys.server_name, head.server_name);
    remember(gvl, memo.server_port, keys.server_port, head.server_port);
    let before = memo.version.replace(head.version);
    if before != head.version {
        let version = match head.version {
            10 => keys.http_1_0,
            20..30 => keys.http_2,
            30.. => keys.http_3,
            _ => keys.http_1_1,
        };
        ruby::hash_set(gvl, template, keys.server_protocol.get(), version.get());
        ruby::hash_set(gvl, template, keys.http_version.get(), version.get());
        let multiplexed = |version| version >= 20;
        if multiplexed(before) != multiplexed(head.version) {
            offer_hijack(gvl, template, !multiplexed(head.version));
        }
    }
    if memo.https.replace(head.https) != head.https {
        let scheme = if head.https { keys.scheme_https } else { keys.scheme_http };
        ruby::hash_set(gvl, template, keys.url_scheme.get(), scheme.get());
        if head.https {
            ruby::hash_set(gvl, template, keys.https.get(), keys.on.get());
        } else {
            ruby::hash_delete(gvl, template, keys.https.get());
        }
    }
    if task.fiber.is_none() {
        for (list, key) in lists(task) {
            if renew(gvl, list) {
                ruby::hash_set(gvl, template, key.get(), list.get());
            }
        }
    }
}

/// Adds `rack.hijack` to the template, or removes it: a request that shares its connection with others has no
/// connection to hand over.
fn offer_hijack(gvl: &mut Gvl, template: Value, offered: bool) {
    let keys = names();
    let base = place().base();
    for key in [keys.can_hijack, keys.hijack] {
        let value = if offered { ruby::hash_get(gvl, base, key.get()) } else { ruby::FALSE };
        ruby::hash_set(gvl, template, key.get(), value);
    }
    if !offered {
        ruby::hash_delete(gvl, template, keys.hijack.get());
    }
}

/// Returns the task's lists of callbacks, and their keys.
#[inline]
fn lists(task: &Task) -> [(&'static RootSlot, &'static RootSlot); 2] {
    let keys = names();
    [(task.after_reply, keys.after_reply), (task.response_finished, keys.response_finished)]
}

/// Replaces a list to which the app has added something. Returns whether it was replaced.
#[inline]
fn renew(gvl: &mut Gvl, list: &RootSlot) -> bool {
    let used = list.get().is_nil() || list.get().array_len(gvl) > 0;
    if used {
        list.set(ruby::array(gvl, &[]));
    }
    used
}

/// An env being filled.
struct Draft {
    env: Value,
    pairs: Pairs,
}

impl Draft {
    #[inline]
    fn add(&mut self, gvl: &mut Gvl, key: Value, value: Value) {
        self.pairs.add(gvl, self.env, key, value);
    }

    #[inline]
    fn set(&mut self, gvl: &mut Gvl, key: &RootSlot, value: Value) {
        self.add(gvl, key.get(), value);
    }

    /// Adds the objects through which the app reaches its request. They refer to this request wherever they are called.
    #[inline]
    fn put_handles(&mut self, gvl: &mut Gvl, task: &'static Task, request: &Request<'_>) {
        let (keys, ticket) = (names(), Ticket::of_request(task));
        let handle = ticket.handle(gvl, keys.handle.get());
        self.set(gvl, keys.request_timeout, handle);
        if request.head.version < 20 {
            self.set(gvl, keys.hijack, handle);
        } else if request.head.switch {
            // An Extended CONNECT has a stream of its own, which the template's requests do not have.
            self.set(gvl, keys.hijack, handle);
            self.add(gvl, keys.can_hijack.get(), ruby::TRUE);
        }
        if worker(gvl, |w| w.options.early_hints) {
            let hints = ticket.handle(gvl, keys.hints.get());
            self.set(gvl, keys.early_hints, hints);
        }
    }

    #[inline]
    fn put_target(&mut self, gvl: &mut Gvl, request: &Request<'_>) {
        let keys = names();
        let path = match request.path() {
            b"" => ruby::string(gvl, b"/"),
            path => ruby::string(gvl, path),
        };
        self.set(gvl, keys.request_path, path);
        // `OPTIONS *`: in Rack 3 the path is "*"; in Rack 2 it is empty.
        let asterisk = request.path() == b"*" && !worker(gvl, |w| w.options.rack3);
        self.set(gvl, keys.path_info, if asterisk { keys.empty.get() } else { path });
        let target = ruby::string(gvl, request.head.target);
        self.set(gvl, keys.request_uri, target);
        if !request.query().is_empty() {
            let query = ruby::string(gvl, request.query());
            self.set(gvl, keys.query_string, query);
        }
    }

    #[inline]
    fn put_field(&mut self, gvl: &mut Gvl, task: &'static Task, field: &Field<'_>) {
        let value = ruby::string(gvl, field.value);
        if let Some(name) = field.variable() {
            let key = ruby::interned(gvl, name);
            self.add(gvl, key, value);
            match name {
                CLIENT_CERT => self.put_peer_certificate(gvl, value),
                SHADOW => task.shadow.set(true),
                _ => {}
            }
            return;
        }
        let key = match field.code {
            0 => {
                let mut key = task.head.with(gvl, std::mem::take);
                key.clear();
                key.extend_from_slice(b"HTTP_");
                let rack = |byte: &u8| if *byte == b'-' { b'_' } else { byte.to_ascii_uppercase() };
                key.extend(field.name.iter().map(rack));
                // If Ruby is out of memory this raises, and only the buffer is lost.
                let interned = ruby::interned(gvl, &key);
                task.head.with(gvl, |head| *head = key);
                interned
            }
            // The front has already decoded the body.
            TRANSFER_ENCODING => return,
            code => names().known[code as usize].get(),
        };
        if !field.repeated {
            return self.add(gvl, key, value);
        }
        // Keys of fields are interned: equal keys are the same object.
        let joined = self.pairs.find(key).unwrap_or_else(|| ruby::hash_get(gvl, self.env, key));
        if joined.is_nil() {
            return self.add(gvl, key, value);
        }
        ruby::append(gvl, joined, if field.code == COOKIE { b"; " } else { b", " });
        ruby::append(gvl, joined, field.value);
    }

    /// Adds the protocols that the client offers to switch to.
    #[cold]
    fn put_protocols(&mut self, gvl: &mut Gvl) {
        let keys = names();
        let key = keys.known[UPGRADE as usize].get();
        let upgrade = self.pairs.find(key).unwrap_or_else(|| ruby::hash_get(gvl, self.env, key));
        let offered = ruby::call(gvl, keys.protocols.get(), keys.offered, &[upgrade]);
        self.set(gvl, keys.protocol, offered);
    }

    /// Adds the client's certificate under the keys that Puma's apps use.
    #[cold]
    fn put_peer_certificate(&mut self, gvl: &mut Gvl, pem: Value) {
        let keys = names();
        let certificate = ruby::call(gvl, keys.exchange.get(), keys.peer_certificate, &[pem]);
        if !certificate.is_nil() {
            self.set(gvl, keys.peercert, certificate);
        }
    }

    fn put_body(
        &mut self,
        gvl: &mut Gvl,
        task: &'static Task,
        request: &Request<'_>,
        fd: Option<RawFd>,
        has_length: bool,
    ) {
        let keys = names();
        let (body, len) = match (request.body, fd) {
            (Body::Inline(bytes), _) => (ruby::string(gvl, bytes), bytes.len() as u64),
            (Body::Descriptor(len), Some(fd)) => (ruby::integer(gvl, i64::from(fd)), len),
            _ => return,
        };
        let input = ruby::call(gvl, keys.exchange.get(), keys.input, &[body]);
        task.input.set(input);
        self.set(gvl, keys.rack_input, input);
        if !has_length {
            let length = decimal(gvl, len);
            self.set(gvl, keys.content_length, length);
        }
    }
}

fn decimal(gvl: &mut Gvl, mut number: u64) -> Value {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return ruby::string(gvl, &digits[at..]);
        }
    }
}
