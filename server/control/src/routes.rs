//! Routes requests and builds responses. Pure, except for the provider's figures.

use crate::cache::PurgeOrder;
use crate::caller::ControlCaller;
use crate::changes::{SetOrder, UndoOrder};
use crate::gate::{Gate, Refusal};
use crate::heap::HeapWish;
use crate::metrics::{self, Format};
use crate::orders::{MaintenanceOrder, OrderError, PauseOrder};
use crate::page;
use crate::profile::ProfileOrder;
use crate::provider::{Provider, PumaCommand};
use crate::record::RecordOrder;
use crate::reload::Reply;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Body, Bytes};
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::json;
use stats::{History, RecentLoad, ReloadStep, ReloadWish, RouteOrder};
use std::cell::RefCell;
use std::time::Duration;
use std::time::Instant;
use tokio::sync::mpsc;

/// The requested resolution of the histograms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Buckets {
    None,
    Coarse,
    Fine,
}

#[derive(Debug, PartialEq)]
enum Route {
    Index,
    Dashboard,
    Stats(Buckets),
    PumaStats,
    Requests {
        limit: usize,
        backtraces: bool,
    },
    History,
    /// The largest number of deaths.
    Deaths(usize),
    /// The requests that are kept of a death.
    KeptRequests(u64),
    /// The largest number of routes and of resources.
    Cache(usize),
    /// The figures of the hub: the largest number of streams.
    Hub(usize),
    /// The kept responses for a URL.
    Cached(String),
    /// The figures by route: the order, the largest number, whether with buckets, whether with advice.
    Routes(RouteOrder, usize, bool, bool),
    ResetRoutes,
    Purge,
    Heap(HeapWish),
    BadHeap,
    Reload(ReloadWish),
    /// The time of a shadow is not a number.
    BadShadow,
    /// The findings of the last reload's shadow.
    Differences,
    Upgrade,
    /// A profile, or which parameter of it is wrong.
    Profile(Result<ProfileOrder, String>),
    /// A recording of requests, or which parameter of it is wrong.
    Record(Result<RecordOrder, String>),
    /// The state of an interruption.
    Paused,
    Maintenance,
    /// An order to interrupt service, or to go on.
    Interruption(Interruption),
    /// The shape that follows the objective.
    Shape,
    /// The changes of settings.
    Settings,
    /// An order to change settings, or to take a change back.
    Set,
    UndoSet,
    /// An order of Puma's tools; `None` if there is nothing to do.
    Order(Option<PumaCommand>),
    /// A command of pumactl that Firebrick does not have, with the reason.
    Unsupported(&'static str),
    Metrics(Format),
    Live,
    Ready,
    Status,
    BadLimit,
    UnknownOrder,
    UnknownFormat,
    NotFound,
    MethodNotAllowed(&'static str),
}

/// Orders to interrupt service, or to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Interruption {
    Pause,
    Resume,
    MaintenanceOn,
    MaintenanceOff,
}

/// The most bytes of an order: a page, escaped as JSON, and the rest.
const LARGEST_ORDER: usize = 2 << 20;

/// The source of the responses' figures.
pub(crate) struct Source<P> {
    pub(crate) provider: P,
    pub(crate) history: RefCell<History>,
    pub(crate) recent: RefCell<RecentLoad>,
}

/// The body of a request.
pub(crate) trait OrderBody:
    Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>>
{
}

impl<B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>>> OrderBody for B {}

/// Responds to requests on the control sockets.
pub(crate) trait Respond: 'static {
    /// Returns the response to one request. The request must pass the gate, if there is one.
    fn respond<B: OrderBody>(
        &self,
        request: Request<B>,
        gate: Option<&Gate>,
    ) -> impl Future<Output = Response<Reply>>;
}

impl<P: Provider + 'static> Respond for Source<P> {
    async fn respond<B: OrderBody>(&self, request: Request<B>, gate: Option<&Gate>) -> Response<Reply> {
        respond(request, self, gate).await
    }
}

async fn respond<B: OrderBody, P: Provider>(
    request: Request<B>,
    source: &Source<P>,
    gate: Option<&Gate>,
) -> Response<Reply> {
    let (head, body) = request.into_parts();
    let route = route(&head);
    let admitted = gate.map_or(Ok(()), |gate| admit(gate, &head, &route));
    match (&route, &admitted) {
        (Route::Reload(wish), Ok(())) => return lines(source.provider.reload(*wish)),
        (Route::Heap(wish), Ok(())) => return streamed(Reply::later(source.provider.heap(wish.clone()))),
        (Route::Profile(order), Ok(())) => return profile(order.clone(), &source.provider).await,
        (Route::Record(order), Ok(())) => {
            let begun = match order.clone().map_err(invalid) {
                Ok(order) => source.provider.record(order).map_err(refused_order),
                Err(refusal) => Err(refusal),
            };
            return match begun {
                Ok(lines) => streamed(Reply::recorded(lines)),
                Err(refusal) => ordered(Err(refusal)),
            };
        }
        (Route::Upgrade, Ok(())) => return lines(source.provider.upgrade()),
        (Route::Order(Some(order)), Ok(())) => source.provider.order(*order),
        (Route::ResetRoutes, Ok(())) => source.provider.reset_routes(),
        (Route::Purge, Ok(())) => return ordered(purge(body, &source.provider).await),
        (Route::Interruption(order), Ok(())) => {
            return ordered(interrupt(*order, body, &source.provider).await);
        }
        (Route::Set | Route::UndoSet, Ok(())) => {
            let caller = head.extensions.get().copied().unwrap_or(ControlCaller::User(None));
            let undo = route == Route::UndoSet;
            return ordered(change(undo, body, caller, &source.provider).await);
        }
        _ => {}
    }
    let mut response = match admitted {
        Ok(()) => reply(route, source).await,
        Err(refusal) => refused(&refusal),
    };
    page::guard(&mut response);
    response.map(Reply::Whole)
}

/// Carries an order out. Returns the new state as JSON, or why not.
async fn interrupt<B: OrderBody, P: Provider>(
    order: Interruption,
    body: B,
    provider: &P,
) -> Result<String, (StatusCode, String)> {
    let bytes = order_bytes(body).await?;
    let written = match order {
        Interruption::Pause => {
            let order = order_of::<PauseOrder>(&bytes).and_then(|order| order.check()).map_err(invalid)?;
            serde_json::to_string_pretty(&provider.pause(order).await.map_err(refused_order)?)
        }
        Interruption::Resume => serde_json::to_string_pretty(&provider.resume().map_err(refused_order)?),
        Interruption::MaintenanceOn => {
            let order =
                order_of::<MaintenanceOrder>(&bytes).and_then(|order| order.check()).map_err(invalid)?;
            serde_json::to_string_pretty(&provider.begin_maintenance(order).map_err(refused_order)?)
        }
        Interruption::MaintenanceOff => {
            serde_json::to_string_pretty(&provider.end_maintenance().map_err(refused_order)?)
        }
    };
    written.map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
}

/// Changes settings, or takes a change back. Returns the change as JSON, or why not.
async fn change<B: OrderBody, P: Provider>(
    undo: bool,
    body: B,
    caller: ControlCaller,
    provider: &P,
) -> Result<String, (StatusCode, String)> {
    let bytes = order_bytes(body).await?;
    let report = match undo {
        true => provider.undo(order_of::<UndoOrder>(&bytes).map_err(invalid)?, caller),
        false => {
            let order = order_of::<SetOrder>(&bytes).and_then(|order| order.check()).map_err(invalid)?;
            provider.set(order, caller)
        }
    };
    serde_json::to_string_pretty(&report.map_err(refused_order)?)
        .map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
}

/// Removes kept responses. Returns the removed number as JSON, or the reason for a refusal.
async fn purge<B: OrderBody, P: Provider>(body: B, provider: &P) -> Result<String, (StatusCode, String)> {
    let order: PurgeOrder = order_of(&order_bytes(body).await?).map_err(invalid)?;
    order.check().map_err(invalid)?;
    let purged = provider.purge(order).await.map_err(refused_order)?;
    serde_json::to_string_pretty(&purged)
        .map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
}

fn ordered(result: Result<String, (StatusCode, String)>) -> Response<Reply> {
    let mut response = match result {
        Ok(json) => json_response(StatusCode::OK, json),
        Err((status, why)) => json_response(status, pretty(&json!({ "error": why }))),
    };
    page::guard(&mut response);
    response.map(Reply::Whole)
}

/// Has a profile taken. The document comes later; a refusal at once.
async fn profile<P: Provider>(order: Result<ProfileOrder, String>, provider: &P) -> Response<Reply> {
    let begun = match order {
        Ok(_) if !provider.has_figures() => {
            Err((StatusCode::SERVICE_UNAVAILABLE, "the app is still loading; /status says more".to_owned()))
        }
        Ok(order) => provider.profile(order).await.map_err(refused_order),
        Err(why) => Err(invalid(why)),
    };
    match begun {
        Ok(text) => {
            let mut response = Response::new(Full::default());
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            page::guard(&mut response);
            response.map(|_| Reply::later(text))
        }
        Err(refusal) => ordered(Err(refusal)),
    }
}

fn invalid(why: String) -> (StatusCode, String) {
    (StatusCode::BAD_REQUEST, why)
}

fn refused_order(error: OrderError) -> (StatusCode, String) {
    match error {
        OrderError::Invalid(why) => invalid(why),
        OrderError::Conflict(why) => (StatusCode::CONFLICT, why),
    }
}

/// Reads the body of an order.
async fn order_bytes<B: OrderBody>(body: B) -> Result<Bytes, (StatusCode, String)> {
    let collected = Limited::new(body, LARGEST_ORDER).collect().await;
    let collected = collected.map_err(|error| match error.downcast_ref::<LengthLimitError>() {
        Some(_) => (StatusCode::PAYLOAD_TOO_LARGE, format!("an order has at most {LARGEST_ORDER} bytes")),
        None => invalid(format!("the order is not complete: {error}")),
    })?;
    Ok(collected.to_bytes())
}

/// Reads an order. An empty body is an order with every field left out.
fn order_of<T: DeserializeOwned + Default>(bytes: &[u8]) -> Result<T, String> {
    if bytes.is_empty() {
        return Ok(T::default());
    }
    serde_json::from_slice(bytes).map_err(|error| format!("the order cannot be read: {error}"))
}

fn admit(gate: &Gate, head: &Parts, route: &Route) -> Result<(), Refusal> {
    gate.admits_host(head)?;
    // The page asks for the token itself and contains no figures. Probes cannot always send a token, and
    // reveal little more than that there is a server.
    match route {
        Route::Dashboard | Route::Live | Route::Ready => Ok(()),
        _ => gate.admits_token(head),
    }
}

fn lines(lines: mpsc::UnboundedReceiver<ReloadStep>) -> Response<Reply> {
    streamed(Reply::lines(lines))
}

fn streamed(body: Reply) -> Response<Reply> {
    let mut response = Response::new(Full::default());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    page::guard(&mut response);
    response.map(|_| body)
}

async fn reply<P: Provider>(route: Route, source: &Source<P>) -> Response<Full<Bytes>> {
    let needs_figures = matches!(
        route,
        Route::Stats(_)
            | Route::PumaStats
            | Route::Requests { .. }
            | Route::History
            | Route::Shape
            | Route::Deaths(_)
            | Route::Differences
            | Route::KeptRequests(_)
            | Route::Cache(_)
            | Route::Hub(_)
            | Route::Cached(_)
            | Route::Routes(..)
            | Route::ResetRoutes
            | Route::Metrics(_)
    );
    if needs_figures && !source.provider.has_figures() {
        return refuse(StatusCode::SERVICE_UNAVAILABLE, "the app is still loading; /status says more");
    }
    match route {
        Route::Metrics(format) => {
            let mut snapshot = source.provider.scraped().await;
            snapshot.front = snapshot.front.with_coarse_buckets();
            let ready = source.provider.status().await.ready;
            let page = metrics::render(&snapshot, &source.recent.borrow(), ready, format);
            let mut response = Response::new(Full::new(Bytes::from(page)));
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(format.content_type()));
            response
        }
        Route::Live => {
            let status = source.provider.status().await;
            verdict(status.live, status.reason)
        }
        Route::Ready => {
            let status = source.provider.status().await;
            verdict(status.ready, status.reason)
        }
        Route::Paused => written(serde_json::to_string_pretty(&source.provider.paused())),
        Route::Maintenance => written(serde_json::to_string_pretty(&source.provider.maintenance())),
        Route::Shape => written(serde_json::to_string_pretty(&source.provider.scraped().await.shape)),
        Route::Settings => written(serde_json::to_string_pretty(&source.provider.changes())),
        Route::Status => written(serde_json::to_string_pretty(&source.provider.status().await)),
        Route::Index => json_response(StatusCode::OK, pretty(&json!({ "endpoints": endpoints() }))),
        Route::Dashboard => page::dashboard(),
        Route::Stats(buckets) => {
            let mut snapshot = source.provider.stats().await;
            snapshot.front = match buckets {
                Buckets::None => snapshot.front.without_buckets(),
                Buckets::Coarse => snapshot.front.with_coarse_buckets(),
                Buckets::Fine => snapshot.front,
            };
            // Fine buckets are many, and meant for programs.
            let fine = buckets == Buckets::Fine;
            written(if fine { serde_json::to_string(&snapshot) } else { snapshot.to_json() })
        }
        Route::PumaStats => written(source.provider.stats().await.to_puma_json()),
        Route::Requests { limit, backtraces } => {
            written(serde_json::to_string_pretty(&source.provider.requests(limit, backtraces).await))
        }
        Route::History => {
            if source.history.borrow().is_empty() {
                // The first sample may not have been taken yet.
                let snapshot = source.provider.stats().await;
                source.history.borrow_mut().add(snapshot, Instant::now());
            }
            written(source.history.borrow().to_json())
        }
        Route::Hub(limit) => written(serde_json::to_string_pretty(&source.provider.hub(limit))),
        Route::Cache(limit) => written(serde_json::to_string_pretty(&source.provider.cache(limit))),
        Route::Routes(order, limit, buckets, advice) => {
            let mut routes = source.provider.routes().await.sorted(order);
            if advice {
                routes.advice = Some(stats::advice::advise(&routes, &source.provider.stats().await));
            }
            routes.routes.truncate(limit);
            written(serde_json::to_string_pretty(&if buckets { routes } else { routes.without_buckets() }))
        }
        // The figures were forgotten before.
        Route::ResetRoutes => json_response(StatusCode::OK, r#"{ "status": "ok" }"#.to_owned()),
        Route::Cached(key) => written(serde_json::to_string_pretty(&source.provider.cached(&key))),
        Route::Differences => written(serde_json::to_string_pretty(&source.provider.differences().await)),
        Route::KeptRequests(death) => {
            written(serde_json::to_string_pretty(&source.provider.kept_requests(death).await))
        }
        Route::Deaths(limit) => {
            let mut deaths = source.provider.deaths().await;
            deaths.truncate(limit);
            written(serde_json::to_string_pretty(&deaths))
        }
        // The order was given before.
        Route::Order(_) => json_response(StatusCode::OK, r#"{ "status": "ok" }"#.to_owned()),
        Route::Unsupported(why) => unsupported(why),
        Route::BadShadow => refuse(
            StatusCode::BAD_REQUEST,
            "shadow is a number of seconds from 0.1 to 86400, such as shadow=120, or 0 for none",
        ),
        Route::BadLimit => refuse(
            StatusCode::BAD_REQUEST,
            "limit is a number from 1, such as limit=20; kept is the number of a death",
        ),
        Route::BadHeap => refuse(
            StatusCode::BAD_REQUEST,
            "worker, pid and trace are numbers: /heap?worker=1&pid=4711&trace=300",
        ),
        Route::UnknownOrder => {
            refuse(StatusCode::BAD_REQUEST, &format!("unknown order: it is one of {}", RouteOrder::names()))
        }
        Route::UnknownFormat => refuse(StatusCode::BAD_REQUEST, "unknown format: it is native or puma"),
        Route::NotFound => refuse(StatusCode::NOT_FOUND, "no such endpoint"),
        // Such a request was handled or refused before.
        Route::Heap(_)
        | Route::Reload(_)
        | Route::Upgrade
        | Route::Profile(_)
        | Route::Record(_)
        | Route::Purge
        | Route::Set
        | Route::UndoSet
        | Route::Interruption(_) => refuse(StatusCode::FORBIDDEN, "not permitted"),
        Route::MethodNotAllowed(allowed) => {
            let mut response =
                refuse(StatusCode::METHOD_NOT_ALLOWED, &format!("only {allowed} is understood here"));
            response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
            response
        }
    }
}

/// The default limit of `/requests`.
const SHOWN: usize = 20;

/// Paths that are understood.
struct Endpoint {
    methods: &'static str,
    paths: Words,
    /// The entry in the list of endpoints; empty if there is none.
    gives: &'static str,
    route: Find,
}

type Find = fn(&Query<'_>) -> Route;
type Words = &'static [&'static str];

const fn get(paths: Words, gives: &'static str, route: Find) -> Endpoint {
    Endpoint { methods: "GET, HEAD", paths, gives, route }
}

const fn post(paths: Words, gives: &'static str, route: Find) -> Endpoint {
    Endpoint { methods: "POST", paths, gives, route }
}

/// For `pumactl` and other tools of Puma, which send GET.
const fn order(paths: Words, gives: &'static str, route: Find) -> Endpoint {
    Endpoint { methods: "GET, POST", paths, gives, route }
}

const ENDPOINTS: [Endpoint; 34] = [
    get(
        &["/stats"],
        "requests, workers, queue and times; ?buckets adds the histograms' buckets, ?buckets=fine all that were \
         counted, ?format=puma is /puma/stats",
        |query| match (query.given("format"), query.given("buckets")) {
            (None | Some("native"), None | Some("0")) => Route::Stats(Buckets::None),
            (None | Some("native"), Some("fine")) => Route::Stats(Buckets::Fine),
            (None | Some("native"), Some(_)) => Route::Stats(Buckets::Coarse),
            (Some("puma"), _) => Route::PumaStats,
            (Some(_), _) => Route::UnknownFormat,
        },
    ),
    get(
        &["/requests"],
        "requests under way, slowest first; ?limit=N (20), &backtraces adds where in the app they are",
        |query| match query.limit(SHOWN) {
            Some(limit) => Route::Requests { limit, backtraces: query.on("backtraces") },
            None => Route::BadLimit,
        },
    ),
    get(
        &["/deaths"],
        "how the last 256 workers that are gone ended, and what they were serving; the newest first; ?limit=N; \
         ?kept=N the requests that are kept of number N",
        |query| match query.given("kept") {
            Some(number) => number.parse().map_or(Route::BadLimit, Route::KeptRequests),
            None => query.limit(usize::MAX).map_or(Route::BadLimit, Route::Deaths),
        },
    ),
    get(
        &["/cache"],
        "what the cache of responses keeps, and why not more; null if it is off; ?limit=N (20) routes and resources; \
         ?url=URL only what it has for one",
        |query| match query.given("url") {
            Some(url) => {
                Route::Cached(String::from_utf8_lossy(&text::percent::decode(url.as_bytes())).into_owned())
            }
            None => query.limit(SHOWN).map_or(Route::BadLimit, Route::Cache),
        },
    ),
    get(
        &["/hub"],
        "clients and streams of the hub of live pages; null if it is off; ?limit=N (20) streams",
        |query| query.limit(SHOWN).map_or(Route::BadLimit, Route::Hub),
    ),
    get(
        &["/routes"],
        "what each route of the app takes: time, queue, CPU, queries; ?sort=time, cpu, requests, queue, sql or alloc; ?limit=N; \
         ?buckets adds the histograms' buckets, ?advice what should be changed",
        |query| {
            let order = query.given("sort").map_or(Some(RouteOrder::default()), RouteOrder::named);
            match (order, query.limit(usize::MAX)) {
                (None, _) => Route::UnknownOrder,
                (_, None) => Route::BadLimit,
                (Some(order), Some(limit)) => {
                    Route::Routes(order, limit, query.on("buckets"), query.on("advice"))
                }
            }
        },
    ),
    post(&["/routes/reset"], "forgets the figures of the routes, which count anew", |_| Route::ResetRoutes),
    post(
        &["/cache/purge"],
        "removes kept responses: {\"all\": true}, {\"paths\": [\"/posts/12\"]} or {\"tags\": [\"post-12\"]}",
        |_| Route::Purge,
    ),
    get(&["/history"], "the last hour in steps of 10 s", |_| Route::History),
    get(
        &["/metrics"],
        "the figures of /stats for Prometheus: OpenMetrics, or its older text format",
        |query| Route::Metrics(Format::accepted(accepted(query.0))),
    ),
    get(&["/live"], "whether the server responds: 200, or 503 with the reason; needs no token", |_| {
        Route::Live
    }),
    get(
        &["/ready"],
        "whether the server wants requests: 200, or 503 with the reason; needs no token",
        |_| Route::Ready,
    ),
    get(&["/status"], "what the server is at, also while it starts and ends", |_| Route::Status),
    get(&["/dashboard"], "a page that shows all of this", |_| Route::Dashboard),
    get(&["/puma/stats"], "the same as /stats in the shape of Puma's stats", |_| Route::PumaStats),
    post(
        &["/reload"],
        "loads the app again, ?undo goes back, ?in_place where memory is short, ?shadow=N compares copies of requests for N s first; a \
         line for each step",
        |query| match (query.on("undo"), query.on("in_place"), query.given("shadow")) {
            (true, ..) => Route::Reload(ReloadWish::Undo),
            (false, true, _) => Route::Reload(ReloadWish::InPlace),
            (false, false, None) => Route::Reload(ReloadWish::Reload),
            (false, false, Some(seconds)) => shadowed(seconds),
        },
    ),
    get(
        &["/differences"],
        "how responses of the new code differed from those of the old in the shadow of the last reload; null if there was none",
        |_| Route::Differences,
    ),
    post(
        &["/upgrade"],
        "starts the program again beside this one, which hands over to it; a line for each step",
        |_| Route::Upgrade,
    ),
    post(
        &["/profile"],
        "a profile of all workers: ?seconds=N (10), &hz=N (100), &clock=wall or cpu; it comes when the time is over",
        |query| Route::Profile(ProfileOrder::read(|name| query.given(name))),
    ),
    post(
        &["/record"],
        "the requests from now on, a line for each, secrets masked: ?seconds=N (60), &bytes=N ends it, &one_in=N (1), \
         &body=N bytes of each body (16384)",
        |query| Route::Record(RecordOrder::read(|name| query.given(name))),
    ),
    Endpoint {
        methods: "GET, HEAD, POST",
        paths: &["/pause"],
        gives: "whether the requests for the app are held; POST holds them: {\"for\": \"60s\", \"max\": 1000, \"paths\": []}",
        route: |query| match query.0.method {
            Method::POST => Route::Interruption(Interruption::Pause),
            _ => Route::Paused,
        },
    },
    post(&["/resume"], "ends a pause: the requests that wait go to the app", |_| {
        Route::Interruption(Interruption::Resume)
    }),
    get(
        &["/shape"],
        "the objective of response times, the shape that follows it, and its last steps; null without slo",
        |_| Route::Shape,
    ),
    get(&["/maintenance"], "whether requests get the page of a maintenance (503)", |_| Route::Maintenance),
    post(
        &["/maintenance/on", "/maintenance/off"],
        "switches maintenance on: {\"page\": \"<html>…\", \"retry_after\": \"10m\", \"message\": \"\", \"allow\": [], \
         \"allow_paths\": []}; or off",
        |query| {
            let on = query.0.uri.path().ends_with("/on");
            Route::Interruption(if on { Interruption::MaintenanceOn } else { Interruption::MaintenanceOff })
        },
    ),
    Endpoint {
        methods: "GET, HEAD, POST",
        paths: &["/settings"],
        gives: "the last changes of settings; POST changes some: {\"values\": [\"limits.max_body=20MiB\"], \"for\": \"10m\", \"why\": \"\", \
                \"dry_run\": false}",
        route: |query| if query.0.method == Method::POST { Route::Set } else { Route::Settings },
    },
    post(
        &["/settings/undo"],
        "takes a change of settings back: {\"change\": 3}, without it the latest",
        |_| Route::UndoSet,
    ),
    order(
        &["/stop", "/halt", "/restart", "/phased-restart"],
        "for pumactl and other tools of Puma: as TERM, as INT twice, as USR2, as USR1; answered at once",
        |query| match query.0.uri.path() {
            "/stop" => Route::Order(Some(PumaCommand::Stop)),
            "/halt" => Route::Order(Some(PumaCommand::Halt)),
            "/restart" => Route::Order(Some(PumaCommand::Restart)),
            _ => Route::Order(Some(PumaCommand::PhasedRestart)),
        },
    ),
    post(
        &["/heap"],
        "the objects of a worker by class and place, from a dump in a forked process; ?worker=N, &pid=N which; &trace=SECONDS records \
         places, &dump=0 only that; &examples adds beginnings of Strings",
        |query| {
            let number = |name: &str| query.given(name).map(str::parse::<u32>).transpose();
            match (number("worker"), number("pid"), number("trace")) {
                (Ok(worker), Ok(pid), Ok(trace_s)) => Route::Heap(HeapWish {
                    worker,
                    pid,
                    trace_s,
                    without_dump: query.given("dump").is_some() && !query.on("dump"),
                    examples: query.on("examples"),
                }),
                _ => Route::BadHeap,
            }
        },
    ),
    get(&["/"], "this list; the page for browsers", |query| {
        if reads_html(query.0) { Route::Dashboard } else { Route::Index }
    }),
    // Every reload resolves the directory again, as it was typed.
    order(&["/reload-worker-directory"], "", |_| Route::Order(None)),
    get(&["/refork"], "", |_| Route::Unsupported("reforking goes by requests: rack.refork_after")),
    get(&["/gc", "/gc-stats"], "", |_| {
        Route::Unsupported("the server itself runs no Ruby; rack.out_of_band_gc collects between requests")
    }),
    get(&["/thread-backtraces"], "", |_| Route::Unsupported("/requests?backtraces says where requests are")),
];

/// The parameters of a request.
struct Query<'a>(&'a Parts);

/// Returns the order of a reload with a shadow of so many seconds.
fn shadowed(seconds: &str) -> Route {
    let is_valid = |seconds: &f64| *seconds == 0.0 || (0.1..=86_400.0).contains(seconds);
    let seconds = seconds.parse().ok().filter(is_valid);
    seconds.map_or(Route::BadShadow, |seconds| {
        Route::Reload(ReloadWish::Shadowed(Duration::from_secs_f64(seconds)))
    })
}

impl Query<'_> {
    fn given(&self, name: &str) -> Option<&str> {
        let parameters = self.0.uri.query().unwrap_or_default().split('&');
        let mut pairs = parameters.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        pairs.find(|(given, _)| *given == name).map(|(_, value)| value)
    }

    fn on(&self, name: &str) -> bool {
        self.given(name).is_some_and(|value| text::switch::parse(value).unwrap_or(true))
    }

    fn limit(&self, default: usize) -> Option<usize> {
        let count = self.given("limit").map_or(Some(default as u64), |text| text::count::parse(text).ok());
        count.and_then(|count| usize::try_from(count).ok()).filter(|count| *count > 0)
    }
}

fn route(head: &Parts) -> Route {
    let Some(endpoint) = ENDPOINTS.iter().find(|one| one.paths.contains(&head.uri.path())) else {
        return Route::NotFound;
    };
    if endpoint.methods.split(", ").any(|method| head.method == method) {
        (endpoint.route)(&Query(head))
    } else {
        Route::MethodNotAllowed(endpoint.methods)
    }
}

/// Browsers name `text/html` first; curl and other programs accept anything.
pub(crate) fn reads_html(head: &Parts) -> bool {
    accepted(head).contains("text/html")
}

fn accepted(head: &Parts) -> &str {
    head.headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn endpoints() -> serde_json::Value {
    let listed = ENDPOINTS.iter().filter(|one| !one.gives.is_empty());
    listed
        .map(|one| json!({ "method": one.methods.split(',').next(), "path": one.paths.join(", "), "gives": one.gives }))
        .collect()
}

fn written(json: serde_json::Result<String>) -> Response<Full<Bytes>> {
    match json {
        Ok(text) => json_response(StatusCode::OK, text),
        Err(error) => refuse(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

/// Returns a response of one line, which `pumactl` prints.
fn unsupported(why: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(format!("Unsupported action: {why}"))));
    *response.status_mut() = StatusCode::NOT_FOUND;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

fn refuse(status: StatusCode, error: &str) -> Response<Full<Bytes>> {
    json_response(status, pretty(&json!({ "error": error, "endpoints": endpoints() })))
}

/// Returns the response to a probe: the status, and the reason for people.
fn verdict(well: bool, reason: Option<String>) -> Response<Full<Bytes>> {
    let text = if well { "ok".to_owned() } else { reason.unwrap_or_default() };
    let mut response = Response::new(Full::new(Bytes::from(format!("{text}\n"))));
    *response.status_mut() = if well { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

/// Returns the response to a refused request. The text about the token is that of Puma's control server, because its tools expect it.
pub(crate) fn refused(refusal: &Refusal) -> Response<Full<Bytes>> {
    let text = match refusal {
        Refusal::Token => "Invalid auth token",
        Refusal::Host => {
            "The Host field names another machine; ask this port by its address, by localhost, or by the name in \
             the server's `control` setting"
        }
    };
    let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = StatusCode::FORBIDDEN;
    let fields = response.headers_mut();
    fields.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    if *refusal == Refusal::Token {
        fields.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

fn pretty(value: &serde_json::Value) -> String {
    format!("{value:#}")
}

pub(crate) fn json_response(status: StatusCode, mut text: String) -> Response<Full<Bytes>> {
    text.push('\n');
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_documented() {
        let page = include_str!("../../../docs/stats.md");
        for one in ENDPOINTS.iter().filter(|one| !one.gives.is_empty()) {
            for path in one.paths {
                assert!(page.contains(&format!("{path}`")) || page.contains(&format!("{path}?")), "{path}");
            }
        }
        let listed = endpoints();
        let listed = listed.as_array().unwrap();
        assert_eq!(listed.len(), ENDPOINTS.iter().filter(|one| !one.gives.is_empty()).count());
        let stop =
            listed.iter().find(|one| one["path"] == "/stop, /halt, /restart, /phased-restart").unwrap();
        assert_eq!(stop["method"], "GET");
    }

    fn requested(method: &Method, path: &str, accept: &str) -> Route {
        let request = Request::builder().method(method).uri(path).header(ACCEPT, accept);
        route(&request.body(()).unwrap().into_parts().0)
    }

    #[test]
    fn routes() {
        let get = |path: &str| requested(&Method::GET, path, "*/*");
        assert_eq!(get("/"), Route::Index);
        assert_eq!(get("/dashboard?token=x"), Route::Dashboard);
        assert_eq!(get("/history"), Route::History);
        assert_eq!(get("/deaths?token=x"), Route::Deaths(usize::MAX));
        assert_eq!(get("/deaths?limit=3"), Route::Deaths(3));
        assert_eq!(get("/deaths?kept=3"), Route::KeptRequests(3));
        assert_eq!(get("/deaths?kept=x"), Route::BadLimit);
        assert_eq!(get("/deaths?limit=none"), Route::BadLimit);
        assert_eq!(get("/routes"), Route::Routes(RouteOrder::Time, usize::MAX, false, false));
        assert_eq!(
            get("/routes?sort=cpu&limit=5&buckets&advice"),
            Route::Routes(RouteOrder::Cpu, 5, true, true)
        );
        assert_eq!(get("/routes?sort=name"), Route::UnknownOrder);
        assert_eq!(get("/routes?limit=0"), Route::BadLimit);
        assert_eq!(get("/routes/reset"), Route::MethodNotAllowed("POST"));
        assert_eq!(requested(&Method::POST, "/routes/reset", "*/*"), Route::ResetRoutes);
        assert_eq!(get("/stats"), Route::Stats(Buckets::None));
        assert_eq!(get("/stats?token=secret&buckets"), Route::Stats(Buckets::Coarse));
        assert_eq!(get("/stats?buckets=0"), Route::Stats(Buckets::None));
        assert_eq!(get("/stats?buckets=fine"), Route::Stats(Buckets::Fine));
        assert_eq!(get("/stats?format=puma"), Route::PumaStats);
        assert_eq!(get("/stats?format=xml"), Route::UnknownFormat);
        assert_eq!(get("/puma/stats?token=x"), Route::PumaStats);
        assert_eq!(get("/requests"), Route::Requests { limit: 20, backtraces: false });
        assert_eq!(get("/requests?limit=3&backtraces"), Route::Requests { limit: 3, backtraces: true });
        assert_eq!(get("/requests?limit=three"), Route::BadLimit);
        assert_eq!(
            (get("/live"), get("/ready?x"), get("/status")),
            (Route::Live, Route::Ready, Route::Status)
        );
        assert_eq!(get("/metrics"), Route::Metrics(Format::Text));
        assert_eq!(get("/stats/"), Route::NotFound);
        assert_eq!(requested(&Method::HEAD, "/stats", "*/*"), Route::Stats(Buckets::None));
        assert_eq!(requested(&Method::POST, "/stats", "*/*"), Route::MethodNotAllowed("GET, HEAD"));
        assert_eq!(requested(&Method::POST, "/reload", "*/*"), Route::Reload(ReloadWish::Reload));
        assert_eq!(requested(&Method::POST, "/reload?undo", "*/*"), Route::Reload(ReloadWish::Undo));
        let shadowed = |time| Route::Reload(ReloadWish::Shadowed(Duration::from_millis(time)));
        assert_eq!(requested(&Method::POST, "/reload?shadow=2.5", "*/*"), shadowed(2500));
        for none in ["0", "0.0"] {
            assert_eq!(requested(&Method::POST, &format!("/reload?shadow={none}"), "*/*"), shadowed(0));
        }
        for wrong in ["", "0.01", "-1", "x", "1e9", "NaN"] {
            assert_eq!(
                requested(&Method::POST, &format!("/reload?shadow={wrong}"), "*/*"),
                Route::BadShadow,
                "{wrong}"
            );
        }
        assert_eq!(requested(&Method::POST, "/upgrade", "*/*"), Route::Upgrade);
        assert_eq!(get("/upgrade"), Route::MethodNotAllowed("POST"));
        assert_eq!((get("/pause"), get("/maintenance")), (Route::Paused, Route::Maintenance));
        let post = |path: &str| requested(&Method::POST, path, "*/*");
        assert_eq!(post("/pause"), Route::Interruption(Interruption::Pause));
        assert_eq!(post("/resume"), Route::Interruption(Interruption::Resume));
        assert_eq!(post("/maintenance/on"), Route::Interruption(Interruption::MaintenanceOn));
        assert_eq!(post("/maintenance/off"), Route::Interruption(Interruption::MaintenanceOff));
        assert_eq!((get("/settings"), post("/settings")), (Route::Settings, Route::Set));
        assert_eq!(post("/settings/undo"), Route::UndoSet);
        assert_eq!(get("/settings/undo"), Route::MethodNotAllowed("POST"));
        assert_eq!(get("/resume"), Route::MethodNotAllowed("POST"));
        assert_eq!(post("/maintenance"), Route::MethodNotAllowed("GET, HEAD"));
        assert_eq!(requested(&Method::POST, "/reload?in_place", "*/*"), Route::Reload(ReloadWish::InPlace));
        let heap = HeapWish { worker: Some(1), trace_s: Some(5), without_dump: true, ..HeapWish::default() };
        assert_eq!(post("/heap?worker=1&trace=5&dump=0"), Route::Heap(heap));
        assert_eq!((post("/heap?pid=x"), get("/heap")), (Route::BadHeap, Route::MethodNotAllowed("POST")));
        assert_eq!(get("/reload"), Route::MethodNotAllowed("POST"));
        assert_eq!(get("/profile"), Route::MethodNotAllowed("POST"));
        assert_eq!(post("/profile"), Route::Profile(Ok(ProfileOrder::default())));
        assert!(matches!(post("/profile?hz=0"), Route::Profile(Err(_))));
    }

    #[test]
    fn orders_of_pumas_tools() {
        for (path, order) in [
            ("/stop?token=x", PumaCommand::Stop),
            ("/halt", PumaCommand::Halt),
            ("/restart", PumaCommand::Restart),
            ("/phased-restart?token=x", PumaCommand::PhasedRestart),
        ] {
            for method in [Method::GET, Method::POST] {
                assert_eq!(requested(&method, path, "*/*"), Route::Order(Some(order)), "{path}");
            }
            assert_eq!(requested(&Method::HEAD, path, "*/*"), Route::MethodNotAllowed("GET, POST"));
        }
        assert_eq!(requested(&Method::GET, "/reload-worker-directory", "*/*"), Route::Order(None));
        for path in ["/refork", "/gc", "/gc-stats", "/thread-backtraces"] {
            assert!(matches!(requested(&Method::GET, path, "*/*"), Route::Unsupported(_)), "{path}");
        }
    }

    #[test]
    fn browsers_get_the_page() {
        let chrome = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
        assert_eq!(requested(&Method::GET, "/", chrome), Route::Dashboard);
        assert_eq!(requested(&Method::GET, "/stats", chrome), Route::Stats(Buckets::None));
    }
}
