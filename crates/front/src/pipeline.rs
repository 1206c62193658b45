//! A request's life, from top to bottom.

use crate::access_log::AccessLog;
use crate::forwarded::Forwarded;
use crate::request_id::RequestIds;
use crate::stamp::Stamp;
use crate::static_files::StaticFiles;
use handler::{Ending, Exchange, Fault, Handler, Request, Response};
use pool::Rack;
use stats::Finished;
use std::time::Instant;

/// What every request goes through.
pub(crate) struct Pipeline {
    pub(crate) ids: Option<RequestIds>,
    pub(crate) forwarded: Forwarded,
    pub(crate) stamp: Stamp,
    pub(crate) files: Option<StaticFiles>,
    pub(crate) rack: Rack,
    pub(crate) recorder: stats::Recorder,
    pub(crate) access_log: Option<AccessLog>,
    pub(crate) complain: Box<dyn Fn(&str)>,
}

impl Handler for Pipeline {
    async fn handle(&self, mut exchange: Exchange) -> Response {
        let id = self.ids.as_ref().map(|ids| ids.identify(&mut exchange.request));
        self.forwarded.apply(&mut exchange.request);
        self.stamp.apply(&mut exchange.request);
        let file = self.files.as_ref().and_then(|files| files.answer(&exchange.request));
        let mut response = match file {
            Some(response) => response,
            None => self.rack.handle(exchange).await,
        };
        if let (Some(ids), Some(id)) = (&self.ids, id) {
            ids.mark(&mut response.fields, &id);
        }
        response
    }

    fn finished(&self, ending: &Ending<'_>) {
        let worker = ending.trace.worker.get() != 0;
        self.recorder.finished(&Finished {
            status: ending.status,
            body_bytes: ending.body_bytes,
            queue_us: worker.then(|| ending.trace.queue_us.get()),
            app_us: worker.then(|| ending.trace.app_us.get()),
            total_us: u64::try_from(Instant::now().saturating_duration_since(ending.started).as_micros())
                .unwrap_or(u64::MAX),
            hijacked: ending.hijacked,
        });
        if let Some(failure) = ending.failure {
            self.recorder.failed(fault(failure.fault()));
            // What clients do wrong is theirs to find in the status; what we do wrong is the operator's to read.
            if failure.fault() != Fault::Client {
                (self.complain)(&format!(
                    "{} for {}: {}",
                    failure.status(),
                    name(ending.request),
                    failure.reason
                ));
            }
        }
        if let Some(log) = &self.access_log {
            log.record(ending);
        }
    }
}

/// The statistics' word for a fault.
pub(crate) fn fault(fault: Fault) -> stats::Fault {
    match fault {
        Fault::Client => stats::Fault::Client,
        Fault::App => stats::Fault::App,
        Fault::Server => stats::Fault::Server,
    }
}

/// A request as an error log names it.
pub(crate) fn name(request: Option<&Request>) -> String {
    request.map_or("a request that could not be read".to_owned(), |request| {
        format!("{} {}", request.method().escape_ascii(), request.target().escape_ascii())
    })
}
