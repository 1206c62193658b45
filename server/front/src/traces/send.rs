//! Sends a batch to the collector, by the reverse proxy's client, which reuses connections and verifies certificates.

use super::config::Config;
use super::otlp::ExportResponse;
use super::retry::CollectorAnswer;
use crate::whole_body;
use bytes::Bytes;
use handler::{
    Exchange, Failure, Fields, Incoming, Peer, PeerAddr, Request, Span, StayingClient, Trace, Version,
};
use prost::Message;
use proxy::Origin;
use std::rc::Rc;
use std::time::{Instant, SystemTime};

/// The longest response that is read, in bytes.
const LONGEST_ANSWER: usize = 64 << 10;

pub(super) struct Collector {
    client: proxy::ProxyClient,
    origin: Origin,
    peer: Rc<Peer>,
}

impl Collector {
    /// # Errors
    /// The address is not a valid origin.
    pub(super) fn new(config: &Config) -> Result<Collector, String> {
        let origin = Origin::parse(&config.origin)?;
        let client = proxy::ProxyClient::new(proxy::ProxyConfig {
            forwarded: false,
            websocket: false,
            retries: 0,
            max_idle: 1,
            connect_timeout: config.timeout,
            read_timeout: config.timeout,
            send_timeout: config.timeout,
            tls_ca: config.ca.as_ref().map(|(_, file)| file.clone()),
            // These are the server's own requests: no client's are forwarded.
            via: proxy::Via::Off,
            ..proxy::ProxyConfig::new("traces", Vec::new())
        });
        let peer = Rc::new(Peer {
            remote: PeerAddr::Unix,
            remote_text: Box::default(),
            local: PeerAddr::Unix,
            tls: false,
            session: None,
        });
        Ok(Collector { client, origin, peer })
    }

    /// Sends a batch. Returns the outcome, and the collector's text if it has rejected some of the spans.
    pub(super) async fn send(&self, config: &Config, batch: Bytes) -> (CollectorAnswer, Option<String>) {
        match tokio::time::timeout(config.timeout, self.ask(config, batch)).await {
            Ok(Ok(answered)) => answered,
            Ok(Err(failure)) => {
                (CollectorAnswer::Later { why: explained(&failure.reason), after: None }, None)
            }
            Err(_) => {
                let why = format!("no answer within {} s", config.timeout.as_secs_f64());
                (CollectorAnswer::Later { why, after: None }, None)
            }
        }
    }

    async fn ask(&self, config: &Config, batch: Bytes) -> Result<(CollectorAnswer, Option<String>), Failure> {
        let target = config.target.clone().into_bytes();
        let exchange = Exchange {
            request: self.request(config).into(),
            incoming: Incoming::Ready(batch),
            client: Rc::new(StayingClient),
            trace: Rc::new(Trace::default()),
        };
        let response = self.client.ask(self.origin.clone(), exchange, target).await?;
        let answer =
            CollectorAnswer::of(response.status, response.fields.get("retry-after"), SystemTime::now());
        // The body is read even after a refusal, so that the connection can be reused.
        let body = whole_body::read(response.body, LONGEST_ANSWER).await.unwrap_or_default();
        let partial = match answer {
            CollectorAnswer::Accepted => {
                ExportResponse::decode(body).ok().and_then(|read| read.partial_success)
            }
            _ => None,
        };
        let unwanted =
            partial.filter(|partial| partial.rejected_spans > 0 || !partial.error_message.is_empty());
        let text = unwanted.map(|partial| {
            format!("the collector has rejected {} spans: {}", partial.rejected_spans, partial.error_message)
        });
        Ok((answer, text))
    }

    fn request(&self, config: &Config) -> Request {
        let mut text = b"POST".to_vec();
        let method = Span { start: 0, len: 4 };
        text.extend_from_slice(config.target.as_bytes());
        let target = Span { start: 4, len: config.target.len() as u32 };
        let path_len = config.target.find('?').unwrap_or(config.target.len()) as u32;
        let query = match target.len.checked_sub(path_len + 1) {
            Some(len) => Span { start: 4 + path_len + 1, len },
            None => Span::default(),
        };
        let mut fields = Fields::from_parts(text, Vec::new());
        fields.push(b"Content-Type", b"application/x-protobuf");
        fields.push(b"User-Agent", format!("OTel-OTLP-Exporter-Firebrick/{}", crate::VERSION).as_bytes());
        for (name, value) in &config.headers {
            fields.push(name.as_bytes(), value.as_bytes());
        }
        Request {
            version: Version::Http11,
            switchable: false,
            method,
            target,
            path: Span { len: path_len, ..target },
            query,
            authority: Span::default(),
            fields,
            variables: Vec::new(),
            peer: self.peer.clone(),
            https: false,
            received: SystemTime::now(),
            arrived: Instant::now(),
        }
    }
}

/// Explains why there is no response, with a remedy for an untrusted certificate.
fn explained(reason: &str) -> String {
    match reason.contains("invalid peer certificate") {
        true => {
            format!(
                "{reason} (OTEL_EXPORTER_OTLP_CERTIFICATE names a PEM file of the authorities to trust instead of the system's)"
            )
        }
        false => reason.to_owned(),
    }
}
