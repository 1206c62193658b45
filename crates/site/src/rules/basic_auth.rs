//! Basic authentication of a site: which credentials it accepts.

/// Where the users of a protected site are defined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BasicAuth {
    /// `basic_auth_htpasswd_path` as written; `None` means `.htpasswd` beside `static.json`.
    pub htpasswd_path: Option<String>,
    /// `BASIC_AUTH_USERNAME` and `BASIC_AUTH_PASSWORD` (a hash), when both are set: accepted in addition to the file's users.
    pub user: Option<(String, String)>,
}
