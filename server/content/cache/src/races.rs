//! Checks random orders of requests, responses, and changes of a page: once a change is complete, no client
//! gets an older version of the page.
//!
//! The app reads the version of a page when a request arrives, and responds at a later step of the order. A
//! change raises the version, and then removes the page from the cache, by an unsafe request or a purge.

use crate::policy::Policy;
use crate::purge::Purge;
use crate::service::{Cache, Origin};
use crate::store::Store;
use crate::testing::{self, One, settle};
use bytes::Bytes;
use handler::testing::request;
use handler::{Body, Exchange, Fields, Response};
use proptest::prelude::*;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::oneshot;

#[derive(Debug, Clone)]
enum Step {
    /// A client sends a request, with one of the fields of the list.
    Ask { page: usize, with: usize },
    /// The app responds to the request that is older than `number` others.
    Answer { number: usize, streams: bool },
    /// The page changes, and is then removed in one of these ways.
    Change { page: usize, way: usize },
}

const PAGES: [&str; 3] = ["/fresh", "/validated", "/guessed"];

/// The field that states how each page may be kept.
const SAYS: [(&str, &str); 3] = [
    ("Cache-Control", "max-age=1000"),
    ("Cache-Control", "no-cache"),
    ("Last-Modified", "Sun, 06 Nov 1994 08:49:37 GMT"),
];

const NO_CACHE: (&str, &str) = ("Cache-Control", "no-cache");

const WITH: [&[(&str, &str)]; 8] = [
    &[],
    &[("If-None-Match", "\"unknown\"")],
    &[NO_CACHE],
    &[("Range", "bytes=0-0")],
    &[NO_CACHE, ("If-None-Match", "\"unknown\"")],
    &[("Cache-Control", "no-cache, no-store")],
    &[NO_CACHE, ("Authorization", "Bearer secret")],
    &[NO_CACHE, ("Cookie", "a=1")],
];

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..PAGES.len(), 0..WITH.len()).prop_map(|(page, with)| Step::Ask { page, with }),
        3 => (0_usize..4, any::<bool>()).prop_map(|(number, streams)| Step::Answer { number, streams }),
        1 => (0..PAGES.len(), 0_usize..4).prop_map(|(page, way)| Step::Change { page, way }),
    ]
}

#[derive(Default)]
struct App {
    versions: [Cell<u32>; PAGES.len()],
    waiting: RefCell<Vec<oneshot::Sender<bool>>>,
}

impl Origin for App {
    fn call(self: Rc<Self>, exchange: Exchange) -> Pin<Box<dyn Future<Output = Response>>> {
        let request = exchange.request;
        let mut fields = Fields::default();
        if request.method() == b"POST" {
            return Box::pin(async { Response::new(204, fields, Body::Empty) });
        }
        let page = PAGES.iter().position(|page| request.path() == page.as_bytes()).expect("a known page");
        let version = self.versions[page].get();
        let tag = format!("\"{version}\"");
        for (name, value) in [SAYS[page], ("Cache-Tag", PAGES[page]), ("ETag", &*tag)] {
            // An entity tag switches the guess of a lifetime off.
            if name != "ETag" || page != 2 {
                fields.push(name.as_bytes(), value.as_bytes());
            }
        }
        let known = request.fields.get("if-none-match") == Some(tag.as_bytes());
        let (answer, answered) = oneshot::channel();
        self.waiting.borrow_mut().push(answer);
        Box::pin(async move {
            let streams = answered.await.unwrap_or(false);
            let body = Bytes::from(version.to_string());
            match (known, streams) {
                (true, _) => Response::new(304, fields, Body::Empty),
                (false, true) => Response::new(200, fields, Body::Stream(Box::new(One::of(body)))),
                (false, false) => Response::new(200, fields, Body::Bytes(body)),
            }
        })
    }
}

impl App {
    fn answer(&self, number: usize, streams: bool) {
        let mut waiting = self.waiting.borrow_mut();
        if !waiting.is_empty() {
            let number = number % waiting.len();
            let _ = waiting.remove(number).send(streams);
        }
    }
}

async fn change(app: &Rc<App>, cache: &Rc<Cache>, store: &Arc<Store>, page: usize, way: usize) {
    app.versions[page].set(app.versions[page].get() + 1);
    match way {
        0 => {
            let exchange = testing::exchange(request("POST", PAGES[page], &[]));
            drop(cache.serve(exchange, app.clone()).await);
        }
        1 => _ = store.purge(&Purge::Path(PAGES[page].into())),
        2 => _ = store.purge(&Purge::Tag(PAGES[page].into())),
        _ => _ = store.purge(&Purge::Prefix(PAGES[page].into())),
    }
}

async fn run(steps: &[Step]) -> Result<(), String> {
    let policy = Policy { client_control: true, ..Policy::default() };
    let store = Store::new(1 << 20, policy);
    let cache = Cache::new(store.clone());
    let app = Rc::new(App::default());
    let mut clients = Vec::new();
    let last = (0..PAGES.len()).map(|page| Step::Ask { page, with: 0 });
    for step in steps.iter().cloned().chain(last) {
        match step {
            Step::Ask { page, with } => {
                let exchange = testing::exchange(request("GET", PAGES[page], WITH[with]));
                let (cache, app, least) = (cache.clone(), app.clone(), app.versions[page].get());
                clients.push(tokio::task::spawn_local(async move {
                    let response = cache.serve(exchange, app).await;
                    let body = testing::body(response).await;
                    let version: u32 = body.parse().map_err(|_| format!("{body:?} is no version"))?;
                    match version < least {
                        true => Err(format!("version {version} of {}, changed to {least}", PAGES[page])),
                        false => Ok(()),
                    }
                }));
            }
            Step::Answer { number, streams } => app.answer(number, streams),
            Step::Change { page, way } => change(&app, &cache, &store, page, way).await,
        }
        settle().await;
    }
    while !app.waiting.borrow().is_empty() {
        app.answer(0, false);
        settle().await;
    }
    for client in clients {
        client.await.map_err(|error| error.to_string())??;
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_older_than_a_change_is_sent_after_it(steps in prop::collection::vec(step(), 3..14)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let outcome = tokio::task::LocalSet::new().block_on(&runtime, run(&steps));
        prop_assert_eq!(outcome, Ok(()));
    }
}

/// A client cannot remove a page for the others, or make their requests go to the app one by one, whatever it
/// sends and whatever the app responds.
#[test]
fn a_kept_page_survives_the_requests_of_single_clients() {
    for (page, with) in [0, 2].into_iter().flat_map(|page| WITH.iter().map(move |with| (page, with))) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let policy = Policy { client_control: true, ..Policy::default() };
            let store = Store::new(1 << 20, policy);
            let (cache, app) = (Cache::new(store.clone()), Rc::new(App::default()));
            let mut asked = Vec::new();
            for with in [&[], *with, &[]] {
                let exchange = testing::exchange(request("GET", PAGES[page], with));
                let (cache, origin) = (cache.clone(), app.clone());
                let served = tokio::task::spawn_local(async move { cache.serve(exchange, origin).await });
                settle().await;
                asked.push(!app.waiting.borrow().is_empty());
                app.answer(0, false);
                drop(served.await.unwrap());
            }
            assert_eq!((asked[0], asked[2]), (true, false), "{}: {with:?}", PAGES[page]);
            let key = format!("http://example.org{}", PAGES[page]);
            assert!(store.collapses(key.as_bytes(), std::time::Instant::now()), "{with:?}");
        });
    }
}
