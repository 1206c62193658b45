//! Distributed traces.

use super::entry::{Category, long};
use super::section::section;
use crate::kind::names::Url;
use crate::kind::numbers::Ratio;
use crate::kind::texts::{Pairs, Text};
use crate::kind::wrappers::{Auto, Maybe, OrOff};

section! { Category::Traces;
    /// The target of spans of distributed traces. Missing values are taken from OpenTelemetry's variables.
    Traces:

    /// URL of the OpenTelemetry collector for spans of requests
    endpoint: Option<Option<String>> = Auto(OrOff(Url)), {
        key: "traces.endpoint",
        flags: &[long("traces-endpoint", "URL|auto|off")],
        default: "off",
        more: "The server exports with OTLP/HTTP (protobuf) and adds /v1/traces to the URL. auto uses OTEL_EXPORTER_OTLP_TRACES_ENDPOINT or \
               OTEL_EXPORTER_OTLP_ENDPOINT, else http://localhost:4318. These variables alone do not turn traces on. With off, \
               the app gets traceparent unchanged.",
        known_as: &["otel_exporter_otlp_endpoint", "otlp_endpoint", "trace_endpoint", "tracing_endpoint"],
    }
    /// Share of the traces started by this server to record, 0 to 1
    sample: Option<u32> = Maybe(Ratio), {
        key: "traces.sample",
        flags: &[long("traces-sample", "RATIO")],
        default_shown: Some("`OTEL_TRACES_SAMPLER` with `OTEL_TRACES_SAMPLER_ARG`, else 1"),
        more: "For traces started elsewhere, the sampled flag of traceparent decides.",
        known_as: &["otel_traces_sampler_arg", "sample_rate", "traces_sample_rate"],
    }
    /// Name of this service in traces
    service_name: Option<String> = Maybe(Text), {
        key: "traces.service_name",
        flags: &[long("traces-service-name", "NAME")],
        default_shown: Some("`OTEL_SERVICE_NAME`, else `service.name` of `OTEL_RESOURCE_ATTRIBUTES`, else tag"),
        more: "Further attributes of the service are read from OTEL_RESOURCE_ATTRIBUTES.",
        known_as: &["otel_service_name", "service_name"],
    }
    /// Header fields for the collector, such as an API key
    headers: Option<String> = Maybe(Pairs), {
        key: "traces.headers",
        flags: &[long("traces-headers", "NAME=VALUE,...")],
        default_shown: Some("`OTEL_EXPORTER_OTLP_TRACES_HEADERS`, else `OTEL_EXPORTER_OTLP_HEADERS`"),
        more: "Written name=value,name=value, with %2C for a comma inside a value.",
        secret: true,
        known_as: &["otel_exporter_otlp_headers"],
    }
}
