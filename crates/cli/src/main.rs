//! The `firebrick` program: a table of contents of what can be typed.

use std::process::ExitCode;

use cli::Command;
use settings::ProcessEnvironment;

#[global_allocator]
static ALLOCATOR: allocator::Allocator = allocator::Allocator;

fn main() -> ExitCode {
    match cli::parse(std::env::args_os(), &ProcessEnvironment) {
        Ok(Command::Serve(loaded, arguments)) => {
            front::serve(*loaded, cli::reread(arguments, &ProcessEnvironment))
        }
        Ok(Command::Check(loaded)) => cli::check(&loaded, Some(&front::check)),
        Ok(Command::Explain(loaded, question)) => {
            cli::explain(&loaded, &|settings| front::explain(settings, &question))
        }
        Ok(Command::Stats { dir, client, json }) => control::client::stats_command(&dir, &client, json),
        Ok(Command::Deaths { dir, client, json }) => control::client::deaths_command(&dir, &client, json),
        Ok(Command::Reload { dir, client, wish }) => control::reload::reload_command(&dir, &client, wish),
        Ok(Command::Status { target, json }) => control::status_command(&target, json),
        Ok(Command::Stop { target, timeout }) => control::stop_command(&target, timeout),
        Ok(Command::Certs { loaded, client, json }) => cli::certs(&loaded.settings, client.as_ref(), json),
        Ok(Command::Bench(given)) => bench::run(&given),
        Ok(Command::Tune(given)) => tuner::run(&given),
        Ok(Command::Plan(given)) => plan::run(&given),
        Ok(Command::Top { dir, client, given }) => top::run(&dir, &client, &given),
        Ok(Command::Trust(given)) => cli::trust(&given, &ProcessEnvironment),
        Ok(Command::Completions(shell)) => cli::completions(shell),
        Ok(Command::Man) => cli::man(),
        Err(code) => code,
    }
}
