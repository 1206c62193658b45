//! Tests of Regexp: the same results as CRuby for a table of uses; unsupported patterns are rejected when
//! they are compiled.

use super::vm::{assert_rows, assert_rows_after, load};
use std::fmt::Write as _;
use std::path::Path;

/// Ruby code and CRuby's results, written by regexp_table.rb.
const TABLE: &str = include_str!("regexp_table.tsv");

/// Rows of the table whose results differ here, with these results.
const DIFFERENT: &[(&str, &str)] = &[
    // The offset of a match is where \K put it, not where the attempt started.
    (r#""ab" =~ Regexp.new("a\\Kb", 0)"#, "[1]"),
    // A lookbehind may be of any length.
    (r#"Regexp.new("(?<=a*)b").source"#, r#"["(?<=a*)b"]"#),
    // /o is ignored.
    ("3.times.map { |i| /#{i}/o.source }", r#"[["0","1","2"]]"#),
];

#[test]
fn results_are_those_of_ruby() {
    let rows: Vec<(&str, &str)> = TABLE.lines().filter_map(|line| line.split_once('\t')).collect();
    assert!(rows.len() >= 150, "{} rows", rows.len());
    let mut lines = Vec::new();
    for part in rows.chunks(60) {
        let mut code = String::new();
        for (ruby, _) in part {
            let _ = writeln!(
                code,
                "Rt.remember(nil); Rt.call(Rt::LOG, begin; JSON.generate([({ruby})]); rescue StandardError => e; e.class.to_s; end)"
            );
        }
        let Some(more) = load(&code, Path::new("handlers/table.rb")) else { return };
        lines.extend(more.unwrap());
    }
    let mut wrong = String::new();
    for (index, (ruby, expected)) in rows.iter().enumerate() {
        let expected = DIFFERENT.iter().find(|(row, _)| row == ruby).map_or(*expected, |(_, here)| here);
        let got = lines.get(index).map_or("(nothing)", String::as_str);
        if got != expected {
            let _ = writeln!(wrong, "{ruby}\n  expected {expected}\n  got      {got}");
        }
    }
    assert!(
        wrong.is_empty() && lines.len() == rows.len(),
        "{} lines for {} rows\n{wrong}",
        lines.len(),
        rows.len()
    );
}

#[test]
fn unsupported_patterns_are_named() {
    assert_rows(&[
        (r"Regexp.new('a(')", "RegexpError: end pattern with unmatched parenthesis: /a(/"),
        (r"Regexp.new('\X')", r"RegexpError: \X is not supported: /\X/"),
        (
            r"Regexp.new('(?u)a')",
            "RegexpError: the options (?a) and (?u) are not supported: name the characters: /(?u)a/",
        ),
        (r#""\xff" =~ /a/"#, "ArgumentError: invalid byte sequence in UTF-8: a Regexp needs UTF-8"),
        (r"Regexp.new(5)", "TypeError: no implicit conversion of Integer into String"),
    ]);
}

#[test]
fn catastrophic_backtracking_ends() {
    assert_rows(&[
        (
            r"('a' * 40) =~ /\A(a|a)*(?=b)\z/",
            "RegexpError: matching took more than 500000 steps back; make the pattern less ambiguous",
        ),
        (r"('a' * 40).match?(/\A(a+)+\z/)", "true"),
        (r"('a' * 40 + 'b').match?(/\A(a+)+\z/)", "false"),
    ]);
}

#[test]
fn a_match_belongs_to_its_task() {
    let setup = "
      seen = []
      one = task { 'first' =~ /(f)/; sleep 0.01; seen << [$1, $~[0]] }
      two = task { seen << [$1]; 'second' =~ /(s)/; sleep 0.03; seen << [$1, $&] }
      one.join
      two.join
    ";
    assert_rows_after(setup, &[("seen", r#"[[nil], ["f", "f"], ["s", "s"]]"#)]);
}

#[test]
fn a_block_can_wait() {
    assert_rows(&[(r"'a1b2'.gsub(/\d/) { |d| sleep 0.001; (d.to_i + 1).to_s }", r#""a2b3""#)]);
}
