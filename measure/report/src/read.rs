//! Reads pages and plots from JSON. The structure is that of the types; errors contain the location.

use std::fmt;

use serde::de::DeserializeOwned;

use crate::page::Page;
use crate::plot::Plot;

/// The reason why a text is not a page or plot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadError {
    /// The path in the data: `lines.lines[0].points[3]`; `.` is the root.
    pub path: String,
    /// The problem, with line and column of the text.
    pub problem: String,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path == "." {
            write!(f, "{}", self.problem)
        } else {
            write!(f, "{}: {}", self.path, self.problem)
        }
    }
}

impl std::error::Error for ReadError {}

/// Reads a plot, such as `{"lines": {"title": "…", "lines": [{"name": "p99", "points": [[0, 12.5], [1, 13]]}]}}`.
///
/// # Errors
/// The text is not JSON, a name is unknown or missing, or a value has the wrong type.
pub fn read_plot(json: &str) -> Result<Plot, ReadError> {
    read(json)
}

/// Reads a page, such as `{"title": "…", "sections": [{"title": "…", "blocks": [{"text": "…"}]}]}`.
///
/// # Errors
/// The same as of `read_plot`.
pub fn read_page(json: &str) -> Result<Page, ReadError> {
    read(json)
}

fn read<T: DeserializeOwned>(json: &str) -> Result<T, ReadError> {
    let mut reader = serde_json::Deserializer::from_str(json);
    let found = serde_path_to_error::deserialize(&mut reader)
        .map_err(|error| ReadError { path: error.path().to_string(), problem: error.inner().to_string() })?;
    reader.end().map_err(|error| ReadError { path: ".".to_owned(), problem: error.to_string() })?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(json: &str) -> String {
        read_plot(json).expect_err("refused").to_string()
    }

    #[test]
    fn errors_contain_location_and_problem() {
        assert_eq!(
            refusal(r#"{"lines": {"lines": [{"name": "p99", "points": [[0, "12"]]}]}}"#),
            "lines.lines[0].points[0][1]: invalid type: string \"12\", expected f64 at line 1 column 56"
        );
        assert!(
            refusal(r#"{"lines": {"titel": "x"}}"#)
                .starts_with("lines.titel: unknown field `titel`, expected one of `title`")
        );
        assert!(
            refusal(r#"{"bars": {"groups": [{"label": "a"}]}}"#)
                .starts_with("bars.groups[0]: missing field `bars`")
        );
        assert!(
            refusal(r#"{"pie": {}}"#).contains("unknown variant `pie`, expected one of `lines`, `histogram`")
        );
        assert!(refusal(r#"{"heat": {}} 1"#).starts_with("trailing characters at line 1"));
    }

    #[test]
    fn null_is_a_gap() {
        let plot = read_plot(r#"{"lines": {"lines": [{"name": "a", "points": [[0, null], [1, 2]]}]}}"#)
            .expect("a plot");
        let Plot::Lines(lines) = plot else { panic!("{plot:?}") };
        assert!(lines.lines[0].points[0].1.is_nan());
    }
}
