//! Ruby names and constant strings, looked up once: env keys, method names, classes.

use crate::raw::gvl::Gvl;
use crate::raw::ruby::{self, Id, Value};
use crate::raw::slots::RootSlot;
use std::ffi::CStr;
use std::sync::OnceLock;

macro_rules! names {
    (ids { $($id:ident: $method:literal,)* } keys { $($key:ident: $text:literal,)* } symbols { $($symbol:ident: $name:literal,)* } classes { $($class:ident: $path:literal,)* }) => {
        pub(crate) struct Names {
            $(pub(crate) $id: Id,)*
            $(pub(crate) $key: &'static RootSlot,)*
            $(pub(crate) $symbol: &'static RootSlot,)*
            $(pub(crate) $class: &'static RootSlot,)*
            /// Env keys of the name codes of `wire::names`, by code.
            pub(crate) known: Vec<&'static RootSlot>,
            /// Frozen names of the common methods.
            pub(crate) methods: Vec<&'static RootSlot>,
        }

        impl Names {
            fn look_up(gvl: &mut Gvl) -> Names {
                let mut known = vec![key(gvl, b"")];
                for name in wire::names::KNOWN {
                    known.push(key(gvl, &wire::names::rack_key(name.as_bytes())));
                }
                Names {
                    $($id: ruby::id(gvl, $method),)*
                    $($key: key(gvl, $text.as_bytes()),)*
                    $($symbol: symbol(gvl, $name),)*
                    $($class: constant(gvl, $path),)*
                    known,
                    methods: METHODS.iter().map(|name| key(gvl, name)).collect(),
                }
            }
        }
    };
}

const METHODS: [&[u8]; 7] = [b"GET", b"POST", b"HEAD", b"PUT", b"PATCH", b"DELETE", b"OPTIONS"];

names! {
    ids {
        call: "call", each: "each", close: "close", to_path: "to_path", to_ary: "to_ary", to_i: "to_i",
        failed: "failed", fault: "fault", finished: "finished", reply_sent: "reply_sent",
        is_due: "due?", collect: "collect", thread_started: "thread_started", thread_ended: "thread_ended",
        stream: "stream", input: "input", interrupted: "interrupted", peer_certificate: "peer_certificate",
        send_file: "send_file", offered: "offered", switched: "switched",
        install: "install", uninstall: "uninstall", make: "make", clean: "clean", expired: "expired",
        interrupts: "interrupts", calls: "calls?", forget: "forget", raise: "raise",
        own_paths: "own_paths", fileno: "fileno", timeout: "timeout", is_stopped: "stop?",
        is_client_gone: "client_gone?", fields: "fields", pos: "pos",
        name: "name", place: "place", place_held: "place_held",
        watch_calls: "watch_calls", call_seen: "call_seen", call_blocked: "call_blocked",
    }
    keys {
        request_method: "REQUEST_METHOD", path_info: "PATH_INFO", request_path: "REQUEST_PATH",
        request_uri: "REQUEST_URI", query_string: "QUERY_STRING", server_name: "SERVER_NAME",
        server_port: "SERVER_PORT", remote_addr: "REMOTE_ADDR", remote_port: "REMOTE_PORT",
        server_protocol: "SERVER_PROTOCOL", http_version: "HTTP_VERSION", url_scheme: "rack.url_scheme",
        https: "HTTPS", content_length: "CONTENT_LENGTH",
        rack_input: "rack.input", queue_time: "firebrick.queue_time", after_reply: "rack.after_reply",
        response_finished: "rack.response_finished",
        http_1_0: "HTTP/1.0", http_1_1: "HTTP/1.1", http_2: "HTTP/2", http_3: "HTTP/3", scheme_http: "http", scheme_https: "https", on: "on",
        hijack: "rack.hijack", can_hijack: "rack.hijack?", peercert: "puma.peercert",
        protocol: "rack.protocol", early_hints: "rack.early_hints", request_timeout: "firebrick.timeout",
        empty: "",
        own_route: "firebrick.route", sinatra_route: "sinatra.route", grape_args: "grape.routing_args",
        hanami_action: "hanami.action_instance", path_parameters: "action_dispatch.request.path_parameters",
        uri_pattern: "action_dispatch.route_uri_pattern",
    }
    symbols {
        controller: "controller", action: "action", route_info: "route_info", name_key: "name", cached: "cached", sql: "sql",
    }
    classes {
        exchange: c"Firebrick::Exchange", bad_response: c"Firebrick::BadResponse", client_gone: c"Firebrick::ClientGone",
        fibers: c"Firebrick::Fibers", fibers_error: c"FiberError", io_error: c"IOError",
        protocols: c"Firebrick::Protocols", routes: c"Firebrick::Routes", shadow: c"Firebrick::Shadow",
        handle: c"Firebrick::Native::Handle", hints: c"Firebrick::Native::Hints",
    }
}

static NAMES: OnceLock<Names> = OnceLock::new();

fn key(gvl: &mut Gvl, text: &[u8]) -> &'static RootSlot {
    let key = ruby::interned(gvl, text);
    RootSlot::leak(gvl, key)
}

fn symbol(gvl: &mut Gvl, name: &str) -> &'static RootSlot {
    let symbol = ruby::symbol(gvl, name);
    RootSlot::leak(gvl, symbol)
}

fn constant(gvl: &mut Gvl, path: &CStr) -> &'static RootSlot {
    let constant = ruby::constant(gvl, path);
    RootSlot::leak(gvl, constant)
}

/// Looks the names up at the first call. May raise.
pub(crate) fn look_up(gvl: &mut Gvl) {
    NAMES.get_or_init(|| Names::look_up(gvl));
}

/// Returns the names, which must have been looked up.
#[inline]
pub(crate) fn names() -> &'static Names {
    NAMES.get().expect("the names have been looked up")
}

/// Returns the frozen String of a request method.
#[inline]
pub(crate) fn method(gvl: &mut Gvl, name: &[u8]) -> Value {
    match METHODS.iter().position(|known| *known == name) {
        Some(at) => names().methods[at].get(),
        None => ruby::string(gvl, name),
    }
}
