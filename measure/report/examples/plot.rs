//! Draws a plot from JSON: `cargo run -p report --example plot < plot.json > plot.svg`; with `--page`, a page.
//! The JSON has the structure of `report::Plot` and `report::Page`; see `measure/report/README.md`.

use std::io::{Read as _, Write as _};
use std::process::ExitCode;

fn main() -> ExitCode {
    let page = match std::env::args().skip(1).collect::<Vec<_>>().as_slice() {
        [] => false,
        [flag] if flag == "--page" => true,
        _ => return fail(2, "usage: plot [--page] < data.json > plot.svg"),
    };
    let mut json = String::new();
    if let Err(error) = std::io::stdin().read_to_string(&mut json) {
        return fail(1, &format!("plot: standard input: {error}"));
    }
    let written = if page {
        report::read_page(&json).map(|page| page.to_html())
    } else {
        report::read_plot(&json).map(|plot| plot.to_svg())
    };
    match written {
        Err(error) => fail(2, &format!("plot: standard input: {error}")),
        Ok(text) => match std::io::stdout().write_all(text.as_bytes()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(1, &format!("plot: standard output: {error}")),
        },
    }
}

fn fail(status: u8, message: &str) -> ExitCode {
    eprintln!("{message}");
    ExitCode::from(status)
}
