//! A run as text: for people, for programs, and as other tools print it.

mod ab;
mod csv;
mod human;
mod siege;
mod wrk;

use crate::asked::Format;
use crate::document::Document;

pub(crate) use csv::seconds as csv_lines;
pub(crate) use human::{SPLIT, kinds, server_lines};

/// The run in a format. `remarks` are for people only.
///
/// # Errors
/// When JSON cannot be made of it.
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
