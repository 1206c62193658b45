//! What an exchange was for, for the figures by route.

/// The part of the server that has answered. The app is recognised by its worker ([`crate::Trace::worker`]).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Answered {
    /// The server itself, or the app.
    #[default]
    Server,
    /// A file.
    File,
    /// Handlers on mruby.
    Handler,
    /// The origin of a proxied site.
    Proxy,
    /// The cache of responses.
    Cache,
}

/// What a request has used in its worker, as far as it was measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Used {
    /// The time in the garbage collector, in microseconds.
    pub gc_us: Option<u32>,
    /// The objects that Ruby has allocated.
    pub allocations: Option<u32>,
    /// Queries of the database.
    pub queries: Option<u32>,
    /// The time in these queries, in microseconds.
    pub queries_us: Option<u32>,
}
