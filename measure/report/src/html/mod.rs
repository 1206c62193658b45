//! Renders a page as one HTML document. It is also well-formed XML, so that tests can parse it strictly.

use std::fmt::Display;

use crate::draw::{self, Size, twin};
use crate::markup::Markup;
use crate::page::{Block, KeyFigure, Page, Section, Table, Verdict};
use crate::plot::Plot;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("hover.js");
/// Loads nothing, and allows no script except the page's own, identified by its hash (base64 of SHA-256).
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; \
                      script-src 'sha256-mudKfvDrkoCuaqOFrFqQCODQyzZu3L4/C2cYmGrP/3Y='";
/// The number of sections from which pages have links to them at the top.
const LINKS_FROM: usize = 4;
/// Tables with more columns use a smaller font.
const MANY: usize = 8;

impl Page {
    /// Returns the page as one self-contained HTML file (UTF-8).
    #[must_use]
    pub fn to_html(&self) -> String {
        let mut page = Markup::default();
        page.verbatim("<!DOCTYPE html>\n");
        page.within("html", &[("lang", &"en")], |html| {
            html.within("head", &[], |head| self.head(head));
            html.within("body", &[], |body| self.body(body));
        });
        page.finish() + "\n"
    }

    fn head(&self, head: &mut Markup) {
        head.empty("meta", &[("charset", &"utf-8")]);
        head.empty("meta", &[("name", &"viewport"), ("content", &"width=device-width, initial-scale=1")]);
        head.empty("meta", &[("http-equiv", &"Content-Security-Policy"), ("content", &POLICY)]);
        if self.refresh_seconds > 0 {
            head.empty("meta", &[("http-equiv", &"refresh"), ("content", &self.refresh_seconds)]);
        }
        head.element("title", &[], if self.title.is_empty() { "Report" } else { &self.title });
        // Prevents the browser from requesting /favicon.ico.
        head.empty("link", &[("rel", &"icon"), ("href", &"data:,")]);
        head.within("style", &[], |style| {
            style.verbatim("\n");
            style.verbatim(STYLE);
            style.verbatim(draw::STYLE);
        });
    }

    fn body(&self, body: &mut Markup) {
        body.within("header", &[], |header| {
            header.within("h1", &[], |heading| breakable(heading, &self.title));
            paragraph(header, "subtitle", &self.subtitle);
            if !self.lead.is_empty() {
                header.within("dl", &[("class", &"lead")], |list| {
                    self.lead.iter().for_each(|it| key_figure(list, it))
                });
            }
            if self.sections.len() >= LINKS_FROM {
                header.within("nav", &[("aria-label", &"sections")], |nav| self.links(nav));
            }
        });
        body.within("main", &[], |main| {
            for (index, part) in self.sections.iter().enumerate() {
                section(main, index, part);
            }
        });
        if !self.foot.is_empty() {
            body.element("footer", &[], &self.foot);
        }
        body.within("script", &[], |script| script.verbatim(SCRIPT));
    }

    fn links(&self, nav: &mut Markup) {
        for (index, section) in
            self.sections.iter().enumerate().filter(|(_, section)| !section.title.is_empty())
        {
            nav.element("a", &[("href", &format!("#part-{index}"))], &section.title);
            nav.text(" ");
        }
    }
}

fn paragraph(markup: &mut Markup, class: &str, text: &str) {
    if !text.is_empty() {
        markup.element("p", &[("class", &class)], text);
    }
}

/// Writes a text that may break after a slash, because URLs are long.
fn breakable(markup: &mut Markup, text: &str) {
    for piece in text.split_inclusive('/') {
        markup.text(piece);
        if piece.ends_with('/') {
            markup.empty("wbr", &[]);
        }
    }
}

/// Writes paragraphs, which are separated by blank lines.
fn paragraphs(markup: &mut Markup, text: &str) {
    let lines: Vec<&str> = text.lines().collect();
    for lines in lines.split(|line| line.trim().is_empty()).filter(|lines| !lines.is_empty()) {
        markup.element("p", &[], &lines.join("\n"));
    }
}

fn key_figure(list: &mut Markup, figure: &KeyFigure) {
    let (class, sign, label) = match figure.verdict {
        Verdict::Neutral => ("", "", ""),
        Verdict::Good => ("good", "✓", "good"),
        Verdict::Warning => ("warning", "⚠", "warning"),
        Verdict::Bad => ("bad", "✗", "bad"),
    };
    list.within("div", &[("class", &class)], |group| {
        group.element("dt", &[], &figure.label);
        group.within("dd", &[("class", &"value")], |value| {
            value.text(&figure.value);
            if !sign.is_empty() {
                value.text(" ");
                value.element("span", &[("class", &"sign"), ("role", &"img"), ("aria-label", &label)], sign);
            }
        });
        if !figure.note.is_empty() {
            group.element("dd", &[("class", &"note")], &figure.note);
        }
    });
}

fn section(main: &mut Markup, index: usize, section: &Section) {
    main.within("section", &[("id", &format!("part-{index}"))], |part| {
        if !section.title.is_empty() {
            part.element("h2", &[], &section.title);
        }
        paragraphs(part, &section.text);
        for shown in &section.blocks {
            block(part, shown);
        }
    });
}

fn block(part: &mut Markup, block: &Block) {
    match block {
        Block::Plot(plot) => part.within("div", &[("class", &"block")], |part| figure(part, plot)),
        Block::Plots(plots) => part.within("div", &[("class", &"block pair")], |part| {
            plots.iter().for_each(|plot| figure(part, plot));
        }),
        Block::Table(shown) => part.within("div", &[("class", &"block")], |part| table(part, shown)),
        Block::Text(text) => part.within("div", &[("class", &"block")], |part| paragraphs(part, text)),
        Block::Notes(notes) => part.within("ul", &[("class", &"block")], |list| {
            notes.iter().for_each(|note| list.element("li", &[], note));
        }),
        Block::KeyValues(pairs) => part.within("dl", &[("class", &"block values")], |list| {
            for (name, value) in pairs {
                list.element("dt", &[], name);
                list.element("dd", &[], value);
            }
        }),
        Block::Code(text) => part.within("pre", &[("class", &"block")], |pre| pre.element("code", &[], text)),
    }
}

fn figure(part: &mut Markup, plot: &Plot) {
    part.within("figure", &[], |figure| {
        figure.within("figcaption", &[], |caption| {
            caption.element("h3", &[], plot.title());
            if !plot.note().is_empty() {
                caption.element("p", &[], plot.note());
            }
        });
        plot.inline(Size::Wide, figure);
        plot.inline(Size::Narrow, figure);
        let figures = twin(plot);
        if !plot.is_empty() && !figures.rows.is_empty() {
            figure.within("details", &[], |details| {
                details.element("summary", &[], "Data as a table");
                table(details, &figures);
            });
        }
    });
}

/// Writes a table in a box that scrolls if it is too wide for the page.
fn table(part: &mut Markup, shown: &Table) {
    let label = if shown.caption.is_empty() { "table" } else { &shown.caption };
    let box_of: [(_, &dyn Display); 4] =
        [("class", &"scroll"), ("tabindex", &0), ("role", &"region"), ("aria-label", &label)];
    part.within("div", &box_of, |part| {
        let class = if shown.columns.len() > MANY { "many" } else { "few" };
        part.within("table", &[("class", &class)], |table| {
            if !shown.caption.is_empty() {
                table.element("caption", &[], &shown.caption);
            }
            table.within("thead", &[], |head| head.within("tr", &[], |row| headings(row, shown)));
            table.within("tbody", &[], |body| rows(body, shown));
        });
    });
}

fn alignment(numeric: bool) -> &'static str {
    if numeric { "number" } else { "word" }
}

fn headings(row: &mut Markup, shown: &Table) {
    for column in &shown.columns {
        row.element("th", &[("scope", &"col"), ("class", &alignment(column.numeric))], &column.title);
    }
}

fn rows(body: &mut Markup, shown: &Table) {
    for (index, cells) in shown.rows.iter().enumerate() {
        let class = if shown.marked.contains(&index) { "marked" } else { "plain" };
        body.within("tr", &[("class", &class)], |row| {
            for (position, column) in shown.columns.iter().enumerate() {
                let cell = cells.get(position).map_or("", String::as_str);
                row.element("td", &[("class", &alignment(column.numeric))], cell);
            }
        });
    }
}

#[cfg(test)]
mod tests;
