//! Media types of files by their names, and which of them have a charset or are worth compressing.

use std::borrow::Cow;

/// The media type of a file, from its name's ending; `application/octet-stream` when nothing is known.
pub fn media_type(path: &str) -> &'static str {
    let _ = path;
    unimplemented!()
}

/// The Content-Type field of a file: [`media_type`] and, where the type has one, the charset.
/// With `compat` the types and the rule are nginx's.
pub fn content_type(path: &str, charset: Option<&str>, compat: bool) -> Cow<'static, str> {
    let _ = (path, charset, compat);
    unimplemented!()
}

/// Whether bytes of this type shrink; parameters after `;` do not matter.
pub fn is_compressible(media_type: &str) -> bool {
    let _ = media_type;
    unimplemented!()
}

/// Whether the buildpack's nginx compressed this type; parameters after `;` do not matter.
pub fn nginx_compressible(media_type: &str) -> bool {
    let _ = media_type;
    unimplemented!()
}
