//! The table of figures, counters, histograms, and their external formats.
//!
//! Why: every front thread counts for itself, without contention, and a reader gets one immutable snapshot of
//! all of them. The same snapshot is shown as JSON (docs/stats.md), in the shape of Puma's `stats`, in `/metrics`, and as a table. Each
//! figure is declared once: see figures.rs.
//!
//! Contract:
//! 1. Recording a finished request takes one uncontended lock and no allocation.
//! 2. Memory is bounded, however many requests are recorded and however long they take.
//! 3. Counters are never reset. A rate is the difference of two snapshots.
//! 4. This crate knows HTTP, workers and sockets only as plain numbers.
#![forbid(unsafe_code)]

pub mod advice;
mod cache;
mod certificates;
mod changes;
mod counts;
mod deaths;
#[cfg(test)]
mod docs;
mod durations;
mod figures;
mod finding;
mod finished;
mod handlers;
mod handshakes;
mod health;
mod history;
mod hub;
mod in_flight;
mod interruptions;
mod interval;
mod libraries;
mod load;
mod log_histogram;
mod memory;
mod puma;
mod queue;
mod rate_limits;
mod recorder;
mod reloads;
mod route;
mod route_counts;
mod routes;
mod scrape;
mod server;
mod services;
mod shadow;
mod shape;
mod snapshot;
mod tls;
mod totals;
mod when;

pub use cache::{
    CacheLookup, CacheRefusal, CacheReport, CacheResource, CacheRoute, CacheSnapshot, CacheVariant,
};
pub use certificates::CertificateSnapshot;
pub use changes::{Changes, Ended, ReloadStage, Running};
pub use counts::{CountedKind, Counts};
pub use deaths::{Death, DeathCause, DeathCounts, DeathRequest, FlightEvent, FlightSecond, KeptRequest};
pub use durations::{Bucket, DurationSummary, Durations, FineBuckets};
pub use figures::{Figure, FigureGroup, Figures, Label, Merged, Metric, MetricType, Page};
pub use finding::Finding;
pub use finished::{Finished, RouteKind, RouteOf};
pub use handlers::{HandlerCounts, HandlerFigures, HandlersSnapshot};
pub use handshakes::Handshake;
pub use health::{Health, ServerState, Status};
pub use history::{History, Point, PointTimes};
pub use hub::{HubReport, HubSnapshot, HubStream};
pub use in_flight::{InFlight, RequestPhase};
pub use interruptions::{MaintenanceSnapshot, PauseSnapshot, PauseState};
pub use interval::{Interval, WorkerInterval};
pub use libraries::{Library, WithFibers};
pub use load::{FiberLoad, Load, RecentLoad};
pub use memory::{MemoryLevel, MemorySnapshot};
pub use queue::{QueueClassSnapshot, WaiterSnapshot};
pub use rate_limits::{RateLimitSnapshot, RateLimitsSnapshot};
pub use recorder::{Fault, OpenConnection, Recorder};
pub use reloads::{
    ReforkOutcome, ReforksSnapshot, ReloadOutcome, ReloadStep, ReloadWish, ReloadsSnapshot, UpgradeOutcome,
    UpgradesSnapshot,
};
pub use route::{RouteOrder, RouteSnapshot, RoutesSnapshot, share_out};
pub use scrape::metrics;
pub use server::{
    FiberSeats, HeldSnapshot, OutOfBandGc, PoolSnapshot, QueueSnapshot, RubyVersion, ServerSnapshot,
    SizeChange, SizingSnapshot, WorkerSnapshot, WorkerState,
};
pub use services::{ServiceSnapshot, ServiceState};
pub use shadow::{ReleaseDifference, ShadowReport, UncomparedRoute};
pub use shape::{LastRunShape, ShapeFigures, ShapeSnapshot, ShapeStepSnapshot};
pub use snapshot::Snapshot;
pub use tls::{ServedCertificate, TlsSnapshot};
pub use totals::{ConnectionCounts, FaultCounts, RequestCounts};
