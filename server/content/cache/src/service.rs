//! Serves requests from the store, or passes them to the origin and keeps its responses.

use crate::counts::Answer;
use crate::directives::{RequestDirectives, ResponseDirectives};
use crate::flight::{self, Leader, Outcome, Part};
use crate::gather::{self, Unkept};
use crate::key;
use crate::policy::Policy;
use crate::removals::Moment;
use crate::resource::Resource;
use crate::respond::{Answered, respond};
use crate::reuse::{self, Reuse};
use crate::status::{CacheStatus, Forwarded};
use crate::storable::{self, Plan, Refusal};
use crate::store::Store;
use crate::stored::{Arrival, Stored, TAG_FIELDS};
use crate::summary::FieldSummary;
use bytes::Bytes;
use handler::{
    Body, Client, Exchange, Failure, Fault, Fields, Incoming, Lent, Request, Response, StayingClient, Trace,
};
use net::task::spawn_local;
use representation::coding::{self, Coding, Levels};
use representation::conditions::is_condition;
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::watch;

/// The source of responses: the app, or an origin of a proxy.
pub trait Origin {
    /// Serves a request.
    fn call(self: Rc<Self>, exchange: Exchange) -> Pin<Box<dyn Future<Output = Response>>>;
}

/// The cache of one front thread.
pub struct Cache {
    store: Arc<Store>,
    /// The key of the last hit, for its memory.
    key: RefCell<Vec<u8>>,
}

/// How often a request looks up its key again after waiting for an equal request. Then it goes to the origin.
const MOST_WAITS: usize = 3;

/// A request that looks for a response.
struct Search {
    key: Box<[u8]>,
    policy: Arc<Policy>,
    summary: FieldSummary,
    directives: RequestDirectives,
    /// When the request arrived.
    arrived: Instant,
    /// Whether the response covers the whole resource and may be kept for other clients.
    is_shared: bool,
    /// Whether other requests may wait for the response.
    leads: bool,
    /// How often it has waited for an equal request.
    waits: usize,
    /// The request that it waited for has failed.
    failed: bool,
}

/// The result of a search.
struct SearchResult {
    stored: Option<Arc<Stored>>,
    /// The reason why the request goes to the origin, if it does.
    why: Forwarded,
    now: Instant,
}

/// The next step of a request.
enum Step {
    /// The kept response is sent.
    Send(Arc<Stored>, Answer),
    /// The response is sent, and renewed at the same time.
    SendAndRenew(Arc<Stored>),
    /// Nothing is kept for a client that sent `only-if-cached`.
    Refuse,
    /// The request goes to the origin, for itself alone or as the leader of a flight.
    Forward(Option<Leader>),
    /// An equal request is on its way.
    Wait(watch::Receiver<Option<Outcome>>),
}

/// How a wait for an equal request has ended.
enum Waited {
    Ended(Outcome),
    Late,
    /// The client has gone.
    Gone,
}

/// A request that goes to the origin, and its context.
struct Call {
    key: Box<[u8]>,
    /// A copy, because the exchange's request goes to the origin.
    request: Request,
    summary: FieldSummary,
    policy: Arc<Policy>,
    why: Forwarded,
    /// The kept response that the origin may confirm.
    stale: Option<Arc<Stored>>,
    /// Whether the cache itself makes this request, to renew a response that it has sent.
    renews: bool,
}

/// An unsafe request that is with the origin. If its client leaves before the response, it stays unknown
/// whether the page has changed, so the page is removed.
struct Unanswered<'a> {
    store: &'a Store,
    policy: &'a Policy,
    request: Option<Request>,
}

impl Unanswered<'_> {
    fn answered(mut self) -> Option<Request> {
        self.request.take()
    }
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if let Some(request) = self.request.take() {
            let mut key = Vec::new();
            key::write(&request, self.policy.sort_query, &mut key);
            self.store.counts.invalidated(u64::from(self.store.remove(&key)));
        }
    }
}

impl Cache {
    pub fn new(store: Arc<Store>) -> Rc<Cache> {
        Rc::new(Cache { store, key: RefCell::default() })
    }

    /// Removes the least useful responses, because memory is scarce.
    pub fn give_back(&self) {
        self.store.shrink(Instant::now());
    }

    /// Returns the response if it is in memory and fresh. Otherwise [`Cache::serve`] returns a response; this
    /// call is the short way for the usual case.
    pub fn hit(self: &Rc<Cache>, exchange: &Exchange) -> Option<Response> {
        let request = &*exchange.request;
        let summary = FieldSummary::of(&request.fields);
        if !is_cacheable(request, summary, &exchange.incoming) || summary.precondition {
            return None;
        }
        let policy = self.store.policy();
        let mut key = self.key.try_borrow_mut().ok()?;
        key::write(request, policy.sort_query, &mut key);
        let resource = self.store.get(&key)?;
        let stored = resource.variant(&request.fields, summary)?;
        let (directives, now) = (client_directives(request, summary, &policy), request.arrived);
        let fresh = reuse::judge(stored, &directives, &policy, now) == Reuse::Send;
        fresh.then(|| self.send(stored, &key, request, &exchange.trace, summary, &policy, Answer::Hit, now))
    }

    /// Serves a request.
    pub async fn serve(self: &Rc<Cache>, exchange: Exchange, origin: Rc<dyn Origin>) -> Response {
        let policy = self.store.policy();
        let summary = FieldSummary::of(&exchange.request.fields);
        if !is_cacheable(&exchange.request, summary, &exchange.incoming) {
            return self.pass(exchange, origin, &policy).await;
        }
        let mut search = Search::new(&exchange.request, summary, policy);
        loop {
            let found = self.find(&search, &exchange.request).await;
            match self.step(&search, &found, exchange.request.method()) {
                Step::Send(stored, answer) => return self.reply(&search, &stored, &exchange, answer),
                Step::SendAndRenew(stored) => {
                    self.renew(&search, &stored, &exchange, origin);
                    return self.reply(&search, &stored, &exchange, Answer::Stale);
                }
                Step::Refuse => {
                    let text = "504 nothing is kept for this request\n";
                    return Response::text(504, "text/plain; charset=utf-8", text);
                }
                Step::Forward(None) => {
                    let call = self.call(&search, &exchange.request, found);
                    return self.forward(call, exchange, origin, None).await;
                }
                Step::Forward(Some(leader)) => {
                    let call = self.call(&search, &exchange.request, found);
                    return self.lead(call, exchange, origin, leader).await;
                }
                Step::Wait(receiver) => {
                    // If a stale response may be sent when the app fails, no client waits longer for a slow
                    // app.
                    let stale = found.stored.filter(|stored| search.may_be_stale(stored, found.now));
                    let patience = match &stale {
                        Some(_) => search.policy.collapse_wait.min(search.policy.stale_if_slow),
                        None => search.policy.collapse_wait,
                    };
                    match (wait(receiver, patience, &*exchange.client).await, stale) {
                        (Waited::Gone, _) => {
                            return Failure::client_gone(
                                "the client went away while it waited for an equal request",
                            )
                            .into_response();
                        }
                        (Waited::Late, Some(stale)) => {
                            return self.reply(&search, &stale, &exchange, Answer::Stale);
                        }
                        (Waited::Late, None) => {
                            // A response that takes this long is no reason for the next client to wait.
                            self.store.part(&search.key, Instant::now());
                            search.leads = false;
                        }
                        (Waited::Ended(Outcome::Alone), _) => search.leads = false,
                        (Waited::Ended(outcome), _) => search.failed = outcome == Outcome::Failed,
                    }
                    search.waits += 1;
                }
            }
        }
    }

    /// Looks for the kept response to a request.
    async fn find(&self, search: &Search, request: &Request) -> SearchResult {
        let now = Instant::now();
        let resource = match self.store.get(&search.key) {
            None if self.store.is_on_disk(&search.key) => self.store.load(&search.key).await,
            resource => resource,
        };
        let variant = |resource: &Arc<Resource>| resource.variant(&request.fields, search.summary).cloned();
        let stored = resource.as_ref().and_then(variant).filter(|_| !search.summary.precondition);
        let why = match (&stored, &resource) {
            _ if search.summary.range => Forwarded::Partial,
            (Some(stored), _) if stored.age(now) < stored.lifetime && !stored.rules.no_cache => {
                Forwarded::Request
            }
            (Some(_), _) => Forwarded::Stale,
            (None, Some(_)) => Forwarded::VaryMiss,
            (None, None) => Forwarded::UriMiss,
        };
        SearchResult { stored, why, now }
    }

    /// Decides how a request is served.
    fn step(&self, search: &Search, found: &SearchResult, method: &[u8]) -> Step {
        let now = found.now;
        if let Some(stored) = &found.stored {
            match reuse::judge(stored, &search.directives, &search.policy, now) {
                Reuse::Send if search.waits > 0 => return Step::Send(stored.clone(), Answer::Collapsed),
                Reuse::Send => return Step::Send(stored.clone(), Answer::Hit),
                Reuse::SendAndRenew => return Step::SendAndRenew(stored.clone()),
                // After waiting, a response that is stale at once is used only if it was requested from the
                // app after this request arrived. Otherwise a client might not see its own write.
                Reuse::Validate if search.waits > 0 && stored.asked() >= Some(search.arrived) => {
                    return Step::Send(stored.clone(), Answer::Collapsed);
                }
                Reuse::Validate => {}
            }
            let failed = search.failed || self.store.is_failing(&search.key, now);
            if failed && reuse::on_error(stored, &search.policy, now) {
                return Step::Send(stored.clone(), Answer::Stale);
            }
        }
        if search.directives.only_if_cached {
            return Step::Refuse;
        }
        // Without a kept response, the app itself may have the version that the client names.
        let may_lead =
            search.leads && method == b"GET" && (found.stored.is_some() || !search.summary.condition);
        if !may_lead || search.waits > MOST_WAITS || !self.store.collapses(&search.key, now) {
            return Step::Forward(None);
        }
        match self.store.flights.join(&search.key) {
            Part::Lead(leader) => Step::Forward(Some(leader)),
            Part::Wait(receiver) => Step::Wait(receiver),
        }
    }

    /// Returns the call of the origin for a request.
    fn call(&self, search: &Search, request: &Request, found: SearchResult) -> Call {
        // The origin confirms a whole response, for a request whose response may be kept.
        let confirms = request.method() == b"GET" && search.is_shared;
        Call {
            key: search.key.clone(),
            request: request.clone(),
            summary: search.summary,
            policy: search.policy.clone(),
            why: found.why,
            stale: found.stored.filter(|_| confirms),
            renews: false,
        }
    }

    /// Passes a request to the origin; the response is not kept. A successful unsafe method invalidates kept
    /// responses (RFC 9111 section 4.4).
    async fn pass(&self, exchange: Exchange, origin: Rc<dyn Origin>, policy: &Arc<Policy>) -> Response {
        let safe = matches!(
            exchange.request.method(),
            b"GET" | b"HEAD" | b"OPTIONS" | b"TRACE" | b"QUERY" | b"CONNECT"
        );
        let request = (!safe).then(|| exchange.request.clone());
        let unanswered =
            request.map(|request| Unanswered { store: &self.store, policy, request: Some(request) });
        let (asked, moment) = (Instant::now(), self.store.moment());
        let mut response = origin.call(exchange).await;
        if let Some(request) = unanswered.and_then(Unanswered::answered)
            && matches!(response.status, 200..=399)
        {
            let arrival = Arrival::now(asked, moment);
            self.invalidate(&request, &response, policy, arrival);
        }
        remove_tags(&mut response.fields);
        if policy.status_field && !matches!(response.body, Body::Tunnel { .. }) {
            CacheStatus::forwarded(Forwarded::Method).write(&mut response.fields);
        }
        response
    }

    /// Removes the responses kept for the target of an unsafe request, and for the URIs that its response
    /// names.
    fn invalidate(&self, request: &Request, response: &Response, policy: &Policy, arrival: Arrival) {
        let mut own = Vec::new();
        key::write(request, policy.sort_query, &mut own);
        let named = |name| key::reference(request, response.fields.get(name)?, policy.sort_query);
        let (location, content_location) = (named("location"), named("content-location"));
        let names_itself = content_location.as_ref() == Some(&own);
        let new = post_response(request, response, policy, arrival).filter(|_| names_itself);
        let others = [location, content_location].into_iter().flatten().filter(|key| *key != own);
        let mut removed: u64 = others.map(|key| u64::from(self.store.remove(&key))).sum();
        removed += u64::from(match new {
            Some(new) => self.store.replace(&own, Arc::new(new), arrival.moment),
            None => self.store.remove(&own),
        });
        self.store.counts.invalidated(removed);
    }

    /// Sends a kept response to a request that has searched for it.
    fn reply(
        self: &Rc<Cache>,
        search: &Search,
        stored: &Arc<Stored>,
        exchange: &Exchange,
        answer: Answer,
    ) -> Response {
        let (request, now) = (&exchange.request, Instant::now());
        self.send(stored, &search.key, request, &exchange.trace, search.summary, &search.policy, answer, now)
    }

    /// Sends a kept response.
    #[expect(clippy::too_many_arguments, reason = "the parts of a search, which a hit has no room for")]
    fn send(
        self: &Rc<Cache>,
        stored: &Arc<Stored>,
        key: &[u8],
        request: &Request,
        trace: &Trace,
        summary: FieldSummary,
        policy: &Policy,
        answer: Answer,
        now: Instant,
    ) -> Response {
        self.store.counts.sent(answer, key, &stored.route, trace);
        let mut status = CacheStatus::hit(stored.lifetime, stored.age(now));
        status.collapsed = answer == Answer::Collapsed;
        let answered = respond(stored, request, summary, policy, status, now);
        self.encoded_soon(answered, stored, key)
    }

    /// Creates the missing encoded form, for later requests.
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
        search: &Search,
        stored: &Arc<Stored>,
        exchange: &Exchange,
        origin: Rc<dyn Origin>,
    ) {
        if exchange.request.method() == b"HEAD" || !search.is_shared {
            return;
        }
        let Some(leader) = self.store.flights.lead(&search.key) else { return };
        let mut request = Request::clone(&exchange.request);
        (request.arrived, request.received) = (Instant::now(), SystemTime::now());
        let found =
            SearchResult { stored: Some(stored.clone()), why: Forwarded::Stale, now: request.arrived };
        let call = Call { renews: true, ..self.call(search, &request, found) };
        let exchange = own(request);
        self.store.counts.renewed();
        let cache = self.clone();
        spawn_local(async move { drop(cache.forward(call, exchange, origin, Some(leader)).await) });
    }

    /// Leads a flight. If the origin is slow, the client gets the stale response if that may be sent when the
    /// origin fails; the flight continues.
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
        let summary = call.summary;
        // A request of the cache itself, which continues when the client disconnects.
        let asked = own(Request::clone(&exchange.request));
        let (cache, measured) = (self.clone(), asked.trace.clone());
        let served = spawn_local(async move { cache.forward(call, asked, origin, Some(leader)).await });
        match tokio::time::timeout(slow, served).await {
            Ok(Ok(response)) => {
                exchange.trace.adopt(&measured);
                response
            }
            late => {
                let now = Instant::now();
                if late.is_err() {
                    self.store.fail(&key, now);
                }
                self.send(&stale, &key, &request, &exchange.trace, summary, &policy, Answer::Stale, now)
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
        let (asked, moment) = (Instant::now(), self.store.moment());
        let mut response = origin.call(exchange).await;
        let arrival = Arrival::now(asked, moment);
        let now = arrival.at;
        if let Some(stale) = &call.stale {
            if response.status == 304 {
                return self.confirmed(&call, stale, &response.fields, &trace, arrival, leader);
            }
            if is_error(&response) && reuse::on_error(stale, &call.policy, now) {
                if let Some(failure) = response.failure.take() {
                    trace.note(*failure);
                }
                self.store.fail(&call.key, now);
                if let Some(leader) = leader {
                    leader.end(Outcome::Failed);
                }
                self.store.counts.sent(Answer::Stale, &call.key, &stale.route, &trace);
                let mut status = CacheStatus::hit(stale.lifetime, stale.age(now));
                (status.forwarded, status.origin_status) = (Some(call.why), Some(response.status));
                let answered = respond(stale, &call.request, call.summary, &call.policy, status, now);
                return self.encoded_soon(answered, stale, &call.key);
            }
        }
        self.arrived(call, response, &trace, arrival, leader)
    }

    /// The origin has confirmed a kept response.
    fn confirmed(
        self: &Rc<Cache>,
        call: &Call,
        stale: &Arc<Stored>,
        update: &Fields,
        trace: &Trace,
        arrival: Arrival,
        leader: Option<Leader>,
    ) -> Response {
        let merged = stale.merged(update);
        let head = Response::new(stale.status, merged, Body::Bytes(stale.body.clone()));
        let (kept, still) = match storable::judge(&call.request, &head, &call.policy, arrival.since) {
            Ok(plan) => {
                let kept = Arc::new(stale.validated(&head.fields, &plan, arrival));
                let still = self.store.put(&call.key, kept.clone(), arrival.moment);
                (kept, still)
            }
            // A response that may no longer be kept is sent once more.
            Err(refused) => {
                if !refused.by_request {
                    self.store.remove(&call.key);
                }
                self.store.refuse(&call.key, refused, arrival.at);
                let plan = unkept_plan(&head.fields);
                (Arc::new(stale.validated(&head.fields, &plan, arrival)), false)
            }
        };
        if let Some(leader) = leader {
            leader.end(if still { Outcome::Kept } else { Outcome::Alone });
        }
        if !call.renews {
            self.store.counts.sent(Answer::Validated, &call.key, &kept.route, trace);
        }
        let mut status = CacheStatus::hit(kept.lifetime, kept.age(arrival.at));
        (status.hit, status.forwarded, status.origin_status, status.stored) =
            (None, Some(call.why), Some(304), still);
        let answered = respond(&kept, &call.request, call.summary, &call.policy, status, arrival.at);
        self.encoded_soon(answered, &kept, &call.key)
    }

    /// Keeps a response of the origin if it may be kept, and sends it.
    fn arrived(
        self: &Rc<Cache>,
        call: Call,
        mut response: Response,
        trace: &Trace,
        arrival: Arrival,
        leader: Option<Leader>,
    ) -> Response {
        let mut status = CacheStatus::forwarded(call.why);
        let route = trace.route.borrow().clone();
        let judged = storable::judge(&call.request, &response, &call.policy, arrival.since);
        let judged = match judged {
            Ok(_) if call.request.method() == b"HEAD" => Err(Refusal::Status.into()),
            other => other,
        };
        match judged {
            Ok(plan) => {
                status.stored = true;
                self.store.counts.missed(&call.key, None, route);
                self.keep(&call, plan, &mut response, arrival, leader);
            }
            Err(refused) => {
                let why = refused.why;
                status.detail = Some(why.name());
                let head = call.request.method() == b"HEAD";
                self.store.counts.missed(&call.key, (!head).then_some(why), route);
                let says_nothing = is_error(&response) || is_of_client(&response);
                // A response that replaces a kept response ends it; an error does not.
                let replaces = !refused.by_request && !says_nothing && response.status != 304;
                if call.stale.is_some() && replaces {
                    self.store.remove(&call.key);
                }
                match leader {
                    // The next one leads.
                    Some(leader) if is_of_client(&response) => drop(leader),
                    Some(leader) => {
                        // After an error, later requests may still share one response.
                        if says_nothing {
                            self.store.counts.refused(why);
                        } else {
                            self.store.refuse(&call.key, refused, arrival.at);
                        }
                        leader.end(Outcome::Alone);
                    }
                    None if head => {}
                    None => self.store.counts.refused(why),
                }
            }
        }
        remove_tags(&mut response.fields);
        if call.policy.status_field && !matches!(response.body, Body::Tunnel { .. }) {
            status.write(&mut response.fields);
        }
        response
    }

    /// Keeps a response: at once if its body is complete, otherwise when the body has arrived.
    fn keep(
        self: &Rc<Cache>,
        call: &Call,
        plan: Plan,
        response: &mut Response,
        arrival: Arrival,
        leader: Option<Leader>,
    ) {
        let length = plan.whole;
        let status = if length.is_some() { 200 } else { response.status };
        let whole = match &response.body {
            Body::Empty => Some(Ok(Bytes::new())),
            Body::Bytes(bytes) => Some(Ok(bytes.clone())),
            Body::File(region) => Some(gather::read(region).map(Bytes::from).map_err(|_| Unkept::Incomplete)),
            _ => None,
        };
        let made = {
            let (fields, request) = (response.fields.clone(), call.request.clone());
            move |body: Bytes| match length {
                Some(length) if length != body.len() as u64 => Err(Unkept::Incomplete),
                _ => Ok(Arc::new(Stored::new(status, &fields, body, &plan, &request, arrival))),
            }
        };
        if let Some(body) = whole {
            return self.finish(&call.key, body.and_then(made), arrival.moment, leader);
        }
        let Body::Stream(origin) = std::mem::replace(&mut response.body, Body::Empty) else { return };
        let most = usize::try_from(call.policy.max_object).unwrap_or(usize::MAX);
        let (gathered, following) = gather::divide(origin, most);
        response.body = Body::Stream(Box::new(following));
        let (cache, key) = (self.clone(), call.key.clone());
        spawn_local(async move {
            let body = gathered.done().await;
            cache.finish(&key, body.and_then(made), arrival.moment, leader);
        });
    }

    /// Puts a whole response into the store.
    fn finish(&self, key: &[u8], made: Result<Arc<Stored>, Unkept>, moment: Moment, leader: Option<Leader>) {
        let outcome = match made {
            Ok(stored) => {
                if self.store.put(key, stored, moment) {
                    Outcome::Kept
                } else {
                    self.store.counts.refused(Refusal::Invalidated);
                    Outcome::Alone
                }
            }
            Err(unkept) => {
                let why = if unkept == Unkept::TooLong { Refusal::TooLong } else { Refusal::Incomplete };
                self.store.refuse(key, why.into(), Instant::now());
                Outcome::Alone
            }
        };
        if let Some(leader) = leader {
            leader.end(outcome);
        }
    }
}

impl Search {
    fn new(request: &Request, summary: FieldSummary, policy: Arc<Policy>) -> Search {
        let mut key = Vec::with_capacity(128);
        key::write(request, policy.sort_query, &mut key);
        let is_shared = !summary.range
            && !summary.precondition
            && storable::of_one_client(request, summary, &policy).is_none();
        Search {
            key: key.into(),
            summary,
            directives: client_directives(request, summary, &policy),
            policy,
            arrived: request.arrived,
            is_shared,
            leads: is_shared,
            waits: 0,
            failed: false,
        }
    }

    /// Returns whether a stale response may be sent because the origin is slow.
    fn may_be_stale(&self, stored: &Stored, now: Instant) -> bool {
        !self.policy.stale_if_slow.is_zero() && reuse::on_error(stored, &self.policy, now)
    }
}

/// Returns the client's Cache-Control directives, as far as the policy allows them.
fn client_directives(request: &Request, summary: FieldSummary, policy: &Policy) -> RequestDirectives {
    if summary.directives && policy.client_control {
        RequestDirectives::of(&request.fields)
    } else {
        RequestDirectives::default()
    }
}

/// Waits for the outcome of a flight, at most for `patience`, and no longer than the client does.
async fn wait(receiver: watch::Receiver<Option<Outcome>>, patience: Duration, client: &dyn Client) -> Waited {
    let mut outcome = pin!(tokio::time::timeout(patience, flight::outcome(receiver)));
    poll_fn(|cx| {
        if let Poll::Ready(ended) = outcome.as_mut().poll(cx) {
            return Poll::Ready(ended.map_or(Waited::Late, Waited::Ended));
        }
        // A client that has closed its sending side has probably gone, as for queued requests.
        client.poll_departure(cx).map(|_| Waited::Gone)
    })
    .await
}

/// Returns the exchange of a request that the cache itself makes.
pub(crate) fn own(request: Request) -> Exchange {
    Exchange {
        request: Lent::from(request),
        incoming: Incoming::Empty,
        client: Rc::new(StayingClient),
        trace: Rc::new(Trace::default()),
    }
}

/// Returns whether a kept response may answer the request.
fn is_cacheable(request: &Request, summary: FieldSummary, incoming: &Incoming) -> bool {
    matches!(request.method(), b"GET" | b"HEAD") && matches!(incoming, Incoming::Empty) && !summary.upgrade
}

/// Returns whether the origin has failed (RFC 5861 section 4).
fn is_error(response: &Response) -> bool {
    matches!(response.status, 500 | 502 | 503 | 504)
}

/// Returns whether the client has failed, not the origin: it went away, or sent something invalid.
fn is_of_client(response: &Response) -> bool {
    response.failure.as_ref().is_some_and(|failure| failure.fault == Fault::Client)
}

/// Makes a request conditional on the kept response (RFC 9111 section 4.3.1), instead of on the client's
/// conditions.
fn validate(request: &mut Request, stored: &Stored) {
    let (tag, modified) = (stored.head.get("etag"), stored.head.get("last-modified"));
    request.fields.retain(|name, _| !is_condition(name) && !name.eq_ignore_ascii_case(b"range"));
    if let Some(tag) = tag {
        request.fields.push(b"If-None-Match", tag);
    }
    if let Some(modified) = modified {
        request.fields.push(b"If-Modified-Since", modified);
    }
}

/// Returns the response to a POST that may be kept for a later GET, if it names the POST's URI as its Content-Location (RFC 9110 section 9.3.3).
fn post_response(
    request: &Request,
    response: &Response,
    policy: &Policy,
    arrival: Arrival,
) -> Option<Stored> {
    let Body::Bytes(body) = &response.body else { return None };
    if request.method() != b"POST" || response.status >= 300 {
        return None;
    }
    let plan = storable::judge(request, response, policy, arrival.since).ok()?;
    Some(Stored::new(response.status, &response.fields, body.clone(), &plan, request, arrival))
}

fn remove_tags(fields: &mut Fields) {
    if TAG_FIELDS.iter().any(|name| fields.get(name).is_some()) {
        fields.retain(|name, _| !TAG_FIELDS.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes())));
    }
}

/// The plan of a response that is sent once more and not kept.
fn unkept_plan(fields: &Fields) -> Plan {
    Plan {
        directives: ResponseDirectives::of(fields),
        lifetime: crate::freshness::Lifetime::Unknown,
        vary: Vec::new(),
        whole: None,
    }
}

#[cfg(test)]
#[path = "service_tests.rs"]
mod tests;
