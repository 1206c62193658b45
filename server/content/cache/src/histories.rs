//! Checks random histories of requests against a model of RFC 9111: no response that belongs to one client is
//! sent to another.
//!
//! The model identifies each response by a serial number in its body, and records the client that requested
//! it and its fields. It does not use the cache's parsers: the fields come from a list, and the model knows
//! the meaning of each entry.

use crate::policy::Policy;
use crate::service::{Cache, Origin};
use crate::store::Store;
use crate::testing::{One, body, exchange};
use handler::testing::request;
use handler::{Body, Exchange, Fields, Peer, PeerAddr, Request, Response};
use proptest::prelude::*;
use settings::TrustedProxies;
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

/// The terms of a response in the model.
#[derive(Debug, Clone, Copy)]
struct ResponseTerms {
    fields: &'static [(&'static str, &'static str)],
    /// The response may be kept for other clients, unless another term forbids it.
    shared: bool,
    public: bool,
    sets_cookie: bool,
    varies_by_cookie: bool,
    varies_by_language: bool,
    /// It may be sent again without asking the origin.
    fresh: bool,
    /// It allows itself that it is kept for a request with Authorization.
    with_authorization: bool,
}

const NONE: ResponseTerms = ResponseTerms {
    fields: &[],
    shared: true,
    public: false,
    sets_cookie: false,
    varies_by_cookie: false,
    varies_by_language: false,
    fresh: false,
    with_authorization: false,
};

const TERMS: &[ResponseTerms] = &[
    ResponseTerms { fields: &[("Cache-Control", "max-age=1000")], fresh: true, ..NONE },
    ResponseTerms {
        fields: &[("Cache-Control", "public, max-age=1000")],
        fresh: true,
        public: true,
        with_authorization: true,
        ..NONE
    },
    ResponseTerms {
        fields: &[("Cache-Control", "s-maxage=1000")],
        fresh: true,
        with_authorization: true,
        ..NONE
    },
    ResponseTerms { fields: &[("Cache-Control", "private, max-age=1000")], shared: false, ..NONE },
    ResponseTerms {
        fields: &[("Cache-Control", "max-age=1000"), ("Cache-Control", "PRIVATE")],
        shared: false,
        ..NONE
    },
    ResponseTerms { fields: &[("Cache-Control", "no-store, max-age=1000")], shared: false, ..NONE },
    ResponseTerms { fields: &[("Cache-Control", "no-cache"), ("ETag", "\"a\"")], ..NONE },
    ResponseTerms {
        fields: &[("Cache-Control", "max-age=0, must-revalidate"), ("ETag", "\"b\"")],
        with_authorization: true,
        ..NONE
    },
    ResponseTerms {
        fields: &[("Cache-Control", "max-age=1000"), ("Set-Cookie", "s=1")],
        fresh: true,
        sets_cookie: true,
        ..NONE
    },
    ResponseTerms {
        fields: &[("Cache-Control", "public, max-age=1000"), ("Set-Cookie", "s=1")],
        fresh: true,
        public: true,
        sets_cookie: true,
        with_authorization: true,
        ..NONE
    },
    ResponseTerms {
        fields: &[("Cache-Control", "max-age=1000"), ("Vary", "cookie")],
        fresh: true,
        varies_by_cookie: true,
        ..NONE
    },
    ResponseTerms {
        fields: &[("Cache-Control", "public, max-age=1000"), ("Vary", "Accept-Encoding, Cookie")],
        fresh: true,
        public: true,
        varies_by_cookie: true,
        with_authorization: true,
        ..NONE
    },
    ResponseTerms {
        fields: &[("Cache-Control", "max-age=1000"), ("Vary", "Accept-Language")],
        fresh: true,
        varies_by_language: true,
        ..NONE
    },
    ResponseTerms { fields: &[("Cache-Control", "max-age=1000"), ("Vary", "*")], shared: false, ..NONE },
    ResponseTerms {
        fields: &[("CDN-Cache-Control", "private"), ("Cache-Control", "max-age=1000")],
        shared: false,
        ..NONE
    },
    ResponseTerms { fields: &[("ETag", "\"c\"")], shared: false, ..NONE },
    ResponseTerms { fields: &[], shared: false, ..NONE },
    ResponseTerms { fields: &[("Expires", "Fri, 01 Jan 2100 00:00:00 GMT")], fresh: true, ..NONE },
    ResponseTerms { fields: &[("Expires", "0")], shared: false, ..NONE },
    ResponseTerms {
        fields: &[("Cache-Control", "private=\"Set-Cookie\", max-age=1000"), ("Set-Cookie", "s=1")],
        fresh: true,
        ..NONE
    },
];

/// A step of a history.
#[derive(Debug, Clone)]
struct Step {
    method: &'static str,
    target: usize,
    /// The number of the client; its cookie and its secret are its own.
    client: usize,
    cookie: bool,
    authorization: bool,
    language: &'static str,
    /// A field that the app uses to build its links.
    forwarding: Option<(&'static str, &'static str)>,
    /// Whether the client is a trusted proxy.
    trusted: bool,
    /// The number of the response that the app will give to this request.
    said: usize,
    status: u16,
    streams: bool,
}

fn step() -> impl Strategy<Value = Step> {
    let method = prop_oneof![8 => Just("GET"), 1 => Just("HEAD"), 1 => Just("POST")];
    let status = prop_oneof![9 => Just(200_u16), 1 => Just(404), 1 => Just(500)];
    let who = (0_usize..3, any::<bool>(), prop::bool::weighted(0.2), prop::sample::select(vec!["en", "de"]));
    let forwarding = prop::option::weighted(0.3, prop::sample::select(FORWARDED.to_vec()));
    let link = (forwarding, any::<bool>());
    (method, 0_usize..2, who, link, 0..TERMS.len(), (status, any::<bool>())).prop_map(
        |(
            method,
            target,
            (client, cookie, authorization, language),
            (forwarding, trusted),
            said,
            (status, streams),
        )| Step {
            method,
            target,
            client,
            cookie,
            authorization,
            language,
            forwarding,
            trusted,
            said,
            status,
            streams,
        },
    )
}

/// Fields with which a client could get its own links into another client's page.
const FORWARDED: &[(&str, &str)] = &[
    ("X-Forwarded-Host", "one.example"),
    ("x-forwarded-host", "other.example"),
    ("X-Forwarded-Proto", "https"),
    ("Forwarded", "for=192.0.2.7;host=one.example"),
    ("Forwarded", "host=other.example"),
    ("X-Original-URL", "/admin"),
    ("X-HTTP-Method-Override", "DELETE"),
];

/// The app: it numbers its responses, and confirms no version.
#[derive(Default)]
struct App {
    next: RefCell<Option<(usize, u16, bool)>>,
    /// The terms of each response, by the number in its body.
    said: RefCell<Vec<usize>>,
}

impl Origin for App {
    fn call(self: Rc<Self>, exchange: Exchange) -> Pin<Box<dyn Future<Output = Response>>> {
        let (said, status, streams) = self.next.borrow().expect("a step has said what the app says");
        let mut fields = Fields::default();
        TERMS[said].fields.iter().for_each(|(name, value)| fields.push(name.as_bytes(), value.as_bytes()));
        let serial = self.said.borrow().len();
        self.said.borrow_mut().push(said);
        drop(exchange);
        let body = bytes::Bytes::from(serial.to_string());
        let body = if streams { Body::Stream(Box::new(One::of(body))) } else { Body::Bytes(body) };
        Box::pin(async move { Response::new(status, fields, body) })
    }
}

fn asked(step: &Step) -> Request {
    let cookie = format!("user={}", step.client);
    let secret = format!("Bearer {}", step.client);
    let mut all = vec![("Accept-Language", step.language)];
    if step.cookie {
        all.push(("Cookie", &cookie));
    }
    if step.authorization {
        all.push(("Authorization", &secret));
    }
    all.extend(step.forwarding);
    let request = request(step.method, ["/one", "/two?a=1"][step.target], &all);
    let address = if step.trusted { [10, 0, 0, 1] } else { [192, 0, 2, 1] };
    let peer = Peer {
        remote: PeerAddr::Inet((address, 1).into()),
        remote_text: Box::default(),
        local: PeerAddr::Unix,
        tls: false,
        session: None,
    };
    Request { peer: Rc::new(peer), ..request }
}

/// Returns the field that the app builds its links from.
fn link(step: &Step) -> Option<(String, &'static str)> {
    step.forwarding
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim_start_matches("for=192.0.2.7;")))
}

/// Serves a request as the pipeline does.
async fn served(cache: &Rc<Cache>, exchange: Exchange, app: &Rc<App>) -> Response {
    match cache.hit(&exchange) {
        Some(response) => response,
        None => cache.serve(exchange, app.clone()).await,
    }
}

/// Returns whether the response to `first` may be sent for `again` without asking the app.
fn may_share(policy: &Policy, said: &ResponseTerms, first: &Step, again: &Step) -> bool {
    let secret = said.sets_cookie || said.varies_by_cookie;
    said.shared
        && said.fresh
        && first.target == again.target
        && first.method == "GET"
        && (!secret || said.public && policy.cookies)
        && (!first.authorization || policy.authorization && said.with_authorization)
        && (!said.varies_by_cookie
            || (first.cookie, first.cookie && first.client == again.client) == (again.cookie, again.cookie))
        && (!said.varies_by_language || first.language == again.language)
        && (first.forwarding.is_none() || first.trusted)
        && link(first) == link(again)
}

/// Runs a history. Returns the first violation.
async fn run(policy: Policy, steps: &[Step]) -> Result<(), String> {
    let store = Store::new(1 << 20, policy.clone());
    let cache = Cache::new(store);
    let app = Rc::new(App::default());
    // The steps that the app has answered, by the numbers of their responses.
    let mut answered: Vec<Step> = Vec::new();
    for step in steps {
        app.next.replace(Some((step.said, step.status, step.streams)));
        let before = app.said.borrow().len();
        let exchange = exchange(asked(step));
        let response = served(&cache, exchange, &app).await;
        let calls = app.said.borrow().len() - before;
        if calls > 1 {
            return Err(format!("{calls} calls for one request"));
        }
        if calls == 1 {
            answered.push(step.clone());
        }
        let status = response.status;
        let serial: usize = match body(response).await.parse() {
            Ok(serial) => serial,
            Err(_) => return Err(format!("a body without number for {step:?}")),
        };
        let first = &answered[serial];
        if calls == 1 && serial != before {
            return Err(format!("{step:?} asked the app and got the response to {first:?}"));
        }
        let said = &TERMS[app.said.borrow()[serial]];
        if calls == 0 && !may_share(&policy, said, first, step) {
            return Err(format!("{step:?} got the response to {first:?}, which said {said:?}"));
        }
        if calls == 0 && status != first.status {
            return Err(format!("{step:?} got {status} for {}", first.status));
        }
        // All responses are kept by now: the tasks that gather bodies have nothing to wait for.
        tokio::task::yield_now().await;
    }
    Ok(())
}

/// The number of histories; the variable `CACHE_HISTORIES` sets a larger number.
fn cases() -> u32 {
    std::env::var("CACHE_HISTORIES").ok().and_then(|text| text.parse().ok()).unwrap_or(4000)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_of_one_client_is_sent_to_another(
        steps in prop::collection::vec(step(), 2..14),
        cookies: bool,
        authorization: bool,
        sort_query: bool,
    ) {
        let trusted = TrustedProxies { networks: vec!["10.0.0.0/8".parse().unwrap()], unix: false };
        let policy = Policy { cookies, authorization, sort_query, trusted, ..Policy::default() };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let local = tokio::task::LocalSet::new();
        let outcome = local.block_on(&runtime, run(policy, &steps));
        prop_assert_eq!(outcome, Ok(()));
    }
}

#[test]
fn the_model_sees_hits_at_all() {
    let step = |client, said| Step {
        method: "GET",
        target: 0,
        client,
        cookie: true,
        authorization: false,
        language: "en",
        forwarding: None,
        trusted: false,
        said,
        status: 200,
        streams: true,
    };
    let app = Rc::new(App::default());
    let cache = Cache::new(Store::new(1 << 20, Policy::default()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        for client in 0..5 {
            app.next.replace(Some((0, 200, true)));
            let exchange = exchange(asked(&step(client, 0)));
            assert_eq!(body(served(&cache, exchange, &app).await).await, "0");
            tokio::task::yield_now().await;
        }
    });
    assert_eq!(app.said.borrow().len(), 1);
}
