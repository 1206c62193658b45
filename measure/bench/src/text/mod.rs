//! Results as text: for people, for programs, and in the formats of other tools.

mod ab;
mod csv;
mod human;
mod siege;
mod wrk;

use crate::document::Document;
use crate::invocation::Format;

pub(crate) use csv::seconds as csv_lines;
pub(crate) use human::{SPLIT, kinds, server_lines, wrapped};

/// Returns the results in a format. Only the format for people includes `remarks`.
///
/// # Errors
/// The results cannot be serialized.
pub(crate) fn render(document: &Document, format: Format, remarks: &[String]) -> Result<String, String> {
    Ok(match format {
        Format::Human => human::summary(document, remarks),
        Format::Json => document.to_json()?,
        Format::Csv => csv::seconds(document),
        Format::Ab => ab::report(document),
        Format::AbCsv => ab::percentiles(document),
        Format::Siege => siege::report(document),
        Format::SiegeJson => siege::json(document),
        Format::Wrk => wrk::report(document),
    })
}

#[cfg(test)]
mod tests;
