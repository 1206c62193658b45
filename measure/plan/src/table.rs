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

/// Wraps `text` to `width`. The indentation of the first line is kept; further lines are indented by `indent` more.
pub(crate) fn wrapped(text: &str, width: usize, indent: usize) -> String {
    let words = text.trim_start();
    let blanks = text.len() - words.len();
    let mut lines: Vec<String> = Vec::new();
    let mut line = " ".repeat(blanks);
    let mut empty = true;
    for word in words.split(' ') {
        if !empty && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(std::mem::replace(&mut line, " ".repeat(blanks + indent)));
        } else if !empty {
            line.push(' ');
        }
        line.push_str(word);
        empty = false;
    }
    lines.push(line);
    lines.join("\n")
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

    #[test]
    fn words_are_not_broken() {
        assert_eq!(wrapped("one two three four", 9, 2), "one two\n  three\n  four");
        assert_eq!(wrapped("  one two three", 9, 1), "  one two\n   three");
        assert_eq!(wrapped("unbreakable", 3, 2), "unbreakable");
        assert_eq!(wrapped("", 3, 2), "");
    }
}
