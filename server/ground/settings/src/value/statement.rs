//! Whether queries of the app end with the time of their request.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatementLimit {
    Off,
    /// Sets the limit for the session of the connection.
    Session,
    /// Sets it inside of transactions only, where its end takes the limit back.
    Transaction,
}

impl StatementLimit {
    pub(crate) const WORDS: &'static [(&'static str, StatementLimit)] = &[
        ("off", StatementLimit::Off),
        ("session", StatementLimit::Session),
        ("transaction", StatementLimit::Transaction),
    ];

    /// Returns the word for the value.
    pub fn word(self) -> &'static str {
        match self {
            StatementLimit::Off => "off",
            StatementLimit::Session => "session",
            StatementLimit::Transaction => "transaction",
        }
    }
}
