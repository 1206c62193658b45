//! Tests that pages are well-formed, load nothing, and keep every text in its place.

use base64::Engine as _;
use proptest::prelude::*;
use sha2::Digest as _;

use super::*;
use crate::page::Column;
use crate::plot::Lines;

fn page(text: &str) -> Page {
    let text = || text.to_owned();
    let table = Table {
        caption: text(),
        columns: vec![Column::text(text()), Column::number(text())],
        rows: vec![vec![text(), text(), text()], vec![]],
        marked: vec![0, 9],
    };
    let plot = || Plot::Lines(Lines { title: text(), note: text(), ..Lines::default() });
    let blocks = vec![
        Block::Plot(plot()),
        Block::Plots(vec![plot(), plot()]),
        Block::Table(table),
        Block::Text(text()),
        Block::Notes(vec![text(), text()]),
        Block::KeyValues(vec![(text(), text())]),
        Block::Code(text()),
    ];
    let figure = |verdict| KeyFigure { label: text(), value: text(), note: text(), verdict };
    let section = Section { title: text(), text: text(), blocks };
    Page {
        title: text(),
        subtitle: text(),
        lead: [Verdict::Neutral, Verdict::Good, Verdict::Warning, Verdict::Bad].map(figure).to_vec(),
        sections: vec![section; 4],
        foot: text(),
        refresh_seconds: 10,
    }
}

/// Returns the names of all elements in order, without those that depend on whether a text is empty or how it wraps.
fn outline(html: &str) -> Vec<String> {
    let options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
    let read = roxmltree::Document::parse_with_options(html, options).expect("a well-formed page");
    let varying = ["p", "wbr", "text", "caption", "footer", "h2", "a", "line"];
    let nodes =
        read.descendants().filter(|node| node.is_element() && !varying.contains(&node.tag_name().name()));
    nodes.map(|node| node.tag_name().name().to_owned()).collect()
}

#[test]
fn the_policy_allows_only_our_script() {
    let hash = base64::engine::general_purpose::STANDARD.encode(sha2::Sha256::digest(SCRIPT));
    assert!(POLICY.contains(&format!("'sha256-{hash}'")), "put sha256-{hash} into POLICY");
}

#[test]
fn our_own_text_needs_no_escaping() {
    for text in [STYLE, SCRIPT, draw::STYLE] {
        assert!(!text.contains(['<', '&']), "the page would not be well-formed XML");
        assert!(!text.contains("http"), "nothing is loaded");
    }
}

#[test]
fn an_empty_page_is_valid() {
    assert_eq!(outline(&Page::default().to_html())[..3], ["html", "head", "meta"]);
}

#[test]
fn paragraphs_are_separated_by_blank_lines() {
    let mut markup = Markup::default();
    paragraphs(&mut markup, "one\ntwo\n\n \nthree\n");
    assert_eq!(markup.finish(), "<p>one\ntwo</p><p>three</p>");
}

proptest! {
    #[test]
    fn no_text_changes_the_structure(text in prop_oneof![any::<String>(), "(</?(script|style|title|svg|details|table)>|[<>&\"'=]|-->|]]>|x){1,12}"]) {
        prop_assert_eq!(outline(&page(&format!("x{text}")).to_html()), outline(&page("plain").to_html()));
    }

    #[test]
    fn json_round_trip(text in any::<String>()) {
        let page = page(&text);
        let json = serde_json::to_string(&page).expect("pages can be written");
        prop_assert_eq!(crate::read_page(&json).expect("and read again"), page);
    }
}
