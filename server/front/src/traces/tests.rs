//! Tests the path from the head of a request to the spans that a collector gets.

use super::otlp::{AnyValue, ExportRequest, Span, Value, encode, spans};
use super::*;
use handler::testing::{peer, request};
use handler::{Failure, Peer, Trace};
use prost::Message;

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn tracing(sampler: Sampler, room: usize) -> (Tracing, mpsc::Receiver<Record>) {
    let (to, records) = mpsc::channel(room);
    (Tracing::new(TracingSeed { sampler, to, crowded: Arc::default() }), records)
}

fn always() -> Sampler {
    Sampler::new(true, 1.0)
}

fn begun(sampler: Sampler, fields: &[(&str, &str)]) -> (Option<Active>, Request) {
    let mut request = request("GET", "/books?q=1", fields);
    let active = tracing(sampler, 1).0.begin(&mut request);
    (active, request)
}

fn passed_on(request: &Request) -> Option<TraceParent> {
    let mut all = request.fields.all("traceparent");
    let one = all.next().and_then(TraceParent::parse);
    assert_eq!(all.next(), None, "one field");
    one
}

#[test]
fn a_trace_begins_here_or_goes_on() {
    let (active, request) = begun(always(), &[]);
    let (active, sent) = (active.unwrap(), passed_on(&request).unwrap());
    assert_eq!((sent.trace, sent.span, sent.is_sampled()), (active.trace, active.handler, true));
    assert!(active.parent.is_none() && active.server != active.handler);

    let (active, request) =
        begun(always(), &[("Traceparent", PARENT), ("tracestate", "a=1"), ("TraceState", "b=2")]);
    let (active, sent) = (active.unwrap(), passed_on(&request).unwrap());
    assert_eq!(
        format!("{:?} {:?}", sent.trace, active.parent.unwrap()),
        "0af7651916cd43dd8448eb211c80319c b7ad6b7169203331"
    );
    assert_eq!((sent.span, &*active.state), (active.handler, "a=1,b=2"));
    assert_eq!(request.fields.all("tracestate").count(), 2, "passes as it came");
}

#[test]
fn what_is_not_recorded_is_passed_on_all_the_same() {
    let unsampled = PARENT.replace("-01", "-00");
    let (active, request) = begun(always(), &[("traceparent", &unsampled)]);
    assert_eq!((active.is_none(), request.fields.get("traceparent")), (true, Some(unsampled.as_bytes())));
    let (active, request) = begun(Sampler::new(true, 0.0), &[]);
    assert!(
        active.is_none() && passed_on(&request).is_some_and(|sent| !sent.is_sampled()),
        "the app decides alike"
    );
    let (active, request) = begun(Sampler::new(false, 0.0), &[("traceparent", PARENT)]);
    let sent = passed_on(&request).unwrap();
    assert!(active.is_none() && !sent.is_sampled(), "{sent:?}");
    assert_ne!(sent.write()[..], *PARENT.as_bytes());
    assert!(begun(Sampler::new(false, 1.0), &[("traceparent", &unsampled)]).0.is_some());
}

#[test]
fn a_position_that_cannot_be_read_is_replaced_with_its_state() {
    for wrong in [
        &[("traceparent", "nonsense")][..],
        &[("traceparent", PARENT), ("traceparent", PARENT)],
        &[("traceparent", "")],
    ] {
        let fields: Vec<_> = wrong.iter().copied().chain([("tracestate", "a=1")]).collect();
        let (active, request) = begun(always(), &fields);
        let (active, sent) = (active.unwrap(), passed_on(&request).unwrap());
        assert!(active.parent.is_none() && sent.trace == active.trace && active.state.is_empty());
        assert_ne!(format!("{:?}", sent.trace), PARENT[3..35]);
        assert_eq!(request.fields.get("tracestate"), None);
    }
}

/// Returns the end of an exchange whose response has no body.
fn ending<'a>(request: &'a Request, peer: &'a Peer, trace: &'a Trace, status: u16) -> Ending<'a> {
    let now = Instant::now();
    Ending {
        request: Some(request),
        failure: None,
        peer,
        trace,
        status,
        body_bytes: 0,
        started: now,
        ended: now,
        broken: false,
        hijacked: false,
    }
}

/// Records a request that took 60 ms: 10 ms until it was queued, 20 ms in the queue, 15 ms in the app, 15 ms to send.
fn recorded(change: impl FnOnce(&Trace, &mut Ending<'_>)) -> Vec<Span> {
    let (tracing, mut records) = tracing(always(), 1);
    let mut request = request("GET", "/books?q=1", &[("traceparent", PARENT), ("User-Agent", "Lynx")]);
    let (trace, peer) = (Trace::default(), peer());
    // In the past, so that the request is over.
    let started = Instant::now().checked_sub(Duration::from_millis(100)).unwrap();
    let at = |ms| started + Duration::from_millis(ms);
    let active = tracing.begin(&mut request).unwrap();
    active.responded.set(Some(at(45)));
    trace.span.set(Box::new(active)).unwrap();
    trace.asked.set(Some(at(10)));
    trace.queue_us.set(20_000);
    trace.app_us.set(15_000);
    trace.worker.set(3);
    let mut ending = Ending { body_bytes: 5, started, ended: at(60), ..ending(&request, &peer, &trace, 200) };
    change(&trace, &mut ending);
    tracing.finished(&ending);
    spans(&records.try_recv().expect("a record"))
}

fn value<'a>(span: &'a Span, key: &str) -> Option<&'a Value> {
    let found = span.attributes.iter().find(|one| one.key == key)?;
    match &found.value {
        Some(AnyValue { value }) => value.as_ref(),
        None => None,
    }
}

fn milliseconds(span: &Span) -> u64 {
    (span.end_time_unix_nano - span.start_time_unix_nano) / 1_000_000
}

#[test]
fn an_apps_request_is_four_spans() {
    let all = recorded(|_, _| {});
    assert_eq!(
        all.iter().map(|span| span.name.as_str()).collect::<Vec<_>>(),
        ["GET", "queue", "app", "send"]
    );
    let kinds: Vec<i32> = all.iter().map(|span| span.kind).collect();
    assert_eq!(
        (kinds, all.iter().map(milliseconds).collect::<Vec<_>>()),
        (vec![2, 1, 1, 1], vec![60, 20, 15, 15])
    );
    let server = &all[0];
    assert_eq!(server.parent_span_id, [0xb7, 0xad, 0x6b, 0x71, 0x69, 0x20, 0x33, 0x31]);
    assert!(
        all[1..].iter().all(|span| span.parent_span_id == server.span_id && span.trace_id == server.trace_id)
    );
    assert_eq!((server.flags, all[1].flags), (0x301, 0x101), "the parent is remote");
    assert_eq!((all[2].start_time_unix_nano, &server.status), (all[1].end_time_unix_nano, &None));
    let text = |key: &str| match value(server, key) {
        Some(Value::Text(text)) => text.clone(),
        other => format!("{other:?}"),
    };
    assert_eq!(
        [text("http.request.method"), text("url.path"), text("url.scheme")],
        ["GET", "/books", "http"]
    );
    assert_eq!(
        [text("server.address"), text("user_agent.original"), text("network.protocol.version")],
        ["example.org", "Lynx", "1.1"]
    );
    assert_eq!(text("client.address"), *peer().remote_text);
    assert_eq!(value(server, "http.response.status_code"), Some(&Value::Integer(200)));
    assert_eq!(
        (value(server, "server.port"), value(server, "error.type")),
        (Some(&Value::Integer(80)), None)
    );
    assert_eq!(value(&all[2], "firebrick.worker"), Some(&Value::Integer(2)));
}

#[test]
fn other_requests_have_the_spans_of_what_served_them() {
    let names = |change: fn(&Trace)| {
        let all = recorded(|trace, _| {
            trace.worker.set(0);
            change(trace);
        });
        all.into_iter().map(|span| span.name).collect::<Vec<_>>()
    };
    assert_eq!(names(|_| {}), ["GET", "queue", "send"], "no worker was free in time");
    assert_eq!(names(|trace| trace.asked.set(None)), ["GET", "send"], "a file");
    let origin = |trace: &Trace| {
        trace.asked.set(None);
        let active = trace.span.get().unwrap();
        active.forwarded.set(active.responded.get());
    };
    assert_eq!(names(origin), ["GET", "proxy", "send"]);
    let script = |trace: &Trace| {
        trace.asked.set(None);
        trace.span.get().unwrap().scripted.set(true);
    };
    assert_eq!(names(script), ["GET", "handler", "send"]);
}

#[test]
fn what_fails_has_the_status_of_an_error_and_what_clients_do_wrong_has_not() {
    let status = |status: u16, failure: Option<Failure>, broken: bool| {
        let all = recorded(|_, ending| {
            // Leaked, because the spans outlive the failure.
            ending.failure = failure.map(|failure| &*Box::leak(Box::new(failure)));
            (ending.status, ending.broken) = (status, broken);
        });
        let kind = match value(&all[0], "error.type") {
            Some(Value::Text(text)) => Some(text.clone()),
            _ => None,
        };
        (all[0].status.clone().map(|status| (status.code, status.message)), kind)
    };
    assert_eq!(status(500, None, false), (Some((2, String::new())), Some("500".into())));
    let failure = || Some(Failure::app(504, "too slow"));
    assert_eq!(status(504, failure(), false), (Some((2, "too slow".into())), Some("504".into())));
    assert_eq!(status(200, failure(), true), (Some((2, "too slow".into())), Some("cut_off".into())));
    assert_eq!(status(404, None, false), (None, None));
    assert_eq!(status(0, Some(Failure::client_gone("left")), true), (None, None));
}

#[test]
fn unusual_methods_do_not_become_names() {
    let (tracing, mut records) = tracing(always(), 1);
    let mut request = request("BREW", "/pot", &[]);
    let (trace, peer) = (Trace::default(), peer());
    trace.span.set(Box::new(tracing.begin(&mut request).unwrap())).unwrap();
    tracing.finished(&ending(&request, &peer, &trace, 405));
    let record = records.try_recv().unwrap();
    let span = &spans(&record)[0];
    assert_eq!((span.name.as_str(), span.parent_span_id.len(), span.flags), ("HTTP", 0, 0x101));
    assert_eq!(value(span, "http.request.method"), Some(&Value::Text("_OTHER".into())));
    assert_eq!(value(span, "http.request.method_original"), Some(&Value::Text("BREW".into())));
    let resource = otlp::Resource { attributes: vec![otlp::attribute("service.name", "shop")] };
    let read = ExportRequest::decode(encode(&resource, std::slice::from_ref(&record)).as_slice()).unwrap();
    assert_eq!(read.resource_spans[0].resource.as_ref(), Some(&resource));
    assert_eq!(read.resource_spans[0].scope_spans[0].spans, spans(&record));
}

#[test]
fn a_full_queue_drops_and_counts() {
    let (tracing, _records) = tracing(always(), 1);
    let peer = peer();
    for _ in 0..3 {
        let (mut request, trace) = (request("GET", "/", &[]), Trace::default());
        trace.span.set(Box::new(tracing.begin(&mut request).unwrap())).unwrap();
        tracing.finished(&ending(&request, &peer, &trace, 200));
    }
    assert_eq!(tracing.seed.crowded.load(Ordering::Relaxed), 2);
}
