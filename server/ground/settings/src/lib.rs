//! Options: reading their values, and the resulting typed settings.
//!
//! Every option has exactly one entry in [`table`]. Flags, environment variables, keys of `firebrick.toml`,
//! help, man page, completions and `docs/settings.md` all come from it. Settings have two stages:
//! [`WrittenValues`] holds the unchecked values with their origins; [`Settings`] is checked and typed, so
//! that its users need not check again. [`Current`] holds the settings in force on one thread.
//!
//! Contract:
//! 1. Precedence is a change of the running server ([`Loaded::changed`]), flag, environment, `firebrick.toml`, `puma.rb`, default.
//! 2. All mistakes are reported together, each with its place, the expected form and the most similar valid name.
//! 3. No input makes loading panic.
//! 4. Apart from [`Machine::read`] and [`load`], which read files, everything here is pure.

#![forbid(unsafe_code)]

mod arguments;
mod auto;
mod control;
mod current;
mod discover;
mod docs;
mod environment;
mod error;
mod file;
mod kind;
mod load;
mod nearest;
mod nothing;
mod origin;
pub mod puma;
mod raw;
mod reading;
mod reference;
mod resolve;
mod running;
mod settings;
pub mod table;
#[cfg(test)]
mod testing;
mod value;
mod written;

pub use arguments::Argument;
pub use auto::{Chosen, auto_front_threads, auto_workers};
pub use control::control_path;
pub use current::Current;
pub use discover::{Discovered, STATIC_JSON};
pub use docs::markdown;
pub use environment::{
    At, Environment, HANDOVER_VARIABLE, ProcessEnvironment, SERVICE_MANAGER_VARIABLES, WithoutSecrets,
};
pub use error::{Error, Errors};
pub use kind::numbers::period;
pub use kind::{Completion, Mistake};
pub use load::{load, load_attached};
pub use nothing::NothingToServe;
pub use origin::ValueSource;
pub use raw::Raw;
pub use reading::{Attached, CONFIG_FILE};
pub use resolve::Loaded;
pub use running::{RunningValue, settable};
pub use settings::{
    Cache, Compression, Control, FileCache, Files, HandlerLimits, Health, HostSite, Https, Hub, Limits, Logs,
    Maintenance, Mruby, OnReload, Process, Rack, Reload, Route, Settings, Shared, Site, Sites, Timeouts, Tls,
    Traces,
};
pub use sys::{CpuClock, Machine};
pub use table::taker::Choice;
pub use value::acme::{
    Acme, CertificateOrder, Challenge as AcmeChallenge, DomainKind, ExternalAccount, OnDemand,
};
pub use value::allocator::Allocator;
pub use value::bind::{Bind, DEFAULT_BACKLOG, ProxyProtocol, SystemdNeed};
pub use value::control::ControlAddress;
pub use value::hsts::Hsts;
pub use value::log::{AccessLog, ErrorLog, LogFormat};
pub use value::pool::Pool;
pub use value::proxies::{Cidr, TrustedProxies};
pub use value::public::ServePublic;
pub use value::queue::{Fair, NamedValue, Queue, QueueClass};
pub use value::rate_limit::{RateKey, RateLimit, RequestRate};
pub use value::refork::ReforkAfter;
pub use value::reload::OnDifference;
pub use value::sendfile::SendfileRule;
pub use value::server_timing::ServerTiming;
pub use value::service::{Program as ServiceProgram, Restart, Service, StopSignal};
pub use value::slo::{ShapeRule, Slo};
pub use value::statement::StatementLimit;
pub use value::step::Step;
pub use value::threads::Threads;
pub use value::tls::{BindTls, CertificateFiles, TlsVersion, Verify};
pub use value::workers::Workers;
pub use value::yjit::Yjit;
pub use written::{Written, WrittenValues};
