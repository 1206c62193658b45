//! The OTLP 1.x messages for traces (opentelemetry-proto, `trace/v1` and `collector/trace/v1`), and the
//! conversion of a request to spans.
//!
//! Names and types of attributes follow OpenTelemetry's semantic conventions for HTTP servers. Attributes
//! that these lack begin with `firebrick.`.

use super::record::{Record, Served, SpanKind, Timed, known_method};
use prost::{Message, Oneof};

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ExportRequest {
    #[prost(message, repeated, tag = "1")]
    pub(crate) resource_spans: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    pub(crate) resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) scope_spans: Vec<ScopeSpans>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Resource {
    #[prost(message, repeated, tag = "1")]
    pub(crate) attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    pub(crate) scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) spans: Vec<Span>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Scope {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) version: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Span {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) span_id: Vec<u8>,
    #[prost(string, tag = "3")]
    pub(crate) trace_state: String,
    #[prost(bytes = "vec", tag = "4")]
    pub(crate) parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    pub(crate) name: String,
    #[prost(int32, tag = "6")]
    pub(crate) kind: i32,
    #[prost(fixed64, tag = "7")]
    pub(crate) start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    pub(crate) end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    pub(crate) attributes: Vec<KeyValue>,
    #[prost(message, optional, tag = "15")]
    pub(crate) status: Option<Status>,
    #[prost(fixed32, tag = "16")]
    pub(crate) flags: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Status {
    #[prost(string, tag = "2")]
    pub(crate) message: String,
    #[prost(int32, tag = "3")]
    pub(crate) code: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct KeyValue {
    #[prost(string, tag = "1")]
    pub(crate) key: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct AnyValue {
    #[prost(oneof = "Value", tags = "1, 2, 3, 4")]
    pub(crate) value: Option<Value>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Value {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(bool, tag = "2")]
    Switch(bool),
    #[prost(int64, tag = "3")]
    Integer(i64),
    #[prost(double, tag = "4")]
    Number(f64),
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ExportResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) partial_success: Option<PartialSuccess>,
}

/// The rejected part of a batch that the collector has accepted otherwise.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct PartialSuccess {
    #[prost(int64, tag = "1")]
    pub(crate) rejected_spans: i64,
    #[prost(string, tag = "2")]
    pub(crate) error_message: String,
}

/// `STATUS_CODE_ERROR`.
const ERROR: i32 = 2;
/// `SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK` and `SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK`.
const KNOWN_AND_REMOTE: u32 = 0x300;
const KNOWN_AND_LOCAL: u32 = 0x100;

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_owned())
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Value {
        Value::Integer(number)
    }
}

pub(crate) fn attribute(key: &str, value: impl Into<Value>) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value.into()) }) }
}

pub(crate) fn encode(resource: &Resource, records: &[Record]) -> Vec<u8> {
    let scope = Scope { name: "firebrick".to_owned(), version: crate::VERSION.to_owned() };
    let spans = records.iter().flat_map(spans).collect();
    let scope_spans = vec![ScopeSpans { scope: Some(scope), spans }];
    ExportRequest { resource_spans: vec![ResourceSpans { resource: Some(resource.clone()), scope_spans }] }
        .encode_to_vec()
}

/// Returns the spans of a request, the server span first.
pub(crate) fn spans(record: &Record) -> Vec<Span> {
    let flags = u32::from(record.flags);
    let base = |id: [u8; 8], parent: Vec<u8>, name: &str, kind: SpanKind, timed: Timed| Span {
        trace_id: record.trace.to_vec(),
        span_id: id.to_vec(),
        trace_state: record.state.to_string(),
        parent_span_id: parent,
        name: name.to_owned(),
        kind: kind as i32,
        start_time_unix_nano: timed.start,
        end_time_unix_nano: timed.end.max(timed.start),
        attributes: Vec::new(),
        status: None,
        flags: flags | KNOWN_AND_LOCAL,
    };
    let method = known_method(&record.method);
    let name = if method == "_OTHER" { "HTTP" } else { method };
    let parent = record.parent.map_or(Vec::new(), |id| id.to_vec());
    let remote = if parent.is_empty() { KNOWN_AND_LOCAL } else { KNOWN_AND_REMOTE };
    let own = base(record.server, parent, name, SpanKind::Server, record.whole);
    let mut all = vec![Span {
        attributes: attributes(record, method),
        status: record.error.as_ref().map(|error| Status { message: error.reason.clone(), code: ERROR }),
        flags: flags | remote,
        ..own
    }];
    let inside = record.server.to_vec();
    if let Some((id, timed)) = record.queue {
        all.push(base(id, inside.clone(), "queue", SpanKind::Internal, timed));
    }
    if let Some((served, timed)) = record.served {
        let (name, kind) = match served {
            Served::App { .. } => ("app", SpanKind::Internal),
            Served::Origin => ("proxy", SpanKind::Client),
            Served::Handler => ("handler", SpanKind::Internal),
        };
        let mut span = base(record.handler, inside.clone(), name, kind, timed);
        match served {
            Served::App { worker, cpu_us, gvl_us } => {
                span.attributes.push(attribute("firebrick.worker", i64::from(worker)));
                let measured = [("firebrick.cpu_us", cpu_us), ("firebrick.gvl_wait_us", gvl_us)];
                let known = measured.into_iter().filter_map(|(key, us)| Some((key, us?)));
                span.attributes.extend(known.map(|(key, us)| attribute(key, i64::from(us))));
            }
            Served::Origin => {
                span.attributes.push(attribute("http.request.method", method));
                if record.status > 0 {
                    let status = i64::from(record.status);
                    span.attributes.push(attribute("http.response.status_code", status));
                }
            }
            Served::Handler => {}
        }
        all.push(span);
    }
    if let Some((id, timed)) = record.send {
        all.push(base(id, inside, "send", SpanKind::Internal, timed));
    }
    all
}

fn attributes(record: &Record, method: &str) -> Vec<KeyValue> {
    let mut all = vec![attribute("http.request.method", method)];
    let mut text = |key: &str, value: &str| {
        if !value.is_empty() {
            all.push(attribute(key, value));
        }
    };
    if method == "_OTHER" {
        text("http.request.method_original", &record.method);
    }
    text("url.path", &record.path);
    text("url.scheme", if record.https { "https" } else { "http" });
    text("server.address", &record.host);
    text("client.address", &record.client);
    text("user_agent.original", &record.agent);
    text("network.protocol.name", "http");
    text("network.protocol.version", record.version);
    if let Some(error) = &record.error {
        text("error.type", &error.kind);
    }
    let mut number =
        |key: &str, value: u64| all.push(attribute(key, i64::try_from(value).unwrap_or(i64::MAX)));
    if record.port > 0 {
        number("server.port", record.port.into());
    }
    if record.status > 0 {
        number("http.response.status_code", record.status.into());
    }
    number("http.response.body.size", record.body_bytes);
    all
}
