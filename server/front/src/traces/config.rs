//! The exporter's configuration: `[traces]`, completed by OpenTelemetry's environment variables.
//!
//! The variables alone do not turn the export on: they may be meant for the app. Pure: the variables are
//! passed in. A variable that cannot be used is ignored with a warning, as OpenTelemetry requires. Only
//! [`Config::check_authorities`] reads a file, once.

use super::otlp::{Resource, attribute};
use std::path::PathBuf;
use std::time::Duration;
use trace::Sampler;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Config {
    /// Scheme, host and port: `https://host:port`.
    pub(crate) origin: String,
    /// Path and query.
    pub(crate) target: String,
    pub(crate) headers: Vec<(String, String)>,
    /// The authorities to verify the collector's certificate with, instead of the system's: the variable, and
    /// the file that it names.
    pub(crate) ca: Option<(String, PathBuf)>,
    /// The time-out of an export.
    pub(crate) timeout: Duration,
    /// The longest time that a request waits for its batch to fill up.
    pub(crate) delay: Duration,
    /// The number of requests in a batch.
    pub(crate) batch: usize,
    /// The largest number of requests that wait for the export.
    pub(crate) queue: usize,
    pub(crate) sampler: Sampler,
    pub(crate) resource: Resource,
}

/// The path that is added to an address without one.
const PATH: &str = "/v1/traces";
const DEFAULT: &str = "http://localhost:4318";

/// Returns the configuration and warnings; `None` if the export is off. `tag` is the server's name unless the
/// settings or the variables give one.
pub(crate) fn read(
    settings: &settings::Traces,
    tag: &str,
    variable: impl Fn(&str) -> Option<String>,
) -> Option<(Config, Vec<String>)> {
    let endpoint = match &settings.endpoint {
        Some(None) => return None,
        Some(Some(own)) => Some(own),
        None => None,
    };
    let mut warnings = Vec::new();
    // An empty variable counts as unset.
    let set = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
    let either = |name: &str| {
        [format!("OTEL_EXPORTER_OTLP_TRACES_{name}"), format!("OTEL_EXPORTER_OTLP_{name}")]
            .into_iter()
            .find_map(|name| set(&name).map(|value| (name, value)))
    };
    let (origin, target) = match endpoint {
        Some(own) => based(own).unwrap_or_else(|why| {
            warnings.push(format!("traces.endpoint: {why}; {DEFAULT} is used"));
            usual()
        }),
        None => address(&set, &mut warnings),
    };
    let headers = match &settings.headers {
        Some(own) => pairs(own),
        None => either("HEADERS").map_or(Vec::new(), |(name, text)| {
            let headers = pairs(&text);
            if headers.is_empty() {
                warnings.push(format!("{name} holds no pairs like name=value"));
            }
            headers
        }),
    };
    let (sent, refused): (Vec<_>, Vec<_>) =
        headers.into_iter().partition(|(name, value)| is_field(name, value));
    warnings.extend(
        refused.iter().map(|(name, _)| format!("the header {name:?} cannot be sent to the collector")),
    );
    if let Some((name, protocol)) = either("PROTOCOL").filter(|(_, protocol)| protocol != "http/protobuf") {
        warnings.push(format!("{name} is {protocol}: the server exports by http/protobuf all the same"));
    }
    let mut number =
        |name: &str, least: u64, usual: u64| match set(name).map(|text| text.trim().parse::<u64>()) {
            None => usual,
            Some(Ok(number)) if number >= least => number,
            Some(_) => {
                warnings.push(format!("{name} is no number from {least}: {usual} is used"));
                usual
            }
        };
    let timeout = match either("TIMEOUT") {
        Some((name, _)) => number(&name, 1, 10_000),
        None => 10_000,
    };
    let delay = number("OTEL_BSP_SCHEDULE_DELAY", 0, 5_000);
    let queue = number("OTEL_BSP_MAX_QUEUE_SIZE", 1, 2_048);
    let batch = number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 1, 512).min(queue);
    let sampler = match settings.sample {
        Some(millionths) => Sampler::new(true, f64::from(millionths) / 1e6),
        None => sampler(&set, &mut warnings),
    };
    let resource = resource(settings.service_name.as_deref(), tag, &set);
    let config = Config {
        origin,
        target,
        headers: sent,
        ca: either("CERTIFICATE").map(|(name, path)| (name, path.into())),
        timeout: Duration::from_millis(timeout),
        delay: Duration::from_millis(delay),
        batch: usize::try_from(batch).unwrap_or(usize::MAX).min(1 << 14),
        queue: usize::try_from(queue).unwrap_or(usize::MAX).min(1 << 20),
        sampler,
        resource,
    };
    Some((config, warnings))
}

impl Config {
    /// Drops a file of authorities that cannot be used. Returns the reason.
    pub(super) fn check_authorities(&mut self) -> Option<String> {
        let (name, file) = self.ca.as_ref()?;
        let read = trust::Secret::read(file, 16 << 20).map_err(|error| error.to_string());
        let why = match read.and_then(|text| trust::pem::certificates(&text)) {
            Ok(certificates) if certificates.is_empty() => "there is no certificate in it".to_owned(),
            Ok(_) => return None,
            Err(why) => why,
        };
        let warning = format!(
            "{name}: {}: {why}; it must be a PEM file of certificates; the system's authorities are used",
            file.display()
        );
        self.ca = None;
        Some(warning)
    }
}

fn usual() -> (String, String) {
    (DEFAULT.to_owned(), PATH.to_owned())
}

/// Returns the address from the variables, or the default.
fn address(set: &impl Fn(&str) -> Option<String>, warnings: &mut Vec<String>) -> (String, String) {
    let own = set("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
        .map(|url| ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", split(&url)));
    let base = || set("OTEL_EXPORTER_OTLP_ENDPOINT").map(|url| ("OTEL_EXPORTER_OTLP_ENDPOINT", based(&url)));
    match own.or_else(base) {
        None => usual(),
        Some((_, Ok(address))) => address,
        Some((name, Err(why))) => {
            warnings.push(format!("{name}: {why}; {DEFAULT} is used"));
            usual()
        }
    }
}

/// Splits an address and appends the path of traces, unless it is there already.
fn based(url: &str) -> Result<(String, String), String> {
    let (origin, target) = split(url)?;
    let (path, query) = target.split_at(target.find('?').unwrap_or(target.len()));
    let path = path.trim_end_matches('/');
    let path = if path.ends_with(PATH) { path.to_owned() } else { format!("{path}{PATH}") };
    Ok((origin, path + query))
}

/// Splits an address into the origin, and path with query.
fn split(url: &str) -> Result<(String, String), String> {
    let url = url.trim();
    let is_http = |scheme: &str| ["http", "https"].iter().any(|one| scheme.eq_ignore_ascii_case(one));
    let parts = text::url::split(url).filter(|parts| is_http(parts.scheme));
    let parts = parts.ok_or_else(|| format!("{url:?} begins with neither http:// nor https://"))?;
    let (origin, rest) = url.split_at(url.len() - parts.rest.len());
    proxy::Origin::parse(origin)?;
    let rest = rest.split('#').next().unwrap_or_default();
    let target = if rest.starts_with('/') { rest.to_owned() } else { format!("/{rest}") };
    if !target.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(format!("{url:?} has characters that must be percent-encoded"));
    }
    Ok((origin.to_owned(), target))
}

/// Parses `name=value,name=value` with percent-encoded values (W3C Baggage), the format of all of
/// OpenTelemetry's lists.
fn pairs(text: &str) -> Vec<(String, String)> {
    let both = |pair: &str| {
        let (name, value) = pair.split_once('=')?;
        let name = name.trim();
        let value = text::percent::decode(value.trim().as_bytes());
        (!name.is_empty()).then(|| (name.to_owned(), String::from_utf8_lossy(&value).into_owned()))
    };
    text.split(',').filter_map(both).collect()
}

/// Returns whether a header field can be sent to the collector, beside the fields that the server sets itself.
fn is_field(name: &str, value: &str) -> bool {
    let own = ["host", "content-type", "content-length", "transfer-encoding", "connection"];
    text::is_token(name.as_bytes())
        && !own.iter().any(|own| name.eq_ignore_ascii_case(own))
        && value.bytes().all(|byte| byte == b' ' || byte == b'\t' || (byte > b' ' && byte != 0x7f))
}

fn sampler(set: &impl Fn(&str) -> Option<String>, warnings: &mut Vec<String>) -> Sampler {
    let Some(name) = set("OTEL_TRACES_SAMPLER") else { return Sampler::new(true, 1.0) };
    let mut ratio = || match set("OTEL_TRACES_SAMPLER_ARG").map(|text| text.trim().parse::<f64>()) {
        None => 1.0,
        Some(Ok(ratio)) if (0.0..=1.0).contains(&ratio) => ratio,
        Some(_) => {
            warnings.push("OTEL_TRACES_SAMPLER_ARG is no number from 0 to 1: 1 is used".to_owned());
            1.0
        }
    };
    match name.trim() {
        "always_on" => Sampler::new(false, 1.0),
        "always_off" => Sampler::new(false, 0.0),
        "traceidratio" => Sampler::new(false, ratio()),
        "parentbased_always_on" => Sampler::new(true, 1.0),
        "parentbased_always_off" => Sampler::new(true, 0.0),
        "parentbased_traceidratio" => Sampler::new(true, ratio()),
        other => {
            warnings.push(format!(
                "OTEL_TRACES_SAMPLER is {other:?}, which is not known here: parentbased_always_on is used"
            ));
            Sampler::new(true, 1.0)
        }
    }
}

fn resource(own: Option<&str>, tag: &str, set: &impl Fn(&str) -> Option<String>) -> Resource {
    let mut given = set("OTEL_RESOURCE_ATTRIBUTES").map_or(Vec::new(), |text| pairs(&text));
    let named = own.map(str::to_owned).or_else(|| set("OTEL_SERVICE_NAME"));
    let inside = given.iter().find(|(name, _)| name == "service.name").map(|(_, value)| value.clone());
    let service = named.or(inside).unwrap_or_else(|| tag.to_owned());
    given.retain(|(name, _)| name != "service.name");
    let mut attributes = vec![attribute("service.name", service.as_str())];
    attributes.extend(given.iter().map(|(name, value)| attribute(name, value.as_str())));
    if !given.iter().any(|(name, _)| name == "process.pid") {
        attributes.push(attribute("process.pid", i64::from(std::process::id())));
    }
    Resource { attributes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traces::otlp::{AnyValue, Value};

    fn settings() -> settings::Traces {
        settings::Traces { endpoint: None, sample: None, service_name: None, headers: None }
    }

    fn config(settings: &settings::Traces, variables: &[(&str, &str)]) -> (Config, Vec<String>) {
        let get = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        read(settings, "shop", get).expect("asked for")
    }

    fn attributes(config: &Config) -> Vec<(String, String)> {
        let text = |value: &Option<AnyValue>| match value.as_ref().and_then(|value| value.value.clone()) {
            Some(Value::Text(text)) => text,
            other => format!("{other:?}"),
        };
        config.resource.attributes.iter().map(|one| (one.key.clone(), text(&one.value))).collect()
    }

    #[test]
    fn variables_alone_export_nothing() {
        let off = settings::Traces { endpoint: Some(None), ..settings() };
        assert_eq!(read(&off, "shop", |_| Some("http://127.0.0.1:1".to_owned())), None);
    }

    #[test]
    fn addresses() {
        let of = |own: Option<&str>, variables: &[(&str, &str)]| {
            let settings = settings::Traces { endpoint: own.map(|own| Some(own.to_owned())), ..settings() };
            let (config, warnings) = config(&settings, variables);
            (format!("{}{}", config.origin, config.target), warnings.len())
        };
        let (base, whole) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
        assert_eq!(of(None, &[]), ("http://localhost:4318/v1/traces".into(), 0));
        assert_eq!(of(None, &[(base, "")]), ("http://localhost:4318/v1/traces".into(), 0));
        assert_eq!(of(None, &[(base, "https://c:1/x/")]), ("https://c:1/x/v1/traces".into(), 0));
        assert_eq!(
            of(None, &[(base, "https://c:1"), (whole, "http://d/y?z=1")]),
            ("http://d/y?z=1".into(), 0)
        );
        assert_eq!(of(None, &[(whole, "http://d")]), ("http://d/".into(), 0), "as it is");
        assert_eq!(of(Some("http://e:9"), &[(base, "https://c")]), ("http://e:9/v1/traces".into(), 0));
        assert_eq!(of(Some("http://e/v1/traces?k=1"), &[]), ("http://e/v1/traces?k=1".into(), 0));
        for wrong in ["c:4317", "grpc://c", "http://", "http://u@c", "http://c/ä"] {
            assert_eq!(of(None, &[(base, wrong)]), ("http://localhost:4318/v1/traces".into(), 1), "{wrong}");
        }
    }

    #[test]
    fn our_own_table_counts_before_variables() {
        let variables = [
            ("OTEL_SERVICE_NAME", "theirs"),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=other,deployment.environment=a%20b, x=,broken"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%3Db,x=1,Host=evil,b%d=2"),
            ("OTEL_TRACES_SAMPLER", "always_off"),
        ];
        let (theirs, warnings) = config(&settings(), &variables);
        let wanted = [("service.name", "theirs"), ("deployment.environment", "a b"), ("x", "")]
            .map(|(k, v)| (k.into(), v.into()));
        assert_eq!(attributes(&theirs)[..3], wanted);
        let headers: Vec<_> =
            theirs.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(headers, [("api-key", "a=b"), ("x", "1"), ("b%d", "2")]);
        assert_eq!(warnings, ["the header \"Host\" cannot be sent to the collector"]);
        assert_eq!(theirs.sampler, Sampler::new(false, 0.0));
        let own = settings::Traces {
            service_name: Some("ours".into()),
            headers: Some("k=v".into()),
            sample: Some(500_000),
            ..settings()
        };
        let (ours, _) = config(&own, &variables);
        assert_eq!(attributes(&ours)[0], ("service.name".into(), "ours".into()));
        assert_eq!((ours.headers, ours.sampler), (vec![("k".into(), "v".into())], Sampler::new(true, 0.5)));
        let named = [("OTEL_RESOURCE_ATTRIBUTES", "service.name=inside")];
        assert_eq!(attributes(&config(&settings(), &named).0)[0].1, "inside");
        assert_eq!(attributes(&config(&settings(), &[]).0)[0].1, "shop");
    }

    #[test]
    fn variables_that_cannot_be_used_are_left_out_with_a_warning() {
        let (used, warnings) = config(
            &settings(),
            &[
                ("OTEL_BSP_SCHEDULE_DELAY", "soon"),
                ("OTEL_BSP_MAX_QUEUE_SIZE", "0"),
                ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "100000"),
                ("OTEL_EXPORTER_OTLP_TIMEOUT", "2500"),
                ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
                ("OTEL_TRACES_SAMPLER", "jaeger_remote"),
                ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/ca.pem"),
            ],
        );
        assert_eq!((used.delay.as_millis(), used.queue, used.batch), (5_000, 2_048, 2_048));
        assert_eq!(
            (used.timeout.as_millis(), used.ca),
            (2_500, Some(("OTEL_EXPORTER_OTLP_CERTIFICATE".into(), "/ca.pem".into())))
        );
        assert_eq!(warnings.len(), 4, "{warnings:?}");
        let ratio = |sampler, arg| {
            config(&settings(), &[("OTEL_TRACES_SAMPLER", sampler), ("OTEL_TRACES_SAMPLER_ARG", arg)])
        };
        assert_eq!(ratio("traceidratio", "0.25").0.sampler, Sampler::new(false, 0.25));
        assert_eq!(ratio("parentbased_traceidratio", "0.25").0.sampler, Sampler::new(true, 0.25));
        assert_eq!(ratio("traceidratio", "2").1.len(), 1);
        assert_eq!(ratio("parentbased_always_off", "").0.sampler, Sampler::new(true, 0.0));
    }
}
