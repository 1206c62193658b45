//! Configures the basic authentication of a site.

/// The sources of the users of a protected site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BasicAuth {
    /// `basic_auth_htpasswd_path` as written; `None` means `.htpasswd` beside `static.json`.
    pub htpasswd_path: Option<String>,
    /// `BASIC_AUTH_USERNAME` and `BASIC_AUTH_PASSWORD` (a hash), if both are set: accepted in addition to the
    /// file's users.
    pub user: Option<(String, String)>,
}
