//! Plain text tables: the first column is left-aligned, the others are right-aligned, with two blanks between.

/// Returns the lines of a table; the first row is its head.
pub(crate) fn lines(rows: &[Vec<String>]) -> Vec<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let cell = |row: &Vec<String>, column: usize| row.get(column).map_or(0, |text| text.chars().count());
    let widths: Vec<usize> =
        (0..columns).map(|column| rows.iter().map(|row| cell(row, column)).max().unwrap_or(0)).collect();
    let line = |row: &Vec<String>| {
        let cells = widths.iter().enumerate().map(|(column, width)| {
            let text = row.get(column).map_or("", String::as_str);
            if column == 0 { format!("{text:width$}") } else { format!("  {text:>width$}") }
        });
        cells.collect::<String>().trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let row = |cells: &[&str]| cells.iter().map(|cell| (*cell).to_owned()).collect::<Vec<_>>();
        let found = lines(&[row(&["", "busy", "µ"]), row(&["one", "4 %", "12"]), row(&["three"])]);
        assert_eq!(found, ["       busy   µ", "one     4 %  12", "three"]);
        assert!(lines(&[]).is_empty());
    }
}
