//! The part of the server that has answered, for the figures by route.

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
