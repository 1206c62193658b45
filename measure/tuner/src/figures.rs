//! Figures as text.

/// Formats three significant digits, with thousands separators: `1,230`, `0.123`.
pub(crate) fn figure(value: f64) -> String {
    if value.is_finite() { text::people::padded(value) } else { "-".to_owned() }
}

/// Formats mebibytes without unit.
pub(crate) fn mebibytes(bytes: u64) -> String {
    if bytes == 0 { "-".to_owned() } else { figure(bytes as f64 / 1_048_576.0) }
}

/// Formats bytes with unit.
pub(crate) fn size(bytes: f64) -> String {
    text::people::size(bytes, figure)
}
