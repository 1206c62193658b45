//! Serves requests from the store, or lets the origin serve them and keeps what may be kept.

use crate::counts::Answer;
use crate::directives::{RequestDirectives, ResponseDirectives};
use crate::flight::{self, Leader, Outcome, Part};
use crate::gather::{self, Unkept};
use crate::key;
use crate::policy::Policy;
use crate::respond::{Answered, respond};
use crate::reuse::{self, Reuse};
use crate::status::{CacheStatus, Forwarded};
use crate::storable::{self, Plan, Refusal};
use crate::store::Store;
use crate::stored::{Arrival, Stored, TAG_FIELDS};
use bytes::Bytes;
use handler::{Body, Client, Departure, Exchange, Fields, Incoming, Lent, Request, Response, Trace};
use net::task::spawn_local;
use representation::coding::{self, Coding, Levels};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Instant, SystemTime};

/// Where responses come from: the app, or an origin of a proxy.
pub trait Origin {
    /// Serves a request.
    fn call(self: Rc<Self>, exchange: Exchange) -> Pin<Box<dyn Future<Output = Response>>>;
}

/// The cache of one front thread.
pub struct Cache {
    store: Arc<Store>,
}

/// How often a request looks again after it has waited for an equal one. Then it goes to the origin.
const MOST_WAITS: usize = 3;

/// A request that will go to the origin, and what is known about it.
struct Call {
    key: Box<[u8]>,
    /// A copy, because the exchange's request goes to the origin.
    request: Request,
    policy: Arc<Policy>,
    why: Forwarded,
    /// The kept response that the origin may confirm.
    stale: Option<Arc<Stored>>,
    /// Whether this request is made by the cache itself, to renew what it has sent.
    renews: bool,
}

impl Cache {
    pub fn new(store: Arc<Store>) -> Rc<Cache> {
        Rc::new(Cache { store })
    }

    /// Serves a request.
    pub async fn serve(self: &Rc<Cache>, exchange: Exchange, origin: Rc<dyn Origin>) -> Response {
        let request = &exchange.request;
        let policy = self.store.policy();
        if !is_cacheable(request, &exchange.incoming) {
            return self.pass(exchange, origin, &policy).await;
        }
        let mut key = Vec::with_capacity(128);
        key::write(request, policy.sort_query, &mut key);
        let directives = if policy.client_control {
            RequestDirectives::of(&request.fields)
        } else {
            RequestDirectives::default()
        };
        let (mut waited, mut failed) = (0, false);
        loop {
            let now = Instant::now();
            let resource = match self.store.get(&key) {
                None if self.store.is_on_disk(&key) => self.store.load(&key).await,
                resource => resource,
            };
            let stored =
                resource.as_ref().and_then(|resource| resource.variant(&exchange.request.fields)).cloned();
            let mut why = if resource.is_some() { Forwarded::VaryMiss } else { Forwarded::UriMiss };
            if let Some(stored) = &stored {
                // A request that has waited gets a response that is stale at once only if the app was asked after the request had arrived: it may
                // follow another one of its client that has changed the page.
                let after = || stored.asked() >= Some(exchange.request.arrived);
                let reuse = match reuse::judge(stored, &directives, &policy, now) {
                    Reuse::Validate if waited > 0 && after() => Reuse::Send,
                    reuse => reuse,
                };
                match reuse {
                    Reuse::Send => {
                        let answer = if waited > 0 { Answer::Collapsed } else { Answer::Hit };
                        return self.send(stored, &key, &exchange.request, &policy, answer, now);
                    }
                    Reuse::SendAndRenew => {
                        self.renew(&key, stored, &exchange, origin, &policy);
                        return self.send(stored, &key, &exchange.request, &policy, Answer::Stale, now);
                    }
                    Reuse::Validate => {
                        let fresh = stored.age(now) < stored.lifetime;
                        why = if fresh && !stored.rules.no_cache {
                            Forwarded::Request
                        } else {
                            Forwarded::Stale
                        };
                    }
                }
            }
            if let Some(stored) = &stored
                && (failed || self.store.is_failing(&key, now))
                && reuse::on_error(stored, &policy, now)
            {
                return self.send(stored, &key, &exchange.request, &policy, Answer::Stale, now);
            }
            if directives.only_if_cached {
                return Response::text(
                    504,
                    "text/plain; charset=utf-8",
                    "504 nothing is kept for this request\n",
                );
            }
            let whole = exchange.request.method() == b"GET" && exchange.request.fields.get("range").is_none();
            // Without a kept response, the app itself may know the version that the client has.
            let leads = whole && (stored.is_some() || !is_conditional(&exchange.request.fields));
            if exchange.request.fields.get("range").is_some() {
                why = Forwarded::Partial;
            }
            let call = |why, stale| Call {
                key: key.clone().into(),
                request: exchange.request.clone(),
                policy: policy.clone(),
                why,
                stale,
                renews: false,
            };
            if !leads || waited > MOST_WAITS || !self.store.collapses(&key, now) {
                let call = call(why, stored.filter(|_| leads));
                return self.forward(call, exchange, origin, None).await;
            }
            match self.store.flights.join(&key) {
                Part::Lead(leader) => {
                    let call = call(why, stored);
                    return self.lead(call, exchange, origin, leader).await;
                }
                Part::Wait(receiver) => {
                    waited += 1;
                    // Where the stale response may be sent when the app fails, no client waits longer for a slow one.
                    let stale = stored.as_ref().filter(|stored| {
                        !policy.stale_if_slow.is_zero() && reuse::on_error(stored, &policy, now)
                    });
                    let patience = match stale {
                        Some(_) => policy.collapse_wait.min(policy.stale_if_slow),
                        None => policy.collapse_wait,
                    };
                    let ended = tokio::time::timeout(patience, flight::outcome(receiver)).await;
                    if let (Some(stale), Err(_)) = (stale, &ended) {
                        let now = Instant::now();
                        return self.send(stale, &key, &exchange.request, &policy, Answer::Stale, now);
                    }
                    failed = ended == Ok(Outcome::Failed);
                    if !matches!(ended, Ok(Outcome::Kept | Outcome::Failed | Outcome::Abandoned)) {
                        let call = call(why, stored);
                        return self.forward(call, exchange, origin, None).await;
                    }
                }
            }
        }
    }

    /// Lets the origin serve a request whose response is not kept. A success of an unsafe method invalidates what is kept (RFC 9111 section 4.4).
    async fn pass(&self, exchange: Exchange, origin: Rc<dyn Origin>, policy: &Arc<Policy>) -> Response {
        let safe = matches!(
            exchange.request.method(),
            b"GET" | b"HEAD" | b"OPTIONS" | b"TRACE" | b"QUERY" | b"CONNECT"
        );
        let request = (!safe).then(|| exchange.request.clone());
        let (asked, since) = (Instant::now(), SystemTime::now());
        let mut response = origin.call(exchange).await;
        if let Some(request) = request {
            if matches!(response.status, 200..=399) {
                self.invalidate(&request, &response.fields, policy);
            }
            if request.method() == b"POST" && names_itself(&request, &response.fields, policy) {
                self.keep_post(&request, &response, policy, asked, since);
            }
        }
        remove_tags(&mut response.fields);
        if policy.status_field && !matches!(response.body, Body::Tunnel { .. }) {
            CacheStatus::forwarded(Forwarded::Method).write(&mut response.fields);
        }
        response
    }

    /// Removes what is kept for the target of an unsafe request, and for the URIs that its response names.
    fn invalidate(&self, request: &Request, response: &Fields, policy: &Policy) {
        let mut own = Vec::new();
        key::write(request, policy.sort_query, &mut own);
        let named = ["location", "content-location"].iter().filter_map(|name| response.get(name));
        let others = named.filter_map(|value| key::reference(request, value, policy.sort_query));
        for key in std::iter::once(own).chain(others) {
            self.store.flights.doom(|running| running == key);
            if self.store.remove(&key) {
                self.store.counts.invalidated();
            }
        }
    }

    /// Keeps the response to a POST that names its own URI as its Content-Location (RFC 9110 section 9.3.3).
    fn keep_post(
        &self,
        request: &Request,
        response: &Response,
        policy: &Policy,
        asked: Instant,
        since: SystemTime,
    ) {
        let (Ok(plan), Body::Bytes(body)) =
            (storable::judge(request, response, policy, since), &response.body)
        else {
            return;
        };
        let mut own = Vec::new();
        key::write(request, policy.sort_query, &mut own);
        let arrival = Arrival { at: Instant::now(), since: SystemTime::now(), took: asked.elapsed() };
        let stored = Stored::new(response.status, &response.fields, body.clone(), &plan, request, arrival);
        self.store.put(&own, Arc::new(stored));
    }

    /// Sends a kept response.
    fn send(
        self: &Rc<Cache>,
        stored: &Arc<Stored>,
        key: &[u8],
        request: &Request,
        policy: &Policy,
        answer: Answer,
        now: Instant,
    ) -> Response {
        self.store.counts.answered(answer, key, None);
        let mut status = CacheStatus::hit(stored.lifetime, stored.age(now));
        status.collapsed = answer == Answer::Collapsed;
        let answered = respond(stored, request, policy, status, now);
        self.encoded_soon(answered, stored, key)
    }

    /// Makes the encoded form that was missing, for the next requests.
    fn encoded_soon(self: &Rc<Cache>, answered: Answered, stored: &Arc<Stored>, key: &[u8]) -> Response {
        if let Some(coding) = answered.wanted.filter(|coding| stored.forms.begin(*coding)) {
            let (cache, stored, key) = (self.clone(), stored.clone(), Box::<[u8]>::from(key));
            spawn_local(async move { cache.encode(&stored, coding, &key).await });
        }
        answered.response
    }

    async fn encode(&self, stored: &Stored, coding: Coding, key: &[u8]) {
        let body = stored.body.clone();
        let encoding = tokio::task::spawn_blocking(move || {
            let form = coding::compress(coding, &body, Levels::KEPT.of(coding)).ok()?;
            (form.len() < body.len()).then(|| Bytes::from(form))
        });
        // An encoding that failed is not tried again.
        stored.forms.set(coding, encoding.await.ok().flatten());
        self.store.weigh_again(key);
    }

    /// Renews a kept response while a client gets the stale one.
    fn renew(
        self: &Rc<Cache>,
        key: &[u8],
        stored: &Arc<Stored>,
        exchange: &Exchange,
        origin: Rc<dyn Origin>,
        policy: &Arc<Policy>,
    ) {
        if exchange.request.method() == b"HEAD" {
            return;
        }
        let Some(leader) = self.store.flights.lead(key) else { return };
        let mut request = Request::clone(&exchange.request);
        (request.arrived, request.received) = (Instant::now(), SystemTime::now());
        let call = Call {
            key: key.into(),
            request: request.clone(),
            policy: policy.clone(),
            why: Forwarded::Stale,
            stale: Some(stored.clone()),
            renews: true,
        };
        let exchange = own(request);
        self.store.counts.renewed();
        let cache = self.clone();
        spawn_local(async move { drop(cache.forward(call, exchange, origin, Some(leader)).await) });
    }

    /// Leads a flight. If the origin is slow, the client gets the stale response where that may be sent when the origin fails; the flight goes on.
    async fn lead(
        self: &Rc<Cache>,
        call: Call,
        exchange: Exchange,
        origin: Rc<dyn Origin>,
        leader: Leader,
    ) -> Response {
        let slow = call.policy.stale_if_slow;
        let may_be_stale = |stale: &Arc<Stored>| reuse::on_error(stale, &call.policy, Instant::now());
        let Some(stale) = call.stale.clone().filter(|stale| !slow.is_zero() && may_be_stale(stale)) else {
            return self.forward(call, exchange, origin, Some(leader)).await;
        };
        let (key, request, policy) = (call.key.clone(), call.request.clone(), call.policy.clone());
        // A request of the cache's own: it goes on without the client.
        let asked = own(Request::clone(&exchange.request));
        let cache = self.clone();
        let served = spawn_local(async move { cache.forward(call, asked, origin, Some(leader)).await });
        match tokio::time::timeout(slow, served).await {
            Ok(Ok(response)) => response,
            late => {
                let now = Instant::now();
                if late.is_err() {
                    self.store.fail(&key, now);
                }
                self.send(&stale, &key, &request, &policy, Answer::Stale, now)
            }
        }
    }

    /// Lets the origin serve a request, and keeps its response if it may be kept.
    async fn forward(
        self: &Rc<Cache>,
        call: Call,
        mut exchange: Exchange,
        origin: Rc<dyn Origin>,
        leader: Option<Leader>,
    ) -> Response {
        if let Some(stale) = &call.stale {
            validate(&mut exchange.request, stale);
        }
        let trace = exchange.trace.clone();
        let asked = Instant::now();
        let mut response = origin.call(exchange).await;
        let now = Instant::now();
        let arrival =
            Arrival { at: now, since: SystemTime::now(), took: now.saturating_duration_since(asked) };
        if let Some(stale) = &call.stale {
            if response.status == 304 {
                return self.confirmed(&call, stale, &response.fields, arrival, leader);
            }
            if is_error(&response) && reuse::on_error(stale, &call.policy, now) {
                if let Some(failure) = response.failure.take() {
                    trace.note(*failure);
                }
                self.store.fail(&call.key, now);
                if let Some(leader) = leader {
                    leader.end(Outcome::Failed);
                }
                self.store.counts.answered(Answer::Stale, &call.key, None);
                let mut status = CacheStatus::hit(stale.lifetime, stale.age(now));
                (status.forwarded, status.origin_status) = (Some(call.why), Some(response.status));
                let answered = respond(stale, &call.request, &call.policy, status, now);
                return self.encoded_soon(answered, stale, &call.key);
            }
        }
        self.arrived(call, response, arrival, leader)
    }

    /// The origin has confirmed a kept response.
    fn confirmed(
        self: &Rc<Cache>,
        call: &Call,
        stale: &Arc<Stored>,
        update: &Fields,
        arrival: Arrival,
        leader: Option<Leader>,
    ) -> Response {
        let merged = stale.merged(update);
        let head = Response::new(stale.status, merged, Body::Bytes(stale.body.clone()));
        let kept = match storable::judge(&call.request, &head, &call.policy, arrival.since) {
            Ok(plan) => Arc::new(stale.validated(&head.fields, &plan, arrival)),
            // What may not be kept any longer is sent once more.
            Err(why) => {
                self.store.remove(&call.key);
                self.store.refuse(&call.key, why, arrival.at);
                let plan = unkept_plan(&head.fields);
                Arc::new(stale.validated(&head.fields, &plan, arrival))
            }
        };
        let doomed = leader.as_ref().is_some_and(Leader::is_doomed);
        let still = !doomed && self.store.get(&call.key).is_some();
        if still {
            self.store.put(&call.key, kept.clone());
        }
        if let Some(leader) = leader {
            leader.end(if still { Outcome::Kept } else { Outcome::Alone });
        }
        if !call.renews {
            self.store.counts.answered(Answer::Validated, &call.key, None);
        }
        let mut status = CacheStatus::hit(kept.lifetime, kept.age(arrival.at));
        (status.hit, status.forwarded, status.origin_status, status.stored) =
            (None, Some(call.why), Some(304), still);
        let answered = respond(&kept, &call.request, &call.policy, status, arrival.at);
        self.encoded_soon(answered, &kept, &call.key)
    }

    /// Keeps a response of the origin if it may be kept, and sends it.
    fn arrived(
        self: &Rc<Cache>,
        call: Call,
        mut response: Response,
        arrival: Arrival,
        leader: Option<Leader>,
    ) -> Response {
        let mut status = CacheStatus::forwarded(call.why);
        let judged = storable::judge(&call.request, &response, &call.policy, arrival.since);
        let judged = match judged {
            Ok(_) if call.request.method() == b"HEAD" => Err(Refusal::Status),
            other => other,
        };
        match judged {
            Ok(plan) => {
                status.stored = true;
                self.store.counts.answered(Answer::Miss, &call.key, None);
                self.keep(&call, plan, &mut response, arrival, leader);
            }
            Err(why) => {
                status.detail = Some(why.name());
                let head = call.request.method() == b"HEAD";
                self.store.counts.answered(Answer::Miss, &call.key, (!head).then_some(why));
                // A response that replaces a kept one ends it; an error does not.
                if call.stale.is_some() && !is_error(&response) && response.status != 304 {
                    self.store.remove(&call.key);
                }
                if let Some(leader) = leader {
                    self.store.refuse(&call.key, why, arrival.at);
                    leader.end(Outcome::Alone);
                } else if !head {
                    self.store.counts.refused(why);
                }
            }
        }
        remove_tags(&mut response.fields);
        if call.policy.status_field && !matches!(response.body, Body::Tunnel { .. }) {
            status.write(&mut response.fields);
        }
        response
    }

    /// Keeps a response: at once if its body is there, or else when it has arrived.
    fn keep(
        self: &Rc<Cache>,
        call: &Call,
        plan: Plan,
        response: &mut Response,
        arrival: Arrival,
        leader: Option<Leader>,
    ) {
        let whole = match &response.body {
            Body::Empty => Some(Bytes::new()),
            Body::Bytes(bytes) => Some(bytes.clone()),
            _ => None,
        };
        let made = {
            let (status, fields, request) = (response.status, response.fields.clone(), call.request.clone());
            move |body| Arc::new(Stored::new(status, &fields, body, &plan, &request, arrival))
        };
        if let Some(body) = whole {
            return self.finish(&call.key, Ok(made(body)), leader);
        }
        let Body::Stream(origin) = std::mem::replace(&mut response.body, Body::Empty) else { return };
        let most = usize::try_from(call.policy.max_object).unwrap_or(usize::MAX);
        let (gathered, following) = gather::divide(origin, most);
        response.body = Body::Stream(Box::new(following));
        let (cache, key) = (self.clone(), call.key.clone());
        spawn_local(async move {
            let body = gathered.done().await;
            cache.finish(&key, body.map(made), leader);
        });
    }

    /// Puts a whole response into the store.
    fn finish(&self, key: &[u8], made: Result<Arc<Stored>, Unkept>, leader: Option<Leader>) {
        let doomed = leader.as_ref().is_some_and(Leader::is_doomed);
        let outcome = match made {
            Ok(_) if doomed => {
                self.store.counts.refused(Refusal::Invalidated);
                Outcome::Alone
            }
            Ok(stored) => {
                self.store.put(key, stored);
                Outcome::Kept
            }
            Err(unkept) => {
                let why = if unkept == Unkept::TooLong { Refusal::TooLong } else { Refusal::Incomplete };
                self.store.refuse(key, why, Instant::now());
                Outcome::Alone
            }
        };
        if let Some(leader) = leader {
            leader.end(outcome);
        }
    }
}

/// Returns the exchange of a request that the cache makes itself.
fn own(request: Request) -> Exchange {
    Exchange {
        request: Lent::from(request),
        incoming: Incoming::Empty,
        client: Rc::new(NoClient),
        trace: Rc::new(Trace::default()),
    }
}

/// Returns whether a kept response may answer the request.
fn is_cacheable(request: &Request, incoming: &Incoming) -> bool {
    matches!(request.method(), b"GET" | b"HEAD")
        && matches!(incoming, Incoming::Empty)
        && request.fields.get("upgrade").is_none()
}

fn is_conditional(fields: &Fields) -> bool {
    ["if-none-match", "if-modified-since", "if-match", "if-unmodified-since", "if-range"]
        .iter()
        .any(|name| fields.get(name).is_some())
}

/// Returns whether the origin has failed (RFC 5861 section 4).
fn is_error(response: &Response) -> bool {
    matches!(response.status, 500 | 502 | 503 | 504)
}

/// Makes a request conditional on the kept response (RFC 9111 section 4.3.1), in place of the client's conditions.
fn validate(request: &mut Request, stored: &Stored) {
    let own = ["if-none-match", "if-modified-since", "if-match", "if-unmodified-since", "if-range", "range"];
    let (tag, modified) = (stored.head.get("etag"), stored.head.get("last-modified"));
    let is_own = |name: &[u8]| own.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes()));
    request.fields.retain(|name, _| !is_own(name));
    if let Some(tag) = tag {
        request.fields.push(b"If-None-Match", tag);
    }
    if let Some(modified) = modified {
        request.fields.push(b"If-Modified-Since", modified);
    }
}

/// Returns whether Content-Location names the target of the request.
fn names_itself(request: &Request, response: &Fields, policy: &Policy) -> bool {
    let mut own = Vec::new();
    key::write(request, policy.sort_query, &mut own);
    let named =
        response.get("content-location").and_then(|value| key::reference(request, value, policy.sort_query));
    named == Some(own)
}

fn remove_tags(fields: &mut Fields) {
    if TAG_FIELDS.iter().any(|name| fields.get(name).is_some()) {
        fields.retain(|name, _| !TAG_FIELDS.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes())));
    }
}

/// What is known about a response that is sent once more and not kept.
fn unkept_plan(fields: &Fields) -> Plan {
    Plan {
        directives: ResponseDirectives::of(fields),
        lifetime: crate::freshness::Lifetime::Unknown,
        vary: Vec::new(),
    }
}

/// The client of a request that the cache makes itself: it never goes away.
struct NoClient;

impl Client for NoClient {
    fn poll_departure(&self, _: &mut Context<'_>) -> Poll<Departure> {
        Poll::Pending
    }

    fn interim(&self, _: u16, _: &Fields) {}
}
