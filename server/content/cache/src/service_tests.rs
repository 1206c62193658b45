//! Tests requests that wait for each other, clients that disconnect, and responses that arrive too late.

use super::*;
use crate::purge::Purge;
use crate::testing::settle;
use handler::Departure;
use handler::testing::request;
use std::cell::Cell;
use std::collections::VecDeque;
use std::task::Context;
use tokio::sync::oneshot;

/// An app whose responses are sent when a test says so.
#[derive(Default)]
struct App {
    calls: RefCell<VecDeque<oneshot::Sender<Response>>>,
}

impl Origin for App {
    fn call(self: Rc<Self>, exchange: Exchange) -> Pin<Box<dyn Future<Output = Response>>> {
        drop(exchange);
        let (sender, receiver) = oneshot::channel();
        self.calls.borrow_mut().push_back(sender);
        Box::pin(async move { receiver.await.unwrap_or_else(|_| Response::empty(502)) })
    }
}

impl App {
    /// Answers the oldest call.
    fn answer(&self, status: u16, fields: &[(&str, &str)], body: &'static str) {
        let mut all = Fields::default();
        fields.iter().for_each(|(name, value)| all.push(name.as_bytes(), value.as_bytes()));
        let call = self.calls.borrow_mut().pop_front().expect("the app is asked");
        drop(call.send(Response::new(status, all, Body::Bytes(body.into()))));
    }
}

/// A client that can leave.
#[derive(Default)]
struct Leaving {
    gone: Cell<bool>,
    waker: RefCell<Option<std::task::Waker>>,
}

impl Client for Leaving {
    fn poll_departure(&self, cx: &mut Context<'_>) -> Poll<Departure> {
        self.waker.replace(Some(cx.waker().clone()));
        if self.gone.get() { Poll::Ready(Departure::HalfClosed) } else { Poll::Pending }
    }

    fn interim(&self, _: u16, _: &Fields) {}
}

struct Scene {
    cache: Rc<Cache>,
    app: Rc<App>,
}

type Served = tokio::task::JoinHandle<Response>;

impl Scene {
    /// Sends a request, and lets it come as far as it can.
    async fn ask(&self, method: &str, target: &str, fields: &[(&str, &str)]) -> Served {
        self.ask_for(Rc::new(StayingClient), method, target, fields).await
    }

    async fn ask_for(
        &self,
        client: Rc<dyn Client>,
        method: &str,
        target: &str,
        fields: &[(&str, &str)],
    ) -> Served {
        let exchange = Exchange { client, ..own(request(method, target, fields)) };
        let (cache, app) = (self.cache.clone(), self.app.clone());
        let served = spawn_local(async move { cache.serve(exchange, app).await });
        settle().await;
        served
    }

    fn calls(&self) -> usize {
        self.app.calls.borrow().len()
    }
}

fn play<T>(scene: impl AsyncFnOnce(&Scene) -> T) -> T {
    // Longer than a test takes; the test of the wait itself waits for its end.
    play_with(Duration::from_secs(600), scene)
}

fn play_with<T>(collapse_wait: Duration, scene: impl AsyncFnOnce(&Scene) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let cache = Cache::new(Store::new(1 << 20, Policy { collapse_wait, ..Policy::default() }));
    let set = Scene { cache, app: Rc::default() };
    tokio::task::LocalSet::new().block_on(&runtime.unwrap(), scene(&set))
}

async fn text(served: Served) -> String {
    let response = served.await.unwrap();
    let Body::Bytes(bytes) = response.body else { return response.status.to_string() };
    String::from_utf8(bytes.to_vec()).unwrap()
}

const KEPT: &[(&str, &str)] = &[("Cache-Control", "max-age=60")];
/// Kept, and confirmed before each use.
const STALE_AT_ONCE: &[(&str, &str)] = &[("Cache-Control", "no-cache"), ("ETag", "\"1\"")];

#[test]
fn a_client_that_leaves_while_it_waits_is_noticed_at_once() {
    play(async |scene: &Scene| {
        let first = scene.ask("GET", "/", &[]).await;
        let client = Rc::new(Leaving::default());
        let second = scene.ask_for(client.clone(), "GET", "/", &[]).await;
        assert!(!second.is_finished() && scene.calls() == 1);
        client.gone.set(true);
        client.waker.take().expect("its departure is waited for").wake();
        settle().await;
        assert!(second.is_finished(), "before the first request has its response");
        let response = second.await.unwrap();
        assert_eq!((response.status, response.failure.map(|failure| failure.status)), (499, Some(499)));
        scene.app.answer(200, KEPT, "page");
        assert_eq!(text(first).await, "page");
    });
}

#[test]
fn an_unsafe_request_whose_client_leaves_before_the_response_removes_the_page() {
    for (method, asked_again) in [("POST", 1), ("DELETE", 1), ("OPTIONS", 0)] {
        play(async |scene: &Scene| {
            let first = scene.ask("GET", "/", &[]).await;
            scene.app.answer(200, KEPT, "page");
            assert_eq!(text(first).await, "page");
            let changing = scene.ask(method, "/", &[]).await;
            changing.abort();
            settle().await;
            scene.app.calls.borrow_mut().clear();
            let _second = scene.ask("GET", "/", &[]).await;
            assert_eq!(scene.calls(), asked_again, "{method}");
        });
    }
}

#[test]
fn a_response_for_which_the_app_was_asked_before_a_post_is_not_for_a_request_after_it() {
    play(async |scene: &Scene| {
        let first = scene.ask("GET", "/posts", &[]).await;
        // The app changes the page, but the request has another URL, so no page is invalidated.
        let post = scene.ask("POST", "/posts/new", &[]).await;
        let read = scene.app.calls.borrow_mut().pop_front();
        scene.app.answer(201, &[], "created");
        assert_eq!(text(post).await, "created");
        let after = scene.ask("GET", "/posts", &[]).await;
        assert_eq!(scene.calls(), 0, "it waits for the request that is on its way");
        scene.app.calls.borrow_mut().push_back(read.expect("the app is asked for the page"));
        scene.app.answer(200, STALE_AT_ONCE, "before");
        assert_eq!(text(first).await, "before");
        settle().await;
        assert_eq!(scene.calls(), 1, "the app is asked again");
        scene.app.answer(200, STALE_AT_ONCE, "after");
        assert_eq!(text(after).await, "after");
    });
}

#[test]
fn requests_that_arrive_together_share_a_response_that_is_stale_at_once() {
    play(async |scene: &Scene| {
        // All requests have arrived before the first one reaches the app.
        let all: Vec<Request> = (0..3).map(|_| request("GET", "/", &[])).collect();
        let mut served = Vec::new();
        for request in all {
            let (cache, app) = (scene.cache.clone(), scene.app.clone());
            served.push(spawn_local(async move { cache.serve(own(request), app).await }));
        }
        settle().await;
        assert_eq!(scene.calls(), 1);
        scene.app.answer(200, STALE_AT_ONCE, "page");
        for one in served {
            assert_eq!(text(one).await, "page");
        }
        assert_eq!(scene.calls(), 0);
    });
}

#[test]
fn nothing_that_began_before_a_purge_is_kept_after_it_whoever_asked() {
    // A condition, a range, or `no-cache` beside a flight: each request goes to the app.
    for fields in [&[][..], &[("If-None-Match", "\"0\"")], &[("Range", "bytes=0-3")]] {
        for unsafe_request in [true, false] {
            play(async |scene: &Scene| {
                let asked = scene.ask("GET", "/", fields).await;
                if unsafe_request {
                    let call = scene.app.calls.borrow_mut().pop_front().unwrap();
                    let post = scene.ask("POST", "/", &[]).await;
                    scene.app.answer(204, &[], "");
                    drop(post.await);
                    scene.app.calls.borrow_mut().push_back(call);
                } else {
                    scene.cache.store.purge(&Purge::All);
                }
                match fields.first() {
                    Some(("Range", _)) => {
                        scene.app.answer(206, &[KEPT[0], ("Content-Range", "bytes 0-3/4")], "page");
                    }
                    _ => scene.app.answer(200, KEPT, "page"),
                }
                assert_eq!(text(asked).await, "page");
                settle().await;
                assert!(scene.cache.store.is_empty(), "{fields:?} {unsafe_request}");
            });
        }
    }
}

#[test]
fn a_part_that_is_the_whole_is_kept_as_the_whole() {
    for (range, body, kept) in [
        ("bytes 0-3/4", "page", true),
        ("bytes 0-3/5", "page", false),
        ("bytes 1-4/5", "page", false),
        ("bytes 0-3/*", "page", false),
        ("bytes 0-9/10", "page", false),
        ("bytes 0-18446744073709551615/0", "page", false),
    ] {
        play(async |scene: &Scene| {
            let part = scene.ask("GET", "/", &[("Range", "bytes=0-")]).await;
            scene.app.answer(206, &[KEPT[0], ("Content-Range", range)], body);
            let part = part.await.unwrap();
            assert_eq!((part.status, part.fields.get("content-range")), (206, Some(range.as_bytes())));
            let whole = scene.ask("GET", "/", &[]).await;
            assert_eq!(scene.calls(), usize::from(!kept), "{range}");
            if kept {
                let whole = whole.await.unwrap();
                assert_eq!((whole.status, whole.fields.get("content-range")), (200, None));
            }
        });
    }
}

#[test]
fn a_content_range_of_a_200_is_kept_for_a_200_only() {
    play(async |scene: &Scene| {
        let page = scene.ask("GET", "/", &[]).await;
        scene.app.answer(200, &[KEPT[0], ("ETag", "\"1\""), ("Content-Range", "strange")], "page");
        assert_eq!(text(page).await, "page");
        for (fields, status, range) in [
            (&[][..], 200, Some(&b"strange"[..])),
            (&[("Range", "bytes=1-2")], 206, Some(b"bytes 1-2/4")),
            (&[("Range", "bytes=9-")], 416, Some(b"bytes */4")),
            (&[("If-None-Match", "\"1\"")], 304, None),
        ] {
            let kept = scene.ask("GET", "/", fields).await.await.unwrap();
            let ranges: Vec<&[u8]> = kept.fields.all("content-range").collect();
            assert_eq!((kept.status, ranges), (status, range.into_iter().collect()), "{fields:?}");
        }
    });
}

#[test]
fn what_says_something_about_one_request_is_not_kept() {
    for (fields, status) in [
        (&[("Range", "bytes=90-")][..], 416),
        (&[("If-Match", "\"0\"")], 412),
        (&[("If-Unmodified-Since", "Sun, 06 Nov 1994 08:49:37 GMT")], 412),
        (&[("If-None-Match", "\"0\"")], 304),
    ] {
        play(async |scene: &Scene| {
            let asked = scene.ask("GET", "/", fields).await;
            scene.app.answer(status, KEPT, "");
            assert_eq!(asked.await.unwrap().status, status);
            settle().await;
            assert!(scene.cache.store.is_empty(), "{status}");
        });
    }
}

#[test]
fn conditions_for_the_origin_alone_go_to_it() {
    play(async |scene: &Scene| {
        let page = scene.ask("GET", "/", &[]).await;
        scene.app.answer(200, &[KEPT[0], ("ETag", "\"1\"")], "page");
        assert_eq!(text(page).await, "page");
        for name in ["If-Match", "If-Unmodified-Since"] {
            let asked = scene.ask("GET", "/", &[(name, "\"2\"")]).await;
            scene.app.answer(412, &[], "no");
            assert_eq!(asked.await.unwrap().status, 412);
        }
    });
}

#[test]
fn a_request_whose_response_is_its_own_changes_nothing_for_others() {
    for fields in [
        &[("Cache-Control", "no-cache, no-store")][..],
        &[("Authorization", "x"), ("Cache-Control", "no-cache")],
        &[("X-Forwarded-Host", "evil.example")],
    ] {
        play(async |scene: &Scene| {
            let page = scene.ask("GET", "/", &[]).await;
            scene.app.answer(200, KEPT, "page");
            assert_eq!(text(page).await, "page");
            let own = scene.ask("GET", "/", fields).await;
            scene.app.answer(200, KEPT, "own");
            assert_eq!(text(own).await, "own");
            assert_eq!(text(scene.ask("GET", "/", &[]).await).await, "page", "{fields:?}");
            let key = b"http://example.org/";
            assert!(scene.cache.store.collapses(key, Instant::now()), "{fields:?}");
        });
    }
}

#[test]
fn a_confirmed_response_is_fresh_again() {
    play(async |scene: &Scene| {
        let old = ("Date", "Sun, 06 Nov 1994 08:49:37 GMT");
        let terms = [KEPT[0], ("ETag", "\"1\""), old];
        let page = scene.ask("GET", "/", &[]).await;
        scene.app.answer(200, &terms, "page");
        assert_eq!(text(page).await, "page");
        let confirmed = scene.ask("GET", "/", &[]).await;
        scene.app.answer(304, &terms[..2], "");
        assert_eq!(text(confirmed).await, "page");
        assert_eq!(text(scene.ask("GET", "/", &[]).await).await, "page");
        assert_eq!(scene.calls(), 0, "the date of the 304, which had none, is that of its arrival");
    });
}

#[test]
fn a_client_that_leaves_while_the_app_is_asked_leaves_the_others_together() {
    play(async |scene: &Scene| {
        let page = scene.ask("GET", "/", &[]).await;
        scene.app.answer(200, STALE_AT_ONCE, "page");
        assert_eq!(text(page).await, "page");
        let leaving = scene.ask("GET", "/", &[]).await;
        let mut waiting = Vec::new();
        for _ in 0..3 {
            waiting.push(scene.ask("GET", "/", &[]).await);
        }
        let call = scene.app.calls.borrow_mut().pop_front().unwrap();
        drop(call.send(Failure::client_gone("the client went away").into_response()));
        assert_eq!(leaving.await.unwrap().status, 499);
        settle().await;
        assert_eq!(scene.calls(), 1, "one of the others asks for all");
        scene.app.answer(304, STALE_AT_ONCE, "");
        for one in waiting {
            assert_eq!(text(one).await, "page");
        }
    });
}

#[test]
fn a_response_that_takes_too_long_makes_no_other_request_wait() {
    const WAIT: Duration = Duration::from_millis(100);
    play_with(WAIT, async |scene: &Scene| {
        let first = scene.ask("GET", "/", &[]).await;
        let second = scene.ask("GET", "/", &[]).await;
        tokio::time::sleep(WAIT + Duration::from_millis(10)).await;
        settle().await;
        assert_eq!(scene.calls(), 2, "the second goes to the app itself");
        let third = scene.ask("GET", "/", &[]).await;
        assert_eq!(scene.calls(), 3, "the third does not wait");
        for (served, body) in [(first, "1"), (second, "2"), (third, "3")] {
            scene.app.answer(200, &[], body);
            assert_eq!(text(served).await, body);
        }
    });
}
