//! Ruby names and constant strings, looked up once: env keys, method names, classes.

use crate::raw::ruby::{self, Id, Slot, Value};
use std::sync::OnceLock;

macro_rules! names {
    (ids { $($id:ident: $method:literal,)* } keys { $($key:ident: $text:literal,)* } classes { $($class:ident: $path:literal,)* }) => {
        /// See the module.
        pub(crate) struct Names {
            $(pub(crate) $id: Id,)*
            $(pub(crate) $key: &'static Slot,)*
            $(pub(crate) $class: &'static Slot,)*
            /// Env keys of the name codes of `wire::names`, by code.
            pub(crate) fields: Vec<&'static Slot>,
            /// Frozen names of the common methods.
            pub(crate) methods: Vec<&'static Slot>,
        }

        impl Names {
            fn look_up() -> Names {
                let key = |text: &[u8]| Slot::leak(ruby::interned(text));
                Names {
                    $($id: ruby::id($method),)*
                    $($key: key($text.as_bytes()),)*
                    $($class: Slot::leak(ruby::constant($path)),)*
                    fields: std::iter::once(key(b""))
                        .chain(wire::names::KNOWN.iter().map(|name| key(&wire::names::rack_key(name.as_bytes()))))
                        .collect(),
                    methods: METHODS.iter().map(|name| key(name)).collect(),
                }
            }
        }
    };
}

const METHODS: [&[u8]; 7] = [b"GET", b"POST", b"HEAD", b"PUT", b"PATCH", b"DELETE", b"OPTIONS"];

names! {
    ids {
        call: "call", each: "each", close: "close", to_path: "to_path", to_ary: "to_ary", to_i: "to_i",
        failed: "failed", finished: "finished", reply_sent: "reply_sent",
        stream: "stream", input: "input", interrupted: "interrupted",
    }
    keys {
        request_method: "REQUEST_METHOD", path_info: "PATH_INFO", request_path: "REQUEST_PATH",
        request_uri: "REQUEST_URI", query_string: "QUERY_STRING", server_name: "SERVER_NAME",
        server_port: "SERVER_PORT", remote_addr: "REMOTE_ADDR", remote_port: "REMOTE_PORT",
        server_protocol: "SERVER_PROTOCOL", http_version: "HTTP_VERSION", url_scheme: "rack.url_scheme",
        https: "HTTPS", content_length: "CONTENT_LENGTH",
        rack_input: "rack.input", queue_time: "firebrick.queue_time", after_reply: "rack.after_reply",
        response_finished: "rack.response_finished",
        http_1_0: "HTTP/1.0", http_1_1: "HTTP/1.1", scheme_http: "http", scheme_https: "https", on: "on",
        empty: "",
    }
    classes {
        exchange: c"Firebrick::Exchange", bad_response: c"Firebrick::BadResponse", client_gone: c"Firebrick::ClientGone",
    }
}

static NAMES: OnceLock<Names> = OnceLock::new();

/// The names; looked up at the first use, which must be with the GVL and may raise.
#[inline]
pub(crate) fn names() -> &'static Names {
    NAMES.get_or_init(Names::look_up)
}

/// The frozen String of a request method.
#[inline]
pub(crate) fn method(name: &[u8]) -> Value {
    match METHODS.iter().position(|known| *known == name) {
        Some(at) => names().methods[at].get(),
        None => ruby::string(name),
    }
}
