//! The client and the class of a request, by which waiting requests take turns.

/// The number of a class: 0 is the default one, the others follow in the order of the settings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassIndex(pub u8);

impl ClassIndex {
    /// The class of all requests that belong to no other class.
    pub const DEFAULT: ClassIndex = ClassIndex(0);
}

/// The client that a request counts for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QueueClient {
    /// All clients count as one: requests are served in order of arrival.
    #[default]
    All,
    /// The client with this address, in a form that the caller chooses.
    Address(u64),
    /// The client with this hash of a header field, a cookie or a host. The caller keys the hash with a
    /// secret, so that no client can choose another client's hash.
    Hash(u64),
}

/// The class and the client of a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueKey {
    pub class: ClassIndex,
    pub client: QueueClient,
}
