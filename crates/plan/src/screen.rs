//! The answer for people: what matters most first, then a table, then what if, then where the facts are from.

use planner::capacity::Limit;
use planner::facts::Size;
use planner::sizing::{Answer, Cost, Load};
use planner::words::{count, figure, millis, percent, whole};

use crate::given::{Basis, MONTH};
use crate::table::{lines, wrapped};

const WIDTH: usize = 96;

/// The whole screen.
pub(crate) fn text(basis: &Basis, answers: &[Answer], explain: bool) -> String {
    let Some(best) = answers.first() else { return String::new() };
    let mut out = Vec::new();
    out.push(wrapped(&headline(basis, best, answers.len() > 1), WIDTH, 0));
    out.extend(in_short(basis, best).map(|text| wrapped(&text, WIDTH, 0)));
    if answers.len() > 1 {
        section(&mut out, lines(&sizes(answers)));
    }
    section(&mut out, lines(&needed(basis, best)));
    section(&mut out, lines(&loads(basis, best)));
    section(&mut out, what_if(basis, best));
    section(&mut out, costs(basis, best));
    section(&mut out, facts(basis));
    if explain {
        section(&mut out, steps(best));
    }
    out.join("\n") + "\n"
}

fn section(out: &mut Vec<String>, lines: Vec<String>) {
    if !lines.is_empty() {
        out.push(String::new());
        out.extend(lines);
    }
}

fn instances(answer: &Answer) -> String {
    let number = count(answer.instances.into(), "instance", "instances");
    match &answer.size.name {
        Some(name) => format!("{number} of `{name}`"),
        None => number,
    }
}

/// Rounded down: nobody is helped by half a time too many.
fn multiple(times: f64) -> String {
    if times >= 10.0 { figure(times.floor()) } else { figure((times * 10.0).floor() / 10.0) }
}

fn money(cost: &Cost, amount: f64) -> String {
    match cost.currency.len() {
        0 => figure(amount),
        3 if cost.currency.is_ascii() => format!("{} {}", figure(amount), cost.currency),
        _ => format!("{}{}", cost.currency, figure(amount)),
    }
}

fn headline(basis: &Basis, best: &Answer, several: bool) -> String {
    let one = best.instances == 1;
    let (are, could) = if one { ("is", "it could") } else { ("are", "they could") };
    let name = instances(best);
    if best.load.times.is_none() {
        let takes = count(best.needed.in_all.into(), "instance", "instances");
        return format!(
            "{name} {are} not enough: {} would be busy {} of the time. It takes {takes}.",
            if one { "it" } else { "each" },
            percent(best.load.utilisation)
        );
    }
    if let (Some(slo), Some(false)) = (basis.facts.slo, best.keeps_slo) {
        return match best.needed.for_slo {
            None => format!(
                "No number of instances keeps {slo}: requests take longer in the app even when none waits."
            ),
            Some(needed) => {
                format!("{name} {} not keep {slo}. It takes {needed}.", if one { "does" } else { "do" })
            }
        };
    }
    let (times, kept) = match (basis.facts.slo, best.headroom_within_slo_times) {
        (Some(slo), Some(times)) => (times, format!(" and keep {slo}")),
        _ => (best.headroom_times, String::new()),
    };
    match &best.cost {
        Some(cost) if several => format!(
            "{name} {are} enough and cost{} least: {} a month.",
            if one { "s" } else { "" },
            money(cost, cost.per_month)
        ),
        Some(cost) => format!(
            "{name} {are} enough for {} a month: {could} take {} times this rate{kept}.",
            money(cost, cost.per_month),
            multiple(times)
        ),
        None => format!("{name} {are} enough: {could} take {} times this rate{kept}.", multiple(times)),
    }
}

fn in_short(basis: &Basis, best: &Answer) -> Option<String> {
    let times = best.load.times?;
    let waits = match times.waits {
        waits if waits < 1e-4 => "Hardly any request waits".to_owned(),
        waits => format!(
            "{} of the requests wait, {} on average over all",
            percent(waits),
            millis(times.wait_mean_ms)
        ),
    };
    let facts = &basis.facts;
    Some(format!(
        "{waits}; 95 % are answered within {}. With {} requests per second of {}, {} are in the app at once (Little's law).",
        millis(times.p95_ms),
        figure(facts.rate_per_s),
        millis(facts.response_ms),
        figure(best.in_the_app)
    ))
}

fn texts<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

fn shape(size: &Size) -> String {
    let cores = size.cores.map(|cores| {
        format!(", {}", if cores == 1.0 { "1 core".to_owned() } else { format!("{} cores", figure(cores)) })
    });
    format!("{}x{}{}", size.workers, size.threads, cores.unwrap_or_default())
}

fn sizes(answers: &[Answer]) -> Vec<Vec<String>> {
    let mut rows =
        vec![texts(["Size", "shape", "instances", "a month", "a million", "busy", "p95", "can take"])];
    for answer in answers {
        let cost =
            |of: fn(&Cost) -> f64| answer.cost.as_ref().map_or("-".to_owned(), |cost| money(cost, of(cost)));
        rows.push(vec![
            format!("  {}", answer.size.name.as_deref().unwrap_or("-")),
            shape(&answer.size),
            answer.instances.to_string(),
            cost(|cost| cost.per_month),
            cost(|cost| cost.per_million),
            percent(answer.load.utilisation),
            answer.load.times.map_or("endless".to_owned(), |times| millis(times.p95_ms)),
            format!("{}x", multiple(answer.headroom_times)),
        ]);
    }
    rows
}

fn needed(basis: &Basis, best: &Answer) -> Vec<Vec<String>> {
    let needed = &best.needed;
    let mut rows = vec![texts(["What it takes", "instances"])];
    let mut row = |what: String, number: String| rows.push(vec![format!("  {what}"), number]);
    row("to keep up".to_owned(), needed.to_keep_up.to_string());
    if let Some(slo) = basis.facts.slo {
        row(format!("to keep {slo}"), needed.for_slo.map_or("never".to_owned(), |number| number.to_string()));
    }
    if basis.facts.headroom > 0.0 {
        row(format!("with {} head-room", percent(basis.facts.headroom)), needed.with_headroom.to_string());
    }
    row("with one lost besides".to_owned(), needed.with_one_lost.to_string());
    rows
}

fn loads(basis: &Basis, best: &Answer) -> Vec<Vec<String>> {
    let both: Vec<&Load> = std::iter::once(&best.load).chain(best.one_lost.as_ref()).collect();
    let mut head = vec![format!("How it goes with")];
    head.extend(both.iter().map(|load| count(load.instances.into(), "instance", "instances")));
    let mut rows = vec![head];
    let mut row = |what: &str, of: &dyn Fn(&Load) -> String| {
        let cells = both.iter().map(|load| of(load));
        rows.push(std::iter::once(format!("  {what}")).chain(cells).collect());
    };
    let time = |of: fn(&planner::sizing::Waits) -> f64| {
        move |load: &Load| load.times.as_ref().map_or("endless".to_owned(), |times| millis(of(times)))
    };
    row("busy", &|load| percent(load.utilisation));
    if both.iter().all(|load| load.times.is_none()) {
        return rows;
    }
    row("requests that wait", &|load| load.times.map_or("all".to_owned(), |times| percent(times.waits)));
    row("wait, mean", &time(|times| times.wait_mean_ms));
    row("wait, 99 %", &time(|times| times.wait_p99_ms));
    row("answer, mean", &time(|times| times.mean_ms));
    row("answer, 50 %", &time(|times| times.p50_ms));
    row("answer, 95 %", &time(|times| times.p95_ms));
    row("answer, 99 %", &time(|times| times.p99_ms));
    if let Some(slo) = basis.facts.slo.filter(|slo| ![50.0, 95.0, 99.0].contains(&slo.percentile)) {
        row(&format!("answer, {} %", slo.percentile), &|load| {
            load.times.map_or("endless".to_owned(), |times| millis(times.promised_ms(slo)))
        });
    }
    rows
}

fn what_if(basis: &Basis, best: &Answer) -> Vec<String> {
    let item = |text: String| wrapped(&format!("  {text}"), WIDTH, 2);
    let mut out = vec!["What if".to_owned()];
    out.push(item(most(basis, best)));
    out.push(item(burst(basis, best)));
    out.push(item(lost(basis, best)));
    out
}

fn most(basis: &Basis, best: &Answer) -> String {
    let because = match best.limit {
        Limit::Threads => "then all its threads are busy",
        Limit::Workers => "then Ruby runs all of the time in each of its workers",
        Limit::Cores => "then its CPU is busy",
    };
    let within = basis.facts.slo.zip(best.instance_rate_within_slo_per_s);
    let within = within.map(|(slo, rate)| format!(", {} as long as {slo}", figure(rate)));
    format!(
        "more come: an instance takes at most {} requests per second{}; {because}.",
        figure(best.instance_rate_per_s),
        within.unwrap_or_default()
    )
}

fn burst(basis: &Basis, best: &Answer) -> String {
    let (facts, burst) = (&basis.facts, &best.burst);
    let each = if best.instances > 1 {
        format!(" ({} at each instance)", whole(burst.requests))
    } else {
        String::new()
    };
    let drained = burst
        .drained_ms
        .map_or("the queue never empties".to_owned(), |ms| format!("after {} all is as before", millis(ms)));
    let all = f64::from(best.instances);
    let refused = match burst.refused_by_backlog {
        0 => format!("a backlog of {} refuses none", whole(facts.backlog)),
        refused => {
            format!("a backlog of {} refuses {}", whole(facts.backlog), figure(refused as f64 * all))
        }
    };
    let router = millis(facts.router_timeout_ms);
    let cut_off = match burst.cut_off_by_router {
        0 => format!("a router with {router} of patience cuts off none"),
        cut_off => format!("a router with {router} of patience cuts off {}", figure(cut_off as f64 * all)),
    };
    format!(
        "{} requests come at once{each}: the last waits {}, {drained}; {refused}, {cut_off}.",
        whole(facts.burst),
        millis(burst.last_wait_ms)
    )
}

fn lost(basis: &Basis, best: &Answer) -> String {
    let Some(load) = &best.one_lost else {
        return "the instance is lost: there is no other, and nobody is served. With two, one may be lost."
            .to_owned();
    };
    let (rest, others) = match load.instances {
        1 => ("one instance".to_owned(), "the other".to_owned()),
        rest => (count(rest.into(), "instance", "instances"), format!("the other {}", whole(rest.into()))),
    };
    let Some(times) = load.times else {
        return format!(
            "one is lost: {others} cannot keep up ({} busy), and the queue grows until it is back. {} would bear it.",
            percent(load.utilisation),
            best.needed.with_one_lost
        );
    };
    let broken = basis.facts.slo.filter(|slo| times.promised_ms(*slo) > slo.under_ms * 1.000_001);
    let broken =
        broken.map(|slo| format!(" {slo} is not kept then; {} would bear it.", best.needed.with_one_lost));
    format!(
        "one is lost: {rest} would be busy {} of the time, and 95 % answered within {}.{}",
        percent(load.utilisation),
        millis(times.p95_ms),
        broken.unwrap_or_default()
    )
}

fn costs(basis: &Basis, best: &Answer) -> Vec<String> {
    let Some(cost) = &best.cost else { return Vec::new() };
    let (rate, which) = match basis.facts.average_rate_per_s {
        Some(rate) => (rate, "at the average rate"),
        None => (
            basis.facts.rate_per_s,
            "if every minute were the busiest; --average-rate says how many there really are",
        ),
    };
    let millions = rate * MONTH * 3_600.0 / 1e6;
    let own = if best.instances > 1 {
        format!(", {} for each instance", money(cost, cost.instance_per_month))
    } else {
        String::new()
    };
    let text = format!(
        "  {} a month of 730 hours{own}. A million requests cost {}: there are {} million in a month {which}.",
        money(cost, cost.per_month),
        money(cost, cost.per_million),
        figure(millions)
    );
    vec!["What it costs".to_owned(), wrapped(&text, WIDTH, 2)]
}

fn facts(basis: &Basis) -> Vec<String> {
    let widest = basis.origins.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let values = basis.origins.iter().map(|(_, known)| known.value.chars().count()).max().unwrap_or(0);
    let line = |(name, known): &(&str, crate::known::Known<String>)| {
        let start = format!("  {name:widest$}  {:>values$}  ", known.value);
        let indent = start.chars().count();
        // Blanks in front are words of no length to `wrapped`, so the start is put before its first line afterwards.
        let rest =
            wrapped(&known.from, WIDTH - indent, 0).replace('\n', &format!("\n{}", " ".repeat(indent)));
        format!("{start}{rest}")
    };
    let mut out = vec!["Facts".to_owned()];
    out.extend(basis.origins.iter().map(line));
    out.extend(basis.notes.iter().map(|note| wrapped(&format!("  Note: {note}"), WIDTH, 2)));
    out
}

fn steps(best: &Answer) -> Vec<String> {
    let mut out = vec!["How it is calculated".to_owned()];
    for step in &best.steps {
        out.push(wrapped(&format!("  {}: {}", step.what, step.formula), WIDTH, 4));
        out.push(wrapped(
            &format!("    = {} = {}    [{}]", step.filled_in, step.result, step.source),
            WIDTH,
            6,
        ));
    }
    out
}
