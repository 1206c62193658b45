//! The `firebrick` program: runs the typed command.

use std::process::ExitCode;

use cli::{Command, ReplayWish};
use control::client::ControlClient;
use settings::{Argument, Loaded, ProcessEnvironment};

#[global_allocator]
static ALLOCATOR: allocator::Allocator = allocator::Allocator;

/// Runs `firebrick check`. The process that evaluates `puma.rb` also loads the app.
fn check(loaded: Loaded, arguments: Vec<Argument>, write: bool) -> ExitCode {
    match front::configure(loaded, &cli::reread(Some(arguments), &ProcessEnvironment), None) {
        Ok((loaded, _)) if write => cli::write(&loaded),
        Ok((loaded, prepared)) => cli::check(&loaded, Some(&|settings| front::check(settings, &prepared))),
        Err(error) => {
            output::complain(format_args!("error: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Runs `firebrick deaths --replay N`, which boots the app as `check` does.
fn replay(loaded: Loaded, arguments: Vec<Argument>, client: &ControlClient, wish: ReplayWish) -> ExitCode {
    cli::replay(
        (loaded, arguments),
        client,
        wish.number,
        &ProcessEnvironment,
        |(loaded, arguments), payloads| {
            let (loaded, prepared) =
                front::configure(loaded, &cli::reread(Some(arguments), &ProcessEnvironment), None)?;
            let replayed = front::replay(&loaded.settings, &prepared, payloads, wish.limit)?;
            Ok(replayed.into_iter().map(|one| (one.good, one.text)).collect())
        },
    )
}

fn main() -> ExitCode {
    // An internal command: the server starts the guard of its services this way.
    if let Some(code) = front::guard(std::env::args_os().skip(1)) {
        return code;
    }
    // An internal command: a Ruby process that has loaded an app starts its server this way.
    if let Some((attached, words)) = front::attached(std::env::args_os().skip(1)) {
        let loaded = cli::parse_attached(attached, words, &ProcessEnvironment);
        return loaded.map_or_else(|code| code, |(loaded, reread)| front::serve_attached(*loaded, reread));
    }
    output::verdict(run())
}

fn run() -> ExitCode {
    match cli::parse(std::env::args_os(), &ProcessEnvironment) {
        Ok(Command::Serve(loaded, arguments)) => {
            let started = front::Started::now(&ProcessEnvironment);
            front::serve(*loaded, cli::reread(Some(arguments), &ProcessEnvironment), started)
        }
        Ok(Command::Check { loaded, arguments, write }) => check(*loaded, arguments, write),
        Ok(Command::DeployCheck { loaded, arguments, wish }) => cli::deploy_check(*loaded, arguments, &wish),
        Ok(Command::Explain(loaded, question)) => cli::explain(&loaded, &|settings| {
            Ok(front::explain(settings, &question)? + &cli::kept(settings, &question))
        }),
        Ok(Command::Stats { dir, client, json }) => control::client::stats_command(&dir, &client, json),
        Ok(Command::Routes { dir, client, wish }) => control::by_route::routes_command(&dir, &client, &wish),
        Ok(Command::Deaths { dir, client, json, minute }) => {
            control::client::deaths_command(&dir, &client, json, minute)
        }
        Ok(Command::Replay { loaded, arguments, client, wish }) => replay(*loaded, arguments, &client, wish),
        Ok(Command::Record { dir, client, order, file }) => {
            control::record::record_command(&dir, &client, &order, &file)
        }
        Ok(Command::Leaks { dir, client, wish }) => control::leaks::leaks_command(&dir, &client, &wish),
        Ok(Command::Differences { dir, client, json }) => {
            control::reload::differences_command(&dir, &client, json)
        }
        Ok(Command::Reload { dir, client, wish }) => control::reload::reload_command(&dir, &client, wish),
        Ok(Command::Upgrade { dir, client }) => control::reload::upgrade_command(&dir, &client),
        Ok(Command::Pause { dir, client, order, wait }) => {
            control::interrupt::pause_command(&dir, &client, &order, wait)
        }
        Ok(Command::Resume { dir, client }) => control::interrupt::resume_command(&dir, &client),
        Ok(Command::Cache { dir, client, action, json }) => {
            control::cache::cache_command(&dir, &client, &action, json)
        }
        Ok(Command::Hub { dir, client, json }) => control::hub::hub_command(&dir, &client, json),
        Ok(Command::Maintenance { dir, client, action, json }) => {
            control::interrupt::maintenance_command(&dir, &client, &action, json)
        }
        Ok(Command::Set { dir, client, action, json }) => {
            control::set::set_command(&dir, &client, &action, json)
        }
        Ok(Command::Shape { dir, client, json }) => control::shape::shape_command(&dir, &client, json),
        Ok(Command::Ps { json }) => control::ps_command(json),
        Ok(Command::Status { target, json }) => control::status_command(&target, json),
        Ok(Command::Stop { target, timeout }) => control::stop_command(&target, timeout),
        Ok(Command::Certs { loaded, client, json }) => cli::certs(&loaded.settings, client.as_ref(), json),
        #[cfg(feature = "measuring")]
        Ok(Command::Bench(given)) => bench::run(&given),
        #[cfg(feature = "measuring")]
        Ok(Command::Tune(given)) => tuner::run(&given),
        #[cfg(feature = "measuring")]
        Ok(Command::Plan(given)) => plan::run(&given),
        #[cfg(feature = "measuring")]
        Ok(Command::Profile { dir, client, given }) => profiler::run(&dir, &client, &given),
        #[cfg(feature = "measuring")]
        Ok(Command::Top { dir, client, given }) => top::run(&dir, &client, &given),
        #[cfg(not(feature = "measuring"))]
        Ok(
            Command::Bench(_)
            | Command::Tune(_)
            | Command::Plan(_)
            | Command::Profile { .. }
            | Command::Top { .. },
        ) => {
            output::complain(format_args!(
                "error: this program was built without bench, tune, plan, profile and top; `make` builds it with them"
            ));
            ExitCode::from(2)
        }
        Ok(Command::Trust(given)) => cli::trust(&given, &ProcessEnvironment),
        Ok(Command::Completions(shell)) => cli::completions(shell),
        Ok(Command::Version) => cli::print_version(),
        Ok(Command::Man) => cli::man(),
        Err(code) => code,
    }
}
