//! Builds the header fields of a file at a path that are the same for every request.

use super::document::Document;
use crate::media_type;
use handler::Fields;
use representation::coding::Coding;
use std::borrow::Cow;

/// A site's options for all its files.
#[derive(Debug, Clone)]
pub(crate) struct FileOptions {
    /// The charset of text; `None` for none.
    pub charset: Option<String>,
    /// Use the types, codings and limits of Heroku's buildpack.
    pub compat: bool,
    /// Compress on the fly.
    pub compress: bool,
    /// Codings of the precompressed files to look for.
    pub precompressed: Vec<Coding>,
}

impl FileOptions {
    /// Returns whether content of this type is worth compressing.
    pub(crate) fn compresses(&self, content_type: &str) -> bool {
        if self.compat {
            media_type::nginx_compressible(content_type)
        } else {
            representation::media_type::is_compressible(content_type)
        }
    }
}

#[derive(Debug)]
#[repr(C)]
pub(crate) struct Presentation {
    /// All fields of a 200 with the uncompressed file.
    pub whole: Fields,
    /// Identifies the file together with these fields; never reused.
    pub id: u64,
    /// Codings other than identity are possible, so the response varies.
    pub codable: bool,
    pub content_type: Cow<'static, str>,
    /// Fields from the site's rules. They replace fields of the same name.
    rules: Box<[(String, String)]>,
}

impl Presentation {
    /// `id` comes from [`super::store::Store::next_id`].
    pub(crate) fn new(
        id: u64,
        document: &Document,
        rules: Vec<(String, String)>,
        options: &FileOptions,
    ) -> Presentation {
        let content_type =
            media_type::content_type(&document.path, options.charset.as_deref(), options.compat);
        Presentation::of_type(id, document, content_type, rules, options)
    }

    /// Like `new`, with a given type instead of the one by extension.
    pub(crate) fn of_type(
        id: u64,
        document: &Document,
        content_type: Cow<'static, str>,
        rules: Vec<(String, String)>,
        options: &FileOptions,
    ) -> Presentation {
        let compressible = options.compresses(&content_type);
        let mut presentation = Presentation {
            id,
            content_type,
            codable: compressible && (options.compress || !options.precompressed.is_empty()),
            rules: rules.into(),
            whole: Fields::default(),
        };
        presentation.whole = presentation.fields(&VersionFields::of(document, false), Coding::Identity, true);
        presentation.whole = std::mem::take(&mut presentation.whole).freeze();
        presentation
    }

    /// Returns the fields of a 200 or 206 of a representation.
    pub(crate) fn fields(&self, version_fields: &VersionFields, coding: Coding, ranges: bool) -> Fields {
        let mut fields = Fields::with_capacity(8, 256);
        fields.push(b"Content-Type", self.content_type.as_bytes());
        self.version(&mut fields, version_fields, coding);
        if ranges {
            fields.push(b"Accept-Ranges", b"bytes");
        }
        self.finish(&mut fields);
        fields
    }

    /// Returns the fields of a 304: those that update the client's cache (RFC 9110 section 15.4.5).
    pub(crate) fn not_modified(&self, version_fields: &VersionFields) -> Fields {
        let mut fields = Fields::with_capacity(6, 192);
        self.version(&mut fields, version_fields, Coding::Identity);
        self.finish(&mut fields);
        fields.retain(|name, _| !name.eq_ignore_ascii_case(b"content-type"));
        fields
    }

    /// Returns the fields of a page for another status than 200.
    pub(crate) fn page(&self, coding: Coding) -> Fields {
        let mut fields = Fields::with_capacity(3, 96);
        fields.push(b"Content-Type", self.content_type.as_bytes());
        self.coded(&mut fields, coding);
        self.finish(&mut fields);
        fields
    }

    /// Returns only the fields of the rules, for responses without a representation.
    pub(crate) fn bare(&self) -> Fields {
        let mut fields = Fields::default();
        self.finish(&mut fields);
        fields
    }

    fn version(&self, fields: &mut Fields, version_fields: &VersionFields, coding: Coding) {
        if let Some(modified) = &version_fields.modified {
            fields.push(b"Last-Modified", modified.as_bytes());
        }
        if version_fields.weak {
            fields.push(b"ETag", format!("W/{}", version_fields.tag).as_bytes());
        } else {
            fields.push(b"ETag", version_fields.tag.as_bytes());
        }
        self.coded(fields, coding);
    }

    fn coded(&self, fields: &mut Fields, coding: Coding) {
        if let Some(token) = coding.token() {
            fields.push(b"Content-Encoding", token.as_bytes());
        }
        if self.codable {
            fields.push(b"Vary", b"Accept-Encoding");
        }
    }

    fn finish(&self, fields: &mut Fields) {
        apply(fields, self.rules.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    }
}

/// Sets fields, replacing those of the same name. `Vary` is appended instead, because caches need all values.
pub(crate) fn apply<'a>(fields: &mut Fields, rules: impl Iterator<Item = (&'a str, &'a str)>) {
    for (name, value) in rules {
        if !name.eq_ignore_ascii_case("vary") {
            fields.retain(|there, _| !there.eq_ignore_ascii_case(name.as_bytes()));
        }
        // An empty value removes the field, as in nginx's headers-more module.
        if !value.is_empty() {
            fields.push(name.as_bytes(), value.as_bytes());
        }
    }
}

/// The ETag and Last-Modified of a representation.
#[derive(Debug)]
pub(crate) struct VersionFields {
    /// The opaque part of the entity tag, with quotes.
    pub tag: String,
    pub weak: bool,
    /// `None` if the file's time is implausible.
    pub modified: Option<String>,
}

impl VersionFields {
    pub(crate) fn of(document: &Document, weak: bool) -> VersionFields {
        let modified = document.modified.map(httpdate::fmt_http_date);
        VersionFields { tag: document.tag().to_owned(), weak, modified }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_replace_and_remove_fields() {
        let mut fields = Fields::default();
        fields.push(b"Content-Type", b"text/html");
        fields.push(b"ETag", b"\"1\"");
        fields.push(b"Vary", b"Accept-Encoding");
        apply(
            &mut fields,
            [("content-type", "text/x"), ("etag", ""), ("Vary", "Origin"), ("X", "1")].into_iter(),
        );
        let all: Vec<_> = fields.iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
        let text = |name: &[u8], value: &[u8]| (name.to_vec(), value.to_vec());
        assert_eq!(
            all,
            [
                text(b"Vary", b"Accept-Encoding"),
                text(b"content-type", b"text/x"),
                text(b"Vary", b"Origin"),
                text(b"X", b"1")
            ]
        );
    }
}
