//! Shows findings: for people, and as JSON.
//!
//! Contract: a light is a word; colours only repeat it.

use std::fmt::Write;

use serde_json::{Value, json};

use super::facts::DeployFacts;
use super::finding::{DeployFinding, TrafficLight};

/// The width of the lines for people.
const WIDTH: usize = 110;

/// Returns the worst light, and how many findings have each.
pub(super) fn summed(findings: &[DeployFinding]) -> (TrafficLight, [usize; 3]) {
    let worst = findings.iter().map(|finding| finding.light).max().unwrap_or(TrafficLight::Green);
    let lights = [TrafficLight::Green, TrafficLight::Yellow, TrafficLight::Red];
    (worst, lights.map(|light| findings.iter().filter(|finding| finding.light == light).count()))
}

/// Returns a line for each finding, and below it the lines to paste.
pub(super) fn people(facts: &DeployFacts, findings: &[DeployFinding], colours: bool) -> String {
    let served = facts.settings.app.as_deref().unwrap_or(&facts.settings.dir).display();
    let mut text =
        format!("Firebrick {} would serve {served} in {}\n\n", crate::VERSION, facts.environment.name);
    let width = findings.iter().map(|finding| finding.question.len()).max().unwrap_or(0);
    // The light, the question, and two spaces behind each.
    let indent = 8 + width + 2;
    for finding in findings {
        let line = format!("{:<6}  {:<width$}  {}", finding.light.word(), finding.question, finding.text);
        let line = wrapped(&line, indent);
        let rest = line.strip_prefix(finding.light.word()).unwrap_or(&line);
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{}{rest}", word(finding.light, colours));
        for paste in &finding.paste {
            let _ = writeln!(text, "{:indent$}{}:", "", paste.place);
            for line in paste.text.lines() {
                let _ = writeln!(text, "{:indent$}    {line}", "");
            }
        }
    }
    let (_, [green, yellow, red]) = summed(findings);
    let _ = writeln!(text, "\n{green} green, {yellow} yellow, {red} red");
    text
}

/// Wraps a line. The words of the first columns stay as they are.
fn wrapped(line: &str, indent: usize) -> String {
    let (head, rest) = line.split_at_checked(indent).unwrap_or((line, ""));
    let mut lines: Vec<String> = vec![head.to_owned()];
    let mut empty = true;
    for word in rest.split(' ') {
        let last = lines.last().map_or(0, |line| line.chars().count());
        if !empty && last + 1 + word.chars().count() > WIDTH {
            lines.push(" ".repeat(indent));
            empty = true;
        }
        if let Some(last) = lines.last_mut() {
            if !empty {
                last.push(' ');
            }
            last.push_str(word);
        }
        empty = false;
    }
    lines.join("\n")
}

fn word(light: TrafficLight, colours: bool) -> String {
    let code = match light {
        TrafficLight::Green => 32,
        TrafficLight::Yellow => 33,
        TrafficLight::Red => 31,
    };
    if colours { format!("\u{1b}[{code}m{}\u{1b}[0m", light.word()) } else { light.word().to_owned() }
}

/// Returns all findings with their figures.
pub(super) fn json(facts: &DeployFacts, findings: &[DeployFinding]) -> Value {
    let (worst, [green, yellow, red]) = summed(findings);
    json!({
        "firebrick": crate::VERSION,
        "dir": facts.settings.dir.display().to_string(),
        "environment": facts.environment.name,
        "behind": facts.surroundings.proxy.word(),
        "light": worst.word(),
        "green": green,
        "yellow": yellow,
        "red": red,
        "findings": findings.iter().map(DeployFinding::json).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_sentences_are_wrapped_below_themselves() {
        let line = format!("red     x  {}", "word ".repeat(40).trim_end());
        let text = wrapped(&line, 11);
        assert!(text.lines().count() > 1 && text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert!(text.lines().skip(1).all(|line| line.starts_with("           word")), "{text}");
        assert_eq!(wrapped("red", 11), "red");
    }

    #[test]
    fn colours_repeat_the_word() {
        assert_eq!(word(TrafficLight::Red, false), "red");
        assert_eq!(word(TrafficLight::Red, true), "\u{1b}[31mred\u{1b}[0m");
    }
}
